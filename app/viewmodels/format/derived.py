"""Values derived from a stored run: compute rate and MFU, energy by phase, memory, epochs, cost of telemetry."""

from typing import NamedTuple

from app import units
from app.analysis.measured import gpu_columns
from app.analysis.summary import waiting_pct
from app.fields import fields_of
from app.records import Phase, StoredRun, Summary
from app.samples import Device
from workloads.catalog import FRAMEWORK
from workloads.protocol import Epoch

EPOCH_COLUMNS = ("", "accuracy", "loss", "s", "test s", "waiting")


class EpochTotals(NamedTuple):
    """All passes together: seconds of training and of testing, the last accuracy and the best one, from 0 to 1."""

    seconds: float
    testing_seconds: float
    accuracy: float
    best_accuracy: float
    best_epoch: int


def epoch_seconds(epoch: Epoch) -> float:
    """How long an epoch trained."""
    return (epoch.end_ns - epoch.start_ns) / 1e9


def epoch_testing_seconds(epoch: Epoch) -> float:
    """How long testing took after it."""
    return (epoch.tested_ns - epoch.end_ns) / 1e9


def epoch_waiting_pct(epoch: Epoch, summary: Summary) -> float | None:
    """What an epoch's steps waited for data, in percent of its training."""
    return waiting_pct(summary.ready_step_ms, epoch.steps, epoch_seconds(epoch))


def epoch_totals(run: StoredRun) -> EpochTotals | None:
    """All epochs together; None for a run without any."""
    if not run.epochs:
        return None
    best = max(run.epochs, key=lambda epoch: epoch.accuracy)
    return EpochTotals(
        seconds=sum(map(epoch_seconds, run.epochs)),
        testing_seconds=sum(map(epoch_testing_seconds, run.epochs)),
        accuracy=run.epochs[-1].accuracy,
        best_accuracy=best.accuracy,
        best_epoch=best.epoch,
    )


def describe_epochs(run: StoredRun) -> str:
    """The same in one line; "" for a run without any."""
    found = epoch_totals(run)
    if found is None:
        return ""
    count = f"{len(run.epochs):,} {units.plural('epoch', len(run.epochs))}"
    training, testing = (units.with_unit(spent, "s", 1) for spent in (found.seconds, found.testing_seconds))
    best = f"best {format_accuracy(found.best_accuracy)} after epoch {found.best_epoch}"
    return (
        f"{count} in {training} of training and {testing} of testing; accuracy "
        f"{format_accuracy(found.accuracy)}, {best}"
    )


def epoch_rows(run: StoredRun) -> tuple[tuple[str, ...], ...]:
    """A row an epoch, as `HEADER` names its cells."""
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
    """A share from 0 to 1 as `91.27 %`."""
    return units.percent(None if share is None else 100 * share, 2)


def flops_per_s(summary: Summary) -> float | None:
    """Floating-point operations a second: those of one step by formula, times steps a second."""
    if summary.flops_per_step is None or not summary.measured_s:
        return None
    return summary.flops_per_step * summary.measured_steps / summary.measured_s


def mfu(summary: Summary) -> float | None:
    """Model FLOP utilisation: `flops_per_s` as a share of the calibrated matrix-product rate of the run's devices.

    Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B; there the ceiling is the
    data sheet's, here it is measured.
    """
    rate = flops_per_s(summary)
    return rate / summary.peak_flops_per_s if rate is not None and summary.peak_flops_per_s else None


def peak_warning(summary: Summary) -> str:
    """What to do about a share above one, which says that the peak was measured on a busy machine; "" below."""
    share = mfu(summary)
    return "the peak was measured too low: `calibrate` on a quiet machine measures it anew" if (share or 0) > 1 else ""


def mfu_pct(summary: Summary) -> float | None:
    """The same in percent."""
    share = mfu(summary)
    return None if share is None else 100 * share


_FULL_SHARE = 0.8
"""A card filled to this share is called full."""


class PhaseEnergy(NamedTuple):
    """A phase with what the run's GPUs used in it together; None where it could not be had. Power is the mean."""

    name: str
    seconds: float | None
    power_mw: float | None
    energy_mj: float | None
    error_mj: float | None


class FieldCost(NamedTuple):
    """How a field was read: how often its value was renewed and what one read cost, as words."""

    name: str
    period: str
    cost: str


def phase_energies(run: StoredRun) -> tuple[PhaseEnergy, ...]:
    """Every phase of the run."""
    return tuple(map(_phase_energy, run.phases))


def _phase_energy(phase: Phase) -> PhaseEnergy:
    seconds = None if phase.end_ns is None else (phase.end_ns - phase.start_ns) / 1e9
    power_mw = phase.energy_mj / seconds if phase.energy_mj is not None and seconds else None
    return PhaseEnergy(phase.name, seconds, power_mw, phase.energy_mj, phase.energy_error_mj)


