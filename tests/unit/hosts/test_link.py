"""The link to an agent that a test plays: what comes is garbage, in the wrong order, or nothing."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from app.agent_protocol import (
    AGENT_PROTOCOL,
    MOST_EVENTS,
    AgentHello,
    CancelJob,
    ChangeRate,
    DescribeHost,
    FilePart,
    HostDescribed,
    JobDone,
    Leased,
    Order,
    Ping,
    Pong,
    ReadFile,
    Refused,
    ReleaseLease,
    Report,
    RunSaid,
    StartJob,
    StartRun,
    StartTelemetry,
    StopRun,
    TakeLease,
    Took,
)
from app.errors import TelemetryError, UserError
from app.events import Outcome, RunEnded, RunEvent, RunStarted
from app.fields import Sample
from app.hosts.book import HostEntry
from app.hosts.check import check_hosts
from app.hosts.connection import (
    _MOST_READINGS_AT_ONCE,
    _MOST_READINGS_PER_S,
    _TAKEN_AT_ONCE,
    Connection,
    RemoteRun,
    RemoteSampler,
    serve,
)
from app.hosts.link import Link, LinkLimits, LinkLostError, LinkSilent, RunReport
from app.hosts.remote_jobs import ScratchFiles
from app.runs.host import WorkerTimeouts
from app.runs.jobs import JobCrashedError, JobError
from app.runs.maker import RunMaker
from app.samples import HOST, Device, Inventory, LogLine
from tests.fakes.sessions import dummy
from workloads.catalog import Machine
from workloads.job_protocol import Calibrate, OutputDifference
from workloads.protocol import PROTOCOL_VERSION, Calibration, Finished, Flops, Start, encode

LIMIT_S = 60.0
HELLO = AgentHello(
    protocol=AGENT_PROTOCOL,
    pid=7,
    t_ns=1,
    utc_ns=1,
    host_id="h",
    boot_id="b",
    python="3.12",
    scratch="/",
)
INVENTORY = Inventory(machine=Machine(cpu_count=4), devices=(Device(device=HOST, kind="host", index=-1, name="gpu1"),))
START = Start(protocol=PROTOCOL_VERSION, spec=dummy(INVENTORY))


class Agent:
    """The other end of a link: answers pings, and orders as a test wants them answered. It is its channel, too."""

    def __init__(self, hello: AgentHello | None = HELLO) -> None:
        self.pinged = threading.Event()
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.answers: dict[type, Callable[[Any], Report]] = {
            Ping: lambda order: Pong(number=order.number, t_ns=1, utc_ns=1)
        }
        self.is_cut = threading.Event()
        self._said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._decoder: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
        if hello is not None:
            self.say(hello)

    def say(self, report: Report | Inventory | Sample) -> None:
        self.say_line(msgspec.json.encode(report) + b"\n")

    def say_line(self, line: bytes) -> None:
        self._said.put(line)

    def write(self, lines: bytes) -> None:
        order = self._decoder.decode(lines)
        if isinstance(order, Ping):
            self.pinged.set()
        if type(order) in self.answers:
            self.say(self.answers[type(order)](order))
        if not isinstance(order, Ping):
            self.orders.put(order)

    def lines(self) -> Iterator[bytes]:
        return iter(self._said.get, None)

    def close(self) -> None:
        self._said.put(None)

    def cut(self) -> None:
        self.is_cut.set()
        self._said.put(None)

    def why_ended(self, _said: str = "") -> str:
        return "It ended."

    def order(self, kind: type[Any]) -> Any:
        """Return the next order of this kind."""
        while not isinstance(order := self.orders.get(timeout=LIMIT_S), kind):
            pass
        return order


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def sentences() -> list[str]:
    return []


@pytest.fixture
def connection(agent: Agent, sentences: list[str]) -> Iterator[Connection]:
    opened = serve(
        agent, agent.lines(), name="gpu1", kind="ssh", notify=sentences.append, limits=LinkLimits(ping_s=0.05)
    )
    yield opened
    agent.cut()
    opened.close()


@pytest.mark.parametrize(
    "garbage", [b"Segmentation fault\n", b'{"type":"hello"}\n', b"[1]\n", b'{"type":"pong","number":-1}\n', b"\xff\n"]
)
def test_an_agent_that_speaks_garbage_is_given_up(
    garbage: bytes, agent: Agent, connection: Connection, sentences: list[str]
) -> None:
    agent.say(INVENTORY)
    connection.host.inventory()
    agent.say_line(garbage)
    assert agent.is_cut.wait(LIMIT_S)
    with pytest.raises(UserError, match="The agent on gpu1 sent what no agent sends, so the link was closed: "):
        connection.host.leases.take(["cpu"], 1)


def test_a_last_line_that_the_agent_was_killed_in_is_skipped(agent: Agent, connection: Connection) -> None:
    agent.say(INVENTORY)
    connection.host.inventory()
    agent.say_line(b'{"type":"sample","t_ns":12')
    agent.cut()
    with pytest.raises(UserError, match="It ended"):
        connection.host.leases.take(["cpu"], 1)


def test_an_agent_of_another_version_is_refused() -> None:
    other = Agent(msgspec.structs.replace(HELLO, protocol=99))
    with pytest.raises(UserError, match=f"The agent on gpu1 speaks protocol 99, this program {AGENT_PROTOCOL}"):
        serve(other, other.lines(), name="gpu1", kind="ssh")


class AtMessage(logging.Handler):
    """Does something once, on the thread that logs a message which contains a text."""

    def __init__(self, text: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._text, self._act = text, act
        self.has_acted = threading.Event()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take no lock: the other thread's messages would wait for this one."""
        if self._text in record.getMessage() and not self.has_acted.is_set():
            self.has_acted.set()
            self._act()
        return True


