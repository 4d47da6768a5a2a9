"""`watch`: telemetry printed live."""

import csv
import math
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import click
import msgspec

from app.cli.options import Number, command, on_option
from app.cli.services import opened_host, stop_on_interrupt
from app.cli.terminal import print_json, say
from app.errors import TelemetryError
from app.report.documents import TelemetryMessage, device_lines, iso_utc, telemetry_line
from app.telemetry.messages import SamplerMessage
from app.values import units
from app.values.fields import FAST_FIELDS, FIELDS, Sample, SlowSample
from app.values.plain import cell_text
from app.values.samples import HOST, Device, DeviceLost, Inventory, TelemetryGap
from app.viewmodels.format.telemetry_fields import format_field, format_throttle_reasons
from workloads.catalog import UsageError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

OutputFormat = Literal["text", "json", "csv"]
Printer = Callable[[TelemetryMessage | Inventory], None]

_PERIOD_TOLERANCE = 0.95
"""A reading may come this share of the requested time after the previous one."""

_LABELS = ("device", "name", "uuid")
_LOGGED = tuple(name for name in FAST_FIELDS if FIELDS[name].topic != "worker")


@command("watch", "watch --seconds 10", "watch --csv --every 5 > telemetry.csv", uses_database=False)
@click.option(
    "--seconds", type=Number(0, math.inf, is_open=True), metavar="N", help="End after N seconds (default: at Ctrl-C)."
)
@click.option(
    "--every",
    "every_s",
    type=Number(0.01, 3600),
    default=1.0,
    metavar="S",
    help="Seconds between two readings (default 1).",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print a log with a header, one row per device and reading.")
@click.option(
    "--prometheus",
    metavar="[ADDRESS:]PORT",
    default="",
    help="Serve the newest reading to Prometheus, to this machine alone (default ADDRESS: 127.0.0.1).",
)
@on_option
def watch(as_json: bool, seconds: float | None, every_s: float, as_csv: bool, prometheus: str, on: str) -> int:
    """Print telemetry until the time is over or Ctrl-C."""
    if as_json + as_csv + bool(prometheus) > 1:
        raise UsageError("watch takes one of --json, --csv and --prometheus.")
    output: OutputFormat = "json" if as_json else "csv" if as_csv else "text"
    inbox: queue.SimpleQueue[SamplerMessage | None] = queue.SimpleQueue()
    with (
        _served(prometheus) if prometheus else nullcontext() as metrics,
        opened_host(on, 1000 * every_s) as host,
        stop_on_interrupt(lambda: inbox.put(None)),
    ):
        host.telemetry.subscribe(inbox.put)
        now = host.now()
        origin = Origin(now.t_ns, now.utc_ns - now.t_ns)
        host.inventory()
        show = metrics.take if metrics else make_printer(output, origin)
        due = RateLimiter(every_s)
        end_s = time.monotonic() + seconds if seconds is not None else float("inf")
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                message = inbox.get(timeout=min(left_s, 3600))
            except queue.Empty:
                continue
            if message is None:
                break
            if isinstance(message, TelemetryGap):
                say(message.reason)
            elif isinstance(message, DeviceLost) and message.device == HOST:
                raise TelemetryError(message.reason)  # the sampler was given up
            elif isinstance(message, Inventory) or (isinstance(message, TelemetryMessage) and due(message)):
                show(message)
    return 0


class RateLimiter:
    """Decides whether to show a reading: besides GPUs the host is read at another, possibly higher rate."""

    def __init__(self, every_s: float) -> None:
        self._least_ns = round(_PERIOD_TOLERANCE * every_s * 1e9)
        self._shown_ns: dict[str, int] = {}

    def __call__(self, message: TelemetryMessage) -> bool:
        """Return False for a sample that comes well before its device's next one is due."""
        if not isinstance(message, Sample):
            return True
        before_ns = self._shown_ns.get(message.device)
        if before_ns is not None and message.t_ns - before_ns < self._least_ns:
            return False
        self._shown_ns[message.device] = message.t_ns
        return True


@dataclass(frozen=True, slots=True)
class Origin:
    """The start of telemetry. `anchor_ns` is the wall clock minus the telemetry's clock."""

    begin_ns: int
    anchor_ns: int

    def utc(self, t_ns: int) -> str:
        """Return the wall clock's time for a time of the telemetry."""
        return iso_utc(t_ns + self.anchor_ns)


class _DeviceTitles:
    """The devices seen so far: their titles, and sentences on those that are lost, return or appear."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._implausible: set[tuple[str, str]] = set()

    def __getitem__(self, device: str) -> Device:
        return self._devices[device]

    def update(self, message: Inventory | DeviceLost) -> list[str]:
        """Process a message; return what happened to the devices."""
        is_first = not self._devices
        if isinstance(message, Inventory):
            devices: Sequence[Device] = message.devices
        else:
            devices = [msgspec.structs.replace(self._devices[message.device], lost=message.reason)]
        sentences = [self._describe_change(device, is_first=is_first) for device in devices]
        self._devices.update((device.device, device) for device in devices)
        return list(filter(None, sentences))

    def describe_implausible(self, sample: Sample) -> str:
        """Return a sentence on fields with implausible readings, once per field; else ""."""
        new = [name for name in sample.implausible if (sample.device, name) not in self._implausible]
        self._implausible.update((sample.device, name) for name in new)
        title = _device_title(self._devices[sample.device])
        return f"{title} gives implausible readings, which are left out: {', '.join(new)}." if new else ""

    def _describe_change(self, device: Device, *, is_first: bool) -> str:
        last_seen = self._devices.get(device.device)
        title = _device_title(device)
        if device.lost is not None:
            return f"{title} is lost: {device.lost}" if last_seen is None or last_seen.lost is None else ""
        if last_seen is None:
            return "" if is_first else f"{title} was found: {device.name}."
        return "" if last_seen.lost is None else f"{title} answers again."


def make_printer(output: OutputFormat, origin: Origin) -> Printer:
    """Return a function that prints messages, the first of which must be an inventory."""
    if output == "json":
        return _json_printer(origin)
    if output == "csv":
        return _csv_printer(origin)
    print(
        f"{'time':11}  {'device':6} {'power':>9} {'load':>6} {'memory':>10} {'temp.':>6} {'SM clock':>10}", flush=True
    )
    return _sample_printer(lambda sample, device: _print_sample(sample, device, origin), partial(print, flush=True))


def _json_printer(origin: Origin) -> Printer:
    descriptions: dict[str, dict[str, Any]] = {}
    newest_ns = origin.begin_ns

    def show(message: TelemetryMessage | Inventory) -> None:
        nonlocal newest_ns
        if not isinstance(message, Inventory):
            newest_ns = max(newest_ns, message.t_ns)
            print_json(telemetry_line(message, utc=origin.utc(message.t_ns)), compact=True)
            return
        for line in device_lines(message, t_ns=newest_ns, utc=origin.utc(newest_ns)):
            description = {name: value for name, value in line.items() if name not in ("t_ns", "utc")}
            if descriptions.get(line["device"]) != description:
                descriptions[line["device"]] = description
                print_json(line, compact=True)

    return show


def _csv_printer(origin: Origin) -> Printer:
    """Print a header; return a function that writes a row per device and reading; absent values are empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")

    def row(*values: object) -> None:
        writer.writerow(["" if value is None else value for value in values])
        sys.stdout.flush()

    def print_sample(sample: Sample, device: Device) -> None:
        head = (origin.utc(sample.t_ns), _device_title(device), cell_text(device.name), cell_text(device.device))
        row(*head, *(getattr(sample, name) for name in _LOGGED))

    row("utc", "device", "name", "uuid", *_LOGGED)
    return _sample_printer(print_sample, say)


def _device_title(device: Device) -> str:
    return "host" if device.device == HOST else f"GPU {device.index}"


def _sample_printer(print_sample: Callable[[Sample, Device], None], print_change: Callable[[str], object]) -> Printer:
    devices = _DeviceTitles()

    def show(message: TelemetryMessage | Inventory) -> None:
        if isinstance(message, Inventory | DeviceLost):
            for sentence in devices.update(message):
                print_change(sentence)
        elif isinstance(message, Sample):
            if sentence := devices.describe_implausible(message):
                say(sentence)
            print_sample(message, devices[message.device])

    return show


def _print_sample(message: Sample, device: Device, origin: Origin) -> None:
    utc = datetime.fromtimestamp((message.t_ns + origin.anchor_ns) / 1e9, UTC)
    fields = (
        f"{format_field('power_mw', message.power_mw):>9s}",
        f"{units.percent(message.load_pct):>6s}",
        f"{units.byte_size(message.memory_bytes):>10s}",
        f"{units.celsius(message.temperature_c):>6s}",
        f"{units.megahertz(message.sm_clock_mhz):>10s}",
    )
    reasons = format_throttle_reasons(message.throttle_reasons or 0)
    figures = (*fields, f"  throttled: {reasons}") if reasons else fields
    print(f"{utc.astimezone():%H:%M:%S.%f}"[:-4], f" {_device_title(device):6s}", *figures, flush=True)


class TelemetryMetrics:
    """The newest values of each answering device: a metric per field, named by the field with its unit.

    https://prometheus.io/docs/instrumenting/writing_exporters/

    `take` is called on one thread and `collect` on the server's; each replaces or reads a whole dictionary.
    """

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._values: dict[str, dict[str, float | None]] = {}

    def take(self, message: TelemetryMessage | Inventory) -> None:
        if isinstance(message, Inventory):
            self._devices = {device.device: device for device in message.devices}
        elif isinstance(message, DeviceLost):
            self._values = {device: values for device, values in self._values.items() if device != message.device}
        elif isinstance(message, Sample | SlowSample):
            new = {name: value for name, value in msgspec.structs.asdict(message).items() if name in FIELDS}
            self._values = {**self._values, message.device: {**self._values.get(message.device, {}), **new}}

    def collect(self) -> Iterator["Metric"]:
        """Yield a metric for each field that some device reports, with labels for the device."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        devices, values = self._devices, self._values
        for name, field in FIELDS.items():
            family = CounterMetricFamily if field.kind == "counter" else GaugeMetricFamily
            metric = family(f"variantscope_{name}", f"{field.label}: {field.meaning}", labels=_LABELS)
            for device, reading in values.items():
                if (value := reading.get(name)) is not None and (card := devices.get(device)) is not None:
                    number = "host" if device == HOST else str(card.index)
                    metric.add_metric([number, card.name, device], value)
            if metric.samples:
                yield metric


@contextmanager
def _served(address: str) -> Iterator[TelemetryMetrics]:
    """Serve metrics at `[ADDRESS:]PORT` while the block runs.

    Raises:
        UsageError: The address is invalid, or another program uses its port.
    """
    interface, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 <= int(port) < 65536):
        raise UsageError(f"--prometheus takes a port, or ADDRESS:PORT, such as 9400; this is {address}.")
    from prometheus_client import CollectorRegistry, start_http_server

    metrics, registry = TelemetryMetrics(), CollectorRegistry()
    registry.register(cast("Collector", metrics))
    interface = interface.strip("[]") or "127.0.0.1"
    try:
        server, thread = start_http_server(int(port), interface, registry)
    except OSError as error:
        raise UsageError(f"Port {port} of {interface} is not free for --prometheus ({error.strerror}).") from error
    host, port_number = server.server_address[:2]
    say(f"Serving http://{host!s}:{port_number}/metrics until Ctrl-C.")
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
