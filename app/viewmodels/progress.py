"""How far a run is: its phases with their words, the time left, the throughput so far, how it ended."""

import math

from app.records import Outcome
from app.viewmodels import units
from app.viewmodels.cells import OUTCOMES
from app.viewmodels.plotted import Band
from app.viewmodels.series import Series
from workloads.protocol import Block, PhaseName, PhaseStarted, Progress, RunSpec

_PHASE_WORDS: dict[str, str] = {
    "import": "Importing TensorFlow",
    "build": "Building the model",
    "compile": "Compiling, first step",
    "warmup": "Warming up",
    "measure": "Measuring",
    "evidence": "Checking what ran",
    "finish": "Finishing",
}
_BEFORE_MEASURE = ("import", "build", "compile", "warmup")
_LEAST_FRACTION = 0.02


def outcome_words(outcome: Outcome) -> tuple[str, str]:
    """An outcome's title and the style's role for it."""
    shown = OUTCOMES[outcome.name]
    return shown.word.capitalize(), "muted" if shown.tone == "quiet" else shown.tone


class Phases:
    """The phases of one run so far."""

    def __init__(self) -> None:
        self._begun: list[tuple[PhaseName, float]] = []
        self._end_s: float | None = None
        self._progress: Progress | None = None
        self.now_s = 0.0

    @property
    def title(self) -> str:
        """What is going on, in words."""
        return _PHASE_WORDS[self._begun[-1][0]] if self._begun else "Starting"

    @property
    def fraction(self) -> float | None:
        """How much of the phase is done, from 0 to 1; None where the worker does not say."""
        return self._progress.fraction if self._progress else None

    def begin(self, event: PhaseStarted) -> None:
        """A phase begins."""
        self._begun.append((event.phase, event.t_ns / 1e9))
        self._progress = None
        self.now_s = event.t_ns / 1e9

    def advance(self, event: Progress) -> None:
        """A phase goes on; one that has ended already does not count."""
        if self._begun and self._begun[-1][0] == event.phase:
            self._progress = event
            self.now_s = event.t_ns / 1e9

    def end(self, t_ns: int) -> None:
        """The run is over."""
        self._end_s = t_ns / 1e9

    def bands(self, origin_s: float, now_s: float) -> tuple[Band, ...]:
        """All phases on an axis that begins at `origin_s`; the last one reaches to now."""
        starts = [start for _, start in self._begun]
        ends = [*starts[1:], self._end_s or now_s]
        return tuple(
            Band(name, start - origin_s, end - origin_s, name == "measure")
            for (name, start), end in zip(self._begun, ends[: len(starts)], strict=True)
        )

    def left_words(self, spec: RunSpec) -> str:
        """The time left in words: of the measured part once it runs, before it how long that will take."""
        if not self._begun:
            return ""
        phase, start_s = self._begun[-1]
        if phase in _BEFORE_MEASURE:
            return _measure_words(spec)
        done = self._progress
        if phase != "measure" or done is None or done.fraction < _LEAST_FRACTION:
            return ""
        left_s = (done.t_ns / 1e9 - start_s) * (1 - done.fraction) / done.fraction
        return f"{units.duration(left_s)} left"


def _measure_words(spec: RunSpec) -> str:
    if epochs := int(spec.variant.get("epochs", 0)):
        return f"then {epochs:,} {units.plural('epoch', epochs)} measured"
    steps, seconds = spec.variant.get("steps", 0), spec.variant.get("seconds", 0)
    return f"then {int(steps):,} steps measured" if steps else f"then {units.duration(float(seconds))} measured"


class Throughput:
    """Examples/s of every block after the compile phase, and the mean and spread of the measured ones."""

    def __init__(self) -> None:
        self.series = Series(steady=False)
        self._blocks = 0
        self._examples = 0
        self._seconds = 0.0
        self._mean = 0.0
        self._squares = 0.0

    @property
    def mean(self) -> float | None:
        """Examples/s over all measured blocks together; None before the first."""
        return self._examples / self._seconds if self._seconds else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the measured blocks' throughput relative to its mean (Welford 1962)."""
        return math.sqrt(self._squares / (self._blocks - 1)) / self._mean if self._blocks > 1 else None

    @property
    def spread_words(self) -> str:
        """The spread with what it is over."""
        return f"{units.spread(self.spread)} over {self._blocks:,} blocks" if self._blocks > 1 else ""

    def add(self, block: Block) -> None:
        """Take one block; those that are not measured only become points of the curve."""
        seconds = (block.end_ns - block.start_ns) / 1e9
        value = block.examples / seconds
        self.series.append(block.end_ns / 1e9, value)
        if block.phase != "measure":
            return
        self._blocks += 1
        self._examples += block.examples
        self._seconds += seconds
        step = value - self._mean
        self._mean += step / self._blocks
        self._squares += step * (value - self._mean)
