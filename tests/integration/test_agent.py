"""A real agent over its pipes: what it answers, that what it started ends with it, and what it does with nonsense."""

import fcntl
import itertools
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.agent.serve import read_orders
from app.agent_protocol import (
    MOST_EVENTS,
    AgentHello,
    CancelJob,
    ChangeRate,
    DescribeHost,
    FilePart,
    HostDescribed,
    KeepStandby,
    Leased,
    Order,
    Ping,
    Pong,
    ReadFile,
    Refused,
    ReleaseLease,
    RemoveFile,
    Report,
    RunSaid,
    StartJob,
    StartRun,
    StartTelemetry,
    StopRun,
    StopTelemetry,
    TakeLease,
    TelemetryEnded,
    Took,
    WriteFile,
)
from app.events import RunEnded, RunEvent
from app.fields import Sample
from app.paths import ROOT
from app.recording import decode_event
from app.samples import Inventory, LogLine
from app.telemetry.messages import SamplerMessage
from tests.conftest import LEAVING_S
from tests.fakes import sessions
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.processes import has_ended
from workloads.catalog import Machine
from workloads.job_protocol import ExportModel, TryWeights
from workloads.protocol import PROTOCOL_VERSION, Block, ProtocolError, RunSpec, Start, Value

LIMIT_S = 120.0
MARK = "VARIANTSCOPE_TEST_AGENT"
"""A variable that all descendants of an agent have, whatever they become."""
Kind = TypeVar("Kind", bound=msgspec.Struct)
HOST_ONLY = Inventory(machine=Machine(cpu_count=2), devices=())
_marks = itertools.count()


