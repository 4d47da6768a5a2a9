"""The words above a plot: a swatch in each curve's look, its name, its newest value."""

from collections.abc import Collection
from dataclasses import dataclass

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.gui.theme import GRID, LEFT, RIGHT, Theme, figures
from app.viewmodels.looks import dash_of

SWATCH, _DASHED_SWATCH = 12, 24
_SWATCH_HEIGHT = 3
_BETWEEN = 2 * GRID
_OFF_ALPHA = 60


@dataclass(slots=True)
class _Entry:
    label: str
    colour: int
    value: str = ""
    room: int = 0


class Legend(QWidget):
    """Entries in one line, right-aligned. The room of a value only grows, so nothing jumps when numbers change.

    `clicked` tells an entry's key. With `all_or_none` names that do not all fit are left out: a few would mislead.
    """

    clicked = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._entries: dict[str, _Entry] = {}
        self._off: frozenset[str] = frozenset()
        self.all_or_none = False
        self._areas: dict[str, QRect] = {}
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def set_entry(self, key: str, label: str, colour: int) -> None:
        """Add an entry, or change the word of one; a curve without a word has none."""
        entry = self._entries.get(key)
        if not label:
            return
        if entry is None or (entry.label, entry.colour) != (label, colour):
            self._entries[key] = _Entry(label, colour, entry.value if entry else "")
            self._changed()

    def set_value(self, key: str, text: str) -> None:
        """The number beside an entry's word; entries that do not exist are ignored."""
        entry = self._entries.get(key)
        if entry is not None and entry.value != text:
            entry.value = text
            self.update()
            self.setAccessibleDescription(self.text())

    def remove(self, key: str) -> None:
        """Forget an entry."""
        self._entries.pop(key, None)
        self._changed()

    def set_off(self, keys: Collection[str]) -> None:
        """Which entries are of curves that are not drawn now: they stay, but faint."""
        self._off = frozenset(keys)
        self.update()

    def text(self) -> str:
        """All entries as words."""
        return ", ".join(f"{entry.label} {entry.value}".strip() for entry in self._entries.values())

    @property
    def tells_values(self) -> bool:
        """Whether there is room for the values of all entries."""
        return self._needed(QFontMetrics(figures())) <= self.width()

    def sizeHint(self) -> QSize:
        """One line of text."""
        return QSize(2 * GRID, QFontMetrics(figures()).height() + 2)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """A click on an entry."""
        key = next((key for key, area in self._areas.items() if area.contains(event.position().toPoint())), None)
        if key is not None and event.button() == Qt.MouseButton.LeftButton:
            self.clicked.emit(key)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw from the right; where not all fit, values go first, then the last entries."""
        painter = QPainter(self)
        painter.setFont(figures())
        metrics = painter.fontMetrics()
        value = self._needed(metrics) <= self.width()
        widths = {key: self._width(entry, metrics, value=value) for key, entry in self._entries.items()}
        shown = list(widths)
        while shown and sum(widths[key] + _BETWEEN for key in shown) - _BETWEEN > self.width():
            shown = [] if self.all_or_none else shown[:-1]
        right = self.width()
        self._areas = {}
        for key in reversed(shown):
            area = QRect(right - widths[key], 0, widths[key], self.height())
            self._paint_entry(painter, key, area, value=value)
            self._areas[key] = area
            right -= widths[key] + _BETWEEN
        painter.end()

    def _needed(self, metrics: QFontMetrics) -> int:
        """The width of all entries with their values."""
        return sum(self._width(entry, metrics, value=True) + _BETWEEN for entry in self._entries.values()) - _BETWEEN

    def _width(self, entry: _Entry, metrics: QFontMetrics, *, value: bool) -> int:
        entry.room = max(entry.room, metrics.horizontalAdvance(entry.value))
        room = GRID + entry.room if value and entry.room else 0
        return swatch_width(entry.colour) + GRID // 2 + metrics.horizontalAdvance(entry.label) + room

    def _paint_entry(self, painter: QPainter, key: str, area: QRect, *, value: bool) -> None:
        entry, colours = self._entries[key], self._theme.colours
        off = key in self._off
        colour = self._theme.curve_colour(entry.colour)
        colour.setAlpha(_OFF_ALPHA if off else 255)
        paint_swatch(painter, area.left(), area.center().y(), colour, entry.colour)
        painter.setPen(QColor(colours.faint if off else colours.muted))
        words = area.adjusted(swatch_width(entry.colour) + GRID // 2, 0, 0, 0)
        painter.drawText(words, LEFT, entry.label)
        if not value:
            return
        painter.setPen(QColor(colours.text))
        painter.drawText(words, RIGHT, entry.value)

    def _changed(self) -> None:
        self.setAccessibleDescription(self.text())
        self.update()


def swatch_width(look: int) -> int:
    """The pixels a swatch takes: a dash needs more of them to be seen."""
    return _DASHED_SWATCH if dash_of(look) else SWATCH


def paint_swatch(painter: QPainter, left: int, middle: int, colour: QColor, look: int) -> None:
    """A short stretch of a curve in its look."""
    at, end = left, left + swatch_width(look)
    for turn, pixels in enumerate(dash_of(look) * _DASHED_SWATCH or (SWATCH,)):
        if turn % 2 == 0 and at < end:
            painter.fillRect(QRect(at, middle - 1, min(pixels, end - at), _SWATCH_HEIGHT), colour)
        at += pixels
