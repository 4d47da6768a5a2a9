"""What differs between two runs beyond their figures: means of samples, and lines of logs and sources."""

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

from app.analysis.energy import field_in_window, measured_window
from app.fields import FIELDS
from app.records import SampleColumns, StoredRun
from app.samples import Device

_VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"  # a time of day
    r"|(?<=^[IWEF])\d{4} [\d:.]+ +\d+(?= )"  # date, time and thread in the lines of absl
    r"|0x[0-9a-f]+"
)
"""What differs in the lines of any two runs, and says nothing."""

Side = Literal["first", "second"]


class LineChange(NamedTuple):
    """A line of a text, and which of two runs have it."""

    side: Side
    text: str


def line_changes(first: Sequence[str], second: Sequence[str]) -> tuple[LineChange, ...]:
    """Return the lines that differ between two texts whose order matters, as that of a source does, in order."""
    start = _common_start(first, second)
    end = _common_start(first[start:][::-1], second[start:][::-1])
    first, second = first[start : len(first) - end], second[start : len(second) - end]
    changes: list[LineChange] = []
    # Without autojunk=False a line that makes up 1 % of 200 lines or more would match nothing.
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag != "equal":
            changes += [LineChange("first", line) for line in first[i:i_end]]
            changes += [LineChange("second", line) for line in second[j:j_end]]
    return tuple(changes)


def _common_start(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many lines two texts have in common at their start."""
    differs = (line != second_line for line, second_line in zip(first, second, strict=False))
    return next(itertools.compress(itertools.count(), differs), min(len(first), len(second)))


def log_changes(first: Sequence[str], second: Sequence[str]) -> tuple[LineChange, ...]:
    """Return the lines that one of two logs has more often than the other: those of the first, then of the second.

    Their order is left to the threads that print, so it makes no difference; nor do times of day, threads and
    addresses. Takes time in proportion to the number of lines.
    """
    changes: list[LineChange] = []
    sides: tuple[tuple[Side, Sequence[str], Sequence[str]], ...] = (("first", first, second), ("second", second, first))
    for side, lines, other_lines in sides:
        unmatched = Counter(_VARYING.sub("", line) for line in other_lines)
        for line in lines:
            plain = _VARYING.sub("", line)
            if unmatched[plain] == 0:
                changes.append(LineChange(side, line))
            else:
                unmatched[plain] -= 1
    return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMeans:
    """The means of a device's samples while the run measured, by field; without counters and masks."""

    device: Device
    means: Mapping[str, float]


def device_means(run: StoredRun) -> list[DeviceMeans]:
    """Return the means of each GPU, by index, then of the host; none of a run without `measure`."""
    window = measured_window(run)
    if window is None:
        return []
    ordered = sorted(run.samples, key=lambda columns: (columns.device.kind == "host", columns.device.index))
    return [DeviceMeans(device=columns.device, means=_means(columns, window)) for columns in ordered]


def _means(columns: SampleColumns, window: tuple[int, int]) -> dict[str, float]:
    readings = {name: field_in_window(columns, name, window) for name in FIELDS if _has_mean(name)}
    return {name: float(values.mean()) for name, values in readings.items() if values.size}


def _has_mean(name: str) -> bool:
    return FIELDS[name].kind != "counter" and FIELDS[name].unit != "bits"


def paired_means(first: StoredRun, second: StoredRun) -> list[tuple[DeviceMeans | None, DeviceMeans | None]]:
    """Return the devices of two runs side by side: the first GPU of one next to the first GPU of the other."""
    sides = [device_means(run) for run in (first, second)]
    pairs: list[tuple[DeviceMeans | None, DeviceMeans | None]] = []
    for kind in ("gpu", "host"):
        first_means, second_means = ([means for means in side if means.device.kind == kind] for side in sides)
        pairs += zip_longest(first_means, second_means)
    return pairs
