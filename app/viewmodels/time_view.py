"""Which stretch of time the live plots show: a window that follows what is new, or one that is held."""

import math
from dataclasses import dataclass
from typing import Literal

WindowName = Literal["30 s", "5 min", "all"]
WINDOWS: tuple[WindowName, ...] = ("30 s", "5 min", "all")

_LENGTHS_S: dict[WindowName, float] = {"30 s": 30.0, "5 min": 300.0}
_WHOLE_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
_SHORTEST_S = 0.5
_LONGEST_S = 31 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Frame:
    """The time axis: its zero on the monotonic clock, and the stretch shown around it. All in seconds."""

    origin_s: float
    start: float
    end: float


class TimeView:
    """The user's choice. A window that follows counts its times back from now, so its ticks stand still."""

    def __init__(self) -> None:
        self.window: WindowName = "all"
        self._held: Frame | None = None

    @property
    def held(self) -> bool:
        """Whether the view stands still while data arrive."""
        return self._held is not None

    def follow(self, window: WindowName | None = None) -> None:
        """Follow what is new, in the same window or another one."""
        self._held = None
        self.window = window or self.window

    def hold(self, shown: Frame) -> None:
        """Stay where the view is."""
        self._held = shown

    def zoom(self, shown: Frame, factor: float, at: float) -> None:
        """Show `factor` times as long a stretch with the time `at` in its place."""
        length = shown.end - shown.start
        factor = min(max(factor, _SHORTEST_S / length), _LONGEST_S / length)
        self._held = Frame(shown.origin_s, at + (shown.start - at) * factor, at + (shown.end - at) * factor)

    def pan(self, shown: Frame, by: float) -> None:
        """Move along the time axis."""
        self._held = Frame(shown.origin_s, shown.start + by, shown.end + by)

    def recent(self, now_s: float, whole_s: float) -> Frame:
        """The view where there is no run: the window's last seconds, or the last `whole_s` for all."""
        return self._held or Frame(now_s, -_LENGTHS_S.get(self.window, whole_s), 0.0)

    def of_run(self, start_s: float, now_s: float, *, ended: bool) -> Frame:
        """The view of a run: its last seconds, or all of it, on an axis with some room to grow while it goes on."""
        if self._held is not None:
            return self._held
        elapsed = now_s - start_s
        if self.window in _LENGTHS_S and elapsed > _LENGTHS_S[self.window]:
            return Frame(now_s, -_LENGTHS_S[self.window], 0.0)
        if ended:
            return Frame(start_s, 0.0, max(1.0, elapsed))
        fitting = (length for length in _WHOLE_S if length >= elapsed)
        return Frame(start_s, 0.0, next(fitting, math.ceil(elapsed / 3600) * 3600.0))
