"""Shares of a whole as bars: a stacked bar of all parts, and a bar for a single part in a table row."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QRectF, QSize
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import units
from app.gui.theme import GRID, LEFT, Theme, ink_on, tabular_font
from app.gui.widgets.basic import plain_tooltip
from app.viewmodels.history.kernel_time import ClassShare

_STACK_HEIGHT = 2 * GRID
_BAR_HEIGHT = GRID
_GAP = 1.0
_RADIUS = 2.0
_FONT_PX = 11
_NAME_MARGIN = 4.0


def paint_name(painter: QPainter, area: QRectF, name: str, ground: QColor) -> None:
    """Write a name at the left of a bar unless the bar is too short for it."""
    area = area.adjusted(_NAME_MARGIN, 0, -_NAME_MARGIN, 0)
    if painter.fontMetrics().horizontalAdvance(name) <= area.width():
        painter.setPen(ink_on(ground))
        painter.drawText(area, LEFT, name)


class StackedBar(QWidget):
    """Parts side by side, each as wide as its share, with a hairline between them."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._parts: Sequence[ClassShare] = ()
        self.setFixedHeight(_STACK_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_parts(self, parts: Sequence[ClassShare]) -> None:
        """Show these parts in order."""
        self._parts = parts
        self.setAccessibleName(", ".join(f"{part.name} {units.percent(100 * part.share, 1)}" for part in parts))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint each part in its class's colour, with its name where there is room."""
        painter = QPainter(self)
        painter.setFont(tabular_font(_FONT_PX))
        for part, area in zip(self._parts, self._areas(), strict=True):
            colour = self._theme.class_colour(part.colour)
            painter.fillRect(area.adjusted(0, 0, -min(_GAP, area.width() / 2), 0), colour)
            paint_name(painter, area, part.name, colour)
        painter.end()

    def event(self, event: QEvent) -> bool:
        """Show name and share of the part under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), plain_tooltip(self.text_at(event.pos().x())), self)
            return True
        return super().event(event)

    def text_at(self, x: float) -> str:
        """Return name and share of the part at `x` pixels, "" outside."""
        under = (p for p, area in zip(self._parts, self._areas(), strict=True) if area.left() <= x < area.right())
        return next((f"{part.name}, {units.percent(100 * part.share, 1)} of the time" for part in under), "")

    def _areas(self) -> list[QRectF]:
        left, areas = 0.0, []
        for part in self._parts:
            width = part.share * self.width()
            areas.append(QRectF(left, 0.0, width, self.height()))
            left += width
        return areas


class ShareBar(QWidget):
    """One bar from the left, `fraction` of the width, in the colour of a curve."""

    def __init__(self, theme: Theme, colour: int, fraction: float) -> None:
        super().__init__()
        self._theme = theme
        self._colour = colour
        self._fraction = fraction
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Return the height of a line's small letters."""
        return QSize(16 * GRID, _BAR_HEIGHT)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint at least one pixel: nothing in the list took no time at all."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(0, 0, 0, 0))
        painter.setBrush(self._theme.class_colour(self._colour))
        painter.drawRoundedRect(QRectF(0, 0, max(1.0, self._fraction * self.width()), self.height()), _RADIUS, _RADIUS)
        painter.end()
