"""A recording played: what happened then comes again, at its own spacing or faster."""

import time
from collections.abc import Callable, Sequence

from app.samples import Device
from app.telemetry.recording import Event, Recording


class Replay:
    """Plays a recording. `read` gives all that is due; `clock` gives seconds and only ever rises.

    Its events are those of the recording.
    """

    def __init__(
        self, recording: Recording, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recording = recording
        self._speed = speed
        self._clock = clock
        self._start_ns = recording.start_ns
        self._origin_s = clock()
        self._played_s = 0.0
        self._paused = False
        self._events = recording.events()
        self._next = next(self._events, None)

    @property
    def devices(self) -> Sequence[Device]:
        """The devices of the recording."""
        return self._recording.inventory.devices

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self._next is None

    @property
    def paused(self) -> bool:
        """Whether time stands still."""
        return self._paused

    @property
    def speed(self) -> float:
        """Seconds of the recording a second."""
        return self._speed

    @property
    def position_s(self) -> float:
        """Seconds of the recording played so far."""
        return self._played_s if self._paused else self._played_s + (self._clock() - self._origin_s) * self._speed

    @property
    def next_s(self) -> float | None:
        """Seconds until the next event is due, at this speed; None when paused or at the end."""
        if self._next is None or self._paused:
            return None
        return max(0.0, ((self._next.t_ns - self._start_ns) / 1e9 - self.position_s) / self._speed)

    def read(self, most: int = 5000) -> Sequence[Event]:
        """What is due and was not read yet, in its order; when it is more than `most`, the rest comes next time."""
        now_ns = self._start_ns + round(self.position_s * 1e9)
        due: list[Event] = []
        while self._next is not None and self._next.t_ns <= now_ns and len(due) < most:
            due.append(self._next.event)
            self._next = next(self._events, None)
        return due

    def set_speed(self, speed: float) -> None:
        """Plays so many times as fast from here on."""
        self._hold()
        self._speed = speed

    def pause(self) -> None:
        """Stops time."""
        self._hold()
        self._paused = True

    def resume(self) -> None:
        """Lets time go on where it stopped."""
        self._origin_s = self._clock()
        self._paused = False

    def restart(self) -> None:
        """Plays from the beginning again."""
        self._played_s = 0.0
        self.resume()
        self._events = self._recording.events()
        self._next = next(self._events, None)

    def jump(self, position_s: float) -> None:
        """Plays on from there; what happened before is due at once, from the beginning where it lies behind."""
        if position_s < self.position_s:
            self.restart()
        self._played_s = position_s
        self.resume()

    def close(self) -> None:
        """Nothing more is due."""
        self._next = None

    def _hold(self) -> None:
        self._played_s = self.position_s
        self._origin_s = self._clock()
