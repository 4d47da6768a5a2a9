"""The content of a report of a comparison as values, shared by the HTML and Markdown renderers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.analysis.comparability import known_value
from app.paths import program_version
from app.values import units
from app.values.records import RunRow, StoredRun
from app.viewmodels.charts.model import BarChart
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.compare.arrangement import Arrangement, column_titles, text_table
from app.viewmodels.compare.comparison import ComparedRuns, Comparison, comparison_curves
from app.viewmodels.compare.pivot import Pivot, pivot_table
from app.viewmodels.compare.scaling import ScalingView, worst_pairs
from app.viewmodels.compare.table import BASE, RUN, VARIANT, CompareTable
from app.viewmodels.compare.verdict import effects_table
from app.viewmodels.compare.why import WhyView, largest_differences
from app.viewmodels.format import cells
from app.viewmodels.format.cells import TextTable
from app.viewmodels.format.environment import (
    comparable_keys,
    differing_environment,
    environment_label,
    format_environment_value,
    format_values_by_run,
)
from app.viewmodels.format.naming import run_command
from app.viewmodels.format.sentences import group_values
from app.viewmodels.history.evidence import stored_evidence_view
from app.viewmodels.plot.model import CurvePlot, stored_plot

_CURVES = ("throughput", "gpu power_mw", "cpu load_pct", "loss")
ALL_PAIRS = "All pairs that differ only in their GPUs; the charts below are of those that scale worst, one per variant."
_COLUMNS = 7
"""Columns that fit on paper beside a variant's name; more go into another table below."""

_ABREAST = 4
"""Variants whose names fit next to each other on paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    """The content of a report.

    Attributes:
        origin: Number of runs, time and version.
        effects: A row for each effect of a single setting, if several differ.
        scaling: Pairs of traced runs with a chart of their steps' time.
        pairs: A row for each pair, if only some have a chart.
        why: The variants whose difference from the baseline is explained; `why_left_out` others differ less.
        pivots: The effects of settings by two others; `sources` are the articles beside them.
    """

    comparison: Comparison
    origin: str
    figures: tuple[TextTable, ...]
    effects: TextTable
    scaling: tuple[ScalingView, ...]
    pairs: TextTable
    why: tuple[WhyView, ...]
    why_left_out: int
    curves: tuple[CurvePlot, ...]
    evidence: TextTable
    common: TextTable
    differing: TextTable
    reruns: tuple[tuple[str, str], ...]
    runs: TextTable
    pivots: tuple[TextTable, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def leading_charts(self) -> int:
        """Return how many charts are beside the verdict: the speed-ups' chart, for few variants."""
        charts = self.comparison.charts[:1]
        return sum(
            isinstance(chart, BarChart) and chart.key == "speed-up" and len(chart.bars) <= _FEW for chart in charts
        )


_FEW = 12
"""The most variants whose plot begins a report; a longer plot would separate the verdict from its warnings."""


def build_report(comparison: Comparison, made_utc_ns: int, pivots: Sequence[Pivot] = ()) -> ReportModel:
    compared_runs, rows = comparison.compared_runs, comparison.rows
    column = comparison.table.keys.index(VARIANT)
    names = {variant.summary.runs: variant.summary.cells[column].text for variant in comparison.table.variants}
    firsts = {numbers[0]: name for numbers, name in names.items()}
    runs_text = f"{len(rows)} {units.plural('run', len(rows))}"
    traced = [view for view in comparison.scaling if view.scaling.few.parts or view.scaling.many.parts]
    drawn = worst_pairs(traced)
    explained = largest_differences(comparison.why)
    return ReportModel(
        comparison=comparison,
        origin=f"{runs_text} · {units.utc_time(made_utc_ns)} · VariantScope {program_version()}",
        figures=_figures(comparison.table),
        effects=effects_table(comparison.verdict.effects),
        scaling=tuple(drawn),
        pairs=TextTable(
            head=("Variant", "From", "To", "Efficiency", "Speed-up", "Lost to"),
            rows=tuple(
                (view.variant, *view.sides, view.efficiency, view.speedup, view.scaling.cause)
                for view in (traced if len(drawn) < len(traced) else ())
            ),
            numeric=frozenset({3, 4}),
        ),
        why=tuple(explained),
        why_left_out=sum(view.difference is not None for view in comparison.why if view not in explained),
        curves=_curves(compared_runs, names),
        evidence=_evidence(compared_runs.runs, names),
        common=_common_environment(compared_runs.runs),
        differing=TextTable(
            head=("Fact", "Values"),
            rows=tuple(
                (environment_label(key), format_values_by_run(group_values(values.items())))
                for key, values in differing_environment(compared_runs.runs).items()
            ),
        ),
        reruns=tuple((firsts[run.row.run], run_command(run)) for run in compared_runs.runs if run.row.run in firsts),
        runs=_runs(rows),
        pivots=tuple(map(pivot_table, pivots)),
        sources=tuple(dict.fromkeys(source for pivot in pivots for source in pivot.sources)),
    )