@pytest.fixture
def at_message() -> Iterator[Callable[[str, Callable[[], object]], AtMessage]]:
    logger = logging.getLogger("variantscope.link")
    level, handlers = logger.level, []
    logger.setLevel(logging.INFO)

    def add(text: str, act: Callable[[], object]) -> AtMessage:
        handlers.append(AtMessage(text, act))
        logger.addHandler(handlers[-1])
        return handlers[-1]

    yield add
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_link_that_is_closed_while_its_hello_is_taken_ends(
    agent: Agent, at_message: Callable[[str, Callable[[], object]], AtMessage]
) -> None:
    link = Link(agent, "gpu1")
    closing = threading.Thread(target=link.close)

    def close() -> None:
        closing.start()
        assert agent.is_cut.wait(LIMIT_S)

    at_message("says hello", close)
    assert link.start(agent.lines()) == HELLO
    closing.join(LIMIT_S)
    assert not closing.is_alive()
    assert link.status().lost == "The link to gpu1 was closed."


def test_a_hello_that_comes_while_the_link_is_given_up_is_too_late(
    at_message: Callable[[str, Callable[[], object]], AtMessage],
) -> None:
    agent = Agent(None)
    link = Link(agent, "gpu1", limits=LinkLimits(ping_s=0.01, warn_s=0.02, lost_s=0.05))

    def greet() -> None:
        agent.say(HELLO)
        agent.pinged.wait(LIMIT_S)

    lost = at_message("was lost: nothing has come", greet)
    with contextlib.suppress(LinkLostError):  # or the hello, which was first
        link.start(agent.lines())
    assert lost.has_acted.is_set()
    assert agent.is_cut.wait(LIMIT_S)
    link.close()


def test_one_that_ends_says_why(agent: Agent, connection: Connection) -> None:
    agent.cut()
    with pytest.raises(TelemetryError, match="It ended"):
        connection.host.inventory()


