"""What ran in traced steps of any framework: kernels by name, where a device's time went, and one step.

Nothing here needs a framework; each framework has a reader that turns its profiler's file into `Event`s.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workloads.kernels import classify, on_tensor_cores
from workloads.protocol import (
    MOST_KERNELS,
    MOST_NAME_CHARS,
    MOST_STEP_KERNELS,
    MOST_STREAMS,
    DeviceTime,
    Kernel,
    StepKernel,
    StepTimeline,
    Stream,
    plain,
)


class Line(NamedTuple):
    """A stream of a GPU or a thread of the CPU: its device, name and number in the profile."""

    device: str
    name: str
    number: int


class Event(NamedTuple):
    """A kernel, copy or operation that ran, in picoseconds of the trace's clock.

    `op` is its operation or instruction, if known; `occupancy_pct` is as in `Kernel`; the host began to launch it at
    `launch_ps`.
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
    """The events of one step in the order of their starts, and its ends; `start_ns` is on the monotonic clock."""

    start_ns: int
    start_ps: int
    end_ps: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the profiler saw of some steps: on GPUs kernels and copies, on the CPU the framework's operations.

    Attributes:
        kernels: By name, over all devices, longest total time first.
        events: The total number of kernels or operations.
        step: One of the steps; None if the trace does not show where a step begins and ends.
        notes: What was not observed.
    """

    steps: int = 0
    kernels: tuple[Kernel, ...] = ()
    times: tuple[DeviceTime, ...] = ()
    events: int = 0
    step: TracedStep | None = None
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return len(self.times)

    @property
    def span_ns(self) -> int:
        """Return the time from the first kernel's start to the last one's end, summed over the devices."""
        return sum(device.span_ns for device in self.times)

    @property
    def busy_ns(self) -> int:
        """Return the part of the span in which a kernel ran (on the CPU also the executor), summed over the devices."""
        return sum(device.busy_ns for device in self.times)


def monotonic_clock(begin_ns: int) -> Callable[[int], int]:
    """Return a function that converts a time since 1970, between `begin_ns` and now, to the monotonic clock."""
    end_ns, behind_ns = time.monotonic_ns(), time.time_ns() - time.monotonic_ns()
    return lambda utc_ns: min(max(utc_ns - behind_ns, begin_ns), end_ns)


def cut_step(events: Sequence[Event], steps: int) -> tuple[int, int] | None:
    """Return where one of these steps begins and ends, in picoseconds; None if the trace does not show it.

    Of several steps it is a middle one, where the host is as far ahead of the GPU as in a long run. A step ends where
    the next one begins, on the busiest stream whose kernels recur in every step.
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


def traced_step(events: Sequence[Event], steps: int, start_ns: Callable[[int], int]) -> TracedStep | None:
    """Return one of these steps; None if the trace does not show it. `start_ns` converts picoseconds of its clock."""
    ends = cut_step(events, steps)
    if ends is None:
        return None
    start_ps, end_ps = ends
    inside = sorted(
        (event for event in events if start_ps <= event.start_ps < end_ps), key=lambda event: event.start_ps
    )
    return TracedStep(start_ns=start_ns(start_ps), start_ps=start_ps, end_ps=end_ps, events=tuple(inside))


def step_timeline(step: TracedStep | None, kernels: Sequence[Kernel]) -> StepTimeline | None:
    """Return a step as a message takes it, with its first kernels up to a limit; None if it has none."""
    if step is None:
        return None
    ranks = {kernel.name: rank for rank, kernel in enumerate(kernels)}
    times = {line: time_ps(events_of_line) for line, events_of_line in _by_line(step.events).items()}
    lines = sorted(times, key=lambda line: (len(line.device), line.device, -times[line]))[:MOST_STREAMS]
    numbers = {line: number for number, line in enumerate(lines)}
    ranked = [event for event in step.events if event.name in ranks and event.line in numbers]
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
            for event in ranked[:MOST_STEP_KERNELS]
        ),
        left_out=len(step.events) - min(len(ranked), MOST_STEP_KERNELS),
    )


def _by_line(events: Iterable[Event]) -> dict[Line, list[Event]]:
    lines: dict[Line, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.start_ps):
        lines.setdefault(event.line, []).append(event)
    return lines


def _periodic(line: Sequence[Event], steps: int) -> list[Event]:
    """Return a line without the kernels that only some steps run, such as a result's copy; empty if steps differ."""
    counts = Counter(event.name for event in line)
    regular = [event for event in line if counts[event.name] % steps == 0]
    kernels = len(regular) // steps
    names = [Counter(event.name for event in regular[step * kernels : (step + 1) * kernels]) for step in range(steps)]
    return regular if all(name == names[0] for name in names) else []


