"""The view of a replayed recording: playback controls above a live view."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.run.live import LiveView
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import button, separator, text_label, toggle_button
from app.gui.widgets.flow_layout import FlowLayout
from app.viewmodels.run.live import REPLAY_SPEEDS


class ReplayView(QWidget):
    """Shows the recording's name, position and speed; `live` shows the run itself."""

    pause_requested = Signal()
    speed_requested = Signal(float)
    restart_requested = Signal()
    measured_requested = Signal()
    stop_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.live = LiveView(theme, "replay")
        self._chip = text_label("", "chip")
        self._chip.setAccessibleName("Replayed recording")
        self._position = text_label("", "muted")
        self._position.setFont(tabular_font())
        self._pause = button("&Pause replay", "Pause or resume the replay", small=True)
        self._speeds = {
            speed: toggle_button(f"×{speed:g}", f"{speed:g} times as fast as recorded") for speed in REPLAY_SPEEDS
        }
        self._restart = button("Res&tart", "Play from the beginning", small=True)
        self._measured = button("Skip to &measured", "Jump to where the measured part begins (M)", small=True)
        self._measured_key = QShortcut(QKeySequence("M"), self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._stop = button("&Back to live", "End the replay; the screen shows this machine again (Escape)", small=True)
        self._connect()
        self._build()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Leave by Escape, once it has nothing to end in the plots."""
        if event.key() == Qt.Key.Key_Escape:
            self.stop_requested.emit()
        else:
            super().keyPressEvent(event)

    @property
    def chip(self) -> str:
        """Name of the replayed recording."""
        return self._chip.text()

    @property
    def pause_button(self) -> QPushButton:
        """Button that pauses and resumes."""
        return self._pause

    @property
    def measured_button(self) -> QPushButton:
        """Button that jumps to the measured part."""
        return self._measured

    @property
    def stop_button(self) -> QPushButton:
        """Button that ends the replay."""
        return self._stop

    def speed_button(self, speed: float) -> QPushButton:
        """Return the button of a speed."""
        return self._speeds[speed]

    def offer_measured(self, *, offered: bool) -> None:
        """Offer to jump to the measured part, if there is one."""
        self._measured.setVisible(offered)
        self._measured_key.setEnabled(offered)

    def show_bar(self, chip: str, position: str, *, paused: bool, ended: bool, speed: float) -> None:
        """Show the state of the replay."""
        self._chip.setText(chip)
        self._position.setText(position)
        self._pause.setText("&Resume replay" if paused else "&Pause replay")
        self._pause.setEnabled(not ended)
        for value, made in self._speeds.items():
            made.setChecked(value == speed)

    def _connect(self) -> None:
        self._pause.clicked.connect(self.pause_requested)
        self._restart.clicked.connect(self.restart_requested)
        self._measured.clicked.connect(self.measured_requested)
        self._measured_key.activated.connect(self.measured_requested)
        self._stop.clicked.connect(self.stop_requested)
        for speed, made in self._speeds.items():
            made.clicked.connect(lambda _=False, speed=speed: self.speed_requested.emit(speed))

    def _build(self) -> None:
        buttons = (self._pause, *self._speeds.values(), self._restart, self._measured, self._stop)
        bar = QWidget()
        flow = FlowLayout(bar, 2 * GRID, GRID // 2)
        flow.addWidget(_row(self._chip, self._position))
        flow.addWidget(_row(*buttons))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        margins = QVBoxLayout()
        margins.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        margins.addWidget(bar)
        layout.addLayout(margins)
        layout.addWidget(separator())
        layout.addWidget(self.live, 1)


def _row(*widgets: QWidget) -> QWidget:
    made = QWidget()
    row = QHBoxLayout(made)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(GRID)
    for widget in widgets:
        row.addWidget(widget)
    return made
