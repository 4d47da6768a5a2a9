"""The Run screen: the state of the displayed run, and tabs for concurrent runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.values import units
from app.values.events import RunEnded, RunEvent, RunStarted
from app.values.fields import Sample
from app.values.samples import HOST, Device, DeviceLost, Inventory, Processes
from app.viewmodels.format.cells import OUTCOMES
from app.viewmodels.format.derived import summary_line
from app.viewmodels.format.naming import differing_parameters, short_name, variant_names
from app.viewmodels.history.evidence import EvidenceView
from app.viewmodels.plot.model import TIME_RANGES, Marker, Panel, Plots
from app.viewmodels.plot.panels import (
    HOST_COLOUR,
    TelemetryBuffer,
    device_colour,
    device_label,
    device_panels,
    gpu_devices,
    per_gpu_panels,
    with_limits,
)
from app.viewmodels.run.timeline import RunTimeline, outcome_title, timeline_panels, with_allocator
from workloads.protocol import RunSpec

_ROOM_TO_GROW = 1.1
"""How much longer the axis becomes when data reach its end: they fill at least nine tenths of it."""
_SHORTEST_S = 0.5
_LEAST_MEASURED_S = 1.0
"""A part that has only begun to be measured has no curves yet."""
_SHORTEST_RECENT_S = 10.0
"""The shortest view without a run, when telemetry has only just started."""
_LONGEST_S = 31 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time axis: its zero on the monotonic clock, and the visible range around it, in seconds."""

    origin_s: float
    start: float
    end: float


class TimeView:
    """The user's view. A window that follows counts its times back from now, so its ticks stand still."""

    def __init__(self, window: str = "measured") -> None:
        self.window = window
        self._paused: TimeAxis | None = None

    @property
    def is_paused(self) -> bool:
        """Return whether the view stands still while data arrive."""
        return self._paused is not None

    def follow(self, window: str | None = None) -> None:
        self._paused = None
        self.window = window or self.window

    def toggle_pause(self, axis: TimeAxis) -> None:
        """Freeze the view, or follow again."""
        self._paused = None if self.is_paused else axis

    def hold(self, axis: TimeAxis, start: float, end: float) -> None:
        """Show this range of an axis, unless it is too short or too long."""
        if end - start < _SHORTEST_S or end - start > _LONGEST_S:
            middle, half = (start + end) / 2, min(max(end - start, _SHORTEST_S), _LONGEST_S) / 2
            start, end = middle - half, middle + half
        self._paused = TimeAxis(axis.origin_s, start, end)

    def recent_axis(self, now_s: float, elapsed_s: float) -> TimeAxis:
        """Return the view without a run: the window's last seconds, or all `elapsed_s` of them."""
        length_s = TIME_RANGES[self.window].last_s or max(_SHORTEST_RECENT_S, _with_room(elapsed_s))
        return self._paused or TimeAxis(now_s, -length_s, 0.0)

    def run_axis(self, start_s: float, now_s: float, measured: tuple[float, float] | None, *, ended: bool) -> TimeAxis:
        """Return the view of a run: its last seconds, the `measured` part, or all of it.

        The axis of a running run has some room to grow. Before it has measured for a while, all of it is visible.
        """
        if self._paused is not None:
            return self._paused
        length_s = TIME_RANGES[self.window].last_s
        if length_s is not None and now_s - start_s > length_s:
            return TimeAxis(now_s, -length_s, 0.0)
        first_s, last_s = measured if self.window == "measured" and measured is not None else (start_s, now_s)
        is_complete = ended or last_s < now_s
        if not is_complete and last_s - first_s < _LEAST_MEASURED_S:
            first_s = start_s
        shown_s = max(last_s - first_s, _SHORTEST_S) if is_complete else _with_room(last_s - first_s)
        return TimeAxis(start_s, first_s - start_s, first_s - start_s + (length_s or shown_s))