def test_leases_are_taken_and_given_back_there(agent: Agent, connection: Connection) -> None:
    agent.answers[TakeLease] = lambda order: Leased(number=order.number, devices=order.devices[: order.count])
    lease = connection.host.leases.take(["cpu", "other"], 1)
    taken = agent.order(TakeLease)
    assert lease is not None
    assert lease.devices == ("cpu",)
    lease.release()
    assert agent.order(ReleaseLease).lease == taken.number


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("user error", UserError),
        ("os error", OSError),
        ("job error", JobError),
        ("cancelled", TimeoutError),
        ("bug", RuntimeError),
    ],
)
def test_a_refusal_is_the_error_that_it_would_be_here(
    kind: Any, error: type[Exception], agent: Agent, connection: Connection
) -> None:
    agent.answers[TakeLease] = lambda order: Refused(number=order.number, kind=kind, reason="It cannot.")
    with pytest.raises(error, match="It cannot"):
        connection.host.leases.take(["cpu"], 1)


class MadeThere:
    """A run that the agent of a test makes, on a thread of its own, and its events as they come."""

    def __init__(
        self, agent: Agent, connection: Connection, emit: Callable[[RunEvent], object] = lambda _: None
    ) -> None:
        self.events: queue.SimpleQueue[RunEvent] = queue.SimpleQueue()
        self._agent = agent
        self._emit = emit
        agent.answers[TakeLease] = lambda order: Leased(number=order.number, devices=order.devices[: order.count])
        agent.answers[DescribeHost] = lambda order: HostDescribed(number=order.number, environment={})
        agent.say(INVENTORY)
        self.maker = RunMaker(START, connection.host, self._take, uid="1234")
        self.thread = threading.Thread(target=self.maker.run, daemon=True)
        self.thread.start()
        self.number = agent.order(StartRun).number

    def _take(self, event: RunEvent) -> None:
        self.events.put(event)
        self._emit(event)

    def say(self, *events: msgspec.Struct) -> None:
        for event in events:
            self._agent.say(RunSaid(run=self.number, event=msgspec.Raw(encode(event).rstrip())))

    def wait(self, kind: type[Any]) -> Any:
        """The next event of a kind; what comes before is passed over."""
        while not isinstance(event := self.events.get(timeout=LIMIT_S), kind):
            pass
        return event

    def outcome(self) -> Outcome:
        ended: RunEnded = self.wait(RunEnded)
        self.thread.join(LIMIT_S)
        return ended.outcome


COMPLETED = RunEnded(t_ns=9, outcome=Outcome(name="completed"))


def test_a_run_s_events_come_in_order_and_the_agent_hears_what_was_taken(agent: Agent, connection: Connection) -> None:
    run = MadeThere(agent, connection)
    assert run.wait(RunStarted).uid == "1234"
    run.say(LogLine(1, "a line"))
    assert run.wait(LogLine) == LogLine(1, "a line")
    assert agent.order(Took) == Took(run=run.number, events=1)
    run.say(COMPLETED)
    assert run.outcome() == COMPLETED.outcome


@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        (RunStarted(spec=START.spec, t_ns=1, utc_ns=1, devices=()), "a begin, and it has begun"),
        (Flops(per_step=1), "`flops` came before any phase"),
        (Finished(outcome="completed", t_ns=1), "not an event of a run"),
    ],
)
def test_an_event_that_no_run_has_ends_the_run(
    event: msgspec.Struct, wrong: str, agent: Agent, connection: Connection
) -> None:
    run = MadeThere(agent, connection)
    run.say(event)
    outcome = run.outcome()
    assert (outcome.name, agent.order(StopRun).run) == ("failed", run.number)
    assert (outcome.reason or "").startswith(f"What the agent on gpu1 says of the run is {wrong}")


def test_the_agent_hears_at_the_end_of_what_came_at_once_and_after_fifty_events(
    agent: Agent, connection: Connection
) -> None:
    may_go_on = threading.Event()
    run = MadeThere(agent, connection, lambda event: may_go_on.wait(LIMIT_S) if isinstance(event, LogLine) else None)
    run.say(*(LogLine(1, "a line") for _ in range(_TAKEN_AT_ONCE + 2)))
    run.wait(LogLine)
    heard(agent, connection, INVENTORY, 1)
    may_go_on.set()
    assert [agent.order(Took).events for _ in range(2)] == [_TAKEN_AT_ONCE, 2]
    run.say(COMPLETED)
    run.outcome()


