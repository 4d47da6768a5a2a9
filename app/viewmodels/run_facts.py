"""What is known of a stored run beside its throughput: energy by phase, memory told apart, the telemetry's audit."""

from typing import NamedTuple

from app.analysis.measured import gpu_columns
from app.records import Phase, StoredRun, Summary
from app.samples import Device
from app.viewmodels import flops, units
from app.viewmodels.fields import field_words, fields_of

_FULL = 0.8
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
        joules(phase.energy_mj),
        "" if phase.error_mj is None else f"±\N{NO-BREAK SPACE}{joules(phase.error_mj)}",
    )


def joules(energy_mj: float | None) -> str:
    """Millijoules as joules without their unit, for a column."""
    return units.ABSENT if energy_mj is None else units.number(energy_mj / 1e3)


def energy_mj_per_step(summary: Summary) -> float | None:
    """Energy of one measured step of the run's GPUs together."""
    if summary.energy_mj_per_example is None or not summary.measured_steps:
        return None
    return summary.energy_mj_per_example * summary.measured_examples / summary.measured_steps


def energy_error_words(summary: Summary) -> str:
    """The bound of the energy's error in words; "" where there is none."""
    words = units.spread(None if summary.energy_error_pct is None else summary.energy_error_pct / 100)
    return f"{words} from the window's edges" if words else ""


def memory_total_bytes(run: StoredRun) -> int | None:
    """The memory of the run's largest GPU; None on the CPU."""
    totals = [gpu.device.memory_total_bytes for gpu in gpu_columns(run)]
    return max((total for total in totals if total is not None), default=None)


def memory_note(run: StoredRun) -> str:
    """One sentence where the card was full because TensorFlow took it, not because the model needs it; else ""."""
    summary, total = run.row.summary, memory_total_bytes(run)
    used, needed = summary.device_peak_bytes, summary.allocator_peak_bytes
    if run.row.spec.variant.get("memory_growth") is not False or total is None or used is None or needed is None:
        return ""
    if used < _FULL * total or needed > _FULL * total:
        return ""
    return (
        "The card looks full because TensorFlow took it: memory growth was off. "
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
    known = ((name, device.fields[name]) for name in fields_of(device.device) if name in device.fields)
    return tuple(FieldCost(field_words(name), period(facts.period_ms), cost(facts.cost_us)) for name, facts in known)


def period(period_ms: float | None) -> str:
    """How often a value is renewed."""
    return units.with_unit(period_ms, "ms")


def cost(cost_us: float | None) -> str:
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
    words = []
    if summary.step_ms_p50 is not None:
        words.append(f"step {units.milliseconds(summary.step_ms_p50)}")
    if summary.loss_first is not None and summary.loss_last is not None:
        words.append(f"loss {units.number(summary.loss_first)} → {units.number(summary.loss_last)}")
    if summary.waiting_pct is not None:
        words.append(f"waiting for data {units.percent(summary.waiting_pct, 1)}")
    if (rate := flops.flops_per_s(summary)) is not None:
        share = flops.utilisation_pct(summary)
        words.append(units.gflops(rate) + ("" if share is None else f", {units.percent(share, 1)} of peak"))
    if summary.mean_power_mw is not None:
        words.append(f"power {units.watts(summary.mean_power_mw)}")
    if summary.energy_mj_per_example is not None:
        words.append(f"{units.number(summary.energy_mj_per_example)} mJ/{example}")
    if summary.device_peak_bytes is not None:
        words.append(f"peak memory {units.byte_size(summary.device_peak_bytes)}")
    if summary.compile_s is not None:
        words.append(f"compile {units.seconds(summary.compile_s)}")
    return "  ·  ".join(words)
