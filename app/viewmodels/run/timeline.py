"""One run in progress: its events folded into phases, throughput, training curves, log and outcome."""

import math
from collections import deque
from dataclasses import replace

from app.analysis.steps import without_waits
from app.values import units
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.fields import Sample
from app.values.samples import Device, DeviceLost, LogLine, Waiting
from app.viewmodels.format.cells import OUTCOMES, example_word
from app.viewmodels.history.evidence import EvidenceView, evidence_view
from app.viewmodels.plot.model import Band, LiveSeries, Panel
from app.viewmodels.plot.panels import TelemetryBuffer, gpu_devices, make_curve, training_panels
from workloads.protocol import Block, Epoch, Evidence, PhaseName, PhaseStarted, Progress, RunSpec

_PHASE_TITLES: dict[str, str] = {
    "import": "Importing the framework",
    "build": "Building the model",
    "compile": "Compiling, first step",
    "warmup": "Warming up",
    "measure": "Measuring",
    "evidence": "Checking what ran",
    "finish": "Finishing",
}
_BEFORE_MEASURE = ("import", "build", "compile", "warmup")
_MIN_FRACTION = 0.02


def outcome_title(outcome: Outcome) -> tuple[str, str]:
    label = OUTCOMES[outcome.name]
    return label.word.capitalize(), "muted" if label.tone == "quiet" else label.tone


class Phases:
    """The phases of one run so far."""

    def __init__(self) -> None:
        self._started: list[tuple[PhaseName, float]] = []
        self._end_s: float | None = None
        self._progress: Progress | None = None
        self.now_s = 0.0

    @property
    def title(self) -> str:
        return _PHASE_TITLES[self._started[-1][0]] if self._started else "Starting"

    @property
    def fraction(self) -> float | None:
        """Return the completed share of the phase, from 0 to 1; None if the worker does not report it."""
        return self._progress.fraction if self._progress else None

    def begin(self, event: PhaseStarted) -> None:
        self._started.append((event.phase, event.t_ns / 1e9))
        self._progress = None
        self.now_s = event.t_ns / 1e9

    def advance(self, event: Progress) -> None:
        """Advance a phase, unless it has already ended."""
        if self._started and self._started[-1][0] == event.phase:
            self._progress = event
            self.now_s = event.t_ns / 1e9

    def end(self, t_ns: int) -> None:
        self._end_s = t_ns / 1e9

    def measured(self, now_s: float) -> tuple[float, float] | None:
        """Return when measuring began and ended, or now while it continues; None before it."""
        band = next((band for band in self.bands(0.0, now_s) if band.name == "measure"), None)
        return None if band is None else (band.start, band.end)

    def bands(self, origin_s: float, now_s: float) -> tuple[Band, ...]:
        """Return all phases on an axis that begins at `origin_s`; the last one extends to now."""
        starts = [start for _, start in self._started]
        ends = [*starts[1:], self._end_s or now_s]
        return tuple(
            Band(name, start - origin_s, end - origin_s, name == "measure")
            for (name, start), end in zip(self._started, ends[: len(starts)], strict=True)
        )

    def time_left_text(self, spec: RunSpec) -> str:
        """Return the measured part's remaining time once it runs; before, its expected time."""
        if not self._started:
            return ""
        phase, start_s = self._started[-1]
        if phase in _BEFORE_MEASURE:
            if epochs := int(spec.variant.get("epochs", 0)):
                return f"then {epochs:,} measured {units.plural('epoch', epochs)}"
            steps, seconds = spec.variant.get("steps", 0), spec.variant.get("seconds", 0)
            return (
                f"then {int(steps):,} measured steps"
                if steps
                else f"then {units.duration(float(seconds))} of measuring"
            )
        progress = self._progress
        if phase != "measure" or progress is None or progress.fraction < _MIN_FRACTION:
            return ""
        left_s = (progress.t_ns / 1e9 - start_s) * (1 - progress.fraction) / progress.fraction
        return f"{units.duration(left_s)} left"


