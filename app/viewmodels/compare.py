"""Chosen runs side by side as values: one row a run, and their curves over one time axis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.analysis.align import Series, combine, with_gaps
from app.records import RunRow, StoredRun
from app.viewmodels import cells, stored_curves, units
from app.viewmodels.cells import Cell, Column
from app.viewmodels.environment import environment_differences
from app.viewmodels.evidence import mislabelled
from app.viewmodels.scaling import ScalingView, scaling_views
from app.viewmodels.stored_curves import GPU_QUANTITIES, HOST_QUANTITIES, Curve, Panel, Quantity
from app.viewmodels.variants import shared_settings, variant_names

ONE_PROCESS = (
    "Each row is one process, so its ratio has no interval; processes of one variant often differ by a few per cent."
)

_COMBINED: dict[str, Literal["sum", "mean"]] = {"power_mw": "sum", "load_pct": "mean", "memory_bytes": "sum"}


COLUMNS: tuple[Column, ...] = (
    Column("Run", "Number of the run; the box shows or hides its curves"),
    Column("Variant", "What differs between these runs", numeric=False),
    Column("Outcome", "How the run ended", numeric=False),
    Column("As asked", "Whether what ran is what was asked, as far as its evidence tells", numeric=False),
    Column("Throughput", "Examples a second over the measured blocks"),
    Column("Speed-up", "Throughput as a ratio to the baseline's"),
    Column("Step p50", "Median time of one step"),
    Column("p95", "19 of 20 steps were faster"),
    Column("p99", "99 of 100 steps were faster"),
    Column("Mean power", "Mean power of the run's GPUs together while measuring"),
    Column("Energy", "Energy for one example"),
    Column("Energy ratio", "Energy for one example as a ratio to the baseline's; below 1 is less"),
    Column("GFLOPS", "Billion floating-point operations a second, those of a step by formula"),
    Column("Of peak", "The same as a share of the measured rate of a large matrix product on the run's devices"),
    Column("Peak memory", "Highest memory use seen on one device of the run"),
    Column("Compile", "Time of the compile phase, never part of the throughput"),
)
VARIANT_COLUMN, OUTCOME_COLUMN = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Chosen runs in their order, which is also their colour; `differences` and `notes` are sentences.

    `mislabelled` says which runs did not run what was asked, and why; "" where none is known.
    """

    rows: tuple[RunRow, ...] = ()
    panels: tuple[Panel, ...] = ()
    shared: str = ""
    mislabelled: str = ""
    differences: str = ""
    notes: tuple[str, ...] = ()
    scaling: tuple[ScalingView, ...] = ()
    start_s: float = 0.0
    end_s: float = 1.0

    @property
    def runs(self) -> tuple[int, ...]:
        """The numbers of the runs."""
        return tuple(row.run for row in self.rows)


def compare(runs: Sequence[StoredRun]) -> Comparison:
    """All that the screen shows but the ratios, which `table` makes; slow enough to belong off the GUI thread.

    At most as much time before `measure` is in view as after it: imports are long and flat.
    """
    panels = tuple(_panels(runs))
    ends = [(float(curve.x[0]), float(curve.x[-1])) for panel in panels for curve in panel.curves]
    rows = tuple(run.row for run in runs)
    end_s = max((end for _, end in ends), default=1.0)
    return Comparison(
        rows=rows,
        panels=panels,
        shared=shared_settings([row.spec for row in rows]),
        mislabelled=mislabelled(rows),
        differences=environment_differences(runs),
        notes=(*_not_measured(runs), *([ONE_PROCESS] if len(rows) > 1 else [])),
        scaling=tuple(scaling_views(runs)),
        start_s=max(min((start for start, _ in ends), default=0.0), -end_s),
        end_s=end_s,
    )


def table(rows: Sequence[RunRow], baseline: int) -> list[tuple[Cell, ...]]:
    """One row a run with its ratios to the run numbered `baseline`."""
    base = next((row for row in rows if row.run == baseline), None)
    names = variant_names([row.spec for row in rows])
    return [_cells(row, name, base) for row, name in zip(rows, names, strict=True)]


