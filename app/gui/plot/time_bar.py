"""The bar above plots: named ranges of time, what is read at the crosshair, and what only plots of a live run need."""

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QWidget

from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import GRID, tabular_font
from app.gui.widgets.basic import ElidedLabel, button, show_text, text_label, toggle_button
from app.viewmodels.plot.model import Span
from app.viewmodels.run.live import LiveState

LIVE_RANGES = {
    "30 s": "The last 30 seconds (1)",
    "5 min": "The last 5 minutes (2)",
    "measured": "The measured part, and everything before it begins (3)",
    "all": "Everything (4)",
}
STORED_RANGES = {
    "measured": "Show the measured part (1)",
    "full run": "Show everything from start to end (2). Ctrl+wheel zooms, dragging pans; "
    "or click the plots and use +, −, Shift and the arrows",
}


class TimeBar(QWidget):
    """Offer named ranges of time for a stack of plots. Its keys act while the plots have the keyboard.

    `range_requested` has the name of a range; the other signals come from a live run's plots only.

    Args:
        plots: The stack of plots.
        ranges: The help of each range, by its name.

    Thread: GUI only.
    """

    range_requested = Signal(str)
    pause_requested = Signal()
    follow_requested = Signal()
    per_gpu_toggled = Signal(bool)

    def __init__(self, plots: PanelStack, ranges: Mapping[str, str]) -> None:
        super().__init__()
        self._ranges = {name: toggle_button(name.capitalize(), text) for name, text in ranges.items()}
        self._pause = button("Pause", "Freeze the view; data keep arriving (Space)", small=True)
        self._follow = button("Follow", "Follow new data again (F or End)", small=True)
        self._per_gpu = toggle_button(
            "A panel for each GPU", "One panel per quantity with all GPUs in it, or one for each (G)"
        )
        self._restore = button("All plots", "Show all plots again (Escape)", small=True)
        self._chip = text_label("", "chip")
        self._reading = ElidedLabel("muted")
        self._reading.setFont(tabular_font())
        self._connect(plots)
        self._build()

    @property
    def chip(self) -> str:
        """Why the view does not follow, or nothing."""
        return self._chip.text()

    @property
    def reading(self) -> str:
        """The text of the time at the crosshair."""
        return self._reading.text()

    @property
    def per_gpu_button(self) -> QPushButton:
        """The switch between a panel for each GPU and one for all."""
        return self._per_gpu

    def range_button(self, name: str) -> QPushButton:
        """Return the button of a range."""
        return self._ranges[name]

    def offer_ranges(self, ranges: Mapping[str, Span]) -> None:
        """Let the user choose among these; where all are one there is nothing to choose."""
        for made in self._ranges.values():
            made.setVisible(len(set(ranges.values())) > 1)

    def mark_range(self, name: str) -> None:
        """Mark the range that is shown; "" where it is none of them."""
        for each, made in self._ranges.items():
            made.setChecked(each == name)

    def show_model(self, state: LiveState) -> None:
        """Show which range of a live run is shown and whether the view follows."""
        self.mark_range("" if state.pause_label else state.window)
        show_text(self._chip, state.pause_label)
        self._pause.setVisible(state.growing and not state.pause_label)
        self._follow.setVisible(bool(state.pause_label))
        self._per_gpu.setVisible(state.has_several_gpus)
        self._per_gpu.setChecked(state.per_gpu)

    def show_reading(self, text: str) -> None:
        """Show what is known of the time at the crosshair."""
        self._reading.setText(text)

    def _connect(self, plots: PanelStack) -> None:
        for name, made in self._ranges.items():
            made.clicked.connect(lambda _=False, name=name: self.range_requested.emit(name))
        self._restore.clicked.connect(lambda: plots.maximise(None))
        plots.changed.connect(lambda: self._restore.setVisible(plots.maximised))
        self._pause.clicked.connect(self._request_pause)
        self._follow.clicked.connect(self.follow_requested)
        self._per_gpu.clicked.connect(self.per_gpu_toggled)
        acts = {
            "Space": self._request_pause,
            "F": self.follow_requested.emit,
            "End": self.follow_requested.emit,
            "G": self._per_gpu.click,
            **{f"{number}": made.click for number, made in enumerate(self._ranges.values(), 1)},
        }
        for keys, act in acts.items():
            shortcut = QShortcut(QKeySequence(keys), plots)
            shortcut.setContext(Qt.ShortcutContext.WidgetShortcut)
            shortcut.activated.connect(act)

    def _request_pause(self) -> None:
        """Ask for a pause; after a run nothing arrives, so there is nothing to pause, only a part to leave."""
        if self._pause.isVisible() or self._follow.isVisible():
            self.pause_requested.emit()

    def _build(self) -> None:
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID // 2)
        for widget in (*self._ranges.values(), self._pause, self._follow, self._restore, self._chip):
            layout.addWidget(widget)
        layout.addWidget(self._reading, 1)
        layout.addSpacing(2 * GRID)
        layout.addWidget(self._per_gpu)
        for widget in (self._pause, self._follow, self._restore, self._chip, self._per_gpu):
            widget.setVisible(False)