def test_a_run_that_cannot_be_stored_is_ended_with_the_reason(agent: Agent, connection: Connection) -> None:
    def emit(event: RunEvent) -> None:
        if isinstance(event, LogLine):
            raise UserError("The disk is full.")

    run = MadeThere(agent, connection, emit)
    run.say(LogLine(1, "a line"), LogLine(2, "another"))
    assert agent.order(StopRun) == StopRun(run=run.number, reason="The disk is full.")
    run.say(RunEnded(t_ns=9, outcome=Outcome(name="failed", reason="The disk is full.")))
    assert run.outcome().reason == "The disk is full."
    assert not any(isinstance(order, StopRun) for order in iter_now(agent.orders)), "it hears it once"


def iter_now(orders: "queue.SimpleQueue[Order]") -> Iterator[Order]:
    with contextlib.suppress(queue.Empty):
        while True:
            yield orders.get_nowait()


def test_a_run_that_is_stopped_before_it_is_ordered_is_stopped_after_that(agent: Agent, connection: Connection) -> None:
    files, events = ScratchFiles(connection.link), list[RunEvent]()
    run = RemoteRun(connection.link, files, START, connection.host, events.append, WorkerTimeouts())
    run.stop("The disk is full.")
    agent.answers[StopRun] = lambda order: RunSaid(run=order.run, event=msgspec.Raw(encode(COMPLETED).rstrip()))
    run.run()
    assert agent.order(StartRun)
    assert agent.order(StopRun).reason == "The disk is full."
    assert events == [COMPLETED]


