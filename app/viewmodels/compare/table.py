"""The comparison table as values: variants with their runs, and constant columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from app.analysis.intervals import Estimate
from app.analysis.verdict import (
    VariantResult,
    comparable_results,
    fastest_result,
    leading_result,
    rank_results,
    work_ratio,
)
from app.metrics import METRIC_BY_KEY, METRICS, Fold, RunMetrics, aggregate_metrics
from app.values import units
from app.values.records import RunRow, worst_state
from app.viewmodels.compare.verdict import Verdict
from app.viewmodels.format import cells
from app.viewmodels.format.cells import THIS_MACHINE, Cell, Column
from app.viewmodels.format.naming import Name, differing_parameters, names_in_parts, parameter_label
from app.viewmodels.format.ratios import CI, Unit, format_interval, unit_of
from app.viewmodels.format.sentences import count_runs
from workloads.protocol import RunSpec

RowKind = Literal["group", "variant", "run", "member"]
"""A group of variants with one value, a variant of several runs, a run in a separate row, a run under its variant."""

RUN, BASE, VARIANT, SPEEDUP, ENERGY_RATIO = "run", "base", "variant", "speedup", "energy_ratio"
_NEVER_FOLDED = frozenset({RUN, BASE, VARIANT, SPEEDUP, ENERGY_RATIO, "throughput"})
_WORST_FIRST = ("crashed", "failed", "out_of_memory", "refused", "stopped", "running", "completed")
_NO_TEXT = Cell(text="")
_DIGITS = 4
"""Significant digits of throughput and energy, also in the terminal."""

COMPARED = tuple(metric for metric in METRICS if metric.compared)
"""The metrics with one column each; throughput and energy have special columns, with intervals and ratios."""
_FOLDS: Mapping[Fold, str] = {"median": "; of several runs the median", "highest": "; of several runs the highest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVariant:
    """One variant of a comparison: its name, its result against the baseline, and its runs' combined metrics."""

    name: str
    parts: Name
    result: VariantResult
    metrics: RunMetrics

    @property
    def spec(self) -> RunSpec:
        return self.result.runs[0].spec


class CurveLook(NamedTuple):
    """The look of a run's curves: a style, and its variant's letter if there are several variants."""

    style: int | None
    mark: str = ""


_NOT_DRAWN = CurveLook(None)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row; `runs` are the runs that it represents, `title` is a group's.

    `style` is None if its curves are not drawn; `mark` is the letter that distinguishes them without colour. The
    variant that `leads` measured fastest of the ranked ones; `is_fastest` means that this is certain. One with
    `other_work` does another amount of work per example than the baseline, so that the two are not directly comparable.
    """

    kind: RowKind
    cells: tuple[Cell, ...]
    runs: tuple[int, ...]
    style: int | None
    is_baseline: bool
    title: str = ""
    mark: str = ""
    leads: bool = False
    is_fastest: bool = False
    other_work: bool = False

    @property
    def is_parent(self) -> bool:
        return self.kind in ("group", "variant")


@dataclass(frozen=True, slots=True)
class VariantRows:
    """One variant: the row of all its runs together, and a row for each."""

    spec: RunSpec
    summary: TableRow
    runs: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareTable:
    """All columns by name, and all rows.

    `empty` are columns without values; `agreed` has the columns in which all runs agree, with the common text. `widest`
    has a cell for each column as wide as its widest.
    """

    keys: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    variants: tuple[VariantRows, ...] = ()
    empty: frozenset[str] = frozenset()
    agreed: Mapping[str, str] = field(default_factory=dict)
    widest: tuple[Cell, ...] = ()

    @property
    def folded(self) -> frozenset[str]:
        """Return the columns that need no space."""
        return self.empty | self.agreed.keys()

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Return name and label of each parameter by which variants may be grouped."""
        specs = [variant.spec for variant in self.variants]
        names = differing_parameters(specs)
        having = {name: next((one for one in specs if name in one.variant), specs[0]) for name in names}
        return tuple((name, parameter_label(spec, name)) for name, spec in having.items())


