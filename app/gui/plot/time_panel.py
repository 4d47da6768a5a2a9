"""A plot over time: one-pixel curves, shaded phases, and redrawing only of changes."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QHideEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from app.analysis.pyramid import Stroke
from app.gui.plot.canvas import PlotCanvas, TimeAxis, ValueAxis
from app.gui.plot.curves import Curves, DrawnCurves, PanelCurve
from app.gui.plot.legend import AXIS_WIDTH, Legend
from app.gui.plot.overlays import Bands, CurveMarks, Marks
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import make_column, plain_tooltip, text_label
from app.viewmodels.charts.model import round_step
from app.viewmodels.plot.model import Look, Panel, Plots, Span, Strip

if TYPE_CHECKING:
    from app.report.charts.canvas import Drawing
    from app.viewmodels.plot.model import CurvePlot

_NAME_LINE_PX = 16
_STEPS = 4
_LOG_STEPS = 3
"""Steps per decade of a logarithmic axis, about 1, 2 and 5, at which it may end."""


def nice_ceiling(value: float) -> float:
    """Return the next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten, a round end for an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if m * power >= value * 1.02), 10 * power)


class ValueScale:
    """Sets the visible range of values: the user's choice, else the owner's fixed range, else the data's.

    A range that follows the data from zero only grows, so that nothing jumps, unless told to shrink.
    """

    def __init__(self, view: pg.ViewBox, axis: ValueAxis) -> None:
        self._view = view
        self._axis = axis
        self._look = Look()
        self._fixed: Span | None = None
        self._data_range: Span | None = None
        self._visible_range: Span | None = None
        view.sigResized.connect(self._apply)

    @property
    def span(self) -> Span:
        return self._as_values(*(self._visible_range or (0.0, 1.0)))

    def fix(self, low: float, high: float) -> None:
        """Show this range, such as 0 to a power limit, unless the user has chosen another."""
        if (low, high) != self._fixed:
            self._fixed = (low, high)
            self._choose()

    def release(self) -> None:
        """Let the range follow the data from now on."""
        self._fixed = self._data_range = None

    def release_range(self) -> None:
        """Forget the range of earlier data, some of which are no longer visible."""
        self._data_range = None

    def set_look(self, look: Look) -> None:
        self._look, self._data_range = look, None
        self._axis.is_log = look.mode == "log"
        self._choose()

    def zoomed(self, factor: float, at: float) -> Span:
        """Return a range `factor` times as long around a position of the axis."""
        low, high = self._visible_range or (0.0, 1.0)
        return self._as_values(at + (low - at) * factor, at + (high - at) * factor)

    def moved(self, by: float) -> Span:
        """Return the range moved up by this share of the axis."""
        low, high = self._visible_range or (0.0, 1.0)
        return self._as_values(low + by, high + by)

    def follow(self, strokes: Sequence[Stroke], *, shrink: bool) -> None:
        """Include all these strokes, unless user or owner have set a range.

        Args:
            strokes: The drawn strokes, in the axis's unit.
            shrink: Whether to give up unused range.
        """
        visible = [line for line in strokes if math.isfinite(line.top)]
        if self._look.values is not None or (self._fixed and self._look.mode == "zero") or not visible:
            return
        low, high = self._needed(min(line.bottom for line in visible), max(line.top for line in visible))
        if self._data_range is not None and not shrink:
            low, high = min(low, self._data_range[0]), max(high, self._data_range[1])
        if (low, high) != self._data_range:
            self._data_range = low, high
            self._choose()

    def _needed(self, low: float, high: float) -> Span:
        if self._look.mode == "zero":
            return 0.0, nice_ceiling(high)
        step = 1 / _LOG_STEPS if self._look.mode == "log" else round_step((high - low or abs(high) or 1.0) / _STEPS)
        return math.floor(low / step) * step, (math.floor(high / step) + 1) * step

    def _as_values(self, low: float, high: float) -> Span:
        return (10.0**low, 10.0**high) if self._look.mode == "log" else (low, high)

    def _choose(self) -> None:
        by_hand, log = self._look.values, self._look.mode == "log"
        chosen = (self._fixed if self._look.mode == "zero" else None) or self._data_range
        if by_hand is not None:
            chosen = (math.log10(by_hand[0]), math.log10(by_hand[1])) if log else by_hand
        if chosen is not None:
            self._visible_range = chosen
            self._axis.setStyle(showValues=True)
            self._apply()

    def _apply(self, *_: object) -> None:
        """Leave room above the highest value for a line of the bands' names; an empty plot has no numbers."""
        if self._visible_range is not None:
            low, high = self._visible_range
            height_px = max(_NAME_LINE_PX, self._view.height() - _NAME_LINE_PX)
            self._view.setYRange(low, high + (high - low) * _NAME_LINE_PX / height_px, padding=0)


