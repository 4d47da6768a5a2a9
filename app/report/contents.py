"""What a report of a comparison holds, as values: the same for HTML and Markdown, the numbers those of the window."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.records import RunRow, StoredRun
from app.runs.environment import program_version
from app.viewmodels import cells, units
from app.viewmodels.compare import Compared, compare, curves_of
from app.viewmodels.compare_table import BASE, RUN, VARIANT, Arrangement, CompareTable
from app.viewmodels.doubts import Doubt
from app.viewmodels.environment import comparable_facts, differing_facts, fact_name, fact_value, told_by_run
from app.viewmodels.evidence import of_stored
from app.viewmodels.looks import dash_of
from app.viewmodels.pictures.curves import CurvePlot, stored_plot
from app.viewmodels.pictures.gallery import Gallery
from app.viewmodels.scaling import ScalingView, worst_of_each
from app.viewmodels.usual import usual_columns, usual_words
from app.viewmodels.variants import run_command

_CURVES = ("throughput", "gpu power_mw", "cpu load_pct", "loss")
ALL_PAIRS = "All pairs that differ in their GPUs alone; drawn below are some that scale worst, one of a variant."
_COLUMNS = 6
"""Figures beside a variant's name that fit on paper; more go into another table below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of words under their heads; `numeric` columns are right-aligned, `colours` are one a row or none."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    colours: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Tables of an article, each with its caption; `claims` are what it says of them, `source` which article it is."""

    title: str
    tables: tuple[tuple[str, Table], ...]
    claims: tuple[str, ...] = ()
    source: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands below the tables."""
        return (*self.claims, *([self.source] if self.source else []))


@dataclass(frozen=True, slots=True)
class Repeat:
    """How one variant is run again."""

    name: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A report; `made` says when, by which version, of how many runs; `scaling` where steps of traced runs go.

    Of many pairs only some have a picture there, and `pairs` has a row for each. `article` are the tables of the
    article that was repeated, if one was.
    """

    title: str
    made: str
    shared: str
    verdict: str
    method: str
    doubts: tuple[Doubt, ...]
    notes: tuple[str, ...]
    figures: tuple[Table, ...]
    gallery: Gallery
    scaling: tuple[ScalingView, ...]
    pairs: Table
    curves: tuple[CurvePlot, ...]
    evidence: Table
    common: Table
    differing: Table
    repeats: tuple[Repeat, ...]
    runs: Table
    article: tuple[Section, ...] = ()


def report_contents(
    found: Compared,
    baseline: int,
    made_utc_ns: int,
    older: Sequence[StoredRun] = (),
    article: tuple[Section, ...] = (),
) -> Contents:
    """All of a report on these runs against the variant of run `baseline`; `older` are earlier runs of that one."""
    comparison = compare(found, baseline, older)
    names = _names(comparison.table)
    firsts = [run for run in found.runs if run.row.run in {variant[0] for variant in names}]
    rows = [run.row for run in found.runs]
    count, variants = len(rows), len(names)
    traced = [view for view in comparison.scaling if any(bar.parts for bar in view.bars)]
    drawn = worst_of_each(traced)
    return Contents(
        title=f"{variants} {units.plural('variant', variants)} compared",
        made=f"{count} {units.plural('run', count)} · {units.utc_time(made_utc_ns)} · VariantScope {program_version()}",
        shared=comparison.shared,
        verdict=" ".join(comparison.sentences),
        method=comparison.method,
        doubts=comparison.doubts,
        notes=tuple(filter(None, (usual_words(rows), *comparison.notes))),
        figures=_figures(comparison.table, usual_columns(rows)),
        gallery=comparison.gallery,
        scaling=tuple(drawn),
        pairs=_pairs(traced if len(drawn) < len(traced) else ()),
        curves=_curves(found, names),
        evidence=_evidence(found.runs, names),
        common=_common(found.runs),
        differing=_differing(found.runs),
        repeats=tuple(Repeat(names[_variant_of(run, names)], run_command(run)) for run in firsts),
        runs=_runs(rows),
        article=article,
    )


Names = Mapping[tuple[int, ...], str]
"""What each variant is called, by the numbers of its runs."""


def _names(table: CompareTable) -> Names:
    place = table.keys.index(VARIANT)
    return {variant.together.runs: variant.together.cells[place].text for variant in table.variants}


