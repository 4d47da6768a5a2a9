"""Workers that stand by: real processes, with an import of TensorFlow's name that a test can hold up or let fail."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest

from app.paths import python_environment
from app.runs.launcher import Exited, WorkerEvent
from app.runs.leases import CPU, Leases
from app.runs.session import RunServices
from app.runs.standby import StandbyLauncher
from app.runs.standby_setting import STANDBY_VARIABLE
from app.telemetry.feed import TelemetryFeed
from app.values.samples import LogLine, Waiting
from tests.fakes.command_line import CommandLine, dummy_arguments
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.processes import has_ended
from tests.fakes.sessions import LIMIT_S, Recorder, dummy, going, run_through, services, with_launcher
from tests.fakes.standby import empty_libraries, standing_by
from tests.present import present
from workloads.catalog import Machine, complete
from workloads.machine import Gpu
from workloads.protocol import PROTOCOL_VERSION, Block, EnvironmentInfo, Finished, PhaseStarted, Start, Value

DRIVER = """
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) {
    FILE *log = fopen(getenv("DRIVER_LOG"), "a");
    fprintf(log, "%s\\n", getenv("CUDA_VISIBLE_DEVICES"));
    fclose(log);
    return 100; /* CUDA_ERROR_NO_DEVICE */
}
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_NO_DEVICE"; return 0; }
int cuGetErrorString(int error, const char **words) { *words = "no device"; return 0; }
"""
"""A CUDA driver without devices: it writes down which GPUs it was told to show when it is first used."""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which workers import `keras` and `tensorflow`; both are empty, a test may write into them."""
    folder = empty_libraries(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def launcher(tmp_path: Path, libraries: Path) -> Iterator[StandbyLauncher]:
    with closing(StandbyLauncher(Leases(tmp_path), lambda: True)) as launcher:
        yield launcher


@pytest.fixture
def served(tmp_path: Path, feed: TelemetryFeed, launcher: StandbyLauncher) -> RunServices:
    return with_launcher(services(tmp_path, feed), launcher)


@pytest.fixture
def open_gate(libraries: Path) -> Callable[[], None]:
    """Imports wait until this is called; those that begin later wait for the next call."""
    gate = libraries / "gate"
    os.mkfifo(gate)
    (libraries / "keras.py").write_text(f"open({str(gate)!r}).read(); __version__ = '99.0'")
    return lambda: gate.open("w").close()


def facts_of(recorder: Recorder) -> list[object]:
    """Facts, and phases by name: what does not depend on telemetry or the clock."""
    events = recorder.of_now(PhaseStarted) + recorder.of_now(EnvironmentInfo)
    return [event.phase if isinstance(event, PhaseStarted) else dict(event.environment) for event in events]


def test_runs_beside_each_other_have_a_standby_each_for_the_next(
    served: RunServices, launcher: StandbyLauncher, tmp_path: Path
) -> None:
    spec = dummy(served.host.inventory(), gpus=1, steps=0, seconds=600.0)
    launcher.prepare()
    assert launcher.wait_ready()
    assert len(standing_by()) == 1
    with going(spec, served) as one, going(spec, served) as other:
        for run in (one, other):
            run.recorder.wait(Block)
        served_one = [
            fact.environment.get("standby") for run in (one, other) for fact in run.recorder.of(EnvironmentInfo)
        ]
        assert launcher.wait_ready(), "they are begun while both go on"
        for run in (one, other):
            run.session.stop()
        assert [run.result().name for run in (one, other)] == ["stopped", "stopped"]
    assert "yes" in served_one
    assert launcher.wait_ready()
    assert len(standing_by()) == 2
    lease = Leases(tmp_path).take([CPU], 1)
    assert lease is not None, "no import holds the processor any more"
    lease.release()
    with going(spec, served) as one, going(spec, served) as other:
        assert [run.recorder.wait(EnvironmentInfo).environment.get("standby") for run in (one, other)] == ["yes", "yes"]


def test_a_standby_tells_what_a_cold_worker_tells(served: RunServices, launcher: StandbyLauncher) -> None:
    inventory = served.host.inventory()
    cold_outcome, cold, cold_run = run_through(dummy(inventory, gpus=1), served)
    assert launcher.wait_ready(), "the next one was begun beside the first run"
    (process,) = standing_by()
    outcome, warm, run = run_through(dummy(inventory, gpus=1), served)
    assert outcome == cold_outcome
    assert facts_of(warm) == [*facts_of(cold), {"standby": "yes"}]
    assert (cold_run.environment.get("standby"), run.environment["standby"]) == (None, "yes")
    assert [phase.name for phase in run.phases] == [phase.name for phase in cold_run.phases]
    assert process not in standing_by(), "it ended with its run"
    assert launcher.wait_ready()
    assert len(standing_by()) == 1


def test_there_is_one_where_no_two_runs_go_on_and_none_after_the_end(launcher: StandbyLauncher) -> None:
    for _ in range(2):
        launcher.prepare()
        assert launcher.wait_ready()
    (process,) = standing_by()
    launcher.prepare()
    assert launcher.wait_ready()
    assert standing_by() == [process]


def test_the_next_two_of_an_experiment_import_ahead_and_no_more(
    served: RunServices, launcher: StandbyLauncher, tmp_path: Path, libraries: Path
) -> None:
    other = str(python_of_another_name(tmp_path / "other", libraries))
    specs = [
        dummy(served.host.inventory(), gpus=1, interpreter=python, steps=0, seconds=600.0)
        for python in ("", other, "", "")
    ]

    def kinds() -> list[str | None]:
        assert launcher.wait_ready()
        return [process.environ().get("KIND") for process in standing_by()]

    served.admit(specs)
    launcher.expect(specs)
    ahead = [sorted(map(str, kinds()))]
    for spec in specs[:3]:
        with going(spec, served) as run:
            assert run.recorder.wait(EnvironmentInfo).environment.get("standby") == "yes"
            ahead.append(sorted(map(str, kinds())))
    # With the run itself, whose worker stood by.
    assert ahead == [["None", "other"], ["None", "None", "other"], ["None", "None", "other"], ["None", "None"]]
    launcher.expect([])
    launcher.prepare()
    assert set(kinds()) == {None, "other"}, "one of each kind that ran, where nothing is expected"
    launcher.expect([specs[1]] * 2)
    assert sorted(map(str, kinds())) == ["None", "other", "other"], "one of another kind takes no place"


def test_closing_ends_one_that_imports(tmp_path: Path, open_gate: Callable[[], None]) -> None:
    with closing(StandbyLauncher(Leases(tmp_path), lambda: True)) as launcher:
        launcher.prepare()
        launcher.prepare()
    assert standing_by() == []
    lease = Leases(tmp_path).take([CPU], 1)
    assert lease is not None, "it gave the processor back"
    lease.release()


def test_closing_one_that_was_never_used_starts_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C while it starts would leave it asleep, and the program waiting for it at its exit."""

    def start(thread: threading.Thread) -> None:
        pytest.fail(f"{thread.name} was started")

    launcher = StandbyLauncher(Leases(tmp_path), lambda: True)
    monkeypatch.setattr(threading.Thread, "start", start)
    launcher.close()


def test_it_ends_when_none_is_wanted_any_more(tmp_path: Path, libraries: Path) -> None:
    wishes = [True, False, True]
    with closing(StandbyLauncher(Leases(tmp_path), lambda: wishes.pop(0))) as launcher:
        for expected in (1, 0, 1):
            launcher.prepare()
            assert launcher.wait_ready() == bool(expected)
            assert len(standing_by()) == expected


def test_an_order_may_come_while_it_imports(tmp_path: Path, feed: TelemetryFeed, open_gate: Callable[[], None]) -> None:
    wishes = [True]
    with closing(StandbyLauncher(Leases(tmp_path), lambda: bool(wishes) and wishes.pop())) as launcher:
        served = with_launcher(services(tmp_path, feed), launcher)
        launcher.prepare()
        with going(dummy(feed.wait_inventory(), gpus=1), served) as run:
            open_gate()  # one stands by, no second: it would let in whichever comes first
            phase = run.recorder.wait(PhaseStarted)
            assert phase.phase == "import"
            assert run.result().name == "completed"
            assert run.recorder.of(EnvironmentInfo)[0].environment == {"standby": "yes"}
        wishes.append(True)
        launcher.prepare()
        open_gate()
        assert launcher.wait_ready()


def test_a_stop_while_it_imports_is_a_stop(
    served: RunServices, launcher: StandbyLauncher, open_gate: Callable[[], None]
) -> None:
    launcher.prepare()
    with going(dummy(served.host.inventory(), gpus=1), served) as run:
        run.session.stop()
        outcome = run.result()
    assert (outcome.name, outcome.ended_by) == ("stopped", "closed stdin")


def test_it_serves_only_the_surroundings_it_was_started_in(
    served: RunServices, launcher: StandbyLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.prepare()
    assert launcher.wait_ready()
    (process,) = standing_by()
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    _, _, run = run_through(dummy(served.host.inventory(), gpus=1), served)
    assert "standby" not in run.environment
    assert process not in standing_by()


def python_of_another_name(folder: Path, libraries: Path) -> Path:
    """Make a Python that imports those libraries, which no other's runs can use."""
    folder.mkdir()
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nKIND={folder.name} PYTHONPATH={libraries} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_a_python_that_the_last_eight_runs_did_not_use_has_no_standby(
    served: RunServices, launcher: StandbyLauncher, tmp_path: Path, libraries: Path
) -> None:
    python = python_of_another_name(tmp_path / "other", libraries)
    spec = dummy(served.host.inventory(), gpus=1, interpreter=str(python), steps=1)
    launcher.prepare()
    assert launcher.wait_ready()
    (own,) = standing_by()
    for _ in range(7):
        run_through(spec, served)
    assert launcher.wait_ready()
    assert own in standing_by()
    run_through(spec, served)
    assert launcher.wait_ready()
    assert own not in standing_by()
    assert len(standing_by()) == 1


def test_runs_beside_each_other_of_three_kinds_have_one_worker_of_each_and_one_more(
    served: RunServices, launcher: StandbyLauncher, tmp_path: Path, libraries: Path
) -> None:
    pythons = ["", *(str(python_of_another_name(tmp_path / name, libraries)) for name in ("one", "other"))]
    counts, kinds = [], []
    for python in pythons * 2:
        spec = dummy(served.host.inventory(), gpus=1, interpreter=python, steps=0, seconds=600.0)
        with going(spec, served) as first, going(spec, served) as second:
            for run in (first, second):
                run.recorder.wait(Block)
            assert launcher.wait_ready()
        counts.append(len(standing_by()))
        kinds.append(len({process.environ().get("KIND") for process in standing_by()}))
    assert counts == [2, 3, 4, 4, 4, 4]
    assert kinds == [1, 2, 3, 3, 3, 3]


def test_a_python_that_is_gone_keeps_no_other_from_its_standby(
    served: RunServices, launcher: StandbyLauncher, tmp_path: Path, libraries: Path
) -> None:
    removed, remaining = (python_of_another_name(tmp_path / name, libraries) for name in ("gone", "other"))
    inventory = served.host.inventory()
    run_through(dummy(inventory, gpus=1, interpreter=str(removed), steps=1), served)
    assert launcher.wait_ready()
    removed.unlink()
    for process in standing_by():
        process.kill()
        assert has_ended(process.pid)
    run_through(dummy(inventory, gpus=1, interpreter=str(remaining), steps=1), served)
    launcher.prepare()
    assert launcher.wait_ready()
    assert len(standing_by()) == 2, "one of the program's own Python, and one of the other"


def test_one_that_was_killed_is_seen_in_the_log_alone(served: RunServices, launcher: StandbyLauncher) -> None:
    launcher.prepare()
    assert launcher.wait_ready()
    (process,) = standing_by()
    process.kill()
    assert has_ended(process.pid)
    outcome, recorder, run = run_through(dummy(served.host.inventory(), gpus=1), served)
    assert (outcome.name, run.environment.get("standby")) == ("completed", None)
    words = "(the standby worker ended with exit status -9: this run started cold)"
    assert words in [line.text for line in recorder.of(LogLine)]


def test_one_that_cannot_import_leaves_its_reason_in_the_log(
    served: RunServices, launcher: StandbyLauncher, libraries: Path
) -> None:
    (libraries / "keras.py").write_text("raise OSError('libcudnn is no library')")
    launcher.prepare()
    assert not launcher.wait_ready()
    outcome, recorder, _ = run_through(dummy(served.host.inventory(), gpus=1), served)
    assert outcome.name == "completed"
    assert "OSError: libcudnn is no library" in [line.text for line in recorder.of(LogLine)]


def test_one_that_prints_without_end_is_ended_and_the_run_starts_cold(
    served: RunServices, launcher: StandbyLauncher, libraries: Path
) -> None:
    (libraries / "keras.py").write_text("import os\nwhile True: os.write(2, b'line\\n' * 100)")
    launcher.prepare()
    assert not launcher.wait_ready()
    outcome, recorder, run = run_through(dummy(served.host.inventory(), gpus=1), served)
    assert (outcome.name, run.environment.get("standby"), recorder.of(LogLine)) == ("completed", None, [])


def test_one_that_nobody_takes_goes_quietly(
    served: RunServices, launcher: StandbyLauncher, monkeypatch: pytest.MonkeyPatch, open_gate: Callable[[], None]
) -> None:
    monkeypatch.setattr("app.runs.standby._UNUSED_S", 0.0)
    launcher.prepare()
    open_gate()
    launcher.wait_ready()
    for process in standing_by():
        assert has_ended(process.pid)
    outcome, recorder, _ = run_through(dummy(served.host.inventory(), gpus=1), served)
    assert (outcome.name, recorder.of(LogLine)) == ("completed", [])


def test_a_run_on_the_cpu_waits_for_an_import_and_none_begins_beside_it(
    served: RunServices, launcher: StandbyLauncher, open_gate: Callable[[], None]
) -> None:
    launcher.prepare()
    with going(dummy(served.host.inventory(), gpus=0, steps=0, seconds=60.0), served) as run:
        run.recorder.wait(Waiting)
        assert run.recorder.of(PhaseStarted) == []
        open_gate()
        run.recorder.wait(PhaseStarted, lambda phase: phase.phase == "measure")
        assert run.recorder.of(EnvironmentInfo)[0].environment == {"standby": "yes"}
        launcher.prepare()
        assert not launcher.wait_ready()


@pytest.mark.parametrize(("words", "facts"), [([], ["yes", "yes"]), (["--no-standby"], [None, None])])
def test_each_run_of_an_experiment_is_served(
    tmp_path: Path, libraries: Path, words: list[str], facts: list[str | None]
) -> None:
    line = CommandLine(tmp_path, {STANDBY_VARIABLE: "on", **environment(Driver(cards=TWO_H200))})
    line.read("experiment", *dummy_arguments(gpus=1, seed="1,2"), "--repeats", "1", "--no-gate", *words)
    runs = [line.read("show", str(run)) for run in (1, 2)]
    assert [run["environment"].get("standby") for run in runs] == facts


@pytest.mark.parametrize("taken", [False, True])
def test_it_dies_with_a_program_that_is_killed(tmp_path: Path, libraries: Path, taken: bool) -> None:
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from app.runs.leases import Leases; from app.runs.standby import StandbyLauncher\n"
        "from workloads.catalog import Machine, complete; from workloads.protocol import PROTOCOL_VERSION, Start\n"
        "launcher = StandbyLauncher(Leases(Path(sys.argv[1])), lambda: True)\n"
        "launcher.prepare()\n"
        "spec = complete('dummy', {'gpus': 0, 'behaviour': 'ignore_stop', 'seconds': 600.0}, Machine(cpu_count=1))\n"
        "order = Start(protocol=PROTOCOL_VERSION, spec=spec)\n"
        "took = int(sys.argv[2]) and launcher.launch(order, lambda _: None)\n"
        "print(launcher.wait_ready(), flush=True); threading.Event().wait()"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(int(taken))]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, env=python_environment(), text=True)
    with program:
        assert present(program.stdout).readline() == "True\n"
        workers = psutil.Process(program.pid).children()
        assert len(workers) == 1 + taken
        program.send_signal(signal.SIGKILL)
        program.wait(LIMIT_S)
        _, alive = psutil.wait_procs(workers, LIMIT_S)
        assert alive == []


