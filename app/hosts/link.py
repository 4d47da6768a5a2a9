"""The link to an agent: orders and their answers, pings, and what it reports of telemetry and runs, sorted out."""

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from app import units
from app.agent_protocol import (
    AGENT_PROTOCOL,
    HEARTBEAT_S,
    LOST_S,
    AgentHello,
    AnsweredOrder,
    CancelJob,
    FilePart,
    HostDescribed,
    HostInspected,
    JobDone,
    Leased,
    Order,
    Ping,
    Pong,
    Refused,
    Report,
    RunSaid,
    TelemetryEnded,
)
from app.errors import UserError
from app.hosts.channel import Channel, LineTooLongError
from app.plain import one_line
from app.runs.host import ClockAnchor
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
RunReport = RunSaid | Refused | LinkSilent | LinkLost
Numbered = Refused | Leased | JobDone | HostDescribed | HostInspected | FilePart
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
            case RunSaid(run=number):
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


_PINGS = 16
"""Pings, one a second."""
_DRIFT = 200e-6
"""How much two clocks may drift apart: each oscillator is within 100 ppm (https://www.ntp.org/ntpfaq/ntp-s-sw-clocks-quality)."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A host's clock minus this machine's, in nanoseconds, off by `error_ns` at most, and the round trip it is from."""

    offset_ns: int
    error_ns: int
    round_trip_ns: int


