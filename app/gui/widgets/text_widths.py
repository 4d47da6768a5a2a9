"""Line breaks and widths: sentences in lines, names in cells, the fonts of cells and the widths of columns."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QLabel

from app.gui.theme import GRID, LEFT, RIGHT, tabular_font
from app.values import units
from app.values.plain import plain_line, plain_text
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.format.naming import SEPARATOR, Name

SYMBOL_WIDTH = 18
SYMBOL_ONLY = SYMBOL_WIDTH + 2 * GRID
"""The width of a column of symbols whose words are in tooltips."""
PAIR_GAP = GRID + GRID // 2
"""Pixels between a number and what follows it under its own title."""
SPARK_PX = 8 * GRID
"""The width of the line after a number."""
MORE_PX = 4 * GRID
"""The width of the sign for columns beyond the edge."""
SMALL_PX = 12
"""The font of names in two lines."""


class SentenceLabel(QLabel):
    """A text, of whose lines none begins with a number that belongs to the word before."""

    _full_text = ""

    def setText(self, text: str) -> None:
        self._full_text = text
        super().setText(units.bound(plain_text(text)))

    def text(self) -> str:
        return self._full_text


def two_lines(name: Name, advance: Callable[[str], int]) -> tuple[str, str]:
    """Return a name in two lines, divided between its parts so that the longer line is as short as possible."""
    divided = [(SEPARATOR.join(name[:n]), SEPARATOR.join(name[n:])) for n in range(1, len(name))]
    return min(divided, key=lambda lines: max(map(advance, lines)), default=("".join(name), ""))


def width_in_two_lines(name: Name) -> int:
    advance = QFontMetrics(tabular_font(SMALL_PX)).horizontalAdvance
    return max(map(advance, two_lines(name, advance))) + 2 * GRID + 2


class Face:
    """A font with its metrics, which writes texts in one line."""

    def __init__(self, font: QFont) -> None:
        self.font = font
        self.metrics = QFontMetrics(font)

    def width(self, text: str) -> int:
        return self.metrics.horizontalAdvance(plain_line(text))

    def elided(self, text: str, mode: Qt.TextElideMode, width: int) -> str:
        return text if self.width(text) <= width else self.metrics.elidedText(plain_line(text), mode, width)

    def write(self, painter: QPainter, area: QRect, text: str, *, at_right: bool = False) -> None:
        painter.setFont(self.font)
        painter.drawText(area, (RIGHT if at_right else LEFT) | Qt.TextFlag.TextSingleLine, plain_line(text))


def elide_name(name: Name, face: Face, width: int) -> str:
    """Return what fits of a name: of its parts the first ones and the last, else both ends."""
    text = SEPARATOR.join(name)
    if face.width(text) <= width:
        return text
    shorter = (SEPARATOR.join([*name[:count], "…", name[-1]]) for count in range(len(name) - 2, 0, -1))
    fitting = (candidate for candidate in shorter if face.width(candidate) <= width)
    return next(fitting, None) or face.elided(text, Qt.TextElideMode.ElideMiddle, width)


def content_width(metrics: QFontMetrics, column: Column, title_suffix: str, cell: Cell) -> int:
    symbol = SYMBOL_WIDTH if cell.symbol else 0
    text, title = (metrics.horizontalAdvance(text_part) for text_part in (cell.text, f"{column.title}{title_suffix}"))
    unit = unit_width(metrics, cell.unit)
    behind = behind_width(metrics, column, cell)
    content = max(text, title) + behind if column.has_spark or (column.second and cell.unit) else text + unit + symbol
    return max(content, title) + 2 * GRID + 2


def behind_width(metrics: QFontMetrics, column: Column, cell: Cell) -> int:
    """Return the width of what follows the numbers of a column: a unit, an interval, or a line."""
    if column.has_spark:
        return SPARK_PX + PAIR_GAP
    gap = PAIR_GAP if column.second else GRID // 2
    return max(unit_width(metrics, text, gap) for text in (cell.unit, column.second if cell.unit else ""))


def unit_width(metrics: QFontMetrics, unit: str, gap: int = GRID // 2) -> int:
    return metrics.horizontalAdvance(unit) + gap if unit else 0


_NAME_MIN = 24 * GRID
_NAME_PCT = 35
"""Names that take a larger share of the view are set in two lines."""
_FIRST_SHARE = 40 * GRID
"""Pixels of spare width that each text column gets before any gets more."""
_REST = 1 << 20


@dataclass(frozen=True, slots=True)
class ColumnNeeds:
    """The needs of a column, in pixels; `names` has the widths of each of its names in one line and in two."""

    column: Column
    content: int
    title: int
    names: Collection[tuple[int, int]] = ()
    is_chosen: bool = False

    @property
    def is_text(self) -> bool:
        return self.column.shrink in ("text", "name") and not self.is_chosen

    @property
    def first(self) -> int:
        """Return its initial width: long texts wait for what the others leave, but two-line names do not."""
        share = max([self.column.most or _FIRST_SHARE, self.column.least, *(lines for _, lines in self.names)])
        return min(self.content, share) if self.is_text else self.content

    def steps(self, view: int) -> list[int]:
        match self.column.shrink:
            case "symbol":
                return [self.title, self.title, self.title, SYMBOL_ONLY, SYMBOL_ONLY]
            case "text":
                return [self.column.least] * 5
            case "name":
                most = max(_NAME_MIN, view * _NAME_PCT // 100)
                wrapped = max([_NAME_MIN, *(line if line <= most else lines for line, lines in self.names)])
                on_lines, least = (
                    min(wrapped, self.first),
                    min(self.first, most, max([_NAME_MIN, *(lines for _, lines in self.names)])),
                )
                return [self.first, on_lines, on_lines, on_lines, least]
            case "plot":
                bare = self.content - SPARK_PX - PAIR_GAP
                return [self.content, self.content, bare, bare, bare]
            case _:
                return [self.content] * 5


def divide_width(needs: Mapping[int, ColumnNeeds], view: int) -> dict[int, int]:
    """Return the width of each column in a view of that many pixels.

    Before the table becomes wider than its view, words after symbols are dropped, then texts are cut and long names set
    in two lines, then plots after numbers are dropped, then titles of symbols; each time the last columns first.
    Columns that still do not fit are reached by scrolling, and begin where their sign does: `MORE_PX` before the edge,
    which cuts none.
    """
    widths = {n: need.first for n, need in needs.items()}
    for step in zip(*(need.steps(view) for need in needs.values()), strict=True):
        for n, width in reversed(list(zip(needs, step, strict=True))):
            if sum(widths.values()) > view and not needs[n].is_chosen:
                widths[n] = min(widths[n], width)
    texts = [n for n, need in needs.items() if need.is_text]
    grants = [
        *((n, needs[n].content) for n in texts if needs[n].column.shrink == "name"),  # two lines are in small letters
        *((n, needs[n].first) for n in texts),
        *((n, needs[n].content) for n in texts),
        *((n, _REST) for n in texts[-1:]),
    ]
    ends = list(accumulate(widths.values()))
    if ends and ends[-1] > view:
        view = ends[-1] + max(0, view - MORE_PX - max((end for end in ends if end <= view - MORE_PX), default=view))
    for n, grant in grants:
        spare = max(0, view - sum(widths.values()))
        widths[n] = max(widths[n], min(grant, widths[n] + spare))
    return widths
