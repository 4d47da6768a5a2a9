"""`gpus` and `watch`: what is here, and its live telemetry."""

import queue
import time
from argparse import Namespace
from datetime import UTC, datetime

from app.cli.services import interrupts, telemetry
from app.cli.terminal import print_json, print_table
from app.errors import TelemetryError
from app.records import HOST, Device, DeviceLost, Inventory, Sample
from app.report.documents import FIELD_UNITS, gpus_document, iso_utc, watch_document
from app.telemetry.feed import TelemetryFeed
from app.telemetry.source import SamplerMessage
from app.viewmodels import units

_FIRST_S = 20.0


def gpus(chosen: Namespace) -> int:
    """Prints every GPU and the host with one reading of each field."""
    with telemetry() as feed:
        inventory = feed.wait_inventory()
        first = _first_samples(feed, inventory)
    if chosen.json:
        print_json(gpus_document(inventory, first))
        return 0
    if inventory.no_gpu_reason:
        print(f"No GPU: {inventory.no_gpu_reason}. Runs use the CPU.")
    else:
        print(f"driver {inventory.driver}, CUDA up to {inventory.cuda_driver}")
    for device in inventory.devices:
        _print_device(device, first.get(device.device))
    return 0


def _first_samples(feed: TelemetryFeed, inventory: Inventory) -> dict[str, Sample]:
    """One sample of each device; a device that is lost meanwhile has none."""
    inbox: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(inbox.put)
    first: dict[str, Sample] = {}
    missing = {device.device for device in inventory.devices}
    try:
        while missing:
            message = inbox.get(timeout=_FIRST_S)
            if isinstance(message, Sample):
                first.setdefault(message.device, message)
            if isinstance(message, Sample | DeviceLost):
                missing.discard(message.device)
    except queue.Empty:
        raise TelemetryError("The telemetry process does not answer; try again.") from None
    finally:
        unsubscribe()
    return first


def _print_device(device: Device, sample: Sample | None) -> None:
    title = f"GPU {device.index}" if device.kind == "gpu" else "Host"
    print(f"\n{title}  {device.name}  {units.byte_size(device.memory_total_bytes)}")
    if device.kind == "gpu":
        print(f"  {device.device}")
    rows = []
    for name in FIELD_UNITS:
        value = getattr(sample, name) if sample else None
        if value is None and device.kind == "host":
            continue
        rows.append((f"  {name}", device.absent.get(name, "no reading") if value is None else field_text(name, value)))
    print_table(("", ""), rows)


def field_text(name: str, value: float) -> str:
    """A telemetry field's value with its unit."""
    if name.endswith("_bytes"):
        return units.byte_size(value)
    if name.endswith("_mw"):
        return units.with_unit(value / 1000, "W", 1)
    return units.with_unit(value, FIELD_UNITS.get(name, "%"))


def watch(chosen: Namespace) -> int:
    """Prints telemetry until the time is over or Ctrl-C; one line a device and reading."""
    inbox: queue.SimpleQueue[SamplerMessage | None] = queue.SimpleQueue()
    end_s = time.monotonic() + chosen.seconds if chosen.seconds is not None else float("inf")
    with telemetry(1 / chosen.every) as feed, interrupts(lambda: inbox.put(None)):
        titles = _titles(feed.wait_inventory())
        anchor_ns = time.time_ns() - time.monotonic_ns()
        feed.subscribe(inbox.put)
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                message = inbox.get(timeout=min(left_s, 3600))
            except queue.Empty:
                continue
            if message is None:
                break
            if isinstance(message, Sample):
                _print_sample(message, titles[message.device], anchor_ns, as_json=chosen.json)
            elif isinstance(message, DeviceLost) and not chosen.json:
                print(f"{titles[message.device]:6s}  {message.reason}", flush=True)
    return 0


def _titles(inventory: Inventory) -> dict[str, str]:
    return {device.device: "host" if device.device == HOST else f"GPU {device.index}" for device in inventory.devices}


def _print_sample(sample: Sample, title: str, anchor_ns: int, *, as_json: bool) -> None:
    utc_ns = sample.t_ns + anchor_ns
    if as_json:
        print_json(watch_document(sample, utc=iso_utc(utc_ns), source="live"), compact=True)
        return
    moment = datetime.fromtimestamp(utc_ns / 1e9, UTC).astimezone().strftime("%H:%M:%S.%f")[:-4]
    power = units.ABSENT if sample.power_mw is None else field_text("power_mw", sample.power_mw)
    fields = (
        f"{power:>9s}",
        f"{units.percent(sample.load_pct):>6s}",
        f"{units.byte_size(sample.memory_bytes):>10s}",
        f"{units.celsius(sample.temperature_c):>6s}",
        f"{units.megahertz(sample.sm_clock_mhz):>10s}",
    )
    print(f"{moment}  {title:6s}", *fields, flush=True)