@pytest.mark.parametrize(("stop_s", "is_left"), [(0.0, True), (LIMIT_S, False)])
def test_a_run_that_its_agent_does_not_end_is_left(
    stop_s: float, is_left: bool, agent: Agent, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hosts.connection._STOP_S", stop_s)
    run = MadeThere(agent, connection)
    run.maker.stop()
    agent.order(StopRun)
    run.say(LogLine(1, "a line"), COMPLETED)
    assert (run.outcome().name == "crashed") == is_left


def test_a_run_of_which_nothing_comes_is_given_up(agent: Agent, connection: Connection) -> None:
    timeouts = WorkerTimeouts(hello_s=0.01, message_gap_s=0.01)
    events: list[RunEvent] = []
    host = connection.host
    RemoteRun(connection.link, ScratchFiles(connection.link), START, host, events.append, timeouts).run()
    assert isinstance(ended := events[-1], RunEnded)
    assert ended.outcome.reason == "The agent on gpu1 says nothing of the run any more."
    assert agent.order(StopRun)


def test_a_check_that_no_inventory_comes_for_closes_its_connection(
    agent: Agent, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hosts.check.open_entry", lambda *_, **__: connection)
    for name, limit_s in {"check.CHECK_S": 0.1, "check._END_S": 0.0, "connection._END_S": 0.0}.items():
        monkeypatch.setattr(f"app.hosts.{name}", limit_s)
    (result,) = check_hosts([HostEntry(name="gpu1", address="ssh://gpu1")])
    assert result.problem
    assert agent.is_cut.wait(LIMIT_S)


def test_a_link_that_ends_ends_its_runs_with_the_reason(agent: Agent, connection: Connection) -> None:
    run = MadeThere(agent, connection)
    agent.cut()
    assert run.outcome() == Outcome(name="crashed", reason="It ended.")


def test_a_job_answers_with_its_result_alone(agent: Agent, connection: Connection) -> None:
    rate = Calibration(device="GPU-a", precision="float32", size=64, flops_per_s=1e9)
    agent.answers[StartJob] = lambda order: JobDone(number=order.number, result=rate)
    assert connection.host.run_job(Calibrate(precision="float32"), Calibration) == rate
    with pytest.raises(JobCrashedError, match="something else"):
        connection.host.run_job(Calibrate(precision="float32"), OutputDifference)


def test_a_job_that_is_overdue_is_cancelled(agent: Agent, connection: Connection) -> None:
    agent.answers[CancelJob] = lambda order: Refused(number=order.job, kind="cancelled", reason="It took too long.")
    late = threading.Timer(LIMIT_S / 2, agent.cut)
    late.start()
    with pytest.raises(TimeoutError):
        connection.host.run_job(Calibrate(precision="float32"), Calibration, lambda: True)
    late.cancel()
    assert agent.order(StartJob).number == agent.order(CancelJob).job


def test_a_file_comes_in_pieces(agent: Agent, connection: Connection, tmp_path: Path) -> None:
    content = b"seven B"
    agent.answers[ReadFile] = lambda order: FilePart(
        number=order.number,
        data=content[order.offset : order.offset + 3] if order.name == "1.npz" else b"",
        size=len(content),
    )
    files = ScratchFiles(connection.link)
    files.fetch("1.npz", tmp_path / "weights.npz")
    assert (tmp_path / "weights.npz").read_bytes() == content
    with pytest.raises(UserError, match=r"gpu1 sent weights\.npz incompletely"):
        files.fetch("2.npz", tmp_path / "weights.npz")
    assert (tmp_path / "weights.npz").read_bytes() == content


def test_telemetry_is_started_with_the_rate_and_changes_it(agent: Agent, connection: Connection) -> None:
    assert agent.order(StartTelemetry).hz == 20.0
    connection.host.telemetry.read_energy()
    connection.host.telemetry.set_rate(5.0)
    assert agent.orders.get(timeout=LIMIT_S) == ChangeRate(5.0)


def test_events_are_what_the_agent_said() -> None:
    """As the agent passes them on: no byte is another one."""
    said = RunSaid(run=1, event=msgspec.Raw(encode(COMPLETED).rstrip()))
    assert bytes(msgspec.json.decode(msgspec.json.encode(said), type=RunSaid).event) == encode(COMPLETED).rstrip()


class Looks:
    """The clock of a link, and the event that its watch waits on: each wait takes as long as the test says."""

    def __init__(self, steps_s: Iterable[float], at_look: Callable[[], None]) -> None:
        self._steps_s = iter(steps_s)
        self._now_s = 1000.0
        self._at_look = at_look

    def monotonic(self) -> float:
        return self._now_s

    def monotonic_ns(self) -> int:
        return round(self._now_s * 1e9)

    def wait(self, _timeout_s: float) -> bool:
        step_s = next(self._steps_s, None)
        if step_s is None:
            return True
        self._now_s += step_s
        self._at_look()
        return False

    def set(self) -> None:
        self._steps_s = iter(())


def link_after(
    monkeypatch: pytest.MonkeyPatch, steps_s: Iterable[float], *, hears: bool = False
) -> tuple[Link, list[RunReport]]:
    """Return a link after looks that came so long after one another, and the list that its run's reports go to."""
    reports: list[RunReport] = []
    link = Link(Agent(None), "gpu1", limits=LinkLimits(ping_s=1.0, warn_s=5.0, lost_s=15.0))
    looks = Looks(steps_s, link._hear if hears else lambda: None)
    monkeypatch.setattr("app.hosts.link.time", looks)
    monkeypatch.setattr(link, "_over", looks)
    link._hear()
    link._hello.set_result(HELLO)
    link.routes.listen_run(1, reports.append)
    link._watch()
    return link, reports


def reports_silent_host(report: RunReport) -> bool:
    return isinstance(report, LinkSilent) and bool(report.reason)


@pytest.mark.parametrize(
    ("steps_s", "is_lost", "is_reported"),
    [
        ([1.0] * 4, False, False),
        ([1.0] * 5, False, True),
        ([1.0] * 14, False, True),
        ([1.0] * 15, True, True),
        ([3.0] * 4, False, True),  # 2 s late each: a busy machine, and silence
        ([3.0] * 5, True, True),
        ([3.5, *[1.0] * 3], False, False),  # 2.5 s late: it stood still, and the silence is 4 s
        ([3600.0], False, False),
        ([3600.0, *[1.0] * 13], False, True),
        ([3600.0, *[1.0] * 14], True, True),
    ],
)
def test_a_silent_host_is_given_up_and_a_suspended_program_gives_none_up(
    monkeypatch: pytest.MonkeyPatch, steps_s: list[float], is_lost: bool, is_reported: bool
) -> None:
    link, reports = link_after(monkeypatch, steps_s)
    assert (link.status().lost is not None) == is_lost
    assert any(map(reports_silent_host, reports)) == is_reported


@pytest.mark.parametrize(("looks", "is_lost"), [(60, False), (61, True)])
def test_an_agent_that_answers_no_ping_is_given_up_after_four_silences(
    monkeypatch: pytest.MonkeyPatch, looks: int, is_lost: bool
) -> None:
    link, _ = link_after(monkeypatch, [1.0] * looks, hears=True)
    assert (link.status().lost or "").startswith("The agent on gpu1 hangs") == is_lost


def test_runs_hear_that_a_silent_host_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    link, reports = link_after(monkeypatch, [1.0] * 6)
    link._read(iter([msgspec.json.encode(Pong(number=99, t_ns=1, utc_ns=1)) + b"\n"]))
    assert reports_silent_host(reports[0])
    assert reports[1] == LinkSilent("")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"pong","number":1,"t_ns":1180591620717411303424,"utc_ns":1}',
        b'{"type":"sample","t_ns":-1,"device":"host"}',
        b'{"type":"telemetry_ended","reason":"%s"}' % (b"x" * 20_001),
        b'{"type":"progressed","number":1,"text":"%s"}' % (b"x" * 20_001),
        b'{"type":"host_described","number":1,"environment":{"a":"%s"}}' % (b"x" * 20_001),
        b'{"type":"file_part","number":1,"size":-5}',
    ],
)
def test_a_value_that_no_agent_has_ends_the_link(line: bytes, agent: Agent, connection: Connection) -> None:
    agent.say_line(line + b"\n")
    assert agent.is_cut.wait(LIMIT_S)
    with pytest.raises(UserError, match="sent what no agent sends"):
        connection.host.leases.take(["cpu"], 1)


