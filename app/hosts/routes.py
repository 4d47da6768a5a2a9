"""Who waits for what an agent reports: answers by the numbers of orders, the sampler's feed, and workers."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from app.agent_protocol import (
    AgentHello,
    EnvironmentsManaged,
    FilePart,
    FilesListed,
    HostDescribed,
    HostInspected,
    JobDone,
    Leased,
    Pong,
    Refused,
    Report,
    SamplerEnded,
    WorkerBroke,
    WorkerExited,
    WorkerLaunched,
    WorkerLogged,
    WorkerSaid,
)
from app.errors import UserError
from app.runs.jobs import JobCrashedError, JobError
from app.telemetry.messages import SamplerMessage


class LinkLostError(UserError):
    """There is no link any more: one sentence with the reason."""


class FloodError(Exception):
    """A host sends more than an agent may: half a sentence on what."""


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The last that a sampler or a worker hears of its link: it is lost, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """The host was not heard for some seconds, in one sentence; "" when it is heard again."""

    reason: str


SamplerReport = SamplerMessage | SamplerEnded | LinkLost
WorkerReport = WorkerSaid | WorkerLogged | WorkerBroke | WorkerExited | LinkSilent | LinkLost
Numbered = (
    Refused
    | WorkerLaunched
    | Leased
    | JobDone
    | HostDescribed
    | HostInspected
    | EnvironmentsManaged
    | FilePart
    | FilesListed
)
"""Reports that answer an order, by its number."""
TakeSampler = Callable[[SamplerReport], None]
TakeWorker = Callable[[WorkerReport], None]


class Routes:
    """Passes each report to the one who waits for it, and tells all of them when the link is silent or lost.

    What takes a report returns at once, or raises `FloodError`: the link's reader calls it.

    Thread: any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Everything below is read and written under the lock; nobody is called under it.
        self._lost: str | None = None
        self._answers: dict[int, Future[Numbered]] = {}
        self._sampler: TakeSampler | None = None
        self._workers: dict[int, TakeWorker] = {}

    @property
    def lost(self) -> str | None:
        """Why the link is lost; None while it is not."""
        return self._lost

    def expect(self, number: int) -> "Future[Numbered]":
        """Return the answer to come to the order of this number; that of a lost link raises `LinkLostError`."""
        answer: Future[Numbered] = Future()
        with self._lock:
            if self._lost is None:
                self._answers[number] = answer
                return answer
        answer.set_exception(LinkLostError(self._lost))
        return answer

    def listen_sampler(self, take: TakeSampler) -> None:
        """Pass what the sampler says to `take` from now on; raises `LinkLostError`."""
        with self._lock:
            self._check()
            self._sampler = take

    def listen_worker(self, number: int, take: TakeWorker) -> None:
        """Pass what a worker of this number says to `take`, until it has exited; raises `LinkLostError`."""
        with self._lock:
            self._check()
            self._workers[number] = take

    def forget_worker(self, number: int) -> None:
        """Listen no longer to a worker that was not started."""
        with self._lock:
            self._workers.pop(number, None)

    def pass_on(self, said: Report | SamplerMessage) -> None:
        """Pass a report on; what nobody waits for any more is dropped. Raises `FloodError`."""
        match said:
            case WorkerSaid() | WorkerLogged() | WorkerBroke() | WorkerExited():
                with self._lock:
                    take_event = self._workers.get(said.worker)
                    if isinstance(said, WorkerExited):
                        self._workers.pop(said.worker, None)
                if take_event is not None:
                    take_event(said)
            case _ if isinstance(said, Numbered):
                self._answer(said)
            case Pong() | AgentHello():
                raise TypeError("the link itself takes them")
            case _:
                with self._lock:
                    take = self._sampler
                if take is not None:
                    take(said)

    def tell_workers(self, silent: LinkSilent) -> None:
        """Tell all workers that the host is silent, or is heard again."""
        with self._lock:
            workers = list(self._workers.values())
        for take in workers:
            take(silent)

    def lose(self, reason: str) -> bool:
        """Tell everybody that the link is lost; return whether it was not before."""
        with self._lock:
            if self._lost is not None:
                return False
            self._lost = reason
            answers, self._answers = list(self._answers.values()), {}
            workers, self._workers = list(self._workers.values()), {}
            sampler, self._sampler = self._sampler, None
        for answer in answers:
            answer.set_exception(LinkLostError(reason))
        for take in workers:
            take(LinkLost(reason))
        if sampler is not None:
            sampler(LinkLost(reason))
        return True

    def _check(self) -> None:
        if self._lost is not None:
            raise LinkLostError(self._lost)

    def _answer(self, said: Numbered) -> None:
        number = said.worker if isinstance(said, WorkerLaunched) else said.number
        with self._lock:
            answer = self._answers.pop(number, None)
        if answer is None:
            return
        if isinstance(said, Refused):
            answer.set_exception(_error(said))
        else:
            answer.set_result(said)


def _error(refused: Refused) -> Exception:
    """Return the error that stopped the agent, as it would have been here."""
    match refused.kind:
        case "user error":
            return UserError(refused.reason)
        case "os error":
            return OSError(refused.reason)
        case "job error":
            return JobError(refused.reason)
        case "job crashed":
            return JobCrashedError(refused.reason)
        case "cancelled":
            return TimeoutError(refused.reason)
        case "bug":
            return RuntimeError(f"of the agent: {refused.reason}")
