"""The bar above plots: named ranges of time, what is read at the crosshair, and what only plots of a live run need."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
    QShortcut,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import units
from app.analysis.strokes import Stroke, stroke_columns
from app.gui.plot.legend import AXIS_WIDTH
from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import ElidedLabel, button, make_row, show_text, text_label, toggle_button
from app.viewmodels.plot.model import TIME_RANGES, Band, Curve, Panel, Plots, Span
from app.viewmodels.run.live import LiveState

_ZOOM_HINT = "Ctrl+wheel zooms, dragging pans; or click the plots and use +, −, Shift and the arrows"


class TimeBar(QWidget):
    """Offer named ranges of time for a stack of plots. Its keys act while the plots have the keyboard.

    `range_requested` has the name of a range; the other signal, and the buttons, are for a live run's plots only.

    Args:
        plots: The stack of plots.
        names: The names of the ranges, of `TIME_RANGES`.

    Thread: GUI only.
    """

    range_requested = Signal(str)
    pause_requested = Signal()

    def __init__(self, plots: PanelStack, names: Iterable[str] = TIME_RANGES) -> None:
        super().__init__()
        self.range_buttons = {
            name: toggle_button(name.capitalize(), f"{TIME_RANGES[name].help} ({number}). {_ZOOM_HINT}.")
            for number, name in enumerate(names, 1)
        }
        self._pause = button("Pause", "Freeze the view; data keep arriving (Space)", small=True)
        self.follow_button = button("Follow", "Follow new data again (F or End)", small=True)
        self.per_gpu_button = toggle_button(
            "A panel for each GPU", "One panel per quantity with all GPUs in it, or one for each (G)"
        )
        self._restore = button("All plots", "Show all plots again (Escape)", small=True)
        self.chip = text_label("", "chip")
        self.reading = ElidedLabel("muted")
        self.reading.setFont(tabular_font())
        self._connect(plots)
        self._build()

    def offer_ranges(self, ranges: Mapping[str, Span]) -> None:
        """Let the user choose among these; where all are one there is nothing to choose."""
        for range_button in self.range_buttons.values():
            range_button.setVisible(len(set(ranges.values())) > 1)

    def mark_range(self, name: str) -> None:
        """Mark the range that is shown; "" where it is none of them."""
        for range_name, range_button in self.range_buttons.items():
            range_button.setChecked(range_name == name)

    def show_model(self, state: LiveState) -> None:
        """Show which range of a live run is shown and whether the view follows."""
        self.mark_range("" if state.pause_label else state.window)
        show_text(self.chip, state.pause_label)
        self._pause.setVisible(state.growing and not state.pause_label)
        self.follow_button.setVisible(bool(state.pause_label))
        self.per_gpu_button.setVisible(state.has_several_gpus)
        self.per_gpu_button.setChecked(state.per_gpu)

    def show_reading(self, text: str) -> None:
        """Show what is known of the time at the crosshair."""
        self.reading.setText(text)

    def _connect(self, plots: PanelStack) -> None:
        for name, range_button in self.range_buttons.items():
            range_button.clicked.connect(lambda _=False, name=name: self.range_requested.emit(name))
        self._restore.clicked.connect(lambda: plots.maximise(None))
        plots.changed.connect(lambda: self._restore.setVisible(plots.maximised))
        self._pause.clicked.connect(self._request_pause)
        acts = {
            "Space": self._request_pause,
            "F": self.follow_button.click,
            "End": self.follow_button.click,
            "G": self.per_gpu_button.click,
            **{f"{number}": range_button.click for number, range_button in enumerate(self.range_buttons.values(), 1)},
        }
        for keys, act in acts.items():
            QShortcut(keys, plots, context=Qt.ShortcutContext.WidgetShortcut).activated.connect(act)

    def _request_pause(self) -> None:
        """Ask for a pause; after a run nothing arrives, so there is nothing to pause, only a part to leave."""
        if self._pause.isVisible() or self.follow_button.isVisible():
            self.pause_requested.emit()

    def _build(self) -> None:
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        buttons = *self.range_buttons.values(), self._pause, self.follow_button, self._restore
        layout = make_row(*buttons, self.chip, (self.reading, 1), parent=self, margins=0, spacing=GRID // 2)
        layout.addSpacing(2 * GRID)
        layout.addWidget(self.per_gpu_button)
        for widget in (self._pause, self.follow_button, self._restore, self.chip, self.per_gpu_button):
            widget.setVisible(False)


_CURVE_PX, _RULER_PX, _GRIP_PX = 26, 12, 6
_OUTSIDE_ALPHA = 120
_STEPS = 200
"""Data that grow are drawn anew when they have grown by this part of what is shown."""
_KEY_STEP = 0.01

Hold = Literal["start", "end", "window", "new", "position", ""]
"""What the pointer has hold of."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What is replayed, whole: when it began on the clock of its curves, how long it is, its curve and its phases."""

    start_s: float
    length_s: float
    curve: Curve | None = None
    bands: tuple[Band, ...] = ()


