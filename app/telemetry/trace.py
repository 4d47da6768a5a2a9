"""A trace: a file of telemetry, one JSON object a line, as `watch --json` writes it (docs/telemetry.md)."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from app.errors import UserError, read_error
from app.fields import Sample, SlowSample
from app.paths import open_regular, read_file
from app.samples import HOST, Device, DeviceLost, Inventory, Processes
from app.telemetry.plausible import PlausibleReadings
from app.telemetry.replay import Recording, Timed, TraceStarted
from workloads.machine import Machine

_EPOCH = datetime.fromtimestamp(0, UTC)


class _Head(msgspec.Struct):
    """The fields of every line; one without a `kind` is a sample."""

    t_ns: int
    utc: Annotated[datetime, msgspec.Meta(tz=True)]
    device: str
    kind: str = "sample"


class _DeviceLine(msgspec.Struct):
    """A line that describes a device; `cpu_count` is the host's."""

    device: str
    index: int
    name: str
    memory_total_bytes: int | None = None
    absent: dict[str, str] = {}
    cpu_count: int = 0


_Message = Sample | SlowSample | Processes | DeviceLost | _DeviceLine

_HEAD = msgspec.json.Decoder(_Head)
_DECODERS: dict[str, msgspec.json.Decoder[_Message]] = {
    "sample": msgspec.json.Decoder(Sample),
    "slow_sample": msgspec.json.Decoder(SlowSample),
    "processes": msgspec.json.Decoder(Processes),
    "device_lost": msgspec.json.Decoder(DeviceLost),
    "device": msgspec.json.Decoder(_DeviceLine),
}


class _Line(NamedTuple):
    number: int
    head: _Head
    message: _Message


_MAX_LINE_BYTES = 100_000
_PEEK_BYTES = 4_096
_MOST_BYTES = 2_000_000_000
"""Of a trace, which is read whole: weeks of eight GPUs."""


def is_trace(path: Path) -> bool:
    """Return whether a file begins as a trace does; raise `OSError` where it cannot be read."""
    with open_regular(path) as file:
        line = file.readline(_MAX_LINE_BYTES)
    try:
        _HEAD.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def refuse_timeline(path: Path) -> None:
    """Raise `UserError` for a file that begins as an exported timeline, `OSError` where it cannot be read."""
    with open_regular(path) as file:
        if b'"traceEvents"' in file.read(_PEEK_BYTES):
            raise UserError("This is a timeline for Perfetto; open it at ui.perfetto.dev.")


def read_trace(path: Path) -> Recording:
    """Read a trace and check every line; a last line that was cut off while it was written does not count.

    The recording holds the file's text, not what that says.

    Raises `UserError` for a file that cannot be read, is something else, or holds more than one recording.
    """
    try:
        refuse_timeline(path)
        text = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise read_error(path, error) from error
    scan = _TraceScan(path.name)
    for line in _lines(text, path.name):
        scan.add_line(line)
    if scan.first is None:
        raise UserError(f"{path.name} holds no telemetry, so there is nothing to replay.")
    utc_offset_ns = (scan.first.utc - _EPOCH) // timedelta(microseconds=1) * 1000 - scan.first.t_ns
    inventory = scan.inventory()
    return Recording(
        name=path.name,
        inventory=inventory,
        gpu_names=tuple(device.name for device in inventory.devices if device.kind == "gpu"),
        start_ns=scan.start_ns,
        end_ns=scan.end_ns,
        utc_ns=scan.start_ns + utc_offset_ns,
        events=partial(_events, text, path.name, scan.start_ns, inventory.devices),
    )


def _events(text: bytes, name: str, start_ns: int, devices: tuple[Device, ...]) -> Iterator[Timed]:
    """Yield the telemetry in the order of the file, after a `TraceStarted`."""
    yield Timed(start_ns, TraceStarted(t_ns=start_ns, devices=devices))
    readings = {device.device: PlausibleReadings(device.kind, device.memory_total_bytes) for device in devices}
    for line in _lines(text, name):
        message = line.message
        if isinstance(message, Sample | SlowSample):
            message = readings[message.device].without_implausible(message)
        if not isinstance(message, _DeviceLine):
            yield Timed(message.t_ns, message)


class _TraceScan:
    """Findings of one reading of a trace: its devices, and when it begins and ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._devices: dict[str, _DeviceLine] = {}
        self._newest_ns: dict[tuple[str, str], int] = {}
        self.first: _Head | None = None
        self.start_ns = self.end_ns = 0

    def add_line(self, line: _Line) -> None:
        """Add one line. A GPU that no line describes is known by its id and counted as it came."""
        number, head, message = line
        if isinstance(message, _DeviceLine):
            self._devices[message.device] = message
            return
        if head.device not in self._devices:
            index = -1 if head.device == HOST else len(self._devices.keys() - {HOST})
            self._devices[head.device] = _DeviceLine(device=head.device, index=index, name=head.device)
        if head.t_ns < self._newest_ns.get((head.device, head.kind), head.t_ns):
            raise UserError(f"Line {number} of {self._name} goes back in time: a trace holds one recording.")
        self._newest_ns[head.device, head.kind] = head.t_ns
        if self.first is None:
            self.first = head
            self.start_ns = self.end_ns = head.t_ns
        self.start_ns, self.end_ns = min(self.start_ns, head.t_ns), max(self.end_ns, head.t_ns)

    def inventory(self) -> Inventory:
        """Return the machine of the trace."""
        host = self._devices.get(HOST)
        return Inventory(
            machine=Machine(cpu_count=host.cpu_count if host else 0),
            devices=tuple(
                Device(
                    device=line.device,
                    kind="host" if line.device == HOST else "gpu",
                    index=line.index,
                    name=line.name,
                    memory_total_bytes=line.memory_total_bytes,
                    absent=line.absent,
                )
                for line in self._devices.values()
            ),
        )


def _lines(text: bytes, name: str) -> Iterator[_Line]:
    """Return every line of a kind known here; later versions may write others."""
    for number, line in enumerate(io.BytesIO(text), start=1):
        try:
            head = _HEAD.decode(line)
            if head.kind in _DECODERS:
                yield _Line(number, head, _DECODERS[head.kind].decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            if not line.endswith(b"\n"):
                return
            raise UserError(f"Line {number} of {name} is no event of a trace ({error}).") from error