def compared_variants(verdict: Verdict, metrics: Mapping[int, RunMetrics]) -> tuple[ComparedVariant, ...]:
    """Return every variant of a verdict with the metrics of the runs that count.

    `metrics` are those of each run, by number.
    """
    specs = [result.runs[0].spec for result in verdict.results]
    return tuple(
        ComparedVariant(
            name=name,
            parts=parts,
            result=result,
            metrics=aggregate_metrics([metrics[row.run] for row in result.runs if row.completed]),
        )
        for result, name, parts in zip(verdict.results, verdict.names, names_in_parts(specs), strict=True)
    )


def compare_table(
    variants: Sequence[ComparedVariant],
    metrics: Mapping[int, RunMetrics],
    looks: Mapping[int, CurveLook],
    baseline: int,
) -> CompareTable:
    results = [variant.result for variant in variants]
    base = next(result for result in results if result.is_baseline)
    builder = _RowBuilder(
        metrics=metrics,
        looks=looks,
        baseline=baseline,
        base=base,
        leader=leading_result(rank_results(results)),
        fastest=fastest_result(results),
        comparable=frozenset(result.runs[0].run for result in comparable_results(results)),
        speed_unit=unit_of(result.speedup.value for result in results if result.speedup),
        energy_unit=unit_of(result.energy_ratio.value for result in results if result.energy_ratio),
    )
    rows = tuple(map(builder.variant, variants))
    run_rows = [row for variant in rows for row in variant.runs]
    columns = _columns(results)
    empty = [key for n, key in enumerate(columns) if all(row.cells[n].key is None for row in run_rows)]
    all_rows = [*run_rows, *(variant.summary for variant in rows if len(variant.runs) > 1)]
    return CompareTable(
        keys=tuple(columns),
        columns=tuple(columns.values()),
        variants=rows,
        empty=frozenset(empty) - {BASE},
        agreed=_agreed(columns, run_rows, empty),
        widest=tuple(map(cells.widest, zip(*(row.cells for row in all_rows), strict=True))),
    )


def _agreed(columns: Mapping[str, Column], rows: Sequence[TableRow], empty: Iterable[str]) -> dict[str, str]:
    agreements = {}
    for n, (key, column) in enumerate(columns.items()):
        texts = {(row.cells[n].text, row.cells[n].unit) for row in rows}
        if len(rows) > 1 and len(texts) == 1 and key not in {*_NEVER_FOLDED, *empty}:
            agreements[key] = cells.agreed_text(key, column, rows[0].cells[n])
    return agreements