@pytest.mark.tensorflow
def test_each_framework_of_the_last_runs_has_a_standby(tmp_path: Path, feed: TelemetryFeed) -> None:
    pytest.importorskip("torch")
    wanted = threading.Event()
    wanted.set()
    with closing(StandbyLauncher(Leases(tmp_path), wanted.is_set)) as launcher:
        served = with_launcher(services(tmp_path, feed), launcher)

        def standby_of(framework: str) -> str | None:
            sizes: dict[str, Value] = {"units": 8, "timesteps": 6, "batch_size": 8, "steps": 2, "warmup_steps": 1}
            given = {**sizes, "framework": framework, "gpus": 0, "evidence": "off"}
            spec = complete("gru", given, feed.wait_inventory().machine)
            outcome, _, run = run_through(spec, served)
            assert outcome.name == "completed", outcome.reason
            return run.environment.get("standby")

        heard: queue.SimpleQueue[WorkerEvent] = queue.SimpleQueue()
        for framework in ("pytorch", "tensorflow"):  # refused before the import
            spec = complete("cnn10", {"framework": framework, "data": "cifar10", "data_folder": "/nowhere"}, Machine())
            launcher.launch(Start(protocol=PROTOCOL_VERSION, spec=spec), heard.put)
            events = list(iter(partial(heard.get, timeout=LIMIT_S), Exited(0)))
            assert [event.outcome for event in events if isinstance(event, Finished)] == ["refused"]
        launcher.prepare()
        assert launcher.wait_ready()
        assert sorted(process.cmdline()[-1] for process in standing_by()) == ["pytorch", "tensorflow"]
        assert standby_of("pytorch") == "yes"
        wanted.clear()  # no run follows the next
        assert standby_of("tensorflow") == "yes"


@pytest.mark.tensorflow
@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles a driver")
def test_tensorflow_looks_for_gpus_after_the_order_and_only_for_those_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cuda.c").write_text(DRIVER)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "cuda.c"], cwd=tmp_path, check=True
    )
    log = tmp_path / "driver.log"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("DRIVER_LOG", str(log))
    heard: queue.SimpleQueue[WorkerEvent] = queue.SimpleQueue()
    once = iter((True, False))
    with closing(StandbyLauncher(Leases(tmp_path), lambda: next(once))) as launcher:
        launcher.prepare()
        assert launcher.wait_ready()
        assert not log.exists(), "the import used the driver"
        spec = complete("lstm", {}, Machine(gpus=(Gpu(index=0, uuid="GPU-7", name=""),), cpu_count=1))
        launcher.launch(Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=("GPU-7",)), heard.put)
        events = list(iter(lambda: heard.get(timeout=LIMIT_S), Exited(0)))
    assert log.read_text().split() == ["GPU-7"]
    (last,) = [event for event in events if isinstance(event, Finished)]
    assert last.outcome == "refused"
    reason = "This run was given 1 of the machine's GPUs, and TensorFlow sees 0: its CUDA libraries are missing"
    assert (last.reason or "").startswith(reason)
