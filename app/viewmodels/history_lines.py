"""The lines of the table of runs: one a run, or groups by experiment that can be folded."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.viewmodels import units

WITHOUT = 0
"""The group of the runs that belong to no experiment: experiments are numbered from 1."""

_WITHOUT_WORDS = ("Without an experiment", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The line of one experiment: its name, when it began, and those of its runs that were found, in their order."""

    experiment: int
    title: str
    begun: str
    runs: tuple[int, ...]

    @property
    def beside(self) -> str:
        """How many runs it has and when it began."""
        count = f"{len(self.runs):,} {units.plural('run', len(self.runs))}"
        return f"{count} · {self.begun}" if self.begun else count


Line = int | Group
"""A run by its number, or a group."""


def groups_of(
    runs: Sequence[int], experiment_of: Mapping[int, int], named: Mapping[int, tuple[str, str]]
) -> tuple[Group, ...]:
    """The runs by their experiment, in the order of `named`, those without one last.

    `named` has an experiment's name and when it began, in words.
    """
    words = {**named, WITHOUT: _WITHOUT_WORDS}
    members: dict[int, list[int]] = {experiment: [] for experiment in words}
    for run in runs:
        members[experiment_of.get(run, WITHOUT)].append(run)
    return tuple(
        Group(experiment=experiment, title=title, begun=begun, runs=tuple(members[experiment]))
        for experiment, (title, begun) in words.items()
        if members[experiment]
    )


def lines_of(groups: Sequence[Group], folded: Collection[int]) -> tuple[Line, ...]:
    """Every group with its runs below it, unless it is folded."""
    lines: list[Line] = []
    for group in groups:
        lines.append(group)
        if group.experiment not in folded:
            lines += group.runs
    return tuple(lines)
