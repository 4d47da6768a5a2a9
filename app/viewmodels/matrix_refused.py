"""Which combinations of a matrix cannot run here: a line for a reason, not for a combination."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.viewmodels.units import plural
from app.viewmodels.variants import setting
from workloads.catalog import Refusal
from workloads.protocol import RunSpec

_NUMBER = re.compile(r"\d+")
_SHOWN_AT_ONCE = 2
"""Reasons; the others are one click away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGroup:
    """So many combinations with one reason; `what` names the values that they share, "" where it is all of them."""

    count: int
    what: str
    reason: str

    @property
    def words(self) -> str:
        """The group as one sentence or two."""
        return f"{self.what}: {self.reason}" if self.what else self.reason


class RefusedWords(NamedTuple):
    """What cannot run, with a line a reason, and the words of the way to the `others`; "" where there are none."""

    told: str
    others: str


def refused_words(groups: Sequence[RefusedGroup], combinations: int, *, every: bool) -> RefusedWords:
    """What of so many combinations cannot run, with the first reasons or with `every` one."""
    if not groups:
        return RefusedWords("", "")
    count, more = sum(group.count for group in groups), len(groups) - _SHOWN_AT_ONCE
    shown = groups if every else groups[:_SHOWN_AT_ONCE]
    lines = [f"{count:,} of {combinations:,} combinations cannot run here and are left out:"]
    lines += [f"{group.count:,} ×  {group.words}" for group in shown]
    others = "Fewer reasons" if every else f"{more} more {plural('reason', more)} …"
    return RefusedWords("\n".join(lines), others if more > 0 else "")


def refused_groups(refused: Sequence[tuple[RunSpec, Refusal]], varied: Sequence[str]) -> tuple[RefusedGroup, ...]:
    """Those with the same reason together, the largest group first; reasons may differ in their numbers alone."""
    groups: dict[tuple[tuple[str, ...], str], list[tuple[RunSpec, Refusal]]] = {}
    for spec, refusal in refused:
        key = refusal.parameters, _NUMBER.sub("#", refusal.reason)
        groups.setdefault(key, []).append((spec, refusal))
    found = [_group(members, varied) for members in groups.values()]
    return tuple(sorted(found, key=lambda group: -group.count))


def _group(members: Sequence[tuple[RunSpec, Refusal]], varied: Sequence[str]) -> RefusedGroup:
    first = members[0][1]
    told = [name for name in varied if name in first.parameters]
    values = (" / ".join(dict.fromkeys(setting(spec, name) for spec, _ in members)) for name in told)
    return RefusedGroup(count=len(members), what=" with ".join(values), reason=first.reason)
