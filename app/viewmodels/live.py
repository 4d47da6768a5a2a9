"""What the Run screen shows: the run's events folded into curves, phases, progress and the outcome in words."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.records import (
    Device,
    DeviceLost,
    Inventory,
    LogLine,
    Outcome,
    Processes,
    RunEnded,
    RunEvent,
    RunStarted,
    Sample,
    Waiting,
)
from app.telemetry.recording import TraceStarted
from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.evidence import EvidenceView, evidence_view
from app.viewmodels.naming import short_name
from app.viewmodels.panels import Curve, Panel, device_panels, gpus_of, with_throttles
from app.viewmodels.plotted import Band, Moment
from app.viewmodels.progress import Phases, Throughput, outcome_words
from app.viewmodels.run_facts import summary_line
from app.viewmodels.series import Series
from app.viewmodels.throttling import Throttling
from app.viewmodels.time_view import Frame, TimeView, WindowName
from app.viewmodels.tracks import Tracks, device_label
from workloads.protocol import Block, Epoch, Evidence, PhaseStarted, Progress, RunSpec

_IDLE_S = 60.0
_FIELDS = ("power_mw", "load_pct", "memory_bytes", "worker_load_pct", "worker_memory_bytes")
_LOG_LINES = 5000
_OUT_OF_MEMORY = ("oom", "out of memory", "resource_exhausted")
"""What TensorFlow writes into its log when a device's memory is full."""
_THROUGHPUT_COLOUR, _LOSS_COLOUR, _ACCURACY_COLOUR, _ALLOCATOR_COLOUR = 2, 3, 4, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where the run stands, in words. `tone` is a role of the style: good, warning, bad or heading."""

    title: str
    tone: str = "heading"
    detail: str = ""
    name: str = ""
    fraction: float | None = None
    left: str = ""
    has_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """Everything the live view shows; times in seconds after `origin_s` of the monotonic clock.

    `held` names a view that stands still and is empty for one that follows; `growing` is false once a run has ended;
    `apart` is a panel for each GPU, which is no choice with fewer than two of them (`several`). `evidence` is what an
    ended run left.
    """

    origin_s: float
    window_s: tuple[float, float]
    window: WindowName
    held: str
    growing: bool
    several: bool
    apart: bool
    panels: tuple[Panel, ...]
    bands: tuple[Band, ...]
    moments: tuple[Moment, ...]
    status: Status
    number: str
    unit: str
    spread: str
    facts: str
    evidence: EvidenceView | None = None

    def reading(self, time: float) -> str:
        """What else is known of a time on the axis: when it is, the phase, what held a GPU back."""
        minutes, seconds = divmod(abs(time), 60.0)
        words = [f"{'−' if time < 0 else ''}{int(minutes)}:{seconds:04.1f}"]
        words += [band.name for band in self.bands if band.start <= time < band.end]
        t_s = time + self.origin_s
        throttles = dict.fromkeys(
            f"{device_label(device)} held back: {throttle.words}"
            for panel in self.panels
            for throttle, device in panel.throttles
            if throttle.start_s <= t_s <= throttle.end_s
        )
        return "  ·  ".join([*words, *throttles])


_READY = Status(
    title="Ready to run",
    detail="Choose a variant at the left, then press Run (Ctrl+R). Below is what the machine does now.",
)
_COMING = Status(title="The first run is to begin", detail="The queue below says what it waits for.")


class _Course:
    """What one run has told so far; before the first run there is none to tell."""

    def __init__(self, started: RunStarted | TraceStarted | None = None, requested: RunSpec | None = None) -> None:
        self.started = started
        self.requested = requested
        self.ended: RunEnded | None = None
        self.tracks = Tracks()
        self.phases = Phases()
        self.throughput = Throughput()
        self.loss = Series(steady=False)
        self.accuracy_pct = Series(steady=False)
        self.allocator = Series(steady=False)
        self.throttling = Throttling()
        self.waiting = ""
        self.lost: list[str] = []
        self.losses: list[tuple[str, float]] = []
        self.memory_full_s: float | None = None
        self.log: deque[str] = deque(maxlen=_LOG_LINES)
        self.evidence: Evidence | None = None
        self.evidence_view: EvidenceView | None = None

    @property
    def spec(self) -> RunSpec | None:
        """What runs, or was asked for and has not begun; a trace has none."""
        return self.started.spec if isinstance(self.started, RunStarted) else self.requested

    def end(self, event: RunEnded) -> None:
        """The run is over, and what it left as evidence is all there will be."""
        self.phases.end(event.t_ns)
        self.ended = event
        if self.evidence is not None and self.spec is not None:
            self.evidence_view = evidence_view(self.spec, self.evidence, event.outcome)


class LiveModel:
    """Folds events in their order. Before a run it shows the last minute of telemetry, after one it keeps that run.

    `coming` says that the queue makes runs, for which nobody presses Run.
    """

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._idle = Tracks(brief=True)
        self._idle_throttling = Throttling()
        self._view = TimeView()
        self._apart = False
        self.coming = False
        self._course = _Course()

    def request(self, spec: RunSpec) -> None:
        """A run was asked for: until its first event the screen says that it starts."""
        self._course = _Course(requested=spec)

    def withdraw(self) -> None:
        """The run asked for could not even begin."""
        self._course = _Course()

    @property
    def log(self) -> str:
        """The traceback and the worker's own words, for reading."""
        ended = self._course.ended
        detail = (ended.outcome.detail or "") if ended else ""
        return "\n".join(part for part in (detail, "\n".join(self._course.log)) if part)

    @property
    def running(self) -> bool:
        """Whether a run, or a trace, has begun and not ended."""
        return self._course.started is not None and self._course.ended is None

    def follow(self, window: WindowName | None = None) -> None:
        """Follow what is new, in the same window or another one."""
        self._view.follow(window)

    def hold_or_follow(self) -> None:
        """Hold the view where it is, or follow again."""
        if self._view.held:
            self._view.follow()
        else:
            self._view.hold(self._frame())

    def zoom(self, factor: float, at: float) -> None:
        """Show `factor` times as long a stretch around a time on the axis, and hold it."""
        self._view.zoom(self._frame(), factor, at)

    def pan(self, by: float) -> None:
        """Move along the axis by so many seconds, and hold that."""
        self._view.pan(self._frame(), by)

    def show_apart(self, apart: bool) -> None:
        """A panel for each GPU, or one for all of them."""
        self._apart = apart

    def handle(self, event: RunEvent | Inventory | TraceStarted | Processes) -> None:
        """Take one event."""
        match event:
            case Inventory():
                self._inventory = event
            case Sample():
                self._take_sample(event)
            case RunStarted() | TraceStarted():
                self._course = _Course(event)
                self._view.follow()
            case Waiting():
                self._course.waiting = event.reason
            case DeviceLost():
                self._take_loss_of_device(event)
            case PhaseStarted():
                self._course.waiting = ""
                self._course.phases.begin(event)
            case Progress():
                self._course.phases.advance(event)
            case Block():
                self._take_block(event)
            case Epoch():
                self._course.accuracy_pct.append(event.end_ns / 1e9, 100 * event.accuracy)
            case LogLine():
                self._take_line(event)
            case Evidence():
                self._course.evidence = event
            case RunEnded():
                self._course.end(event)

    def state(self) -> LiveState:
        """Everything to show now."""
        frame = self._frame()
        number, spread = self._headline()
        return LiveState(
            origin_s=frame.origin_s,
            window_s=(frame.start, frame.end),
            window=self._view.window,
            held=("Paused" if self._course.ended is None else "Part of the run") if self._view.held else "",
            growing=self._course.ended is None,
            several=len(gpus_of(self._devices)) > 1,
            apart=self._apart,
            panels=self._panels(frame),
            bands=self._course.phases.bands(frame.origin_s, self._now_s),
            moments=tuple(Moment(words, t_s - frame.origin_s) for words, t_s in self._moments()),
            status=self._status(),
            number=number,
            unit=units.rate_unit(self._example) if self._spec else "",
            spread=spread,
            facts=summary_line(self._course.ended.summary, self._example) if self._course.ended else "",
            evidence=self._course.evidence_view,
        )

    def _take_sample(self, sample: Sample) -> None:
        self._idle.add(sample, _FIELDS)
        self._idle_throttling.add(sample)
        if self.running:
            self._course.tracks.add(sample, _FIELDS)
            self._course.throttling.add(sample)

    def _take_loss_of_device(self, event: DeviceLost) -> None:
        devices = self._inventory.devices if self._inventory else ()
        name = next((device_label(d) for d in devices if d.device == event.device), event.device)
        self._course.lost.append(units.sentence(f"{name} stopped answering: {event.reason}"))
        self._course.losses.append((f"{name} lost", event.t_ns / 1e9))

    def _take_line(self, line: LogLine) -> None:
        self._course.log.append(line.text)
        if any(words in line.text.lower() for words in _OUT_OF_MEMORY):
            self._course.memory_full_s = line.t_ns / 1e9

    def _take_block(self, block: Block) -> None:
        if block.phase != "compile":
            self._course.throughput.add(block)
        if block.loss is not None:
            self._course.loss.append(block.end_ns / 1e9, block.loss if math.isfinite(block.loss) else None)
        if block.allocator_bytes is not None:
            self._course.allocator.append(block.end_ns / 1e9, block.allocator_bytes)

    @property
    def _spec(self) -> RunSpec | None:
        return self._course.spec

    @property
    def _example(self) -> str:
        return example_word(self._spec) if self._spec else "example"

    @property
    def _now_s(self) -> float:
        if self._course.started is None:
            return self._idle.now_s or 0.0
        if self._course.ended is not None:
            return self._course.ended.t_ns / 1e9
        return max(self._course.started.t_ns / 1e9, self._course.phases.now_s, self._course.tracks.now_s or 0.0)

    @property
    def _devices(self) -> tuple[Device, ...]:
        if self._course.started is not None:
            return self._course.started.devices
        return self._inventory.devices if self._inventory else ()

    def _frame(self) -> Frame:
        course = self._course
        if course.started is None:
            return self._view.recent(self._now_s, _IDLE_S)
        return self._view.of_run(course.started.t_ns / 1e9, self._now_s, ended=course.ended is not None)

    def _moments(self) -> list[tuple[str, float]]:
        """Losses of devices, and when memory ran out: the last word of it in the log, or else the run's end."""
        course = self._course
        if course.ended is None or course.ended.outcome.name != "out_of_memory":
            return course.losses
        full_s = course.ended.t_ns / 1e9 if course.memory_full_s is None else course.memory_full_s
        return [*course.losses, ("out of memory", full_s)]

    def _panels(self, frame: Frame) -> tuple[Panel, ...]:
        course = self._course
        tracks, throttling = (
            (course.tracks, course.throttling) if course.started else (self._idle, self._idle_throttling)
        )
        cpu_count = self._inventory.machine.cpu_count if self._inventory else 1
        panels = device_panels(self._devices, tracks, cpu_count, apart=self._apart)
        held_back = throttling.between(frame.origin_s + frame.start, frame.origin_s + frame.end)
        devices = {device.device: device for device in self._devices}
        throttles = [(each, devices[each.device]) for each in held_back if each.device in devices]
        training = self._training_panels() if self._spec else ()
        shown = (self._with_allocator(with_throttles(panel, throttles)) for panel in panels)
        return (*shown, *training)

    def _with_allocator(self, panel: Panel) -> Panel:
        """The memory of the first GPU with what TensorFlow's allocator holds there beside it."""
        first = next(iter(gpus_of(self._devices)), None)
        if first is None or not len(self._course.allocator) or panel.key not in ("memory", f"memory {first.device}"):
            return panel
        curve = Curve(
            key="allocator",
            label="TensorFlow",
            colour=_ALLOCATOR_COLOUR,
            series=self._course.allocator,
            value=units.byte_size(self._course.allocator.last),
            scale=panel.curves[0].scale,
            words=units.byte_size,
        )
        return replace(panel, curves=(*panel.curves, curve))

    def _training_panels(self) -> tuple[Panel, ...]:
        rate, loss, accuracy = self._course.throughput.series, self._course.loss, self._course.accuracy_pct
        example = self._example
        unit = units.rate_unit(example)
        learnt = _run_curve("After an epoch", _ACCURACY_COLOUR, accuracy, lambda value: units.percent(value, 1))
        return (
            Panel(
                key="throughput",
                title="Throughput",
                unit=unit,
                curves=(_run_curve("Block", _THROUGHPUT_COLOUR, rate, lambda value: units.rate(value, example)),),
            ),
            Panel(
                key="loss",
                title="Loss",
                unit="",
                curves=(_run_curve("Last step", _LOSS_COLOUR, loss, units.number),),
            ),
            *((Panel(key="accuracy", title="Accuracy", unit="%", curves=(learnt,)),) if len(accuracy) else ()),
        )

    def _headline(self) -> tuple[str, str]:
        if self._course.ended is not None and self._course.ended.summary.throughput is not None:
            return units.number(self._course.ended.summary.throughput), self._course.throughput.spread_words
        return units.number(self._course.throughput.mean) if self._spec else "", self._course.throughput.spread_words

    def _status(self) -> Status:
        if isinstance(self._course.started, TraceStarted):
            return Status(title="Recorded telemetry", detail=" ".join(self._course.lost))
        if self._spec is None:
            return _COMING if self.coming else _READY
        name = short_name(self._spec)
        if self._course.ended is not None:
            return self._final_status(self._course.ended.outcome, name)
        phase = self._course.phases
        return Status(
            title="Waiting" if self._course.waiting else phase.title,
            detail=" ".join([self._course.waiting, *self._course.lost]).strip(),
            name=name,
            fraction=phase.fraction,
            left=phase.left_words(self._spec),
        )

    def _final_status(self, outcome: Outcome, name: str) -> Status:
        title, tone = outcome_words(outcome)
        detail = " ".join([outcome.reason or "", *self._course.lost]).strip()
        return Status(title=title, tone=tone, detail=detail, name=name, has_log=bool(self.log))


def _run_curve(label: str, colour: int, series: Series, words: Callable[[float | None], str]) -> Curve:
    return Curve(key="run", label=label, colour=colour, series=series, value=words(series.last), words=words)
