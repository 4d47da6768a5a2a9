"""The kernels of one traced step on their streams: bars that zoom and pan, and say what they are."""

from collections import defaultdict

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import ElidedLabel, button, set_role, text_label
from app.gui.widgets.share_bars import paint_name
from app.viewmodels.charts.model import linear_ticks
from app.viewmodels.history.kernel_time import KERNEL_CLASSES
from app.viewmodels.history.step_timeline import Lanes, TimelineView

_ROW_PX = 3 * GRID
_BAR_PX = 2 * GRID
_AXIS_PX = 3 * GRID
_MAX_LABEL_PX = 22 * GRID
_FONT_PX = 11
_TICK_ROOM_PX = 90
_REACH_PX = 4
_ZOOM = 1.25
_LEAST_US = 1.0
_DRAG_PX = 3
_PAN = 0.5
"""Of the range that is shown, for a key."""
_ZOOM_KEYS: dict[int, float] = {
    Qt.Key.Key_Plus: 1 / _ZOOM**2,
    Qt.Key.Key_Equal: 1 / _ZOOM**2,
    Qt.Key.Key_Minus: _ZOOM**2,
}
_PAN_KEYS: dict[int, float] = {Qt.Key.Key_PageUp: -_PAN, Qt.Key.Key_PageDown: _PAN}
_KERNEL_KEYS: dict[int, int] = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
_ROW_KEYS: dict[int, int] = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
_NAMES = {colour: name for name, colour in KERNEL_CLASSES.values()}


