"""What the Run screen shows: the run's events folded into curves, phases, progress and the outcome in words."""

import math
from collections import deque
from dataclasses import dataclass, replace

from app.records import (
    DeviceLost,
    Inventory,
    LogLine,
    Outcome,
    RunEnded,
    RunEvent,
    RunStarted,
    Sample,
    Summary,
    Waiting,
)
from app.viewmodels import units
from app.viewmodels.naming import short_name
from app.viewmodels.panels import Curve, Panel, device_panels
from app.viewmodels.progress import Phases, Span, Throughput, outcome_words
from app.viewmodels.series import Series
from app.viewmodels.tracks import Tracks, device_label
from workloads import catalog
from workloads.protocol import Block, PhaseStarted, Progress, RunSpec

_IDLE_S = 60.0
_WINDOWS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
_FIELDS = ("power_mw", "load_pct", "memory_bytes", "worker_load_pct", "worker_memory_bytes")
_LOG_LINES = 5000
_THROUGHPUT_COLOUR, _LOSS_COLOUR, _ALLOCATOR_COLOUR = 2, 3, 6


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
    """Everything the live view shows; times in seconds after `origin_s` of the monotonic clock."""

    origin_s: float
    window_s: tuple[float, float]
    panels: tuple[Panel, ...]
    spans: tuple[Span, ...]
    status: Status
    number: str
    unit: str
    spread: str
    facts: str


class _Course:
    """What one run has told so far; before the first run there is none to tell."""

    def __init__(self, started: RunStarted | None = None, requested: RunSpec | None = None) -> None:
        self.started = started
        self.requested = requested
        self.ended: RunEnded | None = None
        self.tracks = Tracks()
        self.phases = Phases()
        self.throughput = Throughput()
        self.loss = Series()
        self.allocator = Series()
        self.waiting = ""
        self.lost: list[str] = []
        self.log: deque[str] = deque(maxlen=_LOG_LINES)


