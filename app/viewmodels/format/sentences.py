"""Several runs in a sentence: numbers as ranges, outcomes, and times."""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.analysis.verdict import throughputs, without
from app.queries import TimeLeft
from app.values import units
from app.values.records import RunRow
from app.values.units import plural
from app.viewmodels.format.cells import OUTCOMES
from app.viewmodels.format.naming import SEPARATOR, Name, names_in_parts

_MAX_RANGES = 6
"""Ranges of runs that a sentence names."""
_MAX_NAMES = 3
"""Variants that a sentence names."""

_ADVICE = re.compile(r"(?:[;,] (?:or )?(?:use|choose) [^;]*=[^;]*|[;.] [Tt]he command `.*)$")


def without_advice(reason: str) -> str:
    """Return why something cannot run, without advice for the command line: a button does that."""
    return _ADVICE.sub(".", reason)


def format_run_numbers(runs: Collection[int]) -> str:
    """Return runs as text: `run 4`, `runs 1, 4–9 and 12`, `runs 1, 3, 5, 7, 9 and 17 more`."""
    by_distance = itertools.groupby(enumerate(sorted(runs)), lambda numbered: numbered[1] - numbered[0])
    ranges = [[run for _, run in group] for _, group in by_distance]
    named = ranges if len(ranges) <= _MAX_RANGES else ranges[: _MAX_RANGES - 1]
    more = len(runs) - sum(map(len, named))
    labels = ([f"{n[0]}–{n[-1]}"] if len(n) > 2 else map(str, n) for n in named)  # two neighbours are both named
    texts = [*itertools.chain.from_iterable(labels), *([f"{more:,} more"] if more else [])]
    return f"{plural('run', len(runs))} {join_with_and(texts)}"


@dataclass(frozen=True, slots=True)
class NamedRuns:
    """Runs and their variants, which have `total` runs; no variants if all runs belong to one."""

    runs: tuple[int, ...]
    variants: tuple[Name, ...] = ()
    total: int = 0
    is_all: bool = False

    @property
    def text(self) -> str:
        """Return `2 of 3 runs of NCHW`, `all 12 runs of 4 variants`, `all runs`, or for one variant `runs 1 and 2`."""
        if self.is_all:
            return "all runs"
        if not self.variants:
            return format_run_numbers(self.runs)
        all_of_them = {1: "the run", 2: "both runs"}.get(self.total, f"all {self.total:,} runs")
        count = all_of_them if len(self.runs) == self.total else f"{len(self.runs):,} of {self.total:,} runs"
        return f"{count} of {name_few(self.variants)}".replace(" of on ", " on ")


def name_runs(runs: Collection[int], among: Sequence[RunRow] = ()) -> NamedRuns:
    groups: dict[bytes, list[RunRow]] = {}
    for row in among:
        groups.setdefault(msgspec.json.encode(without(row.spec), order="sorted"), []).append(row)
    is_all = len(runs) == len(among) > 1
    if is_all or len(groups) < 2:
        return NamedRuns(tuple(runs), is_all=is_all)
    names = names_in_parts([group[0].spec for group in groups.values()], in_sentence=True)
    named = [pair for pair in zip(names, groups.values(), strict=True) if any(row.run in runs for row in pair[1])]
    return NamedRuns(tuple(runs), tuple(name for name, _ in named), sum(len(group) for _, group in named))


@dataclass(frozen=True, slots=True)
class RunsWith:
    """A value, and the runs with it."""

    value: Any
    where: NamedRuns


def group_values(values: Iterable[tuple[int, Any]], among: Sequence[RunRow] = ()) -> tuple[RunsWith, ...]:
    """Return the values of runs with all their runs, in order of first appearance."""
    holders: dict[Any, list[int]] = {}
    for run, value in values:
        holders.setdefault(value, []).append(run)
    return tuple(RunsWith(value, name_runs(runs, among)) for value, runs in holders.items())


def join_with_and(items: Iterable[str]) -> str:
    *leading, last = items
    return f"{', '.join(leading)} and {last}" if leading else last


def name_few(variants: Sequence[Name]) -> str:
    """Return the names of a few variants, or the number of more."""
    return join_with_and(map(SEPARATOR.join, variants)) if len(variants) <= _MAX_NAMES else f"{len(variants)} variants"


Ending = tuple[str, str]
"""The word for an outcome, and the reason as a sentence, "" without one."""


def run_ending(row: RunRow) -> Ending:
    """Return how a run ended. "Stopped by the user" is no reason in addition to its outcome."""
    if row.outcome is None:
        return OUTCOMES["running"].word, ""
    reason = "" if row.outcome.name == "stopped" else row.outcome.reason or ""
    return OUTCOMES[row.outcome.name].word, units.sentence(reason)


def group_by_ending(rows: Sequence[RunRow]) -> dict[Ending, list[RunRow]]:
    """Group runs with the same outcome and reason, in order of first appearance."""
    groups: dict[Ending, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(run_ending(row), []).append(row)
    return groups


def count_runs(rows: Sequence[RunRow]) -> str:
    """Return how many runs of a variant count, and the outcomes of others: `2 runs, 1 stopped`."""
    count, others = len(throughputs(rows)), (run_ending(row)[0] for row in rows if not row.completed)
    return ", ".join([f"{count} {plural('run', count)}", *(f"{n} {word}" for word, n in Counter(others).items())])


def format_time_left(time_left: TimeLeft) -> str:
    """Return a time as a range with ends rounded outwards. Runs that are all refused take a moment."""
    return units.duration_range(time_left.least_s, time_left.most_s) if time_left.most_s else "a moment"
