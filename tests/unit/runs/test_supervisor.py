"""The supervisor on an inbox filled beforehand: what it hands on, what it answers, and how far it climbs."""

import queue
import threading
from dataclasses import dataclass, field

import msgspec
import pytest

from app.errors import DatabaseError
from app.runs.host import ClockAnchor, WorkerTimeouts
from app.runs.launcher import BrokenMessage, Exited
from app.runs.supervisor import Inbox, InboxItem, StopRequested, Supervisor, WorkerExit
from app.values.environment_keys import STOOD_STILL_KEY
from app.values.events import RunEvent
from app.values.fields import Sample
from app.values.samples import HOST, DeviceLost, LogLine, TelemetryGap
from tests.fakes.sessions import LIMIT_S
from workloads.protocol import PROTOCOL_VERSION, EnvironmentInfo, Finished, Hello, PhaseStarted

AT_ONCE = WorkerTimeouts(hello_s=0.0, message_gap_s=0.0, closed_stdin_s=0.0, terminated_s=0.0, finished_s=0.0)
CLOCK = ClockAnchor(t_ns=1, utc_ns=1)
HELLO = Hello(protocol=PROTOCOL_VERSION, pid=1, t_ns=1, utc_ns=1)
PHASE = PhaseStarted(phase="import", t_ns=2)
DONE = Finished(outcome="stopped", t_ns=3)
LOST = DeviceLost(t_ns=4, device="GPU-x", reason="It is gone.")


@dataclass
class Obedient:
    """A process that does what the rung it obeys asks for: it exits then."""

    inbox: Inbox
    obeys: str
    rungs: list[str] = field(default_factory=list)
    pid: int = 1

    def ask_to_stop(self) -> None:
        self._ask("closed stdin")

    def terminate(self) -> None:
        self._ask("terminated")

    def kill(self) -> None:
        self._ask("killed")

    def _ask(self, rung: str) -> None:
        self.rungs.append(rung)
        if rung == self.obeys:
            self.inbox.put(Exited(-1))


def watch(
    *items: InboxItem, obeys: str = "closed stdin", limits: WorkerTimeouts | None = None
) -> tuple[WorkerExit, list[str], list[RunEvent]]:
    """The ending, the rungs that were asked, and the events handed on."""
    inbox = Inbox()
    for item in items:
        inbox.put(item)
    worker, events = Obedient(inbox, obeys), list[RunEvent]()
    ending = Supervisor(worker, inbox, limits or WorkerTimeouts(), events.append, CLOCK).watch()
    return ending, worker.rungs, events


def test_events_are_handed_on_in_order_without_the_worker_s_own() -> None:
    sample, line, facts = Sample(t_ns=3, device=HOST), LogLine(3, "x"), EnvironmentInfo(environment={"a": "b"})
    ending, rungs, events = watch(HELLO, PHASE, sample, line, facts, LOST, DONE, Exited(0))
    assert events == [PHASE, sample, line, facts, LOST]
    assert rungs == []
    assert (ending.finished, ending.exit_code, ending.ended_by) == (DONE, 0, "itself")
    assert (ending.stop_requested, ending.fault, ending.gpu_lost) == (False, None, "It is gone.")


@pytest.mark.parametrize(
    ("obeys", "rungs"),
    [
        ("closed stdin", ["closed stdin"]),
        ("terminated", ["closed stdin", "terminated"]),
        ("killed", ["closed stdin", "terminated", "killed"]),
    ],
)
def test_stop_climbs_until_the_worker_goes(obeys: str, rungs: list[str]) -> None:
    limits = WorkerTimeouts(closed_stdin_s=0.0, terminated_s=0.0)
    ending, done, _ = watch(HELLO, StopRequested(), obeys=obeys, limits=limits)
    assert (done, ending.ended_by, ending.stop_requested, ending.fault) == (rungs, obeys, True, None)


def test_asking_twice_is_asking_once() -> None:
    _, rungs, _ = watch(StopRequested(), StopRequested())
    assert rungs == ["closed stdin"]


