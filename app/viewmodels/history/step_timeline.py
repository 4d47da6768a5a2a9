"""The kernels of one traced step on their streams: labels, sentences, and bars for any range of time and width."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app import units
from app.records import Floats, Ints
from app.viewmodels.format.kernels import short_kernel_names
from app.viewmodels.history.kernel_time import KERNEL_CLASSES
from workloads.protocol import Evidence, Kernel, StepTimeline

MAX_ROWS = 24
"""Streams that are shown; those of a device that are busiest come first."""
_GAP_NOTE = "Kernels take as long as ever under the profiler; the gaps between them are up to three times as long."


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One stream: its label, how many kernels ran on it, and for what share of the step, from 0 to 1."""

    label: str
    kernels: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """One traced step; `text` says all of it in words, `notes` what is not shown."""

    step: StepTimeline
    kernels: tuple[Kernel, ...]
    noun: str
    rows: tuple[StreamRow, ...]
    text: str
    notes: str

    @property
    def step_us(self) -> float:
        """Length of the step."""
        return max(self.step.duration_ns, 1) / 1000

    def describe(self, index: int) -> str:
        """Return one kernel in words: class, start, duration, share of the step, occupancy, stream and name."""
        one = self.step.kernels[index]
        kernel = self.kernels[one.rank]
        share = units.percent(100 * one.duration_ns / max(self.step.duration_ns, 1), 2)
        parts = (
            KERNEL_CLASSES[kernel.kind][0],
            f"at {units.with_unit(one.start_ns / 1e6, 'ms', 3)} for {_time_text(one.duration_ns)}, {share} of the step",
            "" if kernel.occupancy_pct is None else f"occupancy {units.percent(kernel.occupancy_pct, 1)}",
            self.rows[one.stream].label,
            *short_kernel_names([kernel.name]),
        )
        return " · ".join(filter(None, parts))


def timeline_view(evidence: Evidence, noun: str) -> TimelineView | None:
    """Return the timeline of a run's evidence; None where none was stored.

    `noun` is what kernels are called: ops, on the CPU.
    """
    step = evidence.timeline
    if step is None or not step.kernels:
        return None
    rows = tuple(_rows(step))
    lanes = f"{len(step.streams)} {units.plural('thread' if noun == 'op' else 'stream', len(step.streams))}"
    total = len(step.kernels) + step.left_out
    text = f"One of the traced steps, {_time_text(step.duration_ns)}: {total:,} {units.plural(noun, total)} on {lanes}."
    shares = (
        f"{row.label}: {row.kernels:,} {units.plural(noun, row.kernels)}, {units.percent(100 * row.share, 1)} busy"
        for row in rows
    )
    return TimelineView(
        step=step,
        kernels=evidence.kernels,
        noun=noun,
        rows=rows,
        text=f"{text} {'. '.join(shares)}.",
        notes=" ".join(filter(None, (text, _describe_left_out(step, noun), "" if noun == "op" else _GAP_NOTE))),
    )


def _describe_left_out(step: StepTimeline, noun: str) -> str:
    hidden = len(step.streams) - MAX_ROWS
    of_rows = f"The {MAX_ROWS} busiest of them are shown." if hidden > 0 else ""
    first = f"{len(step.kernels):,} {units.plural(noun, len(step.kernels))}"
    return f"{f'Only the first {first} are stored.' if step.left_out else ''} {of_rows}".strip()


def _rows(step: StepTimeline) -> Iterator[StreamRow]:
    several = len({stream.device for stream in step.streams}) > 1
    counts, busy_ns = Counter[int](), Counter[int]()
    for one in step.kernels:
        counts[one.stream] += 1
        busy_ns[one.stream] += one.duration_ns
    for number, stream in enumerate(step.streams[:MAX_ROWS]):
        label = f"{stream.device} · {stream.name}" if several else stream.name
        yield StreamRow(label, counts[number], busy_ns[number] / max(step.duration_ns, 1))


