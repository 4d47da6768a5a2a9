"""`gpus`, `watch`, `replay` and `calibrate`: GPUs, live and recorded telemetry, and peak matrix throughput."""

import csv
import queue
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from app import units
from app.cli.services import open_store, run_services, stop_on_interrupt, telemetry_feed
from app.cli.terminal import print_json, print_table, say
from app.errors import TelemetryError
from app.fields import FAST_FIELDS, SLOW_FIELDS, Sample, SlowSample
from app.report.documents import TelemetryMessage, device_lines, gpus_document, iso_utc, telemetry_line
from app.runs.probes import CalibrationResult, calibrate
from app.samples import HOST, Device, DeviceLost, Inventory
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.telemetry.replay import Recording, Replay, RunRecording
from app.telemetry.trace import read_trace
from app.viewmodels.format import derived
from app.viewmodels.format.telemetry_fields import device_fields, format_field
from workloads.catalog import UsageError

_SLOWER = 0.9
"""A rate below so much of the one before is more than chance: something was changed, or something else was busy."""


def calibrate_devices(chosen: Namespace) -> int:
    """Measures, stores and prints."""
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        measured = list(calibrate(services, store, chosen.precision, say))
    if chosen.json:
        rates = [
            {name: getattr(each.calibration, name) for name in each.calibration.__struct_fields__} for each in measured
        ]
        print_json({"calibrations": rates})
        return 0
    rows = [_calibration_row(each) for each in measured]
    print_table(("device", "precision", "matrix products", "before", "size"), rows, right=frozenset({2, 3, 4}))
    for each in measured:
        if each.previous is not None and each.calibration.flops_per_s < _SLOWER * each.previous.flops_per_s:
            say(_describe_slowdown(each))
    return 0


def _calibration_row(measured: CalibrationResult) -> tuple[str, ...]:
    found, before = measured
    was = units.ABSENT if before is None else units.gflops(before.flops_per_s)
    return found.device, found.precision, units.gflops(found.flops_per_s), was, f"{found.size}³"


def _describe_slowdown(measured: CalibrationResult) -> str:
    found = measured.calibration
    return (
        f"{found.device} in {found.precision} is slower than before. If neither driver, TensorFlow nor power limit was "
        "changed, something else was busy: run it again on a quiet machine."
    )


_FIRST_S = 20.0
_WATCH_S = 3.0
_WATCH_MS = 20.0


def gpus(chosen: Namespace) -> int:
    """Prints every GPU and the host with one reading of each field, what it costs and how often it is renewed."""
    with telemetry_feed(_WATCH_MS) as feed:
        inventory = feed.wait_inventory()
        seen = _collect_readings(feed, inventory)
        inventory = feed.wait_inventory()  # with what watching has taught
    if chosen.json:
        print_json(gpus_document(inventory, seen.values))
        return 0
    if inventory.no_gpu_reason:
        print(f"No GPU: {inventory.no_gpu_reason}. Runs use the CPU.")
    else:
        print(f"driver {inventory.driver}, CUDA up to {inventory.cuda_driver}")
    for device in inventory.devices:
        _print_device(device, seen.values.get(device.device, {}))
    return 0


