"""How the table of runs paints what other tables have not: the line of a group, and tags before a note."""

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QStyleOptionViewItem

from app.gui.theme import GRID, LEFT
from app.gui.views.cell_delegate import CELL_ROLE, AnyIndex, CellDelegate, tabular
from app.gui.views.history_model import FOLDED_ROLE
from app.viewmodels.cells import Cell
from app.viewmodels.history import WORDS_COLUMN

FOLD_WIDTH = 3 * GRID
"""Where a click folds a group, from its left."""

_CHIP_HEIGHT = 18
_CHIP_PX = 12
_FEWEST_LETTERS = 10


class HistoryDelegate(CellDelegate):
    """Adds groups and chips to the cells of all tables."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """A group's line, a cell with chips, or a cell as everywhere."""
        folded = index.data(FOLDED_ROLE) if index.column() == 0 else None
        cell = index.data(CELL_ROLE)
        if folded is None and index.column() != WORDS_COLUMN:
            self.paint_cell(painter, option, index, cell)
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if folded is None:
            self.paint_ground(painter, option)
            self._paint_own_words(painter, option, self.content_area(option, index), cell)
        else:
            self._paint_group(painter, option, cell, folded=folded)
        painter.restore()

    def _paint_group(self, painter: QPainter, option: QStyleOptionViewItem, cell: Cell, *, folded: bool) -> None:
        colours = self._theme.colours
        area = QRect(option.rect)
        painter.fillRect(area, QColor(colours.window))
        self.paint_ground(painter, option)
        _paint_arrow(painter, QPointF(area.left() + FOLD_WIDTH / 2 + 2, area.center().y() + 0.5), colours.muted, folded)
        painter.setPen(QColor(colours.text))
        painter.setFont(_bold(option.font))
        room = area.adjusted(FOLD_WIDTH + GRID // 2, 0, -GRID, 0)
        beside = painter.fontMetrics().horizontalAdvance(cell.unit)
        title = painter.fontMetrics().elidedText(
            cell.text, Qt.TextElideMode.ElideMiddle, room.width() - beside - 2 * GRID
        )
        painter.drawText(room, LEFT, title)
        room.setLeft(room.left() + painter.fontMetrics().horizontalAdvance(title) + 2 * GRID)
        painter.setFont(tabular(option.font))
        painter.setPen(QColor(colours.muted))
        painter.drawText(room, LEFT, cell.unit)

    def _paint_own_words(self, painter: QPainter, option: QStyleOptionViewItem, area: QRect, cell: Cell) -> None:
        """Chips as far as there is room, "+2" for the others, then the note."""
        colours = self._theme.colours
        small = QFont(option.font)
        small.setPixelSize(_CHIP_PX)
        painter.setFont(small)
        left = area.left()
        for n, chip in enumerate(cell.chips):
            rest = f"+{len(cell.chips) - n}"
            most = area.right() - left - (0 if n == len(cell.chips) - 1 else _chip_width(painter, rest) + GRID // 2)
            if n and _chip_width(painter, chip) > most:
                left = self._paint_chip(painter, area, left, rest)
                break
            left = self._paint_chip(painter, area, left, chip, most)
        painter.setFont(tabular(option.font))
        painter.setPen(QColor(colours.muted))
        area.setLeft(left + (GRID // 2 if cell.chips else 0))
        painter.drawText(area, LEFT, elided_note(cell.text, painter.fontMetrics(), area.width()))

    def _paint_chip(self, painter: QPainter, area: QRect, left: int, words: str, most: int = 10_000) -> int:
        """Paint one chip and return where the next begins."""
        colours = self._theme.colours
        width = min(_chip_width(painter, words), most)
        chip = QRect(left, area.y() + (area.height() - _CHIP_HEIGHT) // 2, width, _CHIP_HEIGHT)
        painter.setPen(QPen(QColor(colours.line), 1))
        painter.setBrush(QColor(colours.raised))
        painter.drawRoundedRect(QRectF(chip).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setPen(QColor(colours.text))
        within = chip.adjusted(GRID - 2, 0, 2 - GRID, 0)
        shown = painter.fontMetrics().elidedText(words, Qt.TextElideMode.ElideRight, within.width())
        painter.drawText(within, Qt.AlignmentFlag.AlignCenter, shown)
        return left + width + GRID // 2


def elided_note(note: str, metrics: QFontMetrics, room: int) -> str:
    """What of a note fits into so many pixels; a few letters of a longer one would say nothing."""
    if metrics.horizontalAdvance(note) <= room:
        return note
    shown = metrics.elidedText(note, Qt.TextElideMode.ElideRight, room)
    return shown if len(shown) >= _FEWEST_LETTERS else "…"


def _chip_width(painter: QPainter, words: str) -> int:
    return painter.fontMetrics().horizontalAdvance(words) + 2 * (GRID - 2) + 2


def _bold(font: QFont) -> QFont:
    made = tabular(font)
    made.setBold(True)
    return made


def _paint_arrow(painter: QPainter, middle: QPointF, colour: str, folded: bool) -> None:
    """To the right where folded, down where its runs are below."""
    corners = ((-2, -4), (2, 0), (-2, 4)) if folded else ((-4, -2), (0, 2), (4, -2))
    painter.setPen(QPen(QColor(colour), 1.5))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPolyline(QPolygonF([middle + QPointF(x, y) for x, y in corners]))