def speed_ratio(row: RunRow, base: RunRow | None) -> float | None:
    """Throughput against the baseline's; None where one is missing or they count different things."""
    if base is None or row.spec.workload != base.spec.workload:
        return None
    return _ratio(row.summary.throughput, base.summary.throughput)


def energy_ratio(row: RunRow, base: RunRow | None) -> float | None:
    """Energy for one example against the baseline's; None where one is missing or they count different things."""
    if base is None or row.spec.workload != base.spec.workload:
        return None
    return _ratio(row.summary.energy_mj_per_example, base.summary.energy_mj_per_example)


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _cells(row: RunRow, name: str, base: RunRow | None) -> tuple[Cell, ...]:
    s = row.summary
    return (
        cells.run_number(row),
        cells.words(name, cells.variant(row.spec).tooltip),
        cells.outcome(row.outcome),
        cells.as_asked(row),
        cells.throughput(row),
        _marked(cells.ratio(speed_ratio(row, base)), row is base),
        cells.step_ms(s.step_ms_p50),
        cells.step_ms(s.step_ms_p95),
        cells.step_ms(s.step_ms_p99),
        cells.power(s.mean_power_mw),
        cells.energy(row),
        _marked(cells.ratio(energy_ratio(row, base)), row is base),
        replace(cells.gflops(row), unit=""),
        cells.utilisation(row),
        cells.byte_count(s.device_peak_bytes),
        cells.seconds(s.compile_s),
    )


def _marked(ratio: Cell, is_base: bool) -> Cell:
    return replace(ratio, text="baseline") if is_base and ratio.key is not None else ratio


def _not_measured(runs: Iterable[StoredRun]) -> list[str]:
    sentences = []
    for run in runs:
        if run.measure_start_ns is None:
            word = cells.OUTCOMES[run.row.outcome.name if run.row.outcome else "running"].word
            reason = (run.row.outcome.reason if run.row.outcome else None) or ""
            sentences.append(f"Run {run.row.run} ({word}) never reached its measured part. {reason}".rstrip())
    if sentences:
        sentences.append("Without a measured part, time zero is the start of the run.")
    return sentences


def _panels(runs: Sequence[StoredRun]) -> list[Panel]:
    numbered = list(enumerate(runs))
    on_gpu = [(colour, run) for colour, run in numbered if stored_curves.gpus_of(run)]
    on_cpu = [(colour, run) for colour, run in numbered if not stored_curves.gpus_of(run)]
    rate_units = {units.rate_unit(cells.example_word(run.row.spec)) for run in runs}
    rate_unit = rate_units.pop() if len(rate_units) == 1 else "examples/s"
    rates = [_curve(run, colour, stored_curves.throughput(run)) for colour, run in numbered]
    losses = [_curve(run, colour, stored_curves.loss(run)) for colour, run in numbered]
    panels = [
        stored_curves.panel("throughput", "Throughput", rate_unit, rates),
        *(_telemetry_panel("gpu", quantity, on_gpu) for quantity in GPU_QUANTITIES),
        *(_telemetry_panel("cpu", quantity, on_cpu) for quantity in HOST_QUANTITIES),
        stored_curves.panel("loss", "Loss", "", losses),
    ]
    return [each for each in panels if each is not None]


def _telemetry_panel(kind: str, quantity: Quantity, numbered: Sequence[tuple[int, StoredRun]]) -> Panel | None:
    """One field of all these runs; GPUs of one run are put together, and the title says how if there are several."""
    how = _COMBINED.get(quantity.field, "sum")
    several = any(len(stored_curves.gpus_of(run)) > 1 for _, run in numbered)
    title = f"{quantity.title}, {how} of a run's GPUs" if several else quantity.title
    curves = []
    for colour, run in numbered:
        devices = stored_curves.gpus_of(run) or stored_curves.hosts_of(run)
        tracks = [with_gaps(stored_curves.telemetry(device, quantity)) for device in devices]
        curves.append(_curve(run, colour, combine(tracks, how)))
    return stored_curves.panel(f"{kind} {quantity.field}", title, quantity.unit, curves)


def _curve(run: StoredRun, colour: int, series: Series) -> Curve:
    start = run.measure_start_ns
    zero = run.anchor_t_ns if start is None else start
    return stored_curves.drawn(series, zero, key=str(run.row.run), label=f"Run {run.row.run}", colour=colour)
