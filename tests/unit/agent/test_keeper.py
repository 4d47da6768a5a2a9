"""The keeper of a detached run: which orders it gives on what its agent says, and how its lines are played again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from app.agent import keeper as module
from app.agent.keeper import Keeper
from app.agent_protocol import (
    AgentHello,
    EndWorker,
    FilePart,
    HostDescribed,
    LaunchWorker,
    Leased,
    Order,
    OrderSampler,
    Ping,
    Pong,
    ReadFile,
    Report,
    SamplerEnded,
    StartSampler,
    StopSampler,
    TakeLease,
    Took,
    WorkerExited,
    WorkerLaunched,
    WorkerSaid,
)
from app.fields import SlowSample
from app.hosts.played import PlayedRun
from app.runs.launcher import Exited, WorkerEvent
from app.samples import HOST, Device, FieldInfo, Inventory
from app.spool_protocol import BEGUN, EXITED, WORKER, DetachRun, SpoolDrained, Spooled
from app.telemetry.messages import SamplerMessage
from workloads.catalog import Machine, complete
from workloads.machine import Gpu
from workloads.protocol import PROTOCOL_VERSION, Finished, PhaseStarted, Start, encode

MACHINE = Machine(
    gpus=(Gpu(index=0, uuid="GPU-a", name="H200", compute_capability=(9, 0)),), cpu_count=2, platform="linux"
)
INVENTORY = Inventory(
    machine=MACHINE,
    devices=(
        Device(device="GPU-a", kind="gpu", index=0, name="H200", fields={"energy_mj": FieldInfo(unit="mJ")}),
        Device(device=HOST, kind="host", index=-1, name="CPU"),
    ),
)
HELLO = AgentHello(
    protocol=1, pid=1, t_ns=1, utc_ns=1, hostname="n", host_id="h", boot_id="b", python="3.11", scratch="/tmp/x"
)
RUN = DetachRun(
    uid="0123456789abcdef",
    start=Start(protocol=PROTOCOL_VERSION, spec=complete("dummy", {"gpus": 1}, MACHINE), weights_path="weights.npz"),
    devices=("GPU-a",),
    count=1,
    hz=20.0,
    environment={"git_commit": "c"},
    utc_ns=1_000,
    version="0",
    hello_s=60.0,
    message_gap_s=60.0,
)


class FakeRun:
    """A keeper without processes: its orders, and the lines that it stored."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.lines: list[bytes] = []
        self.keeper = Keeper(RUN, self.orders.append, self.lines.append)

    def hear(self, *said: Report | SamplerMessage) -> list[Order]:
        """Return what it orders when these are said."""
        before = len(self.orders)
        for each in said:
            self.keeper.take(encode(each))
        return self.orders[before:]


def said(message: msgspec.Struct) -> WorkerSaid:
    return WorkerSaid(worker=WORKER, message=msgspec.Raw(encode(message).rstrip()))


def begun() -> FakeRun:
    """A keeper whose run has its worker."""
    run = FakeRun()
    run.hear(HELLO, HostDescribed(number=2, environment={}), INVENTORY)
    run.hear(Leased(number=3, devices=("GPU-a",)), Pong(number=BEGUN, t_ns=5, utc_ns=5))
    run.hear(WorkerLaunched(worker=WORKER, pid=77))
    return run


def samples(orders: Sequence[Order]) -> list[str]:
    return [bytes(order.command).decode() for order in orders if isinstance(order, OrderSampler)]


def test_a_run_begins_once_host_devices_and_lease_are_known() -> None:
    run = FakeRun()
    assert [type(order) for order in run.hear(HELLO)][:2] == [Ping, StartSampler]
    assert run.hear(HostDescribed(number=2, environment={})) == []
    (lease,) = run.hear(INVENTORY)
    assert isinstance(lease, TakeLease)
    assert (lease.devices, lease.count) == (("GPU-a",), 1)
    stored = len(run.lines)
    assert run.hear(Leased(number=3, devices=None)) == []
    assert len(run.lines) == stored, "a try that failed is no line"
    mark, energy, launch = run.hear(Leased(number=4, devices=("GPU-a",)))
    assert mark == Ping(BEGUN)
    assert samples([energy]) == ['{"type":"read_energy"}']
    assert isinstance(launch, LaunchWorker)
    assert launch.start.gpu_uuids == ("GPU-a",)


def test_the_energy_counters_are_read_where_a_phase_begins_and_after_the_last() -> None:
    run = begun()
    orders = run.hear(said(PhaseStarted(phase="import", t_ns=9)))
    assert orders == [Took(worker=WORKER, events=1), OrderSampler(msgspec.Raw(b'{"type":"read_energy"}'))]
    assert samples(run.hear(WorkerExited(worker=WORKER, exit_code=0))) == ['{"type":"read_energy"}']
    run.hear(Pong(number=EXITED, t_ns=20, utc_ns=20), SlowSample(t_ns=19, device="GPU-a", energy_mj=1))
    run.keeper.meet_due()
    assert not run.keeper.is_over, "the last reading is to come"
    run.hear(SlowSample(t_ns=21, device="GPU-a", energy_mj=2))
    run.keeper.meet_due()
    assert run.keeper.is_over


