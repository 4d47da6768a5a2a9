"""Replays a recording on the Run screen, through the same model and plots as live data."""

from functools import partial

from PySide6.QtCore import QObject, QTimer

from app.gui.plot.overview import Recorded
from app.gui.run.replay import ReplayView
from app.gui.run.run_controller import connect_time_controls
from app.gui.run.screen import RunView
from app.telemetry.replay import Recording, Replay
from app.viewmodels.plot.model import Band
from app.viewmodels.plot.stored_curves import overview_curve
from app.viewmodels.run.live import LiveModel, describe_replay, format_position

_TICK_MS = 33
_WARMUP_SPEED = 4.0


class ReplayController(QObject):
    """Plays one recording at a time."""

    def __init__(self, view: RunView) -> None:
        super().__init__(view)
        self._view = view
        self._model = LiveModel()
        self._replay: Replay | None = None
        self._title = ""
        self._end_s = 0.0
        self._measure_s: float | None = None
        self._speed_after_warmup: float | None = None
        self._connected = False
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self._tick)

    @property
    def playing(self) -> bool:
        """Whether a replay is shown, also while it is paused or at its end."""
        return self._replay is not None

    def play(self, recording: Recording, speed: float = 1.0) -> None:
        """Play a recording in place of the current one: from its warm-up, which is quicker; what has none, whole."""
        view = self._view.show_replay()
        if not self._connected:
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
        self._connected = True
        view.pause_requested.connect(self._pause_or_resume)
        view.speed_requested.connect(self._set_speed)
        view.restart_requested.connect(self._restart)
        view.measured_requested.connect(self._jump_to_measured)
        view.stop_requested.connect(self.stop)
        view.live.overview.position_requested.connect(self._seek)
        view.live.log_requested.connect(lambda: self._view.show_log(self._model.log))
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
