"""A comparison of stored runs as a JSON document and as words: the same numbers for terminal, file and window."""

from collections.abc import Sequence
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.verdict import VariantResult, judge
from app.records import RunRow, StoredRun
from app.report.evidence import match_of
from app.report.scaling import scaling_document
from app.viewmodels import units
from app.viewmodels.environment import comparable_facts
from app.viewmodels.evidence import mislabelled
from app.viewmodels.naming import short_name
from app.viewmodels.variants import variant_names
from workloads import catalog

METHOD = "Welch's t on the logarithm of each process's throughput"
MISLABELLED = "evidence"
"""The key of the warning that some runs did not run what was asked."""


def compare_document(runs: Sequence[StoredRun], baseline_run: int) -> dict[str, Any]:
    """The `compare` document: rows by variant, the verdict in words, and what makes the runs differ besides.

    `scaling` has every pair of runs that differ in their GPUs alone; it is empty where there is none.
    """
    results = judge([run.row for run in runs], baseline_run)
    wrong = [run.row for run in runs if run.row.match is False]
    return {
        "baseline": baseline_run,
        "method": METHOD,
        "level": LEVEL,
        "rows": [_row(result) for result in results],
        "verdict": {"decision": overall(results), "text": _with_doubt(verdict_text(results), wrong)},
        "warnings": [*_mislabelled(wrong), *differing_facts(runs)],
        "scaling": scaling_document(runs)["scaling"],
    }


def _with_doubt(verdict: str, wrong: Sequence[RunRow]) -> str:
    """The verdict, and before it that it is not about what the names say, where that is so."""
    return f"{mislabelled(wrong)} So this is about what ran, not about what was asked: {verdict}" if wrong else verdict


def _mislabelled(wrong: Sequence[RunRow]) -> list[dict[str, Any]]:
    """The warning that some runs did not run what was asked, with each one's reason."""
    return [{"key": MISLABELLED, "values": {str(row.run): row.mismatch_reason for row in wrong}}] if wrong else []


def _row(result: VariantResult) -> dict[str, Any]:
    spec = result.runs[0].spec
    return {
        "variant": {"workload": spec.workload, **spec.variant},
        "name": short_name(spec),
        "runs": [row.run for row in result.runs],
        "n": result.throughput.n if result.throughput else 0,
        "outcomes": [row.outcome.name if row.outcome else "running" for row in result.runs],
        "throughput": {**_estimate(result.throughput), "unit": units.rate_unit(example_of(result.runs[0]))},
        "speedup": {"ratio": result.speedup.value if result.speedup else None, "interval": _interval(result.speedup)},
        "energy_ratio": result.energy_ratio.value if result.energy_ratio else None,
        "decision": "baseline" if result.is_baseline else result.decision,
        "match": match_of(result.runs),
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any]:
    return {"value": estimate.value if estimate else None, "interval": _interval(estimate)}


def _interval(estimate: Estimate | None) -> list[float] | None:
    return list(estimate.interval) if estimate and estimate.interval else None


def example_of(row: RunRow) -> str:
    """The word for one example of the run's workload."""
    known = next((workload for workload in catalog.WORKLOADS if workload.name == row.spec.workload), None)
    return known.example if known else "example"


def overall(results: Sequence[VariantResult]) -> str:
    """The decision of the strongest statement that can be made, for a program to read."""
    others = [result.decision for result in results if not result.is_baseline]
    return others[0] if len(others) == 1 else "several variants" if others else "nothing to compare"


def verdict_text(results: Sequence[VariantResult]) -> str:
    """One sentence a variant, against the baseline."""
    baseline = next(result for result in results if result.is_baseline)
    others = [result for result in results if not result.is_baseline]
    if not others:
        return "All chosen runs are of one variant: there is nothing to compare it with."
    names = variant_names([result.runs[0].spec for result in results])
    base_name = names[results.index(baseline)]
    return " ".join(_sentence(names[results.index(other)], base_name, other, baseline) for other in others)


def _sentence(name: str, base_name: str, other: VariantResult, baseline: VariantResult) -> str:
    speedup = other.speedup
    if other.decision == "different workloads":
        return f"{name} and {base_name} are different workloads: a ratio between them would mean nothing."
    if speedup is None:
        without = name if other.throughput is None else base_name
        return f"{name} and {base_name} cannot be compared: no run of {without} measured anything."
    change = _percent(speedup.value)
    if speedup.low is None or speedup.high is None:
        return (
            f"{name} ran {change} than {base_name}, but a variant with one run has no interval: "
            "repeat both to know whether that is more than chance."
        )
    low, high = sorted((abs(speedup.low - 1), abs(speedup.high - 1)))
    if other.decision == "no difference seen":
        return (
            f"No difference between {name} and {base_name} larger than {100 * high:.1f} % "
            f"at this sample size ({_counts(other, baseline)})."
        )
    return (
        f"{name} is {change} than {base_name} "
        f"({100 * LEVEL:.0f} % interval {100 * low:.1f} to {100 * high:.1f} %, {_counts(other, baseline)})."
    )


def _percent(value: float) -> str:
    return f"{100 * abs(value - 1):.1f} % {'faster' if value >= 1 else 'slower'}"


def _counts(other: VariantResult, baseline: VariantResult) -> str:
    a = other.throughput.n if other.throughput else 0
    b = baseline.throughput.n if baseline.throughput else 0
    return f"{a} {units.plural('run', a)} each" if a == b else f"{a} against {b} runs"


def differing_facts(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """The facts of the environment that differ between the runs, with each run's value."""
    values = {key: {str(run.row.run): run.environment.get(key) for run in runs} for key in comparable_facts(runs)}
    return [{"key": key, "values": told} for key, told in values.items() if len(set(told.values()) - {None}) > 1]
