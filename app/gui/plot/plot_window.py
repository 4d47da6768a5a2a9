"""Parts of a screen in windows of their own, for another monitor; plots follow the stack that they were taken from."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Generic, TypeVar

from PySide6.QtCore import QByteArray, QEvent, QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import GRID, Theme
from app.gui.widgets.dialogs import resize_within_screen
from app.gui.window_state import WindowState

ALL_PLOTS = ""
"""In place of a panel's key: a window with all of them."""


class DetachedWindow(QWidget):
    """A part of a screen in a window of its own; it goes with the window around that screen."""

    closed = Signal()

    def __init__(self, source: QWidget, key: str, content: QWidget, theme: Theme, state: WindowState) -> None:
        """Make the window, where one of that key was last."""
        super().__init__(source.window(), Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.key = key
        self._state = state
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        layout.addWidget(content)
        resize_within_screen(self, 100 * GRID, 60 * GRID)
        self.restoreGeometry(QByteArray(state.read(f"geometry {key}", b"")))
        for keys in ("Ctrl+W", "Escape"):
            QShortcut(QKeySequence(keys), self).activated.connect(self.close)
        QShortcut(QKeySequence("Ctrl+Q"), self).activated.connect(lambda: source.window().close())
        source.window().installEventFilter(self)
        theme.apply_style_sheet(self)

    def show_title(self, part: str, source: str) -> None:
        """Show in the title which part of what it has: plots of a run, a replay and a GPU may be open at once."""
        self.setWindowTitle(f"{part} – {source} – VariantScope")

    def eventFilter(self, _window: QObject, event: QEvent) -> bool:
        """Hide with the window around the source when that closes, which Qt does for dialogs alone."""
        if event.type() == QEvent.Type.Hide and not event.spontaneous():
            self.hide()
        return False

    def closeEvent(self, event: QCloseEvent) -> None:
        """Say so."""
        super().closeEvent(event)
        self.closed.emit()

    def hideEvent(self, event: QHideEvent) -> None:
        """Remember where it was."""
        super().hideEvent(event)
        self._state.keep(f"geometry {self.key}", self.saveGeometry().data())


Window = TypeVar("Window", bound=DetachedWindow)


class DetachedWindows(QObject, Generic[Window]):
    """The windows of one screen by their keys; those that were open are opened again when their parts are there."""

    def __init__(self, source: QWidget, state: WindowState, make: Callable[[str], Window]) -> None:
        """Remember which are open."""
        super().__init__(source)
        self._source = source
        self._state = state
        self._make = make
        self._waiting = set(state.read("open", [], list[str]))
        self.open: dict[str, Window] = {}

    def show_window(self, key: str) -> None:
        """Open the window of a key, or bring it to the front."""
        if key not in self.open:
            made = self.open[key] = self._make(key)
            made.closed.connect(lambda: self._forget(key))
            self._keep()
        self.open[key].show()
        self.open[key].raise_()

    def show_remembered(self, there: Collection[str]) -> None:
        """Open those that were open when the program ended and whose keys are there now."""
        if self._source.window().isVisible():
            for key in self._waiting & set(there):
                self._waiting.discard(key)
                self.show_window(key)

    def _forget(self, key: str) -> None:
        del self.open[key]
        self._keep()

    def _keep(self) -> None:
        self._state.keep("open", [*self.open, *self._waiting])


class PlotWindow(DetachedWindow):
    """One panel of a stack, or all, in a window of its own, with the stack's range of time and crosshair."""

    def __init__(self, stack: PanelStack, key: str, theme: Theme, state: WindowState, name: str) -> None:
        """Show a panel of a stack.

        The key is that of a panel, or `ALL_PLOTS`.
        """
        self._name = name
        self.plots = PanelStack(theme)
        super().__init__(stack, key, self.plots, theme, state)
        self._source = stack
        stack.changed.connect(self._update)
        stack.crosshair_moved.connect(lambda time: _set_crosshair(self.plots, time))
        self.plots.crosshair_moved.connect(lambda time: _set_crosshair(stack, time))
        self.plots.zoomed.connect(stack.zoomed)
        self.plots.panned.connect(stack.panned)
        self.plots.curve_clicked.connect(stack.curve_clicked)
        self._update()

    def name_source(self, name: str) -> None:
        """Show in the title what the plots are of."""
        self._name = name
        self._update_title()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Listen to the stack no more."""
        super().closeEvent(event)
        self._source.changed.disconnect(self._update)

    def _update(self) -> None:
        offered = self._source.offered
        panels = tuple(panel for panel in offered.panels if self.key in (ALL_PLOTS, panel.key))
        columns = min(offered.columns, len(panels)) or 1
        self.plots.show_plots(replace(offered, panels=panels, columns=columns, ranges={}))
        self.plots.hide_curves(self._source.hidden)
        self._update_title()

    def _update_title(self) -> None:
        shown = self.plots.shown
        self.show_title(shown[0].title if self.key and shown else "Plots", self._name)


class PlotWindows(DetachedWindows[PlotWindow]):
    """The windows of one stack of plots."""

    def __init__(self, stack: PanelStack, theme: Theme, screen: str) -> None:
        self._name = screen.capitalize()
        state = WindowState(f"{screen} plots", stack)
        super().__init__(stack, state, lambda key: PlotWindow(stack, key, theme, state, self._name))
        stack.detach_requested.connect(self.show_window)
        self._stack = stack
        if self._waiting:
            stack.changed.connect(self._find_remembered)

    def name_source(self, name: str) -> None:
        """Show in the titles what the plots are of, which is the screen's name at first."""
        if name != self._name:
            self._name = name
            for window in self.open.values():
                window.name_source(name)

    def _find_remembered(self) -> None:
        panels = self._stack.offered.panels
        self.show_remembered([*(panel.key for panel in panels), *([ALL_PLOTS] if panels else [])])
        if not self._waiting:
            self._stack.changed.disconnect(self._find_remembered)


def _set_crosshair(stack: PanelStack, time: float | None) -> None:
    if stack.crosshair != time:
        stack.set_crosshair(time)
