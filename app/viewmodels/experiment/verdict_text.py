"""The verdict on an experiment: for the Run screen while it runs, and for notices at its end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.analysis.verdict import (
    VariantResult,
    comparable_results,
    fastest_result,
    group_by_variant,
    group_runs,
    rank_results,
    throughputs,
    without,
)
from app.queries import NO_QUESTION, Question
from app.values import units
from app.values.records import RunRow
from app.viewmodels.charts.model import Axis, ratio_axis
from app.viewmodels.compare.verdict import Verdict, compute_verdict
from app.viewmodels.experiment.queue import NO_VERDICT, VerdictText
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.ratios import Unit, format_interval, format_ratio, unit_of
from app.viewmodels.format.sentences import count_runs
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec


def experiment_verdict(rows: Sequence[RunRow], question: Question = NO_QUESTION) -> VerdictText:
    if len(group_by_variant(rows)) < 2:
        return NO_VERDICT
    verdict = compute_verdict(rows, question.baseline, asked=question.asked)
    others = (statement.sentence for statement in verdict.statements[verdict.answers :])
    return VerdictText(sentence=verdict.answer, rest=" ".join(others), is_answer=len(rank_results(verdict.results)) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A variant of an experiment in the forest plot.

    Attributes:
        ratio: Its speed as a multiple of the baseline's; None if it has none.
        change: The ratio in a few characters: `+62 %`, `10.7×`, `baseline`, or why there is none.
        interval: The interval's ends: `+59 to +65 %`.
        energy: Energy per example against the baseline's: `−31 % energy`.
        runs: How many runs count, and the outcomes of others: `3 runs, 1 stopped`.
        is_fastest: Whether it is certainly the fastest.
    """

    name: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    change: str = ""
    interval: str = ""
    energy: str = ""
    runs: str = ""
    is_fastest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """An experiment's result so far: the answer, then one row per variant on an axis of ratios.

    Attributes:
        answer: The effect of the setting asked about, or who is fastest: one line for each workload.
        verdict: What would decide it, or how certain it is.
        lamp: Whether the machine was quiet during the runs; "" before the first one ends.
        disturbance: What disturbed them, one sentence each; "" for nothing.
        axis: The common axis of ratios; intervals may extend beyond it.
    """

    answer: str
    verdict: Verdict = field(default_factory=Verdict)
    lamp: str = ""
    disturbance: str = ""
    rows: tuple[ResultRow, ...]
    axis: Axis


_MOST_TICKS = 5
_NO_ANSWER = "No answer yet"


def experiment_result(
    variants: Sequence[RunSpec],
    rows: Sequence[RunRow],
    disturbances: Mapping[int, str],
    question: Question = NO_QUESTION,
) -> ExperimentResult | None:
    """Return an experiment's result so far; None with a single variant.

    Variants that differ only in their seed or measured length count as one, and the baseline is that of Compare.
    `disturbances` says what disturbed each finished run, "" for nothing.
    """
    specs = [group[0] for group in group_runs(map(with_defaults, variants), without)]
    if len(specs) < 2:
        return None
    names = variant_names(specs)
    if not rows:
        waiting = tuple(ResultRow(name=name, change="waiting") for name in names)
        return ExperimentResult(answer=_NO_ANSWER, rows=waiting, axis=_axis(()))
    verdict = compute_verdict(rows, question.baseline, asked=question.asked)
    keys = [without(with_defaults(result.runs[0].spec)) for result in verdict.results]
    variants_by_name = [
        (name, verdict.results[keys.index(key)] if (key := without(spec)) in keys else None)
        for spec, name in zip(specs, names, strict=True)
    ]
    result = _result(verdict, variants_by_name, disturbances)
    return result if len(rank_results(verdict.results)) > 1 else replace(result, answer=_NO_ANSWER)


def verdict_result(verdict: Verdict, disturbances: Mapping[int, str]) -> ExperimentResult:
    return _result(verdict, list(zip(verdict.names, verdict.results, strict=True)), disturbances)


def _result(
    verdict: Verdict, variants: Sequence[tuple[str, VariantResult | None]], disturbances: Mapping[int, str]
) -> ExperimentResult:
    fastest = fastest_result(verdict.results)
    comparable = comparable_results(verdict.results)
    measured = {row.run for result in verdict.results for row in result.runs if throughputs([row])}
    disturbances = {run: text for run, text in disturbances.items() if run in measured}
    columns = (
        unit_of(result.speedup.value for result in verdict.results if result.speedup),
        unit_of(result.energy_ratio.value for result in verdict.results if result.energy_ratio),
    )
    rows = [
        (result not in comparable, _result_row(name, result, fastest, disturbances, columns))
        for name, result in variants
    ]
    rows.sort(key=lambda pair: (pair[1].change != _BASELINE, pair[0], -(pair[1].ratio or 0.0)))
    return ExperimentResult(
        answer="\n".join(statement.sentence for statement in verdict.statements[: verdict.answers]),
        verdict=verdict,
        lamp=_lamp(disturbances),
        disturbance="\n".join(dict.fromkeys(filter(None, disturbances.values()))),
        rows=tuple(row for _, row in rows),
        axis=_axis(comparable),
    )


def _axis(results: Sequence[VariantResult]) -> Axis:
    ratios = [result.speedup for result in results if result.speedup is not None]
    axis = ratio_axis(ratios, _MOST_TICKS)
    return axis if len(ratios) > 1 else replace(axis, ticks=())  # only the baseline: there is nothing to read off


_BASELINE = "baseline"


def _lamp(disturbances: Mapping[int, str]) -> str:
    busy = sum(map(bool, disturbances.values()))
    if not busy:
        return "Quiet machine" if disturbances else ""
    return f"Busy machine in {busy:,} of {len(disturbances):,} {units.plural('run', len(disturbances))}"


def _result_row(
    name: str,
    result: VariantResult | None,
    fastest: VariantResult | None,
    disturbances: Mapping[int, str],
    columns: tuple[Unit, Unit],
) -> ResultRow:
    if result is None:
        return ResultRow(name=name, change="waiting")
    busy = sum(bool(disturbances.get(row.run)) for row in result.runs)
    runs = f"{count_runs(result.runs)}{f', {busy} busy' if busy else ''}"
    speed = result.speedup
    if speed is None:
        outcomes = Counter(row.outcome.name.replace("_", " ") for row in result.runs if row.outcome is not None)
        ended = "other workload" if result.decision == "different workloads" else next(iter(outcomes), "running")
        return ResultRow(name=name, change=ended, runs=runs if outcomes else "")
    low, high = speed.interval or (None, None)
    energy, (speed_unit, energy_unit) = result.energy_ratio, columns
    return ResultRow(
        name=name,
        ratio=speed.value,
        low=low,
        high=high,
        change=_BASELINE if result.is_baseline else format_ratio(speed.value, speed_unit),
        interval=format_interval(speed.interval, speed.value, speed_unit),
        energy="" if result.is_baseline or energy is None else f"{format_ratio(energy.value, energy_unit)} energy",
        runs=runs,
        is_fastest=result is fastest,
    )
