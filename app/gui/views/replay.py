"""A recording played again: a bar that says so, and the live view below it."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.theme import GRID, Theme, figures
from app.gui.views.flow import FlowLayout
from app.gui.views.live import LiveView
from app.gui.views.parts import button, rule, switch, text_label
from app.viewmodels.replay import SPEEDS


class ReplayView(QWidget):
    """Shows what is played, how far it is and how fast; `live` shows the run itself."""

    pause_asked = Signal()
    speed_asked = Signal(float)
    restart_asked = Signal()
    measured_asked = Signal()
    stop_asked = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.live = LiveView(theme)
        self._chip = text_label("", "chip")
        self._chip.setAccessibleName("What is played")
        self._position = text_label("", "muted")
        self._position.setFont(figures())
        self._pause = button("&Pause replay", "Let time stand still, or go on", small=True)
        self._speeds = {speed: switch(f"×{speed:g}", f"{speed:g} times as fast as it was") for speed in SPEEDS}
        self._restart = button("Res&tart", "Play from the beginning", small=True)
        self._measured = button("&Measured", "Jump to where the measured part begins (M)", small=True)
        self._measured_key = QShortcut(QKeySequence("M"), self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._stop = button("&Back to live", "End the replay; the screen shows this machine again", small=True)
        self._connect()
        self._build()

    @property
    def chip(self) -> str:
        """What the view says it plays."""
        return self._chip.text()

    @property
    def pause_button(self) -> QPushButton:
        """Pauses and resumes."""
        return self._pause

    @property
    def measured_button(self) -> QPushButton:
        """Jumps to the measured part."""
        return self._measured

    @property
    def stop_button(self) -> QPushButton:
        """Ends the replay."""
        return self._stop

    def speed_button(self, speed: float) -> QPushButton:
        """Plays at that speed."""
        return self._speeds[speed]

    def offer_measured(self, *, offered: bool) -> None:
        """Whether there is a measured part to jump to."""
        self._measured.setVisible(offered)
        self._measured_key.setEnabled(offered)

    def show_bar(self, chip: str, position: str, *, paused: bool, ended: bool, speed: float) -> None:
        """Show where the replay stands."""
        self._chip.setText(chip)
        self._position.setText(position)
        self._pause.setText("&Resume replay" if paused else "&Pause replay")
        self._pause.setEnabled(not ended)
        for value, made in self._speeds.items():
            made.setChecked(value == speed)

    def _connect(self) -> None:
        self._pause.clicked.connect(self.pause_asked)
        self._restart.clicked.connect(self.restart_asked)
        self._measured.clicked.connect(self.measured_asked)
        self._measured_key.activated.connect(self.measured_asked)
        self._stop.clicked.connect(self.stop_asked)
        for speed, made in self._speeds.items():
            made.clicked.connect(lambda _=False, speed=speed: self.speed_asked.emit(speed))

    def _build(self) -> None:
        buttons = (self._pause, *self._speeds.values(), self._restart, self._measured, self._stop)
        bar = QWidget()
        flow = FlowLayout(bar, 2 * GRID, GRID // 2)
        flow.addWidget(_row(self._chip, self._position))
        flow.addWidget(_row(*buttons))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        around = QVBoxLayout()
        around.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        around.addWidget(bar)
        layout.addLayout(around)
        layout.addWidget(rule())
        layout.addWidget(self.live, 1)


def _row(*widgets: QWidget) -> QWidget:
    made = QWidget()
    row = QHBoxLayout(made)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(GRID)
    for widget in widgets:
        row.addWidget(widget)
    return made