class LiveModel:
    """Folds events in their order. Before a run it shows the last minute of telemetry, after one it keeps that run."""

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._idle = Tracks(keep_s=2 * _IDLE_S)
        self._follow = False
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
        """Whether a run has begun and not ended."""
        return self._course.started is not None and self._course.ended is None

    def follow_last_minute(self, follow: bool) -> None:
        """Show the last minute of a run, or all of it."""
        self._follow = follow

    def handle(self, event: RunEvent | Inventory) -> None:
        """Take one event."""
        match event:
            case Inventory():
                self._inventory = event
            case Sample():
                self._take_sample(event)
            case RunStarted():
                self._course = _Course(event)
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
            case LogLine():
                self._course.log.append(event.text)
            case RunEnded():
                self._course.phases.end(event.t_ns)
                self._course.ended = event

    def state(self) -> LiveState:
        """Everything to show now."""
        origin, window = self._window()
        number, spread = self._headline()
        return LiveState(
            origin_s=origin,
            window_s=window,
            panels=self._panels(),
            spans=self._course.phases.spans(origin, self._now_s),
            status=self._status(),
            number=number,
            unit=units.rate_unit(self._example) if self._spec else "",
            spread=spread,
            facts=_facts(self._course.ended.summary, self._example) if self._course.ended else "",
        )

    def _take_sample(self, sample: Sample) -> None:
        self._idle.add(sample, _FIELDS)
        if self.running:
            self._course.tracks.add(sample, _FIELDS)

    def _take_loss_of_device(self, event: DeviceLost) -> None:
        devices = self._inventory.devices if self._inventory else ()
        name = next((device_label(d) for d in devices if d.device == event.device), event.device)
        self._course.lost.append(units.sentence(f"{name} stopped answering: {event.reason}"))

    def _take_block(self, block: Block) -> None:
        if block.phase != "compile":
            self._course.throughput.add(block)
        if block.loss is not None:
            self._course.loss.append(block.end_ns / 1e9, block.loss if math.isfinite(block.loss) else None)
        if block.allocator_bytes is not None:
            self._course.allocator.append(block.end_ns / 1e9, block.allocator_bytes)

    @property
    def _spec(self) -> RunSpec | None:
        return self._course.started.spec if self._course.started else self._course.requested

    @property
    def _example(self) -> str:
        name = self._spec.workload if self._spec else ""
        return next((w.example for w in catalog.WORKLOADS if w.name == name), "example")

    @property
    def _now_s(self) -> float:
        if self._course.started is None:
            return self._idle.now_s or 0.0
        if self._course.ended is not None:
            return self._course.ended.t_ns / 1e9
        return max(self._course.started.t_ns / 1e9, self._course.phases.now_s, self._course.tracks.now_s or 0.0)

    def _window(self) -> tuple[float, tuple[float, float]]:
        if self._course.started is None:
            return math.floor(self._now_s) + 1.0, (-_IDLE_S, 0.0)
        origin = self._course.started.t_ns / 1e9
        elapsed = self._now_s - origin
        if self._course.ended is not None:
            return origin, (0.0, max(1.0, elapsed))
        if self._follow and elapsed > _IDLE_S:
            end = math.floor(elapsed) + 1.0
            return origin, (end - _IDLE_S, end)
        fitting = (window for window in _WINDOWS_S if window >= elapsed)
        return origin, (0.0, next(fitting, math.ceil(elapsed / 3600) * 3600.0))

    def _panels(self) -> tuple[Panel, ...]:
        inventory = self._inventory
        devices = self._course.started.devices if self._course.started else inventory.devices if inventory else ()
        cpu_count = inventory.machine.cpu_count if inventory else 1
        panels = device_panels(devices, self._course.tracks if self._course.started else self._idle, cpu_count)
        training = self._training_panels() if self._spec else ()
        return (*(self._with_allocator(panel) for panel in panels), *training)

    def _with_allocator(self, panel: Panel) -> Panel:
        if panel.key != "memory" or not len(self._course.allocator):
            return panel
        curve = Curve(
            key="allocator",
            label="TensorFlow",
            colour=_ALLOCATOR_COLOUR,
            series=self._course.allocator,
            value=units.byte_size(self._course.allocator.last),
            scale=panel.curves[0].scale,
        )
        return replace(panel, curves=(*panel.curves, curve))

    def _training_panels(self) -> tuple[Panel, ...]:
        rate, loss = self._course.throughput.series, self._course.loss
        unit = units.rate_unit(self._example)
        return (
            Panel(
                key="throughput",
                title="Throughput",
                unit=unit,
                curves=(_run_curve("Block", _THROUGHPUT_COLOUR, rate, units.rate(rate.last, self._example)),),
            ),
            Panel(
                key="loss",
                title="Loss",
                unit="",
                curves=(_run_curve("Last step", _LOSS_COLOUR, loss, units.number(loss.last)),),
            ),
        )

    def _headline(self) -> tuple[str, str]:
        if self._course.ended is not None and self._course.ended.summary.throughput is not None:
            return units.number(self._course.ended.summary.throughput), self._course.throughput.spread_words
        return units.number(self._course.throughput.mean) if self._spec else "", self._course.throughput.spread_words

    def _status(self) -> Status:
        if self._spec is None:
            return Status(
                title="Ready to run",
                detail="Choose a variant at the left, then press Run (Ctrl+R). Below is what the machine does now.",
            )
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


def _run_curve(label: str, colour: int, series: Series, value: str) -> Curve:
    return Curve(key="run", label=label, colour=colour, series=series, value=value)


def _facts(summary: Summary, example: str) -> str:
    """The rest of a run's figures in one line; what was not measured is left out."""
    words = []
    if summary.step_ms_p50 is not None:
        words.append(f"step {units.milliseconds(summary.step_ms_p50)}")
    if summary.loss_first is not None and summary.loss_last is not None:
        words.append(f"loss {units.number(summary.loss_first)} → {units.number(summary.loss_last)}")
    if summary.mean_power_mw is not None:
        words.append(f"power {units.watts(summary.mean_power_mw)}")
    if summary.energy_mj_per_example is not None:
        words.append(f"{units.number(summary.energy_mj_per_example)} mJ/{example}")
    if summary.device_peak_bytes is not None:
        words.append(f"peak memory {units.byte_size(summary.device_peak_bytes)}")
    if summary.compile_s is not None:
        words.append(f"compile {units.seconds(summary.compile_s)}")
    return "  ·  ".join(words)
