"""Controls above plots: the time window and pause of live plots, and the measured or full range of stored ones."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.gui.theme import GRID, tabular_font
from app.gui.widgets.basic import ElidedLabel, button, show_text, text_label, toggle_button
from app.viewmodels.plot.model import Span
from app.viewmodels.run.live import LiveState
from app.viewmodels.run.time_view import WINDOWS

_ZOOM = "Ctrl and the wheel zoom, dragging moves; or click here and use +, −, Shift and the arrows"


class RangeButtons(QWidget):
    """Offers two stretches of an axis. `asked` tells which `Span` to show."""

    range_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._spans: tuple[Span, Span] = ((0.0, 1.0), (0.0, 1.0))
        self.measured_button = toggle_button("Measured", "Show the measured part")
        self.full_button = toggle_button("Whole", f"Show everything from beginning to end. {_ZOOM}")
        self.measured_button.clicked.connect(self._request_measured)
        self.full_button.clicked.connect(self._request_full)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(GRID // 2)
        row.addWidget(self.measured_button)
        row.addWidget(self.full_button)

    def show_spans(self, measured: Span, full: Span) -> None:
        """Offer these; where both are one there is nothing to choose."""
        self._spans = measured, full
        self.setEnabled(measured != full)

    def _request_measured(self) -> None:
        self.range_requested.emit(self._spans[0])

    def _request_full(self) -> None:
        self.range_requested.emit(self._spans[1])

    def mark_shown(self, span: Span) -> None:
        """Mark which of them is in view; after zooming it may be neither."""
        for made, offered in zip((self.measured_button, self.full_button), self._spans, strict=True):
            made.setChecked(span == offered)


_WINDOW_HELP = ("The last 30 seconds (1)", "The last 5 minutes (2)", "Everything (3)")


class TimeBar(QWidget):
    """Shows the time part of a `LiveState`. Its keys act while the plots have the keyboard."""

    window_requested = Signal(str)
    pause_requested = Signal()
    follow_requested = Signal()
    per_gpu_toggled = Signal(bool)

    def __init__(self, plots: QWidget) -> None:
        super().__init__()
        self._windows = [toggle_button(name.capitalize(), tip) for name, tip in zip(WINDOWS, _WINDOW_HELP, strict=True)]
        self._pause = button("Pause", "Hold the view; data go on arriving (Space)", small=True)
        self._follow = button("Follow", "Show what is new again (F or End)", small=True)
        self._per_gpu = toggle_button(
            "A panel for each GPU", "One panel a quantity with all GPUs in it, or one for each (G)"
        )
        self._chip = text_label("", "chip")
        self._reading = ElidedLabel("muted")
        self._reading.setFont(tabular_font())
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
    def per_gpu_button(self) -> QPushButton:
        """The switch between a panel for each GPU and one for all."""
        return self._per_gpu

    def show_model(self, state: LiveState) -> None:
        """Show which stretch is shown and whether it stands still."""
        for name, made in zip(WINDOWS, self._windows, strict=True):
            made.setChecked(name == state.window and not state.pause_label)
        show_text(self._chip, state.pause_label)
        self._pause.setVisible(state.growing and not state.pause_label)
        self._follow.setVisible(bool(state.pause_label))
        self._per_gpu.setVisible(state.has_several_gpus)
        self._per_gpu.setChecked(state.per_gpu)

    def show_reading(self, text: str) -> None:
        """Say what is known of the time at the crosshair."""
        self._reading.setText(text)

    def _connect(self, plots: QWidget) -> None:
        for name, made in zip(WINDOWS, self._windows, strict=True):
            made.clicked.connect(lambda _=False, name=name: self.window_requested.emit(name))
        self._pause.clicked.connect(self._request_pause)
        self._follow.clicked.connect(self.follow_requested)
        self._per_gpu.clicked.connect(self.per_gpu_toggled)
        acts = {
            "Space": self._request_pause,
            "F": self.follow_requested.emit,
            "End": self.follow_requested.emit,
            "G": self._per_gpu.click,
            **{f"{index + 1}": made.click for index, made in enumerate(self._windows)},
        }
        for keys, act in acts.items():
            shortcut = QShortcut(QKeySequence(keys), plots)
            shortcut.setContext(Qt.ShortcutContext.WidgetShortcut)
            shortcut.activated.connect(act)

    def _request_pause(self) -> None:
        """Nothing arrives after a run: there is nothing to pause, only a part to leave."""
        if self._pause.isVisible() or self._follow.isVisible():
            self.pause_requested.emit()

    def _build(self) -> None:
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID // 2)
        for widget in (*self._windows, self._pause, self._follow, self._chip):
            layout.addWidget(widget)
        layout.addWidget(self._reading, 1)
        layout.addSpacing(2 * GRID)
        layout.addWidget(self._per_gpu)
        self._per_gpu.setVisible(False)
        self._follow.setVisible(False)
        self._chip.setVisible(False)