def _columns(results: Sequence[VariantResult]) -> dict[str, Column]:
    """Return the columns; the heads of throughput and energy contain their unit, which is the same for all rows."""
    example = cells.group_example_word([run for result in results for run in result.runs])
    columns = {
        RUN: Column("Run", "The run's number, or how many runs; the box shows or hides curves"),
        BASE: Column("Base", "Ratios are against this one: click, or press B", numeric=False),
        VARIANT: Column("Variant", "What differs between these runs", numeric=False, shrink="name"),
        SPEEDUP: Column(
            "Speed-up",
            f"Throughput as a ratio to the baseline's, with its {CI}",
            second=CI,
        ),
        ENERGY_RATIO: Column(
            "Energy ratio",
            f"Energy for one example as a ratio to the baseline's, with its {CI}; below 1 is less",
            second=CI,
        ),
        "throughput": Column(
            units.rate_unit(example).capitalize(),
            f"Throughput over the measured blocks, with its {CI}",
            second=CI,
        ),
        "energy": Column(f"mJ/{example}", f"Energy for one example, with its {CI}", second=CI),
        "host": Column("Host", "The host that it was made on; empty for this machine", numeric=False, most=192),
        "outcome": Column("Outcome", "How the run ended", numeric=False),
        "evidence": Column(
            "Evidence", "Whether what was requested is what ran, as far as that could be seen", numeric=False
        ),
    }
    folded = {metric.key: Column(metric.column_title, f"{metric.help}{_FOLDS[metric.fold]}") for metric in COMPARED}
    return {**columns, **folded}


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowBuilder:
    """Builds the rows of one table; `comparable` has the first runs of the ranked variants."""

    metrics: Mapping[int, RunMetrics]
    looks: Mapping[int, CurveLook]
    baseline: int
    base: VariantResult
    leader: VariantResult | None
    fastest: VariantResult | None
    comparable: frozenset[int]
    speed_unit: Unit
    energy_unit: Unit

    def variant(self, variant: ComparedVariant) -> VariantRows:
        result = variant.result
        runs = tuple(self._run_row(row, variant) for row in result.runs)
        outcome = _outcomes_cell(result.runs)
        speedup = ratio_cell(result.speedup, self.speed_unit)
        summary = self._row(
            "variant",
            variant,
            result.runs,
            Cell(text=count_runs(result.runs), key=float(result.runs[0].run)),
            (
                speedup if result.throughput is not None else Cell(text=outcome.text, tooltip=outcome.tooltip),
                ratio_cell(result.energy_ratio, self.energy_unit),
                estimate_cell(result.throughput),
                estimate_cell(result.energy),
                hosts_cell(result.runs),
                outcome,
                _verified_cell(result.runs),
                *_metric_cells(variant.metrics),
            ),
        )
        return VariantRows(spec=variant.spec, summary=summary, runs=runs)

    def _run_row(self, row: RunRow, variant: ComparedVariant) -> TableRow:
        """Return a run's row; its ratios are to the mean of the baseline's runs."""
        comparable = row.spec.workload == self.base.runs[0].spec.workload
        throughput, energy = row.summary.throughput, row.summary.energy_mj_per_example
        base_throughput = self.base.throughput.value if self.base.throughput and comparable else None
        base_energy = self.base.energy.value if self.base.energy and comparable else None
        outcome = cells.outcome(row.outcome)
        speedup = _single_ratio(throughput, base_throughput, self.speed_unit)
        return self._row(
            "run",
            variant,
            (row,),
            cells.run_number(row),
            (
                speedup if throughput is not None else Cell(text=outcome.text, tooltip=outcome.tooltip),
                _single_ratio(energy, base_energy, self.energy_unit),
                _figure_cell("throughput", throughput, row),
                _figure_cell("energy", energy, row),
                cells.host(row),
                outcome,
                cells.verified(row),
                *_metric_cells(self.metrics[row.run], row),
            ),
        )

    def _row(
        self, kind: RowKind, variant: ComparedVariant, runs: Sequence[RunRow], number: Cell, figures: tuple[Cell, ...]
    ) -> TableRow:
        """Return the row of all runs of a variant, or of one; the first two figures are its ratios."""
        result, look = variant.result, self.looks.get(runs[0].run, _NOT_DRAWN)
        is_all = len(runs) == len(result.runs)
        is_ranked = result.runs[0].run in self.comparable
        other_work = None if is_ranked else work_ratio(result.runs, self.base.runs)
        ratios = [
            replace(ratio, text="baseline", unit="", tone="quiet")
            if is_all and result.is_baseline and ratio.key is not None
            else ratio
            for ratio in figures[:2]
        ]
        name = cells.name_cell(variant.parts, cells.variant(runs[0].spec).tooltip)
        return TableRow(
            kind=kind,
            cells=(number, _NO_TEXT, name, *(_mark_work(ratio, other_work) for ratio in ratios), *figures[2:]),
            runs=tuple(row.run for row in runs),
            style=look.style,
            mark=look.mark,
            is_baseline=result.is_baseline if kind == "variant" else runs[0].run == self.baseline,
            leads=is_all and result is self.leader,
            is_fastest=kind == "variant" and result is self.fastest,
            other_work=other_work is not None,
        )


