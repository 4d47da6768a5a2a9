"""The stack of plots with one time axis and crosshair: of a live, replayed or stored run, or of compared runs."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QCursor, QFocusEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from app.gui.plot.bands import Strip
from app.gui.plot.legend import Reading, Readout
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.plot.model import Panel, Plots, Span, panned, zoomed

_CROSSHAIR_STEP, _PAN_STEP = 0.01, 0.1
"""The part of the window by which an arrow moves the crosshair, and with Shift the view."""
_KEY_ZOOM = 1.5
_MAX_NEW_PLOTS = 2
_SCROLLED_HEIGHT = 12 * GRID


class _Slot:
    """A plot in its place, and what it was given of its panel."""

    def __init__(self, plot: TimePanel) -> None:
        self.plot = plot
        self.key = ""
        self._has_fixed_y = False
        self._given: dict[str, tuple[object, ...]] = {}
        self._hidden: frozenset[str] = frozenset()

    def draw(self, panel: Panel, plots: Plots, hidden: frozenset[str]) -> None:
        """Give the plot what changed since the last call, but its range of time and the values of its legend.

        Args:
            panel: The panel to show.
            plots: The plots that it belongs to.
            hidden: Keys of the curves that are not drawn.
        """
        plot = self.plot
        if self.key != panel.key:
            plot.clear()
            self.key, self._given = panel.key, {}
        plot.set_title(panel.title, panel.unit)
        plot.set_counted(plots.counts)
        if panel.y_range is not None:
            plot.set_y_range(*panel.y_range)
        elif self._has_fixed_y:
            plot.set_auto_y()
        self._has_fixed_y = panel.y_range is not None
        plot.set_bands(plots.bands)
        plot.set_marks(plots.markers, _strips(panel, plots.origin_s))
        self._give_curves(panel, plots)
        self.hide_curves(hidden)

    def hide_curves(self, keys: frozenset[str]) -> None:
        """Draw every curve but these."""
        if keys != self._hidden:
            self._hidden = keys
            self.plot.hide_curves(keys)

    def _give_curves(self, panel: Panel, plots: Plots) -> None:
        for key in self._given.keys() - {curve.key for curve in panel.curves}:
            self.plot.remove_curve(key)
            del self._given[key]
        end_s = plots.origin_s + plots.window[1]
        for curve in panel.curves:
            newest_s = min(curve.source.newest_s, end_s)  # what comes after the end of a held view changes nothing
            state = (curve.source, curve.scale, newest_s, plots.origin_s, curve.colour, curve.label)
            before = self._given.get(curve.key)
            if before == state:
                continue
            if panel.y_range is None and (before is None or before[:2] != state[:2]):
                self.plot.set_auto_y()
            self._given[curve.key] = state
            self.plot.set_source(curve.key, curve.shifted(plots.origin_s), colour=curve.colour, label=curve.label)


class PanelStack(QWidget):
    """Show `Plots` in columns. Plots are made as they are needed, and stay.

    With `staggered` the plots scroll, one is drawn in each turn of the event loop, then `drawn` comes. Otherwise all
    that changed is drawn at once, and at most two plots are new in each call. `zoomed` and `panned` tell what pointer
    and keyboard ask for, in times of the axis; plots with named ranges follow them by themselves. `moved` comes with
    another window, `crosshair_moved` with its time or None, `curve_clicked` with the key of a curve in a legend.

    Thread: GUI only.
    """

    zoomed = Signal(float, float)
    panned = Signal(float)
    moved = Signal()
    crosshair_moved = Signal(object)
    curve_clicked = Signal(str)
    drawn = Signal()

    def __init__(self, theme: Theme, *, staggered: bool = False) -> None:
        super().__init__()
        self._theme = theme
        self._staggered = staggered
        self._plots = Plots()
        self._columns = 1
        self._window: Span = (0.0, 1.0)
        self._fit = False
        self._slots: list[_Slot] = []
        self._hidden: frozenset[str] = frozenset()
        self._crosshair: float | None = None
        self._hovered: TimePanel | None = None
        self._readout = Readout(theme, self)
        self._next = 0
        self._draw_timer = QTimer(self)
        self._draw_timer.setInterval(0)
        self._draw_timer.timeout.connect(self._draw_next)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0 if staggered else GRID // 2, 0, 0)
        self._grid.setHorizontalSpacing(3 * GRID)
        self._grid.setVerticalSpacing(GRID if staggered else GRID // 2)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Plots")
        self.zoomed.connect(self._zoom)
        self.panned.connect(self._pan)

    @property
    def shown(self) -> list[TimePanel]:
        """The plots that show a panel, in order."""
        return [slot.plot for slot in self._slots[: len(self._plots.panels)]]

    @property
    def readout(self) -> Readout:
        """The values next to the pointer."""
        return self._readout

    @property
    def span(self) -> Span:
        """The range of the axis that is shown."""
        return self._window

    @property
    def shown_range(self) -> str:
        """The name of the range that is shown; "" where it is none of those offered."""
        return next((name for name, span in self._plots.ranges.items() if span == self._window), "")

    @property
    def busy(self) -> bool:
        """Whether some panels are still to be drawn."""
        return self._draw_timer.isActive()

    @property
    def crosshair(self) -> float | None:
        """The time of the crosshair on the axis."""
        return self._crosshair

    def panel(self, key: str) -> TimePanel:
        """Return the plot of the panel with that key."""
        return next(slot.plot for slot in self._slots[: len(self._plots.panels)] if slot.key == key)

    def show_plots(self, plots: Plots) -> None:
        """Show these plots with all their curves, drawing only what changed."""
        limit = len(self._slots) + _MAX_NEW_PLOTS
        if not self._staggered and len(plots.panels) > limit:
            plots = replace(plots, panels=plots.panels[:limit])
        laid_out = len(self._plots.panels), self._columns
        self._plots, self._window, self._fit, self._columns = plots, plots.window, plots.fit, plots.columns
        self._hidden = frozenset()
        if self._staggered:
            self._start()
            return
        while len(self._slots) < len(plots.panels):
            self._add_plot()
        if laid_out != (len(plots.panels), plots.columns):
            self._lay_out()
        for index in range(len(plots.panels)):
            self._draw(index)

    def set_columns(self, columns: int) -> None:
        """Lay what is shown out in so many columns."""
        if columns != self._columns:
            self._columns = columns
            self._start()

    def show_range(self, span: Span) -> None:
        """Show another range of the axis; a y that is free follows what is in view."""
        self._window, self._fit = span, True
        for plot in self.shown:
            plot.set_x_range(*span, fit=True)
        self.moved.emit()

    def show_named_range(self, name: str) -> None:
        """Show one of the ranges that the plots offer."""
        self.show_range(self._plots.ranges[name])

    def hide_curves(self, keys: Collection[str]) -> None:
        """Show every curve but these, in all panels."""
        self._hidden = frozenset(keys)
        for slot in self._slots[: len(self._plots.panels)]:
            slot.hide_curves(self._hidden)

    def set_crosshair(self, position: float | None) -> None:
        """Put the crosshair at a time of the axis, over all plots, with the values there; None removes it."""
        self._crosshair = position
        self._readout.show_readings((), QPoint())
        for slot, panel in zip(self._slots, self._plots.panels, strict=False):
            slot.plot.set_crosshair(position)
            self._show_values(slot.plot, panel)
        self.crosshair_moved.emit(position)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the crosshair with arrows, with Shift the view; zoom with plus and minus; Escape ends the crosshair."""
        start, end = self._window
        middle = (start + end) / 2 if self._crosshair is None else self._crosshair
        shifted = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        direction = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()), 0)
        if direction and shifted:
            self.panned.emit(direction * _PAN_STEP * (end - start))
        elif direction:
            self.set_crosshair(min(max(middle + direction * _CROSSHAIR_STEP * (end - start), start), end))
        elif event.key() in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoomed.emit(1 / _KEY_ZOOM, middle)
        elif event.key() == Qt.Key.Key_Minus:
            self.zoomed.emit(_KEY_ZOOM, middle)
        elif event.key() == Qt.Key.Key_Escape and self._crosshair is not None:
            self.set_crosshair(None)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Mark with a line at the top that the plots have the keyboard."""
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(0, 0, self.width(), 2, QColor(self._theme.colours.accent))
            painter.end()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Remove the crosshair, which goes with the keyboard."""
        super().focusOutEvent(event)
        self.set_crosshair(None)

    def _zoom(self, factor: float, at: float) -> None:
        if self._plots.ranges:
            self.show_range(zoomed(self._window, factor, at, self._plots.whole))

    def _pan(self, by: float) -> None:
        if self._plots.ranges:
            self.show_range(panned(self._window, by, self._plots.whole))

    def _hover(self, plot: TimePanel | None, position: float | None) -> None:
        self._hovered = plot
        self.set_crosshair(position)

    def _start(self) -> None:
        """Lay everything out, at once so that no panel is drawn in a passing size, and draw it again."""
        self._lay_out()
        self._next = 0
        if self._plots.panels:
            self._draw_timer.start()
        else:
            self.drawn.emit()

    def _draw_next(self) -> None:
        if self._next == len(self._slots):
            self._add_plot()
            self._place(self._next)
        self._draw(self._next)
        self._next += 1
        if self._next >= len(self._plots.panels):
            self._draw_timer.stop()
            self.drawn.emit()

    def _add_plot(self) -> None:
        plot = TimePanel("", "", self._theme)
        canvas = plot.plot
        canvas.interactive = True
        canvas.scrolls = plot.legend.all_or_none = self._staggered
        if self._staggered:
            plot.setMinimumHeight(_SCROLLED_HEIGHT)
        canvas.hovered.connect(lambda position: self._hover(plot, position))
        canvas.left.connect(lambda: self._hover(None, None))
        canvas.pressed.connect(self.setFocus)
        canvas.zoomed.connect(self.zoomed)
        canvas.dragged.connect(self.panned)
        plot.legend.clicked.connect(self.curve_clicked)
        self._slots.append(_Slot(plot))

    def _lay_out(self) -> None:
        count = len(self._plots.panels)
        rows = -(-count // self._columns)
        for index in range(max(self._grid.rowCount(), self._grid.columnCount(), rows, self._columns)):
            self._grid.setRowStretch(index, int(index < rows))
            self._grid.setColumnStretch(index, int(index < self._columns))
        for spare in self._slots[count:]:
            self._grid.removeWidget(spare.plot)
            spare.plot.hide()
        for index in range(min(count, len(self._slots))):
            self._place(index)

    def _place(self, index: int) -> None:
        """Place a plot row by row; where the last row would not be full, the first plot takes the room that is over."""
        in_last_row = len(self._plots.panels) % self._columns
        spare_columns = self._columns - in_last_row if in_last_row else 0
        row, column = divmod(index + (spare_columns if index else 0), self._columns)
        plot = self._slots[index].plot
        plot.show_time_axis(index >= len(self._plots.panels) - self._columns)
        self._grid.removeWidget(plot)
        self._grid.addWidget(plot, row, column, 1, 1 if index else 1 + spare_columns)

    def _draw(self, index: int) -> None:
        slot, panel = self._slots[index], self._plots.panels[index]
        slot.plot.set_x_range(*self._window, fit=self._fit)
        slot.draw(panel, self._plots, self._hidden)
        self._show_values(slot.plot, panel)
        slot.plot.setVisible(True)
        slot.plot.refresh()

    def _show_values(self, plot: TimePanel, panel: Panel) -> None:
        """Write the values into the legend, and next to the pointer where the legend has no room for them."""
        at_s = None if self._crosshair is None else self._plots.origin_s + self._crosshair
        values = {curve.key: curve.value_text if at_s is None else curve.value_at(at_s) for curve in panel.curves}
        for key, value in values.items():
            plot.set_value(key, value)
        if self._staggered and at_s is not None and plot is self._hovered and not plot.legend.shows_values:
            shown = [curve for curve in panel.curves if curve.key not in self._hidden]
            readings = [Reading(curve.colour, curve.label, values[curve.key]) for curve in shown]
            self._readout.show_readings(readings, self.mapFromGlobal(QCursor.pos()))


def _strips(panel: Panel, origin_s: float) -> Sequence[Strip]:
    """Return the times at which GPUs were throttled, a line per GPU."""
    lines = {curve.key: (line, curve.colour) for line, curve in enumerate(panel.curves)}
    return [
        Strip(each.start_s - origin_s, each.end_s - origin_s, lines[each.device][1], lines[each.device][0])
        for each in panel.throttles
    ]