@dataclass(slots=True)
class _Readings:
    """What a short watch has told: the newest value of each field, and of whom it has heard."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)

    def take(self, message: SamplerMessage) -> None:
        """Takes one message."""
        if isinstance(message, Sample | SlowSample):
            readings = self.values.setdefault(message.device, {})
            named = ((name, getattr(message, name)) for name in (*FAST_FIELDS, *SLOW_FIELDS) if hasattr(message, name))
            readings.update((name, value) for name, value in named if value is not None)
        if isinstance(message, Sample | DeviceLost):
            self.answered.add(message.device)

    def has_all_fields(self, device: Device) -> bool:
        """Whether every field that can be read was read."""
        readings = self.values.get(device.device, {})
        return all(name in readings for name in device.fields if "worker" not in name)


def _collect_readings(feed: TelemetryFeed, inventory: Inventory) -> _Readings:
    """Three seconds of telemetry where there is a GPU, so that slow values and periods are known; else one reading."""
    inbox: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(inbox.put)
    seen, devices = _Readings(), {device.device for device in inventory.devices}
    first_s = time.monotonic() + _FIRST_S
    end_s = time.monotonic() + _WATCH_S
    try:
        while not devices <= seen.answered or time.monotonic() < end_s:
            if not inventory.machine.gpus and all(map(seen.has_all_fields, inventory.devices)):
                break
            limit_s = end_s if devices <= seen.answered else first_s
            try:
                seen.take(inbox.get(timeout=max(0.0, limit_s - time.monotonic())))
            except queue.Empty:
                if not devices <= seen.answered:
                    raise TelemetryError("The telemetry process does not answer; try again.") from None
    finally:
        unsubscribe()
    return seen


def _print_device(device: Device, values: Mapping[str, float]) -> None:
    title = f"GPU {device.index}" if device.kind == "gpu" else "Host"
    print(f"\n{title}  {device.name}  {units.byte_size(device.memory_total_bytes)}")
    if device.kind == "gpu":
        print(f"  {device.device}")
    shown = [name for name in device_fields(device.device) if name in values or name in device.fields]
    rows = [_field_row(device, name, values.get(name)) for name in shown if device.kind == "gpu" or name in values]
    print_table(("  field", "value", "renewed every", "one read"), rows, right=frozenset({1, 2, 3}))
    lacking: dict[str, list[str]] = {}
    for name, reason in device.absent.items():
        lacking.setdefault(reason, []).append(name)
    for reason, names in lacking.items():
        print(f"  {reason}: {', '.join(names)}")


def _field_row(device: Device, name: str, value: float | None) -> tuple[str, ...]:
    info = device.fields.get(name)
    text = format_field(name, value) if value is not None else device.absent.get(name, "no reading")
    return (
        f"  {name}",
        text,
        derived.format_period(info.period_ms if info else None),
        derived.format_read_cost(info.cost_us if info else None),
    )


Printer = Callable[[TelemetryMessage], None]

_PERIOD_TOLERANCE = 0.95
"""A reading may come this share of the time asked for after the one before."""

_LOGGED = tuple(name for name in FAST_FIELDS if not name.startswith("worker"))


def watch(chosen: Namespace) -> int:
    """Prints telemetry until the time is over or Ctrl-C."""
    if chosen.json and chosen.csv:
        raise UsageError("watch prints JSON or CSV, not both: give --json or --csv.")
    inbox: queue.SimpleQueue[SamplerMessage | None] = queue.SimpleQueue()
    with telemetry_feed(1000 * chosen.every) as feed, stop_on_interrupt(lambda: inbox.put(None)):
        feed.subscribe(inbox.put)
        begin_ns = time.monotonic_ns()
        show = make_printer(chosen, feed.wait_inventory(), "live", begin_ns, time.time_ns() - begin_ns)
        due = RateLimiter(chosen.every)
        end_s = time.monotonic() + chosen.seconds if chosen.seconds is not None else float("inf")
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                message = inbox.get(timeout=min(left_s, 3600))
            except queue.Empty:
                continue
            if message is None:
                break
            if isinstance(message, TelemetryMessage) and due(message):
                show(message)
    return 0


class RateLimiter:
    """Whether a reading is to be shown: beside GPUs the host is read at a pace of its own, which may be faster."""

    def __init__(self, every_s: float) -> None:
        self._least_ns = round(_PERIOD_TOLERANCE * every_s * 1e9)
        self._shown_ns: dict[str, int] = {}

    def __call__(self, message: TelemetryMessage) -> bool:
        """True for all but a sample that comes well before its device's next one is wanted."""
        if not isinstance(message, Sample):
            return True
        before_ns = self._shown_ns.get(message.device)
        if before_ns is not None and message.t_ns - before_ns < self._least_ns:
            return False
        self._shown_ns[message.device] = message.t_ns
        return True


def make_printer(chosen: Namespace, inventory: Inventory, source: str, begin_ns: int, anchor_ns: int) -> Printer:
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

    def show(message: TelemetryMessage) -> None:
        if isinstance(message, Sample):
            device = devices[message.device]
            head = (iso_utc(message.t_ns + anchor_ns), _device_title(device), device.name, device.device)
            row(*head, *(getattr(message, name) for name in _LOGGED))

    row("utc", "device", "name", "uuid", *_LOGGED)
    return show


def _device_title(device: Device) -> str:
    return "host" if device.device == HOST else f"GPU {device.index}"


def _print_line(message: TelemetryMessage, device: Device, anchor_ns: int) -> None:
    if isinstance(message, DeviceLost):
        print(f"{_device_title(device):6s}  {message.reason}", flush=True)
    if not isinstance(message, Sample):
        return
    moment = datetime.fromtimestamp((message.t_ns + anchor_ns) / 1e9, UTC).astimezone().strftime("%H:%M:%S.%f")[:-4]
    fields = (
        f"{format_field('power_mw', message.power_mw):>9s}",
        f"{units.percent(message.load_pct):>6s}",
        f"{units.byte_size(message.memory_bytes):>10s}",
        f"{units.celsius(message.temperature_c):>6s}",
        f"{units.megahertz(message.sm_clock_mhz):>10s}",
    )
    print(f"{moment}  {_device_title(device):6s}", *fields, flush=True)


def replay(chosen: Namespace) -> int:
    """Prints the readings at their spacing, or faster, until the end or Ctrl-C."""
    recording = _open_recording(chosen)
    played = Replay(recording, speed=chosen.speed)
    start_ns, source = recording.start_ns, f"replay:{chosen.recording}"
    show = make_printer(chosen, recording.inventory, source, start_ns, recording.utc_ns - start_ns)
    stopped = threading.Event()
    with stop_on_interrupt(stopped.set):
        while not played.ended and not stopped.is_set():
            for event in played.read():
                if isinstance(event, TelemetryMessage):
                    show(event)
            if (next_s := played.next_s) is not None:
                stopped.wait(next_s)
    return 0


def _open_recording(chosen: Namespace) -> Recording:
    if isinstance(chosen.recording, Path):
        return read_trace(chosen.recording)
    with open_store(chosen.db) as store:
        return RunRecording(store.load(chosen.recording))