class AgentProcess:
    """An agent that was started as a carrier does, and the lines it says."""

    def __init__(self, process: "subprocess.Popen[bytes]", mark: str) -> None:
        self.process = process
        self.mark = mark
        self.said: queue.SimpleQueue[msgspec.Struct | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._may_read = threading.Lock()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.hello = self.wait(AgentHello)

    def number(self) -> int:
        return next(self._numbers)

    def send(self, *orders: Order) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(msgspec.json.encode(order) + b"\n" for order in orders))
        self.process.stdin.flush()

    def wait(self, kind: type[Kind], that: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """The next message of a kind; what else is said before is passed over."""
        end_s = time.monotonic() + LIMIT_S
        while (said := self.said.get(timeout=max(0.0, end_s - time.monotonic()))) is not None:
            if isinstance(said, kind) and that(said):
                return said
        raise AssertionError(f"the agent ended without {kind.__name__}")

    def rest(self) -> list[msgspec.Struct]:
        """What it says until its stdout closes."""
        return list(iter(lambda: self.said.get(timeout=LIMIT_S), None))

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Read at most one more line in the body; what a pipe holds is little."""
        assert self.process.stdout is not None
        fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        with self._may_read:
            yield

    def descendants(self) -> set[int]:
        """The processes that carry its mark."""
        found = set()
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process.pid)
            except psutil.Error:
                pass
        return found

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        with self._may_read:
            return line

    def _read(self) -> None:
        decoder: msgspec.json.Decoder[Report | SamplerMessage] = msgspec.json.Decoder(Report | SamplerMessage)
        assert self.process.stdout is not None
        while line := self._line():
            if line.endswith(b"\n"):
                self.said.put(decoder.decode(line))
        self.said.put(None)


@contextmanager
def command(folder: Path, mark: str = "") -> "Iterator[subprocess.Popen[bytes]]":
    """An agent as a carrier starts it, with files of its own in this folder."""
    with subprocess.Popen(
        [sys.executable, "-m", "app.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **environment(Driver(cards=tuple(TWO_H200))), MARK: mark, "TMPDIR": str(folder)},
        start_new_session=True,
    ) as process:
        yield process


@contextmanager
def agent_process(folder: Path) -> Iterator[AgentProcess]:
    """An agent that has said hello, whose lines are read; it ends with the body, if it has not before."""
    mark = f"{os.getpid()}-{next(_marks)}"
    with command(folder, mark) as process:
        agent = AgentProcess(process, mark)
        try:
            yield agent
        finally:
            agent.close_stdin()
            agent.reader.join(LIMIT_S)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One that several tests talk to; its sampler goes on."""
    with agent_process(tmp_path_factory.mktemp("agent")) as started:
        started.send(StartTelemetry(20.0), StopTelemetry())
        started.wait(TelemetryEnded)
        yield started


@pytest.fixture
def fresh_agent(tmp_path: Path) -> Iterator[AgentProcess]:
    """One for a test far from the others: in the time between, `agent` may take the program for lost."""
    with agent_process(tmp_path) as started:
        yield started


def dummy(**given: Value) -> RunSpec:
    return sessions.dummy(HOST_ONLY, "train", **given)


def start_run(number: int, spec: RunSpec | None = None, weights: str | None = None) -> StartRun:
    start = Start(protocol=PROTOCOL_VERSION, spec=spec or dummy(), weights_path=weights)
    return StartRun(number=number, start=start, hello_s=LIMIT_S, message_gap_s=LIMIT_S)


Event = TypeVar("Event", bound=RunEvent)


def wait_event(
    agent: AgentProcess, run: int, kind: type[Event], that: Callable[[Event], bool] = lambda _: True
) -> Event:
    """The next event of a kind that a run has; each is taken."""
    while True:
        said = agent.wait(RunSaid, lambda said: said.run == run)
        agent.send(Took(run=run, events=1))
        event = decode_event(bytes(said.event))
        if isinstance(event, kind) and that(event):
            return event


def test_it_samples_the_gpus_while_a_run_is_made(agent: AgentProcess) -> None:
    run, gpu = agent.number(), TWO_H200[0].uuid
    agent.send(StartTelemetry(20.0))
    assert [gpu.uuid for gpu in agent.wait(Inventory).machine.gpus] == [card.uuid for card in TWO_H200]
    order = start_run(run, dummy(steps=0, seconds=600.0))
    agent.send(msgspec.structs.replace(order, start=msgspec.structs.replace(order.start, gpu_uuids=(gpu,))))
    agent.wait(Sample, lambda sample: sample.device == gpu)
    wait_event(agent, run, Sample, lambda sample: sample.device == gpu)
    wait_event(agent, run, Block)
    agent.send(ChangeRate(10.0), StopTelemetry())
    assert agent.wait(TelemetryEnded) == TelemetryEnded()
    wait_event(agent, run, Sample, lambda sample: sample.device == gpu)
    agent.send(StopRun(run=run))
    assert wait_event(agent, run, RunEnded).outcome.name == "stopped"


def test_a_run_is_ended_also_before_it_is_launched(agent: AgentProcess) -> None:
    early, late = agent.number(), agent.number()
    agent.send(start_run(early, dummy(steps=600_000)), StopRun(run=early))
    assert wait_event(agent, early, RunEnded).outcome.name == "stopped"
    agent.send(start_run(late, dummy(steps=600_000)))
    wait_event(agent, late, Block)
    agent.send(StopRun(run=late, reason="The disk is full."))
    outcome = wait_event(agent, late, RunEnded).outcome
    assert (outcome.name, outcome.reason) == ("failed", "The disk is full.")
    agent.send(StopRun(run=late), Took(run=late, events=1), Ping(7))
    assert agent.wait(Pong).number == 7


def test_devices_are_leased_once(agent: AgentProcess) -> None:
    first, second, third = (agent.number() for _ in range(3))
    agent.send(TakeLease(number=first, devices=("GPU-a", "GPU-b"), count=2))
    agent.send(TakeLease(number=second, devices=("GPU-b",), count=1))
    assert agent.wait(Leased) == Leased(number=first, devices=("GPU-a", "GPU-b"))
    assert agent.wait(Leased) == Leased(number=second, devices=None)
    agent.send(ReleaseLease(first), TakeLease(number=third, devices=("GPU-b",), count=1), ReleaseLease(third))
    assert agent.wait(Leased).devices == ("GPU-b",)


def test_files_come_and_go_in_pieces(agent: AgentProcess) -> None:
    content = bytes(range(256)) * 2000
    half = len(content) // 2
    agent.send(WriteFile(number=1, name="model/weights.npz", offset=0, data=content[:half]))
    agent.send(WriteFile(number=2, name="model/weights.npz", offset=half, data=content[half:]))
    assert [agent.wait(FilePart).size for _ in range(2)] == [half, len(content)]
    got = b""
    while len(got) < len(content):
        agent.send(ReadFile(number=4, name="model/weights.npz", offset=len(got)))
        part = agent.wait(FilePart, lambda part: part.number == 4)
        assert (part.size, part.data == b"") == (len(content), False)
        got += part.data
    assert got == content
    agent.send(RemoveFile(number=5, name="model/weights.npz"), ReadFile(number=6, name="model/weights.npz", offset=0))
    assert agent.wait(Refused) == Refused(
        number=6,
        kind="user error",
        reason="model/weights.npz in the agent's folder cannot be used on the host (No such file or directory).",
    )


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "", ".", "a/../../x", "link/passwd", "loop", "loop/x", "\0", "x" * 5000]
)
def test_a_name_that_leaves_the_folder_is_refused(agent: AgentProcess, name: str) -> None:
    link = Path(agent.hello.scratch) / "link"
    if not link.is_symlink():
        link.symlink_to("/etc")
        link.with_name("loop").symlink_to("loop")
    job = TryWeights(weights_path=name, trained=dummy(), spec=dummy())
    agent.send(
        ReadFile(number=1, name=name, offset=0),
        WriteFile(number=2, name=name, offset=0, data=b"x"),
        RemoveFile(number=3, name=name),
        StartJob(number=4, request=job),
        start_run(5, weights=name),
    )
    refused = {agent.wait(Refused).number: "user error" for _ in range(5)}
    assert refused == dict.fromkeys(range(1, 6), "user error")