@dataclass(frozen=True, slots=True)
class _Ping:
    offset_ns: int
    round_trip_ns: int
    received_ns: int

    def at(self, now_ns: int) -> ClockOffset:
        """Return what it says of the offset at a later time."""
        drift_ns = round(_DRIFT * max(0, now_ns - self.received_ns + self.round_trip_ns))
        return ClockOffset(self.offset_ns, self.round_trip_ns // 2 + 1 + drift_ns, self.round_trip_ns)


class HostClock:
    """The offset of a host's monotonic clock, from the last pings.

    Each ping bounds it: the host read its clock between sending and receiving, so the true offset is within half the
    round trip of the middle (Cristian, https://doi.org/10.1007/BF01784024). The ping whose bound is the closest counts.
    A ping that contradicts an older one is right: one of the clocks stood still meanwhile, as in a suspended machine.

    Thread: any.
    """

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Know nothing yet; `now_ns` is this machine's clock."""
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._pings: deque[_Ping] = deque(maxlen=_PINGS)

    def add(self, sent_ns: int, received_ns: int, host_ns: int) -> None:
        """Add a ping: when it was sent and its answer received, here, and when the host answered, there."""
        new = _Ping(host_ns - (sent_ns + received_ns) // 2, received_ns - sent_ns, received_ns)
        now = new.at(received_ns)
        with self._lock:
            agreeing = [
                ping
                for ping in self._pings
                if abs(ping.offset_ns - new.offset_ns) <= ping.at(received_ns).error_ns + now.error_ns
            ]
            self._pings = deque([*agreeing, new], maxlen=_PINGS)

    def offset(self) -> ClockOffset:
        """Return the offset now; before the first ping `LookupError` is raised."""
        now_ns = self._now_ns()
        with self._lock:
            if not self._pings:
                raise LookupError("no ping was answered yet")
            return min((ping.at(now_ns) for ping in self._pings), key=lambda offset: offset.error_ns)

    def now(self) -> ClockAnchor:
        """Return this moment on the host's monotonic clock and this machine's wall clock."""
        offset = self.offset()
        return ClockAnchor(self._now_ns() + offset.offset_ns, time.time_ns(), offset.error_ns)

    def now_ns(self) -> int:
        """Return now on the host's monotonic clock."""
        return self.now().t_ns


_log = logging.getLogger("variantscope.link")

_STOOD_STILL_S = 2.0
"""A look that comes so much later than it should: this program was suspended, and that is no silence of the host."""
_FIRST_PINGS = 4
"""Sent as soon as the agent says hello: one that still starts would answer late, and its clock be known badly."""
_MAX_SHOWN_BYTES = 200
_LOOK_S = 0.2
_UNANSWERED = 4
"""So many times as long as a silence a ping may be under way: a slow link may have much to bring before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """How long a host may be silent, in seconds; each ping is answered at once.

    Attributes:
        ping_s: Between two pings.
        warn_s: Until that is told.
        lost_s: Until the link is given up, and every run over it.
    """

    ping_s: float = HEARTBEAT_S
    warn_s: float = 5.0
    lost_s: float = LOST_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """How a link is.

    Attributes:
        round_trip_ms: Of the ping that the clock is known from; None before the first answer.
        silent_s: Since the host was last heard.
        lost: Why the link is lost, in one sentence; None while it is not.
    """

    round_trip_ms: float | None
    silent_s: float
    lost: str | None


Answer = TypeVar("Answer", bound=msgspec.Struct)


class Link:
    """One agent, until it is closed or lost.

    Three threads of its own: one reads and never waits for anybody; one writes, and may wait for the carrier; one looks
    how long the host has been silent.

    Attributes:
        name: The host as sentences call it.
        routes: Who waits for what is reported.

    Thread: any.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        *,
        notify: Callable[[str], None] = lambda _: None,
        limits: LinkLimits | None = None,
    ) -> None:
        """Take a channel, an agent's stdin and stdout, whose next line is its first.

        `notify` gets a sentence when the host falls silent, when it is heard again and when it is lost; on threads of
        the link.
        """
        self.name = name
        self.clock = HostClock()
        self.routes = Routes()
        self._channel = channel
        self._notify = notify
        self._limits = limits or LinkLimits()
        self._numbers = itertools.count(1)
        self._orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._hello: Future[AgentHello] = Future()
        self._closing = False
        # Of the reader alone.
        self._pongs = 0
        # Set when the clock is known, or the link is lost.
        self._ready = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        # Everything below is read and written under the lock.
        self._lock = threading.Lock()
        self._pings: dict[int, int] = {}
        self._heard_s = time.monotonic()
        self._is_silent = False

    def start(self, lines: Iterator[bytes]) -> AgentHello:
        """Begin to read and write; return the agent's hello once its clock is known. Raises `LinkLostError`."""
        work = (("reader", lambda: self._read(lines)), ("writer", self._write), ("watch", self._watch))
        threads = [
            threading.Thread(target=target, name=f"link {name} of {self.name}", daemon=True) for name, target in work
        ]
        for thread in threads:
            thread.start()
        self._threads = threads  # complete: `close` may join them from now on
        hello = self._hello.result()
        self._ready.wait()
        return hello

    def status(self) -> LinkStatus:
        """Return how the link is."""
        with self._lock:
            silent_s = time.monotonic() - self._heard_s
        lost = self.routes.lost
        try:
            offset = self.clock.offset()
        except LookupError:
            return LinkStatus(round_trip_ms=None, silent_s=silent_s, lost=lost)
        return LinkStatus(
            round_trip_ms=offset.round_trip_ns / 1e6,
            silent_s=silent_s,
            lost=lost,
        )

    def send(self, order: Order) -> None:
        """Send an order that is not answered; a lost link takes it, too."""
        self._orders.put(msgspec.json.encode(order) + b"\n")

    def number(self) -> int:
        """Return a new number for an order."""
        return next(self._numbers)

    def order(self, order: AnsweredOrder) -> "Future[Numbered]":
        """Send an order; its answer raises what `ask` raises."""
        answer = self.routes.expect(order.number)
        self.send(order)
        return answer

    def ask(
        self, order: AnsweredOrder, answer_type: type[Answer], is_overdue: Callable[[], bool] | None = None
    ) -> Answer:
        """Send an order and wait for its answer.

        With `is_overdue`, which is called several times a second, it is a job, cancelled once that is true.

        Raises:
            LinkLostError: The link is lost before.
            UserError: The agent refuses it; a `JobError` where a job failed.
            OSError: The host cannot do it; its text ends a sentence for the user.
            TimeoutError: It was cancelled.
        """
        pending, is_cancelled = self.order(order), False
        while is_overdue is not None and not wait([pending], _LOOK_S).done:
            if not is_cancelled and is_overdue():
                self.send(CancelJob(order.number))
                is_cancelled = True
        answer = pending.result()
        if not isinstance(answer, answer_type):
            raise LinkLostError(f"The agent on {self.name} answered something else; update both programs.")
        return answer

    def close(self) -> None:
        """End the agent, and with it everything on the host, and wait for that."""
        self._closing = True
        self._orders.put(None)
        self._channel.close()
        self._lose(f"The link to {self.name} was closed.")
        for thread in self._threads:
            thread.join()

    def _read(self, lines: Iterator[bytes]) -> None:
        decoder: msgspec.json.Decoder[Report | SamplerMessage] = msgspec.json.Decoder(Report | SamplerMessage)
        line = b""
        try:
            for line in lines:
                self._hear()
                if line.endswith(b"\n"):  # else the agent was killed while it wrote
                    self._handle(decoder.decode(line))
        except (msgspec.DecodeError, LineTooLongError):
            excerpt = one_line(line[:_MAX_SHOWN_BYTES].decode(errors="replace"))
            self._lose(f"The agent on {self.name} sent what no agent sends, so the link was closed: {excerpt}")
        except FloodError as error:
            self._lose(f"The agent on {self.name} sends {error}, so the link was closed.")
        else:
            self._lose(f"The link to {self.name} was closed." if self._closing else self._channel.why_ended())

    def _hear(self) -> None:
        with self._lock:
            self._heard_s = time.monotonic()
            was_silent, self._is_silent = self._is_silent, False
        if was_silent:
            self._notify(f"{self.name} answers again.")
            self.routes.tell_runs(LinkSilent(""))

    def _handle(self, report: Report | SamplerMessage) -> None:
        match report:
            case Pong():
                self._take_pong(report)
            case AgentHello():
                self._greet(report)
            case _:
                self.routes.pass_on(report)

    def _take_pong(self, pong: Pong) -> None:
        received_ns = time.monotonic_ns()
        with self._lock:
            sent_ns = self._pings.pop(pong.number, None)
        if sent_ns is None:
            return
        self.clock.add(sent_ns, received_ns, pong.t_ns)
        self._pongs += 1
        if self._pongs == _FIRST_PINGS:
            self._ready.set()

    def _greet(self, hello: AgentHello) -> None:
        if hello.protocol != AGENT_PROTOCOL:
            self._lose(f"The agent on {self.name} speaks protocol {hello.protocol}, this program {AGENT_PROTOCOL}.")
        elif self._settle(hello):
            _log.info("agent %d on %s says hello", hello.pid, self.name)
            for _ in range(_FIRST_PINGS):
                self._ping()

    def _settle(self, hello: AgentHello | LinkLostError) -> bool:
        """End the wait for the hello, unless another thread already has; return whether this call did."""
        with self._lock:
            if self._hello.done():
                return False
            if isinstance(hello, AgentHello):
                self._hello.set_result(hello)
            else:
                self._hello.set_exception(hello)
            return True

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the reader tells why it is closed
            while (order := self._orders.get()) is not None:
                self._channel.write(order)

    def _watch(self) -> None:
        """Ping, and look how long the host has been silent; each look is due at a time of its own."""
        while True:
            due_s = time.monotonic() + self._limits.ping_s
            if self._over.wait(self._limits.ping_s):
                return
            if self._hello.done():
                self._ping()
            late_s = time.monotonic() - due_s
            with self._lock:
                if late_s > _STOOD_STILL_S:
                    self._heard_s += late_s
                silent_s = time.monotonic() - self._heard_s
                newly_silent = silent_s >= self._limits.warn_s and not self._is_silent
                self._is_silent |= newly_silent
                unanswered_s = (time.monotonic_ns() - min(self._pings.values(), default=time.monotonic_ns())) / 1e9
            if unanswered_s >= _UNANSWERED * self._limits.lost_s and late_s <= _STOOD_STILL_S:
                self._lose(f"The agent on {self.name} hangs: it sends readings, but answers no ping.")
            elif silent_s >= self._limits.lost_s:
                quiet = units.with_unit(silent_s, "s")
                self._lose(f"The link to {self.name} was lost: nothing has come from it for {quiet}.")
            elif newly_silent:
                quiet, limit = (units.with_unit(each_s, "s") for each_s in (silent_s, self._limits.lost_s))
                reason = f"Nothing has come from {self.name} for {quiet}; after {limit} it is given up."
                _log.warning("%s", reason)
                self._notify(reason)
                self.routes.tell_runs(LinkSilent(reason))

    def _ping(self) -> None:
        number = self.number()
        with self._lock:
            self._pings[number] = time.monotonic_ns()
        self.send(Ping(number))

    def _lose(self, reason: str) -> None:
        """Give the link up, once."""
        if not self.routes.lose(reason):
            return
        _log.log(logging.INFO if self._closing else logging.WARNING, "%s", reason)
        self._over.set()
        self._settle(LinkLostError(reason))
        self._ready.set()
        self._orders.put(None)
        self._channel.cut()
        if not self._closing:
            self._notify(reason)
