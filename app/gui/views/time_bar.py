"""The line above the live plots: which stretch of time, held or following, what the crosshair reads."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.gui.theme import GRID, figures
from app.gui.views.parts import ElidedLabel, button, say, switch, text_label
from app.viewmodels.live import LiveState
from app.viewmodels.time_view import WINDOWS

_HELP = ("The last 30 seconds (1)", "The last 5 minutes (2)", "Everything (3)")


class TimeBar(QWidget):
    """Shows the time part of a `LiveState`. Its keys act while the plots have the keyboard."""

    window_asked = Signal(str)
    hold_asked = Signal()
    follow_asked = Signal()
    apart_asked = Signal(bool)

    def __init__(self, plots: QWidget) -> None:
        super().__init__()
        self._windows = [switch(name.capitalize(), words) for name, words in zip(WINDOWS, _HELP, strict=True)]
        self._hold = button("Pause", "Hold the view; data go on arriving (Space)", small=True)
        self._follow = button("Follow", "Show what is new again (F or End)", small=True)
        self._apart = switch("A panel for each GPU", "One panel a quantity with all GPUs in it, or one for each (G)")
        self._chip = text_label("", "chip")
        self._reading = ElidedLabel("muted")
        self._reading.setFont(figures())
        self._connect(plots)
        self._build()

    @property
    def chip(self) -> str:
        """What the view is held as, or nothing."""
        return self._chip.text()

    @property
    def reading(self) -> str:
        """What is read at the crosshair."""
        return self._reading.text()

    @property
    def apart_button(self) -> QPushButton:
        """The switch between a panel for each GPU and one for all."""
        return self._apart

    def show_model(self, state: LiveState) -> None:
        """Show which stretch is shown and whether it stands still."""
        for name, made in zip(WINDOWS, self._windows, strict=True):
            made.setChecked(name == state.window and not state.held)
        say(self._chip, state.held)
        self._hold.setVisible(state.growing and not state.held)
        self._follow.setVisible(bool(state.held))
        self._apart.setVisible(state.several)
        self._apart.setChecked(state.apart)

    def show_reading(self, words: str) -> None:
        """Say what is known of the time at the crosshair."""
        self._reading.setText(words)

    def _connect(self, plots: QWidget) -> None:
        for name, made in zip(WINDOWS, self._windows, strict=True):
            made.clicked.connect(lambda _=False, name=name: self.window_asked.emit(name))
        self._hold.clicked.connect(self._ask_to_hold)
        self._follow.clicked.connect(self.follow_asked)
        self._apart.clicked.connect(self.apart_asked)
        acts = {
            "Space": self._ask_to_hold,
            "F": self.follow_asked.emit,
            "End": self.follow_asked.emit,
            "G": self._apart.click,
            **{f"{index + 1}": made.click for index, made in enumerate(self._windows)},
        }
        for keys, act in acts.items():
            shortcut = QShortcut(QKeySequence(keys), plots)
            shortcut.setContext(Qt.ShortcutContext.WidgetShortcut)
            shortcut.activated.connect(act)

    def _ask_to_hold(self) -> None:
        """Nothing arrives after a run: there is nothing to pause, only a part to leave."""
        if self._hold.isVisible() or self._follow.isVisible():
            self.hold_asked.emit()

    def _build(self) -> None:
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID // 2)
        for widget in (*self._windows, self._hold, self._follow, self._chip):
            layout.addWidget(widget)
        layout.addWidget(self._reading, 1)
        layout.addSpacing(2 * GRID)
        layout.addWidget(self._apart)
        self._apart.setVisible(False)
        self._follow.setVisible(False)
        self._chip.setVisible(False)
