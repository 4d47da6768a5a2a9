"""The pyqtgraph widget of one plot with its axes; it reports pointer events as positions on the x axis."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPixmap, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsView

from app.values import units
from app.viewmodels.charts.model import clock_step, log_ticks, magnitude, round_step, tick_labels, time_labels

if TYPE_CHECKING:
    from app.gui.plot.panel_stack import PaintTurns

_LABEL_PX = 18
_MAX_LABELS = 6
_FEWEST_STEPS, _WIDTH_OF_FEWEST = 2.25, 300.0
"""The least number of time steps on an axis of this width, as in pyqtgraph; it grows with the width's square root."""
_HOUR_S, _HOURS_PX = 3_600, 72.0
"""The width of a label with hours, such as `-6:00:00`, including its gap."""


class _Axis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    _colours = ("", "")

    def set_colours(self, line: str, text: str) -> None:
        """Set the colours of lines and labels if they differ, because that takes half a millisecond."""
        if (line, text) != self._colours:
            self._colours = (line, text)
            self.setPen(pg.mkPen(line))
            self.setTextPen(pg.mkPen(text))

    def update(self) -> None:
        """Have the whole plot painted, because its widget does not listen to the scene."""
        canvas = self.getViewWidget()
        if canvas is not None:
            canvas.update_all()


class TimeAxis(_Axis):
    """A bottom axis in minutes and seconds, `0:30`, or in counts, `12,000`; negative ones carry a minus sign."""

    counted = False

    def set_counted(self, counted: bool) -> None:
        if counted is not self.counted:
            self.counted = counted
            self.picture = None
            self.update()

    def show_labels(self, is_visible: bool) -> None:
        self.setStyle(showValues=is_visible)
        self.setHeight(None if is_visible else 4)

    def tickSpacing(self, least: float, most: float, size: float) -> list[tuple[float, float]]:
        """Return the levels of ticks; from ten seconds on they are round on a clock."""
        steps = _FEWEST_STEPS * math.sqrt(max(1.0, size / _WIDTH_OF_FEWEST))
        step = None if self.counted else clock_step(abs(most - least) / steps)
        if step is not None and step >= _HOUR_S and step * size < _HOURS_PX * abs(most - least):
            step *= 2
        return super().tickSpacing(least, most, size) if step is None else [(step, 0.0)]

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        if self.counted:
            return [units.with_minus(label) for label in tick_labels(values, spacing)]
        return time_labels(values, spacing)


class ValueAxis(_Axis):
    """A left axis with thousands separators, `80,000`, and a handful of labels, no closer than their height.

    A logarithmic one's range is in decimal logarithms.
    """

    is_log = False

    def tickValues(self, least: float, most: float, size: float) -> list[tuple[float, list[float]]]:
        """Return the ticks; for a logarithmic axis round values, as logarithms."""
        if not self.is_log:
            return super().tickValues(least, most, size)  # type: ignore[no-any-return]
        ticks = log_ticks(10.0**least, 10.0**most, max(2, min(_MAX_LABELS, int(size / _LABEL_PX))))
        return [(1.0, [math.log10(value) for value, _ in ticks])]

    def tickSpacing(self, least: float, most: float, size: float) -> list[tuple[float, float]]:
        least_step = (most - least) * max(1 / _MAX_LABELS, _LABEL_PX / max(size, _LABEL_PX))
        return [(round_step(least_step), 0.0)]

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """Return the labels, with as many decimals as the spacing needs; on a logarithmic axis the values."""
        if self.is_log:
            rounded = [float(f"{10.0**value:.3g}") for value in values]
            return [
                f"{number / size:,.9f}".rstrip("0").rstrip(".") + unit
                for number in rounded
                for size, unit in [magnitude(number)]
            ]
        return tick_labels(values, spacing)


_ZOOM_PER_NOTCH = 1.25
_NOTCH_ANGLE = 120


class Paintable(Protocol):
    """Something painted in pixels on a plot's view."""

    def paint(self, painter: QPainter, area: QRectF) -> None: ...