_TICK_PX = 12
_MIN_COLUMNS = 64
_REACH_PX = 10
"""How near to a curve the pointer must be to select it."""


class PanelHead(QHBoxLayout):
    """The line above a plot: its name, unit and legend, and its menu's button."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.title, self.unit = text_label("", "heading"), text_label("", "caption")
        self.legend = Legend(theme)
        self.menu = QToolButton()
        self.menu.setText("⋯")
        self.menu.setAutoRaise(True)
        self.menu.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the stack has keys for it
        self.menu.setToolTip("Value axis, smoothing, pictures …")
        self.setSpacing(GRID)
        for label in (self.title, self.unit):
            self.addWidget(label)
        self.addWidget(self.legend, 1)
        self.addWidget(self.menu)

    def describe(self, title: str, unit: str, how: str) -> None:
        """Show what is plotted, in which unit, and how, if that is not obvious."""
        self.title.setText(title)
        self.unit.setText(" · ".join(filter(None, (unit, how))))
        self.menu.setAccessibleName(f"Menu of {title}")

    def mark_current(self, current: bool) -> None:
        font = self.title.font()
        font.setUnderline(current)
        self.title.setFont(font)


class TimePanel(QWidget):
    """A titled plot over time whose curves are keyed by an id (a device, a run).

    A stack gives it a whole `Panel`; nothing is drawn before `refresh`, then only visible curves that changed.
    `set_x_range` sets the range of time; that of `values` follows the data, from 0, unless it is fixed. The user's
    choices are the `look`. `plot` is the pyqtgraph widget, for the pointer's signals, `axis` the time axis, `span` its
    range; `head` is the line above. `curves`, `bands` and `marks` are painted on it: `marks` has events, ranges at the
    bottom and the crosshair.
    """

    def __init__(self, title: str, unit: str, theme: Theme, looks: dict[str, Look] | None = None) -> None:
        """Create an empty plot; the user's choices for it are added to `looks` by its panel's key."""
        super().__init__()
        self._theme = theme
        self.title, self.unit = title, unit
        self.key = ""
        self._looks = {} if looks is None else looks
        self._states: dict[str, tuple[object, ...]] = {}
        self._has_fixed_y = False
        self.curves = DrawnCurves(theme)
        self._fit = self._dirty = False
        self.span = (0.0, 60.0)
        self.head = PanelHead(theme)
        self.legend = self.head.legend
        self._left, self.axis = ValueAxis("left"), TimeAxis("bottom")
        self.plot = PlotCanvas(self._left, self.axis, margin=GRID)
        view = self._view = self.plot.view
        self.values = ValueScale(view, self._left)
        self.bands, self._lines, self.marks = Bands(theme, self.plot), Curves(view), Marks(theme, self.plot)
        self._letters = CurveMarks(theme, self.plot)
        self._build()
        self._connect()
        theme.changed.connect(self._restyle)
        self._restyle()

    @property
    def look(self) -> Look:
        return self.curves.look

    def shown_keys(self) -> tuple[str, ...]:
        """Return the keys of the curves that are not hidden."""
        return self.curves.shown_keys()

    def columns_drawn(self, key: str) -> int:
        """Return how many pixel columns of a curve were painted last."""
        drawn = self.curves[key].line
        return 0 if drawn is None else int(np.isfinite(drawn.low).sum())

    def show_times(self, is_visible: bool) -> None:
        """Show or hide the times below the curves, without changing the curves' height."""
        self.axis.show_labels(is_visible)
        self.plot.setMinimumHeight((11 if is_visible else 8) * GRID)

    def set_title(self, title: str, unit: str) -> None:
        if (title, unit) != (self.title, self.unit):
            self.title, self.unit = title, unit
            self._describe()

    def set_look(self, look: Look) -> None:
        if look != self.look:
            rescaled = (look.mode, look.values) != (self.look.mode, self.look.values)
            self.curves.look = look
            if rescaled:
                self.values.set_look(look)
            self._describe()
            self._redraw()

    def change_look(self, look: Look) -> None:
        self.set_look(look)
        self._looks[self.key] = look

    def show_panel(self, panel: Panel, plots: Plots, hidden: frozenset[str]) -> None:
        """Take changes since the last call, except for the range of time and the legend's values."""
        if self.key != panel.key:
            self.clear()
            self.key, self._states = panel.key, {}
            self.set_look(self._looks.get(panel.key, Look()))
        self.set_title(panel.title, panel.unit)
        self.set_counted(bool(plots.counts))
        if panel.y_range is not None:
            self.values.fix(*panel.y_range)
        elif self._has_fixed_y:
            self.values.release()
        self._has_fixed_y = panel.y_range is not None
        self.bands.set_bands(plots.bands)
        self.marks.set_marks(plots.markers, _strips(panel, plots.origin_s))
        self._give_curves(panel, plots)
        self.hide_curves(hidden)

    def _give_curves(self, panel: Panel, plots: Plots) -> None:
        for key in self._states.keys() - {curve.key for curve in panel.curves}:
            self.remove_curve(key)
            del self._states[key]
        end_s = plots.origin_s + plots.window[1]
        for curve in panel.curves:
            newest_s = min(curve.source.newest_s, end_s)  # data after the end of a held view change nothing
            state = (curve.source, curve.scale, newest_s, plots.origin_s, curve.colour, curve.label, curve.mark)
            last_state = self._states.get(curve.key)
            if last_state == state:
                continue
            if panel.y_range is None and (last_state is None or last_state[:2] != state[:2]):
                self.values.release()
            self._states[curve.key] = state
            source, spread = curve.shifted(plots.origin_s), curve.shifted_spread(plots.origin_s)
            drawn = PanelCurve(curve.colour, curve.label, source, curve.mark, spread)
            self.give(curve.key, drawn)

    def show_values(self, panel: Panel, at_s: float | None) -> dict[str, str]:
        """Write the values at a time, None for the newest, into the legend; return them by curve."""
        values = {curve.key: curve.value_text if at_s is None else curve.value_at(at_s) for curve in panel.curves}
        for key, value in values.items():
            self.legend.set_value(key, value)
        return values

    def give(self, key: str, curve: PanelCurve) -> None:
        """Set one curve, or report that its data have changed; without a label it is not in the legend."""
        self.curves[key] = curve
        self._dirty = True
        self.legend.set_entry(key, curve.label, curve.colour, curve.mark)

    def remove_curve(self, key: str) -> None:
        del self.curves[key]
        self._dirty = True
        self.legend.remove(key)

    def hide_curves(self, keys: Collection[str]) -> None:
        """Hide these curves, whose names stay in the legend; an automatic y axis follows the others."""
        if self.curves.hidden == frozenset(keys):
            return
        self.curves.hidden = frozenset(keys)
        self.legend.set_dimmed(keys)
        self.values.release_range()
        self._repaint()

    def raise_curve(self, key: str) -> None:
        """Highlight one curve while the others become faint; "" for none."""
        if key != self.curves.raised:
            self.curves.raised = key
            self._repaint()

    def curve_at(self, time: float, value: float) -> str:
        """Return the key of the drawn curve nearest to a position; "" if none is near."""
        (start, end), (bottom, top) = self._view.viewRange()
        reach = _REACH_PX * (top - bottom) / max(1.0, self._view.height())
        return self.curves.nearest((time - start) / ((end - start) or 1.0), value, reach)

    def clear(self) -> None:
        for key in list(self.curves):
            self.remove_curve(key)
        self.bands.set_bands(())
        self.marks.set_marks((), ())
        self.values.release()

    def name_bands(self, *, named: bool) -> None:
        """Paint the bands' names, or show them under the pointer if plots above have them."""
        if named != self.bands.named:
            self.bands.named = named
            self.plot.renew()

    def set_x_range(self, start: float, end: float, *, fit: bool = False) -> None:
        """Set the range of time; with `fit`, an automatic y axis follows the visible data, shrinking as well."""
        if ((start, end), fit) == (self.span, self._fit):
            return
        self.span, self._fit = (start, end), fit
        self._view.setXRange(start, end, padding=0)
        self._redraw()

    def set_counted(self, counted: bool) -> None:
        if counted != self.axis.counted:
            self.axis.set_counted(counted)
            self._describe()

    def refresh(self) -> None:
        """Draw the curves that changed since the last time, if visible."""
        if not self._dirty or self.visibleRegion().isEmpty():
            return
        self._dirty = False
        self.plot.fit()
        for axis in self.plot.axes:
            axis.set_colours(self._theme.colours.line, self._theme.colours.muted)
        columns = max(_MIN_COLUMNS, round(self._view.width() * self.devicePixelRatioF()))
        strokes = self.curves.draw(self.span, columns)
        self._lines.set_strokes(strokes)
        self._letters.set_lines(self.curves.marked())
        self.plot.update_all()
        self.values.follow([stroke for stroke, *_ in strokes], shrink=self._fit)

    def snapshot(self) -> "CurvePlot":
        """Return the visible content as a value, for a picture."""
        from app.gui.plot.pictures import drawn_curves, make_curve_plot, value_axis

        visible = [self.curves[key] for key in self.shown_keys()]
        curves = [drawn for curve in visible for drawn in drawn_curves(curve, self.look, self.span)]
        y_axis = value_axis(self.head.unit.text(), self.values.span, log=self.look.mode == "log")
        return make_curve_plot(self.title, self.span, y_axis, self.axis, curves, self.bands.bands)

    def drawing(self) -> "Drawing":
        from app.gui.plot.pictures import draw_stacked

        return draw_stacked([self.snapshot()], self._theme, self.width())

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.show_menu(event.globalPos())

    def show_menu(self, position: QPoint) -> None:
        from app.gui.plot.pictures import show_panel_menu

        show_panel_menu(self, position)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._redraw()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.plot.release()

    def _redraw(self) -> None:
        self.curves.redraw()
        self._repaint()

    def _repaint(self) -> None:
        self._dirty = True
        self.plot.viewport().update()

    def _set_values(self, values: tuple[float, float] | None) -> None:
        self.change_look(replace(self.look, values=values))

    def _describe(self) -> None:
        self.head.describe(self.title, self.unit, self.look.describe(counts=self.axis.counted))
        for part in (self.plot, self.plot.viewport()):  # a screen reader reaches both
            part.setAccessibleName(f"{self.title} over time, {self.head.unit.text()}")

    def _connect(self) -> None:
        canvas, menu = self.plot, self.head.menu
        canvas.painting.connect(self.refresh)
        canvas.hovered.connect(lambda time, _: canvas.setToolTip(plain_tooltip(self.bands.unnamed_at(time))))
        canvas.value_zoomed.connect(lambda factor, at: self._set_values(self.values.zoomed(factor, at)))
        canvas.value_dragged.connect(lambda by: self._set_values(self.values.moved(by)))
        canvas.value_reset.connect(lambda: self._set_values(None))
        menu.clicked.connect(lambda: self.show_menu(menu.mapToGlobal(QPoint(0, menu.height()))))

    def _build(self) -> None:
        make_column(self.head, (self.plot, 1), parent=self, margins=0, spacing=GRID // 2)
        self._describe()
        self.plot.behind, self.plot.front = (self.bands,), (self._lines, self._letters, self.marks)
        for axis in (self._left, self.axis):
            axis.setStyle(tickFont=tabular_font(_TICK_PX), tickLength=0, tickTextOffset=6, maxTickLevel=0, tickAlpha=0)
        self._left.setWidth(AXIS_WIDTH)
        self._left.enableAutoSIPrefix(False)
        self._left.setStyle(showValues=False)
        self._view.setXRange(*self.span, padding=0)

    def _restyle(self) -> None:
        self.plot.restyle(QColor(self._theme.colours.surface))
        self._repaint()


def _strips(panel: Panel, origin_s: float) -> Sequence[Strip]:
    throttled = {hold.device for hold in panel.throttles}
    curves = [curve for curve in panel.curves if curve.key in throttled]
    lines = {curve.key: (line, curve.colour) for line, curve in enumerate(curves)}
    return [
        Strip(hold.start_s - origin_s, hold.end_s - origin_s, lines[hold.device][1], lines[hold.device][0])
        for hold in panel.throttles
    ]
