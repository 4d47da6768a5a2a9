"""Whole runs on another host: this machine through the program that is sent there and started as on any other."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from app.errors import TelemetryError, UserError
from app.hosts.book import HostEntry
from app.hosts.launchers import LAUNCHERS, Launcher
from app.hosts.remote import Connection, connect
from app.hosts.wheel import Start
from app.paths import weights_path
from app.runs.experiment.queue import add_plan
from app.runs.experiment.session import ExperimentSession, QueueListener
from app.runs.jobs import JobError
from app.runs.leases import Leases
from app.runs.session import RunServices, RunSession
from app.storage.owner import boot_id
from app.storage.store import Store
from app.values.environment_keys import BOOT_ID_KEY, CARRIER_KEY, HOST_ID_KEY, HOST_KEY, IDLE_WAIT_KEY
from app.values.events import RunEnded, RunEvent, RunStarted
from app.values.fields import Sample
from app.values.plan import Plan
from app.values.samples import LogLine, Waiting
from tests.fakes.hosts import NAME, PlayedStart, connected, processes_of, runner_of, services_on, shifted_clock
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.sessions import GREETS, HELLO, LIMIT_S, dummy, going, is_measured, run_through, with_values
from tests.present import present
from workloads.job_protocol import Calibrate, DescribeFile, FileDescription, TryWeights
from workloads.protocol import Block, Calibration, Source

S = 1_000_000_000
WARN_S, LOST_S = 2.5, 8.0
"""A busy machine may stand still for seconds."""
BUSY_S = 7.0
"""What a busy machine adds to 5 s."""


@pytest.fixture(scope="module")
def gpu1(host_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A host with two GPUs, which has made a run."""
    with connected(host_cache, environment=environment(Driver(cards=TWO_H200))) as connection:
        inventory = connection.host.telemetry.wait_inventory(LIMIT_S)
        run_through(dummy(inventory), services_on(connection, tmp_path_factory.mktemp("first")))
        yield connection


@pytest.fixture(scope="module")
def connection(host_cache: Path) -> Iterator[Connection]:
    with connected(host_cache) as connection:
        connection.host.inventory()  # its sampler is there
        yield connection


@pytest.fixture
def here(connection: Connection) -> Iterator[Connection]:
    """A host of which no program is left that makes runs, so that a test can kill its own, or play it."""
    yield connection
    for process in connection._runners:
        process.close()
    connection._runners = []


def test_a_run_there_is_stored_here_as_one_made_here(gpu1: Connection, tmp_path: Path) -> None:
    services = services_on(gpu1, tmp_path)
    inventory = gpu1.host.inventory()
    assert [gpu.uuid for gpu in inventory.machine.gpus] == [card.uuid for card in TWO_H200]
    outcome, recorder, stored = run_through(dummy(inventory, gpus=1, step_ms=10.0), services)
    assert outcome.name == "completed", outcome
    assert stored.environment[HOST_KEY] == NAME
    assert stored.environment[CARRIER_KEY] == "sh"
    assert stored.environment[HOST_ID_KEY] == gpu1.hello.environment[HOST_ID_KEY]
    assert stored.environment[BOOT_ID_KEY] == stored.boot_id == boot_id()
    assert {"cpu", "driver", "os", "program_version", "sources_sha256"} <= stored.environment.keys()
    assert {columns.device.device for columns in stored.samples} == {"host", TWO_H200[0].uuid}
    assert any(columns.t_ns.size for columns in stored.samples if columns.device.kind == "gpu")
    assert recorder.of(Block)
    pid = runner_of(gpu1).process.pid
    assert run_through(dummy(inventory), services)[0].name == "completed"
    assert runner_of(gpu1).process.pid == pid, "the program there makes the next run, too"


def test_the_first_sample_comes_soon_after_the_program_is_up(host_cache: Path) -> None:
    came = threading.Event()
    with connected(host_cache) as connection:
        began_s = time.monotonic()
        connection.host.telemetry.subscribe(lambda said: came.set() if isinstance(said, Sample) else None)
        assert came.wait(LIMIT_S)
    # 1.5 s where nothing else runs; here only that it is no matter of many seconds.
    assert time.monotonic() - began_s < 15.0


