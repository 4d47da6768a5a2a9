"""Whole runs on another host: this machine through the real agent, sent and started as on any other."""

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from app.environment_keys import BOOT_ID_KEY, CARRIER_KEY, CLOCK_ERROR_KEY, CLOCK_OFFSET_KEY, HOST_ID_KEY, HOST_KEY
from app.errors import TelemetryError, UserError
from app.events import RunEnded, RunEvent, RunStarted
from app.fields import Sample
from app.hosts.connection import Connection
from app.hosts.link import LinkLimits
from app.hosts.remote_jobs import ScratchFiles
from app.paths import weights_path
from app.samples import DeviceLost, LogLine, Waiting
from app.storage.owner import boot_id
from tests.fakes.hosts import NAME, carrier_pid, connected, flooding_agent, processes_of, services_on, shifted_clock
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.sessions import GREETS, HELLO, LIMIT_S, dummy, going, is_measured, run_through, with_values
from workloads.catalog import DEFAULT_VARIABLE
from workloads.job_protocol import DescribeFile, FileDescription
from workloads.protocol import Block, Source

S = 1_000_000_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the agent is sent, once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def gpu1(cache: Path) -> Iterator[Connection]:
    """A host with two GPUs."""
    with connected(cache, environment=environment(Driver(cards=TWO_H200))) as connection:
        connection.host.telemetry.wait_inventory(LIMIT_S)
        yield connection


def test_a_run_there_is_stored_here_as_one_made_here(gpu1: Connection, tmp_path: Path) -> None:
    services = services_on(gpu1, tmp_path)
    inventory = gpu1.host.inventory()
    assert [gpu.uuid for gpu in inventory.machine.gpus] == [card.uuid for card in TWO_H200]
    outcome, recorder, stored = run_through(dummy(inventory, gpus=1, step_ms=10.0), services)
    assert outcome.name == "completed", outcome
    assert stored.environment[HOST_KEY] == NAME
    assert stored.environment[CARRIER_KEY] == "sh"
    assert stored.environment[HOST_ID_KEY] == gpu1.hello.host_id
    assert stored.environment[BOOT_ID_KEY] == stored.boot_id == boot_id()
    assert abs(int(stored.environment[CLOCK_OFFSET_KEY])) <= int(stored.environment[CLOCK_ERROR_KEY]), "it is one clock"
    assert {"cpu", "driver", "os", "program_version", "sources_sha256"} <= stored.environment.keys()
    assert {columns.device.device for columns in stored.samples} == {"host", TWO_H200[0].uuid}
    assert any(columns.t_ns.size for columns in stored.samples if columns.device.kind == "gpu")
    assert recorder.of(Block)
    leases = gpu1.host.leases
    lease = leases.take([TWO_H200[0].uuid], 1)
    assert lease is not None, "the run gave it back"
    assert leases.take([TWO_H200[0].uuid], 1) is None
    lease.release()


def test_it_can_be_stopped(gpu1: Connection, tmp_path: Path) -> None:
    with going(dummy(gpu1.host.inventory(), steps=0, seconds=600.0), services_on(gpu1, tmp_path)) as run:
        run.recorder.wait(Block, is_measured)
        run.session.stop()
        assert run.result().name == "stopped"


@pytest.fixture
def numerate(cache: Path) -> Iterator[Connection]:
    """A host whose workloads run by a Python with numpy; that which the agent finds may lack it."""
    with connected(cache, environment={DEFAULT_VARIABLE: sys.executable}) as connection:
        yield connection