def _figure_cell(key: str, value: float | None, row: RunRow) -> Cell:
    return replace(cells.row_metric_cell(METRIC_BY_KEY[key], row), unit="", text=units.number(value, _DIGITS))


def _metric_cells(values: RunMetrics, row: RunRow | None = None) -> list[Cell]:
    """Return a cell for each metric with a column, of one run or several, without units that are in the head."""
    pairs = [(metric, cells.metric_cell(metric, values[metric.key], "example", row)) for metric in COMPARED]
    return [replace(cell, unit="") if metric.column_title == metric.unit else cell for metric, cell in pairs]


def _single_ratio(value: float | None, base: float | None, unit: Unit) -> Cell:
    return cells.ratio(value / base if value is not None and base else None, unit)


def _mark_work(ratio: Cell, other_work: float | None) -> Cell:
    """Return a ratio, greyed out if its variant does other work."""
    if other_work is None or ratio.key is None:
        return ratio
    why = f"Not directly comparable: it does {units.ratio(other_work)} the operations of the baseline for an example."
    return replace(ratio, tone="quiet", tooltip="\n".join(filter(None, (ratio.tooltip, why))))


def hosts_cell(runs: Sequence[RunRow]) -> Cell:
    """Return the host of a variant's runs, or the number of hosts; empty if all ran on this machine."""
    hosts = list(dict.fromkeys(row.host or THIS_MACHINE for row in runs))
    if len(hosts) > 1:
        return cells.text_cell(f"{len(hosts)} hosts", ", ".join(hosts))
    return cells.text_cell("" if hosts == [THIS_MACHINE] else hosts[0])


def _outcomes_cell(runs: Sequence[RunRow]) -> Cell:
    names = [row.outcome.name if row.outcome else "running" for row in runs]
    present = [name for name in _WORST_FIRST if name in names]
    counts = ", ".join(f"{names.count(name)} {cells.OUTCOMES[name].word}" for name in present)
    worst = cells.outcome(next(row.outcome for row, name in zip(runs, names, strict=True) if name == present[0]))
    why = dict.fromkeys(filter(None, (cells.outcome(row.outcome).tooltip for row in runs)))
    return replace(worst, text=counts if len(present) > 1 else worst.text, tooltip="\n".join(why))


def _verified_cell(runs: Sequence[RunRow]) -> Cell:
    """Return the result of the run that deviates most from what was requested, with a count if others differ."""
    states = [row.evidence_state for row in runs if row.evidence_state is not None]
    worst = worst_state(states)
    cell = cells.verified(next(row for row in runs if row.evidence_state == worst))
    same = states.count(worst) if worst else 0
    return cell if same == len(states) else replace(cell, text=f"{cell.text}, {same} of {len(states)}")


def estimate_cell(estimate: Estimate | None) -> Cell:
    """Return a value with both ends of its interval."""
    if estimate is None:
        return Cell(text=units.ABSENT)
    text, interval = units.number(estimate.value, _DIGITS), units.interval(estimate.interval, _DIGITS)
    return Cell(text=text, unit=interval, key=estimate.value, tooltip=_interval_text(estimate, interval))


def ratio_cell(estimate: Estimate | None, unit: Unit) -> Cell:
    """Return a ratio with both ends of its interval."""
    if estimate is None:
        return Cell(text=units.ABSENT)
    interval = format_interval(estimate.interval, estimate.value, unit)
    return replace(cells.ratio(estimate.value, unit), unit=interval, tooltip=_interval_text(estimate, interval))


def _interval_text(estimate: Estimate, interval: str) -> str:
    run_count = f"{estimate.n} {units.plural('run', estimate.n)}"
    return f"{CI} {interval}, {run_count}" if interval else f"{run_count}: no interval"
