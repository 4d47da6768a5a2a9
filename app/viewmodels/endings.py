"""How runs without a result ended, and why: in words, those together that have one reason."""

import textwrap
from collections import Counter
from collections.abc import Sequence

from app.records import RunRow
from app.viewmodels import units
from app.viewmodels.cells import OUTCOMES
from app.viewmodels.run_numbers import listed

_LONGEST = 200
"""Characters of a reason within a sentence; the whole is told beside the table."""
_MOST = 3
"""Reasons that a sentence names; of more the commonest."""

Ending = tuple[str, str]
"""The word for an outcome, and the reason as a sentence, "" where there is none."""


def ending_of(row: RunRow) -> Ending:
    """How a run ended. That the user stopped it is no reason beside its outcome."""
    if row.outcome is None:
        return OUTCOMES["running"].word, ""
    reason = "" if row.outcome.name == "stopped" else row.outcome.reason or ""
    return OUTCOMES[row.outcome.name].word, units.sentence(reason)


def by_ending(rows: Sequence[RunRow]) -> dict[Ending, list[RunRow]]:
    """The runs that ended in one way and for one reason together, in order of first appearance."""
    found: dict[Ending, list[RunRow]] = {}
    for row in rows:
        found.setdefault(ending_of(row), []).append(row)
    return found


def ended_words(rows: Sequence[RunRow]) -> str:
    """Within a sentence: `failed: Out of luck; out of memory`."""
    return "; ".join(": ".join(filter(None, (word, _short(reason)))) for word, reason in by_ending(rows))


def ended_words_of_many(groups: Sequence[Sequence[RunRow]]) -> str:
    """How these groups of runs ended: ` (failed: Out of luck)` where all did so, else `: 2 (failed) and 1 (…)`."""
    (first, count), *others = Counter(map(ended_words, groups)).most_common()
    if not others:
        return f" ({first})"
    named, rest = [(first, count), *others[: _MOST - 1]], others[_MOST - 1 :]
    words = [f"{count} ({ended})" for ended, count in named]
    return f": {listed([*words, *([f'{sum(n for _, n in rest)} for other reasons'] if rest else [])])}"


def _short(reason: str) -> str:
    """Its first sentence, without the full stop."""
    return textwrap.shorten(reason.partition(". ")[0], _LONGEST, placeholder=" …").removesuffix(".")
