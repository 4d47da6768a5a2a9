"""Where text breaks and what fits: sentences in lines, names in cells, the fonts of cells and the widths of columns."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from PySide6.QtCore import QPointF, QRect, QSizeF, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QStaticText
from PySide6.QtWidgets import QLabel

from app import units
from app.gui.theme import GRID
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.format.naming import SEPARATOR

Key = TypeVar("Key")
Value = TypeVar("Value")

SYMBOL_WIDTH = 18
SYMBOL_ONLY = SYMBOL_WIDTH + 2 * GRID
"""Width of a column of symbols whose words are in their tooltips."""
PAIR_GAP = GRID + GRID // 2
"""Pixels between a number and what stands behind it under a title of its own."""
PLOT_PX = {"whisker": 18 * GRID, "spark": 8 * GRID}
"""Width of what is drawn behind a number."""
_SMALL_PX = 11
_CACHED_TEXTS = 2_000
"""Laid out for one font."""


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


class Face:
    """A font whose texts are measured and laid out once.

    A screen full of cells has some hundred texts, which are painted again and again; to lay them out takes most of it.
    """

    def __init__(self, font: QFont) -> None:
        self.font = font
        self.metrics = QFontMetrics(font)
        self._widths: dict[str, int] = {}
        self._elided: dict[tuple[str, Qt.TextElideMode, int], str] = {}
        self._laid_out: dict[str, tuple[QStaticText, QSizeF]] = {}

    def width(self, text: str) -> int:
        """Return the width of a text in pixels."""
        width = self._widths.get(text)
        if width is None:
            width = _cache(self._widths, text, self.metrics.horizontalAdvance(text))
        return width

    def elided(self, text: str, mode: Qt.TextElideMode, width: int) -> str:
        """Return what fits of a text."""
        if self.width(text) <= width:
            return text
        key = text, mode, width
        return self._elided.get(key) or _cache(self._elided, key, self.metrics.elidedText(text, mode, width))

    def write(self, painter: QPainter, area: QRect, text: str, *, at_right: bool = False) -> None:
        """Write a text in the middle of an area's height.

        The painter has this font from then on. The text begins at the left of the area, or ends at the right.
        """
        if not text:
            return
        made, size = self._laid_out.get(text) or _cache(self._laid_out, text, self._lay_out(text))
        left = area.right() + 1 - size.width() if at_right else area.left()
        painter.setFont(self.font)
        painter.drawStaticText(QPointF(left, area.top() + (area.height() - size.height()) / 2), made)

    def _lay_out(self, text: str) -> tuple[QStaticText, QSizeF]:
        made = QStaticText(text)
        made.setTextFormat(Qt.TextFormat.PlainText)
        made.prepare(font=self.font)
        return made, made.size()


def _cache(cache: dict[Key, Value], key: Key, value: Value) -> Value:
    """Put a value into a cache, which begins anew when it is full."""
    if len(cache) >= _CACHED_TEXTS:
        cache.clear()
    cache[key] = value
    return value


class DerivedFace:
    """A font made from another one, plain or bold, once for as long as that is the same."""

    def __init__(self, derive: Callable[[QFont], QFont]) -> None:
        self._derive = derive
        self._made: dict[bool, tuple[QFont, Face]] = {}

    def of(self, base: QFont) -> Face:
        """Return the font that is made from this one."""
        known, face = self._made.get(base.bold(), (None, None))
        if face is None or known != base:
            face = Face(self._derive(base))
            self._made[base.bold()] = QFont(base), face
        return face


def elide_name(name: str, face: Face, width: int) -> str:
    """Return what fits of a name: of one with parts the first ones and the last, else both ends."""
    if face.width(name) <= width:
        return name
    parts = name.split(SEPARATOR)
    shorter = (SEPARATOR.join([*parts[:count], "…", parts[-1]]) for count in range(len(parts) - 2, 0, -1))
    fitting = (shown for shown in shorter if face.width(shown) <= width)
    return next(fitting, None) or face.elided(name, Qt.TextElideMode.ElideMiddle, width)


def content_width(metrics: QFontMetrics, column: Column, title_suffix: str, cell: Cell) -> int:
    """Return the width of a column in pixels."""
    symbol = SYMBOL_WIDTH if cell.symbol else 0
    text, title = (metrics.horizontalAdvance(each) for each in (cell.text, f"{column.title}{title_suffix}"))
    unit = unit_width(metrics, cell.unit)
    if column.plot:
        content = max(text, title) + PLOT_PX[column.plot] + PAIR_GAP
    elif column.second and cell.unit:
        content = max(text, title) + max(unit_width(metrics, each, PAIR_GAP) for each in (cell.unit, column.second))
    else:
        content = max(text + unit + symbol, title)
    return content + 2 * GRID + 2


def unit_width(metrics: QFontMetrics, unit: str, gap: int = GRID // 2) -> int:
    """Return the width of a unit and the space before it."""
    return metrics.horizontalAdvance(unit) + gap if unit else 0


def give_way(
    widths: Mapping[int, int], steps: Iterable[Mapping[int, int]], fixed: Collection[int], view: int
) -> dict[int, int]:
    """Return the widths of columns after as many steps as it takes until they fit into a view together.

    `steps` are columns with their next smaller width, in the order in which they give way.
    """
    shown = dict(widths)
    for step in steps:
        if sum(shown.values()) > view:
            shown.update({n: min(width, shown[n]) for n, width in step.items() if n in shown and n not in fixed})
    return shown