def test_jobs_run_there_and_files_go_there_and_back(numerate: Connection, tmp_path: Path) -> None:
    text = "def small(batch_size: int = 8): '''A model.'''\n"
    source = Source(path="model.py", text=text)
    described = numerate.host.run_job(DescribeFile(source=source), FileDescription)
    assert [workload.name for workload in described.workloads] == ["small"]
    endless = Source(path="model.py", text="while True: pass\n")
    with pytest.raises(TimeoutError):
        numerate.host.run_job(DescribeFile(source=endless), FileDescription, lambda: True)
    files, big = ScratchFiles(numerate.link), tmp_path / "big.npz"
    big.write_bytes(os.urandom(600_000))
    name = files.send(big)
    files.fetch(name, tmp_path / "back.npz")
    assert (tmp_path / "back.npz").read_bytes() == big.read_bytes()
    assert files.send(big) == name, "what is there is not sent again"


def test_saved_weights_are_here_when_the_run_hears_that_it_completed(gpu1: Connection, tmp_path: Path) -> None:
    saver = tmp_path / "python-saver"
    saver.write_text(
        f"#!{sys.executable}\n{HELLO}start = decode_start(sys.stdin.buffer.readline())\n"
        f"{GREETS}begin('build'); measure()\n"
        "open(start.weights_path, 'wb').write(b'weights' * 50_000)\nend()\n"
    )
    saver.chmod(0o700)
    services = services_on(gpu1, tmp_path)
    existed: list[str] = []

    def look(event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            existed.extend(path.name for path in weights_path(services.database, "").parent.glob("*"))

    spec = with_values(dummy(gpu1.host.inventory(), interpreter=str(saver)), save_weights=True)
    outcome, _, stored = run_through(spec, services, SimpleNamespace(handle=look))
    weights = weights_path(services.database, stored.row.uid)
    assert (outcome.name, existed) == ("completed", [weights.name]), outcome
    assert weights.read_bytes() == b"weights" * 50_000


def test_a_clock_that_is_days_away_gives_the_same_run(cache: Path, tmp_path: Path) -> None:
    """Everything stored is of the host's clock; only the link knows how it lies to this machine's."""
    with connected(cache, environment=shifted_clock(tmp_path / "site", 5.0)) as connection:
        shift_ns = round(5 * 86_400e9)
        now = connection.host.now()
        assert connection.link.clock.offset().offset_ns == pytest.approx(shift_ns, abs=now.error_ns)
        outcome, recorder, stored = run_through(
            dummy(connection.host.inventory(), step_ms=10.0), services_on(connection, tmp_path)
        )
    assert outcome.name == "completed", outcome
    started, ended = recorder.of(RunStarted)[0], recorder.of(RunEnded)[0]
    first_ns, last_ns = started.t_ns - now.error_ns - S, ended.t_ns + now.error_ns + S
    assert started.t_ns > shift_ns
    assert stored.anchor_t_ns == started.t_ns
    times = [
        *(phase.start_ns for phase in stored.phases),
        *(phase.end_ns or 0 for phase in stored.phases),
        *stored.blocks.end_ns,
        *(line.t_ns for line in stored.log),
        *(t_ns for columns in stored.samples for t_ns in columns.t_ns),
    ]
    assert all(first_ns <= t_ns <= last_ns for t_ns in times)
    assert abs(ended.t_ns - started.t_ns - ((stored.row.ended_utc_ns or 0) - stored.row.started_utc_ns)) < S
    assert all((phase.end_ns or 0) >= phase.start_ns for phase in stored.phases)


def test_a_worker_that_floods_holds_up_neither_pings_nor_telemetry(gpu1: Connection, tmp_path: Path) -> None:
    """Its run takes nothing: what it says waits there, in its pipe; and the run is not taken for a suspended one."""
    talker = tmp_path / "python-talker"
    talker.write_text("#!/bin/sh\nexec yes 'a line of its log' >&2\n")
    talker.chmod(0o700)
    may_go_on, heard, samples = threading.Event(), threading.Event(), threading.Event()

    def block(event: RunEvent) -> None:
        if isinstance(event, LogLine) and not heard.is_set():
            heard.set()
            may_go_on.wait(LIMIT_S)

    spec = dummy(gpu1.host.inventory(), interpreter=str(talker))
    with going(spec, services_on(gpu1, tmp_path), SimpleNamespace(handle=block)) as run:
        assert heard.wait(LIMIT_S)
        unsubscribe = gpu1.host.telemetry.subscribe(lambda said: samples.set() if isinstance(said, Sample) else None)
        samples.clear()
        assert samples.wait(LIMIT_S)
        unsubscribe()
        assert gpu1.host.leases.take([], 0) is not None, "orders are answered"
        may_go_on.set()
        run.session.stop()
        assert run.result().name == "stopped"


def test_a_sampler_that_floods_ends_the_run_in_one_sentence(cache: Path, tmp_path: Path) -> None:
    signal_file = tmp_path / "flood"
    with (
        connected(cache, environment=flooding_agent(tmp_path / "site", signal_file, 50_000)) as connection,
        going(dummy(connection.host.inventory(), steps=0, seconds=600.0), services_on(connection, tmp_path)) as run,
    ):
        run.recorder.wait(Block, is_measured)
        signal_file.touch()
        outcome = run.result()
    assert outcome.name == "crashed"
    assert outcome.reason == (f"The agent on {NAME} sends more than 5,000 readings a second, so the link was closed.")


QUICK = LinkLimits(ping_s=0.05, warn_s=0.4, lost_s=1.5)


def test_a_silent_host_is_told_then_given_up(cache: Path, tmp_path: Path) -> None:
    """The agent and all of it stand still, as where a network is cut."""
    sentences: queue.SimpleQueue[str] = queue.SimpleQueue()
    with connected(cache, notify=sentences.put, limits=QUICK) as connection:
        inventory = connection.host.inventory()
        with going(dummy(inventory, steps=0, seconds=600.0), services_on(connection, tmp_path)) as run:
            run.recorder.wait(Block, is_measured)
            with stopped(connection):
                assert sentences.get(timeout=LIMIT_S).startswith(
                    f"Nothing has come from {NAME} for 0\xa0s; after 2\xa0s it is given up"
                )
                run.recorder.wait(Waiting, lambda waiting: NAME in waiting.reason)
            assert sentences.get(timeout=LIMIT_S) == f"{NAME} answers again."
            run.recorder.wait(Waiting, lambda waiting: not waiting.reason)
            with stopped(connection):
                outcome = run.result()
            assert outcome.name == "crashed"
            assert outcome.reason == f"The link to {NAME} was lost: nothing has come from it for 2\xa0s."
            assert outcome.exit_code is None
        lost = connection.status().lost
        assert lost == outcome.reason
        with pytest.raises(TelemetryError, match="was lost: nothing has come"):
            connection.host.inventory()
        with pytest.raises(UserError, match="was lost: nothing has come"):
            connection.host.leases.take(["cpu"], 1)


@contextmanager
def stopped(connection: Connection) -> Iterator[None]:
    """Let everything on the host stand still."""
    processes = processes_of(connection)
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


@pytest.mark.parametrize("victim", ["agent", "carrier"])
def test_a_killed_agent_ends_its_runs_with_the_reason(victim: str, cache: Path, tmp_path: Path) -> None:
    with connected(cache) as connection:
        inventory, lost = connection.host.inventory(), threading.Event()
        connection.host.telemetry.subscribe(lambda said: lost.set() if isinstance(said, DeviceLost) else None)
        with going(dummy(inventory, steps=0, seconds=600.0), services_on(connection, tmp_path)) as run:
            run.recorder.wait(Block, is_measured)
            processes = processes_of(connection)
            os.kill(connection.hello.pid if victim == "agent" else carrier_pid(connection), signal.SIGKILL)
            outcome = run.result()
        assert outcome.name == "crashed"
        assert (
            outcome.reason
            == {
                "agent": "The connection to sh: ended with exit status 137: The agent was ended by signal 9.",
                "carrier": "The connection to sh: was ended here, by signal 9.",
            }[victim]
        )
        assert lost.wait(LIMIT_S)
        assert psutil.wait_procs(processes, timeout=LIMIT_S)[1] == [], "nothing is left there"
