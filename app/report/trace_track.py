"""Events of the Trace Event Format, by the line of the timeline they stand on.

The format is described in Google's document "Trace Event Format"
(docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import msgspec

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event: `ph` says whether it is a slice (X), an instant (i), a counter's value (C) or a name (M).

    `ts` and `dur` are whole microseconds, `ts` since the run's start; `cat` is its category, `s` how far an instant
    reaches: its thread (t) or its process (p).
    """

    name: str
    ph: Literal["X", "i", "C", "M"]
    pid: int
    tid: int
    ts: int | None = None
    dur: int | None = None
    cat: str | None = None
    s: Literal["t", "p"] | None = None
    args: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One thread of a process, and when its run started; times are given in nanoseconds of the monotonic clock.

    Both ends of a slice are rounded down, so that what lies within another slice still does.
    """

    pid: int
    tid: int
    zero_ns: int

    def named(self, name: str, of: Literal["process_name", "thread_name"] = "thread_name") -> Event:
        """What the line, or the whole process, is called."""
        return Event(name=of, ph="M", pid=self.pid, tid=self.tid, args={"name": name})

    def sorted_at(self, place: int) -> Event:
        """Where the process stands among the others."""
        return Event(name="process_sort_index", ph="M", pid=self.pid, tid=self.tid, args={"sort_index": place})

    def slice(self, name: str, category: str, start_ns: int, end_ns: int, args: Mapping[str, Any] = _NOTHING) -> Event:
        """Something that lasted; of what is said of it, what is absent is left out."""
        ts = self.us(start_ns)
        dur = self.us(end_ns) - ts
        return Event(name=name, ph="X", pid=self.pid, tid=self.tid, ts=ts, dur=dur, cat=category, args=_known(args))

    def instant(self, name: str, category: str, t_ns: int, *, of_process: bool = False) -> Event:
        """Something that happened."""
        reach: Literal["t", "p"] = "p" if of_process else "t"
        return Event(name=name, ph="i", pid=self.pid, tid=self.tid, ts=self.us(t_ns), cat=category, s=reach)

    def count(self, name: str, unit: str, t_us: int, value: float) -> Event:
        """The value that a counter of the process has from a time in microseconds on."""
        return Event(name=name, ph="C", pid=self.pid, tid=self.tid, ts=t_us, args={unit: value})

    def us(self, t_ns: int) -> int:
        """A time in whole microseconds since the run's start."""
        return (t_ns - self.zero_ns) // 1000


def _known(args: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is absent; JSON has no word for a number that is none."""
    return {name: value for name, value in args.items() if value is not None and not _is_no_number(value)}


def _is_no_number(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