def test_silence_ends_the_worker_with_a_reason() -> None:
    ending, rungs, _ = watch(HELLO, obeys="killed", limits=msgspec.structs.replace(AT_ONCE, hello_s=60.0))
    assert rungs == ["terminated", "killed"]
    assert ending.fault == "The worker sent nothing for 0\xa0s and was ended; see its log."


def test_what_never_says_hello_is_no_python_for_runs() -> None:
    no_python = "The Python of this run cannot run workloads, or is broken:"
    ending, rungs, _ = watch(
        LogLine(1, "noise"), obeys="terminated", limits=msgspec.structs.replace(AT_ONCE, message_gap_s=60.0)
    )
    assert (rungs, ending.started) == (["terminated"], False)
    assert ending.fault == f"{no_python} it did not begin the run within 0\xa0s; see its log."
    ending, *_ = watch(BrokenMessage("malformed", "x" * 900), obeys="terminated")
    assert ending.fault == f"{no_python} instead of starting the run it printed “{'x' * 200}”."


def test_a_worker_that_stays_after_its_last_word_climbs_too() -> None:
    ending, rungs, _ = watch(
        HELLO, DONE, obeys="terminated", limits=msgspec.structs.replace(AT_ONCE, message_gap_s=60.0)
    )
    assert rungs == ["closed stdin", "terminated"]
    assert (ending.finished, ending.fault) == (DONE, None)


