"""The stack of plots with one time axis and crosshair: of a live, replayed or stored run, or of compared runs."""

from collections.abc import Collection
from dataclasses import replace

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QCursor, QFocusEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.gui.plot.legend import Reading, Readout
from app.gui.plot.panel_slot import PanelGrid, PanelSlot
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.plot.look import Look
from app.viewmodels.plot.model import Panel, Plots, Span, panned, zoomed

_CROSSHAIR_STEP, _PAN_STEP = 0.01, 0.1
"""The part of the window by which an arrow moves the crosshair, and with Shift the view."""
_KEY_ZOOM = 1.5
_MAX_NEW_PLOTS = 2
_SCROLLED_HEIGHT = 12 * GRID


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
        self._slots: list[PanelSlot] = []
        self._looks: dict[str, Look] = {}
        self._hidden: frozenset[str] = frozenset()
        self._raised = ""
        self._crosshair: float | None = None
        self._hovered: TimePanel | None = None
        self._readout = Readout(theme, self)
        self._next = 0
        self._draw_timer = QTimer(self)
        self._draw_timer.setInterval(0)
        self._draw_timer.timeout.connect(self._draw_next)
        self._grid = PanelGrid(self)
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

    def raise_curve(self, key: str) -> None:
        """Let the curves with this key stand out in all panels; "" for none."""
        self._raised = key
        for plot in self.shown:
            plot.raise_curve(key)

    def set_crosshair(self, position: float | None) -> None:
        """Put the crosshair at a time of the axis, over all plots, with the values there; None removes it."""
        self._crosshair = position
        self._readout.show_readings((), QPoint())
        for slot, panel in zip(self._slots, self._plots.panels, strict=False):
            slot.plot.set_crosshair(position)
            self._show_values(slot, panel)
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

    def _hover(self, plot: TimePanel, time: float, value: float) -> None:
        self._hovered = plot
        self.raise_curve(plot.curve_at(time, value))
        self.set_crosshair(time)

    def _leave(self) -> None:
        self._hovered = None
        self.raise_curve("")
        self.set_crosshair(None)

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
            self._grid.place(self._next, self._slots[self._next].plot)
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
        canvas.hovered.connect(lambda time, value: self._hover(plot, time, value))
        canvas.left.connect(self._leave)
        canvas.pressed.connect(self.setFocus)
        canvas.zoomed.connect(self.zoomed)
        canvas.dragged.connect(self.panned)
        plot.legend.clicked.connect(self.curve_clicked)
        self._slots.append(PanelSlot(plot, self._looks))

    def _lay_out(self) -> None:
        self._grid.arrange([slot.plot for slot in self._slots], len(self._plots.panels), self._columns)

    def _draw(self, index: int) -> None:
        slot, panel = self._slots[index], self._plots.panels[index]
        slot.plot.set_x_range(*self._window, fit=self._fit)
        slot.draw(panel, self._plots, self._hidden)
        self._show_values(slot, panel)
        slot.plot.setVisible(True)
        slot.plot.refresh()

    def _show_values(self, slot: PanelSlot, panel: Panel) -> None:
        """Write the values into the legend; next to the pointer that of the raised curve, or all without room there."""
        at_s = None if self._crosshair is None else self._plots.origin_s + self._crosshair
        values = slot.show_values(panel, at_s)
        if at_s is None or slot.plot is not self._hovered:
            return
        shown = [curve for curve in panel.curves if curve.key not in self._hidden]
        raised = [curve for curve in shown if curve.key == self._raised]
        if raised or (self._staggered and not slot.plot.legend.shows_values):
            readings = [Reading(curve.colour, curve.label, values[curve.key], curve.mark) for curve in raised or shown]
            self._readout.show_readings(readings, self.mapFromGlobal(QCursor.pos()))