def phase_cells(phase: PhaseEnergy) -> tuple[str, str, str, str, str]:
    """A phase as words: name, seconds, mean watts, joules, the bound of their error."""
    return (
        phase.name,
        units.ABSENT if phase.seconds is None else f"{phase.seconds:,.2f}",
        units.ABSENT if phase.power_mw is None else f"{phase.power_mw / 1e3:,.0f}",
        format_joules(phase.energy_mj),
        "" if phase.error_mj is None else f"±\N{NO-BREAK SPACE}{format_joules(phase.error_mj)}",
    )


def format_joules(energy_mj: float | None) -> str:
    """Millijoules as joules without their unit, for a column."""
    return units.ABSENT if energy_mj is None else units.number(energy_mj / 1e3)


def energy_mj_per_step(summary: Summary) -> float | None:
    """Energy of one measured step of the run's GPUs together."""
    if summary.energy_mj_per_example is None or not summary.measured_steps:
        return None
    return summary.energy_mj_per_example * summary.measured_examples / summary.measured_steps


def format_energy_error(summary: Summary) -> str:
    """The bound of the energy's error in words; "" where there is none."""
    bound = units.plus_minus(None if summary.energy_error_pct is None else summary.energy_error_pct / 100)
    return f"{bound} from the window's edges" if bound else ""


def memory_total_bytes(run: StoredRun) -> int | None:
    """The memory of the run's largest GPU; None on the CPU."""
    totals = [gpu.device.memory_total_bytes for gpu in gpu_columns(run)]
    return max((total for total in totals if total is not None), default=None)


def memory_note(run: StoredRun) -> str:
    """One sentence where the card was full because the framework took it, not because the model needs it; else ""."""
    summary, total = run.row.summary, memory_total_bytes(run)
    used, needed = summary.device_peak_bytes, summary.allocator_peak_bytes
    if run.row.spec.variant.get("memory_growth") is not False or total is None or used is None or needed is None:
        return ""
    if used < _FULL_SHARE * total or needed > _FULL_SHARE * total:
        return ""
    return (
        f"The card looks full because {FRAMEWORK.name} took it: memory growth was off. "
        f"The run itself needed {units.byte_size(needed)}."
    )


def audit_rows(summary: Summary) -> tuple[tuple[str, str], ...]:
    """The telemetry's audit of itself; what is not known is left out."""
    missed = units.ABSENT if summary.samples_missed is None else f"{summary.samples_missed:,}"
    rows = (
        ("Readings", units.ABSENT if summary.sample_hz is None else f"{summary.sample_hz:.1f} a second"),
        ("Jitter p50", units.milliseconds(summary.sample_jitter_ms_p50)),
        ("Jitter p99", units.milliseconds(summary.sample_jitter_ms_p99)),
        ("Readings missed", missed),
        ("Sampler's CPU", units.percent(summary.sampler_cpu_pct, 2)),
    )
    return tuple((name, text) for name, text in rows if text != units.ABSENT)


def field_costs(device: Device) -> tuple[FieldCost, ...]:
    """Every field the device gave, with its period and cost."""
    reported = ((field, device.fields[field.name]) for field in fields_of(device.kind) if field.name in device.fields)
    return tuple(
        FieldCost(field.label_on(device.kind), format_period(info.period_ms), format_read_cost(info.cost_us))
        for field, info in reported
    )


def format_period(period_ms: float | None) -> str:
    """How often a value is renewed."""
    return units.with_unit(period_ms, "ms")


def format_read_cost(cost_us: float | None) -> str:
    """What one read costs."""
    return units.amount(cost_us, "µs")


def pruned_note(pruned_utc_ns: int | None) -> str:
    """What a run says whose samples were deleted; "" where they were not."""
    if pruned_utc_ns is None:
        return ""
    day = units.utc_time(pruned_utc_ns)[:10]
    return f"Its samples and log were deleted on {day} to save space; figures, phases and blocks are kept."


def summary_line(summary: Summary, example: str) -> str:
    """A run's figures beside its throughput in one line; what was not measured is left out."""
    parts = []
    if summary.step_ms_p50 is not None:
        parts.append(f"step {units.milliseconds(summary.step_ms_p50)}")
    if summary.loss_first is not None and summary.loss_last is not None:
        parts.append(f"loss {units.number(summary.loss_first)} → {units.number(summary.loss_last)}")
    if summary.waiting_pct is not None:
        parts.append(f"waiting for data {units.percent(summary.waiting_pct, 1)}")
    if (rate := flops_per_s(summary)) is not None:
        share = mfu_pct(summary)
        parts.append(units.gflops(rate) + ("" if share is None else f", {units.percent(share, 1)} of peak"))
    if summary.mean_power_mw is not None:
        parts.append(f"power {units.watts(summary.mean_power_mw)}")
    if summary.energy_mj_per_example is not None:
        parts.append(f"{units.number(summary.energy_mj_per_example)} mJ/{example}")
    if summary.device_peak_bytes is not None:
        parts.append(f"peak memory {units.byte_size(summary.device_peak_bytes)}")
    if summary.compile_s is not None:
        parts.append(f"compile {units.seconds(summary.compile_s)}")
    return "  ·  ".join(parts)
