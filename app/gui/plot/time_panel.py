"""A plot over time: one-pixel curves, shaded phases, and redrawing of only what changed."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor, QContextMenuEvent
from PySide6.QtWidgets import QGraphicsItem, QHBoxLayout, QVBoxLayout, QWidget

from app.analysis.pyramid import Stroke, stroke_columns
from app.gui.plot.bands import Bands, Marks, Strip
from app.gui.plot.canvas import PlotCanvas, TimeAxis, ValueAxis, nice_ceiling
from app.gui.plot.curves import Curves
from app.gui.plot.legend import Legend
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import plain_tooltip, text_label
from app.records import Floats
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.plot.model import Band, CurveSource, Marker, Points

if TYPE_CHECKING:
    from app.viewmodels.charts.curves import CurvePlot

_AXIS_WIDTH = 56
_TICK_PX = 12
_NAME_LINE_PX = 16
_MIN_COLUMNS = 64


@dataclass(slots=True)
class _Curve:
    colour: int
    label: str
    source: CurveSource
    stroke: Stroke | None = None


class TimePanel(QWidget):
    """A titled plot over time whose curves are keyed by an id (a device, a run).

    Data arrive with `set_curve` or `set_source`, words with `set_value`; nothing is drawn before `refresh`, then only
    curves that changed, and only where someone can see them. Ranges are fixed by `set_x_range` and `set_y_range`;
    without the latter, y grows with the data, from 0.
    """

    def __init__(self, title: str, unit: str, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._title = title
        self._curves: dict[str, _Curve] = {}
        self._hidden: frozenset[str] = frozenset()
        self._fixed_y: tuple[float, float] | None = None
        self._y_range: tuple[float, float] | None = None
        self._fit = self._dirty = False
        self._top = 0.0
        self._x_range = (0.0, 60.0)
        self._title_label, self._unit_label = text_label(title, "heading"), text_label(unit, "caption")
        self._legend = Legend(theme)
        self._left, self._times = ValueAxis("left"), TimeAxis("bottom")
        self._canvas = PlotCanvas(self._left, self._times, margin=GRID)
        view = self._view = self._canvas.view
        self._bands, self._image, self._marks = Bands(theme, view), Curves(view), Marks(theme, view)
        self._build()
        self._canvas.painting.connect(self.refresh)
        self._canvas.hovered.connect(self._show_band_name)
        theme.changed.connect(self._restyle)
        self._restyle()

    @property
    def legend(self) -> Legend:
        """The words above the plot."""
        return self._legend

    @property
    def plot(self) -> PlotCanvas:
        """The pyqtgraph widget itself, for the pointer's signals."""
        return self._canvas

    def curve_keys(self) -> tuple[str, ...]:
        """Return the keys of the curves, in the order they came."""
        return tuple(self._curves)

    def shown_keys(self) -> tuple[str, ...]:
        """Return the keys of the curves that are not hidden."""
        return tuple(key for key in self._curves if key not in self._hidden)

    def points(self, key: str) -> tuple[Floats, Floats]:
        """Return the data last given for a curve, whole."""
        return self._curves[key].source.points()

    def columns_drawn(self, key: str) -> int:
        """Return how many pixel columns of a curve were painted last."""
        drawn = self._curves[key].stroke
        return 0 if drawn is None else int(np.isfinite(drawn.low).sum())

    def legend_text(self) -> str:
        """Return the legend as text."""
        return self._legend.text()

    def set_title(self, title: str, unit: str) -> None:
        """Set name and unit."""
        self._title_label.setText(title)
        self._unit_label.setText(unit)
        self._canvas.setAccessibleName(f"{title} over time, {unit}")

    def set_curve(self, key: str, x: Floats, y: Floats, *, colour: int, label: str) -> None:
        """Set the data of one curve; NaN in `y` is a gap. `colour` is a GPU's or run's index, `label` its legend."""
        self.set_source(key, Points(x, y), colour=colour, label=label)

    def set_source(self, key: str, source: CurveSource, *, colour: int, label: str) -> None:
        """Set where one curve's data come from, or report that they have changed."""
        self._curves[key] = _Curve(colour, label, source)
        self._dirty = True
        self._legend.set_entry(key, label, colour)

    def set_value(self, key: str, text: str) -> None:
        """Set the value next to a curve's label in the legend."""
        self._legend.set_value(key, text)

    def remove_curve(self, key: str) -> None:
        """Forget one curve."""
        del self._curves[key]
        self._dirty = True
        self._legend.remove(key)

    def hide_curves(self, keys: Collection[str]) -> None:
        """Draw every curve but these, whose names stay in the legend; a free y follows what is left."""
        self._hidden = frozenset(keys)
        self._legend.set_dimmed(keys)
        self._top = 0.0
        self._dirty = True
        self._canvas.viewport().update()

    def clear(self) -> None:
        """Forget all curves, shades and marks."""
        for key in list(self._curves):
            self.remove_curve(key)
        self._bands.set_bands(())
        self._marks.set_marks((), ())
        self._top = 0.0

    def set_bands(self, bands: Sequence[Band]) -> None:
        """Shade and name ranges of time, such as a run's phases."""
        self._bands.set_bands(bands)

    def set_marks(self, moments: Sequence[Marker], strips: Sequence[Strip] = ()) -> None:
        """Mark events, such as running out of memory, and ranges at the foot, such as throttling."""
        self._marks.set_marks(moments, strips)

    def set_crosshair(self, time: float | None) -> None:
        """Draw a line at one time, or none."""
        self._marks.set_crosshair(time)

    def set_x_range(self, start: float, end: float, *, fit: bool = False) -> None:
        """Set the range of time; with `fit`, a y that is not fixed follows the data in view, shrinking too."""
        if ((start, end), fit) == (self._x_range, self._fit):
            return
        self._x_range, self._fit = (start, end), fit
        self._view.setXRange(start, end, padding=0)
        self._forget_strokes()

    def set_y_range(self, low: float, high: float) -> None:
        """Fix y, for instance from 0 to a power limit."""
        if (low, high) != self._fixed_y:
            self._fixed_y = (low, high)
            self._scale(low, high)

    def set_auto_y(self) -> None:
        """Let y grow with the data, from 0; never shrink, so that nothing jumps."""
        self._fixed_y = None
        self._top = 0.0

    def set_counted(self, counted: bool) -> None:
        """Set whether the axis counts something, such as steps, instead of seconds."""
        self._times.set_counted(counted)

    def show_time_axis(self, shown: bool) -> None:
        """Show or hide the times under the plot; of stacked panels only the lowest needs them."""
        self._times.setStyle(showValues=shown)
        self._times.setHeight(None if shown else 4)

    def refresh(self) -> None:
        """Draw the curves that changed since the last time, if anyone can see them."""
        if not self._dirty or self.visibleRegion().isEmpty():
            return
        self._dirty = False
        ratio = self.devicePixelRatioF()
        columns = max(_MIN_COLUMNS, round(self._view.width() * ratio))
        visible = [self._curves[key] for key in self.shown_keys()]
        for curve in visible:
            if curve.stroke is None:
                curve.stroke = stroke_columns(curve.source.window(*self._x_range, columns), *self._x_range, columns)
        drawn = [(curve.stroke, curve.colour) for curve in visible if curve.stroke is not None]
        self._image.set_strokes([(line, self._theme.curve_colour(style), dash_pattern(style)) for line, style in drawn])
        self._canvas.viewport().update()  # one paint; the scene would request another next to that of the legend
        if self._fixed_y is None:
            self._follow_y([line for line, _ in drawn if math.isfinite(line.top)])

    def snapshot(self) -> "CurvePlot":
        """Return what is shown now, as a value to save a picture of."""
        from app.gui.plot.export import drawn_curve, make_curve_plot

        visible = [self._curves[key] for key in self.shown_keys()]
        curves = [drawn_curve(curve.source, self._x_range, curve.label, curve.colour) for curve in visible]
        title_and_unit = self._title_label.text(), self._unit_label.text()
        return make_curve_plot(
            title_and_unit, self._x_range, self._y_range or (0.0, 1.0), self._times, curves, self._bands.bands
        )

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer to save what is shown."""
        from app.gui.plot.export import show_plot_menu

        show_plot_menu(self, self.snapshot, self._theme, event.globalPos())

    def resizeEvent(self, event: object) -> None:
        """Draw in more detail where there are more pixels."""
        super().resizeEvent(event)  # type: ignore[arg-type]
        self._forget_strokes()

    def _forget_strokes(self) -> None:
        self._dirty = True
        for curve in self._curves.values():
            curve.stroke = None
        self._canvas.viewport().update()

    def _follow_y(self, strokes: Sequence[Stroke]) -> None:
        """Take in all data in view; shrink only where y follows a part of the data that the user has chosen."""
        if not strokes:
            return
        high = max(line.top for line in strokes)
        first = self._top == 0.0 or self._fit
        if first or high > self._top:
            self._top = nice_ceiling(high)
            self._scale(0.0, self._top)

    def _scale(self, low: float, high: float) -> None:
        """Set the range of y, with numbers at the axis from the first range on: an empty plot has none."""
        self._left.setStyle(showValues=True)
        self._y_range = low, high
        self._apply_scale()

    def _apply_scale(self, *_: object) -> None:
        """Leave room above the highest value for one line, the names of the bands."""
        if self._y_range is not None:
            low, high = self._y_range
            rest = max(_NAME_LINE_PX, self._view.height() - _NAME_LINE_PX)
            self._view.setYRange(low, high + (high - low) * _NAME_LINE_PX / rest, padding=0)

    def _show_band_name(self, time: float) -> None:
        self._canvas.setToolTip(plain_tooltip(self._bands.unnamed_at(time)))

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(GRID)
        for widget in (self._title_label, self._unit_label):
            head.addWidget(widget)
        head.addWidget(self._legend, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID // 2)
        layout.addLayout(head)
        layout.addWidget(self._canvas, 1)
        self._canvas.setAccessibleName(f"{self._title} over time, {self._unit_label.text()}")
        for item in (self._bands, self._image, self._marks):
            self._view.addItem(item, ignoreBounds=True)
        for axis in (self._left, self._times):
            axis.setStyle(tickFont=tabular_font(_TICK_PX))
        self._left.setWidth(_AXIS_WIDTH)
        self._left.enableAutoSIPrefix(False)
        self._left.setStyle(showValues=False)
        self._view.setXRange(*self._x_range, padding=0)
        self._view.sigResized.connect(self._apply_scale)
        self._canvas.setMinimumHeight(9 * GRID)

    def _restyle(self) -> None:
        colours = self._theme.colours
        self._canvas.setBackground(QColor(colours.surface))
        for axis in (self._left, self._times):
            axis.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)
            axis.setPen(pg.mkPen(colours.line))
            axis.setTextPen(pg.mkPen(colours.muted))
            axis.setStyle(tickLength=0, tickTextOffset=6, maxTickLevel=0, tickAlpha=0)
        self._dirty = True
        self.refresh()