def time_ps(events: Iterable[Event]) -> int:
    """Return the summed time of all events, whether they overlap or not."""
    return sum(event.end_ps - event.start_ps for event in events)


def _streams(lines: Iterable[Line]) -> Iterator[Stream]:
    """Yield the lines with short names that distinguish them: the profile's thread numbers have twenty digits."""
    counts = Counter[tuple[str, str]]()
    for line in lines:
        name = plain(line.name.partition("/")[0])[: MOST_NAME_CHARS - 10]
        counts[line.device, name] += 1
        number = counts[line.device, name]
        yield Stream(device=line.device, name=name if number == 1 else f"{name} {number}")


def rank_kernels(events: Iterable[Event], counts: Mapping[str, int] | None = None) -> tuple[Kernel, ...]:
    """Return the kernels by name, longest total time first; at most as many as a message takes.

    `counts` is each one's number of calls, if events are only parts of calls.
    """
    by_name: dict[str, list[Event]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event)
    ranked = sorted(
        ((time_ps(events_of_name), name) for name, events_of_name in by_name.items()),
        key=lambda pair: pair[0],
        reverse=True,
    )
    return tuple(
        Kernel(
            name=name,
            kind=classify(name),
            count=len(by_name[name]) if counts is None else counts[name],
            time_ns=total_ps // 1000,
            tensor_cores=on_tensor_cores(name),
            occupancy_pct=_mean_occupancy_pct(by_name[name]),
        )
        for total_ps, name in ranked[:MOST_KERNELS]
    )


def _mean_occupancy_pct(events: Iterable[Event]) -> float | None:
    """Return the mean weighted by time; None if no occupancy is known."""
    with_occupancy = [event for event in events if event.occupancy_pct is not None]
    total_ps = time_ps(with_occupancy)
    weighted = sum((event.end_ps - event.start_ps) * (event.occupancy_pct or 0.0) for event in with_occupancy)
    return weighted / total_ps if total_ps else None


def _busy_ps(events: Iterable[Event]) -> int:
    """Return the length of the union of the events' intervals."""
    busy = reached = 0
    for event in sorted(events, key=lambda event: event.start_ps):
        busy += max(0, event.end_ps - max(event.start_ps, reached))
        reached = max(reached, event.end_ps)
    return busy


def device_time(device: str, events: Sequence[Event], kernels: int) -> DeviceTime:
    """Return where a device's time went by its events; `kernels` of them are kernels, the others only show it busy."""
    communication_names = {name for name in {event.name for event in events} if classify(name) == "communication"}
    communication = [event for event in events if event.name in communication_names]
    host_wait_ns, kernel_wait_ns = _waits_ns(events)
    starts, ends = zip(*((event.start_ps, event.end_ps) for event in events), strict=True)
    return DeviceTime(
        device=device,
        span_ns=int(max(ends) - min(starts)) // 1000,
        busy_ns=_busy_ps(events) // 1000,
        compute_ns=_busy_ps(event for event in events if event.name not in communication_names) // 1000,
        communication_ns=_busy_ps(communication) // 1000,
        kernels=kernels,
        host_wait_ns=host_wait_ns,
        kernel_wait_ns=kernel_wait_ns,
    )


_KERNEL_WAIT_PS = 5_000_000
"""A shorter gap before a kernel that was launched in time lies between two kernels of a full queue: on an H200, 99 % of
the gaps there are shorter, most of them 1 to 3 µs (`step_kernels` of the reference runs of `cnn10`)."""


def _waits_ns(events: Iterable[Event]) -> tuple[int, int] | tuple[None, None]:
    """Return how long an idle GPU waited for the host, and how long between kernels.

    The kernel that ends a gap determines its cause: Holistic Trace Analysis, "Idle Time Breakdown", there by stream.
    """
    ordered = sorted(events, key=lambda event: event.start_ps)
    if all(event.launch_ps is None for event in ordered):
        return None, None
    host = kernel = 0
    reached = ordered[0].start_ps
    for event in ordered:
        if event.launch_ps is not None and (gap := event.start_ps - reached) > 0:
            if event.launch_ps > reached:
                host += gap
            elif gap < _KERNEL_WAIT_PS:
                kernel += gap
        reached = max(reached, event.end_ps)
    return host // 1000, kernel // 1000