def test_a_job_says_why_it_fails_and_can_be_cancelled(agent: AgentProcess) -> None:
    failing, slow = agent.number(), agent.number()
    agent.send(StartJob(number=failing, request=TryWeights(weights_path="no.npz", trained=dummy(), spec=dummy())))
    refused = agent.wait(Refused)
    assert (refused.number, refused.kind) == (failing, "job error")
    assert f"{agent.hello.scratch}/no.npz" in refused.reason
    export = ExportModel(weights_path="no.npz", trained=dummy(), model_paths=("a.keras",))
    agent.send(StartJob(number=slow, request=export), CancelJob(slow))
    assert agent.wait(Refused).number == slow


def test_it_describes_its_host(agent: AgentProcess) -> None:
    agent.send(DescribeHost(number=1))
    described = agent.wait(HostDescribed).environment
    assert (described["host_id"], described["boot_id"]) == (agent.hello.host_id, agent.hello.boot_id)
    assert described["sources_sha256"]


def flooding(folder: Path, text: str) -> Path:
    """A Python that only prints numbers, and a text."""
    python = folder / "python"
    code = f"import sys; [print(n, {text!r}, file=sys.stderr) for n in range(3000)]"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    python.chmod(0o755)
    return python


def test_a_run_says_no_more_than_was_taken_and_a_ping_is_answered_meanwhile(
    agent: AgentProcess, tmp_path: Path
) -> None:
    run = agent.number()
    agent.send(start_run(run, dummy(interpreter=str(flooding(tmp_path, "")))))
    for _ in range(MOST_EVENTS):
        assert agent.wait(RunSaid).run == run
    agent.send(Ping(8))
    assert isinstance(pong := agent.said.get(timeout=LIMIT_S), Pong), pong
    agent.send(Took(run=run, events=MOST_EVENTS))
    assert wait_event(agent, run, RunEnded).outcome.name == "crashed"


def close_stdin(agent: AgentProcess) -> None:
    agent.close_stdin()


def kill_agent(agent: AgentProcess) -> None:
    os.kill(agent.hello.pid, signal.SIGKILL)


def kill_guard(agent: AgentProcess) -> None:
    os.killpg(agent.process.pid, signal.SIGKILL)


