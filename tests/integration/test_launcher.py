"""The edges of a worker's life: processes that are no workers, that are gone before anyone speaks to them."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.runs import launcher
from app.runs.launcher import Exited, Launcher, LocalWorker, WorkerEvent
from app.values.samples import LogLine
from tests.fakes.processes import has_ended
from tests.fakes.sessions import LIMIT_S
from workloads.catalog import Machine, complete
from workloads.protocol import PROTOCOL_VERSION, Finished, Start, decode_message

LEAVES_ONE_BEHIND = "pid = subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
START = Start(protocol=PROTOCOL_VERSION, spec=complete("dummy", {"gpus": 0}, Machine()), gpu_uuids=())


class Heard:
    """What a worker posts, until it is gone."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        self.gone = threading.Event()

    def __call__(self, event: WorkerEvent) -> None:
        self.events.append(event)
        if isinstance(event, Exited):
            self.gone.set()


def started(code: str) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    command = [sys.executable, "-S", "-c", code]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


def test_an_order_for_a_worker_that_is_gone_and_was_heard_is_no_error() -> None:
    heard = Heard()
    worker = LocalWorker(started(""), heard, decode_message)
    worker.listen()
    assert heard.gone.wait(LIMIT_S)
    worker.send(START)
    worker.ask_to_stop()
    assert heard.events == [Exited(0)]


def test_nor_is_it_to_ask_one_to_stop_that_never_read_its_order() -> None:
    heard, process = Heard(), started("")
    process.wait(LIMIT_S)
    worker = LocalWorker(process, heard, decode_message)
    worker.send(START)
    worker.ask_to_stop()
    worker.listen()
    assert heard.gone.wait(LIMIT_S)


def test_a_child_that_left_for_a_session_of_its_own_neither_hangs_the_run_nor_outlives_it() -> None:
    heard = Heard()
    worker = LocalWorker(
        started(f"import subprocess, sys\n{LEAVES_ONE_BEHIND}\nprint(pid, file=sys.stderr)"), heard, decode_message
    )
    worker.listen()
    assert heard.gone.wait(LIMIT_S)
    first, said, last = heard.events
    assert isinstance(first, LogLine)
    assert isinstance(said, LogLine)
    assert said.text == f"(ended what this run left behind: process {first.text})"
    assert last == Exited(0)
    assert has_ended(int(first.text))


def test_one_that_is_over_is_known_to_be_while_another_thread_has_yet_to_hear_of_it() -> None:
    process = started("")
    worker = LocalWorker(process, Heard(), decode_message)
    with process._waitpid_lock:  # type: ignore[attr-defined] # as the thread holds it that waits for the process
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert worker.has_exited
    worker.listen()
    process.wait(LIMIT_S)
    assert worker.has_exited


def test_readers_that_a_busy_machine_holds_up_have_told_everything_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up, heard = threading.Event(), Heard()

    def no_writer(_: object) -> list[int]:
        given_up.set()
        return []

    def slowly(event: WorkerEvent) -> None:
        assert isinstance(event, Exited) or given_up.wait(LIMIT_S)
        heard(event)

    monkeypatch.setattr(launcher, "_LEFT_TO_READ_S", 0.0)
    monkeypatch.setattr(launcher, "end_writers", no_writer)
    LocalWorker(started("import sys\nfor n in range(1000): print(n, file=sys.stderr)"), slowly, decode_message).listen()
    assert heard.gone.wait(LIMIT_S)
    assert [type(event) for event in heard.events] == [LogLine] * 1000 + [Exited]


@pytest.mark.parametrize("interpreter", ["", sys.executable])
def test_a_worker_imports_nothing_of_the_current_folder(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("msgspec", "numpy", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a script of mine')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'none'}{os.pathsep}")
    heard = Heard()
    spec = complete("dummy", {"gpus": 0, "steps": 1, "interpreter": interpreter}, Machine())
    Launcher().launch(Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=()), heard)
    assert heard.gone.wait(LIMIT_S)
    assert [event.outcome for event in heard.events if isinstance(event, Finished)] == ["completed"], heard.events
