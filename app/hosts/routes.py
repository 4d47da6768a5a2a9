"""Who waits for what an agent reports: answers by the numbers of orders, the telemetry feed, and runs."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from app.agent_protocol import (
    AgentHello,
    EnvironmentsManaged,
    FilePart,
    HostDescribed,
    HostInspected,
    JobDone,
    Leased,
    Pong,
    Progressed,
    Refused,
    Report,
    RunSaid,
    TelemetryEnded,
)
from app.errors import UserError
from app.runs.jobs import ERROR_KINDS
from app.telemetry.messages import SamplerMessage


class LinkLostError(UserError):
    """There is no link any more: one sentence with the reason."""


class FloodError(Exception):
    """A host sends more than an agent may: half a sentence on what."""


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The last that telemetry or a run hears of its link: it is lost, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """The host was not heard for some seconds, in one sentence; "" when it is heard again."""

    reason: str


TelemetryReport = SamplerMessage | TelemetryEnded | LinkLost
RunReport = RunSaid | Progressed | Refused | LinkSilent | LinkLost
Numbered = Refused | Leased | JobDone | HostDescribed | HostInspected | EnvironmentsManaged | FilePart
"""Reports that answer an order, by its number."""
TakeTelemetry = Callable[[TelemetryReport], None]
TakeRun = Callable[[RunReport], None]


class Routes:
    """Passes each report to the one who waits for it, and tells all of them when the link is silent or lost.

    What takes a report returns at once, or raises `FloodError`: the link's reader calls it.

    Thread: any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Everything below is read and written under the lock; nobody is called under it.
        self.lost: str | None = None
        self._answers: dict[int, Future[Numbered]] = {}
        self._telemetry: TakeTelemetry | None = None
        self._runs: dict[int, TakeRun] = {}

    def expect(self, number: int) -> "Future[Numbered]":
        """Return the answer to come to the order of this number; that of a lost link raises `LinkLostError`."""
        answer: Future[Numbered] = Future()
        with self._lock:
            if self.lost is None:
                self._answers[number] = answer
                return answer
        answer.set_exception(LinkLostError(self.lost))
        return answer

    def listen_telemetry(self, take: TakeTelemetry) -> None:
        """Pass what telemetry says to `take` from now on; raises `LinkLostError`."""
        with self._lock:
            self._check()
            self._telemetry = take

    def listen_run(self, number: int, take: TakeRun) -> None:
        """Pass to `take` what is said of this run, or how far this order is, until `forget_run`; or `LinkLostError`."""
        with self._lock:
            self._check()
            self._runs[number] = take

    def forget_run(self, number: int) -> None:
        """Listen no longer to a run that has ended."""
        with self._lock:
            self._runs.pop(number, None)

    def pass_on(self, report: Report | SamplerMessage) -> None:
        """Pass a report on; what nobody waits for any more is dropped. Raises `FloodError`."""
        match report:
            case RunSaid(run=number) | Progressed(number=number):
                with self._lock:
                    take_run = self._runs.get(number)
                if take_run is not None:
                    take_run(report)
            case _ if isinstance(report, Numbered):
                self._answer(report)
            case Pong() | AgentHello():
                raise TypeError("the link itself takes them")
            case _:
                with self._lock:
                    take = self._telemetry
                if take is not None:
                    take(report)

    def tell_runs(self, silent: LinkSilent) -> None:
        """Tell all runs that the host is silent, or is heard again."""
        with self._lock:
            runs = list(self._runs.values())
        for take in runs:
            take(silent)

    def lose(self, reason: str) -> bool:
        """Tell everybody that the link is lost; return whether it was not before."""
        with self._lock:
            if self.lost is not None:
                return False
            self.lost = reason
            answers, self._answers = list(self._answers.values()), {}
            runs, self._runs = list(self._runs.values()), {}
            telemetry, self._telemetry = self._telemetry, None
        for answer in answers:
            answer.set_exception(LinkLostError(reason))
        for take in runs:
            take(LinkLost(reason))
        if telemetry is not None:
            telemetry(LinkLost(reason))
        return True

    def _check(self) -> None:
        if self.lost is not None:
            raise LinkLostError(self.lost)

    def _answer(self, report: Numbered) -> None:
        with self._lock:
            answer = self._answers.pop(report.number, None)
            take_run = self._runs.get(report.number)
        if answer is None:
            if isinstance(report, Refused) and take_run is not None:
                take_run(report)
        elif isinstance(report, Refused):
            answer.set_exception(refusal_error(report))
        else:
            answer.set_result(report)


def refusal_error(refused: Refused) -> Exception:
    """Return the error that stopped the agent, as it would have been here."""
    if refused.kind == "bug":
        return RuntimeError(f"of the agent: {refused.reason}")
    return ERROR_KINDS[refused.kind](refused.reason)
