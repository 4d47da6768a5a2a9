"""Whether the variants of a comparison compute the same, beside its verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.analysis.equality import (
    Equality,
    State,
    describe_differences,
    describe_excess,
    find_equality,
    known_checks,
    largest_of,
)
from app.analysis.verdict import VariantResult
from app.records import StoredRun
from app.viewmodels.compare.state_warnings import ComparisonWarning
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.sentences import name_few

EQUALITY = "equality"
"""The key of the warning that variants compute something else, and of the notes on the others."""

_MAX_NAMED = 4
"""Variants that are named."""
_STATE_TEXTS: dict[State, str] = {"same": "the same", "differs": "not the same", "not comparable": "not compared"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEquality:
    """What the check of a variant against the baseline came to; `names` are both in a sentence."""

    name: str
    baseline: str
    runs: tuple[int, ...]
    found: Equality


def compared_equality(results: Sequence[VariantResult], runs: Sequence[StoredRun]) -> tuple[VariantEquality, ...]:
    """Return the checks of a comparison's variants against its baseline, those that were made."""
    known = known_checks(runs)
    baseline = next((result for result in results if result.is_baseline), None)
    if not known or baseline is None:
        return ()
    spec, names = baseline.runs[0].spec, variant_names([each.runs[0].spec for each in results], in_sentence=True)
    named = dict(zip(map(id, results), names, strict=True))
    checked = [(each, find_equality(each.runs[0].spec, spec, known)) for each in results if each is not baseline]
    return tuple(
        VariantEquality(
            name=named[id(each)],
            baseline=named[id(baseline)],
            runs=tuple(row.run for row in each.runs),
            found=found,
        )
        for each, found in checked
        if found is not None
    )


def equality_warnings(checked: Sequence[VariantEquality]) -> list[ComparisonWarning]:
    """Return a warning for each variant that computes something else, and notes on the others."""
    differing = [
        _warning(
            [each],
            f"{_capital(each.name)} does not compute the same as {each.baseline}: {describe_excess(each.found)}.",
            is_note=False,
        )
        for each in checked
        if each.found.state == "differs"
    ]
    same = [each for each in checked if each.found.state == "same"]
    reasons = dict.fromkeys(each.found.reason for each in checked if each.found.state == "not comparable")
    unknown = [[each for each in checked if each.found.reason == reason] for reason in reasons]
    return [
        *differing,
        *([_warning(same, _describe_same(same))] if same else []),
        *(_warning(alike, _describe_unknown(alike)) for alike in unknown),
    ]


def _warning(alike: Sequence[VariantEquality], sentence: str, *, is_note: bool = True) -> ComparisonWarning:
    values = {run: _STATE_TEXTS[each.found.state] for each in alike for run in each.runs}
    return ComparisonWarning(key=EQUALITY, sentence=sentence, values=values, severity="note" if is_note else "warning")


def _describe_same(same: Sequence[VariantEquality]) -> str:
    verb = "computes" if len(same) == 1 else "compute"
    within = describe_differences(largest_of([each.found for each in same]))
    names = _capital(name_few([each.name for each in same], _MAX_NAMED))
    return f"{names} {verb} the same as {same[0].baseline}: {within}."


def _describe_unknown(alike: Sequence[VariantEquality]) -> str:
    verb = "computes" if len(alike) == 1 else "compute"
    first = alike[0]
    names = name_few([each.name for each in alike], _MAX_NAMED)
    return f"Not checked whether {names} {verb} the same as {first.baseline}: {first.found.reason}."


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
