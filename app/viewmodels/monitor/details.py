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
from app.viewmodels.monitor.cells import MonitoredHost, combine, describe_count, device_title, host_state
from app.viewmodels.monitor.history import RANGES_S, HistoryCurve, SeriesKey
from app.viewmodels.monitor.model import MonitorModel, RowKey
from app.viewmodels.monitor.readings import (
    TABLE_FIELDS,
    DeviceMetric,
    DeviceState,
    describe_not_reported,
    device_metrics,
    worst_state,
)
from app.viewmodels.plot.model import Curve, CurveSource, Panel, Plots
from app.viewmodels.plot.panels import MONITOR_FIELDS, absence_reason, device_colour

Members = Sequence[tuple[MonitoredHost, Device]]
"""Devices with their hosts."""
PROCESS_COLUMNS = ("Process", "User", "Running", "Memory")
_DRAWN_AT_MOST = 20
"""Of so many chosen devices the curves are drawn."""
_FINE_RANGES = ("1 min",)
"""Ranges that are drawn from every reading where this machine made it; longer ones from one a second."""
_PROCESSOR_LABELS = {"Power": "CPU power", "Memory": "Host memory"}
"""What figures of the processors are called among those of the GPUs."""
_WITH_GPU = (
    "Each NVIDIA GPU gets a row here, with curves of its power, load and memory. Beside them stand its temperature, "
    "its clocks and their limits, and the programs that use it.\n\n"
    "Runs measured on H200s come with the program. History shows them; a run's page has their telemetry."
)


class Absence(NamedTuple):
    """Why there is nothing to draw of a host, and what can be done: the label of its button, "" for none."""

    host: str
    title: str
    text: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """One device, the GPUs of a host together, or several that were chosen.

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


def chosen_details(model: MonitorModel, *rows: RowKey) -> DeviceDetails:
    """Return what is known of a row of the table, or of several together, at the model's last reading."""
    hosts = [model.host(row_key.host) for row_key in rows]
    members = {
        (host.name, device.device): (host, device)
        for host, row_key in zip(hosts, rows, strict=True)
        for device in (host.main_devices if row_key.device is None else [host.device(row_key.device)])
        if device is not None
    }
    host, is_device = hosts[0], rows[0].device is not None
    if len(rows) > 1:
        details = _common_details(model, list(members.values()))
    elif is_device and members:
        details = _device_details(model, host, *(device for _, device in members.values()))
    else:
        details = _host_details(model, host)
    absences = [_absence(model, host) for host in hosts]
    if absences[0] is None or None in absences:
        return details
    state = details.state._replace(text=units.sentence(describe_stage(host.link)[0]), reason="")
    return replace(details, absence=absences[0], state=details.state if is_device else state)


def _absence(model: MonitorModel, host: MonitoredHost) -> Absence | None:
    """Return what is said in place of the curves of a host; None while it has any in the chosen range."""
    now_s, link = host.clock(), host.link
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
    checked_device = msgspec.structs.replace(device, absent={**device.absent, **readings.implausible})
    names = [device.device if device.kind == "gpu" else "", host.name]
    processes, note = _processes(readings.processes)
    reason = host.inventory.no_gpu_reason if host.inventory is not None and device.device == HOST else None
    return DeviceDetails(
        title=f"{device_title(device)} · {device.name}",
        subtitle=" · ".join(filter(None, names)),
        state=readings.state(device),
        is_current=readings.is_current,
        metrics=device_metrics(checked_device, values, readings.first),
        processes=processes,
        processes_note=note,
        not_reported="" if readings.loss else describe_not_reported(device, values),
        plots=_plots(model, [(host, device)]),
        no_gpu=(units.sentence(reason), _WITH_GPU) if reason and len(host.devices) == 1 else ("", ""),
    )


def _common_details(model: MonitorModel, members: Members) -> DeviceDetails:
    """Return what is known of several devices together; figures are of GPUs where there are any."""
    gpus = [(host, device) for host, device in members if device.kind == "gpu"]
    drawn, more = members[:_DRAWN_AT_MOST], len(members) - _DRAWN_AT_MOST
    return DeviceDetails(
        title=f"{len(members):,} {units.plural('GPU' if len(gpus) == len(members) else 'device', len(members))}",
        subtitle=", ".join(_labels(drawn)) + (f"; {more:,} more are not drawn" if more > 0 else ""),
        state=worst_state([host.state(device) for host, device in members], describe_count),
        is_current=all(host.readings_of(device.device).is_current for host, device in members),
        metrics=_total_metrics(gpus or members),
        processes=_users(members),
        plots=_plots(model, drawn),
    )


def _host_details(model: MonitorModel, host: MonitoredHost) -> DeviceDetails:
    inventory = host.inventory
    facts = (
        (host.machine_text, f"driver {inventory.driver}" if inventory.driver else "") if inventory is not None else ()
    )
    processors = f"{inventory.machine.cpu_count:,} processors" if inventory is not None else ""
    members = [(host, device) for device in host.main_devices]
    is_connected = host.link.stage == "connected"
    cpus = [device for device in host.devices if device.device == HOST and device not in host.main_devices]
    own = [metric for cpu in cpus for metric in device_metrics(cpu, host.readings_of(HOST).values(), {})]
    return DeviceDetails(
        title=host.title,
        subtitle=" · ".join(filter(None, (*facts, processors))),
        state=host_state(host),
        is_current=is_connected,
        metrics=(
            *(_total_metrics(members) if is_connected else ()),
            *(replace(metric, label=_PROCESSOR_LABELS.get(metric.label, metric.label)) for metric in own),
        ),
        processes=_users(members),
        plots=_plots(model, members),
    )


