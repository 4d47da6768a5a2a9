"""A comparison of stored runs as values: header, verdict, warnings, table, charts and notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from app.analysis.equality import Equality, State, find_equality, known_checks, largest_of
from app.analysis.intervals import MIN_REPEATS
from app.analysis.training import ACCURACY_MARGIN_POINTS, accuracies_pct, compare_accuracy, group_by_training
from app.analysis.verdict import (
    SEED,
    VariantResult,
    default_baseline,
    family_level,
    group_by_variant,
    join_repeats,
    leading_result,
    rank_results,
    same_workload,
    throughputs,
    without,
)
from app.metrics import METRICS, RunMetrics, run_metrics
from app.values import units
from app.values.fields import plotted_fields
from app.values.records import RunRow, StoredRun, worst_state
from app.viewmodels.charts.model import Chart, PointChart
from app.viewmodels.charts.palette import (
    MAX_COMPARED,
    MAX_DRAWN,
    colour_automatically,
    curve_styles,
    interleave_variants,
)
from app.viewmodels.charts.roofline import roofline_chart
from app.viewmodels.charts.speed_energy import effects_chart, frontier_chart, ratio_chart
from app.viewmodels.charts.sweeps import batch_chart, chart_variants, gpu_count_chart
from app.viewmodels.compare.curves import Alignment, CompareCurves, compare_curves, curve_groups
from app.viewmodels.compare.scaling import ScalingView, scaling_views
from app.viewmodels.compare.statements import EVIDENCE, Severity, Statement
from app.viewmodels.compare.table import ComparedVariant, CompareTable, CurveLook, compare_table, compared_variants
from app.viewmodels.compare.verdict import Verdict, compute_verdict, describe_method
from app.viewmodels.compare.warnings import comparison_warnings, describe_disturbance
from app.viewmodels.compare.why import WhyView, why_views
from app.viewmodels.format.cells import VERIFICATIONS
from app.viewmodels.format.naming import Name, names_in_parts, shared_settings, short_gpu_name
from app.viewmodels.format.sentences import group_by_ending, group_values, join_with_and, name_runs
from workloads.protocol import Value


def draw_charts(
    runs: Sequence[StoredRun], verdict: Verdict, styles: Mapping[int, int] | None = None
) -> tuple[Chart, ...]:
    """Return every non-empty chart of these runs, in order."""
    variants = chart_variants(runs, verdict, styles)
    charts = (
        ratio_chart(variants, "speed-up"),
        effects_chart(verdict.effects),
        ratio_chart(variants, "energy-ratio"),
        batch_chart(variants),
        _coloured(frontier_chart(variants), runs),
        gpu_count_chart(runs),
        _coloured(roofline_chart(variants), runs),
    )
    return tuple(filter(None, charts))


def _coloured(chart: Chart | None, runs: Sequence[StoredRun]) -> Chart | None:
    """Return a chart of points coloured by a parameter if its variants are too many for a hue each."""
    if not isinstance(chart, PointChart):
        return chart
    specs = {run.row.run: run.row.spec for run in runs}
    return colour_automatically(chart, specs)


COMPARED_FIELDS = tuple(
    dict.fromkeys(
        (
            *(field.name for field in (*plotted_fields("compare", "gpu"), *plotted_fields("compare", "host"))),
            *(name for metric in METRICS for name in metric.reads),
            *("power_limit_mw", "load_pct", "worker_load_pct", "sm_clock_mhz", "temperature_c"),
            *("dram_active_pct", "nvlink_tx_bytes_per_s", "pcie_tx_bytes_per_s", "energy_mj"),
        )
    )
)
"""The telemetry fields that a comparison reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Runs read for a comparison, with everything that does not depend on the baseline.

    `drawn` runs have drawn curves; `too_many` others have curves too. `left_out` runs were too many to read. `asked` is
    the setting that their experiment asks about, "" for none. `repeated` has the values of each parameter in which
    repeats of one variant differ: seeds, measured lengths. `disturbances` says what disturbed each of the user's
    finished runs, "" for nothing.
    """

    runs: tuple[StoredRun, ...] = ()
    metrics: Mapping[int, RunMetrics] = field(default_factory=dict)
    styles: Mapping[int, int] = field(default_factory=dict)
    drawn: tuple[int, ...] = ()
    too_many: int = 0
    left_out: int = 0
    asked: str = ""
    repeated: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    disturbances: Mapping[int, str] = field(default_factory=dict)

    @property
    def extent(self) -> tuple[Statement, ...]:
        """Return how many runs have drawn curves; nothing if all have."""
        facts = {"drawn": len(self.drawn), "count": len(self.drawn) + self.too_many}
        return (Statement("curves", facts),) if self.too_many else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEquality:
    """The result of checking a variant against the baseline; `name` is the variant's name in a sentence."""

    name: Name
    runs: tuple[int, ...]
    equality: Equality


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of runs with a baseline, as window, report, terminal and JSON show it.

    `shared` are the common settings, `notes` explain the table, `styles` are those of the drawn runs, by number.
    """

    compared_runs: ComparedRuns = field(default_factory=ComparedRuns)
    baseline: int = 0
    margin_pct: float | None = None
    verdict: Verdict = field(default_factory=Verdict)
    method: str = ""
    variants: tuple[ComparedVariant, ...] = ()
    warnings: tuple[Statement, ...] = ()
    shared: str = ""
    notes: tuple[Statement, ...] = ()
    table: CompareTable = field(default_factory=CompareTable)
    styles: Mapping[int, int] = field(default_factory=dict)
    charts: tuple[Chart, ...] = ()
    scaling: tuple[ScalingView, ...] = ()
    why: tuple[WhyView, ...] = ()
    equality: tuple[VariantEquality, ...] = ()

    @property
    def provenance(self) -> str:
        """Return what was measured and where: `lstm · TF32 · 1 GPU · H200 · 3–6 runs each · ✔ verified`."""
        counts = [len(throughputs(variant.result.runs)) for variant in self.variants]
        how_often = units.range_of(counts or [0], str)
        cards = {short_gpu_name(name) for row in self.rows for name in row.gpu_names}
        state = worst_state(row.evidence_state for row in self.rows if row.evidence_state)
        badge = VERIFICATIONS[state] if state else None
        parts = (
            self.shared,
            self.origin or join_with_and(sorted(cards) or ["CPU"]),
            f"{how_often} {'run' if how_often == '1' else 'runs'}{' each' if len(counts) > 1 else ''}",
            f"{badge.symbol} {badge.word}" if badge else "",
        )
        return " · ".join(filter(None, parts))

    @property
    def leading_why(self) -> WhyView | None:
        """Return why the fastest variant differs from the baseline; if the baseline is the fastest, the next one."""
        ranked = rank_results(self.verdict.results) if self.why else []
        others = [result for result in (leading_result(ranked), *ranked) if result and not result.is_baseline]
        runs = tuple(row.run for row in others[0].runs) if others else ()
        return next((view for view in self.why if view.runs == runs), None)

    @property
    def origin(self) -> str:
        """Return the source of figures from other machines: `measured on H200, not on this machine`."""
        away = [row for row in self.rows if row.host or row.is_reference]
        if not away:
            return ""
        cards = sorted({short_gpu_name(name) for row in away for name in row.gpu_names})
        runs = "measured" if len(away) == len(self.rows) else f"{len(away)} {units.plural('run', len(away))}"
        return f"{runs} on {join_with_and(cards or ['CPUs'])}, not on this machine"

    @property
    def to_interleave(self) -> tuple[int, ...]:
        """Return a run of each variant that should be measured interleaved, if any."""
        return next(filter(None, (warning.facts.get("interleave") for warning in self.warnings)), ())

    @property
    def alike(self) -> str:
        """Return what all runs have in common: settings, and facts without a separate column."""
        return " · ".join(filter(None, (self.shared, *self.table.agreed.values())))

    @property
    def rows(self) -> tuple[RunRow, ...]:
        return tuple(run.row for run in self.compared_runs.runs)


def prepare_comparison(runs: Sequence[StoredRun], left_out: int = 0, asked: str = "") -> ComparedRuns:
    """Compute what does not depend on the baseline, in the order of the runs; too slow for the GUI thread."""
    joined, differing = join_repeats([run.row for run in runs])
    variants = [run.row.spec.variant for run in runs]
    repeated = {
        name: tuple(sorted({variant[name] for variant in variants if name in variant}, key=float)) for name in differing
    }
    runs = [run if run.row is row else replace(run, row=row) for run, row in zip(runs, joined, strict=True)]
    groups = group_by_variant([run.row for run in runs])
    drawable = {run.row.run for run in runs if len(run.blocks.steps) or any(len(one.t_ns) for one in run.samples)}
    if len(drawable) > MAX_DRAWN:
        baseline = default_baseline([row for group in groups for row in group])
        base = next(group for group in groups if any(row.run == baseline for row in group))
        groups = sorted(
            groups, key=lambda group: (not same_workload(group, base), -median(throughputs(group) or (0.0,)))
        )
    drawn = [row.run for row in interleave_variants(groups) if row.run in drawable][:MAX_DRAWN]
    return ComparedRuns(
        runs=tuple(runs),
        metrics={run.row.run: run_metrics(run) for run in runs},
        styles=curve_styles(groups),
        drawn=tuple(run.row.run for run in runs if run.row.run in drawn),
        too_many=len(drawable) - len(drawn),
        left_out=left_out,
        asked=asked,
        disturbances={
            run.row.run: describe_disturbance(run)
            for run in runs
            if run.row.outcome is not None and not run.row.is_reference
        },
        repeated=repeated,
    )


def compare(
    compared_runs: ComparedRuns, baseline: int = 0, older: Sequence[StoredRun] = (), margin_pct: float | None = None
) -> Comparison:
    """Assemble a comparison, with the default baseline if `baseline` is 0; slow enough to belong off the GUI thread.

    `older` are earlier runs of the baseline's variant, which show whether it has drifted.
    """
    rows = [run.row for run in compared_runs.runs]
    baseline = baseline or default_baseline(rows)
    verdict = compute_verdict(rows, baseline, margin_pct, compared_runs.asked)
    variants = compared_variants(verdict, compared_runs.metrics)
    drawn_styles = {run: compared_runs.styles[run] for run in compared_runs.drawn}
    curves = curve_groups(rows, compared_runs.drawn, compared_runs.styles)
    looks = {run: CurveLook(compared_runs.styles[run], group.mark) for group in curves for run in group.runs}
    equality = _compared_equality(verdict.results, compared_runs.runs)
    drawn = [run for run in compared_runs.runs if run.row.run in compared_runs.drawn]
    facts = {"count": compared_runs.left_out, "most": MAX_COMPARED}
    warnings = [
        *([Statement("left_out", facts, severity="warning")] if compared_runs.left_out else []),
        *_uncounted(rows),
        *_equality_warnings(equality),
        *comparison_warnings(compared_runs.runs, older, baseline),
    ]
    return Comparison(
        compared_runs=compared_runs,
        baseline=baseline,
        margin_pct=margin_pct,
        verdict=verdict,
        method=describe_method(verdict.results),
        variants=variants,
        warnings=tuple(sorted(warnings, key=lambda warning: warning.severity == "note")),
        shared=shared_settings([row.spec for row in rows]),
        notes=(
            *_baseline_note(rows, baseline),
            *(
                Statement("repeats", {"parameter": name, "settings": values})
                for name, values in compared_runs.repeated.items()
            ),
            *compared_runs.extent,
            *([Statement("zero")] if any(run.measure_start_ns is None for run in drawn) else []),
            *_accuracy_notes(compared_runs, baseline),
        ),
        table=compare_table(variants, compared_runs.metrics, looks, baseline),
        styles=drawn_styles,
        charts=draw_charts(compared_runs.runs, verdict, compared_runs.styles),
        scaling=tuple(scaling_views(compared_runs.runs)),
        why=why_views(compared_runs.runs, verdict),
        equality=equality,
    )


_STATE_TEXTS: dict[State, str] = {"same": "the same", "differs": "not the same", "not comparable": "not compared"}


def _compared_equality(results: Sequence[VariantResult], runs: Sequence[StoredRun]) -> tuple[VariantEquality, ...]:
    checks = known_checks(runs)
    baseline = next((result for result in results if result.is_baseline), None)
    if not checks or baseline is None:
        return ()
    spec, names = baseline.runs[0].spec, names_in_parts([result.runs[0].spec for result in results], in_sentence=True)
    return tuple(
        VariantEquality(name=name, runs=tuple(row.run for row in result.runs), equality=equality)
        for name, result in zip(names, results, strict=True)
        if result is not baseline and (equality := find_equality(result.runs[0].spec, spec, checks)) is not None
    )


def _equality_warnings(checked: Sequence[VariantEquality]) -> list[Statement]:
    """Return a warning for each variant that computes something different, and notes on the others."""
    differing = [check for check in checked if check.equality.state == "differs"]
    same = [check for check in checked if check.equality.state == "same"]
    unknown = [check for check in checked if check.equality.state == "not comparable"]
    kinds: list[tuple[str, list[VariantEquality], dict[str, Equality | str]]]
    kinds = [("equality", [check], {"excess": check.equality}) for check in differing]
    if same:
        kinds.append(("equality_same", same, {"differences": largest_of([check.equality for check in same])}))
    for reason in dict.fromkeys(check.equality.reason or "" for check in unknown):
        alike = [check for check in unknown if (check.equality.reason or "") == reason]
        kinds.append(("equality_unknown", alike, {"reason": reason}))
    return [
        Statement(
            key,
            {"variants": tuple(check.name for check in alike), **facts},
            {run: _STATE_TEXTS[check.equality.state] for check in alike for run in check.runs},
            "warning" if key == "equality" else "note",
        )
        for key, alike, facts in kinds
    ]


def comparison_curves(compared_runs: ComparedRuns, align: Alignment) -> CompareCurves:
    groups = curve_groups([run.row for run in compared_runs.runs], compared_runs.drawn, compared_runs.styles)
    runs = [run for run in compared_runs.runs if run.row.run in compared_runs.drawn]
    return compare_curves(runs, groups, compared_runs.styles, align)


def _baseline_note(rows: Sequence[RunRow], baseline: int) -> list[Statement]:
    """Return the default baseline, if it is not the first variant that measured and none was chosen."""
    first = next((row.run for row in rows if throughputs([row])), baseline)
    groups = group_by_variant(rows)
    base = next(group for group in groups if any(row.run == baseline for row in group))
    if any(row.run == first for row in base) or baseline != default_baseline(rows):
        return []
    name = names_in_parts([group[0].spec for group in groups])[groups.index(base)]
    return [Statement("baseline", {"variant": name})]


def _uncounted(rows: Sequence[RunRow]) -> list[Statement]:
    """Return which runs do not count, by outcome; this is a warning if a variant has no run that counts."""
    without_result = {row.run for group in group_by_variant(rows) if not throughputs(group) for row in group}
    statements = []
    for (word, reason), alike in group_by_ending([row for row in rows if not row.completed]).items():
        runs = tuple(row.run for row in alike)
        has_failed = alike[0].outcome is not None and alike[0].outcome.name != "stopped"
        severity: Severity = "warning" if has_failed and not without_result.isdisjoint(runs) else "note"
        facts = {"where": name_runs(runs, rows), "outcome": word, "reason": reason}
        statements.append(Statement("uncounted", facts, runs, severity))
    return statements


def _accuracy_notes(compared_runs: ComparedRuns, baseline: int) -> list[Statement]:
    groups = group_by_training(compared_runs.runs)
    base = next((group for group in groups if any(run.row.run == baseline for run in group)), ())
    others = [group for group in groups if group is not base and len(group) >= MIN_REPEATS]
    if len(base) < MIN_REPEATS:
        return []
    names = names_in_parts([without(group[0].row.spec, SEED) for group in (base, *others)])

    def level(group: Sequence[StoredRun]) -> float:
        return family_level([run.row for run in group], [run.row for run in base], len(others))

    reference, notes = accuracies_pct(base), []
    for name, group in zip(names[1:], others, strict=True):
        accuracies = accuracies_pct(group)
        if compared := compare_accuracy(accuracies, reference, level=level(group)):
            sides = {"variant": name, "base": names[0]}
            figures = {"accuracies_pct": accuracies, "base_accuracies_pct": reference, "points": compared.points}
            test = {"decision": compared.decision, "margin_points": ACCURACY_MARGIN_POINTS}
            notes.append(Statement("accuracy", {**sides, **figures, **test}))
    return notes


_SIGNS: dict[Severity, str] = {"warning": "▲", "note": "·"}
_MOST_VALUES = 10
"""The most values of a warning to list with their runs."""


class HeaderLine(NamedTuple):
    """A warning or note, with the values of its runs by number."""

    text: str
    severity: Severity
    detail: str = ""


def comparison_lines(comparison: Comparison) -> tuple[HeaderLine, ...]:
    """Return warnings, the worst first, then notes."""
    warnings = [
        HeaderLine(
            f"{_SIGNS[warning.severity]}  {warning.sentence}",
            warning.severity,
            _values_by_run(warning.runs) if isinstance(warning.runs, Mapping) else "",
        )
        for warning in comparison.warnings
    ]
    return (*warnings, *(HeaderLine(note.sentence, "note") for note in comparison.notes))


def clipboard_text(comparison: Comparison) -> str:
    """Return the verdict with its warnings, one per line, except the one about evidence, which the verdict covers."""
    others = (warning.sentence for warning in comparison.warnings if warning.key != EVIDENCE)
    return "\n".join([comparison.verdict.text, *others])


def _values_by_run(values: Mapping[int, str]) -> str:
    lines = [f"{one.where.text.capitalize()}: {one.value}" for one in group_values(values.items()) if one.value]
    return "\n".join([*lines[:_MOST_VALUES], *(["…"] if len(lines) > _MOST_VALUES else [])])
