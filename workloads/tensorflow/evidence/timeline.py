"""One step of a trace, kernel by kernel: where it begins and ends among several, and on which streams it ran."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workloads.protocol import (
    MOST_NAME_CHARS,
    MOST_STEP_KERNELS,
    MOST_STREAMS,
    Kernel,
    StepKernel,
    StepTimeline,
    Stream,
    plain,
)


class Line(NamedTuple):
    """A stream of a GPU or a thread of the CPU: its device, and its name and number in the profile."""

    device: str
    name: str
    number: int


class Event(NamedTuple):
    """One thing that ran, in picoseconds of the trace's clock.

    `op` is the operation or instruction it is of, if known; `occupancy_pct` as in `Kernel`; the host began to launch it
    at `launch_ps`.
    """

    name: str
    start_ps: int
    end_ps: int
    line: Line
    op: str = ""
    occupancy_pct: float | None = None
    launch_ps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """The events of one step in the order in which they began, and its ends; `start_ns` is on the monotonic clock."""

    start_ns: int
    start_ps: int
    end_ps: int
    events: tuple[Event, ...]


def cut_step(events: Sequence[Event], steps: int) -> tuple[int, int] | None:
    """Return where one of these steps begins and ends, in picoseconds; None where the trace does not tell.

    Among several it is one from their middle: the host is ahead of the GPU then as it is in a long run. A step ends
    where the next one begins, on the stream that is busiest with kernels that every step ran alike.
    """
    if not events:
        return None
    if steps == 1:
        return min(event.start_ps for event in events), max(event.end_ps for event in events)
    busiest = max((_periodic(line, steps) for line in _by_line(events).values()), key=time_ps)
    if not busiest:
        return None
    kernels, step = len(busiest) // steps, (steps - 1) // 2
    return busiest[step * kernels].start_ps, busiest[(step + 1) * kernels].start_ps


def step_timeline(step: TracedStep | None, kernels: Sequence[Kernel]) -> StepTimeline | None:
    """Return a step as a message has it: at most so many of its first kernels; None without any."""
    if step is None:
        return None
    ranks = {kernel.name: rank for rank, kernel in enumerate(kernels)}
    lines = _ranked_lines(step.events)[:MOST_STREAMS]
    numbers = {line: number for number, line in enumerate(lines)}
    known = [event for event in step.events if event.name in ranks and event.line in numbers]
    return StepTimeline(
        start_ns=step.start_ns,
        duration_ns=(step.end_ps - step.start_ps) // 1000,
        streams=tuple(_streams(lines)),
        kernels=tuple(
            StepKernel(
                stream=numbers[event.line],
                rank=ranks[event.name],
                start_ns=(event.start_ps - step.start_ps) // 1000,
                duration_ns=(event.end_ps - event.start_ps) // 1000,
            )
            for event in known[:MOST_STEP_KERNELS]
        ),
        left_out=len(step.events) - min(len(known), MOST_STEP_KERNELS),
    )


def _by_line(events: Iterable[Event]) -> dict[Line, list[Event]]:
    lines: dict[Line, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.start_ps):
        lines.setdefault(event.line, []).append(event)
    return lines


def _periodic(line: Sequence[Event], steps: int) -> list[Event]:
    """Return a line without kernels that some steps run more often, as the copy of a result; empty if steps differ."""
    counts = Counter(event.name for event in line)
    found = [event for event in line if counts[event.name] % steps == 0]
    kernels = len(found) // steps
    names = [Counter(event.name for event in found[step * kernels : (step + 1) * kernels]) for step in range(steps)]
    return found if all(one == names[0] for one in names) else []


def time_ps(events: Iterable[Event]) -> int:
    """Return the time of all events together, whether they overlap or not."""
    return sum(event.end_ps - event.start_ps for event in events)


def _ranked_lines(events: Iterable[Event]) -> list[Line]:
    """Return the lines by device, of each the busiest first."""
    times = {line: time_ps(found) for line, found in _by_line(events).items()}
    return sorted(times, key=lambda line: (len(line.device), line.device, -times[line]))


def _streams(lines: Iterable[Line]) -> Iterator[Stream]:
    """Yield the lines with names that tell them apart: threads have numbers of twenty digits in the profile."""
    seen = Counter[tuple[str, str]]()
    for line in lines:
        name = plain(line.name.partition("/")[0])[: MOST_NAME_CHARS - 10]
        seen[line.device, name] += 1
        number = seen[line.device, name]
        yield Stream(device=line.device, name=name if number == 1 else f"{name} {number}")
