"""`gpus`: what is here, and what it can tell."""

import queue
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.cli.services import telemetry
from app.cli.terminal import print_json, print_table
from app.errors import TelemetryError
from app.report.documents import gpus_document
from app.samples import SAMPLE_FIELDS, SLOW_FIELDS, Device, DeviceLost, Inventory, Sample, SlowSample
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.viewmodels import run_facts, units
from app.viewmodels.fields import field_text, fields_of

_FIRST_S = 20.0
_WATCH_S = 3.0
_WATCH_MS = 20.0


def gpus(chosen: Namespace) -> int:
    """Prints every GPU and the host with one reading of each field, what it costs and how often it is renewed."""
    with telemetry(_WATCH_MS) as feed:
        inventory = feed.wait_inventory()
        seen = _watched(feed, inventory)
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
class _Seen:
    """What a short watch has told: the newest value of each field, and of whom it has heard."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)

    def take(self, message: SamplerMessage) -> None:
        """Takes one message."""
        if isinstance(message, Sample | SlowSample):
            told = self.values.setdefault(message.device, {})
            named = (
                (name, getattr(message, name)) for name in (*SAMPLE_FIELDS, *SLOW_FIELDS) if hasattr(message, name)
            )
            told.update((name, value) for name, value in named if value is not None)
        if isinstance(message, Sample | DeviceLost):
            self.heard.add(message.device)

    def tells_all(self, device: Device) -> bool:
        """Whether every field that can be read was read."""
        told = self.values.get(device.device, {})
        return all(name in told for name in device.fields if "worker" not in name)


def _watched(feed: TelemetryFeed, inventory: Inventory) -> _Seen:
    """Three seconds of telemetry where there is a GPU, so that slow values and periods are known; else one reading."""
    inbox: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(inbox.put)
    seen, devices = _Seen(), {device.device for device in inventory.devices}
    first_s = time.monotonic() + _FIRST_S
    end_s = time.monotonic() + _WATCH_S
    try:
        while not devices <= seen.heard or time.monotonic() < end_s:
            if not inventory.machine.gpus and all(map(seen.tells_all, inventory.devices)):
                break
            limit_s = end_s if devices <= seen.heard else first_s
            try:
                seen.take(inbox.get(timeout=max(0.0, limit_s - time.monotonic())))
            except queue.Empty:
                if not devices <= seen.heard:
                    raise TelemetryError("The telemetry process does not answer; try again.") from None
    finally:
        unsubscribe()
    return seen


def _print_device(device: Device, values: Mapping[str, float]) -> None:
    title = f"GPU {device.index}" if device.kind == "gpu" else "Host"
    print(f"\n{title}  {device.name}  {units.byte_size(device.memory_total_bytes)}")
    if device.kind == "gpu":
        print(f"  {device.device}")
    shown = [name for name in fields_of(device.device) if name in values or name in device.fields]
    rows = [_row(device, name, values.get(name)) for name in shown if device.kind == "gpu" or name in values]
    print_table(("  field", "value", "renewed every", "one read"), rows, right=frozenset({1, 2, 3}))
    lacking: dict[str, list[str]] = {}
    for name, reason in device.absent.items():
        lacking.setdefault(reason, []).append(name)
    for reason, names in lacking.items():
        print(f"  {reason}: {', '.join(names)}")


def _row(device: Device, name: str, value: float | None) -> tuple[str, ...]:
    facts = device.fields.get(name)
    told = field_text(name, value) if value is not None else device.absent.get(name, "no reading")
    return (
        f"  {name}",
        told,
        run_facts.period(facts.period_ms if facts else None),
        run_facts.cost(facts.cost_us if facts else None),
    )