class Throughput:
    """Examples/s of every block after the compile phase, and the mean and spread of the measured ones."""

    def __init__(self) -> None:
        self.series = LiveSeries(periodic=False)
        self._blocks = 0
        self.steps = self.examples = 0
        self._seconds = 0.0
        self._mean = 0.0
        self._squares = 0.0

    @property
    def mean(self) -> float | None:
        """Return the examples/s over all measured blocks; None before the first."""
        return self.examples / self._seconds if self._seconds else None

    @property
    def spread(self) -> float | None:
        """Return the standard deviation of the measured blocks' throughput relative to its mean (Welford 1962)."""
        return math.sqrt(self._squares / (self._blocks - 1)) / self._mean if self._blocks > 1 else None

    @property
    def spread_text(self) -> str:
        spread = self.spread
        text = "" if spread is None else units.plus_minus(units.percent(100 * spread, 1))
        return f"{text} over {self._blocks:,} blocks" if self._blocks > 1 else ""

    def add(self, block: Block) -> None:
        """Take one block; blocks outside the measured part only become points of the curve."""
        seconds = (block.end_ns - block.start_ns) / 1e9
        value = block.examples / seconds
        self.series.append(block.end_ns / 1e9, value)
        if block.phase != "measure":
            return
        self._blocks += 1
        self.steps += block.steps
        self.examples += block.examples
        self._seconds += seconds
        step = value - self._mean
        self._mean += step / self._blocks
        self._squares += step * (value - self._mean)


_LOG_LINES = 5000
_OUT_OF_MEMORY = ("oom", "out of memory", "resource_exhausted")
"""What a worker's log says when a device's memory is full."""