def heard(agent: Agent, connection: Connection, report: Report | Inventory | Sample, times: int) -> None:
    """Have the agent say it so often, and wait until all of it is read; raises `LinkLostError` for too much."""
    for _ in range(times):
        agent.say(report)
    agent.answers[TakeLease] = lambda order: Leased(number=order.number, devices=None)
    connection.host.leases.take(["cpu"], 1)


def test_a_sampler_may_say_so_much_and_no_more(
    agent: Agent, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("app.hosts.connection.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    sampler = RemoteSampler(connection.link, HELLO, 20.0)
    sample = Sample(t_ns=1, device="host")
    heard(agent, connection, sample, _MOST_READINGS_AT_ONCE)
    now_s[0] += 0.125
    heard(agent, connection, sample, _MOST_READINGS_PER_S // 8)
    assert sampler._reports.qsize() == _MOST_READINGS_AT_ONCE + _MOST_READINGS_PER_S // 8
    with pytest.raises(LinkLostError, match="readings a second, so the link was closed"):
        heard(agent, connection, sample, 1)
    assert agent.is_cut.wait(LIMIT_S)


def test_a_run_may_say_so_much_and_no_more(agent: Agent, connection: Connection) -> None:
    """As much as an agent lets it say, and as much again."""
    may_go_on = threading.Event()
    run = MadeThere(agent, connection, lambda event: may_go_on.wait(LIMIT_S) if isinstance(event, LogLine) else None)
    line = RunSaid(run=run.number, event=msgspec.Raw(encode(LogLine(1, "a line")).rstrip()))
    heard(agent, connection, line, 1)
    run.wait(LogLine)
    heard(agent, connection, line, 2 * MOST_EVENTS)
    with pytest.raises(LinkLostError, match="more of a run than this program has taken"):
        heard(agent, connection, line, 1)
    may_go_on.set()
    assert run.outcome().name == "crashed"


def test_a_sampler_that_does_not_end_is_left(
    agent: Agent, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hosts.connection._END_S", 0.0)
    sampler = RemoteSampler(connection.link, HELLO, 20.0)
    sampler.end()
    assert list(sampler.messages()) == []
    with pytest.raises(TelemetryError, match="did not end"):
        sampler.exit_code()
