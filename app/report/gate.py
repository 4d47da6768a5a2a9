"""A gate for continuous integration: passes what is certainly not slower than the baseline beyond a margin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.analysis.verdict import Equivalence, VariantResult, throughputs
from app.values import units
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.statements import EVIDENCE, Statement
from app.viewmodels.format.cells import TextTable, group_example_word
from app.viewmodels.format.ratios import Unit, format_interval, format_ratio, unit_of
from app.viewmodels.format.sentences import join_with_and
from app.viewmodels.history.evidence import describe_mismatches, mismatches

GateOutcome = Literal["passed", "slower", "cannot tell"]
EXIT_STATUS: dict[GateOutcome, int] = {"passed": 0, "slower": 3, "cannot tell": 4}
_TITLES: dict[GateOutcome, str] = {
    "passed": "Passed: not slower",
    "slower": "Failed: slower",
    "cannot tell": "Cannot tell whether slower",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate's judgement of a comparison in which a variant may be slower by that many percent.

    `reasons` say why it is undecided, or which variants are slower; `figures` has a row per variant.
    """

    margin_pct: float
    outcome: GateOutcome
    reasons: tuple[str, ...]
    figures: TextTable
    verdict: str
    warnings: tuple[Statement, ...]

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.outcome]

    @property
    def title(self) -> str:
        return f"{_TITLES[self.outcome]} by more than {units.exactly(self.margin_pct, '%')}"

    @property
    def sentence(self) -> str:
        return " ".join([f"{self.title}.", *self.reasons])

    def document(self) -> dict[str, Any]:
        return {
            "margin_pct": self.margin_pct,
            "outcome": self.outcome,
            "exit_status": self.exit_status,
            "reasons": list(self.reasons),
        }


def judge_gate(comparison: Comparison, margin_pct: float, unfinished: str = "") -> Gate:
    """Judge a comparison by this margin.

    Runs that did not run as requested, or are missing, prove nothing; only a variant that is slower despite missing
    runs fails.

    `unfinished` is a sentence on missing runs, "" without any.
    """
    named = list(zip(comparison.verdict.names, comparison.verdict.results, strict=True))
    others = [(name, result.equivalence) for name, result in named if not result.is_baseline]
    slower = [name for name, equivalence in others if equivalence is not None and equivalence.decision == "slower"]
    unknown = [name for name, equivalence in others if equivalence is None or not equivalence.is_not_slower]
    missing = [
        *([] if others else ["Nothing was compared: no two variants have runs."]),
        *filter(None, (unfinished,)),
        *([f"Whether {join_with_and(unknown)} {_by(unknown, margin_pct)} is undecided."] if unknown else []),
    ]
    outcome: GateOutcome = "cannot tell" if missing else "passed"
    reasons = missing
    if wrong := describe_mismatches(mismatches(comparison.rows)):
        outcome, reasons = "cannot tell", [wrong]
    elif slower:
        outcome, reasons = "slower", [f"{join_with_and(slower)} {_by(slower, margin_pct)}."]
    column = unit_of(result.speedup.value for _, result in named if result.speedup)
    unit = units.rate_unit(group_example_word(named[0][1].runs)) if named else "examples/s"
    return Gate(
        margin_pct=margin_pct,
        outcome=outcome,
        reasons=tuple(reasons),
        figures=TextTable(
            head=("Variant", "Runs", unit, "Speed-up", "Interval of the test", "Against the baseline"),
            rows=tuple((name, *_row(result, column)) for name, result in named),
            numeric=frozenset((1, 2, 3, 4)),
        ),
        verdict=" ".join(comparison.verdict.sentences) or comparison.verdict.text,
        warnings=tuple(warning for warning in comparison.warnings if warning.key != EVIDENCE),
    )


def _by(names: Sequence[str], margin_pct: float) -> str:
    are = "is" if len(names) == 1 else "are"
    return f"{are} slower than the baseline by more than {units.exactly(margin_pct, '%')}"


def _row(result: VariantResult, column: Unit) -> tuple[str, ...]:
    equivalence = result.equivalence
    ends = equivalence.interval if equivalence else None
    return (
        str(len(throughputs(result.runs))),
        units.number(result.throughput.value if result.throughput else None, 4),
        format_ratio(result.speedup.value if result.speedup else None, column),
        format_interval(ends, 1.0, column) or units.ABSENT,
        "the baseline" if result.is_baseline else _conclusion(equivalence),
    )


def _conclusion(equivalence: Equivalence | None) -> str:
    if equivalence is None or not (equivalence.is_not_slower or equivalence.decision == "slower"):
        return "undecided"
    margin = units.exactly(equivalence.margin_pct, "%")
    words = {"equal": f"equal within {margin}", "cannot tell": f"not slower by more than {margin}"}
    return words.get(equivalence.decision, f"{equivalence.decision} by more than {margin}")
