"""Everything that is known of the chosen device, or of the devices of a chosen host together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from app import units
from app.fields import FIELDS, Field
from app.samples import HOST, Device, Processes
from app.viewmodels.format.telemetry_fields import ThrottleInterval, format_field, process_parts
from app.viewmodels.hosts import connect_label, describe_no_readings, describe_stage
from app.viewmodels.monitor.cells import MonitoredHost, device_title, host_state
from app.viewmodels.monitor.history import RANGES_S, HistoryCurve, SeriesKey
from app.viewmodels.monitor.model import MonitorModel, Place
from app.viewmodels.monitor.readings import (
    TABLE_FIELDS,
    DeviceMetric,
    DeviceState,
    Values,
    describe_not_reported,
    device_metrics,
)
from app.viewmodels.plot.model import Curve, CurveSource, Panel, Plots
from app.viewmodels.plot.telemetry_buffer import MONITOR_FIELDS, absence_reason, device_colour

PROCESS_COLUMNS = ("Process", "User", "Running", "Memory")
_FINE_RANGES = ("1 min",)
"""Ranges that are drawn from every reading where this machine made it; longer ones from one a second."""
_PROCESSOR_LABELS = {"Power": "CPU power", "Memory": "Host memory"}
"""What figures of the processors are called among those of the GPUs."""
_WITH_GPU = (
    "Each NVIDIA GPU gets a row here, with curves of its power, load and memory, its temperature, clocks and clock "
    "limits, and the programs that use it.\n\n"
    "Runs measured on two H200s come with the program. History shows them; "
    "Replay on a run's page plays back their telemetry."
)


class Absence(NamedTuple):
    """Why there is nothing to draw of a host, and what can be done: the label of its button, "" for none."""

    host: str
    title: str
    text: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """One device, or the GPUs of a host together.

    Attributes:
        title: Which one it is.
        subtitle: What it is.
        state: The state it is in.
        is_current: Whether its figures are those of now.
        metrics: Its figures.
        processes: Who uses it, a line each in the columns `PROCESS_COLUMNS`, the largest first.
        processes_note: What is said in place of them; "" where nothing is to be said.
        not_reported: What it does not report, with the reason.
        plots: Its curves, in the chosen range.
        no_gpu: Why there is no GPU, and what there would be with one; two "" where there is one.
        absence: What is said in place of curves where there is nothing to draw.
    """

    title: str
    subtitle: str
    state: DeviceState
    is_current: bool
    metrics: tuple[DeviceMetric, ...] = ()
    processes: tuple[tuple[str, ...], ...] = ()
    processes_note: str = ""
    not_reported: str = ""
    plots: Plots
    no_gpu: tuple[str, str] = ("", "")
    absence: Absence | None = None

    def plots_in(self, columns: int) -> Plots:
        """Return its curves laid out in so many columns."""
        return replace(self.plots, columns=columns)


def chosen_details(model: MonitorModel, place: Place) -> DeviceDetails:
    """Return what is known of a row of the table."""
    host = model.host(place.host)
    device = None if place.device is None else host.device(place.device)
    details = _host_details(model, host) if device is None else _device_details(model, host, device)
    absence = _absence(model, host)
    if absence is None:
        return details
    state = details.state._replace(text=units.sentence(describe_stage(host.link)[0]), reason="")
    return replace(details, absence=absence, state=state if device is None else details.state)


def _absence(model: MonitorModel, host: MonitoredHost) -> Absence | None:
    """Return what is said in place of the curves of a host; None while it has any in the chosen range."""
    now_s, link = model.clock(), host.link
    is_heard = host.heard_s > 0.0
    if not host.name or (is_heard and (link.stage == "connected" or now_s - host.heard_s < _range_s(model))):
        return None
    heard = units.age(now_s - host.heard_s) if is_heard else ""
    title, text = describe_no_readings(link, units.age(now_s - host.linked_s), heard)
    return Absence(host.name, title, text, connect_label(link))


def _range_s(model: MonitorModel) -> float:
    return RANGES_S[model.settings.range]


def _device_details(model: MonitorModel, host: MonitoredHost, device: Device) -> DeviceDetails:
    readings = host.readings_of(device.device)
    values = {} if readings.loss else readings.values()
    shown = msgspec.structs.replace(device, absent={**device.absent, **readings.implausible})
    names = [device.device if device.kind == "gpu" else "", host.name]
    processes, note = _processes(readings.processes)
    reason = host.inventory.no_gpu_reason if host.inventory is not None and device.device == HOST else None
    return DeviceDetails(
        title=f"{device_title(device)} · {device.name}",
        subtitle=" · ".join(filter(None, names)),
        state=readings.state(device),
        is_current=readings.is_current,
        metrics=device_metrics(shown, values, readings.first),
        processes=processes,
        processes_note=note,
        not_reported="" if readings.loss else describe_not_reported(device, values),
        plots=_plots(model, host, [shown], values),
        no_gpu=(units.sentence(reason), _WITH_GPU) if reason and len(host.devices) == 1 else ("", ""),
    )


def _host_details(model: MonitorModel, host: MonitoredHost) -> DeviceDetails:
    inventory = host.inventory
    known = (
        (host.machine_text, f"driver {inventory.driver}" if inventory.driver else "") if inventory is not None else ()
    )
    processors = f"{inventory.machine.cpu_count:,} processors" if inventory is not None else ""
    return DeviceDetails(
        title=host.title,
        subtitle=" · ".join(filter(None, (*known, processors))),
        state=host_state(host),
        is_current=host.link.stage == "connected",
        metrics=_host_metrics(host),
        processes=_host_processes(host),
        plots=_plots(model, host, host.main_devices, {}),
    )


def _host_metrics(host: MonitoredHost) -> tuple[DeviceMetric, ...]:
    """Return the figures of a host: sums and means of its devices, and what its processors do."""
    found = {name: host.total(name) for name in TABLE_FIELDS}
    words = {"load_pct": "Mean load", "power_mw": "Total power", "memory_bytes": "Total memory"}
    labels = {**words, "temperature_c": "Highest temperature"}
    metrics = [
        DeviceMetric(labels[name], format_field(name, value)) for name, value in found.items() if value is not None
    ]
    processors = host.device(HOST)
    if processors is not None and processors not in host.main_devices:
        own = device_metrics(processors, host.readings_of(HOST).values(), {})
        metrics += [replace(each, label=_PROCESSOR_LABELS.get(each.label, each.label), field="") for each in own]
    return tuple(metrics)


def _host_processes(host: MonitoredHost) -> tuple[tuple[str, ...], ...]:
    """Return who uses which GPU of a host, below a line for each GPU that is used."""
    lines: list[tuple[str, ...]] = []
    for device in host.main_devices:
        listed, _ = _processes(host.readings_of(device.device).processes)
        lines += [(device_title(device), "", "", ""), *listed] if listed else []
    return tuple(lines)


def _processes(listed: Processes | None) -> tuple[tuple[tuple[str, ...], ...], str]:
    if listed is None:
        return (), ""
    if listed.reason is not None:
        return (), f"Processes unknown: {listed.reason}"
    largest = sorted(listed.processes, key=lambda process: -(process.memory_bytes or 0))
    return tuple(process_parts(each) for each in largest), "" if largest else "No process uses it"


def _plots(model: MonitorModel, host: MonitoredHost, devices: Sequence[Device], values: Values) -> Plots:
    """Return the plots of devices, a curve each: the table's fields, then those that are pinned."""
    names = (*TABLE_FIELDS, *model.settings.pinned)
    panels = [_panel(model, host, devices, FIELDS[name], values) for name in names]
    range_s = _range_s(model)
    return Plots(
        panels=tuple(panel for panel in panels if panel is not None),
        window=(-range_s, 0.0),
        origin_s=_origin_s(model),
    )