def _variant_of(run: StoredRun, names: Names) -> tuple[int, ...]:
    return next(numbers for numbers in names if run.row.run in numbers)


def _figures(table: CompareTable, usual: Collection[str]) -> tuple[Table, ...]:
    """The window's table, a row a variant, in pieces that fit on paper, without columns that say nothing new."""
    rows = Arrangement().rows(table)
    name = table.keys.index(VARIANT)
    left_out = {BASE, RUN, VARIANT, *table.empty, *usual}
    shown = [n for n, key in enumerate(table.keys) if key not in left_out]
    pieces = [shown[first : first + _COLUMNS] for first in range(0, len(shown), _COLUMNS)]
    return tuple(
        Table(
            head=("Variant", *(table.columns[n].title for n in piece)),
            rows=tuple((row.cells[name].text, *(cells.in_words(row.cells[n]) for n in piece)) for row in rows),
            numeric=frozenset(place for place, n in enumerate(piece, 1) if table.columns[n].numeric),
            colours=tuple(row.look for row in rows),
        )
        for piece in pieces
    )


def _pairs(views: Sequence[ScalingView]) -> Table:
    """A row for every pair of runs that differ in their GPUs alone."""
    return Table(
        head=("Variant", "From", "To", "Efficiency", "Speed-up", "Lost to"),
        rows=tuple((view.variant, *view.sides, view.efficiency, view.speedup, view.lost_to) for view in views),
        numeric=frozenset({3, 4}),
    )


def _curves(found: Compared, names: Names) -> tuple[CurvePlot, ...]:
    curves = curves_of(found, "time")
    called = {str(number): f"Run {number} · {name}" for numbers, name in names.items() for number in numbers}
    plots = [
        stored_plot(panel, curves.measured, called, [dash_of(curve.colour) for curve in panel.curves], curves.bands)
        for panel in curves.panels
        if panel.key in _CURVES
    ]
    return tuple(plot for plot in plots if plot is not None)


def _evidence(runs: Sequence[StoredRun], names: Names) -> Table:
    """One row a variant, of its first run that kept evidence."""
    rows = []
    for numbers, name in names.items():
        own = [run for run in runs if run.row.run in numbers]
        shown = next((run for run in own if run.evidence is not None), own[0])
        view = of_stored(shown)
        asked = ", ".join(f"{aspect.name}: {aspect.asked}" for aspect in view.aspects)
        ran = ", ".join(f"{aspect.name}: {aspect.ran}" for aspect in view.aspects)
        match = cells.in_words(cells.as_asked(shown.row)) or units.ABSENT
        words = view.badge.detail if shown.evidence else f"{view.badge.title}. {view.badge.detail}"
        rows.append((name, str(shown.row.run), match, asked, ran, words))
    head = ("Variant", "Run", "As asked", "Asked", "Ran", "In words")
    return Table(head=head, rows=tuple(rows), numeric=frozenset({1}))


def _common(runs: Sequence[StoredRun]) -> Table:
    """Facts that all runs share, of those that have them."""
    differing = differing_facts(runs)
    facts = {
        key: next(run.environment[key] for run in runs if key in run.environment)
        for key in comparable_facts(runs)
        if key not in differing
    }
    rows = tuple((fact_name(key), fact_value(key, value)) for key, value in facts.items() if value)
    return Table(head=("Fact", "Value"), rows=rows)


def _differing(runs: Sequence[StoredRun]) -> Table:
    rows = tuple((fact_name(key), told_by_run(values)) for key, values in differing_facts(runs).items())
    return Table(head=("Fact", "Values"), rows=rows)


def _runs(rows: Sequence[RunRow]) -> Table:
    """Where each row of the report comes from; notes and tags where there are any."""
    head = ("Run", "Identity", "Started", "Outcome", "Reason", "Tags", "Note")
    told = [
        (
            str(row.run),
            row.uid,
            units.utc_time(row.started_utc_ns),
            cells.in_words(cells.outcome(row.outcome)),
            (row.outcome.reason if row.outcome else None) or "",
            ", ".join(row.tags),
            row.note,
        )
        for row in rows
    ]
    kept = [n for n in range(len(head)) if any(row[n] for row in told)]
    return Table(
        head=tuple(head[n] for n in kept),
        rows=tuple(tuple(row[n] for n in kept) for row in told),
        numeric=frozenset({0}),
    )
