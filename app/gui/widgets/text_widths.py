"""Where text breaks and what fits: sentences in lines, names in cells, the fonts of cells and the widths of columns."""

from collections.abc import Callable, Collection, Iterable, Mapping

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QLabel

from app import units
from app.gui.theme import GRID
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.format.naming import SEPARATOR

SYMBOL_WIDTH = 18
SYMBOL_ONLY = SYMBOL_WIDTH + 2 * GRID
"""Width of a column of symbols whose words are in their tooltips."""
PAIR_GAP = GRID + GRID // 2
"""Pixels between a number and what stands behind it under a title of its own."""
_SMALL_PX = 11


class SentenceLabel(QLabel):
    """A text in as many lines as it needs, none of which begins with the number that belongs to the word before."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._whole = ""
        self.setWordWrap(True)
        self.setText(text)

    def setText(self, text: str) -> None:
        """Show a text."""
        self._whole = text
        super().setText(units.bound(text))

    def text(self) -> str:
        """Return the text as it was set."""
        return self._whole


def elide_name(name: str, metrics: QFontMetrics, width: int) -> str:
    """Return what fits of a name: of one with parts the first ones and the last, else both ends.

    Args:
        name: The whole name.
        metrics: Of the font that it is painted in.
        width: In pixels.
    """
    if metrics.horizontalAdvance(name) <= width:
        return name
    parts = name.split(SEPARATOR)
    shorter = (SEPARATOR.join([*parts[:count], "…", parts[-1]]) for count in range(len(parts) - 2, 0, -1))
    fitting = (shown for shown in shorter if metrics.horizontalAdvance(shown) <= width)
    return next(fitting, None) or metrics.elidedText(name, Qt.TextElideMode.ElideMiddle, width)


def two_lines(name: str, advance: Callable[[str], int]) -> tuple[str, str]:
    """Return a name in two lines, divided between its parts so that the longer line is as short as can be."""
    parts = name.split(SEPARATOR)
    divided = [(SEPARATOR.join(parts[:n]), SEPARATOR.join(parts[n:])) for n in range(1, len(parts))]
    return min(divided, key=lambda lines: max(map(advance, lines)), default=(name, ""))


def width_in_two_lines(names: Iterable[str], font: QFont) -> int:
    """Return the width of a column in which each of these names fits in two lines of small letters."""
    advance = QFontMetrics(small_font(font)).horizontalAdvance
    return max((advance(line) for name in names for line in two_lines(name, advance)), default=0) + 2 * GRID + 2


def small_font(font: QFont) -> QFont:
    """Return the font of a name that takes two lines."""
    made = tabular(font)
    made.setPixelSize(_SMALL_PX)
    return made


def tabular(font: QFont) -> QFont:
    """Return the font with digits of equal width."""
    made = QFont(font)
    made.setFeature(QFont.Tag("tnum"), 1)
    return made


class DerivedFont:
    """A font made from another one, once for as long as that is the same: a new font looks for its glyphs anew."""

    def __init__(self, derive: Callable[[QFont], QFont]) -> None:
        self._derive = derive
        self._base: QFont | None = None
        self._made = QFont()

    def of(self, base: QFont) -> QFont:
        """Return the font that is made from this one."""
        if self._base is None or self._base != base:
            self._base, self._made = QFont(base), self._derive(base)
        return self._made


def content_width(metrics: QFontMetrics, column: Column, title_suffix: str, cell: Cell) -> int:
    """Return the width of a column in pixels.

    Args:
        metrics: Of the font of the cells.
        column: Its title and that of what stands behind its numbers.
        title_suffix: What may stand behind the title.
        cell: The longest cell.
    """
    symbol = SYMBOL_WIDTH if cell.symbol else 0
    text, title = (metrics.horizontalAdvance(each) for each in (cell.text, f"{column.title}{title_suffix}"))
    unit = unit_width(metrics, cell.unit)
    if column.second and cell.unit:
        content = max(text, title) + max(unit_width(metrics, each, PAIR_GAP) for each in (cell.unit, column.second))
    else:
        content = max(text + unit + symbol, title)
    return content + 2 * GRID + 2


def unit_width(metrics: QFontMetrics, unit: str, gap: int = GRID // 2) -> int:
    """Return the width of a unit and the space before it.

    Args:
        metrics: Of the font of the cells.
        unit: The unit, or what else stands behind a number.
        gap: The space.
    """
    return metrics.horizontalAdvance(unit) + gap if unit else 0


def give_way(
    widths: Mapping[int, int], steps: Iterable[Mapping[int, int]], fixed: Collection[int], view: int
) -> dict[int, int]:
    """Return the widths of columns after as many steps as it takes until they fit into a view together.

    Args:
        widths: Width of each column.
        steps: Columns with their next smaller width, in the order in which they give way.
        fixed: Columns whose width stays.
        view: In pixels.
    """
    shown = dict(widths)
    for step in steps:
        if sum(shown.values()) > view:
            shown.update({n: min(width, shown[n]) for n, width in step.items() if n in shown and n not in fixed})
    return shown
