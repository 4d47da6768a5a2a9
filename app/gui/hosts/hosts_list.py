"""Monitor's list of other hosts: a line per host and per device, of which only those in sight are made and painted."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPolygonF,
    QResizeEvent,
    QStaticText,
)
from PySide6.QtWidgets import QAbstractScrollArea, QToolTip

from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import plain_tooltip
from app.viewmodels.monitor_hosts import HISTORY, DeviceLine, HostLine, HostsModel, Line

ROW = 3 * GRID
_BAR, _BAR_HEIGHT = 13 * GRID, 6
_NUMBER = 7 * GRID
_SPARK, _WIDE = 16 * GRID, 110 * GRID
_FIGURES = (("power", 9 * GRID), ("memory", 20 * GRID), ("temperature", 7 * GRID))
_BUTTON = 11 * GRID
_CONNECT = "Connect"


class HostsList(QAbstractScrollArea):
    """Shows the lines of a `HostsModel`; one is current.

    `connect_requested` and `opened` have the name of a host: to connect to it, and to show its plots.
    """

    connect_requested = Signal(str)
    opened = Signal(str)

    def __init__(self, model: HostsModel, theme: Theme) -> None:
        super().__init__()
        self._model = model
        self._theme = theme
        self._positions: list[tuple[str, int | None]] = []
        self._current = 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Hosts")
        self.setFrameShape(self.Shape.NoFrame)
        self.verticalScrollBar().setSingleStep(1)
        theme.changed.connect(self.viewport().update)

    def refresh(self) -> None:
        """Show the lines as they are now."""
        self._positions = self._model.layout()
        self._current = min(self._current, max(0, len(self._positions) - 1))
        self._fit()
        self.viewport().update()

    @property
    def wanted_height(self) -> int:
        """The height of all lines."""
        return len(self._positions) * ROW

    def displayed_text(self) -> str:
        """Return the lines in sight as one text."""
        return "\n".join(_text(line) for _, line in self._visible(self.viewport().rect()))

    def line_area(self, host: str) -> QRect:
        """Return where the line of a host is, in the viewport."""
        return self._area(self._positions.index((host, None)))

    def button_area(self, area: QRect) -> QRect:
        """Return where the button in the line of a host is that is not connected."""
        return QRect(area.right() - _BUTTON, area.top(), _BUTTON, area.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show as many lines as there is room for."""
        super().resizeEvent(event)
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the lines in sight."""
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(tabular_font())
        for row, line in self._visible(event.rect()):
            area = self._area(row)
            if row == self._current and self.hasFocus():
                painter.fillRect(area, QColor(self._theme.colours.raised))
            if isinstance(line, HostLine):
                self._paint_host(painter, area.adjusted(2 * GRID, 0, -2 * GRID, 0), line, is_first=row == 0)
            else:
                self._paint_device(painter, area.adjusted(6 * GRID, 0, -2 * GRID, 0), line)
        painter.end()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Make a line current; a host's folds or unfolds, or connects where its button is."""
        row = self._row_at(event.position().toPoint().y())
        if row is None:
            return
        self._current = row
        host, device = self._positions[row]
        line = self._model.line(host, device)
        area = self._area(row).adjusted(2 * GRID, 0, -2 * GRID, 0)
        if isinstance(line, HostLine):
            if line.can_connect and self.button_area(area).contains(event.position().toPoint()):
                self.connect_requested.emit(host)
            else:
                self._model.fold(host)
        self.refresh()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Show the plots of a device's host."""
        row = self._row_at(event.position().toPoint().y())
        if row is not None and self._positions[row][1] is not None:
            self.opened.emit(self._positions[row][0])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows move and fold, Enter shows the plots of the host, or connects to it."""
        host = self._positions[self._current][0] if self._positions else ""
        match Qt.Key(event.key()):
            case Qt.Key.Key_Up | Qt.Key.Key_Down as key:
                self._current = max(
                    0, min(len(self._positions) - 1, self._current + (1 if key == Qt.Key.Key_Down else -1))
                )
                self._show_current()
            case Qt.Key.Key_Left | Qt.Key.Key_Right as key if host:
                self._model.fold(host, key == Qt.Key.Key_Left)
                self._current = self._model.layout().index((host, None))
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if host:
                line = self._model.line(host, None)
                is_away = isinstance(line, HostLine) and line.can_connect
                (self.connect_requested if is_away else self.opened).emit(host)
            case _:
                super().keyPressEvent(event)
        self.refresh()

    def viewportEvent(self, event: QEvent) -> bool:
        """Show what does not fit as a tooltip."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            row = self._row_at(event.pos().y())
            if row is not None:
                text = _text(self._model.line(*self._positions[row]))
                QToolTip.showText(event.globalPos(), plain_tooltip(text), self)
            return True
        return super().viewportEvent(event)

    def _fit(self) -> None:
        shown = max(1, self.viewport().height() // ROW)
        bar = self.verticalScrollBar()
        bar.setRange(0, max(0, len(self._positions) - shown))
        bar.setPageStep(shown)

    def _show_current(self) -> None:
        bar = self.verticalScrollBar()
        if self._current < bar.value():
            bar.setValue(self._current)
        elif self._current >= bar.value() + bar.pageStep():
            bar.setValue(self._current - bar.pageStep() + 1)

    def _area(self, row: int) -> QRect:
        return QRect(0, (row - self.verticalScrollBar().value()) * ROW, self.viewport().width(), ROW)

    def _row_at(self, y: int) -> int | None:
        row = y // ROW + self.verticalScrollBar().value()
        return row if 0 <= row < len(self._positions) else None

    def _visible(self, area: QRect) -> list[tuple[int, Line]]:
        """Return the lines of an area with their rows."""
        first = self.verticalScrollBar().value()
        rows = range(first + area.top() // ROW, min(len(self._positions), first + area.bottom() // ROW + 1))
        return [(row, self._model.line(*self._positions[row])) for row in rows]

    def _paint_host(self, painter: QPainter, area: QRect, line: HostLine, *, is_first: bool) -> None:
        colours = self._theme.colours
        if not is_first:
            painter.fillRect(QRect(area.left(), area.top(), area.width(), 1), QColor(colours.line))
        painter.setPen(QColor(colours.muted))
        _write(
            painter,
            QRect(area.left(), area.top(), 2 * GRID, area.height()),
            LEFT,
            ("▸" if line.is_folded else "▾") if line.has_devices else "",
        )
        names = area.adjusted(3 * GRID, 0, -self._figures_width(), 0)
        painter.setFont(tabular_font(bold=True))
        painter.setPen(QColor(colours.muted if line.is_stale else colours.text))
        right = _draw(painter, names.adjusted(0, 0, -names.width() // 3, 0), line.host)
        painter.setFont(tabular_font())
        painter.setPen(QColor(colours.muted))
        figures = QRect(names.right(), area.top(), self._figures_width(), area.height())
        if line.problem:
            room = area.adjusted(right + 2 * GRID - area.left(), 0, -_BUTTON if line.can_connect else 0, 0)
            painter.setPen(QColor(self._theme.tone_colour(line.tone)))
            _draw(painter, room, line.problem)
        else:
            _draw(painter, names.adjusted(right + 2 * GRID - names.left(), 0, 0, 0), line.machine)
            if line.load_pct is not None:
                self._paint_load(painter, figures, line.load_pct, f"{line.load_pct:.0f} %", is_stale=line.is_stale)
            painter.setPen(QColor(self._theme.tone_colour(line.tone) if line.is_stale else colours.muted))
            shown = " · ".join(filter(None, (line.link, line.age)))
            _write(painter, figures.adjusted(_BAR + _NUMBER, 0, -_BUTTON if line.can_connect else 0, 0), RIGHT, shown)
        if line.can_connect:
            painter.setPen(QColor(colours.accent))
            _write(painter, self.button_area(area), RIGHT, "Try again" if line.problem else _CONNECT)

    def _paint_device(self, painter: QPainter, area: QRect, line: DeviceLine) -> None:
        colours = self._theme.colours
        names = QRect(area.left(), area.top(), area.width() - self._figures_width(), area.height())
        painter.setPen(QColor(colours.text))
        right = _draw(painter, names, line.label)
        painter.setPen(QColor(colours.muted))
        _draw(painter, names.adjusted(max(right - names.left(), 6 * GRID) + GRID, 0, -GRID, 0), line.name)
        figures = QRect(names.right(), area.top(), self._figures_width(), area.height())
        if line.lost:
            painter.setPen(QColor(colours.bad))
            _draw(painter, figures, f"Lost. {line.lost}")
            return
        self._paint_load(painter, figures, line.load_pct, line.load, is_stale=False)
        left = figures.left() + _BAR + _NUMBER + GRID
        if self._is_wide:
            self._paint_history(painter, QRectF(left, area.top() + 4, _SPARK - GRID, area.height() - 8), line.history)
            left += _SPARK
        painter.setPen(QColor(colours.text))
        for name, width in _FIGURES:
            _write(painter, QRect(left, area.top(), width, area.height()), RIGHT, getattr(line, name))
            left += width

    def _paint_load(self, painter: QPainter, area: QRect, load_pct: float | None, text: str, *, is_stale: bool) -> None:
        colours = self._theme.colours
        bar = QRectF(area.left(), area.center().y() - _BAR_HEIGHT / 2, _BAR, _BAR_HEIGHT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colours.raised))
        painter.drawRoundedRect(bar, 3, 3)
        if load_pct:
            painter.setBrush(QColor(colours.faint if is_stale else colours.accent))
            painter.drawRoundedRect(
                QRectF(bar.left(), bar.top(), max(4.0, bar.width() * min(load_pct, 100) / 100), 6), 3, 3
            )
        painter.setPen(QColor(colours.faint if is_stale else colours.text))
        _write(painter, QRect(area.left() + _BAR, area.top(), _NUMBER, area.height()), RIGHT, text)

    def _paint_history(self, painter: QPainter, area: QRectF, history: Sequence[float]) -> None:
        values = np.asarray(history, dtype=float)
        known = np.flatnonzero(~np.isnan(values))
        if known.size < 2:
            return
        x = area.right() - (values.size - 1 - known) * area.width() / (HISTORY - 1)
        y = area.bottom() - values[known] * area.height() / 100
        painter.setPen(QColor(self._theme.colours.faint))
        painter.drawPolyline(QPolygonF([QPointF(*point) for point in zip(x.tolist(), y.tolist(), strict=True)]))

    @property
    def _is_wide(self) -> bool:
        return self.viewport().width() >= _WIDE

    def _figures_width(self) -> int:
        return _BAR + _NUMBER + GRID + (_SPARK if self._is_wide else 0) + sum(width for _, width in _FIGURES)


def _draw(painter: QPainter, area: QRect, text: str) -> int:
    """Draw as much of a text as there is room for, and return where it ends."""
    shown = text
    if _prepared(text, painter.font().bold()).size().width() > area.width():
        shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, max(0, area.width()))
    return _write(painter, area, LEFT, shown)


def _write(painter: QPainter, area: QRect, alignment: Qt.AlignmentFlag, text: str) -> int:
    """Write a text that there is room for, and return where it ends."""
    made = _prepared(text, painter.font().bold())
    width = made.size().width()
    left = area.right() - width if alignment == RIGHT else area.left()
    painter.drawStaticText(QPointF(left, area.top() + (area.height() - made.size().height()) / 2), made)
    return round(left + width)


@lru_cache(maxsize=4_000)
def _prepared(text: str, bold: bool) -> QStaticText:
    """Return a text laid out once: figures repeat, and laying them out takes most of a frame."""
    made = QStaticText(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.prepare(font=tabular_font(bold=bold))
    return made


def _text(line: Line) -> str:
    if isinstance(line, HostLine):
        load = "" if line.load_pct is None else f"{line.load_pct:.0f} %"
        return " · ".join(filter(None, (line.host, line.machine, load, line.link, line.age, line.problem)))
    figures = (f"{line.label}: {line.name}", line.load, line.power, line.memory, line.temperature)
    return " · ".join([*figures, *([f"lost: {line.lost}"] if line.lost else [])])