class Overview(QWidget):
    """The whole of what a stack of plots shows a part of. Dragging moves the part, or its ends, or makes a new one.

    In a replay a line above has its phases and where it is; `position_requested` has where it is to go on.

    Thread: GUI only.
    """

    position_requested = Signal(float)

    def __init__(self, stack: PanelStack, theme: Theme) -> None:
        super().__init__()
        self._stack = stack
        self._theme = theme
        self._recorded: Recorded | None = None
        self._position_s = 0.0
        self._extent: Span = (0.0, 0.0)
        self._origin_s = 0.0
        self._part: tuple[int, ...] = ()
        self._drawn = QPixmap()
        self._drawn_as: object = None
        self._is_stale = True
        self._hold: Hold = ""
        self._held_at = 0.0
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Overview of the whole time")
        stack.changed.connect(self._follow)
        theme.follow(self, self._redraw)
        self.hide()

    def sizeHint(self) -> QSize:
        """Return one low line, in a replay with the line of its phases."""
        return QSize(20 * GRID, _CURVE_PX + (_RULER_PX if self._recorded else 0))

    @property
    def extent(self) -> Span:
        """Everything there is, in times of the plots."""
        return self._extent[0] - self._origin_s, self._extent[1] - self._origin_s

    def show_recording(self, recorded: Recorded | None) -> None:
        """Show all of a recording from its beginning on; None for what the plots have so far."""
        self._recorded = recorded
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if recorded else Qt.FocusPolicy.NoFocus)
        self.updateGeometry()
        self._redraw()

    def show_position(self, position_s: float) -> None:
        """Show where the replay is, in seconds after its beginning."""
        if self._recorded and position_s != self._position_s:
            self._position_s = min(position_s, self._recorded.length_s)
            self.setAccessibleDescription(f"{self._position_s:.0f} of {units.with_unit(self._recorded.length_s, 's')}")
            self.update()

    def x_of(self, time: float) -> float:
        """Return the pixel of a time of the plots."""
        area, (start, end) = self._area(), self.extent
        return area.left() + (time - start) / ((end - start) or 1.0) * area.width()

    def _area(self) -> QRectF:
        return QRectF(AXIS_WIDTH, 0, max(1, self.width() - AXIS_WIDTH - GRID), self.height())

    def _time_at(self, x: float) -> float:
        area, (start, end) = self._area(), self.extent
        return min(max(start + (x - area.left()) / area.width() * (end - start), start), end)

    def _follow(self) -> None:
        """Take in what the stack shows now; draw the whole anew only where it has visibly changed."""
        plots, recorded = self._stack.offered, self._recorded
        self._origin_s = plots.origin_s
        extent = plots.extent[0] + plots.origin_s, plots.extent[1] + plots.origin_s
        if recorded is not None:
            extent = recorded.start_s, recorded.start_s + recorded.length_s
        length = extent[1] - extent[0]
        self.setVisible(bool(plots.panels) and length > 0)
        if length <= 0:
            return
        panel = _shown_panel(plots)
        curves = tuple(curve.source for curve in panel.curves) if panel and not recorded else ()
        scale = round(math.log(length) * _STEPS)  # the picture of growing data stays until they have visibly grown
        first = round(extent[0] * _STEPS / math.exp(scale / _STEPS))
        drawn_as = (curves, self._stack.hidden, scale, first, recorded)
        if drawn_as != self._drawn_as:
            self._drawn_as, self._extent, self._is_stale = drawn_as, extent, True
        part = tuple(map(round, self._edges()))
        if self._is_stale or part != self._part:
            self._part = part
            self.update()

    def _redraw(self) -> None:
        self._drawn_as = None
        self._drawn = QPixmap()  # one of other colours is not laid down until its turn
        self._follow()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Lay down the picture of the whole, cover what the plots do not show, and mark the position of a replay."""
        area, colours = self._area(), self._theme.colours
        ratio = self.devicePixelRatioF()
        is_stale = self._is_stale or self._drawn.size() != self.size() * ratio
        if is_stale and (self._drawn.isNull() or self._stack.turns.take(self)):
            self._drawn, self._is_stale = self._draw(ratio), False
        painter = QPainter(self)
        painter.drawPixmap(self.rect(), self._drawn)
        left, right = self._edges()
        lane = area.adjusted(0, self._ruler(), 0, -1)
        cover = QColor(colours.surface)
        cover.setAlpha(_OUTSIDE_ALPHA)
        painter.fillRect(QRectF(lane.left(), lane.top(), max(0.0, left - lane.left()), lane.height()), cover)
        painter.fillRect(QRectF(right, lane.top(), max(0.0, lane.right() - right), lane.height()), cover)
        painter.setPen(QPen(QColor(colours.accent), 1))
        painter.drawRect(QRectF(left, lane.top(), max(1.0, right - left - 1), lane.height() - 1))
        for edge in (left, right - 3):
            painter.fillRect(QRectF(edge, lane.center().y() - 5, 3, 10), QColor(colours.accent))
        if self._recorded:
            self._paint_position(painter, area)
        if self.hasFocus():
            painter.fillRect(0, 0, self.width(), 2, QColor(colours.accent))
        painter.end()

    def _paint_position(self, painter: QPainter, area: QRectF) -> None:
        assert self._recorded is not None
        x = area.left() + self._position_s / (self._recorded.length_s or 1.0) * area.width()
        colour = QColor(self._theme.colours.accent if self.hasFocus() else self._theme.colours.text)
        painter.fillRect(QRectF(x - 0.5, 0, 1.5, area.height()), colour)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawPolygon(QPolygonF([QPointF(x - 5, 0), QPointF(x + 5, 0), QPointF(x, _RULER_PX - 3)]))

    def _draw(self, ratio: float) -> QPixmap:
        """Draw phases and curves of the whole."""
        drawn = QPixmap(self.size() * ratio)
        drawn.setDevicePixelRatio(ratio)
        drawn.fill(QColor(self._theme.colours.surface))
        area, colours, plots = self._area(), self._theme.colours, self._stack.offered
        painter = QPainter(drawn)
        painter.setClipRect(area)
        painter.fillRect(area.adjusted(0, self._ruler(), 0, 0), QColor(colours.band))
        bands = self._recorded.bands if self._recorded else plots.bands
        shift = self._recorded.start_s - self._origin_s if self._recorded else 0.0
        for number, band in enumerate(bands):
            left, right = self.x_of(band.start + shift), self.x_of(band.end + shift)
            if band.strong or number % 2 == 0:
                shade = QColor(colours.band_measure if band.strong else colours.band)
                painter.fillRect(QRectF(left, area.top(), right - left, area.height()), shade)
        panel = _shown_panel(plots)
        recorded = self._recorded.curve if self._recorded else None
        visible_curves = [curve for curve in panel.curves if curve.key not in self._stack.hidden] if panel else []
        curves = [recorded] if recorded else visible_curves
        self._paint_curves(painter, area.adjusted(0, self._ruler() + 3, 0, -3), curves, 1.0 if recorded else 0.7)
        painter.end()
        return drawn

    def _paint_curves(self, painter: QPainter, area: QRectF, curves: Sequence[Curve], opacity: float) -> None:
        ratio = self.devicePixelRatioF()
        columns, rows = max(2, round(area.width() * ratio)), max(2, round(area.height() * ratio))
        strokes = [
            (stroke_columns(curve.source.window(*self._extent, columns), *self._extent, columns), curve.colour)
            for curve in curves
        ]
        top = max((stroke.top for stroke, _ in strokes if np.isfinite(stroke.top)), default=1.0) or 1.0
        painter.setOpacity(opacity)
        for stroke, colour in strokes:
            image = _image(stroke, top, rows, self._theme.curve_colour(colour))
            image.setDevicePixelRatio(ratio)
            painter.drawImage(area.topLeft(), image)

    def _edges(self) -> Span:
        """Return the pixels at which the part in view begins and ends."""
        area = self._area()
        start, end = (min(max(self.x_of(time), area.left()), area.right()) for time in self._stack.span)
        return start, max(end, start + 2)

    def _ruler(self) -> int:
        return _RULER_PX if self._recorded else 0

    def _hold_at(self, position: QPointF) -> Hold:
        """Return what lies under a position."""
        left, right = self._edges()
        area = self._area()
        if position.y() < self._ruler():
            return "position"
        if abs(position.x() - left) <= _GRIP_PX and left > area.left() + 1:
            return "start"
        if abs(position.x() - right) <= _GRIP_PX:
            return "end"
        is_part = right - left < area.width() - _GRIP_PX
        return "window" if is_part and left < position.x() < right else "new"

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the position, the part in view or one of its ends; elsewhere begin a new part."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._hold = self._hold_at(event.position())
            self._held_at = self._time_at(event.position().x())
            if self._hold == "position":
                self._request_position(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Drag what is held; otherwise show by the cursor what could be."""
        at, (start, end) = self._time_at(event.position().x()), self._stack.span
        if self._hold == "position":
            self._request_position(event.position().x())
        elif self._hold == "window":
            by = min(max(at - self._held_at, self.extent[0] - start), self.extent[1] - end)
            self._held_at += by
            self._request(start + by, end + by)
        elif self._hold in ("start", "end"):
            self._request(*((at, end) if self._hold == "start" else (start, at)))
        elif self._hold == "new" and at != self._held_at:
            self._request(*sorted((self._held_at, at)))
        else:
            edge = self._hold_at(event.position()) in ("start", "end")
            self.setCursor(Qt.CursorShape.SizeHorCursor if edge else Qt.CursorShape.ArrowCursor)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go; after a click outside of the part in view a replay goes on from there, else the part moves there."""
        at, (start, end) = self._time_at(event.position().x()), self._stack.span
        is_outside = self._hold == "new" and at == self._held_at and not start <= at <= end
        if is_outside and self._recorded:  # what it has not played yet would be empty
            self._request_position(event.position().x())
        elif is_outside:
            first = min(max(at - (end - start) / 2, self.extent[0]), self.extent[1] - (end - start))
            self._request(first, first + end - start)
        self._hold = ""

    def mouseDoubleClickEvent(self, _event: QMouseEvent) -> None:
        """Show everything."""
        self._hold = ""
        self._request(*self.extent)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the position of a replay: with arrows, Home and End."""
        length, now = self._recorded.length_s if self._recorded else 0.0, self._position_s
        position = {
            Qt.Key.Key_Left: now - _KEY_STEP * length,
            Qt.Key.Key_Right: now + _KEY_STEP * length,
            Qt.Key.Key_Home: 0.0,
            Qt.Key.Key_End: length,
        }.get(Qt.Key(event.key()))
        if self._recorded is None or position is None:
            super().keyPressEvent(event)
        else:
            self.position_requested.emit(min(max(position, 0.0), length))

    def _request(self, start: float, end: float) -> None:
        if end - start > (self.extent[1] - self.extent[0]) / 1e5:
            self._stack.move_to(start, end)

    def _request_position(self, x: float) -> None:
        self.position_requested.emit(self._time_at(x) - self.extent[0])


def _shown_panel(plots: Plots) -> Panel | None:
    """Return the panel whose curves stand for all: the first one with any data."""
    panels = (panel for panel in plots.panels if any(np.isfinite(curve.source.newest_s) for curve in panel.curves))
    return next(panels, None)


def _image(stroke: Stroke, top: float, rows: int, colour: QColor) -> QImage:
    """Return a line from 0 to the highest value as an image.

    1,200 columns take 0.2 ms; as lines of a painter they take 2.6 ms.
    """
    row = np.arange(rows)[:, np.newaxis]
    first, last = (np.rint((1 - np.clip(edge / top, 0, 1)) * (rows - 1)) for edge in (stroke.high, stroke.low))
    pixels = np.where((row >= first) & (row <= last), np.uint32(colour.rgba()), np.uint32(0))
    height, width = pixels.shape
    return QImage(pixels.data, width, height, 4 * width, QImage.Format.Format_ARGB32_Premultiplied).copy()
