"""Plots in windows of their own, for another monitor: they follow the stack that they were taken from."""

from dataclasses import replace

from PySide6.QtCore import QByteArray, QEvent, QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import GRID, Theme
from app.gui.window_state import WindowState

ALL_PLOTS = ""
"""In place of a panel's key: a window with all of them."""


class PlotWindow(QWidget):
    """One panel of a stack, or all, in a window of its own, with the stack's range of time and crosshair."""

    closed = Signal()

    def __init__(self, stack: PanelStack, key: str, theme: Theme, state: WindowState) -> None:
        super().__init__(stack.window(), Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._source = stack
        self.key = key
        self._theme = theme
        self._state = state
        self.plots = PanelStack(theme)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        layout.addWidget(self.plots)
        self.resize(100 * GRID, 60 * GRID)
        self.restoreGeometry(QByteArray(state.read(f"geometry {key}", b"")))
        for keys in ("Ctrl+W", "Escape"):
            QShortcut(QKeySequence(keys), self).activated.connect(self.close)
        stack.window().installEventFilter(self)
        stack.changed.connect(self._update)
        stack.crosshair_moved.connect(lambda time: _set_crosshair(self.plots, time))
        self.plots.crosshair_moved.connect(lambda time: _set_crosshair(stack, time))
        self.plots.zoomed.connect(stack.zoomed)
        self.plots.panned.connect(stack.panned)
        self.plots.curve_clicked.connect(stack.curve_clicked)
        theme.changed.connect(self._restyle)
        self._restyle()
        self._update()

    def eventFilter(self, _window: QObject, event: QEvent) -> bool:
        """Hide with the window around the stack when that closes, which Qt does for dialogs alone."""
        if event.type() == QEvent.Type.Hide and not event.spontaneous():
            self.hide()
        return False

    def closeEvent(self, event: QCloseEvent) -> None:
        """Listen to the stack no more."""
        super().closeEvent(event)
        self.closed.emit()
        self._source.changed.disconnect(self._update)
        self._theme.changed.disconnect(self._restyle)

    def hideEvent(self, event: QHideEvent) -> None:
        """Remember where it was."""
        super().hideEvent(event)
        self._state.keep(f"geometry {self.key}", self.saveGeometry().data())

    def _update(self) -> None:
        offered = self._source.offered
        panels = tuple(panel for panel in offered.panels if self.key in (ALL_PLOTS, panel.key))
        columns = min(offered.columns, len(panels)) or 1
        self.plots.show_plots(replace(offered, panels=panels, columns=columns, ranges={}))
        self.plots.hide_curves(self._source.hidden)
        self.setWindowTitle(f"{panels[0].title if self.key and panels else 'Plots'} – VariantScope")

    def _restyle(self) -> None:
        self._theme.apply_style_sheet(self)


class PlotWindows(QObject):
    """The windows of one stack; those that were open are opened again when the stack first has their panels."""

    def __init__(self, stack: PanelStack, theme: Theme, screen: str) -> None:
        super().__init__(stack)
        self._stack = stack
        self._theme = theme
        self._state = WindowState(f"{screen} plots", stack)
        self._waiting = set(self._state.read("open", [], list[str]))
        self.open: dict[str, PlotWindow] = {}
        stack.detach_requested.connect(self.show_window)
        if self._waiting:
            stack.changed.connect(self._show_remembered)

    def show_window(self, key: str) -> None:
        """Open the window of a panel, or bring it to the front."""
        if key not in self.open:
            made = self.open[key] = PlotWindow(self._stack, key, self._theme, self._state)
            made.closed.connect(lambda: self._forget(key))
            self._keep()
        self.open[key].show()
        self.open[key].raise_()

    def _show_remembered(self) -> None:
        if not self._stack.window().isVisible():
            return
        there = {panel.key for panel in self._stack.offered.panels}
        for key in [key for key in self._waiting if key in there or (key == ALL_PLOTS and there)]:
            self._waiting.discard(key)
            self.show_window(key)
        if not self._waiting:
            self._stack.changed.disconnect(self._show_remembered)

    def _forget(self, key: str) -> None:
        del self.open[key]
        self._keep()

    def _keep(self) -> None:
        self._state.keep("open", [*self.open, *self._waiting])


def _set_crosshair(stack: PanelStack, time: float | None) -> None:
    if stack.crosshair != time:
        stack.set_crosshair(time)