class StepCanvas(QWidget):
    """Paints the streams as rows and the kernels as bars, all in one go; `described` is of the kernel pointed at.

    Shown times are microseconds since the step's start.
    """

    described = Signal(int)
    zoomed = Signal()

    def __init__(self, theme: Theme, view: TimelineView) -> None:
        super().__init__()
        self._theme = theme
        self._view = view
        self._lanes = Lanes(view)
        self._range_us = (0.0, view.step_us)
        self._selected: int | None = None
        self._held: tuple[float, float] | None = None
        self.setFont(tabular_font(_FONT_PX))
        widest = max(QFontMetricsF(self.font()).horizontalAdvance(row.label) for row in view.rows)
        self._gutter = min(widest + 2 * GRID, _MAX_LABEL_PX)
        self.setFixedHeight(len(view.rows) * _ROW_PX + _AXIS_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(view.text)

    @property
    def range_us(self) -> tuple[float, float]:
        """The times that are shown."""
        return self._range_us

    @property
    def selected(self) -> int | None:
        """Number of the selected kernel among those of the step; None if none is."""
        return None if self._selected is None else int(self._lanes.index[self._selected])

    def sizeHint(self) -> QSize:
        """Return a width that shows something."""
        return QSize(60 * GRID, self.height())

    def show_range(self, start_us: float, end_us: float) -> None:
        """Show these times, as far as the step has them."""
        length = min(max(end_us - start_us, _LEAST_US), self._view.step_us)
        start_us = min(max(start_us, 0.0), self._view.step_us - length)
        self._range_us = (start_us, start_us + length)
        self.zoomed.emit()
        self.update()

    def zoom(self, factor: float, about_us: float | None = None) -> None:
        """Show so many times as much time, about a time that stays where it is: the selected kernel or the middle."""
        start_us, end_us = self._range_us
        if about_us is None:
            about_us = (
                (start_us + end_us) / 2 if self._selected is None else float(self._lanes.start_us[self._selected])
            )
            about_us = min(max(about_us, start_us), end_us)
        self.show_range(about_us - (about_us - start_us) * factor, about_us + (end_us - about_us) * factor)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint rows, bars and the time axis."""
        painter = QPainter(self)
        colours = self._theme.colours
        self._paint_axis(painter)
        self._paint_bars(painter)
        painter.setPen(QColor(colours.muted))
        metrics = painter.fontMetrics()
        for number, row in enumerate(self._view.rows):
            area = QRectF(0, number * _ROW_PX, self._gutter - GRID, _ROW_PX)
            label = metrics.elidedText(row.label, Qt.TextElideMode.ElideMiddle, int(area.width()))
            painter.drawText(area, LEFT, label)
        if self._selected is not None:
            painter.setPen(QPen(QColor(colours.text), 1.0))
            painter.drawRect(self._area_of(self._selected).adjusted(-1.5, -1.5, 0.5, 0.5))
        if self.hasFocus():
            painter.setPen(QColor(colours.accent))
            painter.drawRect(self._plot().adjusted(-1, 0, 0, -1))
        painter.end()

    def _paint_axis(self, painter: QPainter) -> None:
        """Paint lanes and, below, round times: microseconds, or milliseconds of a longer range."""
        plot, colours = self._plot(), self._theme.colours
        for number in range(len(self._view.rows)):
            lane = QRectF(plot.left(), number * _ROW_PX + (_ROW_PX - _BAR_PX) / 2, plot.width(), _BAR_PX)
            painter.fillRect(lane, QColor(colours.band))
        start_us, end_us = self._range_us
        unit, size = ("ms", 1000.0) if end_us - start_us >= 1000 else ("µs", 1.0)
        ticks = linear_ticks(start_us / size, end_us / size, max(2, int(plot.width() / _TICK_ROOM_PX)))
        for value, label in ticks:
            x = self._x_of(value * size)
            painter.setPen(QColor(colours.line))
            painter.drawLine(QPointF(x, 0), QPointF(x, plot.bottom()))
            painter.setPen(QColor(colours.muted))
            area = QRectF(x - _TICK_ROOM_PX / 2, plot.bottom(), _TICK_ROOM_PX, _AXIS_PX)
            if area.right() <= self.width() + GRID:
                painter.drawText(area, Qt.AlignmentFlag.AlignCenter, f"{label} {unit}")

    def _paint_bars(self, painter: QPainter) -> None:
        plot = self._plot()
        bars = self._lanes.bars(*self._range_us, max(1, int(plot.width())))
        by_colour = defaultdict(list)
        top = bars.row * _ROW_PX + (_ROW_PX - _BAR_PX) / 2 + _BAR_PX * (1 - bars.high)
        height = _BAR_PX * (bars.high - bars.low)
        columns = (bars.colour, bars.left + plot.left(), top, bars.width, height)
        for colour, x, y, width, tall in zip(*(column.tolist() for column in columns), strict=True):
            by_colour[colour].append(QRectF(x, y, width, tall))
        for colour, found in by_colour.items():
            ground = self._theme.class_colour(colour)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ground)
            painter.drawRects(found)
            for bar in found:
                if bar.height() == _BAR_PX < bar.width():
                    paint_name(painter, bar, _NAMES[colour], ground)
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom about the pointer with Ctrl; without it the wheel scrolls what is around."""
        if not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            event.ignore()
            return
        self.zoom(_ZOOM ** (-event.angleDelta().y() / 120), self._time_at(event.position()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the time under the pointer by the left button."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._held = (event.position().x(), self._range_us[0])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Pan, or tell which kernel is under the pointer."""
        if self._held is not None and event.buttons() & Qt.MouseButton.LeftButton:
            x, start_us = self._held
            length = self._range_us[1] - self._range_us[0]
            start_us -= (event.position().x() - x) / self._plot().width() * length
            self.show_range(start_us, start_us + length)
            return
        found = self._kernel_at(event.position())
        shown = self._selected if found is None else found
        self.described.emit(-1 if shown is None else int(self._lanes.index[shown]))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Select the kernel that was clicked, unless the view was dragged."""
        if event.button() != Qt.MouseButton.LeftButton:
            return
        held, self._held = self._held, None
        if held is not None and abs(event.position().x() - held[0]) < _DRAG_PX:
            self._select(self._kernel_at(event.position()))

    def mouseDoubleClickEvent(self, _event: QMouseEvent) -> None:
        """Show the whole step."""
        self.show_range(0.0, self._view.step_us)

    def leaveEvent(self, _event: QEvent) -> None:
        """Tell of the selected kernel again."""
        self.described.emit(-1 if self.selected is None else self.selected)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Zoom, pan, or select another kernel."""
        key = event.key()
        start_us, end_us = self._range_us
        if key in _ZOOM_KEYS:
            self.zoom(_ZOOM_KEYS[key])
        elif key in _PAN_KEYS:
            shift = _PAN_KEYS[key] * (end_us - start_us)
            self.show_range(start_us + shift, end_us + shift)
        elif key in _KERNEL_KEYS:
            self._move_selection(_KERNEL_KEYS[key])
        elif key in _ROW_KEYS:
            self._move_row(_ROW_KEYS[key])
        elif key == Qt.Key.Key_0:
            self.show_range(0.0, self._view.step_us)
        else:
            super().keyPressEvent(event)

    def _move_selection(self, step: int) -> None:
        if self._selected is None:
            self._select(self._lanes.find(0, self._range_us[0], self._view.step_us))
        else:
            self._select(self._lanes.next_on_row(self._selected, step))

    def _move_row(self, step: int) -> None:
        """Select the kernel that runs about then on another stream."""
        if self._selected is None:
            self._move_selection(step)
            return
        row = int(self._lanes.row[self._selected]) + step
        if 0 <= row < len(self._view.rows):
            time_us = float(self._lanes.start_us[self._selected])
            self._select(self._lanes.find(row, time_us, self._view.step_us))

    def _select(self, found: int | None) -> None:
        self._selected = found
        if found is not None:
            at_us, (start_us, end_us) = float(self._lanes.start_us[found]), self._range_us
            if not start_us <= at_us < end_us:
                half = (end_us - start_us) / 2
                self.show_range(at_us - half, at_us + half)
        self.described.emit(-1 if self.selected is None else self.selected)
        self.setAccessibleDescription("" if self.selected is None else self._view.describe(self.selected))
        self.update()

    def _kernel_at(self, position: QPointF) -> int | None:
        reach_us = _REACH_PX * (self._range_us[1] - self._range_us[0]) / self._plot().width()
        row = int(position.y() // _ROW_PX)
        if position.x() < self._plot().left() or row >= len(self._view.rows):
            return None
        return self._lanes.find(row, self._time_at(position), reach_us)

    def _plot(self) -> QRectF:
        rows = len(self._view.rows) * _ROW_PX
        return QRectF(self._gutter, 0, max(1.0, self.width() - self._gutter - GRID), rows)

    def _time_at(self, position: QPointF) -> float:
        plot, (start_us, end_us) = self._plot(), self._range_us
        return start_us + (position.x() - plot.left()) / plot.width() * (end_us - start_us)

    def _x_of(self, time_us: float) -> float:
        plot, (start_us, end_us) = self._plot(), self._range_us
        return plot.left() + (time_us - start_us) / (end_us - start_us) * plot.width()

    def _area_of(self, number: int) -> QRectF:
        plot = self._plot()
        left, right = (self._x_of(float(column[number])) for column in (self._lanes.start_us, self._lanes.end_us))
        left, right = max(left, plot.left()), min(max(right, left + 1), plot.right())
        return QRectF(left, int(self._lanes.row[number]) * _ROW_PX + (_ROW_PX - _BAR_PX) / 2, right - left, _BAR_PX)


class StepTimelineWidget(QWidget):
    """The canvas with buttons that zoom, a line that says what is pointed at or selected, and notes."""

    def __init__(self, theme: Theme, view: TimelineView) -> None:
        super().__init__()
        self._view = view
        self.canvas = StepCanvas(theme, view)
        self._reading = ElidedLabel(side=Qt.AlignmentFlag.AlignLeft)
        self._whole = button("Whole step", "Show the whole step (0, or a double click)", flat=True)
        self._whole.clicked.connect(lambda: self.canvas.show_range(0.0, view.step_us))
        self.canvas.described.connect(self._describe)
        self.canvas.zoomed.connect(self._offer_whole)
        line = QHBoxLayout()
        line.addWidget(self._reading, 1)
        line.addWidget(self._whole, 0, RIGHT)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID // 2)
        column.addWidget(self.canvas)
        column.addLayout(line)
        column.addWidget(text_label(view.notes, "caption", wrap=True))
        self._describe(-1)
        self._offer_whole()

    def reading(self) -> str:
        """Return what is said of the kernel pointed at or selected."""
        return self._reading.text()

    def _describe(self, index: int) -> None:
        hint = "Ctrl+wheel or + and − zoom, dragging or Page Up and Page Down pan, the arrow keys select."
        self._reading.setText(self._view.describe(index) if index >= 0 else hint)
        set_role(self._reading, "" if index >= 0 else "muted")

    def _offer_whole(self) -> None:
        self._whole.setEnabled(self.canvas.range_us != (0.0, self._view.step_us))