class Suspended(Inbox):
    """An inbox whose first reader wakes up ten minutes late, as everything stood still; the worker then ends."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock = clock

    def get(self, timeout: float) -> InboxItem:
        if self.qsize():
            return super().get(0.0)
        self.clock[0] += timeout + (600.0 if self.clock[0] < 600.0 else 0.0)
        if self.clock[0] > 610.0:
            self.put(Exited(0))
        raise queue.Empty


def test_the_time_in_which_everything_stood_still_is_told_and_not_the_worker_s(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, events = [0.0], list[RunEvent]()
    monkeypatch.setattr("app.runs.supervisor.time.monotonic", lambda: clock[0])
    inbox = Suspended(clock)
    inbox.put(HELLO)
    worker = Obedient(inbox, "never")
    ending = Supervisor(worker, inbox, WorkerTimeouts(message_gap_s=300.0), events.append, CLOCK).watch()
    assert (worker.rungs, ending.fault) == ([], None)
    assert [event.reason for event in events if isinstance(event, TelemetryGap)] == [
        "This program was suspended for 600\xa0s, and so was the run."
    ]
    assert EnvironmentInfo(environment={STOOD_STILL_KEY: "600"}) in events


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        (BrokenMessage("nonsense", "x"), "The worker broke the protocol: nonsense"),
        (
            Hello(protocol=99, pid=1, t_ns=1, utc_ns=1),
            f"The worker speaks protocol 99, this program {PROTOCOL_VERSION}.",
        ),
    ],
)
def test_a_broken_protocol_terminates(item: InboxItem, fault: str) -> None:
    first = () if isinstance(item, Hello) else (HELLO,)
    ending, rungs, events = watch(*first, item, BrokenMessage("more", "y"), obeys="terminated")
    assert (ending.fault, rungs, events) == (fault, ["terminated"], [])


def test_trouble_of_a_sink_terminates_and_the_first_reason_stays() -> None:
    inbox = Inbox()
    worker, tried = Obedient(inbox, "terminated"), list[RunEvent]()

    def full(event: RunEvent) -> None:
        tried.append(event)
        raise DatabaseError(f"Full for the {len(tried)}. time.")

    for item in (HELLO, LogLine(1, "a"), LogLine(2, "b")):
        inbox.put(item)
    ending = Supervisor(worker, inbox, WorkerTimeouts(), full, CLOCK).watch()
    assert (ending.fault, worker.rungs, len(tried)) == ("Full for the 1. time.", ["terminated"], 2)


def test_a_bug_in_a_sink_is_not_hidden() -> None:
    inbox = Inbox()
    inbox.put(LogLine(1, "a"))

    def broken(event: RunEvent) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Supervisor(Obedient(inbox, "killed"), inbox, WorkerTimeouts(), broken, CLOCK).watch()


def test_fatal_words_of_the_log_are_kept() -> None:
    ending, *_ = watch(
        HELLO, LogLine(1, "F0000 a.cc:4] Check failed"), LogLine(2, "\x1b[1mE1Error: a"), LogLine(3, "--"), Exited(-6)
    )
    assert (ending.fatal_message, ending.error_message, ending.exit_code) == ("Check failed", "E1Error: a", -6)
    assert ending.last_line == ending.error_message


def test_of_several_ranks_the_first_to_fail_says_why() -> None:
    lines = (
        "a.BError: before",
        "[rank1]: KeyError: 'x'",
        "[rank1]: CError: cause",
        "[rank0]: DError: lost",
        "EError: end",
    )
    ending, *_ = watch(HELLO, *(LogLine(n, line) for n, line in enumerate(lines)), Exited(1))
    assert ending.error_message == "CError: cause"


def test_what_breaks_the_order_fails_the_run_and_nothing_after_it_is_handed_on() -> None:
    ending, rungs, events = watch(HELLO, PHASE, PHASE, PhaseStarted(phase="build", t_ns=3), DONE, obeys="terminated")
    assert ending.fault == "The worker broke the protocol: the phase import came in the phase import."
    assert (rungs, events, ending.finished) == (["terminated"], [PHASE], None)


class Flooding(Obedient):
    """A process that says more whenever somebody listens, until it is killed."""

    def keep_saying(self, event: RunEvent) -> None:
        if self.rungs[-1:] != ["killed"]:
            self.inbox.put(LogLine(1, "more"))


@pytest.mark.parametrize(
    ("items", "rungs"),
    [
        ((LogLine(1, "noise"),), ["terminated", "killed"]),
        ((HELLO, LogLine(1, "noise"), StopRequested()), ["closed stdin", "terminated", "killed"]),
        ((HELLO, LogLine(1, "noise"), DONE), ["closed stdin", "terminated", "killed"]),
    ],
)
def test_one_that_never_falls_silent_is_ended_all_the_same(items: tuple[InboxItem, ...], rungs: list[str]) -> None:
    inbox = Inbox()
    worker = Flooding(inbox, "killed")
    for item in items:
        inbox.put(item)
    limits = msgspec.structs.replace(AT_ONCE, hello_s=0.0 if len(items) == 1 else 60.0, message_gap_s=60.0)
    ending = Supervisor(worker, inbox, limits, worker.keep_saying, CLOCK).watch()
    assert (worker.rungs, ending.ended_by) == (rungs, "killed")


def test_a_worker_waits_while_its_messages_wait_and_nobody_else_does() -> None:
    inbox, posted = Inbox(), list[int]()

    def post() -> None:
        for number in range(6):
            inbox.post(PHASE)
            posted.append(number)

    reader = threading.Thread(target=post)
    reader.start()
    for _ in range(100):
        inbox.put(StopRequested())
    inbox.post(LogLine(1, "a line has room of its own"))
    assert len(posted) <= 4
    items = [inbox.get(LIMIT_S) for _ in range(107)]
    reader.join(LIMIT_S)
    assert (items.count(PHASE), posted) == (6, list(range(6)))


def test_nobody_waits_for_a_run_that_is_over() -> None:
    inbox, reading = Inbox(), threading.Event()

    def post() -> None:
        for _ in range(4):
            inbox.post(PHASE)
        reading.set()
        for _ in range(100):
            inbox.post(PHASE)

    reader = threading.Thread(target=post)
    reader.start()
    assert reading.wait(LIMIT_S)
    inbox.close()
    reader.join(LIMIT_S)
    assert (reader.is_alive(), inbox.qsize()) == (False, 4)
