"""Everything known about the chosen device, or about the devices of a chosen host together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import msgspec

from app.values import units
from app.values.fields import Field
from app.values.samples import HOST, Device, Processes
from app.viewmodels.format.telemetry_fields import format_field, process_parts
from app.viewmodels.hosts import connect_label, describe_no_readings, describe_stage
from app.viewmodels.monitor.cells import MonitoredHost, combine, describe_count, device_title, host_state
from app.viewmodels.monitor.model import FINE_RANGES, MonitorModel, RowKey
from app.viewmodels.monitor.readings import (
    DeviceMetric,
    DeviceState,
    describe_not_reported,
    device_metrics,
    worst_state,
)
from app.viewmodels.plot.model import TIME_RANGES, CurveSource, Panel, Plots
from app.viewmodels.plot.panels import MONITOR_FIELDS, absence_reason, device_panels, with_limits

Members = Sequence[tuple[MonitoredHost, Device]]
"""Devices with their hosts."""
PROCESS_COLUMNS = ("Process", "User", "Running", "Memory")
_DRAWN_AT_MOST = 20
"""The most chosen devices whose curves are drawn."""
_PROCESSOR_LABELS = {"Power": "CPU power", "Memory": "Host memory"}
"""Names of the processors' figures among the GPUs'."""
_WITH_GPU = (
    "Each NVIDIA GPU gets a row here, with curves of its power, load and memory. Next to them are its temperature, "
    "its clocks and their limits, and the programs that use it.\n\n"
    "Runs measured on H200s come with the program. History shows them; a run's page has their telemetry."
)


class Absence(NamedTuple):
    """Why a host has nothing to draw, and what can be done: the label of its button, "" for none."""

    host: str
    title: str
    text: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """The details of one device, of a host's GPUs together, or of several chosen devices.

    Attributes:
        processes: Its processes, one line each in the columns `PROCESS_COLUMNS`, largest first.
        processes_note: The text instead of them; "" for none.
        no_gpu: Why there is no GPU, and what a GPU would add; both "" if there is one.
        absence: The text instead of curves if there is nothing to draw.
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
    """Return the details of a row of the table, or of several together, at the model's last reading."""
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
    """Return the text instead of a host's curves; None if it has any in the chosen range."""
    now_s, link, range_s = host.clock(), host.link, TIME_RANGES[model.settings.range].last_s or 0.0
    is_heard = host.heard_s > 0.0
    if not host.name or (is_heard and (link.stage == "connected" or now_s - host.heard_s < range_s)):
        return None
    heard = units.age(now_s - host.heard_s) if is_heard else ""
    title, text = describe_no_readings(link, units.age(now_s - host.linked_s), heard)
    return Absence(host.name, title, text, connect_label(link))


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
    """Return the common details of several devices; figures are of GPUs if there are any."""
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
    host_metrics = [metric for cpu in cpus for metric in device_metrics(cpu, host.readings_of(HOST).values(), {})]
    return DeviceDetails(
        title=host.title,
        subtitle=" · ".join(filter(None, (*facts, processors))),
        state=host_state(host),
        is_current=is_connected,
        metrics=(
            *(_total_metrics(members) if is_connected else ()),
            *((_PROCESSOR_LABELS.get(label, label), value) for label, value in host_metrics),
        ),
        processes=_users(members),
        plots=_plots(model, members),
    )


def _total_metrics(members: Members) -> tuple[DeviceMetric, ...]:
    """Return the combined figures of devices: sums, means of shares, the highest temperature."""
    labels = dict(zip(MONITOR_FIELDS, ("Mean load", "Total power", "Total memory", "Highest temperature"), strict=True))
    totals = {name: combine(name, [host.value(device, name) for host, device in members]) for name in MONITOR_FIELDS}
    return tuple((labels[name], format_field(name, value)) for name, value in totals.items() if value is not None)


def _users(members: Members) -> tuple[tuple[str, ...], ...]:
    lines: list[tuple[str, ...]] = []
    for (host, device), label in zip(members, _labels(members), strict=True):
        listed, _ = _processes(host.readings_of(device.device).processes)
        lines += [(label, "", "", ""), *listed] if listed else []
    return tuple(lines)


def _labels(members: Members) -> list[str]:
    """Return each device's name among these, with its host if they belong to several."""
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
    """Return the plots of devices as on the Run screen, one curve each, with processors' plots after GPUs'."""
    by_key = {" ".join(filter(None, (host.name, device.device))): (host, device) for host, device in members}
    keyed = [msgspec.structs.replace(device, device=key) for key, (_, device) in by_key.items()]

    def read(device: Device, field: Field) -> CurveSource | None:
        host, own = by_key[device.device]
        if own.absent.get(field.name) not in (None, "lost") and (own.kind == "host" or len(members) > 1):
            return None
        is_fine = not host.name and model.settings.range in FINE_RANGES
        buffer = model.recent.series if is_fine else partial(model.series, host.name)
        return buffer(own.device, field.name)

    gpus, cpus = ([device for device in keyed if device.kind == kind] for kind in ("gpu", "host"))
    panels = list(device_panels(gpus, read, names=MONITOR_FIELDS))
    for panel in device_panels(cpus, read, names=MONITOR_FIELDS):
        title = _PROCESSOR_LABELS.get(panel.title, panel.title)
        panels.append(replace(panel, key=f"{panel.key} {HOST}", title=title) if gpus else panel)
    axis = model.time_axis()
    throttles = model.recent.throttling.overlapping(axis.origin_s + axis.start, axis.origin_s + axis.end)
    values = {key: host.readings_of(device.device).values() for key, (host, device) in by_key.items()}
    limits_mw = {key: readings.get("power_limit_mw") for key, readings in values.items()}
    return Plots(
        panels=tuple(with_limits(_named(panel, by_key), limits_mw, throttles) for panel in panels),
        window=(axis.start, axis.end),
        origin_s=axis.origin_s,
        fit=model.view.is_paused,
    )


def _named(panel: Panel, by_key: Mapping[str, tuple[MonitoredHost, Device]]) -> Panel:
    """Return a panel whose curves have the names of their hosts, if several, and the current values.

    Marks distinguish one host's curves without colours, which follow numbers if two would be the same.
    """
    members = [by_key[curve.key] for curve in panel.curves]
    colours = [curve.colour for curve in panel.curves]
    has_hosts, is_ambiguous = len({host.name for host, _ in members}) > 1, len(set(colours)) < len(colours)
    name = panel.key.split()[0]

    def value_text(host: MonitoredHost, device: Device) -> str:
        readings = host.readings_of(device.device)
        value, reason = readings.values().get(name), absence_reason(device, name) or readings.implausible.get(name)
        return reason or (format_field(name, value) if value is not None else "")

    curves = (
        replace(
            curve,
            label=label,
            colour=number if is_ambiguous else curve.colour,
            mark="" if has_hosts else curve.mark,
            value_text=value_text(host, device),
        )
        for number, (curve, label, (host, device)) in enumerate(
            zip(panel.curves, _labels(members), members, strict=True)
        )
    )
    return replace(panel, curves=tuple(curves))
