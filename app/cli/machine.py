"""`gpus`: what the GPUs report, and the peak throughput of matrix products."""

import contextlib
import queue
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from app.cli.options import Verb, command, on_option
from app.cli.run import run_services
from app.cli.services import opened_host
from app.cli.terminal import print_json, print_table, say
from app.paths import PROGRAM
from app.report.documents import gpus_document
from app.runs.probes import calibrate
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.values import units
from app.values.fields import FIELDS, Sample, SlowSample, fields_of
from app.values.limits import IMPLAUSIBLE
from app.values.samples import Device, Inventory, Processes
from app.viewmodels.format.telemetry_fields import describe_users, format_field
from workloads.catalog import FRAMEWORK, UsageError

_SLOWER = 0.9
"""A rate below this share of the previous one is no coincidence: something was changed, or something else was busy."""


def _calibrate(database: Path | None, precisions: Sequence[str], on: str, *, as_json: bool) -> int:
    """Measure, store and print the peak rates."""
    with run_services(database, on=on) as services, Store.open(services.database) as store:
        measured = list(calibrate(services.host, store, precisions, say))
    if as_json:
        print_json({"calibrations": [msgspec.structs.asdict(result.calibration) for result in measured]})
        return 0
    rows = []
    for result in measured:
        rates = [units.ABSENT if rate is None else units.gflops(rate.flops_per_s) for rate in result]
        rows.append((result.calibration.device, result.calibration.precision, *rates, f"{result.calibration.size}³"))
    print_table(("device", "precision", "matrix products", "before", "size"), rows, right=frozenset({2, 3, 4}))
    for calibration, previous in measured:
        if previous is not None and calibration.flops_per_s < _SLOWER * previous.flops_per_s:
            say(
                f"{calibration.device} in {calibration.precision} is slower than before. If neither driver, "
                f"{FRAMEWORK.name} nor power limit was changed, something else was busy: repeat it on a quiet machine."
            )
    return 0


_OVERVIEW = ("load_pct", "power_mw", "memory_bytes", "temperature_c")
"""Fields that distinguish several GPUs at a glance."""
_WATCH_S, _LONGEST_WATCH_S = 3.0, 20.0
_WATCH_MS = 20.0


@command("gpus", "gpus", "gpus --on ssh://me@gpu1", "gpus calibrate --precision bfloat16")
@click.argument(
    "action",
    type=Verb(("list", "calibrate")),
    default="list",
    metavar="[ACTION]",
    help="list; or calibrate: measure the peak speed of matrix products, on which MFU is based (default: list).",
)
@on_option
@click.option("--all", "every_field", is_flag=True, help="Show every field of every GPU and of the host.")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    metavar="NAME",
    help="With calibrate: a precision to measure; may be repeated (default: all).",
)
def gpus(
    database: Path | None, as_json: bool, action: str, on: str, every_field: bool, precisions: Sequence[str]
) -> int:
    """Print every GPU and the host with one reading of each field, what it costs and how often it is renewed.

    Of several GPUs each has a line, unless all fields are asked for.
    """
    if every_field if action == "calibrate" else precisions:
        raise UsageError("--all goes with gpus list, --precision with gpus calibrate.")
    if action == "calibrate":
        return _calibrate(database, precisions, on, as_json=as_json)
    with opened_host(on, _WATCH_MS) as host:
        readings = _collect_readings(host.telemetry)
        inventory = readings.with_reasons(host.inventory())  # with what the readings revealed
    if as_json:
        print_json(gpus_document(inventory, readings.values, readings.processes))
        return 0
    if inventory.no_gpu_reason:
        print(f"No GPU: {inventory.no_gpu_reason}. Runs use the CPU.")
    else:
        print(f"driver {inventory.driver or 'unknown'}, CUDA up to {inventory.cuda_driver or 'unknown'}")
        if inventory.machine.hidden_by:
            usable = ", ".join(str(gpu.index) for gpu in inventory.machine.gpus)
            print(f"{inventory.machine.hidden_by}: runs use GPU {usable} alone.")
    cards = [device for device in inventory.devices if device.kind == "gpu"]
    if len(cards) > 1:
        rows = []
        for card in cards:
            values = readings.values.get(card.device, {})
            rows.append((f"{card.index}", card.name, *(format_field(name, values.get(name)) for name in _OVERVIEW)))
        print_table(("GPU", "name", *(FIELDS[name].label for name in _OVERVIEW)), rows, right=frozenset(range(2, 6)))
    is_brief = len(cards) > 1 and not every_field
    for device in inventory.devices:
        if is_brief and device.lost is None:
            continue
        _print_device(device, readings.values.get(device.device, {}), readings.processes.get(device.device))
    if is_brief:
        print(f"\nEvery field of each, and of the host: {PROGRAM} gpus --all")
    return 0


