"""Facts of a stored run as text: epochs, energy by phase, memory, cost of telemetry, and a line of its metrics."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.analysis.energy import gpu_columns
from app.analysis.summary import epoch_seconds, epoch_testing_seconds, epoch_totals, epoch_waiting_pct
from app.metrics import METRICS
from app.storage.known_settings import CARBON_G_PER_KWH, PRICE_PER_KWH
from app.values import units
from app.values.events import Summary
from app.values.fields import fields_of
from app.values.records import Phase, RunRow, StoredRun
from app.values.samples import Device
from app.viewmodels.format import cells
from app.viewmodels.plot.panels import device_label
from workloads.catalog import FRAMEWORK

_MILLION, _MJ_PER_KWH = 1e6, 3.6e9
EPOCH_COLUMNS = ("", "accuracy", "loss", "s", "test s", "waiting")


def describe_epochs(run: StoredRun) -> str:
    """Return the totals of all epochs in one line; "" for a run without any."""
    totals = epoch_totals(run.epochs)
    if totals is None:
        return ""
    count = f"{len(run.epochs):,} {units.plural('epoch', len(run.epochs))}"
    training, testing = (units.with_unit(spent, "s", 1) for spent in (totals.seconds, totals.testing_seconds))
    best = f"best {format_accuracy(totals.best_accuracy)} after epoch {totals.best_epoch}"
    return (
        f"{count} in {training} of training and {testing} of testing; accuracy "
        f"{format_accuracy(totals.accuracy)}, {best}"
    )


def describe_weights(run: StoredRun) -> str:
    """Return the moment of a run's saved weights; "" if it saved none."""
    variant, measured = run.row.spec.variant, np.flatnonzero(run.blocks.measured)
    if not variant.get("save_weights", False) or not run.row.completed:
        return ""
    best = variant.get("weights_from") == "best"
    if best and (totals := epoch_totals(run.epochs)):
        return f"Saved after epoch {totals.best_epoch}, the best: accuracy {format_accuracy(totals.best_accuracy)}"
    if best and len(measured):
        losses = run.blocks.loss[measured]
        lowest = measured[np.argmin(losses)]
        step = int(run.blocks.first_step[lowest] + run.blocks.steps[lowest])
        return f"Saved after step {step:,}, where the loss was lowest: {units.number(float(losses.min()))}"
    return "Saved after the last measured step"


def epoch_rows(run: StoredRun) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            str(epoch.epoch),
            format_accuracy(epoch.accuracy),
            units.number(epoch.loss),
            f"{epoch_seconds(epoch):,.2f}",
            f"{epoch_testing_seconds(epoch):,.2f}",
            units.percent(epoch_waiting_pct(epoch, run.row.summary), 1),
        )
        for epoch in run.epochs
    )


def format_accuracy(share: float | None) -> str:
    """Return a share from 0 to 1 as `91.27 %`."""
    return units.percent(None if share is None else 100 * share, 2)


_FULL_SHARE = 0.8
"""From this share of used memory on a GPU is called full."""


def phase_table(run: StoredRun) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return the titles and rows of a run's phases, without watts and joules if it has no energy readings."""
    columns = ("", "s", "W", "J", "")
    rows = tuple(map(_phase_cells, run.phases))
    used_columns = [i for i in range(len(columns)) if i < 2 or any(row[i] not in ("", units.ABSENT) for row in rows)]
    return tuple(columns[i] for i in used_columns), tuple(tuple(row[i] for i in used_columns) for row in rows)


def _phase_cells(phase: Phase) -> tuple[str, str, str, str, str]:
    """Return a phase as text: name, seconds, mean watts, joules, the bound of their error."""
    return (
        phase.name,
        units.ABSENT if phase.seconds is None else f"{phase.seconds:,.2f}",
        units.ABSENT if phase.mean_power_mw is None else f"{phase.mean_power_mw / 1e3:,.0f}",
        format_joules(phase.energy_mj),
        "" if phase.energy_error_mj is None else units.plus_minus(format_joules(phase.energy_error_mj)),
    )


class EnergyRates(NamedTuple):
    """The price and emissions of a kilowatt-hour from *Settings*; 0 states nothing."""

    price: float = 0.0
    carbon_g: float = 0.0


def load_energy_rates(database: Path) -> EnergyRates:
    from app.storage.database import load_setting  # here: the window names figures before it opens a database

    return EnergyRates(*(load_setting(database, setting) or 0.0 for setting in (PRICE_PER_KWH, CARBON_G_PER_KWH)))


def energy_costs(run: RunRow, rates: EnergyRates) -> list[tuple[str, str]]:
    """Return the cost and emissions of a million examples, by name; empty if unknown."""
    if run.summary.energy_mj_per_example is None:
        return []
    kwh = run.summary.energy_mj_per_example * _MILLION / _MJ_PER_KWH
    of = f"of a million {cells.example_word(run.spec, run.summary)}s"
    carbon = units.quantity(units.number(kwh * rates.carbon_g), "g")
    named = [(f"Cost {of}", rates.price, units.number(kwh * rates.price)), (f"CO₂ {of}", rates.carbon_g, carbon)]
    return [(name, text) for name, rate, text in named if rate]