def _origin_s(model: MonitorModel) -> float:
    """Return the end of the plots' axis; of what is kept once a second, nothing changes in between."""
    is_coarse = model.settings.range not in _FINE_RANGES
    return model.history.newest_s if is_coarse and math.isfinite(model.history.newest_s) else model.clock()


def _panel(
    model: MonitorModel, host: MonitoredHost, devices: Sequence[Device], field: Field, values: Values
) -> Panel | None:
    """Return the plot of one field; None where no device reports it, and it is none that all have."""
    kind = devices[0].kind if devices else "gpu"
    reasons = [absence_reason(device, field.name) for device in devices]
    if kind not in field.devices or (all(reasons) and (kind == "host" or field.name not in TABLE_FIELDS)):
        return None
    scale, unit = field.scale, field.display_unit
    memory_total = max((device.memory_total_bytes or 0 for device in devices), default=0)
    if field.unit.startswith("bytes"):
        scale, unit = units.bytes_unit(memory_total or 2**30)
        unit = field.unit.replace("bytes", unit)
    tops = {"memory_bytes": memory_total, "power_mw": values.get("power_limit_mw")}
    top = 100.0 if field.kind == "share" and field.name != "fan_pct" else tops.get(field.name)
    title = field.label_on(kind)
    reason = reasons[0] if len(devices) == 1 else None
    throttles = _throttles(model, host, devices) if field.name == "power_mw" else ()
    return Panel(
        key=field.name,
        title=title if reason in (None, "lost") else f"{title} ({reason})",
        unit=f"{unit} · bar: throttled" if throttles else unit,
        curves=tuple(
            Curve(
                key=device.device,
                label=device_title(device),
                colour=device_colour(device),
                source=_source(model, host, device, field),
                scale=scale,
                value_text=format_field(field.name, values.get(field.name)) if field.name in values else "",
                format_value=lambda value, name=field.name: format_field(name, value),  # type: ignore[misc]
            )
            for device in devices
        ),
        y_range=(0.0, top / scale) if top else None,
        throttles=throttles,
    )


def _source(model: MonitorModel, host: MonitoredHost, device: Device, field: Field) -> CurveSource:
    if not host.name and field.name in MONITOR_FIELDS and model.settings.range in _FINE_RANGES:
        return model.recent.series(device.device, field.name)
    return HistoryCurve(model.history, SeriesKey(host.name, device.device, field.name))


def _throttles(model: MonitorModel, host: MonitoredHost, devices: Sequence[Device]) -> tuple[ThrottleInterval, ...]:
    """Return when this machine's GPUs were throttled; of other hosts that is not kept."""
    if host.name:
        return ()
    now_s, shown = model.clock(), {device.device for device in devices}
    found = model.recent.throttling.overlapping(now_s - _range_s(model), now_s)
    return tuple(each for each in found if each.device in shown)