def test_an_experiment_there_waits_for_an_idle_machine_there(host_cache: Path, tmp_path: Path) -> None:
    with connected(host_cache, environment=environment(Driver(cards=TWO_H200))) as connection:
        services = services_on(connection, tmp_path)
        variants = tuple(dummy(connection.host.inventory(), gpus=1, step_ms=ms) for ms in (1.0, 2.0))
        plan = Plan(name="some", variants=variants, repeats=2, parallel=2, max_idle_wait_s=0.2)
        with Store.open(services.database) as store:
            entry = store.queue.entry(add_plan(store, plan))
        experiment = ExperimentSession(entry, services, QueueListener(), lambda: True).run()
    assert (experiment.state, experiment.done) == ("complete", 4)
    assert all(run.environment[IDLE_WAIT_KEY] for run in experiment.runs)
    used = [gpu for run in experiment.runs for gpu in run.gpu_uuids]
    assert set(used) == {card.uuid for card in TWO_H200}


def test_a_device_that_others_use_there_is_waited_for(
    gpu1: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = TWO_H200[0].uuid
    lease = present(Leases().take([card], 1))
    spec = dummy(gpu1.host.inventory(), gpus=1, devices="0")
    with going(spec, services_on(gpu1, tmp_path)) as run:
        waiting = run.recorder.wait(Waiting)
        assert "free this device" in waiting.reason
        lease.release()
        assert run.result().name == "completed"
    lease = present(Leases().take([card], 1))
    with going(spec, services_on(gpu1, tmp_path / "other")) as run:
        run.recorder.wait(Waiting)
        run.session.run_anyway()
        assert run.result().name == "completed"
    lease.release()


def test_jobs_run_there_and_files_go_there_and_back(
    gpu1: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def small(batch_size: int = 8): '''A model.'''\n"
    source = Source(path="model.py", text=text)
    described = gpu1.host.run_job(DescribeFile(source=source), FileDescription)
    assert [workload.name for workload in described.workloads] == ["small"]
    endless = Source(path="model.py", text="while True: pass\n")
    with pytest.raises(TimeoutError):
        gpu1.host.run_job(DescribeFile(source=endless), FileDescription, lambda: True)
    weights = tmp_path / "big.npz"
    weights.write_bytes(os.urandom(600_000))
    spec = dummy(gpu1.host.inventory())
    with pytest.raises(JobError):  # which the process there has read
        gpu1.host.run_job(TryWeights(weights_path=str(weights), trained=spec, spec=spec), FileDescription)


@pytest.mark.tensorflow
def test_a_processor_of_a_host_is_calibrated_under_the_host_s_name(gpu1: Connection) -> None:
    calibration = gpu1.host.run_job(Calibrate(precision="float32"), Calibration)
    assert calibration.device == f"cpu of {NAME}"


def saver(folder: Path, size: int) -> Path:
    """Return a Python that saves weights of so many bytes."""
    path = folder / "python-saver"
    path.write_text(
        f"#!{sys.executable}\n{HELLO}start = decode_start(sys.stdin.buffer.readline())\n"
        f"{GREETS}begin('build'); measure()\n"
        f"open(start.weights_path, 'wb').write(b'weights' * {size // 7})\nend()\n"
    )
    path.chmod(0o700)
    return path


def test_saved_weights_are_here_when_the_run_hears_that_it_completed(gpu1: Connection, tmp_path: Path) -> None:
    services = services_on(gpu1, tmp_path)
    existed: list[str] = []

    def look(event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            existed.extend(path.name for path in weights_path(services.database, "").parent.glob("*"))

    spec = with_values(dummy(gpu1.host.inventory(), interpreter=str(saver(tmp_path, 700_000))), save_weights=True)
    outcome, _, stored = run_through(spec, services, SimpleNamespace(handle=look))
    weights = weights_path(services.database, stored.row.uid)
    assert (outcome.name, existed) == ("completed", [weights.name]), outcome
    assert weights.read_bytes() == b"weights" * 100_000


def test_a_clock_that_is_days_away_gives_the_same_run(host_cache: Path, tmp_path: Path) -> None:
    """Everything stored is of the host's clock; only the link knows how it lies to this machine's."""
    with connected(host_cache, environment=shifted_clock(tmp_path / "site", 5.0)) as connection:
        shift_ns = round(5 * 86_400e9)
        assert 0 <= time.monotonic_ns() + shift_ns - connection.now().t_ns < LIMIT_S * S
        outcome, recorder, stored = run_through(
            dummy(connection.host.inventory(), step_ms=10.0), services_on(connection, tmp_path)
        )
    assert outcome.name == "completed", outcome
    started, ended = recorder.of(RunStarted)[0], recorder.of(RunEnded)[0]
    assert started.t_ns > shift_ns
    assert stored.anchor_t_ns == started.t_ns
    times = [
        *(phase.start_ns for phase in stored.phases),
        *(phase.end_ns or 0 for phase in stored.phases),
        *stored.blocks.end_ns,
        *(line.t_ns for line in stored.log),
        *(t_ns for columns in stored.samples for t_ns in columns.t_ns),
    ]
    assert all(started.t_ns - S <= t_ns <= ended.t_ns + S for t_ns in times)
    assert abs(ended.t_ns - started.t_ns - ((stored.row.ended_utc_ns or 0) - stored.row.started_utc_ns)) < S
    assert abs(stored.row.started_utc_ns - time.time_ns()) < LIMIT_S * S, "this machine's wall clock"


def test_a_worker_that_floods_holds_up_neither_beats_nor_telemetry(gpu1: Connection, tmp_path: Path) -> None:
    """Its run takes nothing: what it says waits there, in its pipe; and the host is not taken for lost."""
    talker = tmp_path / "python-talker"
    talker.write_text(f"#!/bin/sh\nyes '{'a line of its log, ' * 200}' | head -c 9000000 >&2; exec sleep 600\n")
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
        may_go_on.set()
        run.session.stop()
        assert run.result().name == "stopped"


def test_a_silent_host_is_told_then_given_up(host_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it stands still, as where a network is cut."""
    monkeypatch.setattr("app.hosts.process._WARN_S", WARN_S)
    monkeypatch.setattr("app.hosts.process.LOST_S", LOST_S)
    with connected(host_cache) as connection:
        inventory = connection.host.inventory()
        with going(dummy(inventory, steps=0, seconds=600.0), services_on(connection, tmp_path)) as run:
            run.recorder.wait(Block, is_measured)
            with stopped(connection):
                run.recorder.wait(Waiting, lambda waiting: NAME in waiting.reason)
            run.recorder.wait(Waiting, lambda waiting: not waiting.reason)
            with stopped(connection):
                outcome = run.result()
                # Its telemetry is another process, which was heard some moments later.
                with pytest.raises(TelemetryError, match="was lost: nothing has come"):
                    ask_until_lost(connection)
            assert outcome.name == "crashed"
            assert f"The link to {NAME} was lost: nothing has come from it for " in (outcome.reason or "")


def ask_until_lost(connection: Connection) -> None:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        connection.host.inventory()
        threading.Event().wait(0.01)


@contextlib.contextmanager
def stopped(connection: Connection) -> Iterator[None]:
    processes = processes_of(connection)
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


@pytest.mark.parametrize("victim", ["program", "guard"])
def test_a_killed_program_ends_its_run_with_the_reason_and_leaves_nothing(
    victim: str, here: Connection, tmp_path: Path
) -> None:
    with going(dummy(here.host.inventory(), steps=0, seconds=600.0), services_on(here, tmp_path)) as run:
        run.recorder.wait(Block, is_measured)
        guard = psutil.Process(runner_of(here).process.pid)
        processes = [guard, *guard.children(recursive=True)]
        (program,) = guard.children()
        os.kill(program.pid if victim == "program" else guard.pid, signal.SIGKILL)
        outcome = run.result()
    assert outcome.name == "crashed"
    part = {"program": "The program on this host was ended by signal 9.", "guard": "the process that guards it"}
    assert part[victim] in (outcome.reason or "")
    assert psutil.wait_procs(processes, timeout=LIMIT_S)[1] == [], "nothing is left there"


def test_a_program_that_was_suspended_when_the_link_was_closed_leaves_nothing(host_cache: Path, tmp_path: Path) -> None:
    with connected(host_cache, environment={"TMPDIR": str(tmp_path)}) as connection:
        guard = psutil.Process(connection.process.process.pid)
        (program,) = guard.children()
        assert list(tmp_path.glob("variantscope-host-*"))
        program.suspend()
        connection.close()
        program.resume()
        assert psutil.wait_procs([program, guard], timeout=LIMIT_S)[1] == []
    assert not list(tmp_path.glob("variantscope-host-*"))


def test_what_a_worker_started_ends_with_the_program_there(here: Connection, tmp_path: Path) -> None:
    leaver = tmp_path / "python-leaver"
    pid_file = tmp_path / "pid"
    leaver.write_text(f"#!/bin/sh\nsetsid sleep 600 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; cat\n")
    leaver.chmod(0o700)
    with going(dummy(here.host.inventory(), interpreter=str(leaver)), services_on(here, tmp_path)) as run:
        end_s = time.monotonic() + LIMIT_S
        while not (pid_file.exists() and psutil.pid_exists(int(pid_file.read_text()))) and time.monotonic() < end_s:
            threading.Event().wait(0.01)
        left = psutil.Process(int(pid_file.read_text()))
        psutil.Process(runner_of(here).process.pid).children()[0].kill()
        run.result()
    left.wait(LIMIT_S)


def test_a_killed_program_here_leaves_nothing_there(host_cache: Path, tmp_path: Path) -> None:
    """Whoever ordered is gone: the launchers' stdin closes."""
    with connected(host_cache) as connection:
        connection.host.inventory()
        with going(
            dummy(connection.host.inventory(), steps=0, seconds=600.0), services_on(connection, tmp_path)
        ) as run:
            run.recorder.wait(Block, is_measured)
            processes = processes_of(connection)
            for process in (connection.process, runner_of(connection)):
                process._orders.put(None)
            assert psutil.wait_procs(processes, timeout=20)[1] == []
            assert run.result().name == "crashed"


def lying(text: str) -> type[Start]:
    """Return what starts a program in place of the one that makes runs: it takes the order, then does this."""

    class Lying(PlayedStart):
        def script(self) -> str:
            script = (
                "say(host_hello())\n"
                "def follow(order):\n"
                "    if not isinstance(order, RunOrder): return\n"
                "    now = time.monotonic_ns()\n"
                "    begin = RunStarted(spec=order.start.spec, t_ns=now, utc_ns=1, devices=())\n"
                f"    {text}\n"
                "listen(follow)"
            )
            return PlayedStart(address=self.address, text=script).script()

    return Lying


@pytest.mark.parametrize(
    ("lie", "name", "reason"),
    [
        ("say(begin, begin)", "failed", "which cannot come now"),
        ("say(PhaseStarted(phase='build', t_ns=now))", "failed", "which cannot come now"),
        ("say(begin, PhaseStarted(phase='build', t_ns=now + 10**15))", "failed", "What the program on gpu1 says"),
        ("say(begin, PhaseStarted(phase='import', t_ns=now)); os.kill(os.getpid(), 9)", "crashed", "signal 9"),
        ("say(begin, Inventory(machine=None, devices=()))", "crashed", "What gpu1 says is "),
        ("say(Refused(reason='It made a mistake.'))", "failed", "It made a mistake."),
        ("say(RunEnded(t_ns=now, outcome=Outcome(name='completed')))", "failed", "which cannot come now"),
    ],
)
def test_what_a_host_may_not_say_of_a_run_is_one_sentence(
    lie: str, name: str, reason: str, here: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = dummy(here.host.inventory())
    monkeypatch.setattr("app.hosts.remote.Start", lying(lie))
    outcome, _, stored = run_through(spec, services_on(here, tmp_path))
    assert outcome.name == name
    assert reason in (outcome.reason or "")
    assert "\n" not in (outcome.reason or "")
    assert stored.row.spec == spec, "what runs is known here"


def test_a_host_that_describes_itself_by_a_word_for_a_number_makes_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lying(PlayedStart):
        def script(self) -> str:
            hello = "msgspec.structs.replace(host_hello(), environment={'cpu_count': 'NaN'})"
            return PlayedStart(address=self.address, text=f"say({hello}); listen()").script()

    monkeypatch.setattr("app.hosts.remote.Start", Lying)
    with pytest.raises(UserError, match=r"^What lab says is .* cpu_count of its environment is not a number"):
        connect(HostEntry(name="lab", address="sh:"))


def test_a_run_that_was_stopped_before_it_began_ends_at_once_though_the_host_is_slow(
    here: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host beats, but its lease takes a minute."""
    spec = dummy(here.host.inventory())
    monkeypatch.setattr("app.hosts.remote.Start", lying("ordered = True"))
    with going(spec, services_on(here, tmp_path)) as run:
        end_s = time.monotonic() + LIMIT_S
        while not (here._runners and here._runners[0].hello) and time.monotonic() < end_s:
            threading.Event().wait(0.01)
        began_s = time.monotonic()
        run.session.stop()
        outcome = run.result()
    assert outcome.name == "stopped"
    assert time.monotonic() - began_s < 5.0 + BUSY_S


THROTTLE = """\
import os, subprocess, sys, time
rate, script = sys.argv[1:]
host = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
while data := os.read(host.stdout.fileno(), 400):
    while data:
        data = data[os.write(1, data):]
    if os.path.exists(rate):
        time.sleep(1.0)
"""


@pytest.mark.parametrize("is_slow", [False, True])
def test_ctrl_c_ends_a_run_within_seconds_however_slow_the_link(
    is_slow: bool, host_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of 400 bytes a second has its buffers full of readings: the end of the run is minutes behind them."""
    slow = tmp_path / "slow"
    command = [sys.executable, "-c", THROTTLE, str(slow)]
    throttled = Launcher(command=lambda _, script: [*command, script])
    monkeypatch.setattr("app.hosts.wheel.LAUNCHERS", {**LAUNCHERS, "sh": throttled})
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connected(host_cache))
        spec = dummy(connection.host.inventory(), steps=0, seconds=600.0, step_ms=1.0)
        with going(spec, services_on(connection, tmp_path)) as run:
            run.recorder.wait(Block, is_measured)
            processes = processes_of(connection)
            if is_slow:
                slow.touch()
                threading.Event().wait(1.0)
            began_s = time.monotonic()
            run.session.stop()
            outcome = run.result()
        stack.close()
        took_s = time.monotonic() - began_s
    assert outcome.name == "stopped"
    assert ("did not confirm the end in time" in (outcome.reason or "")) == is_slow
    assert took_s < 5.0 + BUSY_S
    assert psutil.wait_procs(processes, timeout=20)[1] == [], "the host ends its own"


def test_two_programs_share_a_host(host_cache: Path, tmp_path: Path) -> None:
    with connected(host_cache) as first, connected(host_cache) as second:
        spec = dummy(first.host.inventory(), step_ms=5.0)
        with (
            going(spec, services_on(first, tmp_path / "a")) as run,
            going(spec, services_on(second, tmp_path / "b")) as other,
        ):
            assert {run.result().name, other.result().name} == {"completed"}
        for folder, going_run in (("a", run), ("b", other)):
            with Store.open(tmp_path / folder / "profiles.db") as store:
                assert len(store.list_runs()) == 1, going_run


def test_a_python_that_was_not_allowed_for_the_host_is_refused(here: Connection, tmp_path: Path) -> None:
    spec = dummy(here.host.inventory(), interpreter=str(tmp_path / "venv"))
    services = RunServices(database=tmp_path / "profiles.db", host=here.host)
    with pytest.raises(UserError, match=f"as Python on {NAME}"):
        run_through(spec, services)


@pytest.mark.parametrize("number", range(int(os.environ.get("VARIANTSCOPE_HOST_KILLS", "6"))))
def test_kills_at_random_moments_leave_nothing_and_double_nothing(
    number: int, host_cache: Path, tmp_path: Path
) -> None:
    """60 by hand: VARIANTSCOPE_HOST_KILLS=60."""
    moments = np.random.default_rng()
    victim = ("launcher", "program", "sampler", "worker", "all", "stdin")[number % 6]
    endings: list[str] = []
    with connected(host_cache) as connection:
        spec = dummy(connection.host.inventory(), steps=0, seconds=600.0)
        session = RunSession(spec, services_on(connection, tmp_path))

        def make() -> None:
            try:
                endings.append(session.run().name)
            except UserError:  # its program was killed before it was up
                endings.append("never began")

        run = threading.Thread(target=make)
        run.start()
        time.sleep(moments.uniform(0.0, 1.5))
        processes = processes_of(connection)
        tops = [process for process in connection._runners if process.lost is None]
        below = [child for top in tops for child in psutil.Process(top.process.pid).children(recursive=True)]
        modules = {"sampler": "app.telemetry.sampler", "worker": "workloads.worker"}
        for top in tops:
            if victim in ("launcher", "all"):
                psutil.Process(top.process.pid).kill()
            elif victim == "stdin":
                top._orders.put(None)
        guards = {top.process.pid for top in tops}
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                is_program = victim == "program" and process.ppid() in guards
                if is_program or victim == "all" or modules.get(victim, "-") in process.cmdline():
                    process.kill()
        session.stop()
        run.join(LIMIT_S)
    assert psutil.wait_procs(processes, timeout=20)[1] == []
    with Store.open(tmp_path / "profiles.db") as store:
        rows = store.list_runs()
    (ending,) = endings
    assert ending in ("crashed", "stopped", "failed", "never began")
    assert len(rows) == (ending != "never began")
    assert all(row.outcome is not None for row in rows)