def format_joules(energy_mj: float | None) -> str:
    """Return millijoules as joules without their unit, for a column."""
    return units.ABSENT if energy_mj is None else units.number(energy_mj / 1e3)


def memory_total_bytes(run: StoredRun) -> int | None:
    """Return the memory of the run's largest GPU; None on the CPU."""
    totals = [gpu.device.memory_total_bytes for gpu in gpu_columns(run)]
    return max((total for total in totals if total is not None), default=None)


def memory_note(run: StoredRun) -> str:
    """Return a sentence if a GPU was full only because the framework reserved its memory; else ""."""
    summary, total = run.row.summary, memory_total_bytes(run)
    used, needed = summary.device_peak_bytes, summary.allocator_peak_bytes
    if run.row.spec.variant.get("memory_growth") is not False or total is None or used is None or needed is None:
        return ""
    if used < _FULL_SHARE * total or needed > _FULL_SHARE * total:
        return ""
    return (
        f"The GPU's memory looks full because {FRAMEWORK.name} took it: memory growth was off. "
        f"The run itself needed {units.byte_size(needed)}."
    )


class DeviceLoss(NamedTuple):
    """A device that stopped answering during a run: when and why, and when it answered again, if it did."""

    device: str
    label: str
    lost_s: float
    reason: str
    answered_s: float | None


def device_losses(run: StoredRun) -> tuple[DeviceLoss, ...]:
    """Return the devices lost during the run; times are seconds after its start."""
    return tuple(
        DeviceLoss(
            device=columns.device.device,
            label=device_label(columns.device),
            lost_s=(columns.lost_t_ns - run.anchor_t_ns) / 1e9,
            reason=columns.device.lost or "",
            answered_s=next(
                ((t - run.anchor_t_ns) / 1e9 for t in columns.t_ns.tolist() if t > columns.lost_t_ns), None
            ),
        )
        for columns in run.samples
        if columns.lost_t_ns is not None
    )


def describe_losses(losses: Iterable[DeviceLoss]) -> str:
    texts = []
    for loss in losses:
        lost = units.sentence(f"{loss.label} was lost after {units.seconds(loss.lost_s)}: {loss.reason}")
        again = "" if loss.answered_s is None else f" It answered again after {units.seconds(loss.answered_s)}."
        texts.append(f"{lost}{again}")
    return " ".join(texts)


class Implausible(NamedTuple):
    """How many readings of each field of a device were left out as implausible."""

    label: str
    counts: tuple[tuple[str, int], ...]


def implausible_readings(run: StoredRun) -> tuple[Implausible, ...]:
    devices = []
    for device in (columns.device for columns in run.samples):
        counts = ((field, device.implausible.get(field.name, 0)) for field in fields_of(device.kind))
        labels = tuple((field.label_on(device.kind), count) for field, count in counts if count)
        devices += [Implausible(device_label(device), labels)] if labels else []
    return tuple(devices)


def format_implausible(devices: Iterable[Implausible], most: int | None = None) -> str:
    """Return `Power 120, Load 7 of GPU 0`; `most` limits the fields per device, None names all."""
    texts = []
    for label, counts in devices:
        more = f" and {len(counts) - most} more fields" if most and len(counts) > most else ""
        texts.append(f"{', '.join(f'{field} {count:,}' for field, count in counts[:most])}{more} of {label}")
    return "; ".join(texts)


def implausible_note(run: StoredRun) -> str:
    """Return a sentence on implausible readings, and whether energy is missing because of them; "" without any."""
    counts = format_implausible(implausible_readings(run))
    if not counts:
        return ""
    of_energy = any(not gpu.device.implausible.keys().isdisjoint(("power_mw", "energy_mj")) for gpu in gpu_columns(run))
    is_lacking = of_energy and run.row.summary.throughput is not None and run.row.summary.energy_mj_per_example is None
    note = f"Implausible readings were left out: {counts}."
    return f"{note} Too few are left to know its energy." if is_lacking else note


def field_costs(device: Device) -> tuple[tuple[str, str, str], ...]:
    """Return every field that the device reported: how often it was updated and the cost of a read, as text."""
    reported = ((field, device.fields[field.name]) for field in fields_of(device.kind) if field.name in device.fields)
    return tuple(
        (field.label_on(device.kind), units.with_unit(info.period_ms, "ms"), units.amount(info.cost_us, "µs"))
        for field, info in reported
    )


def pruned_note(pruned_utc_ns: int | None) -> str:
    """Return a note on a run whose samples were deleted; "" if they were not."""
    if pruned_utc_ns is None:
        return ""
    day = units.utc_time(pruned_utc_ns)[:10]
    return f"Its samples and log were deleted on {day} to save space; figures, phases and blocks are kept."


def summary_line(summary: Summary, example: str) -> str:
    """Return a run's main metrics in one line; `example` is the word for one item of its data."""
    figures = [
        (metric, value)
        for metric in METRICS
        if metric.brief and metric.of_summary and (value := metric.of_summary(summary)) is not None
    ]
    return "  ·  ".join(f"{metric.name} {metric.figure(value, example)}" for metric, value in figures)
