"""What tells the curves of compared runs apart: a hue for each variant, a dash for the runs that share it."""

from collections.abc import Sequence
from itertools import zip_longest

from app.records import RunRow
from app.viewmodels.palette import ON_LIGHT

HUES = len(ON_LIGHT)
DASHES: tuple[tuple[int, ...], ...] = ((), (9, 5), (2, 4), (12, 4, 2, 4), (4, 10))
"""Pixels drawn and left out in turn; the first is solid. A look is a hue's index plus `HUES` times a dash's."""

MOST_COMPARED = 200
"""More runs than this are not read for one comparison."""

MOST_DRAWN = 20
"""More runs than this no eye tells apart in one plot."""


def drawn_first(groups: Sequence[Sequence[RunRow]]) -> list[RunRow]:
    """All runs, every variant's first before any variant's second."""
    return [row for turn in zip_longest(*groups) for row in turn if row is not None]


def looks(groups: Sequence[Sequence[RunRow]]) -> dict[int, int]:
    """The look of each run by its number, of the variants in their order; no two are alike of those that are drawn.

    Runs of one variant share its hue. Where dashes do not suffice for that, or all runs are of one variant, every run
    has a hue of its own as long as there is one.
    """
    rows = drawn_first(groups)
    place = {row.run: n for n, group in enumerate(groups) for row in group}
    taken = [0] * HUES
    by_variant: dict[int, int] = {}
    for row in rows:
        hue = place[row.run] % HUES
        by_variant[row.run] = hue + HUES * taken[hue]
        taken[hue] += 1
    drawn = {by_variant[row.run] // HUES for row in rows[:MOST_DRAWN]}
    if len(groups) > 1 and max(drawn) < len(DASHES):
        return by_variant
    return {row.run: n for n, row in enumerate(rows)}


def dash_of(look: int) -> tuple[int, ...]:
    """The pixels a look draws and leaves out in turn; empty where it leaves out none."""
    return DASHES[look // HUES % len(DASHES)]