def _total_metrics(members: Members) -> tuple[DeviceMetric, ...]:
    """Return the figures of devices together: sums, means of shares, the highest temperature."""
    labels = dict(zip(TABLE_FIELDS, ("Mean load", "Total power", "Total memory", "Highest temperature"), strict=True))
    totals = {name: combine(name, [host.value(device, name) for host, device in members]) for name in TABLE_FIELDS}
    return tuple(
        DeviceMetric(labels[name], format_field(name, value)) for name, value in totals.items() if value is not None
    )


def _users(members: Members) -> tuple[tuple[str, ...], ...]:
    """Return who uses which device, below a line for each that is used."""
    lines: list[tuple[str, ...]] = []
    for (host, device), label in zip(members, _labels(members), strict=True):
        listed, _ = _processes(host.readings_of(device.device).processes)
        lines += [(label, "", "", ""), *listed] if listed else []
    return tuple(lines)


def _labels(members: Members) -> list[str]:
    """Return what each device is called among these: with its host where they are of several."""
    is_one_host = len({host.name for host, _ in members}) == 1
    return [device_title(device) if is_one_host else f"{host.title} {device_title(device)}" for host, device in members]


def _processes(listed: Processes | None) -> tuple[tuple[tuple[str, ...], ...], str]:
    if listed is None:
        return (), ""
    if listed.reason is not None:
        return (), f"Processes unknown: {listed.reason}"
    largest = sorted(listed.processes, key=lambda process: -(process.memory_bytes or 0))
    return tuple(process_parts(process) for process in largest), "" if largest else "No process uses it"


def _plots(model: MonitorModel, members: Members) -> Plots:
    """Return the plots of devices, a curve each."""
    panels = (_panel(model, members, FIELDS[name]) for name in TABLE_FIELDS)
    return Plots(
        panels=tuple(panel for panel in panels if panel is not None),
        window=(-_range_s(model), 0.0),
        origin_s=_origin_s(model),
    )


def _origin_s(model: MonitorModel) -> float:
    """Return the end of the plots' axis; of what is kept once a second, nothing changes in between."""
    is_coarse = model.settings.range not in _FINE_RANGES
    return model.history.newest_s if is_coarse and math.isfinite(model.history.newest_s) else model.clock()


def _panel(model: MonitorModel, members: Members, field: Field) -> Panel | None:
    """Return the plot of one field; None where no device reports it, and it is none that all have."""
    name = field.name
    kinds = {device.kind for _, device in members} or {"gpu"}
    reasons = [
        absence_reason(device, name) or host.readings_of(device.device).implausible.get(name)
        for host, device in members
    ]
    if not kinds & set(field.devices) or (all(reasons) and kinds == {"host"}):
        return None
    scale, unit = field.scale, field.display_unit
    memory_total = max((device.memory_total_bytes or 0 for _, device in members), default=0)
    if field.unit.startswith("bytes"):
        scale, unit = units.bytes_unit(memory_total or 2**30)
    values = [host.readings_of(device.device).values() for host, device in members]
    limits = [latest["power_limit_mw"] for latest in values if "power_limit_mw" in latest]
    top = {"load_pct": 100.0, "memory_bytes": memory_total, "power_mw": max(limits, default=None)}.get(name)
    title = field.label_on(kinds.pop()) if len(kinds) == 1 else field.label
    reason = reasons[0] if len(members) == 1 else None
    return Panel(
        key=name,
        title=title if reason in (None, "lost") else f"{title} ({reason})",
        unit=unit,
        curves=_curves(model, members, field, scale),
        y_range=(0.0, top / scale) if top else None,
        throttles=_throttles(model, members) if name == "power_mw" else (),
    )


def _curves(model: MonitorModel, members: Members, field: Field, scale: float) -> tuple[Curve, ...]:
    """Return a curve for each device that has this field; marks tell those of one host apart without their colours."""
    colours = [device_colour(device) for _, device in members]
    if len(set(colours)) < len(colours):
        colours = list(range(len(colours)))
    is_marked = len(members) > 1 and len({host.name for host, _ in members}) == 1
    return tuple(
        Curve(
            key=" ".join(filter(None, (host.name, device.device))),
            label=label,
            colour=colour,
            source=_source(model, host, device, field),
            scale=scale,
            value_text=format_field(field.name, values[field.name]) if field.name in values else "",
            format_value=lambda value: format_field(field.name, value),
            mark=("C" if device.device == HOST else str(device.index)) if is_marked else "",
        )
        for (host, device), label, colour in zip(members, _labels(members), colours, strict=True)
        if len(members) == 1 or (device.kind in field.devices and device.absent.get(field.name) in (None, "lost"))
        for values in [host.readings_of(device.device).values()]
    )


def _source(model: MonitorModel, host: MonitoredHost, device: Device, field: Field) -> CurveSource:
    if not host.name and field.name in MONITOR_FIELDS and model.settings.range in _FINE_RANGES:
        return model.recent.series(device.device, field.name)
    return HistoryCurve(model.history, SeriesKey(host.name, device.device, field.name))


def _throttles(model: MonitorModel, members: Members) -> tuple[ThrottleInterval, ...]:
    """Return when this machine's GPUs were throttled; of other hosts that is not kept."""
    now_s, local_devices = model.clock(), {device.device for host, device in members if not host.name}
    intervals = model.recent.throttling.overlapping(now_s - _range_s(model), now_s)
    return tuple(interval for interval in intervals if interval.device in local_devices)
