"""Colours and dash patterns that distinguish the curves of compared runs.

Okabe and Ito (2008), "Color Universal Design"; shifted where they lack contrast.
"""

from collections.abc import Sequence
from itertools import zip_longest

from app.records import RunRow

LIGHT_PALETTE = ("#0072b2", "#d55e00", "#00875f", "#b5528b", "#a87400", "#2b8fca", "#857a00", "#555b63")
DARK_PALETTE = ("#4aa8e0", "#f08040", "#2fc295", "#dc8fbb", "#e69f00", "#8fd0f5", "#f0e442", "#b9c0c8")


HUES = len(LIGHT_PALETTE)
DASHES: tuple[tuple[int, ...], ...] = ((), (9, 5), (2, 4), (12, 4, 2, 4), (4, 10))
"""Pixels drawn and left out in turn; the first is solid. A look is a hue's index plus `HUES` times a dash's."""

MAX_COMPARED = 200
"""More runs than this are not read for one comparison."""

MAX_DRAWN = 20
"""More runs than this no eye tells apart in one plot."""


def interleave_variants(groups: Sequence[Sequence[RunRow]]) -> list[RunRow]:
    """All runs, every variant's first before any variant's second."""
    return [row for turn in zip_longest(*groups) for row in turn if row is not None]


def curve_styles(groups: Sequence[Sequence[RunRow]]) -> dict[int, int]:
    """The look of each run by its number, of the variants in their order; no two are alike of those that are drawn.

    Runs of one variant share its hue. Where dashes do not suffice for that, or all runs are of one variant, every run
    has a hue of its own as long as there is one.
    """
    rows = interleave_variants(groups)
    variant_index = {row.run: n for n, group in enumerate(groups) for row in group}
    taken = [0] * HUES
    by_variant: dict[int, int] = {}
    for row in rows:
        hue = variant_index[row.run] % HUES
        by_variant[row.run] = hue + HUES * taken[hue]
        taken[hue] += 1
    drawn = {by_variant[row.run] // HUES for row in rows[:MAX_DRAWN]}
    if len(groups) > 1 and max(drawn) < len(DASHES):
        return by_variant
    return {row.run: n for n, row in enumerate(rows)}


def dash_pattern(style: int) -> tuple[int, ...]:
    """The pixels a look draws and leaves out in turn; empty where it leaves out none."""
    return DASHES[style // HUES % len(DASHES)]