@dataclass(slots=True)
class _Readings:
    """The newest values of a short watch, the fields with an implausible newest reading, and each GPU's users."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    processes: dict[str, Processes] = field(default_factory=dict)
    implausible: dict[str, dict[str, str]] = field(default_factory=dict)

    def take(self, message: SamplerMessage) -> None:
        if isinstance(message, Processes):
            self.processes[message.device] = message
        if isinstance(message, Sample | SlowSample):
            readings = self.values.setdefault(message.device, {})
            named = ((name, getattr(message, name)) for name in FIELDS if hasattr(message, name))
            readings.update((name, value) for name, value in named if value is not None)
            absent = self.implausible.setdefault(message.device, {})
            absent.update(dict.fromkeys(message.implausible, IMPLAUSIBLE))
            for name in absent.keys() & readings.keys():
                (readings if name in message.implausible else absent).pop(name)

    def with_reasons(self, inventory: Inventory) -> Inventory:
        """Return the inventory without fields whose newest reading is implausible."""
        devices = (
            msgspec.structs.replace(device, absent={**device.absent, **self.implausible.get(device.device, {})})
            for device in inventory.devices
        )
        return msgspec.structs.replace(inventory, devices=tuple(devices))

    def has_all_fields(self, device: Device) -> bool:
        readings = self.values.get(device.device, {})
        return all(name in readings for name in device.fields if FIELDS[name].topic != "worker")


def _collect_readings(feed: TelemetryFeed) -> _Readings:
    """Watch for three seconds if there is a GPU, to learn slow values and periods; else read once.

    A slow driver gets more time, within a limit, until every field was tried.
    """
    inbox: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(inbox.put)
    readings, began_s = _Readings(), time.monotonic()
    end_s = began_s + _WATCH_S
    try:
        while (now_s := time.monotonic()) < end_s:
            with contextlib.suppress(queue.Empty):
                readings.take(inbox.get(timeout=end_s - now_s))
            inventory = feed.wait_inventory()
            if not inventory.machine.gpus and all(map(readings.has_all_fields, inventory.devices)):
                break
            if any(map(_unknown_fields, inventory.devices)):
                end_s = min(now_s + _WATCH_S, began_s + _LONGEST_WATCH_S)
    finally:
        unsubscribe()
    return readings


def _unknown_fields(device: Device) -> list[str]:
    """Return the fields of a GPU that were not tried yet."""
    if device.kind == "host" or device.lost is not None:
        return []
    names = [field.name for field in fields_of("gpu")]
    return [name for name in names if name not in device.fields and name not in device.absent]


def _print_device(device: Device, values: Mapping[str, float], processes: Processes | None) -> None:
    title = f"GPU {device.index}" if device.kind == "gpu" else "Host"
    print(f"\n{title}  {device.name}  {units.byte_size(device.memory_total_bytes)}")
    if device.kind == "gpu":
        print(f"  {device.device}")
    if device.lost is not None:
        print(f"  {device.lost}")
        return
    if processes is not None:
        print(f"  {describe_users(processes)}")
    fields = [field.name for field in fields_of(device.kind) if field.name in values or field.name in device.fields]
    rows = [_field_row(device, name, values.get(name)) for name in fields if device.kind == "gpu" or name in values]
    print_table(("  field", "value", "renewed every", "one read"), rows, right=frozenset({1, 2, 3}))
    lacking: dict[str, list[str]] = {}
    for name, reason in device.absent.items():
        lacking.setdefault(reason, []).append(_label(device, name))
    for reason, names in lacking.items():
        print(f"  {reason}: {', '.join(names)}")
    if unknown := _unknown_fields(device):
        print(f"  no answer yet: {', '.join(_label(device, name) for name in unknown)}")


def _label(device: Device, name: str) -> str:
    """Return a field's name on all screens; its key has the unit of `--json`."""
    return FIELDS[name].label_on(device.kind)


def _field_row(device: Device, name: str, value: float | None) -> tuple[str, ...]:
    info = device.fields.get(name)
    text = format_field(name, value) if value is not None else device.absent.get(name, "no reading")
    return (
        f"  {_label(device, name)}",
        text,
        units.with_unit(info.period_ms if info else None, "ms"),
        units.amount(info.cost_us if info else None, "µs"),
    )
