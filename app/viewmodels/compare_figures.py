"""The figures of compared runs as columns: how each is read of a run, and how a variant's runs share a row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from app.analysis.comparability import Hold, held_back
from app.analysis.intervals import LEVEL, Estimate
from app.analysis.peaks import Peaks, peaks
from app.records import RunRow, StoredRun, Summary
from app.viewmodels import cells, epochs, flops, stored_curves, units
from app.viewmodels.cells import Cell, Column


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run with what its samples and epochs add to its summary; accuracy in percent, `held_back` as shares."""

    row: RunRow
    peaks: Peaks
    held_back: Mapping[Hold, float]
    training_s: float | None = None
    accuracy_pct: float | None = None

    @property
    def throttled_s(self) -> float | None:
        """For how long of the measured part the cause that did most held its worst GPU back."""
        measured_s = self.row.summary.measured_s
        return None if measured_s is None or not self.held_back else max(self.held_back.values()) * measured_s


def run_figures(run: StoredRun) -> RunFigures:
    """Everything the table shows of one run."""
    trained = epochs.totals(run)
    return RunFigures(
        row=run.row,
        peaks=peaks(run, stored_curves.gpus_of(run)),
        held_back=held_back(run),
        training_s=trained.seconds if trained else None,
        accuracy_pct=100 * trained.accuracy if trained else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One column: a run's value, its words, and what the values of a variant's runs amount to."""

    key: str
    column: Column
    value: Callable[[RunFigures], float | None]
    words: Callable[[float | None], Cell]
    fold: Callable[[Sequence[float]], float] = median

    def of(self, runs: Sequence[RunFigures]) -> Cell:
        """The cell of one run, or of several that share a row."""
        return self.words(self.amount(runs))

    def amount(self, runs: Sequence[RunFigures]) -> float | None:
        """What the cell tells; None where no run has it."""
        values = [value for run in runs if (value := self.value(run)) is not None]
        return self.fold(values) if values else None


def _summary(name: str) -> Callable[[RunFigures], float | None]:
    def value(run: RunFigures) -> float | None:
        found: float | None = getattr(run.row.summary, name)
        return found

    return value


def _of_summary(read: Callable[[Summary], float | None]) -> Callable[[RunFigures], float | None]:
    return lambda run: read(run.row.summary)


def _gflops(value: float | None) -> Cell:
    return replace(cells.quantity(units.gflops(value), value), unit="")


def _percent(decimals: int) -> Callable[[float | None], Cell]:
    return lambda value: cells.quantity(units.percent(value, decimals), value)


def _celsius(value: float | None) -> Cell:
    return cells.quantity(units.celsius(value), value)


_MEDIAN = "; of several runs the median"
_HIGHEST = "; of several runs the highest"

FIGURES: tuple[Figure, ...] = (
    Figure(
        key="step_p50",
        column=Column("Step p50", f"Median time of one step{_MEDIAN}"),
        value=_summary("step_ms_p50"),
        words=cells.step_ms,
    ),
    Figure(
        key="step_p95",
        column=Column("p95", f"19 of 20 steps were faster, by the mean step of their block{_MEDIAN}"),
        value=_summary("step_ms_p95"),
        words=cells.step_ms,
    ),
    Figure(
        key="step_p99",
        column=Column("p99", f"99 of 100 steps were faster, by the mean step of their block{_MEDIAN}"),
        value=_summary("step_ms_p99"),
        words=cells.step_ms,
    ),
    Figure(
        key="mean_power",
        column=Column("Mean power", f"Mean power of the run's GPUs together while measuring{_MEDIAN}"),
        value=_summary("mean_power_mw"),
        words=cells.power,
    ),
    Figure(
        key="peak_power",
        column=Column("Peak power", f"Highest power of the run's GPUs together while measuring{_HIGHEST}"),
        value=lambda run: run.peaks.power_mw,
        words=cells.power,
        fold=max,
    ),
    Figure(
        key="device_memory",
        column=Column("Peak memory", f"Highest memory use seen on one device of the run{_HIGHEST}"),
        value=_summary("device_peak_bytes"),
        words=cells.byte_count,
        fold=max,
    ),
    Figure(
        key="allocator_memory",
        column=Column("Allocated", f"Highest memory that TensorFlow's allocator gave out on one device{_HIGHEST}"),
        value=_summary("allocator_peak_bytes"),
        words=cells.byte_count,
        fold=max,
    ),
    Figure(
        key="utilisation",
        column=Column(
            "MFU", f"Model FLOP utilisation: operations by formula, as a share of the measured peak{_MEDIAN}"
        ),
        value=_of_summary(flops.utilisation_pct),
        words=_percent(1),
    ),
    Figure(
        key="gflops",
        column=Column("GFLOPS", f"Billion floating-point operations a second, those of a step by formula{_MEDIAN}"),
        value=_of_summary(flops.flops_per_s),
        words=_gflops,
    ),
    Figure(
        key="compile",
        column=Column("Compile", f"Time of the compile phase, never part of the throughput{_MEDIAN}"),
        value=_summary("compile_s"),
        words=cells.seconds,
    ),
    Figure(
        key="temperature",
        column=Column("Hottest", f"Highest temperature of a GPU of the run while measuring{_HIGHEST}"),
        value=lambda run: run.peaks.temperature_c,
        words=_celsius,
        fold=max,
    ),
    Figure(
        key="throttled",
        column=Column("Throttled", f"How long of the measured part a GPU's clocks were held back{_HIGHEST}"),
        value=lambda run: run.throttled_s,
        words=cells.seconds,
        fold=max,
    ),
    Figure(
        key="training",
        column=Column("Training", f"Time of all epochs, without testing{_MEDIAN}"),
        value=lambda run: run.training_s,
        words=cells.seconds,
    ),
    Figure(
        key="accuracy",
        column=Column("Accuracy", f"Accuracy after the last epoch{_MEDIAN}"),
        value=lambda run: run.accuracy_pct,
        words=_percent(2),
    ),
)


_WIDE = 0.25
"""From this half-width on an interval lies so unevenly about its value that one percentage would mislead."""


def with_spread(estimate: Estimate | None) -> Cell:
    """A value with half its interval's width in percent of it, of a wide one with its ends."""
    if estimate is None:
        return Cell(text=units.ABSENT)
    wide = estimate.interval is not None and (estimate.half_width or 0) > _WIDE
    spread = "–".join(map(units.number, estimate.interval or ())) if wide else units.spread(estimate.half_width)
    return Cell(text=units.number(estimate.value), unit=spread, key=estimate.value, tooltip=_interval_words(estimate))


def with_ends(estimate: Estimate | None) -> Cell:
    """A ratio with both ends of its interval."""
    if estimate is None:
        return Cell(text=units.ABSENT)
    ends = "–".join(units.ratio_ends(estimate.interval, estimate.value))
    return replace(cells.ratio(estimate.value), unit=ends, tooltip=_interval_words(estimate))


def _interval_words(estimate: Estimate) -> str:
    of_runs = f"{estimate.n} {units.plural('run', estimate.n)}"
    if estimate.interval is None:
        return f"{of_runs}: no interval"
    low, high = (units.number(end, 4) for end in estimate.interval)
    return f"{100 * LEVEL:.0f} % interval {low} to {high}, {of_runs}"