def _with_room(elapsed_s: float) -> float:
    """Return the next power of `_ROOM_TO_GROW`, so that a growing axis stands still in between."""
    return max(_SHORTEST_S, _ROOM_TO_GROW ** math.ceil(math.log(max(elapsed_s, _SHORTEST_S), _ROOM_TO_GROW)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTab:
    """One run: its device, number and differences from the others, preceded by its outcome.

    A refused run has no GPU. `colour` is that of its first GPU, or of the host.
    """

    run: int
    label: str
    help: str
    colour: int


def run_tabs(timelines: Sequence[RunTimeline]) -> tuple[RunTab, ...]:
    """Return a tab for each run that has started; none if there is nothing to choose."""
    started_runs = [(course, course.started) for course in timelines if isinstance(course.started, RunStarted)]
    if len(started_runs) < 2:
        return ()
    specs = [started.spec for _, started in started_runs]
    names = variant_names(specs) if differing_parameters(specs) else [""] * len(specs)
    return tuple(_tab(course, started, name) for (course, started), name in zip(started_runs, names, strict=True))


def _tab(timeline: RunTimeline, started: RunStarted, name: str) -> RunTab:
    state = OUTCOMES[timeline.ended.outcome.name if timeline.ended else "running"]
    where = f"GPU {', '.join(str(gpu.index) for gpu in timeline.gpus)}" if timeline.gpus else "No GPU"
    short = f"{state.symbol} {where}" if timeline.ended else where
    return RunTab(
        run=started.run,
        label=" · ".join(filter(None, (short, f"run {started.run}", name))),
        help=f"Run {started.run}, {state.word}: {short_name(started.spec)}",
        colour=device_colour(timeline.gpus[0]) if timeline.gpus else HOST_COLOUR,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The run's status. `tone` is a role in the style: good, warning, bad or heading.

    `can_run_anyway`: it waits for a device that others use.
    """

    title: str
    tone: str = "heading"
    detail: str = ""
    name: str = ""
    fraction: float | None = None
    left: str = ""
    has_log: bool = False
    can_run_anyway: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The content of the live view; times in seconds after `origin_s` of the monotonic clock.

    `window` is the name of a time range. `pause_label` names a frozen view and is "" for one that follows; `growing` is
    false once a run has ended. `evidence` is a finished run's. `runs` are the concurrent ones, empty if there is only
    one, and `run` is the displayed one's number.
    """

    runs: tuple[RunTab, ...]
    run: int | None
    plots: Plots
    window: str
    pause_label: str
    growing: bool
    has_several_gpus: bool
    per_gpu: bool
    status: Status
    throughput: str
    unit: str
    spread: str
    summary: str
    evidence: EvidenceView | None = None


_READY = Status(
    title="Ready to run",
    detail="Choose a variant in the form, then press Run (Ctrl+R). The plots show the machine now.",
)
_STARTING = Status(title="Starting the next run …", detail="The queue below shows its progress.")


class LiveModel:
    """The Run screen's model. Before a run it shows up to an hour of telemetry, afterwards that run.

    Of concurrent runs it shows one, when that ends the newest, and keeps the events of the others.
    """

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self.recent = TelemetryBuffer(short_history=True)
        self._buffers = {"": self.recent}
        self._view = TimeView()
        self._per_gpu = False
        self._queue_runs = False
        self._timeline = RunTimeline()
        self._timelines = [self._timeline]
        self._tabs: tuple[RunTab, ...] = ()
        self._chosen_by_user = False
        self.absence = "", ""
        """Why the displayed host is silent: a title and a sentence; "" if it is not."""

    def show_host(self, host: str, inventory: Inventory | None) -> None:
        """Show the telemetry of another host, which has another clock; "" is this machine."""
        self._inventory = inventory
        self.recent = self._buffers.setdefault(host, TelemetryBuffer(short_history=True))
        self._show_only(RunTimeline())

    def request(self, spec: RunSpec) -> None:
        """Show that a run starts, until its first event."""
        self._show_only(RunTimeline(requested=spec))

    def withdraw(self) -> None:
        """Show that the requested run could not start."""
        self._show_only(RunTimeline())

    def set_queue_running(self, running: bool) -> None:
        """Set whether the queue runs now; when it no longer does, no run continues.

        Runs that ended before the queue started are no longer shown.
        """
        self._queue_runs = running
        if running:
            for timeline in self._timelines:
                timeline.was_concurrent = False
            if not any(timeline.running for timeline in self._timelines):
                self.withdraw()
            return
        self._timelines = [course for course in self._timelines if not course.running]
        self._tabs = run_tabs(self._timelines)
        if self._timeline.running:
            self.withdraw()

    @property
    def log(self) -> str:
        """Return the traceback and the worker's output."""
        return self._timeline.log

    def show_run(self, run: int) -> None:
        timeline = self._find_timeline(run)
        if timeline is not None:
            self._show(timeline)
            self._chosen_by_user = True

    def follow(self, window: str | None = None) -> None:
        self._view.follow(window)

    def toggle_pause(self) -> None:
        """Freeze the view, or follow again."""
        self._view.toggle_pause(self._time_axis())

    def hold(self, start: float, end: float) -> None:
        self._view.hold(self._time_axis(), start, end)

    def split_by_gpu(self, per_gpu: bool) -> None:
        self._per_gpu = per_gpu

    def handle(self, event: RunEvent | Inventory | Processes, run: int | None = None) -> None:
        """Take one event: of the run with that number, or without a number of the only run."""
        match event:
            case Inventory():
                self._inventory = event
            case Sample():
                self.recent.add(event)
                for timeline in self._timelines:
                    timeline.handle(event)
            case DeviceLost():
                devices = self._inventory.devices if self._inventory else ()
                name = next((device_label(d) for d in devices if d.device == event.device), event.device)
                for timeline in self._timelines:
                    timeline.mark_device_lost(name, event)
            case RunStarted():
                self._begin(RunTimeline(event), alone=run is None)
            case Processes():
                pass
            case _:
                self._handle_run_event(event, run)

    def state(self) -> LiveState:
        axis = self._time_axis()
        throughput, spread = self._timeline.headline
        pause_label = "Paused" if self._timeline.ended is None else "Part of the run"
        return LiveState(
            runs=self._tabs,
            run=self._timeline.number,
            plots=Plots(
                panels=self._panels(axis),
                window=(axis.start, axis.end),
                origin_s=axis.origin_s,
                bands=self._timeline.phases.bands(axis.origin_s, self._now_s),
                markers=tuple(Marker(text, t_s - axis.origin_s) for text, t_s in self._timeline.markers),
                fit=self._view.is_paused,
            ),
            window=self._view.window,
            pause_label=pause_label if self._view.is_paused else "",
            growing=self._timeline.ended is None,
            has_several_gpus=len(gpu_devices(self._devices)) > 1,
            per_gpu=self._per_gpu,
            status=self._status(),
            throughput=throughput,
            unit=units.rate_unit(self._timeline.example) if throughput else "",
            spread=spread,
            summary=summary_line(self._timeline.ended.summary, self._timeline.example) if self._timeline.ended else "",
            evidence=self._timeline.evidence_view,
        )

    def _handle_run_event(self, event: RunEvent, run: int | None) -> None:
        timeline = self._find_timeline(run)
        if timeline is None:
            return
        timeline.handle(event)
        if isinstance(event, RunEnded):
            self._tabs = run_tabs(self._timelines)
            running = [other for other in self._timelines if other.running]
            if timeline is self._timeline and running and not self._view.is_paused:
                self._show(max(running, key=lambda other: other.started_s))

    def _begin(self, new: RunTimeline, *, alone: bool) -> None:
        """Start a run; concurrent runs stay, and so does the displayed one while someone looks at it."""
        remaining = [] if alone else [course for course in self._timelines if course.remains_with(new)]
        running = [course for course in remaining if course.running]
        for course in (*running, *([new] if running else [])):
            course.was_concurrent = True
        self._timelines = sorted((*remaining, new), key=lambda timeline: timeline.position)
        self._tabs = run_tabs(self._timelines)
        if self._timeline not in running and not (
            self._timeline in remaining and (self._chosen_by_user or self._view.is_paused)
        ):
            self._show(new)

    def _find_timeline(self, run: int | None) -> RunTimeline | None:
        if run is None:
            return self._timeline
        return next((course for course in self._timelines if course.number == run), None)

    def _show(self, timeline: RunTimeline) -> None:
        self._timeline, self._chosen_by_user = timeline, False
        self._view.follow()

    def _show_only(self, timeline: RunTimeline) -> None:
        self._timelines, self._tabs = [timeline], ()
        self._show(timeline)

    @property
    def _now_s(self) -> float:
        return (self.recent.now_s or 0.0) if self._timeline.started is None else self._timeline.now_s

    @property
    def _devices(self) -> tuple[Device, ...]:
        if self._timeline.started is not None:
            return self._timeline.started.devices
        return self._inventory.devices if self._inventory else ()

    def _time_axis(self) -> TimeAxis:
        timeline = self._timeline
        if timeline.started is None:
            return self._view.recent_axis(self._now_s, self.recent.elapsed_s)
        start_s = timeline.started.t_ns / 1e9
        return self._view.run_axis(
            start_s, self._now_s, timeline.phases.measured(self._now_s), ended=timeline.ended is not None
        )

    def _panels(self, axis: TimeAxis) -> tuple[Panel, ...]:
        timeline = self._timeline
        telemetry = timeline.telemetry if timeline.started else self.recent
        gpus = gpu_devices(self._devices)
        if gpus and self._per_gpu:
            panels = per_gpu_panels(gpus, telemetry.read_curve)
        else:
            cpu_count = self._inventory.machine.cpu_count if self._inventory else 1
            devices = gpus or [device for device in self._devices if device.device == HOST]
            panels = device_panels(devices, telemetry.read_curve, cpu_count=cpu_count)
        throttles = telemetry.throttling.overlapping(axis.origin_s + axis.start, axis.origin_s + axis.end)
        limits_mw = {device: sample.power_limit_mw for device, sample in telemetry.latest.items()}
        device_plots = (with_allocator(with_limits(panel, limits_mw, throttles), timeline) for panel in panels)
        return (*device_plots, *timeline_panels(timeline))

    def _status(self) -> Status:
        if self._timeline.spec is None:
            title, detail = self.absence
            return Status(title=title, detail=detail) if title else _STARTING if self._queue_runs else _READY
        name = short_name(self._timeline.spec)
        if self._timeline.ended is not None:
            outcome = self._timeline.ended.outcome
            title, tone = outcome_title(outcome)
            detail = " ".join([outcome.reason or "", *self._timeline.device_failures]).strip()
            return Status(title=title, tone=tone, detail=detail, name=name, has_log=bool(self.log))
        phase = self._timeline.phases
        return Status(
            title="Waiting" if self._timeline.waiting else phase.title,
            detail=" ".join([self._timeline.waiting or self.absence[1], *self._timeline.device_failures]).strip(),
            name=name,
            fraction=phase.fraction,
            left=phase.time_left_text(self._timeline.spec),
            can_run_anyway=bool(self._timeline.waiting) and self._timeline.started is None,
        )
