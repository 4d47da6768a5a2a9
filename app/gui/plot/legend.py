"""Names and values of curves: the legend above a plot and the readout next to the crosshair."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.gui.theme import GRID, LEFT, RIGHT, Theme, ink_on, tabular_font
from app.viewmodels.charts.palette import dash_pattern

SWATCH, _DASHED_SWATCH = 12, 24
_SWATCH_HEIGHT = 3
MARK_PX = 15
AXIS_WIDTH = 56
"""Width of the numbers at the left of each plot."""
_MARK_FONT_PX = 10
_ENTRY_GAP = 2 * GRID
_DIMMED_ALPHA = 60


@dataclass(slots=True)
class _Entry:
    label: str
    colour: int
    mark: str = ""
    value: str = ""
    value_width: int = 0


class Legend(QWidget):
    """Entries in one line, right-aligned. A value's space only grows, so that nothing jumps when numbers change.

    `clicked` carries an entry's key. If not all names fit, curves' marks replace them; with `all_or_none` all entries
    are left out, because a few would mislead.
    """

    clicked = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._entries: dict[str, _Entry] = {}
        self._dimmed: frozenset[str] = frozenset()
        self.all_or_none = False
        self._areas: dict[str, QRect] = {}
        self._arranged: tuple[int, ...] = ()
        self._has_values = self._has_names = False
        self.setSizePolicy(QSizePolicy.Policy.MinimumExpanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def set_entry(self, key: str, label: str, colour: int, mark: str = "") -> None:
        """Add an entry, or change its label; a curve without a label has none.

        Its `mark` distinguishes it without colour.
        """
        entry = self._entries.get(key)
        if not label:
            return
        if entry is None or (entry.label, entry.colour, entry.mark) != (label, colour, mark):
            self._entries[key] = _Entry(label, colour, mark, entry.value if entry else "")
            self._changed()

    def set_value(self, key: str, text: str) -> None:
        """Set the value next to an entry's label; missing entries are ignored."""
        entry = self._entries.get(key)
        if entry is None or entry.value == text:
            return
        entry.value = text
        self.update()
        self.setAccessibleDescription(self.text())

    def remove(self, key: str) -> None:
        self._entries.pop(key, None)
        self._changed()

    def set_dimmed(self, keys: Collection[str]) -> None:
        """Dim the entries of curves that are not drawn."""
        self._dimmed = frozenset(keys)
        self.update()

    def text(self) -> str:
        return ", ".join(f"{entry.label} {entry.value}".strip() for entry in self._entries.values())

    @property
    def shows_values(self) -> bool:
        return _line_width(self._widths(QFontMetrics(tabular_font()), value=True).values()) <= self.width()

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(tabular_font())
        widths = list(self._widths(metrics, value=False).values()) if self.all_or_none else []
        return QSize(widths[0] if len(widths) == 1 else 2 * GRID, metrics.height() + 2)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        key = next((key for key, area in self._areas.items() if area.contains(event.position().toPoint())), None)
        if key is not None and event.button() == Qt.MouseButton.LeftButton:
            self.clicked.emit(key)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(tabular_font())
        metrics = painter.fontMetrics()
        for entry in self._entries.values():
            entry.value_width = max(entry.value_width, metrics.horizontalAdvance(entry.value))
        arranged = (self.width(), self.height(), *(entry.value_width for entry in self._entries.values()))
        if arranged != self._arranged:
            self._arranged = arranged
            self._arrange(metrics)
        for key, area in self._areas.items():
            self._paint_entry(painter, key, area)
        painter.end()

    def _arrange(self, metrics: QFontMetrics) -> None:
        """Place entries from the right; without enough room, drop values, then marked names, then entries."""
        self._has_names = True
        widths = self._widths(metrics, value=True)
        self._has_values = _line_width(widths.values()) <= self.width()
        if not self._has_values:
            widths = self._widths(metrics, value=False)
            self._has_names = self.all_or_none or _line_width(widths.values()) <= self.width()
        if not self._has_names:
            widths |= {key: swatch_width(entry.colour) for key, entry in self._entries.items() if entry.mark}
        visible_keys = list(widths)
        while visible_keys and _line_width(widths[key] for key in visible_keys) > self.width():
            visible_keys = [] if self.all_or_none else visible_keys[:-1]
        right = self.width()
        self._areas = {}
        for key in reversed(visible_keys):
            self._areas[key] = QRect(right - widths[key], 0, widths[key], self.height())
            right -= widths[key] + _ENTRY_GAP

    def _widths(self, metrics: QFontMetrics, *, value: bool) -> dict[str, int]:
        return {key: self._width(entry, metrics, value=value) for key, entry in self._entries.items()}

    def _width(self, entry: _Entry, metrics: QFontMetrics, *, value: bool) -> int:
        room = GRID + entry.value_width if value and entry.value_width else 0
        return swatch_width(entry.colour) + GRID // 2 + metrics.horizontalAdvance(entry.label) + room

    def _paint_entry(self, painter: QPainter, key: str, area: QRect) -> None:
        entry, dimmed, colours = self._entries[key], key in self._dimmed, self._theme.colours
        text_area = area.adjusted(swatch_width(entry.colour) + GRID // 2, 0, 0, 0)
        colour = self._theme.curve_colour(entry.colour)
        colour.setAlpha(_DIMMED_ALPHA if dimmed else 255)
        paint_swatch(painter, area.left(), area.center().y(), colour, entry.colour, entry.mark, self._theme)
        if self._has_names or not entry.mark:
            painter.setPen(QColor(colours.faint if dimmed else colours.muted))
            painter.drawText(text_area, LEFT, entry.label)
        if self._has_values:
            painter.setPen(QColor(colours.text))
            painter.drawText(text_area, RIGHT, entry.value)

    def _changed(self) -> None:
        self._arranged = ()
        self.setAccessibleDescription(self.text())
        self.updateGeometry()
        self.update()


def _line_width(widths: Iterable[int]) -> int:
    return sum(width + _ENTRY_GAP for width in widths) - _ENTRY_GAP


def swatch_width(style: int) -> int:
    """Return a swatch's width in pixels: a dash needs more of them to be visible."""
    return _DASHED_SWATCH if dash_pattern(style) else SWATCH


def paint_swatch(
    painter: QPainter, left: int, middle: int, colour: QColor, style: int, mark: str = "", theme: Theme | None = None
) -> None:
    """Paint a piece of a line, with its mark, which needs the theme, in the middle."""
    x, end = left, left + swatch_width(style)
    for segment, pixels in enumerate(dash_pattern(style) * _DASHED_SWATCH or (SWATCH,)):
        if segment % 2 == 0 and x < end:
            painter.fillRect(QRect(x, middle - 1, min(pixels, end - x), _SWATCH_HEIGHT), colour)
        x += pixels
    if mark and theme is not None:
        paint_mark(painter, QPointF((left + end) / 2, middle + 0.5), colour, mark, theme)


def paint_mark(painter: QPainter, centre: QPointF, colour: QColor, mark: str, theme: Theme) -> None:
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(theme.colours.surface), 1))
    painter.setBrush(colour)
    area = QRectF(centre.x() - MARK_PX / 2, centre.y() - MARK_PX / 2, MARK_PX, MARK_PX).adjusted(0.5, 0.5, -0.5, -0.5)
    painter.drawEllipse(area)
    painter.setFont(tabular_font(_MARK_FONT_PX, bold=True))
    painter.setPen(ink_on(colour))
    painter.drawText(area, Qt.AlignmentFlag.AlignCenter, mark)
    painter.restore()


