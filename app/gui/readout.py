"""The values of many curves at a crosshair, in a small sheet beside the pointer."""

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.gui.legend import paint_swatch
from app.gui.theme import GRID, LEFT, RIGHT, Theme, figures

_MOST_IN_COLUMN = 10
_SWATCH = 24


class Reading(NamedTuple):
    """One curve: its look, its name, its value in words."""

    look: int
    label: str
    value: str


class Readout(QWidget):
    """Lies over the plots and takes no mouse; hidden while there is nothing to read."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._over = parent
        self._readings: tuple[Reading, ...] = ()
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def text(self) -> str:
        """What it says, or nothing while it is hidden."""
        return ", ".join(f"{each.label} {each.value}" for each in self._readings) if self.isVisible() else ""

    def show_readings(self, readings: Sequence[Reading], at: QPoint) -> None:
        """Show these beside a place of the parent, on the side that has the room; none hide it."""
        self._readings = tuple(readings)
        self.setVisible(bool(readings))
        if not readings:
            return
        self.resize(self.sizeHint())
        room = self._over.rect()
        right = at.x() + 2 * GRID
        left = right if right + self.width() <= room.right() else at.x() - 2 * GRID - self.width()
        self.move(max(0, left), max(0, min(at.y(), room.bottom() - self.height())))
        self.raise_()
        self.update()

    def sizeHint(self) -> QSize:
        """Columns of at most ten rows."""
        columns = -(-len(self._readings) // _MOST_IN_COLUMN)
        rows = min(len(self._readings), _MOST_IN_COLUMN)
        return QSize(columns * self._column_width() + GRID, rows * self._row_height() + GRID)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """A swatch, a name and a value a row."""
        colours = self._theme.colours
        painter = QPainter(self)
        painter.setFont(figures())
        painter.setPen(QPen(QColor(colours.line)))
        painter.setBrush(QColor(colours.surface))
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        width, height = self._column_width(), self._row_height()
        for number, reading in enumerate(self._readings):
            column, row = divmod(number, _MOST_IN_COLUMN)
            area = QRect(GRID + column * width, GRID // 2 + row * height, width - GRID, height)
            paint_swatch(painter, area.left(), area.center().y(), self._theme.curve_colour(reading.look), reading.look)
            words = area.adjusted(_SWATCH + GRID // 2, 0, 0, 0)
            painter.setPen(QColor(colours.muted))
            painter.drawText(words, LEFT, reading.label)
            painter.setPen(QColor(colours.text))
            painter.drawText(words, RIGHT, reading.value)
        painter.end()

    def _column_width(self) -> int:
        metrics = self.fontMetrics()
        label = max(metrics.horizontalAdvance(each.label) for each in self._readings)
        value = max(metrics.horizontalAdvance(each.value) for each in self._readings)
        return _SWATCH + label + value + 4 * GRID

    def _row_height(self) -> int:
        return self.fontMetrics().height() + 2
