"""The stack of plots with one time axis and crosshair: for a live or stored run, or for compared runs."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QCursor, QFocusEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from app.gui.plot.legend import Reading, Readout
from app.gui.theme import GRID, Theme
from app.viewmodels.plot.model import Panel, Plots, Span, limited

if TYPE_CHECKING:
    from app.gui.plot.time_panel import TimePanel
    from app.viewmodels.plot.model import Look

_CROSSHAIR_STEP, _PAN_STEP = 0.01, 0.1
"""The share of the window by which an arrow moves the crosshair, and with Shift the view."""
_KEY_ZOOM = 1.5
_TURN_S = 0.006
"""Time for painting in one turn of the event loop."""
_SIDEWAYS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
_CURVES = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
_PLOTS = {Qt.Key.Key_PageUp: -1, Qt.Key.Key_PageDown: 1}
_ZOOMS = {Qt.Key.Key_Plus: 1 / _KEY_ZOOM, Qt.Key.Key_Equal: 1 / _KEY_ZOOM, Qt.Key.Key_Minus: _KEY_ZOOM}


class StackKeys(QObject):
    """Handles the keys of a focused stack.

    Left and right move the crosshair, with Shift the view; plus and minus zoom; up and down raise a curve; Page Up and
    Page Down choose a plot, Enter shows it alone, the menu key its menu. Escape ends one of these after the other.
    """

    def __init__(self, stack: "PanelStack") -> None:
        super().__init__(stack)
        self._stack = stack
        self._index = -1
        stack.installEventFilter(self)

    def eventFilter(self, _stack: QObject, event: QEvent) -> bool:
        """Handle the keys that mean something here, including Escape if the screen has a shortcut for it."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride:
            if event.key() == Qt.Key.Key_Escape and self._has_something_to_end():
                event.accept()
                return True
            return False
        if event.type() == QEvent.Type.FocusOut:
            self._choose_plot(-1)
        return isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and self._press(event)

    def _press(self, event: QKeyEvent) -> bool:
        stack, key = self._stack, Qt.Key(event.key())
        start, end = stack.span
        middle = (start + end) / 2 if stack.crosshair is None else stack.crosshair
        if key in _SIDEWAYS and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            stack.pan(_SIDEWAYS[key] * _PAN_STEP * (end - start))
        elif key in _SIDEWAYS:
            stack.set_crosshair(min(max(middle + _SIDEWAYS[key] * _CROSSHAIR_STEP * (end - start), start), end))
        elif key in _ZOOMS:
            stack.zoom(_ZOOMS[key], middle)
        elif key in _CURVES:
            self._raise_next(_CURVES[key])
        elif key in _PLOTS and stack.visible_plots:
            self._choose_plot((max(self._index, -1 if _PLOTS[key] > 0 else 0) + _PLOTS[key]) % len(stack.visible_plots))
        else:
            return self._act_on_plot(key)
        return True

    def _act_on_plot(self, key: Qt.Key) -> bool:
        stack = self._stack
        if key == Qt.Key.Key_Escape and self._has_something_to_end():
            self._end_innermost()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and 0 <= self._index < len(stack.visible_plots):
            stack.maximise(stack.visible_plots[self._index])
        elif key == Qt.Key.Key_Menu and stack.visible_plots:
            plot = stack.visible_plots[max(0, min(self._index, len(stack.visible_plots) - 1))]
            plot.show_menu(plot.mapToGlobal(QPoint(0, 0)))
        else:
            return False
        return True

    def _raise_next(self, by: int) -> None:
        """Raise the curve after the raised one, or after the last none."""
        keys = list(dict.fromkeys(["", *(key for plot in self._stack.visible_plots for key in plot.shown_keys())]))
        current = keys.index(self._stack.raised) if self._stack.raised in keys else 0
        self._stack.raise_curve(keys[(current + by) % len(keys)])

    def _choose_plot(self, index: int) -> None:
        self._index = index
        for number, plot in enumerate(self._stack.visible_plots):
            plot.head.mark_current(number == index)

    def _has_something_to_end(self) -> bool:
        stack = self._stack
        return bool(stack.crosshair is not None or stack.raised or self._index >= 0 or stack.maximised)

    def _end_innermost(self) -> None:
        stack = self._stack
        if stack.crosshair is not None or stack.raised:
            stack.raise_curve("")
            stack.set_crosshair(None)
        elif self._index >= 0:
            self._choose_plot(-1)
        else:
            stack.maximise(None)


