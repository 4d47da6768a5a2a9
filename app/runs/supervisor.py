"""Watching one worker from its start to its end, and ending it by a ladder when it has to be ended."""

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.errors import UserError
from app.records import LogLine, RunEvent
from app.runs.launcher import BrokenMessage, Exited, Worker, WorkerEvent
from app.runs.outcome import NO_PYTHON, Ending, Rung, fatal_words
from app.samples import DeviceLost, FieldsSeen, Sample, SlowSample
from workloads.protocol import PROTOCOL_VERSION, Finished, Hello

_RUNGS: tuple[Rung, ...] = ("itself", "closed stdin", "terminated", "killed")
_LONGEST_WORDS = 200


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The user wants the run to end."""


InboxItem = WorkerEvent | Sample | SlowSample | DeviceLost | FieldsSeen | StopAsked
Inbox = queue.SimpleQueue[InboxItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a worker may take, in seconds: to say hello, between two messages, and on each rung of the ladder.

    One that stands by may still import when it is given its order, and says hello after that.
    """

    hello_s: float = 120.0
    silence_s: float = 300.0
    closed_stdin_s: float = 5.0
    terminated_s: float = 3.0
    finished_s: float = 5.0


class Supervisor:
    """The only reader of a run's inbox: emits events, and climbs the ladder when asked, or when something is wrong.

    The ladder: close stdin, terminate, kill; each rung has its time, and the last one needed is recorded.
    """

    def __init__(self, worker: Worker, inbox: Inbox, limits: Limits, emit: Callable[[RunEvent], None]) -> None:
        self._worker = worker
        self._inbox = inbox
        self._limits = limits
        self._emit = emit
        self._rung: Rung = "itself"
        self._finished: Finished | None = None
        self._stop_asked = False
        self._fault: str | None = None
        self._lost: str | None = None
        self._last_words: str | None = None
        self._began = False
        self._deadline_s = time.monotonic() + limits.hello_s

    def watch(self) -> Ending:
        """Reads until the worker's process is gone."""
        while True:
            try:
                item = self._inbox.get(timeout=max(0.0, self._deadline_s - time.monotonic()))
            except queue.Empty:
                self._too_late()
                continue
            if isinstance(item, Exited):
                return Ending(
                    finished=self._finished,
                    exit_code=item.exit_code,
                    began=self._began,
                    stop_asked=self._stop_asked,
                    fault=self._fault,
                    lost=self._lost,
                    last_words=self._last_words,
                    ended_by=self._rung,
                )
            self._take(item)

    def _take(self, item: InboxItem) -> None:
        match item:
            case StopAsked():
                self._stop_asked = True
                self._climb_to("closed stdin")
            case BrokenMessage(line=line) if not self._began:
                self._give_up(f"{NO_PYTHON} instead of beginning the run it said “{line[:_LONGEST_WORDS]}”.")
            case BrokenMessage(reason=reason):
                self._give_up(f"The worker broke the protocol: {reason}")
            case Hello(protocol=protocol) if protocol != PROTOCOL_VERSION:
                self._give_up(f"The worker speaks protocol {protocol}, this program {PROTOCOL_VERSION}.")
            case Finished():
                self._finished = item
                self._deadline_s = time.monotonic() + self._limits.finished_s
            case DeviceLost(reason=reason):
                self._lost = reason
                self._hand_on(item)
            case Sample() | SlowSample() | FieldsSeen():
                self._hand_on(item)
            case LogLine(text=text):
                self._last_words = fatal_words(text) or self._last_words
                self._heard()
                self._hand_on(item)
            case _:
                self._began = self._began or isinstance(item, Hello)
                self._heard()
                if not isinstance(item, Hello | Exited):
                    self._hand_on(item)

    def _heard(self) -> None:
        if self._began and self._rung == "itself" and self._finished is None:
            self._deadline_s = time.monotonic() + self._limits.silence_s

    def _hand_on(self, event: RunEvent) -> None:
        """Emits one event; when a sink meets trouble of the user's world (a full disk), the run is ended with it."""
        try:
            self._emit(event)
        except UserError as error:
            self._give_up(str(error))

    def _give_up(self, fault: str) -> None:
        if self._fault is None:
            self._fault = fault
            self._climb_to("terminated")

    def _too_late(self) -> None:
        if self._rung != "itself" or self._finished is not None:
            self._climb_to(_RUNGS[min(_RUNGS.index(self._rung) + 1, len(_RUNGS) - 1)])
        elif self._began:
            self._give_up(f"The worker said nothing for {self._limits.silence_s:.0f} s and was ended; see its log.")
        else:
            self._give_up(f"{NO_PYTHON} it did not begin the run within {self._limits.hello_s:.0f} s; see its log.")

    def _climb_to(self, rung: Rung) -> None:
        if _RUNGS.index(rung) <= _RUNGS.index(self._rung) and rung != "killed":
            return
        self._rung = rung
        if rung == "closed stdin":
            self._worker.ask_to_stop()
            wait_s = self._limits.closed_stdin_s
        elif rung == "terminated":
            self._worker.terminate()
            wait_s = self._limits.terminated_s
        else:
            self._worker.kill()
            wait_s = self._limits.terminated_s
        self._deadline_s = time.monotonic() + wait_s
