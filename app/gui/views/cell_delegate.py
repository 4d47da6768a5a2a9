"""How a cell of a table of runs is painted: figures in line, their unit beside, an outcome with its symbol."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.gui.theme import GRID, LEFT, RIGHT, Theme
from app.viewmodels.cells import Cell

CELL_ROLE = Qt.ItemDataRole.UserRole
ROW_HEIGHT = 28
SYMBOL_WIDTH = 18
_BETWEEN = " · "

_SELECTED_ALPHA = 46

AnyIndex = QModelIndex | QPersistentModelIndex


class CellDelegate(QStyledItemDelegate):
    """Paints the `Cell` under `CELL_ROLE`; `unit_widths` is the room each numeric column keeps for its units."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.unit_widths: dict[int, int] = {}

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """The row's ground and the cell."""
        self.paint_cell(painter, option, index, index.data(CELL_ROLE))

    def paint_cell(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex, cell: Cell) -> None:
        """The row's ground, then symbol, words or figures, and unit."""
        painter.save()
        self.paint_ground(painter, option)
        painter.setFont(tabular(option.font))
        area = self.content_area(option, index)
        if index.column() in self.unit_widths:
            self._paint_quantity(painter, area, cell, self.unit_widths[index.column()])
        else:
            self._paint_words(painter, area, cell)
        painter.restore()

    def sizeHint(self, _option: QStyleOptionViewItem, _index: AnyIndex) -> QSize:
        """Room for one line; columns get their width from the longest text, not from every cell."""
        return QSize(6 * GRID, ROW_HEIGHT)

    def content_area(self, option: QStyleOptionViewItem, _index: AnyIndex) -> QRect:
        """Where the words of a cell go."""
        return QRect(option.rect).adjusted(GRID, 0, -GRID, 0)

    def paint_ground(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        """Selection as a wash of the accent, so that the colours of outcomes stay readable on it."""
        colours = self._theme.colours
        if option.state & QStyle.StateFlag.State_Selected:
            wash = QColor(colours.accent)
            wash.setAlpha(_SELECTED_ALPHA)
            painter.fillRect(option.rect, wash)
        elif option.state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(option.rect, QColor(colours.raised))

    def _paint_quantity(self, painter: QPainter, area: QRect, cell: Cell, unit_width: int) -> None:
        colours = self._theme.colours
        painter.setPen(QColor(colours.faint if cell.key is None else colours.text))
        painter.drawText(area.adjusted(0, 0, -unit_width, 0), RIGHT, cell.text)
        painter.setPen(QColor(colours.muted))
        painter.drawText(
            QRect(area.right() + 1 - unit_width + GRID // 2, area.y(), unit_width, area.height()), LEFT, cell.unit
        )

    def _paint_words(self, painter: QPainter, area: QRect, cell: Cell) -> None:
        colour = QColor(self._theme.tone_colour(cell.tone) if cell.tone else self._theme.colours.text)
        painter.setPen(colour)
        if cell.symbol:
            painter.drawText(area, LEFT, cell.symbol)
            area = area.adjusted(SYMBOL_WIDTH, 0, 0, 0)
        painter.drawText(area, LEFT, elided_words(cell.text, painter.fontMetrics(), area.width()))


def elided_words(words: str, metrics: QFontMetrics, room: int) -> str:
    """What fits into so many pixels: of a name in parts the first ones and the last, else its beginning and end."""
    if metrics.horizontalAdvance(words) <= room:
        return words
    parts = words.split(_BETWEEN)
    shorter = (_BETWEEN.join([*parts[:kept], "…", parts[-1]]) for kept in range(len(parts) - 2, 0, -1))
    fitting = (shown for shown in shorter if metrics.horizontalAdvance(shown) <= room)
    return next(fitting, None) or metrics.elidedText(words, Qt.TextElideMode.ElideMiddle, room)


def tabular(font: QFont) -> QFont:
    """The same font with figures of one width."""
    made = QFont(font)
    made.setFeature(QFont.Tag("tnum"), 1)
    return made
