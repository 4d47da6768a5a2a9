"""What fits into the table of runs: the widths of its columns, chips, notes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt

from app.gui.theme import GRID
from app.gui.widgets.text_widths import SYMBOL_ONLY, Face, give_way
from app.viewmodels.history.table import (
    ANNOTATIONS_COLUMN,
    EVIDENCE_COLUMN,
    MATCH_COLUMN,
    OUTCOME_COLUMN,
    VARIANT_COLUMN,
)

MARKS = (OUTCOME_COLUMN, EVIDENCE_COLUMN)
"""Columns of symbols; the first gives way before the second, which says less without its title."""
VARIANT_MIN = 24 * GRID

_VARIANT_PCT = 40
"""Names that take more of the view are set in two lines."""
_MATCH_MIN = 18 * GRID
_ANNOTATIONS_MIN, _ANNOTATIONS_NARROW = 17 * GRID, 11 * GRID
_MIN_NOTE_CHARS = 10
_PEN = "✎"
"""In place of a note that has no room."""
_FIRST_SHARE = 40 * GRID
"""Pixels of spare width: first for variants, then for notes, before variants get more."""
_SQUEEZED_PCT = 80
"""What is left of the column of variants where a little narrower is enough for all columns to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNeeds:
    """What the columns need, in pixels.

    Attributes:
        content: The width of each shown column with everything in it; that of variants has their whole names.
        titles: The columns of marks with the width of their titles alone.
        bare: The columns of figures with their width where the unit is in the title.
        names: The widths of each variant's name in one line and in two, without what all share.
        chosen: Columns whose width the user chose.
    """

    content: Mapping[int, int]
    titles: Mapping[int, int]
    bare: Mapping[int, int]
    names: Collection[tuple[int, int]]
    chosen: Collection[int] = ()

    def variant(self, view: int) -> int:
        """Return the least width of variants: long names are set in two lines, which nobody likes to read."""
        most = view * _VARIANT_PCT // 100
        return max([VARIANT_MIN, *(one if one <= most else two for one, two in self.names)])

    @property
    def squeezed_variant(self) -> int:
        """The width of variants with all names in two lines."""
        return max([VARIANT_MIN, *(two for _, two in self.names)])


def divide_width(needs: ColumnNeeds, view: int) -> dict[int, int]:
    """Return the width of each column in a view of so many pixels.

    A variant needs what tells it from the others. Before the table gets wider than its view, outcome and evidence are
    symbols, whose words are in their tooltips; then units are in the titles; at last the symbols have no titles. What
    does not fit even then is scrolled to, the last columns first.
    """
    least = needs.variant(view)
    whole, notes = (needs.content.get(column, 0) for column in (VARIANT_COLUMN, ANNOTATIONS_COLUMN))
    first = min(whole, max(_FIRST_SHARE, least))
    widths = dict(needs.content)
    _set(widths, needs, {VARIANT_COLUMN: first, ANNOTATIONS_COLUMN: min(notes, _ANNOTATIONS_MIN)})
    widths = give_way(widths, _steps(needs, least), needs.chosen, view)
    missing = sum(widths.values()) - view
    if 0 < missing <= least - max(needs.squeezed_variant, least * _SQUEEZED_PCT // 100):
        _set(widths, needs, {VARIANT_COLUMN: least - missing})
    for column, wanted in _grants(needs, first):
        spare = view - sum(widths.values())
        if spare > 0 and column in widths and column not in needs.chosen:
            widths[column] = max(widths[column], min(wanted, widths[column] + spare))
    return widths


def _steps(needs: ColumnNeeds, variant: int) -> list[Mapping[int, int]]:
    """Return columns with their next smaller width, in the order in which they give way.

    Args:
        needs: What the columns need.
        variant: The least width of variants.
    """
    return [
        {MATCH_COLUMN: _MATCH_MIN},
        *({column: needs.titles[column]} for column in MARKS if column in needs.titles),
        {VARIANT_COLUMN: variant},
        {ANNOTATIONS_COLUMN: _ANNOTATIONS_NARROW},
        needs.bare,
        *({column: SYMBOL_ONLY} for column in MARKS),
    ]


def _grants(needs: ColumnNeeds, variant: int) -> list[tuple[int, int]]:
    """Return who gets spare width up to what: notes as much as they need before variants have all of theirs.

    Args:
        needs: What the columns need.
        variant: What variants get first.
    """
    last = ANNOTATIONS_COLUMN if ANNOTATIONS_COLUMN in needs.content else VARIANT_COLUMN
    return [
        (MATCH_COLUMN, needs.content.get(MATCH_COLUMN, 0)),
        (VARIANT_COLUMN, variant),
        (ANNOTATIONS_COLUMN, min(needs.content.get(ANNOTATIONS_COLUMN, 0), _FIRST_SHARE)),
        (VARIANT_COLUMN, needs.content.get(VARIANT_COLUMN, 0)),
        (last, 1 << 20),
    ]


def _set(widths: dict[int, int], needs: ColumnNeeds, wanted: Mapping[int, int]) -> None:
    """Set the widths of those of these columns that are shown and that the user has not chosen a width for."""
    widths.update({c: width for c, width in wanted.items() if c in widths and c not in needs.chosen})


def chips_that_fit(chips: Sequence[str], width_of: Callable[[str], int], width: int, gap: int) -> list[str]:
    """Return the chips to paint: as many as fit, then `+2` for the others; if not even the first fits, `3 tags`.

    Args:
        chips: All chips.
        width_of: The width of a chip with its frame.
        width: In pixels.
        gap: Between two chips.
    """
    for count in range(len(chips), 0, -1):
        more = [f"+{len(chips) - count}"] if count < len(chips) else []
        shown = [*chips[:count], *more]
        if sum(map(width_of, shown)) + gap * (len(shown) - 1) <= width:
            return shown
    return [f"{len(chips)} tags"] if len(chips) > 1 else list(chips)


def elide_note(note: str, face: Face, width: int) -> str:
    """Return what fits of a note, a pen where that is a few letters, nothing where not even the pen fits.

    Args:
        note: The whole note.
        face: What it is written in.
        width: In pixels.
    """
    shown = face.elided(note, Qt.TextElideMode.ElideRight, width)
    if shown == note or len(shown) >= _MIN_NOTE_CHARS:
        return shown
    return _PEN if face.width(_PEN) <= width else ""
