"""The metric columns of a comparison: how each is read from a run and aggregated over a variant's runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from app import units
from app.analysis.comparability import ThrottleCause, throttled_shares
from app.analysis.intervals import LEVEL, Estimate
from app.analysis.measured import GpuPeaks, gpu_peaks
from app.records import RunRow, StoredRun, Summary
from app.viewmodels.format import cells, derived
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.plot import stored_curves


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """One run with what its samples and epochs add to its summary; accuracy in percent, `held_back` as shares."""

    row: RunRow
    peaks: GpuPeaks
    throttled_shares: Mapping[ThrottleCause, float]
    training_s: float | None = None
    accuracy_pct: float | None = None

    @property
    def throttled_s(self) -> float | None:
        """For how long of the measured part the cause that did most held its worst GPU back."""
        measured_s = self.row.summary.measured_s
        return (
            None
            if measured_s is None or not self.throttled_shares
            else max(self.throttled_shares.values()) * measured_s
        )


def run_metrics(run: StoredRun) -> RunMetrics:
    """Everything the table shows of one run."""
    trained = derived.epoch_totals(run)
    return RunMetrics(
        row=run.row,
        peaks=gpu_peaks(run, stored_curves.gpu_samples(run)),
        throttled_shares=throttled_shares(run),
        training_s=trained.seconds if trained else None,
        accuracy_pct=100 * trained.accuracy if trained else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricColumn:
    """One column: a run's value, its words, and what the values of a variant's runs amount to."""

    key: str
    column: Column
    value: Callable[[RunMetrics], float | None]
    to_cell: Callable[[float | None], Cell]
    fold: Callable[[Sequence[float]], float] = median

    def cell(self, runs: Sequence[RunMetrics]) -> Cell:
        """The cell of one run, or of several that share a row."""
        return self.to_cell(self.aggregate(runs))

    def aggregate(self, runs: Sequence[RunMetrics]) -> float | None:
        """What the cell tells; None where no run has it."""
        values = [value for run in runs if (value := self.value(run)) is not None]
        return self.fold(values) if values else None


def _summary_field(name: str) -> Callable[[RunMetrics], float | None]:
    def value(run: RunMetrics) -> float | None:
        found: float | None = getattr(run.row.summary, name)
        return found

    return value


def _from_summary(read: Callable[[Summary], float | None]) -> Callable[[RunMetrics], float | None]:
    return lambda run: read(run.row.summary)


def _gflops(value: float | None) -> Cell:
    return replace(cells.quantity(units.gflops(value), value), unit="")


def _percent(decimals: int) -> Callable[[float | None], Cell]:
    return lambda value: cells.quantity(units.percent(value, decimals), value)


def _celsius(value: float | None) -> Cell:
    return cells.quantity(units.celsius(value), value)


_MEDIAN = "; of several runs the median"
_HIGHEST = "; of several runs the highest"

METRIC_COLUMNS: tuple[MetricColumn, ...] = (
    MetricColumn(
        key="step_p50",
        column=Column("Step p50", f"Median time of one step{_MEDIAN}"),
        value=_summary_field("step_ms_p50"),
        to_cell=cells.step_ms,
    ),
    MetricColumn(
        key="step_p95",
        column=Column("p95", f"19 of 20 steps were faster, by the mean step of their block{_MEDIAN}"),
        value=_summary_field("step_ms_p95"),
        to_cell=cells.step_ms,
    ),
    MetricColumn(
        key="step_p99",
        column=Column("p99", f"99 of 100 steps were faster, by the mean step of their block{_MEDIAN}"),
        value=_summary_field("step_ms_p99"),
        to_cell=cells.step_ms,
    ),
    MetricColumn(
        key="mean_power",
        column=Column("Mean power", f"Mean power of the run's GPUs together while measuring{_MEDIAN}"),
        value=_summary_field("mean_power_mw"),
        to_cell=cells.power,
    ),
    MetricColumn(
        key="peak_power",
        column=Column("Peak power", f"Highest power of the run's GPUs together while measuring{_HIGHEST}"),
        value=lambda run: run.peaks.power_mw,
        to_cell=cells.power,
        fold=max,
    ),
    MetricColumn(
        key="device_memory",
        column=Column("Peak memory", f"Highest memory use seen on one device of the run{_HIGHEST}"),
        value=_summary_field("device_peak_bytes"),
        to_cell=cells.byte_count,
        fold=max,
    ),
    MetricColumn(
        key="allocator_memory",
        column=Column("Allocated", f"Highest memory that TensorFlow's allocator gave out on one device{_HIGHEST}"),
        value=_summary_field("allocator_peak_bytes"),
        to_cell=cells.byte_count,
        fold=max,
    ),
    MetricColumn(
        key="utilisation",
        column=Column(
            "MFU", f"Model FLOP utilisation: operations by formula, as a share of the measured peak{_MEDIAN}"
        ),
        value=_from_summary(derived.mfu_pct),
        to_cell=_percent(1),
    ),
    MetricColumn(
        key="gflops",
        column=Column("GFLOPS", f"Billion floating-point operations a second, those of a step by formula{_MEDIAN}"),
        value=_from_summary(derived.flops_per_s),
        to_cell=_gflops,
    ),
    MetricColumn(
        key="compile",
        column=Column("Compile", f"Time of the compile phase, never part of the throughput{_MEDIAN}"),
        value=_summary_field("compile_s"),
        to_cell=cells.seconds,
    ),
    MetricColumn(
        key="temperature",
        column=Column("Hottest", f"Highest temperature of a GPU of the run while measuring{_HIGHEST}"),
        value=lambda run: run.peaks.temperature_c,
        to_cell=_celsius,
        fold=max,
    ),
    MetricColumn(
        key="throttled",
        column=Column("Throttled", f"How long of the measured part a GPU's clocks were held back{_HIGHEST}"),
        value=lambda run: run.throttled_s,
        to_cell=cells.seconds,
        fold=max,
    ),
    MetricColumn(
        key="training",
        column=Column("Training", f"Time of all epochs, without testing{_MEDIAN}"),
        value=lambda run: run.training_s,
        to_cell=cells.seconds,
    ),
    MetricColumn(
        key="accuracy",
        column=Column("Accuracy", f"Accuracy after the last epoch{_MEDIAN}"),
        value=lambda run: run.accuracy_pct,
        to_cell=_percent(2),
    ),
)


_WIDE = 0.25
"""From this half-width on an interval lies so unevenly about its value that one percentage would mislead."""


def estimate_cell(estimate: Estimate | None) -> Cell:
    """A value with half its interval's width in percent of it, of a wide one with its ends."""
    if estimate is None:
        return Cell(text=units.ABSENT)
    wide = estimate.interval is not None and (estimate.half_width or 0) > _WIDE
    margin = "–".join(map(units.number, estimate.interval or ())) if wide else units.plus_minus(estimate.half_width)
    return Cell(text=units.number(estimate.value), unit=margin, key=estimate.value, tooltip=_interval_text(estimate))


def ratio_cell(estimate: Estimate | None) -> Cell:
    """A ratio with both ends of its interval."""
    if estimate is None:
        return Cell(text=units.ABSENT)
    ends = "–".join(units.ratio_ends(estimate.interval, estimate.value))
    return replace(cells.ratio(estimate.value), unit=ends, tooltip=_interval_text(estimate))


def _interval_text(estimate: Estimate) -> str:
    run_count = f"{estimate.n} {units.plural('run', estimate.n)}"
    if estimate.interval is None:
        return f"{run_count}: no interval"
    low, high = (units.number(end, 4) for end in estimate.interval)
    return f"{100 * LEVEL:.0f} % interval {low} to {high}, {run_count}"
