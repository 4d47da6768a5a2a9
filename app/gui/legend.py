"""The words above a plot: a dash of each curve's colour, its name, its newest value."""

from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.gui.theme import GRID, Theme, figures

_DASH = 12
_BETWEEN = 2 * GRID


@dataclass(slots=True)
class _Entry:
    label: str
    colour: int
    value: str = ""
    room: int = 0


class Legend(QWidget):
    """Entries in one line, right-aligned. The room of a value only grows, so nothing jumps when numbers change."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._entries: dict[str, _Entry] = {}
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

    def text(self) -> str:
        """All entries as words."""
        return ", ".join(f"{entry.label} {entry.value}".strip() for entry in self._entries.values())

    def sizeHint(self) -> QSize:
        """One line of text."""
        return QSize(2 * GRID, QFontMetrics(figures()).height() + 2)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw from the right; where not all fit, names stay and values go."""
        painter = QPainter(self)
        painter.setFont(figures())
        metrics = painter.fontMetrics()
        needed = sum(self._width(entry, metrics, value=True) + _BETWEEN for entry in self._entries.values())
        value = needed - _BETWEEN <= self.width()
        right = self.width()
        for entry in reversed(self._entries.values()):
            width = self._width(entry, metrics, value=value)
            self._paint_entry(painter, entry, QRect(right - width, 0, width, self.height()), value=value)
            right -= width + _BETWEEN
        painter.end()

    def _width(self, entry: _Entry, metrics: QFontMetrics, *, value: bool) -> int:
        entry.room = max(entry.room, metrics.horizontalAdvance(entry.value))
        room = GRID + entry.room if value and entry.room else 0
        return _DASH + GRID // 2 + metrics.horizontalAdvance(entry.label) + room

    def _paint_entry(self, painter: QPainter, entry: _Entry, area: QRect, *, value: bool) -> None:
        colours = self._theme.colours
        middle = area.center().y() + 1
        painter.setPen(QPen(self._theme.curve_colour(entry.colour), 2))
        painter.drawLine(QPoint(area.left(), middle), QPoint(area.left() + _DASH - 2, middle))
        painter.setPen(QColor(colours.muted))
        words = area.adjusted(_DASH + GRID // 2, 0, 0, 0)
        painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, entry.label)
        if not value:
            return
        painter.setPen(QColor(colours.text))
        painter.drawText(words, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, entry.value)

    def _changed(self) -> None:
        self.setAccessibleDescription(self.text())
        self.update()
