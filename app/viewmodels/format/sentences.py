"""Several runs in a sentence: their numbers as ranges, how they ended, and how long they take."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from app import units
from app.queries import TimeLeft
from app.records import RunRow
from app.units import plural
from app.viewmodels.format.cells import OUTCOMES

_MAX_RANGES = 6
"""Ranges of runs that a sentence names."""


def format_run_numbers(runs: Collection[int]) -> str:
    """Return runs as text: `run 4`, `runs 1, 4–9 and 12`, `runs 1, 3, 5, 7, 9 and 17 more`."""
    ranges = list(_run_ranges(sorted(runs)))
    named = ranges if len(ranges) <= _MAX_RANGES else ranges[: _MAX_RANGES - 1]
    more = len(runs) - sum(map(len, named))
    parts = [*(word for numbers in named for word in _range_labels(numbers)), *([f"{more:,} more"] if more else [])]
    return f"{plural('run', len(runs))} {join_with_and(parts)}"


def join_with_and(items: Iterable[str]) -> str:
    """Return items in a sentence: `a`, `a and b`, `a, b and c`."""
    *leading, last = items
    return f"{', '.join(leading)} and {last}" if leading else last


def name_few(variants: Sequence[str], most: int) -> str:
    """Return the names of a few variants in a sentence, of more than `most` their count."""
    return join_with_and(variants) if len(variants) <= most else f"{len(variants)} variants"


def _run_ranges(ordered: Iterable[int]) -> Iterable[list[int]]:
    current: list[int] = []
    for run in ordered:
        if current and run != current[-1] + 1:
            yield current
            current = []
        current.append(run)
    yield current


def _range_labels(numbers: list[int]) -> list[str]:
    """Two neighbours are named each."""
    return [f"{numbers[0]}–{numbers[-1]}"] if len(numbers) > 2 else [str(run) for run in numbers]


_MAX_WAYS = 3
"""Ways to end that a sentence names; of more the commonest."""

Ending = tuple[str, str]
"""The word for an outcome, and the reason as a sentence, "" where there is none."""


def run_ending(row: RunRow) -> Ending:
    """Return how a run ended. That the user stopped it is no reason in addition to its outcome."""
    if row.outcome is None:
        return OUTCOMES["running"].word, ""
    reason = "" if row.outcome.name == "stopped" else row.outcome.reason or ""
    return OUTCOMES[row.outcome.name].word, units.sentence(reason)


def group_by_ending(rows: Sequence[RunRow]) -> dict[Ending, list[RunRow]]:
    """Group runs that ended in one way and for one reason, in order of first appearance."""
    found: dict[Ending, list[RunRow]] = {}
    for row in rows:
        found.setdefault(run_ending(row), []).append(row)
    return found


def describe_endings(rows: Sequence[RunRow]) -> str:
    """Return in which ways runs ended, within a sentence: `failed; out of memory`. Notes have the reasons."""
    return "; ".join(dict.fromkeys(word for word, _ in map(run_ending, rows)))


def describe_group_endings(groups: Sequence[Sequence[RunRow]]) -> str:
    """Return how groups of runs ended: ` (failed)` if all did so, else `: 2 (failed) and 1 (…)`."""
    (first, count), *others = Counter(map(describe_endings, groups)).most_common()
    if not others:
        return f" ({first})"
    named, rest = [(first, count), *others[: _MAX_WAYS - 1]], others[_MAX_WAYS - 1 :]
    parts = [f"{count} ({ended})" for ended, count in named]
    return f": {join_with_and([*parts, *([f'{sum(n for _, n in rest)} for other reasons'] if rest else [])])}"


def format_time_left(left: TimeLeft) -> str:
    """Return a time as a range: the ends, rounded outwards."""
    return units.duration_range(left.least_s, left.most_s)