VariantNames = Mapping[tuple[int, ...], str]
"""Each variant's name, by the numbers of its runs."""


def _figures(table: CompareTable) -> tuple[TextTable, ...]:
    """Return the window's table: few variants in columns, more in rows, in pieces that fit on paper.

    Common values are elsewhere.
    """
    rows = Arrangement().rows(table)
    name = table.keys.index(VARIANT)
    left_out = {BASE, RUN, VARIANT, *table.folded}
    columns = [n for n, key in enumerate(table.keys) if key not in left_out]
    if len(rows) <= _ABREAST:
        figures = (text_table(table, rows, [n]) for n in columns)
        return (
            TextTable(
                head=("", *(row.cells[name].text for row in rows)),
                rows=tuple((column.head[0], *map(_with_interval, column.rows)) for column in figures),
                numeric=frozenset(range(1, len(rows) + 1)),
            ),
        )
    pieces: list[list[int]] = [[]]
    for n in columns:
        if sum(len(column_titles(table.columns[column])) for column in (*pieces[-1], n)) > _COLUMNS:
            pieces.append([])
        pieces[-1].append(n)
    return tuple(
        replace(text_table(table, rows, [name, *piece]), colours=tuple(row.style for row in rows)) for piece in pieces
    )


def _with_interval(cells: Sequence[str]) -> str:
    return f"{cells[0]} ({cells[1]})" if cells[1:] not in ((), (units.ABSENT,)) else cells[0]


def _curves(compared_runs: ComparedRuns, names: VariantNames) -> tuple[CurvePlot, ...]:
    curves = comparison_curves(compared_runs, "time")
    called = {str(number): f"Run {number} · {name}" for numbers, name in names.items() for number in numbers}
    plots = [
        stored_plot(
            panel, curves.measured, called, [dash_pattern(curve.colour) for curve in panel.curves], curves.bands
        )
        for panel in curves.panels
        if panel.key in _CURVES
    ]
    return tuple(plot for plot in plots if plot is not None)


def _evidence(runs: Sequence[StoredRun], names: VariantNames) -> TextTable:
    """Return a row per variant, from its first run with evidence."""
    rows = []
    for numbers, name in names.items():
        variant_runs = [run for run in runs if run.row.run in numbers]
        first = next((run for run in variant_runs if run.evidence is not None), variant_runs[0])
        view = stored_evidence_view(first)
        requested = ", ".join(f"{aspect.name}: {aspect.requested}" for aspect in view.aspects)
        actual = ", ".join(f"{aspect.name}: {aspect.actual}" for aspect in view.aspects)
        match = cells.plain_text(cells.verified(first.row)) or units.ABSENT
        summary = view.badge.detail if first.evidence else f"{view.badge.title}. {view.badge.detail}"
        rows.append((name, str(first.row.run), match, requested, actual, summary))
    head = ("Variant", "Run", "Evidence", "Requested", "Actual", "Summary")
    return TextTable(head=head, rows=tuple(rows), numeric=frozenset({1}))


def _common_environment(runs: Sequence[StoredRun]) -> TextTable:
    """Return what the environments of all runs share, as far as known."""
    differing = differing_environment(runs)
    values = {
        key: next(value for run in runs if (value := known_value(run.environment, key)) is not None)
        for key in comparable_keys(runs)
        if key not in differing
    }
    rows = tuple(
        (environment_label(key), format_environment_value(key, value)) for key, value in values.items() if value
    )
    return TextTable(head=("Fact", "Value"), rows=rows)


def _runs(rows: Sequence[RunRow]) -> TextTable:
    """Return a row per run, without columns that are empty in all."""
    head = ("Run", "Identity", "Started", "Host", "Outcome", "Reason", "Tags", "Note")
    table_rows = [
        (
            str(row.run),
            row.uid,
            units.utc_time(row.started_utc_ns),
            row.host or "",
            cells.plain_text(cells.outcome(row.outcome)),
            (row.outcome.reason if row.outcome else None) or "",
            ", ".join(row.tags),
            row.note,
        )
        for row in rows
    ]
    columns = [n for n in range(len(head)) if any(row[n] for row in table_rows)]
    return TextTable(
        head=tuple(head[n] for n in columns),
        rows=tuple(tuple(row[n] for n in columns) for row in table_rows),
        numeric=frozenset({0}),
    )