def _time_text(time_ns: int) -> str:
    return units.amount(time_ns / 1e6, "ms") if time_ns >= 1_000_000 else units.amount(time_ns / 1e3, "µs")


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars to draw, as columns of one length: pixels from the left, a row, and the index of a colour.

    `low` and `high` are the part of the row's height that a bar takes, from 0 at its foot to 1.
    """

    row: Ints
    left: Floats
    width: Floats
    low: Floats
    high: Floats
    colour: Ints


class Lanes:
    """The kernels of a step as columns, to draw and to find; `index` is that of the step's kernels."""

    def __init__(self, view: TimelineView) -> None:
        step = np.array([(one.stream, one.start_ns, one.duration_ns, one.rank) for one in view.step.kernels], np.int64)
        self.index = np.flatnonzero(step[:, 0] < len(view.rows))
        self.row, start_ns, duration_ns, rank = step[self.index].T
        self.start_us, self.end_us = start_ns / 1e3, (start_ns + np.maximum(duration_ns, 1)) / 1e3
        colours = np.array([KERNEL_CLASSES[kernel.kind][1] for kernel in view.kernels], np.int64)
        self.colour = colours[rank]

    def find(self, row: int, time_us: float, reach_us: float) -> int | None:
        """Return which kernel runs on a row at a time, or the nearest within reach, as a number of these columns.

        The time is since the step's start.
        """
        distance = np.maximum(self.start_us - time_us, time_us - self.end_us)
        distance = np.where(self.row == row, np.maximum(distance, 0.0), np.inf)
        nearest = int(np.argmin(distance))
        return nearest if distance[nearest] <= reach_us else None

    def next_on_row(self, current: int, step: int) -> int:
        """Return the kernel that begins before (-1) or after (1) one on its row; itself at the end."""
        on_row = np.flatnonzero(self.row == self.row[current])
        index = int(np.searchsorted(on_row, current)) + step
        return int(on_row[min(max(index, 0), on_row.size - 1)])

    def bars(self, start_us: float, end_us: float, width_px: int) -> Bars:
        """Return what to draw of a range of time.

        A kernel of a pixel or more is a bar. Shorter ones share their pixel: each class has the part of its height for
        whose part of the time it ran, so that a row of a thousand kernels with gaps between them does not look full.
        """
        scale = width_px / (end_us - start_us)
        seen = (self.end_us > start_us) & (self.start_us < end_us)
        row, colour = self.row[seen], self.colour[seen]
        left, right = (self.start_us[seen] - start_us) * scale, (self.end_us[seen] - start_us) * scale
        long = right - left >= 1.0
        first = np.clip(left[long], 0.0, width_px)
        shared = _shared_pixels(row[~long], colour[~long], left[~long], right[~long] - left[~long])
        ones = np.ones(first.size)
        return Bars(
            row=np.concatenate((shared.row, row[long])),
            left=np.concatenate((shared.left, first)),
            width=np.concatenate((shared.width, np.clip(right[long], 0.0, width_px) - first)),
            low=np.concatenate((shared.low, 0 * ones)),
            high=np.concatenate((shared.high, ones)),
            colour=np.concatenate((shared.colour, colour[long])),
        )


def _shared_pixels(row: Ints, colour: Ints, left: Floats, width: Floats) -> Bars:
    """Return a bar for each row, pixel and colour that short kernels have, one above the other.

    Positions and widths are in pixels.
    """
    key = np.stack((row, np.maximum(left + width / 2, 0.0).astype(np.int64), colour))
    (row, pixel, colour), inverse = np.unique(key, axis=1, return_inverse=True)
    part = np.bincount(inverse.ravel(), weights=width, minlength=row.size)
    height: Floats = np.cumsum(part)
    is_first = np.ones(row.size, np.bool_)
    is_first[1:] = (row[1:] != row[:-1]) | (pixel[1:] != pixel[:-1])
    before: NDArray[np.float64] = height - part
    below = before - np.maximum.accumulate(np.where(is_first, before, 0.0))
    return Bars(row, pixel.astype(np.float64), np.ones(row.size), below, np.minimum(below + part, 1.0), colour)
