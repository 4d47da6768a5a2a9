"""A replayed recording on the Run screen: playback controls above a live view, through the model of live data."""

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

from app.gui.plot.time_bar import Recorded
from app.gui.run.live import LiveView, connect_time_controls
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import button, make_column, make_row, separator, text_label, toggle_button
from app.gui.widgets.flow_layout import FlowLayout
from app.telemetry.replay import Recording, Replay
from app.viewmodels.plot.model import Band
from app.viewmodels.plot.panels import overview_curve
from app.viewmodels.run.live import REPLAY_SPEEDS, LiveModel, describe_replay, format_position

if TYPE_CHECKING:
    from app.gui.run.screen import RunView


class ReplayView(QWidget):
    """Shows the recording's name, position and speed; `live` shows the run itself."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.live = LiveView(theme, "replay")
        self.chip = text_label("", "chip")
        self.chip.setAccessibleName("Replayed recording")
        self._position = text_label("", "muted")
        self._position.setFont(tabular_font())
        self.pause_button = button("&Pause replay", "Pause or resume the replay", small=True)
        self.speed_buttons = {
            speed: toggle_button(f"×{speed:g}", f"{speed:g} times as fast as recorded") for speed in REPLAY_SPEEDS
        }
        self.restart_button = button("Res&tart", "Play from the beginning", small=True)
        self.measured_button = button("Skip to &measured", "Jump to where the measured part begins (M)", small=True)
        self._measured_key = QShortcut(QKeySequence("M"), self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.stop_button = button(
            "&Back to live", "End the replay; the screen shows this machine again (Escape)", small=True
        )
        self._measured_key.activated.connect(self.measured_button.click)
        self._build()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Leave by Escape, once it has nothing to end in the plots."""
        if event.key() == Qt.Key.Key_Escape:
            self.stop_button.click()
        else:
            super().keyPressEvent(event)

    def offer_measured(self, *, offered: bool) -> None:
        """Offer to jump to the measured part, if there is one."""
        self.measured_button.setVisible(offered)
        self._measured_key.setEnabled(offered)

    def show_bar(self, chip: str, position: str, *, paused: bool, ended: bool, speed: float) -> None:
        """Show the state of the replay."""
        self.chip.setText(chip)
        self._position.setText(position)
        self.pause_button.setText("&Resume replay" if paused else "&Pause replay")
        self.pause_button.setEnabled(not ended)
        for value, speed_button in self.speed_buttons.items():
            speed_button.setChecked(value == speed)

    def _build(self) -> None:
        bar = QWidget()
        flow = FlowLayout(bar, 2 * GRID, GRID // 2)
        flow.addWidget(_row(self.chip, self._position))
        speeds = self.speed_buttons.values()
        flow.addWidget(_row(self.pause_button, *speeds, self.restart_button, self.measured_button, self.stop_button))
        around = make_column(bar, margins=(2 * GRID, GRID, 2 * GRID, GRID))
        make_column(around, separator(), (self.live, 1), parent=self, margins=0, spacing=0)


def _row(*widgets: QWidget) -> QWidget:
    row = QWidget()
    make_row(*widgets, parent=row, margins=0, spacing=GRID)
    return row


_TICK_MS = 33
_WARMUP_SPEED = 4.0


class ReplayController(QObject):
    """Plays one recording at a time."""

    def __init__(self, view: "RunView") -> None:
        super().__init__(view)
        self._view = view
        self._model = LiveModel()
        self._replay: Replay | None = None
        self._title = ""
        self._end_s = 0.0
        self._measure_s: float | None = None
        self._speed_after_warmup: float | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self._tick)

    @property
    def playing(self) -> bool:
        """Whether a replay is shown, also while it is paused or at its end."""
        return self._replay is not None

    def play(self, recording: Recording, speed: float = 1.0) -> None:
        """Play a recording in place of the current one: from its warm-up, which is quicker; what has none, whole."""
        is_new = self._view.replay is None
        view = self._view.show_replay()
        if is_new:
            self._connect(view)
        self._title, self._end_s = describe_replay(recording), (recording.end_ns - recording.start_ns) / 1e9
        measure_ns = recording.measure_ns
        self._measure_s = None if measure_ns is None else (measure_ns - recording.start_ns) / 1e9
        view.live.overview.show_recording(_recorded(recording))
        view.offer_measured(offered=measure_ns is not None)
        self._model.handle(recording.inventory)
        self._replay, self._speed_after_warmup = Replay(recording, speed=speed), None
        if self._measure_s is not None and recording.warmup_ns is not None:
            self._replay.jump((recording.warmup_ns - recording.start_ns) / 1e9)
            self._replay.set_speed(max(speed, _WARMUP_SPEED))
            self._speed_after_warmup = speed
        self._replay.pause()
        QTimer.singleShot(0, self, partial(self._begin, self._replay))  # a view that was made now is painted first

    def _begin(self, replay: Replay) -> None:
        replay.resume()
        self._timer.start()
        self._tick()

    def stop(self) -> None:
        """End the replay and show this machine again."""
        self._timer.stop()
        self._replay = None
        self._view.show_live()

    def _connect(self, view: ReplayView) -> None:
        view.pause_button.clicked.connect(self._pause_or_resume)
        for speed, speed_button in view.speed_buttons.items():
            speed_button.clicked.connect(lambda _=False, speed=speed: self._set_speed(speed))
        view.restart_button.clicked.connect(self._restart)
        view.measured_button.clicked.connect(self._jump_to_measured)
        view.stop_button.clicked.connect(self.stop)
        view.live.overview.position_requested.connect(self._seek)
        view.live.log_button.clicked.connect(lambda: self._view.show_log(self._model.log))
        connect_time_controls(view.live, self._model, self._show)

    def _tick(self) -> None:
        if self._replay is None:
            return
        for event in self._replay.read():
            self._model.handle(event)
        if self._speed_after_warmup is not None and self._replay.position_s >= (self._measure_s or 0.0):
            self._set_speed(self._speed_after_warmup)
        if self._replay.behind:
            self._timer.start()  # also where it is paused, until it has caught up with a jump
            return
        if self._replay.ended or self._replay.paused:
            self._timer.stop()
        self._show()

    def _show(self) -> None:
        replay, view = self._replay, self._view.replay
        if replay is None or view is None or not view.isVisible():
            return
        position = format_position(self._end_s if replay.ended else replay.position_s, self._end_s)
        view.live.overview.show_position(self._end_s if replay.ended else replay.position_s)
        view.show_bar(self._title, position, paused=replay.paused, ended=replay.ended, speed=replay.speed)
        view.live.show_model(self._model.state())

    def _pause_or_resume(self) -> None:
        if self._replay is not None and self._replay.paused:
            self._replay.resume()
            self._timer.start()
        elif self._replay is not None:
            self._replay.pause()
        self._tick()

    def _set_speed(self, speed: float) -> None:
        self._speed_after_warmup = None
        if self._replay is not None:
            self._replay.set_speed(speed)
        self._tick()

    def _restart(self) -> None:
        if self._replay is not None:
            self._replay.restart()
            self._timer.start()
        self._tick()

    def _jump_to_measured(self) -> None:
        if self._measure_s is not None:
            self._jump(self._measure_s)

    def _seek(self, position_s: float) -> None:
        """Go on from there; what is paused stays so."""
        paused = self._replay is not None and self._replay.paused
        self._jump(position_s)
        if self._replay is not None and paused:
            self._replay.pause()
            self._tick()

    def _jump(self, position_s: float) -> None:
        if self._replay is not None:
            self._replay.jump(position_s)
            self._timer.start()
        self._tick()


def _recorded(recording: Recording) -> Recorded:
    """Return what is known of a recording before it is played."""
    start_s, length_s = recording.start_ns / 1e9, (recording.end_ns - recording.start_ns) / 1e9
    if recording.run is None:
        return Recorded(start_s, length_s)
    bands = tuple(
        Band(
            phase.name,
            phase.start_ns / 1e9 - start_s,
            length_s if phase.end_ns is None else phase.end_ns / 1e9 - start_s,
            strong=phase.name == "measure",
        )
        for phase in recording.run.phases
    )
    return Recorded(start_s, length_s, overview_curve(recording.run), bands)