def starting_a_server(folder: Path) -> Path:
    """A Python that leaves its worker's group and its pipes, as a server does that a user's code starts."""
    python = folder / "python"
    python.write_text("#!/bin/sh\nsetsid sleep 600 >/dev/null 2>&1 </dev/null &\necho ready >&2\nexec sleep 600\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("end", [close_stdin, kill_agent, kill_guard])
def test_nothing_is_left_however_it_ends(tmp_path: Path, end: Callable[[AgentProcess], None]) -> None:
    python = starting_a_server(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with agent_process(scratch) as agent:
        agent.send(StartTelemetry(20.0), KeepStandby(True), WriteFile(number=1, name="a", offset=0, data=b"a"))
        agent.send(start_run(2, dummy(interpreter=str(python))))
        wait_event(agent, 2, LogLine, lambda line: line.text == "ready")
        agent.send(start_run(3, dummy(steps=600_000)))
        wait_event(agent, 3, Block)
        assert len(agent.descendants()) >= 6  # guard, agent, sampler, two workers, one's child
        assert list(scratch.iterdir())
        end(agent)
        agent.rest()
        # The end of its stdout says it: it closes as the last process ends.
        assert agent.descendants() <= {agent.process.pid, agent.hello.pid}
        assert has_ended(agent.hello.pid)
        assert not list(scratch.iterdir())
        assert agent.process.wait(LEAVING_S) is not None


def test_what_two_kills_at_once_leave_is_ended_by_the_next_agent(tmp_path: Path) -> None:
    with agent_process(tmp_path) as agent, agent_process(tmp_path) as other:
        agent.send(start_run(2, dummy(interpreter=str(starting_a_server(tmp_path)))))
        wait_event(agent, 2, LogLine, lambda line: line.text == "ready")
        os.kill(agent.process.pid, signal.SIGKILL)
        kill_agent(agent)
        assert has_ended(agent.hello.pid)
        code = "import sys; from pathlib import Path; from app.agent.guard import end_abandoned as end\n"
        end = f"end(Path({str(tmp_path)!r}), 'variantscope-agent', new_s=0.0)"
        subprocess.run([sys.executable, "-c", code + end], check=True, cwd=ROOT)
        assert agent.descendants() <= {agent.process.pid}
        assert [folder for folder in tmp_path.iterdir() if folder.is_dir()] == [Path(other.hello.scratch)]
        other.send(Ping(1))
        assert other.wait(Pong).number == 1


def test_a_pong_comes_before_what_a_run_said_earlier(tmp_path: Path) -> None:
    with agent_process(tmp_path) as agent:
        run = start_run(1, dummy(interpreter=str(flooding(tmp_path, "x" * 900))))
        with agent.standing_still():
            agent.send(run, Ping(3))
        assert any(isinstance(agent.said.get(timeout=LIMIT_S), Pong) for _ in range(300))


def test_it_ends_also_where_nobody_reads_what_it_says(tmp_path: Path) -> None:
    with agent_process(tmp_path) as agent, agent.standing_still():
        agent.send(*map(Ping, range(1000)))
        agent.close_stdin()
        assert agent.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"garbage\n", r"not an order \(JSON is malformed.*"),
        (b'{"type":"start_orchestra"}\n', r"not an order \(Invalid value 'start_orchestra'.*"),
        (b'{"type":"ping","number":-1}\n', r"not an order \(Expected `int` >= 0.*"),
        (b"\xff\n", r"not an order \(.*"),
        (b"\n", r"not an order \(.*"),
        (b'{"type":"ping","number":1}', ""),  # the program ended while it wrote
    ],
)
def test_what_is_no_order_is_named(orders: "tuple[Iterator[Order], int]", said: bytes, complaint: str) -> None:
    reader, program = orders
    os.write(program, said)
    os.close(program)
    with pytest.raises(ProtocolError, match=complaint) if complaint else nullcontext():
        assert list(reader) == []


def test_a_line_without_end_ends_the_agent_with_one_sentence(tmp_path: Path) -> None:
    with command(tmp_path) as process:
        _, said = process.communicate(b"[" * 5_000_000, LIMIT_S)
    assert process.returncode == 1
    assert re.fullmatch(r"The agent on \S+ ends: .* more than 4 MiB: b'\[+'\.\n", said.decode())
    assert not list(tmp_path.iterdir())


@pytest.fixture
def orders() -> "Iterator[tuple[Iterator[Order], int]]":
    """A reader of orders that is patient for 10 ms, and the file where the program writes them."""
    (stdin, program), (guard, guarded) = os.pipe(), os.pipe()
    yield read_orders(stdin, guard, lost_s=0.01), program
    for file in (stdin, guard, guarded):
        os.close(file)


def test_a_program_that_is_not_heard_is_lost(orders: "tuple[Iterator[Order], int]") -> None:
    reader, program = orders
    os.write(program, msgspec.json.encode(Ping(1)) + b"\n")
    assert next(reader) == Ping(1)
    with pytest.raises(TimeoutError):
        next(reader)
    os.close(program)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NUMBERS = st.integers(0, 2**62)
STRANGE: st.SearchStrategy[Order] = st.one_of(
    st.builds(StopRun, run=NUMBERS, reason=NAMES),
    st.builds(Took, run=NUMBERS, events=st.integers(-(2**62), 2**62)),
    st.builds(TakeLease, number=NUMBERS, devices=st.tuples(NAMES, NAMES), count=st.integers(-5, 5)),
    st.builds(ReleaseLease, NUMBERS),
    st.builds(CancelJob, NUMBERS),
    st.builds(ChangeRate, st.floats(0.1, 50.0)),
    st.builds(ReadFile, number=NUMBERS, name=NAMES, offset=NUMBERS),
    st.builds(WriteFile, number=NUMBERS, name=NAMES, offset=NUMBERS, data=st.binary(max_size=50)),
    st.builds(RemoveFile, number=NUMBERS, name=NAMES),
)


@given(st.lists(STRANGE, min_size=1, max_size=20))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_any_orders_a_ping_is_answered(fresh_agent: AgentProcess, orders: list[Order]) -> None:
    fresh_agent.send(*orders, Ping(1234))
    while not isinstance(said := fresh_agent.said.get(timeout=LIMIT_S), Pong):
        assert isinstance(said, Leased | FilePart | Refused), said
        assert not isinstance(said, Refused) or said.kind == "user error", said
