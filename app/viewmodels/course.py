"""What one run has told so far: its events folded into curves, phases and words."""

import math
from collections import deque

from app.records import LogLine, RunEnded, RunEvent, RunStarted, Waiting
from app.samples import Device, DeviceLost, Sample
from app.telemetry.recording import TraceStarted
from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.evidence import EvidenceView, evidence_view
from app.viewmodels.panels import gpus_among
from app.viewmodels.progress import Phases, Throughput
from app.viewmodels.series import Series
from app.viewmodels.throttling import Throttling
from app.viewmodels.tracks import Tracks
from workloads.protocol import Block, Epoch, Evidence, PhaseStarted, Progress, RunSpec

FIELDS = ("power_mw", "load_pct", "memory_bytes", "worker_load_pct", "worker_memory_bytes")
"""The fields of a sample that the live plots draw."""
_LOG_LINES = 5000
_OUT_OF_MEMORY = ("oom", "out of memory", "resource_exhausted")
"""What TensorFlow writes into its log when a device's memory is full."""


class Course:
    """Folds the events of one run in their order; before the first run there is none to tell of."""

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
        self.evidence_view: EvidenceView | None = None
        self.beside = False
        """Whether another run went on at the same time."""
        self._devices = {device.device: device for device in (started.devices if started else ())}
        self._losses: list[tuple[str, float]] = []
        self._memory_full_s: float | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._evidence: Evidence | None = None

    @property
    def spec(self) -> RunSpec | None:
        """What runs, or was asked for and has not begun; a trace has none."""
        return self.started.spec if isinstance(self.started, RunStarted) else self.requested

    @property
    def example(self) -> str:
        """The word for one item of its training data."""
        return example_word(self.spec) if self.spec else "example"

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self.started is not None and self.ended is None

    @property
    def number(self) -> int | None:
        """The run's number in the database, once it has begun."""
        return self.started.run if isinstance(self.started, RunStarted) else None

    @property
    def gpus(self) -> list[Device]:
        """The GPUs it runs on."""
        return gpus_among(tuple(self._devices.values()))

    @property
    def place(self) -> int:
        """Where it stands among runs at the same time: they are in the order of their GPUs."""
        return min((gpu.index for gpu in self.gpus), default=-1)

    @property
    def begun_s(self) -> float:
        """When it began; 0 where it has not."""
        return self.started.t_ns / 1e9 if self.started else 0.0

    @property
    def now_s(self) -> float:
        """The newest time it has told of, its end once it has ended; 0 where it has not begun."""
        if self.ended is not None:
            return self.ended.t_ns / 1e9
        return max(self.begun_s, self.phases.now_s, self.tracks.now_s or 0.0)

    @property
    def log(self) -> str:
        """The traceback and the worker's own words, for reading."""
        detail = (self.ended.outcome.detail or "") if self.ended else ""
        return "\n".join(part for part in (detail, "\n".join(self._log)) if part)

    @property
    def moments(self) -> list[tuple[str, float]]:
        """Losses of devices, and when memory ran out: the last word of it in the log, or else the run's end."""
        if self.ended is None or self.ended.outcome.name != "out_of_memory":
            return self._losses
        full_s = self.ended.t_ns / 1e9 if self._memory_full_s is None else self._memory_full_s
        return [*self._losses, ("out of memory", full_s)]

    @property
    def headline(self) -> tuple[str, str]:
        """The throughput and its spread, in words; both are empty where nothing was measured yet."""
        ended = self.ended.summary.throughput if self.ended else None
        throughput = self.throughput.mean if ended is None else ended
        return "" if throughput is None else units.number(throughput), self.throughput.spread_words

    def stays_beside(self, new: "Course") -> bool:
        """Whether it is kept when `new` begins: as long as it goes on, and then as the newest run of its GPUs."""
        if not {gpu.device for gpu in self.gpus}.isdisjoint(gpu.device for gpu in new.gpus):
            return False
        return self.running or (self.beside and bool(self.gpus))

    def take(self, event: RunEvent) -> None:
        """Take one event of the run, or a sample, which counts only where it runs on that device."""
        match event:
            case Sample():
                self._take_sample(event)
            case Waiting():
                self.waiting = event.reason
            case PhaseStarted():
                self.waiting = ""
                self.phases.begin(event)
            case Progress():
                self.phases.advance(event)
            case Block():
                self._take_block(event)
            case Epoch():
                self.accuracy_pct.append(event.end_ns / 1e9, 100 * event.accuracy)
            case LogLine():
                self._take_line(event)
            case Evidence():
                self._evidence = event
            case RunEnded():
                self._end(event)

    def lose(self, name: str, event: DeviceLost) -> None:
        """A device of that name stopped answering; of a run it matters where that runs on it."""
        if self.started is None or event.device in self._devices:
            self.lost.append(units.sentence(f"{name} stopped answering: {event.reason}"))
            self._losses.append((f"{name} lost", event.t_ns / 1e9))

    def _take_sample(self, sample: Sample) -> None:
        if self.running and sample.device in self._devices:
            self.tracks.add(sample, FIELDS)
            self.throttling.add(sample)

    def _take_line(self, line: LogLine) -> None:
        self._log.append(line.text)
        if any(words in line.text.lower() for words in _OUT_OF_MEMORY):
            self._memory_full_s = line.t_ns / 1e9

    def _take_block(self, block: Block) -> None:
        if block.phase != "compile":
            self.throughput.add(block)
        if block.loss is not None:
            self.loss.append(block.end_ns / 1e9, block.loss if math.isfinite(block.loss) else None)
        if block.allocator_bytes is not None:
            self.allocator.append(block.end_ns / 1e9, block.allocator_bytes)

    def _end(self, event: RunEnded) -> None:
        """The run is over, and what it left as evidence is all there will be."""
        self.phases.end(event.t_ns)
        self.ended = event
        if self._evidence is not None and self.spec is not None:
            self.evidence_view = evidence_view(self.spec, self._evidence, event.outcome)
