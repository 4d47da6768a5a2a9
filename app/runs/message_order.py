"""Check that a worker's messages come in an order that can be true: one table, and times that only rise.

What passes can be stored and summed up. Whether it is so, only the worker knows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from app.runs.host import ClockAnchor, now_here
from workloads.protocol import (
    Block,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Epoch,
    Evidence,
    Finished,
    Flops,
    Hello,
    Message,
    PhaseName,
    PhaseStarted,
    Progress,
    ProtocolError,
)

_PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
_CLOCK_ERROR_NS = 1_000_000_000
"""How far a message may be outside the run by its time."""
_MOST_ENVIRONMENT_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class _PhaseSpan:
    """The phases in which a message may come, from the first to the last, and whether it comes once at most."""

    first: PhaseName
    last: PhaseName
    once: bool = False


_SPANS: dict[type[Message], _PhaseSpan] = {
    EnvironmentInfo: _PhaseSpan("import", "finish"),
    Flops: _PhaseSpan("build", "build", once=True),
    Progress: _PhaseSpan("compile", "measure"),
    Block: _PhaseSpan("compile", "measure"),
    Epoch: _PhaseSpan("measure", "measure"),
    DataReady: _PhaseSpan("measure", "measure", once=True),
    Evidence: _PhaseSpan("compile", "finish", once=True),
    Calibration: _PhaseSpan("finish", "finish", once=True),
}
"""Besides: `Hello` comes first, `Finished` last; each phase begins once at most, in the order of `PhaseName`."""


class MessageOrder:
    """What the messages of one run may say next.

    Thread: one.
    """

    def __init__(self, start: ClockAnchor, now: Callable[[], ClockAnchor] = now_here) -> None:
        """Wait for `Hello` of a worker that is started at `start`; `now` returns this moment on its host's clocks."""
        self._now = now
        self._last_ns = self._start_ns = start.t_ns - start.error_ns - _CLOCK_ERROR_NS
        self._seen: set[type[Message]] = set()
        self._phase: PhaseName | None = None
        self._steps = 0
        self._measured = False
        self._epochs = 0
        self._epoch_ns = 0
        self._environment_chars = 0

    def check(self, message: Message) -> None:
        """Take the next message; raises `ProtocolError` if it cannot come now."""
        kind, name = type(message), _name(message)
        if Finished in self._seen:
            raise ProtocolError(f"`{name}` came after `finished`")
        if kind is Hello and Hello in self._seen:
            raise ProtocolError("`hello` came twice")
        # A worker that is stopped while it imports ends without a greeting.
        if Hello not in self._seen and kind not in (Hello, Finished):
            raise ProtocolError(f"`{name}` came before `hello`")
        if kind in _SPANS:
            self._check_span(_SPANS[kind], kind, name)
        self._seen.add(kind)
        self._check_content(message)

    def _check_span(self, span: _PhaseSpan, kind: type[Message], name: str) -> None:
        if span.once and kind in self._seen:
            raise ProtocolError(f"`{name}` came twice")
        present = -1 if self._phase is None else _PHASES.index(self._phase)
        if not _PHASES.index(span.first) <= present <= _PHASES.index(span.last):
            raise ProtocolError(f"`{name}` came {_when(self._phase)}")

    def _check_content(self, message: Message) -> None:
        match message:
            case PhaseStarted():
                self._check_phase(message)
            case Block():
                self._check_block(message)
            case Epoch():
                self._check_epoch(message)
            case Progress():
                self._check_phase_name("progress", message.phase)
                self._pass(message.t_ns)
            case Evidence():
                self._check_timeline(message)
            case Finished():
                self._check_end(message)
            case EnvironmentInfo():
                self._environment_chars += sum(map(len, (*message.environment, *message.environment.values())))
                if self._environment_chars > _MOST_ENVIRONMENT_CHARS:
                    raise ProtocolError(f"`facts` have more than {_MOST_ENVIRONMENT_CHARS:,} characters")

    def _check_phase(self, started: PhaseStarted) -> None:
        if self._phase is not None and _PHASES.index(started.phase) <= _PHASES.index(self._phase):
            raise ProtocolError(f"the phase {started.phase} came {_when(self._phase)}")
        # The next phase begins later, also where the clock is coarse: the database tells phases apart by their time.
        self._pass(started.t_ns, later_by_ns=0 if self._phase is None else 1)
        self._phase, self._epoch_ns = started.phase, started.t_ns

    def _check_block(self, block: Block) -> None:
        self._check_phase_name("block", block.phase)
        if block.first_step != self._steps:
            raise ProtocolError(f"a block begins with step {block.first_step} where step {self._steps} is the next")
        self._pass(block.start_ns)
        self._pass(block.end_ns, later_by_ns=1)
        self._steps += block.steps
        self._measured |= block.phase == "measure"

    def _check_epoch(self, epoch: Epoch) -> None:
        if epoch.epoch != self._epochs + 1:
            raise ProtocolError(f"epoch {epoch.epoch} came where epoch {self._epochs + 1} is the next")
        if not self._epoch_ns <= epoch.start_ns < epoch.end_ns <= epoch.tested_ns:
            raise ProtocolError(f"the times of epoch {epoch.epoch} go back")
        self._pass(epoch.tested_ns)
        self._epochs, self._epoch_ns = epoch.epoch, epoch.tested_ns

    def _check_timeline(self, evidence: Evidence) -> None:
        step = evidence.timeline
        if step is None:
            return
        self._check_range(step.start_ns)
        known = len(step.streams), len(evidence.kernels)
        if not all(kernel.stream < known[0] and kernel.rank < known[1] for kernel in step.kernels):
            raise ProtocolError("the timeline of a step has a kernel without a name or a stream")

    def _check_end(self, finished: Finished) -> None:
        # No later than the last block's end: a thread of its own says it where a step does not end.
        self._check_range(finished.t_ns)
        if finished.outcome == "completed" and not (self._phase == "finish" and self._measured):
            raise ProtocolError("it completed without a measured block" if self._phase else "it completed at once")

    def _check_phase_name(self, what: str, phase: PhaseName) -> None:
        if phase != self._phase:
            raise ProtocolError(f"a `{what}` of the phase {phase} came {_when(self._phase)}")

    def _pass(self, t_ns: int, later_by_ns: int = 0) -> None:
        """Let the time pass to `t_ns`; raises `ProtocolError` if it goes back."""
        self._check_range(t_ns)
        if t_ns < self._last_ns + later_by_ns:
            raise ProtocolError("times go back, or stand still")
        self._last_ns = t_ns

    def _check_range(self, t_ns: int) -> None:
        now = self._now()
        if not self._start_ns <= t_ns <= now.t_ns + now.error_ns + _CLOCK_ERROR_NS:
            raise ProtocolError("a time is outside the run")


def _when(phase: PhaseName | None) -> str:
    return f"in the phase {phase}" if phase else "before any phase"


def _name(message: Message) -> str:
    return str(message.__struct_config__.tag)