class RunTimeline:
    """The events of one run, folded in order; before the first run it is empty."""

    def __init__(self, started: RunStarted | None = None, requested: RunSpec | None = None) -> None:
        self.started = started
        self.requested = requested
        self.ended: RunEnded | None = None
        self.telemetry = TelemetryBuffer()
        self.phases = Phases()
        self.throughput = Throughput()
        self.loss = LiveSeries(periodic=False)
        self.accuracy_pct = LiveSeries(periodic=False)
        self.allocator = LiveSeries(periodic=False)
        self.waiting = ""
        self.device_failures: list[str] = []
        self.evidence_view: EvidenceView | None = None
        self.was_concurrent = False
        """Whether another run was concurrent."""
        self._devices = {device.device: device for device in (started.devices if started else ())}
        self._lost_markers: list[tuple[str, float]] = []
        self._out_of_memory_s: float | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._evidence: Evidence | None = None

    @property
    def spec(self) -> RunSpec | None:
        """Return the run spec, even before the run starts; a trace has none."""
        return self.started.spec if isinstance(self.started, RunStarted) else self.requested

    @property
    def example(self) -> str:
        counts = Summary(measured_steps=self.throughput.steps, measured_examples=self.throughput.examples)
        return example_word(self.spec, counts) if self.spec else "example"

    @property
    def running(self) -> bool:
        """Return whether it has started and not ended."""
        return self.started is not None and self.ended is None

    @property
    def number(self) -> int | None:
        return self.started.run if isinstance(self.started, RunStarted) else None

    @property
    def gpus(self) -> list[Device]:
        return gpu_devices(tuple(self._devices.values()))

    @property
    def position(self) -> int:
        """Return its rank among concurrent runs, in the order of their GPUs."""
        return min((gpu.index for gpu in self.gpus), default=-1)

    @property
    def started_s(self) -> float:
        return self.started.t_ns / 1e9 if self.started else 0.0

    @property
    def now_s(self) -> float:
        """Return the newest time of its events, its end once it has ended; 0 before it starts."""
        if self.ended is not None:
            return self.ended.t_ns / 1e9
        return max(self.started_s, self.phases.now_s, self.telemetry.now_s or 0.0)

    @property
    def log(self) -> str:
        """Return the traceback and the worker's output."""
        detail = (self.ended.outcome.detail or "") if self.ended else ""
        return "\n".join(part for part in (detail, "\n".join(self._log)) if part)

    @property
    def markers(self) -> list[tuple[str, float]]:
        """Return losses of devices, and when memory ran out: the last mention in the log, else the run's end."""
        if self.ended is None or self.ended.outcome.name != "out_of_memory":
            return self._lost_markers
        out_of_memory_s = self.ended.t_ns / 1e9 if self._out_of_memory_s is None else self._out_of_memory_s
        return [*self._lost_markers, ("out of memory", out_of_memory_s)]

    @property
    def headline(self) -> tuple[str, str]:
        """Return the throughput and its spread as text; both empty before any measurement."""
        ended = self.ended.summary.throughput if self.ended else None
        throughput = self.throughput.mean if ended is None else ended
        return "" if throughput is None else units.number(throughput), self.throughput.spread_text

    def remains_with(self, new: "RunTimeline") -> bool:
        """Return whether it stays when `new` starts: while it runs, then as the newest run on its GPUs."""
        if not {gpu.device for gpu in self.gpus}.isdisjoint(gpu.device for gpu in new.gpus):
            return False
        return self.running or (self.was_concurrent and bool(self.gpus))

    def handle(self, event: RunEvent) -> None:
        """Take one event of the run, or a sample, which counts only if the run uses that device."""
        match event:
            case Sample():
                if self.running and event.device in self._devices:
                    self.telemetry.add(event)
            case Waiting():
                self.waiting = event.reason
            case PhaseStarted():
                self.waiting = ""
                self.phases.begin(event)
            case Progress():
                self.phases.advance(event)
            case Block():
                self._handle_block(event)
            case Epoch():
                self.accuracy_pct.append(event.end_ns / 1e9, 100 * event.accuracy)
            case LogLine():
                self._log.append(event.text)
                if any(words in event.text.lower() for words in _OUT_OF_MEMORY):
                    self._out_of_memory_s = event.t_ns / 1e9
            case Evidence():
                self._evidence = without_waits(event)
            case RunEnded():
                # End the run; no further evidence will arrive.
                self.phases.end(event.t_ns)
                self.ended = event
                if self._evidence is not None and self.spec is not None:
                    self.evidence_view = evidence_view(self.spec, self._evidence, event.outcome, event.summary)

    def mark_device_lost(self, name: str, event: DeviceLost) -> None:
        """Record that a device stopped answering, if the run uses it."""
        if self.started is None or event.device in self._devices:
            self.device_failures.append(units.sentence(f"{name} stopped answering: {event.reason}"))
            self._lost_markers.append((f"{name} lost", event.t_ns / 1e9))

    def _handle_block(self, block: Block) -> None:
        if block.phase != "compile":
            self.throughput.add(block)
        if block.loss is not None:
            self.loss.append(block.end_ns / 1e9, block.loss if math.isfinite(block.loss) else None)
        if block.allocator_bytes is not None:
            self.allocator.append(block.end_ns / 1e9, block.allocator_bytes)


_ALLOCATOR_COLOUR = 6


def timeline_panels(timeline: RunTimeline) -> tuple[Panel, ...]:
    """Return a run's throughput and loss, and its accuracy once an epoch was tested; none if nothing trains."""
    if timeline.spec is None:
        return ()
    accuracy = timeline.accuracy_pct if len(timeline.accuracy_pct) else None
    return training_panels(timeline.example, timeline.throughput.series, timeline.loss, accuracy)


def with_allocator(panel: Panel, timeline: RunTimeline) -> Panel:
    """Return the memory panel of a run's first GPU with its allocator's curve; other panels unchanged."""
    first = next(iter(timeline.gpus), None)
    if (
        first is None
        or not len(timeline.allocator)
        or panel.key not in ("memory_bytes", f"memory_bytes {first.device}")
    ):
        return panel
    scale = panel.curves[0].scale
    curve = make_curve("allocator", "Framework", _ALLOCATOR_COLOUR, timeline.allocator, units.byte_size, scale)
    return replace(panel, curves=(*panel.curves, curve))