class PlotCanvas(pg.GraphicsView):  # type: ignore[misc]  # pyqtgraph has no types
    """A view between two axes, without the forty hidden widgets of a `PlotItem`'s menu.

    The axes and layers `behind` the curves are painted once, into an image that each frame draws below the layers in
    `front`. It is repainted after changes of range, size or style, and after `renew`. With `turns` the last frame
    stays, stretched, until the canvas's turn.

    Its ranges are always set from outside; only an interactive canvas handles the wheel and drags. One that `scrolls`
    leaves the wheel without Ctrl to its parent. `hovered` carries time and value under the pointer, `zoomed` a factor
    and the fixed time; the value axis emits `value_zoomed`, `value_dragged` and `value_reset`.
    """

    painting = Signal()
    hovered = Signal(float, float)
    left = Signal()
    zoomed = Signal(float, float)
    dragged = Signal(float)
    pressed = Signal()
    opened = Signal()
    value_zoomed = Signal(float, float)
    value_dragged = Signal(float)
    value_reset = Signal()

    def __init__(self, left: pg.AxisItem, bottom: pg.AxisItem, margin: float) -> None:
        super().__init__(background=None)
        self.interactive = False
        self.scrolls = False
        self._held: QPointF | None = None
        self._holds_axis = False
        self.behind: tuple[Paintable, ...] = ()
        self.front: tuple[Paintable, ...] = ()
        self.turns: PaintTurns | None = None
        self._frame = QPixmap()
        self._ground = QPixmap()
        self._ground_area = QRectF()
        self._is_resized = self._paints_all = False
        self.setViewportUpdateMode(QGraphicsView.ViewportUpdateMode.NoViewportUpdate)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.view = pg.ViewBox(enableMouse=False, enableMenu=False)
        self.view.disableAutoRange()
        self.axes = (left, bottom)
        for axis in self.axes:
            axis.linkToView(self.view)
        self.view.sigRangeChanged.connect(lambda *_: self.update_all())
        layout = QGraphicsGridLayout()
        layout.setContentsMargins(0, margin, margin, 0)
        layout.setSpacing(0)
        for item, cell in ((left, (0, 0)), (self.view, (0, 1)), (bottom, (1, 1))):
            layout.addItem(item, *cell)
        layout.setRowStretchFactor(0, 1)
        layout.setColumnStretchFactor(1, 1)
        central = pg.GraphicsWidget()
        central.setLayout(layout)
        self.setCentralItem(central)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def update_all(self) -> None:
        """Have everything painted, unless it is being painted."""
        if not self._paints_all:
            self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Let the owner update its curves first, so that only visible plots are drawn."""
        painter = QPainter(self.viewport())
        if self._frame.isNull() or self.turns is None or self.turns.take(self.viewport()):
            self._paint_frame(painter, QRectF(event.rect()))
        else:
            painter.drawPixmap(self.viewport().rect(), self._frame)
        painter.end()

    def resizeEvent(self, _event: QResizeEvent | None) -> None:
        """Adapt the view to the new size when it becomes visible: layouts pass through several sizes."""
        self._is_resized = True

    def _paint_frame(self, painter: QPainter, part: QRectF) -> None:
        self._paints_all = part.contains(QRectF(self.viewport().rect()))
        self.fit()
        self.painting.emit()
        self._paints_all = False
        self.scene().prepareForPaint()
        area = self.view.mapRectToScene(self.view.rect())
        size = self.viewport().size() * self.devicePixelRatioF()
        if area != self._ground_area or size != self._ground.size() or any(a.picture is None for a in self.axes):
            self._ground_area = area
            self._ground = self._paint_ground(area)
        if self.turns is not None:
            self._frame = QPixmap(self._ground)
            on_frame = QPainter(self._frame)
            self._paint_on(on_frame, area, self.front)
            on_frame.end()
            painter.drawPixmap(0, 0, self._frame)
            return
        painter.drawPixmap(0, 0, self._ground)
        self._paint_on(painter, area, self.front)

    def fit(self) -> None:
        if self._is_resized:
            self._is_resized = False
            super().resizeEvent(None)

    def release(self) -> None:
        """Free the memory of the axes' image until it is painted again; the last frame stays."""
        self._ground, self._ground_area = QPixmap(), QRectF()

    def restyle(self, ground: QColor) -> None:
        """Repaint everything on this background, without waiting for a turn: the last frame has other colours."""
        self.setBackground(ground)
        self._frame = QPixmap()
        self.renew()

    def renew(self) -> None:
        """Repaint the axes and what is behind the curves."""
        self._ground_area = QRectF()
        self.viewport().update()

    def _paint_ground(self, area: QRectF) -> QPixmap:
        ratio = self.devicePixelRatioF()
        ground = QPixmap(self.viewport().size() * ratio)
        ground.setDevicePixelRatio(ratio)
        painter = QPainter(ground)
        painter.setRenderHints(self.renderHints())
        self.render(painter, QRectF(self.viewport().rect()))
        self._paint_on(painter, area, self.behind)
        painter.end()
        return ground

    def _paint_on(self, painter: QPainter, area: QRectF, layers: Sequence[Paintable]) -> None:
        painter.setClipRect(area.adjusted(0, 0, 0.5, 0.5))
        for layer in layers:
            layer.paint(painter, area)

    def wheelEvent(self, event: QWheelEvent) -> None:
        without_ctrl = not event.modifiers() & Qt.KeyboardModifier.ControlModifier
        if not self.interactive or (self.scrolls and without_ctrl):
            event.ignore()
            return
        factor = _ZOOM_PER_NOTCH ** (-event.angleDelta().y() / _NOTCH_ANGLE)
        at = self._position(event.position())
        if self._is_on_axis(event.position()):
            self.value_zoomed.emit(factor, at.y())
        else:
            self.zoomed.emit(factor, at.x())
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self.interactive and event.button() == Qt.MouseButton.LeftButton:
            self._held = self._position(event.position())
            self._holds_axis = self._is_on_axis(event.position())
            self.pressed.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = self._position(event.position())
        if self._held is not None and self._holds_axis and at.y() != self._held.y():
            self.value_dragged.emit(self._held.y() - at.y())
        elif self._held is not None and not self._holds_axis and at.x() != self._held.x():
            self.dragged.emit(self._held.x() - at.x())
        on_axis = self.interactive and self._is_on_axis(event.position())
        self.setCursor(Qt.CursorShape.SizeVerCursor if on_axis else Qt.CursorShape.ArrowCursor)
        if not on_axis:
            self.hovered.emit(at.x(), at.y())

    def mouseReleaseEvent(self, _event: QMouseEvent) -> None:
        self._held = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.interactive and event.button() == Qt.MouseButton.LeftButton:
            (self.value_reset if self._is_on_axis(event.position()) else self.opened).emit()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.left.emit()

    def _is_on_axis(self, position: QPointF) -> bool:
        return position.x() < float(self.axes[0].width())

    def _position(self, position: QPointF) -> QPointF:
        return QPointF(self.view.mapSceneToView(self.mapToScene(position.toPoint())))