def test_saved_weights_become_lines_before_the_agent_ends() -> None:
    run = begun()
    (_, read) = run.hear(said(Finished(outcome="completed", t_ns=10)))
    assert isinstance(read, ReadFile)
    run.hear(WorkerExited(worker=WORKER, exit_code=0), Pong(number=EXITED, t_ns=20, utc_ns=20))
    run.hear(SlowSample(t_ns=21, device="GPU-a", energy_mj=2))
    run.keeper.meet_due()
    assert not run.keeper.is_over
    (more,) = run.hear(FilePart(number=read.number, data=b"ab", size=3))
    assert isinstance(more, ReadFile)
    assert more.offset == 2
    assert run.hear(FilePart(number=more.number, data=b"c", size=3)) == []
    run.keeper.meet_due()
    assert run.keeper.is_over


def test_a_worker_that_says_nothing_is_ended_and_why_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("app.agent.keeper.time.monotonic", lambda: now_s)
    run = begun()
    now_s = 61.0
    run.keeper.meet_due()
    assert EndWorker(worker=WORKER, method="terminate") in run.orders
    assert "sent nothing for 60\xa0s".encode() in run.lines[-1]


def test_a_sampler_that_ended_is_started_again_and_a_full_spool_gets_no_telemetry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr("app.agent.keeper.time.monotonic", lambda: now_s)
    run = begun()
    run.hear(SamplerEnded(-9))
    assert b"telemetry_gap" in run.lines[-1]
    now_s = 0.6
    before = len(run.orders)
    run.keeper.meet_due()
    assert run.orders[before] == StartSampler(20.0)
    assert samples(run.orders[before:]) == ['{"type":"follow","pid":77}']
    monkeypatch.setattr(module, "MOST_SPOOL_BYTES", 10)
    now_s = 2.0
    run.keeper.meet_due()
    assert run.orders[-1] == StopSampler()
    assert b"is full" in run.lines[-1]


def play(lines: Sequence[bytes], weights: Path) -> tuple[PlayedRun, list[WorkerEvent]]:
    """Play lines as a session does; return the played run and the worker's events."""
    spooled = Spooled(run=RUN, protocol=1, hostname="n", host_id="h", boot_id="b", t_ns=0)

    def each() -> Iterator[bytes]:
        yield from lines

    played = PlayedRun(spooled, each(), lambda _: None, name="gpu1", kind="ssh")
    played.start()
    assert played.wait_begun(60.0)
    events: list[WorkerEvent] = []
    start = msgspec.structs.replace(RUN.start, weights_path=str(weights))
    played.host.telemetry.follow(played.host.launcher.launch(start, events.append).pid)
    played.finish()
    return played, events


def test_what_was_kept_is_played_with_its_times_environment_and_weights(tmp_path: Path) -> None:
    run = begun()
    run.hear(said(PhaseStarted(phase="import", t_ns=9)), said(Finished(outcome="completed", t_ns=10)))
    run.hear(FilePart(number=9, data=b"abc", size=3), WorkerExited(worker=WORKER, exit_code=0))
    run.hear(Pong(number=EXITED, t_ns=20, utc_ns=20), SlowSample(t_ns=21, device="GPU-a", energy_mj=2))
    played, events = play([*run.lines, encode(SpoolDrained("b"))], tmp_path / "w.npz")
    assert events == [PhaseStarted(phase="import", t_ns=9), Finished(outcome="completed", t_ns=10), Exited(0)]
    assert (tmp_path / "w.npz").read_bytes() == b"abc"
    assert played.is_whole
    assert played.host.now().t_ns == 20, "the clock stands still at the worker's end"
    environment = played.host.environment()
    assert environment.items() >= {"host": "gpu1", "carrier": "ssh", "git_commit": "c", "boot_id": "b"}.items()


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (SpoolDrained("another"), "gpu1 was started again while the run went on there, which ended it."),
        (SpoolDrained("b"), "The program that kept the run on gpu1 was killed there, and so the run ended."),
    ],
)
def test_lines_that_end_before_the_run_say_why(last: SpoolDrained, reason: str, tmp_path: Path) -> None:
    played, events = play([*begun().lines, encode(last)], tmp_path / "w.npz")
    assert events == [Exited(None, reason)]
    assert played.is_whole


def test_lines_of_another_version_say_which_version_reads_them(tmp_path: Path) -> None:
    played, _ = play([*begun().lines, b'{"type":"of the future"}\n'], tmp_path / "w.npz")
    assert "detached by version 0" in played.problem
    assert not played.is_whole