_MAX_ROWS_PER_COLUMN = 10
_SWATCH_SPACE = 24
_MAX_NAME_PX = 440


class Reading(NamedTuple):
    """One curve: its look, its name, and its value as text."""

    style: int
    label: str
    value: str
    mark: str = ""


class Readout(QWidget):
    """Lies over the plots without taking the mouse; hidden while there is nothing to read."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._plots = parent
        self._readings: tuple[Reading, ...] = ()
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def text(self) -> str:
        return ", ".join(f"{reading.label} {reading.value}" for reading in self._readings) if self.isVisible() else ""

    def show_readings(self, readings: Sequence[Reading], at: QPoint) -> None:
        """Show these next to a position of the parent, on the side with room; hide without readings."""
        self._readings = tuple(readings)
        self.setVisible(bool(readings))
        if not readings:
            return
        self.resize(self.sizeHint())
        bounds = self._plots.rect()
        right = at.x() + 2 * GRID
        left = right if right + self.width() <= bounds.right() else at.x() - 2 * GRID - self.width()
        self.move(max(0, left), max(0, min(at.y(), bounds.bottom() - self.height())))
        self.raise_()
        self.update()

    def sizeHint(self) -> QSize:
        columns = -(-len(self._readings) // _MAX_ROWS_PER_COLUMN)
        rows = min(len(self._readings), _MAX_ROWS_PER_COLUMN)
        return QSize(columns * self._column_width() + GRID, rows * self._row_height() + GRID)

    def paintEvent(self, _event: QPaintEvent) -> None:
        colours = self._theme.colours
        painter = QPainter(self)
        painter.setFont(tabular_font())
        painter.setPen(QPen(QColor(colours.line)))
        painter.setBrush(QColor(colours.surface))
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        width, height = self._column_width(), self._row_height()
        for number, reading in enumerate(self._readings):
            column, row = divmod(number, _MAX_ROWS_PER_COLUMN)
            area = QRect(GRID + column * width, GRID // 2 + row * height, width - GRID, height)
            colour, style = self._theme.curve_colour(reading.style), reading.style
            paint_swatch(painter, area.left(), area.center().y(), colour, style, reading.mark, self._theme)
            text_area = area.adjusted(_SWATCH_SPACE + GRID // 2, 0, 0, 0)
            painter.setPen(QColor(colours.muted))
            name = painter.fontMetrics().elidedText(reading.label, Qt.TextElideMode.ElideMiddle, _MAX_NAME_PX)
            painter.drawText(text_area, LEFT, name)
            painter.setPen(QColor(colours.text))
            painter.drawText(text_area, RIGHT, reading.value)
        painter.end()

    def _column_width(self) -> int:
        metrics = self.fontMetrics()
        label = min(_MAX_NAME_PX, max(metrics.horizontalAdvance(reading.label) for reading in self._readings))
        value = max(metrics.horizontalAdvance(reading.value) for reading in self._readings)
        return _SWATCH_SPACE + label + value + 4 * GRID

    def _row_height(self) -> int:
        return self.fontMetrics().height() + 2
