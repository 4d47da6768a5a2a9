"""`watch`: live telemetry without a run, as lines to read, as JSON lines, or as a log in CSV."""

import csv
import queue
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from app.cli.services import interrupts, telemetry
from app.cli.terminal import print_json
from app.report.documents import iso_utc
from app.report.watch import Told, device_lines, telemetry_line
from app.samples import HOST, SAMPLE_FIELDS, Device, DeviceLost, Inventory, Sample
from app.telemetry.messages import SamplerMessage
from app.viewmodels import units
from app.viewmodels.fields import field_text
from workloads.catalog import UsageError

Printer = Callable[[Told], None]

_EARLY = 0.95
"""A reading may come this share of the time asked for after the one before."""

_LOGGED = tuple(name for name in SAMPLE_FIELDS if not name.startswith("worker"))


def watch(chosen: Namespace) -> int:
    """Prints telemetry until the time is over or Ctrl-C."""
    if chosen.json and chosen.csv:
        raise UsageError("watch prints JSON or CSV, not both: give --json or --csv.")
    inbox: queue.SimpleQueue[SamplerMessage | None] = queue.SimpleQueue()
    with telemetry(1000 * chosen.every) as feed, interrupts(lambda: inbox.put(None)):
        feed.subscribe(inbox.put)
        begin_ns = time.monotonic_ns()
        show = printer(chosen, feed.wait_inventory(), "live", begin_ns, time.time_ns() - begin_ns)
        due = Due(chosen.every)
        end_s = time.monotonic() + chosen.seconds if chosen.seconds is not None else float("inf")
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                message = inbox.get(timeout=min(left_s, 3600))
            except queue.Empty:
                continue
            if message is None:
                break
            if isinstance(message, Told) and due(message):
                show(message)
    return 0


class Due:
    """Whether a reading is to be shown: beside GPUs the host is read at a pace of its own, which may be faster."""

    def __init__(self, every_s: float) -> None:
        self._least_ns = round(_EARLY * every_s * 1e9)
        self._shown_ns: dict[str, int] = {}

    def __call__(self, message: Told) -> bool:
        """True for all but a sample that comes well before its device's next one is wanted."""
        if not isinstance(message, Sample):
            return True
        before_ns = self._shown_ns.get(message.device)
        if before_ns is not None and message.t_ns - before_ns < self._least_ns:
            return False
        self._shown_ns[message.device] = message.t_ns
        return True


def printer(chosen: Namespace, inventory: Inventory, source: str, begin_ns: int, anchor_ns: int) -> Printer:
    """What prints telemetry from `begin_ns` on as asked for; `anchor_ns` is the wall clock less the telemetry's own."""
    if chosen.json:
        return _json_printer(inventory, source, begin_ns, anchor_ns)
    devices = {device.device: device for device in inventory.devices}
    if getattr(chosen, "csv", False):
        return _csv_printer(devices, anchor_ns)
    return lambda message: _print_line(message, devices[message.device], anchor_ns)


def _json_printer(inventory: Inventory, source: str, begin_ns: int, anchor_ns: int) -> Printer:
    """A line a device, then one a message."""
    for line in device_lines(inventory, t_ns=begin_ns, utc=iso_utc(begin_ns + anchor_ns), source=source):
        print_json(line, compact=True)
    return lambda message: print_json(
        telemetry_line(message, utc=iso_utc(message.t_ns + anchor_ns), source=source), compact=True
    )


def _csv_printer(devices: Mapping[str, Device], anchor_ns: int) -> Printer:
    """A header, then one row a device and reading, each written at once; what a device does not say is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")

    def row(*values: object) -> None:
        writer.writerow(["" if value is None else value for value in values])
        sys.stdout.flush()

    def show(message: Told) -> None:
        if isinstance(message, Sample):
            device = devices[message.device]
            head = (iso_utc(message.t_ns + anchor_ns), _title(device), device.name, device.device)
            row(*head, *(getattr(message, name) for name in _LOGGED))

    row("utc", "device", "name", "uuid", *_LOGGED)
    return show


def _title(device: Device) -> str:
    return "host" if device.device == HOST else f"GPU {device.index}"


def _print_line(message: Told, device: Device, anchor_ns: int) -> None:
    if isinstance(message, DeviceLost):
        print(f"{_title(device):6s}  {message.reason}", flush=True)
    if not isinstance(message, Sample):
        return
    moment = datetime.fromtimestamp((message.t_ns + anchor_ns) / 1e9, UTC).astimezone().strftime("%H:%M:%S.%f")[:-4]
    fields = (
        f"{field_text('power_mw', message.power_mw):>9s}",
        f"{units.percent(message.load_pct):>6s}",
        f"{units.byte_size(message.memory_bytes):>10s}",
        f"{units.celsius(message.temperature_c):>6s}",
        f"{units.megahertz(message.sm_clock_mhz):>10s}",
    )
    print(f"{moment}  {_title(device):6s}", *fields, flush=True)
