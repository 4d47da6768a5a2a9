"""Plots in windows of their own, for another monitor; they follow the stack that they were taken from."""

from dataclasses import replace

from PySide6.QtCore import QByteArray, QEvent, QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QShortcut
from PySide6.QtWidgets import QWidget

from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import make_column
from app.gui.widgets.dialogs import resize_within_screen
from app.gui.window_state import WindowState

ALL_PLOTS = ""
"""In place of a panel's key: a window with all of them."""


class PlotWindow(QWidget):
    """One panel of a stack, or all, in a window of its own, with the stack's range of time and crosshair.

    It goes with the window around the stack.
    """

    closed = Signal()

    def __init__(self, stack: PanelStack, key: str, theme: Theme, state: WindowState, name: str) -> None:
        """Show a panel of a stack, where a window of that key was last.

        The key is that of a panel, or `ALL_PLOTS`; the name is that of what the plots are of.
        """
        super().__init__(stack.window(), Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.key = key
        self._source = stack
        self._state = state
        self._name = name
        self.plots = PanelStack(theme)
        make_column(self.plots, parent=self, margins=(2 * GRID, GRID, 2 * GRID, GRID))
        resize_within_screen(self, 100 * GRID, 60 * GRID)
        self.restoreGeometry(QByteArray(state.read(f"geometry {key}", b"")))
        self._connect()
        theme.apply_style_sheet(self)
        self._update()

    def name_source(self, name: str) -> None:
        """Show in the title what the plots are of: those of a run, a replay and a GPU may be open at once."""
        self._name = name
        plots = self.plots.visible_plots
        self.setWindowTitle(f"{plots[0].title if self.key and plots else 'Plots'} – {name} – VariantScope")

    def eventFilter(self, _window: QObject, event: QEvent) -> bool:
        """Hide with the window around the stack when that closes, which Qt does for dialogs alone."""
        if event.type() == QEvent.Type.Hide and not event.spontaneous():
            self.hide()
        return False

    def closeEvent(self, event: QCloseEvent) -> None:
        """Say that it is closed; Qt cuts its connections to the stack when it deletes the window."""
        super().closeEvent(event)
        self.closed.emit()

    def hideEvent(self, event: QHideEvent) -> None:
        """Remember where it was."""
        super().hideEvent(event)
        self._state.keep(f"geometry {self.key}", self.saveGeometry().data())

    def _connect(self) -> None:
        source, plots = self._source, self.plots
        for keys in ("Ctrl+W", "Escape"):
            QShortcut(keys, self, self.close)
        QShortcut("Ctrl+Q", self, lambda: source.window().close())
        source.window().installEventFilter(self)
        # The stack outlives the window: its signals end in methods of the window, for a lambda would stay connected.
        source.changed.connect(self._update)
        source.crosshair_moved.connect(self._share_crosshair)
        plots.crosshair_moved.connect(self._share_crosshair)
        plots.range_requested.connect(source.move_to)
        plots.curve_clicked.connect(source.curve_clicked)

    def _share_crosshair(self, time: float | None) -> None:
        """Put the crosshair of the other stack at the same time; the one that moved has it there."""
        for stack in (self._source, self.plots):
            if stack.crosshair != time:
                stack.set_crosshair(time)

    def _update(self) -> None:
        offered = self._source.offered
        panels = tuple(panel for panel in offered.panels if self.key in (ALL_PLOTS, panel.key))
        columns = min(offered.columns, len(panels)) or 1
        self.plots.show_plots(replace(offered, panels=panels, columns=columns, measured=None))
        self.plots.hide_curves(self._source.hidden)
        self.name_source(self._name)


class PlotWindows(QObject):
    """The windows of one stack of plots by their keys; those that were open are opened again with their panels."""

    def __init__(self, stack: PanelStack, theme: Theme, screen: str) -> None:
        super().__init__(stack)
        self._stack = stack
        self._theme = theme
        self._name = screen.capitalize()
        self._state = WindowState(f"{screen} plots", stack)
        self._waiting = set(self._state.read("open", [], list[str]))
        self.open: dict[str, PlotWindow] = {}
        stack.detach_requested.connect(self.show_window)
        if self._waiting:
            stack.changed.connect(self._show_remembered)

    def name_source(self, name: str) -> None:
        """Show in the titles what the plots are of, which is the screen's name at first."""
        if name != self._name:
            self._name = name
            for window in self.open.values():
                window.name_source(name)

    def show_window(self, key: str) -> None:
        """Open the window of a key, or bring it to the front."""
        if key not in self.open:
            window = self.open[key] = PlotWindow(self._stack, key, self._theme, self._state, self._name)
            window.closed.connect(lambda: self._forget(key))
            self._keep()
        self.open[key].show()
        self.open[key].raise_()

    def _show_remembered(self) -> None:
        """Open those that were open when the program ended and whose panels are there now."""
        panels = self._stack.offered.panels
        if self._stack.window().isVisible():
            for key in self._waiting & {*(panel.key for panel in panels), *([ALL_PLOTS] if panels else [])}:
                self._waiting.discard(key)
                self.show_window(key)
        if not self._waiting:
            self._stack.changed.disconnect(self._show_remembered)

    def _forget(self, key: str) -> None:
        del self.open[key]
        self._keep()

    def _keep(self) -> None:
        self._state.keep("open", [*self.open, *self._waiting])
