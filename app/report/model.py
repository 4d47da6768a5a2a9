"""The content of a report of a comparison as values, shared by the HTML and Markdown renderers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app import units
from app.analysis.comparability import known_value
from app.paths import program_version
from app.records import RunRow, StoredRun
from app.viewmodels.charts.curves import CurvePlot, stored_plot
from app.viewmodels.charts.model import BarChart
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.compare.arrangement import Arrangement, column_titles, text_table
from app.viewmodels.compare.comparison import ChartGallery, ComparedRuns, Comparison, comparison_curves
from app.viewmodels.compare.effects import effects_table
from app.viewmodels.compare.scaling import ScalingView, worst_pairs
from app.viewmodels.compare.state_warnings import ComparisonWarning
from app.viewmodels.compare.table import (
    BASE,
    RUN,
    VARIANT,
    CompareTable,
)
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
from app.viewmodels.history.evidence import stored_evidence_view

_CURVES = ("throughput", "gpu power_mw", "cpu load_pct", "loss")
ALL_PAIRS = "All pairs that differ only in their GPUs; the charts below are of those that scale worst, one per variant."
_COLUMNS = 7
"""Columns that fit on paper next to a variant's name; more go into another table below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArticleSection:
    """Tables of an article; `reasons` say why figures differ, `claims` what it says, `source` names the article."""

    title: str
    tables: tuple[TextTable, ...]
    reasons: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    source: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines below the tables."""
        return (*self.reasons, *self.claims, *([self.source] if self.source else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    """The content of a report.

    Attributes:
        made: Number of runs, time and version.
        effects: A row for each effect of a single setting, if several differ.
        scaling: Pairs of traced runs that have a chart of where their steps go.
        pairs: A row for each pair, if only some have a chart.
        why: The variants whose difference from the baseline is explained; `why_left_out` others differ less.
        article: Tables of the article that the runs replicate, if any.
    """

    title: str
    made: str
    shared: str
    verdict: str
    method: str
    warnings: tuple[ComparisonWarning, ...]
    notes: tuple[str, ...]
    figures: tuple[TextTable, ...]
    effects: TextTable
    gallery: ChartGallery
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
    article: tuple[ArticleSection, ...] = ()

    @property
    def leading_charts(self) -> int:
        """Return how many charts stand beside the verdict: that of the speed-ups, of few variants."""
        charts = self.gallery.charts[:1]
        return sum(
            isinstance(chart, BarChart) and chart.key == "speed-up" and len(chart.bars) <= _FEW for chart in charts
        )


_FEW = 12
"""Variants of which the plot leads a report; that of more would come between the verdict and its warnings."""


def build_report(comparison: Comparison, made_utc_ns: int, article: tuple[ArticleSection, ...] = ()) -> ReportModel:
    """Return the content of a report."""
    found, rows = comparison.found, comparison.rows
    names = _variant_names(comparison.table)
    firsts = {numbers[0]: name for numbers, name in names.items()}
    count, variants = len(rows), len(names)
    traced = [view for view in comparison.scaling if view.found.few.parts or view.found.many.parts]
    drawn = worst_pairs(traced)
    explained = largest_differences(comparison.why)
    return ReportModel(
        title=f"{variants} {units.plural('variant', variants)} compared",
        made=f"{count} {units.plural('run', count)} · {units.utc_time(made_utc_ns)} · VariantScope {program_version()}",
        shared=comparison.alike,
        verdict=" ".join(comparison.verdict.sentences),
        method=comparison.method,
        warnings=comparison.warnings,
        notes=comparison.notes,
        figures=_figures(comparison.table),
        effects=effects_table(comparison.verdict.effects),
        gallery=comparison.gallery,
        scaling=tuple(drawn),
        pairs=_scaling_pairs(traced if len(drawn) < len(traced) else ()),
        why=tuple(explained),
        why_left_out=sum(view.found is not None for view in comparison.why if view not in explained),
        curves=_curves(found, names),
        evidence=_evidence(found.runs, names),
        common=_common_environment(found.runs),
        differing=_differing_environment(found.runs),
        reruns=tuple((firsts[run.row.run], run_command(run)) for run in found.runs if run.row.run in firsts),
        runs=_runs(rows),
        article=article,
    )


VariantNames = Mapping[tuple[int, ...], str]
"""What each variant is called, by the numbers of its runs."""


def _variant_names(table: CompareTable) -> VariantNames:
    column = table.keys.index(VARIANT)
    return {variant.summary.runs: variant.summary.cells[column].text for variant in table.variants}


def _figures(table: CompareTable) -> tuple[TextTable, ...]:
    """Return the window's table with a row per variant, in pieces that fit on paper; what all say is elsewhere."""
    rows = Arrangement().rows(table)
    name = table.keys.index(VARIANT)
    left_out = {BASE, RUN, VARIANT, *table.folded}
    shown = [n for n, key in enumerate(table.keys) if key not in left_out]
    pieces: list[list[int]] = [[]]
    for n in shown:
        if sum(len(column_titles(table.columns[each])) for each in (*pieces[-1], n)) > _COLUMNS:
            pieces.append([])
        pieces[-1].append(n)
    return tuple(
        replace(text_table(table, rows, [name, *piece]), colours=tuple(row.style for row in rows)) for piece in pieces
    )


def _scaling_pairs(views: Sequence[ScalingView]) -> TextTable:
    """Return a row for every pair of runs that differ only in their GPUs."""
    return TextTable(
        head=("Variant", "From", "To", "Efficiency", "Speed-up", "Lost to"),
        rows=tuple((view.variant, *view.sides, view.efficiency, view.speedup, view.found.cause) for view in views),
        numeric=frozenset({3, 4}),
    )


def _curves(found: ComparedRuns, names: VariantNames) -> tuple[CurvePlot, ...]:
    curves = comparison_curves(found, "time")
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
    """Return a row per variant, of its first run that has evidence."""
    rows = []
    for numbers, name in names.items():
        variant_runs = [run for run in runs if run.row.run in numbers]
        shown = next((run for run in variant_runs if run.evidence is not None), variant_runs[0])
        view = stored_evidence_view(shown)
        requested = ", ".join(f"{aspect.name}: {aspect.requested}" for aspect in view.aspects)
        actual = ", ".join(f"{aspect.name}: {aspect.actual}" for aspect in view.aspects)
        match = cells.plain_text(cells.verified(shown.row)) or units.ABSENT
        summary = view.badge.detail if shown.evidence else f"{view.badge.title}. {view.badge.detail}"
        rows.append((name, str(shown.row.run), match, requested, actual, summary))
    head = ("Variant", "Run", "Evidence", "Requested", "Actual", "Summary")
    return TextTable(head=head, rows=tuple(rows), numeric=frozenset({1}))


def _common_environment(runs: Sequence[StoredRun]) -> TextTable:
    """Return what the environments of all runs share, as far as it is known."""
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


def _differing_environment(runs: Sequence[StoredRun]) -> TextTable:
    rows = tuple(
        (environment_label(key), format_values_by_run(values)) for key, values in differing_environment(runs).items()
    )
    return TextTable(head=("Fact", "Values"), rows=rows)


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
    shown = [n for n in range(len(head)) if any(row[n] for row in table_rows)]
    return TextTable(
        head=tuple(head[n] for n in shown),
        rows=tuple(tuple(row[n] for n in shown) for row in table_rows),
        numeric=frozenset({0}),
    )
