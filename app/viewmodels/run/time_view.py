"""The time range that live plots show, following the newest data or paused, and the position in a replay."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from app import units
from app.telemetry.replay import Recording
from app.viewmodels.format.naming import format_gpu_counts

REPLAY_SPEEDS = (1.0, 4.0, 16.0)
"""How many times as fast as it was a recording can be played in the window."""


def describe_replay(recording: Recording, zone: tzinfo | None = None) -> str:
    """Return what is played: `Replay of run 14 · 2× H200 · 2026-11-20`; the day in `zone`, None is the system's."""
    day = datetime.fromtimestamp(recording.utc_ns / 1e9, UTC).astimezone(zone)
    return f"Replay of {recording.name} · {format_gpu_counts(recording.gpu_names) or 'CPU'} · {day:%Y-%m-%d}"


def format_position(position_s: float, end_s: float) -> str:
    """Return how far it is: `0:12 of 2:10`."""
    return f"{units.duration(min(position_s, end_s))} of {units.duration(end_s)}"


WindowName = Literal["30 s", "5 min", "all"]
WINDOWS: tuple[WindowName, ...] = ("30 s", "5 min", "all")

_LENGTHS_S: dict[WindowName, float] = {"30 s": 30.0, "5 min": 300.0}
_ROOM_TO_GROW = 1.1
"""How much longer the axis becomes when growing data reach its end: they fill nine tenths of it or more."""
_SHORTEST_S = 0.5
_SHORTEST_RECENT_S = 10.0
"""Without a run: a machine that was just begun to be watched is not looked at in tenths of a second."""
_LONGEST_S = 31 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time axis: its zero on the monotonic clock, and the range shown around it. All in seconds."""

    origin_s: float
    start: float
    end: float


class TimeView:
    """The user's choice. A window that follows counts its times back from now, so its ticks stand still."""

    def __init__(self) -> None:
        self.window: WindowName = "all"
        self._paused: TimeAxis | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the view stands still while data arrive."""
        return self._paused is not None

    def follow(self, window: WindowName | None = None) -> None:
        """Follow what is new, in the same window or another one."""
        self._paused = None
        self.window = window or self.window

    def pause(self, shown: TimeAxis) -> None:
        """Hold the view where it is."""
        self._paused = shown

    def zoom(self, shown: TimeAxis, factor: float, at: float) -> None:
        """Show a longer or shorter time and hold it.

        Args:
            shown: The axis that is shown.
            factor: How many times as long.
            at: The time that keeps its place.
        """
        length = shown.end - shown.start
        factor = min(max(factor, _SHORTEST_S / length), _LONGEST_S / length)
        self._paused = TimeAxis(shown.origin_s, at + (shown.start - at) * factor, at + (shown.end - at) * factor)

    def pan(self, shown: TimeAxis, by: float) -> None:
        """Move along the time axis."""
        self._paused = TimeAxis(shown.origin_s, shown.start + by, shown.end + by)

    def recent_axis(self, now_s: float, elapsed_s: float) -> TimeAxis:
        """Return the view without a run: the window's last seconds, or all `elapsed_s` of them."""
        return self._paused or TimeAxis(
            now_s, -_LENGTHS_S.get(self.window, max(_SHORTEST_RECENT_S, _with_room(elapsed_s))), 0.0
        )

    def run_axis(self, start_s: float, now_s: float, *, ended: bool) -> TimeAxis:
        """Return the view of a run: its last seconds, or all of it across the whole width.

        Args:
            start_s: When the run began.
            now_s: The newest time of the run.
            ended: Whether it has ended; before, the axis has some room to grow.
        """
        if self._paused is not None:
            return self._paused
        elapsed = now_s - start_s
        length = _LENGTHS_S.get(self.window)
        if length is not None and elapsed > length:
            return TimeAxis(now_s, -length, 0.0)
        whole = max(elapsed, _SHORTEST_S) if ended else _with_room(elapsed)
        return TimeAxis(start_s, 0.0, length or whole)


def _with_room(elapsed_s: float) -> float:
    """Return the next power of `_ROOM_TO_GROW`, so that an axis which grows with its data stands still in between."""
    return max(_SHORTEST_S, _ROOM_TO_GROW ** math.ceil(math.log(max(elapsed_s, _SHORTEST_S), _ROOM_TO_GROW)))