class PanelGrid(QGridLayout):
    """Places plots row by row; if the last row would not be full, the first plot takes the remaining space."""

    def __init__(self, parent: QWidget, *, scrolls: bool) -> None:
        super().__init__(parent)
        self._scrolls = scrolls
        self._count, self._columns = 0, 1
        self.setContentsMargins(0, 0 if scrolls else GRID // 2, 0, 0)
        self.setHorizontalSpacing(3 * GRID)
        self.setVerticalSpacing(GRID if scrolls else GRID // 2)

    def arrange(self, plots: "Sequence[TimePanel]", count: int, columns: int) -> None:
        """Place the first plots, and hide the others. Plots that do not exist yet are placed one by one."""
        self._count, self._columns = count, columns
        rows = -(-count // columns)
        for index in range(max(self.rowCount(), self.columnCount(), rows, columns)):
            self.setRowStretch(index, int(index < rows))
            self.setColumnStretch(index, int(index < columns))
        for spare in plots[count:]:
            self.removeWidget(spare)
            spare.hide()
        for index, plot in enumerate(plots[:count]):
            self.place(index, plot)

    def place(self, index: int, plot: "TimePanel") -> None:
        """Place one plot; the lowest show times below them, and the highest too if those may be out of sight."""
        in_last_row = self._count % self._columns
        spare_columns = self._columns - in_last_row if in_last_row else 0
        row, column = divmod(index + (spare_columns if index else 0), self._columns)
        plot.show_times(index >= self._count - self._columns or (self._scrolls and row == 0))
        self.removeWidget(plot)
        self.addWidget(plot, row, column, 1, 1 if index else 1 + spare_columns)


class PaintTurns(QObject):
    """Spreads the painting of several widgets over turns of the event loop. Thread: GUI only."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._end_s = 0.0
        self._waiting: list[QWidget] = []
        self._turn = QTimer(self, interval=0, singleShot=True)
        self._turn.timeout.connect(self._update_waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def lead(self, widget: QWidget) -> None:
        """Include the painting of a widget that does not wait for turns; it is painted before the others."""
        widget.installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        """Begin the turn when a widget is painted that does not wait."""
        if event.type() == QEvent.Type.Paint:
            self._begin()
        return False

    def take(self, widget: QWidget) -> bool:
        """Return whether a widget may be painted in this turn; if not, it is painted in the next one."""
        self._begin()
        is_time = time.monotonic() < self._end_s
        if not is_time:
            self._waiting.append(widget)
        return is_time

    def _begin(self) -> None:
        if not self._turn.isActive():
            self._end_s = time.monotonic() + _TURN_S
            self._turn.start()

    def _update_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for widget in waiting:
            widget.update()


class PanelStack(QWidget):
    """Shows `Plots` in columns. Plots are created when needed, and kept.

    With `staggered` the plots scroll, one is drawn in each turn of the event loop, then `drawn` is emitted. Otherwise
    all changes are drawn together, except for new plots, one per turn. `range_requested` carries the range that the
    user requests; plots with named ranges show it by themselves. `crosshair_moved` is emitted with its time or None,
    `curve_clicked` with the key of a curve in a legend, `changed` for other changes, including another range.
    `offered` has all plots, including those behind a maximised one. `span` is the visible range, `crosshair`
    its time or None, `readout` shows the values next to the pointer, `hidden` has the keys of hidden curves, `raised`
    the highlighted curve's, "" for none.

    Thread: GUI only.
    """

    range_requested = Signal(float, float)
    crosshair_moved = Signal(object)
    curve_clicked = Signal(str)
    drawn = Signal()
    changed = Signal()

    def __init__(self, theme: Theme, *, staggered: bool = False) -> None:
        super().__init__()
        self._theme = theme
        self._staggered = staggered
        self.offered = self._plots = Plots()
        self._alone, self._columns = "", 1
        self.span: Span = (0.0, 1.0)
        self._fit = False
        self._panels: list[TimePanel] = []
        self._looks: dict[str, Look] = {}
        self.hidden: frozenset[str] = frozenset()
        self.raised = ""
        self.crosshair: float | None = None
        self._hovered: TimePanel | None = None
        self.readout = Readout(theme, self)
        self._next = 0
        self._draw_timer = QTimer(self, interval=0, singleShot=not staggered)
        self._draw_timer.timeout.connect(self._draw_next if staggered else self._show_again)
        self.turns = PaintTurns(self)
        self._grid = PanelGrid(self, scrolls=staggered)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Plots")
        StackKeys(self)

    @property
    def visible_plots(self) -> "list[TimePanel]":
        return self._panels[: len(self._plots.panels)]

    @property
    def shown_range(self) -> str:
        """Return the name of the visible range; "" if it is not one of those offered."""
        return next((name for name, span in self._plots.ranges.items() if span == self.span), "")

    @property
    def maximised(self) -> bool:
        """Return whether one plot is shown alone."""
        return any(panel.key == self._alone for panel in self.offered.panels)

    @property
    def busy(self) -> bool:
        return self._draw_timer.isActive()

    def panel(self, key: str) -> "TimePanel":
        return next(plot for plot in self._panels[: len(self._plots.panels)] if plot.key == key)

    def show_plots(self, plots: Plots) -> None:
        """Show these plots with all their curves, drawing only changes; only one if the user maximised it."""
        self.offered = plots
        alone = tuple(panel for panel in plots.panels if panel.key == self._alone)
        if alone:
            plots = replace(plots, panels=alone, columns=1)
        most = len(plots.panels) if self._staggered else len(self._panels) + 1
        if len(plots.panels) > most:
            plots = replace(plots, panels=plots.panels[:most])
            self._draw_timer.start()
        laid_out = len(self._plots.panels), self._columns
        self._plots, self.span, self._fit, self._columns = plots, plots.window, plots.fit, plots.columns
        self.hidden = frozenset()
        self.changed.emit()
        if self._staggered:
            self._start()
            return
        while len(self._panels) < len(plots.panels):
            self._add_plot()
        if laid_out != (len(plots.panels), plots.columns):
            self._lay_out()
        for index in range(len(plots.panels)):
            self._draw(index)

    def maximise(self, plot: "TimePanel | None") -> None:
        """Show one plot alone; None, or the maximised one, shows all again."""
        self._alone = "" if plot is None or self.maximised else plot.key
        self._show_again()

    def set_columns(self, columns: int) -> None:
        if self._plots.panels and columns != self._columns and not self.maximised:
            self._columns = columns
            self.offered = replace(self.offered, columns=columns)
            self._start()

    def show_range(self, span: Span) -> None:
        """Show another range of the axis; an automatic y axis follows the visible data."""
        self.span, self._fit = span, True
        for plot in self.visible_plots:
            plot.set_x_range(*span, fit=True)
        self.changed.emit()

    def move_to(self, start: float, end: float) -> None:
        """Show another range at the user's request; if the plots' owner moves the view, notify it."""
        if self._plots.measured is not None:
            self.show_range(limited((start, end), self._plots.extent))
        else:
            self.range_requested.emit(start, end)

    def zoom(self, factor: float, at: float) -> None:
        """Show a range `factor` times as long around a fixed time of the axis."""
        self.move_to(at + (self.span[0] - at) * factor, at + (self.span[1] - at) * factor)

    def pan(self, by: float) -> None:
        self.move_to(self.span[0] + by, self.span[1] + by)

    def hide_curves(self, keys: Collection[str]) -> None:
        self.hidden = frozenset(keys)
        for plot in self.visible_plots:
            plot.hide_curves(self.hidden)
        self.changed.emit()

    def raise_curve(self, key: str) -> None:
        """Highlight the curves with this key in all panels; "" for none."""
        self.raised = key
        for plot in self.visible_plots:
            plot.raise_curve(key)

    def set_crosshair(self, position: float | None) -> None:
        """Put the crosshair at a time of the axis, over all plots, with the values there; None removes it."""
        self.crosshair = position
        self.readout.show_readings((), QPoint())
        for plot, panel in zip(self._panels, self._plots.panels, strict=False):
            plot.marks.set_crosshair(position)
            self._show_values(plot, panel)
        self.crosshair_moved.emit(position)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(0, 0, self.width(), 2, QColor(self._theme.colours.accent))
            painter.end()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.set_crosshair(None)

    def _hover(self, plot: "TimePanel", time: float, value: float) -> None:
        self._hovered = plot
        self.raise_curve(plot.curve_at(time, value))
        self.set_crosshair(time)

    def _leave(self) -> None:
        self._hovered = None
        self.raise_curve("")
        self.set_crosshair(None)

    def _show_again(self) -> None:
        hidden = self.hidden
        self.show_plots(replace(self.offered, window=self.span, fit=self._fit))
        self.hide_curves(hidden)

    def _start(self) -> None:
        """Lay everything out first, so that no panel is drawn in a passing size, then draw it again."""
        self._lay_out()
        self._next = 0
        if self._plots.panels:
            self._draw_timer.start()
        else:
            self.drawn.emit()

    def _draw_next(self) -> None:
        if len(self._panels) < len(self._plots.panels):
            self._add_plot()
            self._lay_out()  # so that all have their size before one is drawn
            return
        if self._next < len(self._plots.panels):
            self._draw(self._next)
            self._next += 1
        elif not self.turns.busy:
            self._draw_timer.stop()
            self.drawn.emit()

    def _add_plot(self) -> None:
        from app.gui.plot.time_panel import TimePanel  # with pyqtgraph, which the first paint does not wait for

        plot = TimePanel("", "", self._theme, self._looks)
        canvas = plot.plot
        canvas.interactive = True
        canvas.scrolls = plot.legend.all_or_none = self._staggered
        canvas.turns = self.turns if self._staggered else None
        canvas.hovered.connect(lambda time, value: self._hover(plot, time, value))
        canvas.left.connect(self._leave)
        canvas.pressed.connect(self.setFocus)
        canvas.zoomed.connect(self.zoom)
        canvas.dragged.connect(self.pan)
        canvas.opened.connect(lambda: self.maximise(plot))
        plot.legend.clicked.connect(self.curve_clicked)
        self._panels.append(plot)
        plot.addAction("Show this plot &alone, or all again").triggered.connect(lambda: self.maximise(plot))

    def _lay_out(self) -> None:
        self._grid.arrange(self._panels, len(self._plots.panels), self._columns)

    def _draw(self, index: int) -> None:
        plot, panel = self._panels[index], self._plots.panels[index]
        plot.set_x_range(*self.span, fit=self._fit)
        plot.show_panel(panel, self._plots, self.hidden)
        plot.name_bands(named=index == 0)
        plot.marks.set_crosshair(self.crosshair)
        plot.raise_curve(self.raised)
        self._show_values(plot, panel)
        plot.setVisible(True)
        plot.refresh()

    def _show_values(self, plot: "TimePanel", panel: Panel) -> None:
        """Write the values into the legend; next to the pointer that of the raised curve, or all without room there."""
        at_s = None if self.crosshair is None else self._plots.origin_s + self.crosshair
        values = plot.show_values(panel, at_s)
        if at_s is None or plot is not self._hovered:
            return
        curves = [curve for curve in panel.curves if curve.key not in self.hidden]
        raised = [curve for curve in curves if curve.key == self.raised]
        if raised or (self._staggered and not plot.legend.shows_values):
            readings = [Reading(curve.colour, curve.label, values[curve.key], curve.mark) for curve in raised or curves]
            self.readout.show_readings(readings, self.mapFromGlobal(QCursor.pos()))
