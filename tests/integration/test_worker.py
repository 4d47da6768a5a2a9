"""Real workers through their pipes: an order goes in, messages come out, the process is gone."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.present import present
from workloads.catalog import ONEDNN_KEY, ONEDNN_VARIABLE, Machine, complete
from workloads.protocol import (
    PROTOCOL_VERSION,
    Block,
    EnvironmentInfo,
    Evidence,
    Finished,
    Hello,
    Message,
    PhaseStarted,
    RunSpec,
    Start,
    Value,
    decode_message,
    encode,
)

GONE_S = 120.0
STOPPED_S = 30.0
"""A stop takes a moment on a machine at rest; what it must not wait for takes a minute at least."""
WORKER = [sys.executable, "-m", "workloads.worker"]


class Running:
    """A worker with an order, read line by line with a time limit."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.messages: list[Message] = []

    def order(self, spec: RunSpec, gpu_uuids: tuple[str, ...] = ()) -> None:
        self.write(encode(Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=gpu_uuids)))

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def close(self) -> None:
        present(self.process.stdin).close()

    def next(self, limit_s: float = 200.0) -> Message | None:
        """The next message, None at the end of the pipe."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], limit_s)
        assert ready, f"the worker said nothing for {limit_s} s"
        line = self.process.stdout.readline()
        if not line:
            return None
        self.messages.append(decode_message(line))
        return self.messages[-1]

    def until(self, kind: type, phase: str | None = None) -> Message:
        while (message := self.next()) is not None:
            if isinstance(message, kind) and phase in (None, getattr(message, "phase", None)):
                return message
        raise AssertionError(f"the worker ended without {kind.__name__}: {self.messages[-3:]}")

    def finish(self) -> Finished:
        """The last word; nothing comes after it and the process goes with exit code 0."""
        last = self.until(Finished)
        assert isinstance(last, Finished)
        assert self.next() is None
        assert self.process.wait(GONE_S) == 0
        return last

    @property
    def phases(self) -> list[str]:
        return [message.phase for message in self.messages if isinstance(message, PhaseStarted)]

    @property
    def evidence(self) -> list[Evidence]:
        return [message for message in self.messages if isinstance(message, Evidence)]

    @property
    def blocks(self) -> list[Block]:
        return [message for message in self.messages if isinstance(message, Block)]


@contextmanager
def worker(command: list[str] = WORKER) -> Iterator[Running]:
    # Unbuffered, so that a line Python holds back is never hidden from select.
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
    try:
        yield Running(process)
    finally:
        process.kill()
        process.wait(GONE_S)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def spec(workload: str, **given: Value) -> RunSpec:
    return complete(workload, {"gpus": 0, **given}, Machine(cpu_count=1))


def dummy(behaviour: str = "train", **given: Value) -> RunSpec:
    return spec("dummy", behaviour=behaviour, step_ms=1.0, **given)


def test_a_stop_does_not_wait_for_a_long_step() -> None:
    with worker() as run:
        run.order(spec("dummy", step_ms=60_000.0))
        run.until(PhaseStarted, "compile")
        start_s = time.monotonic()
        run.close()
        assert run.finish().outcome == "stopped"
        assert time.monotonic() - start_s < STOPPED_S


def test_no_order_at_all_is_a_stop() -> None:
    with worker() as run:
        run.close()
        assert run.finish().outcome == "stopped"


def test_an_order_that_is_none_fails_in_words() -> None:
    with worker() as run:
        run.write(b"train, please\n")
        last = run.finish()
        assert last.outcome == "failed"
        assert "order is wrong" in (last.reason or "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child for its parent's death")
def test_a_worker_dies_with_its_parent() -> None:
    """The parent hands its own pipes on and is killed while stdin stays open, so only its death can tell the worker."""
    launcher = [sys.executable, "-c", "import subprocess; subprocess.Popen('exec ' + ' '.join(%r), shell=True).wait()"]
    launcher[2] = launcher[2] % (WORKER,)
    with worker(launcher) as run:
        hello = run.next()
        assert isinstance(hello, Hello)
        run.order(dummy("hang"))
        run.until(Block, "warmup")
        watched = os.pidfd_open(hello.pid)
        run.process.kill()
        ready, _, _ = select.select([watched], [], [], GONE_S)
        os.close(watched)
        assert ready


def test_what_cannot_run_is_refused_before_tensorflow() -> None:
    with worker() as run:
        run.order(RunSpec(workload="resnet", variant={}))
        last = run.finish()
        assert (last.outcome, "no workload called" in (last.reason or "")) == ("refused", True)
        assert run.phases == []


@pytest.mark.tensorflow
def test_what_this_processor_lacks_is_refused_at_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ONEDNN_VARIABLE, "0")
    with worker() as run:
        run.order(spec("cnn10", layout="NCHW"))
        last = run.finish()
    assert last.outcome == "refused"
    assert "no kernels for images in this layout" in (last.reason or "")


SMALL_LSTM: dict[str, Value] = {"units": 8, "timesteps": 8, "features": 4, "batch_size": 16}


SETS_A_VARIABLE = "import os; os.environ['KMP_BLOCKTIME'] = '5'; raise ImportError"


@pytest.mark.tensorflow
def test_lstm_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ONEDNN_VARIABLE, raising=False)
    monkeypatch.setenv("KMP_SETTINGS", "0")
    (tmp_path / "sklearn.py").write_text(SETS_A_VARIABLE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with worker() as run:
        run.order(spec("lstm", **SMALL_LSTM, steps=200))
        assert run.finish().outcome == "completed"
        facts = {
            key: value
            for message in run.messages
            if isinstance(message, EnvironmentInfo)
            for key, value in message.environment.items()
        }
        assert facts["tensorflow"].startswith("2.")
        assert facts["tensorflow_devices"] == "CPU"
        assert (facts[ONEDNN_KEY], facts[f"env {ONEDNN_VARIABLE}"]) == ("on", "1")
        assert "env KMP_SETTINGS" in facts
        assert "env KMP_BLOCKTIME" not in facts, "no user set it"
        measured = [block for block in run.blocks if block.phase == "measure"]
        assert sum(block.steps for block in measured) == 200
        first, last = present(run.blocks[0].loss), present(measured[-1].loss)
        assert last < 0.5 * first
        assert run.phases == ["import", "build", "compile", "warmup", "measure", "evidence", "finish"]
        (evidence,) = run.evidence
        assert (evidence.state, list(evidence.unverified)) == ("verified in part", ["implementation"])
        assert evidence.sources == ("graph", "trace")
        assert 0 < evidence.busy_ns <= evidence.span_ns
        assert {stream.device for stream in present(evidence.timeline).streams} == {"CPU"}


@pytest.mark.tensorflow
def test_cnn10_stops_quickly_and_is_gone() -> None:
    with worker() as run:
        run.order(spec("cnn10", layout="NCHW", channels=4, batch_size=2, warmup_steps=1, seconds=600.0))
        run.until(Block, "measure")
        start_s = time.monotonic()
        run.close()
        last = run.finish()
        assert time.monotonic() - start_s < STOPPED_S
        assert last.outcome == "stopped"
        assert run.blocks[-1].loss is not None
        assert run.phases[-2:] == ["measure", "finish"], "what was stopped is not traced"
        seen = [(found.actual["layout"], found.sources) for found in run.evidence]
        assert seen == [("NCHW", ("graph",))]


@pytest.mark.tensorflow
def test_a_stop_does_not_wait_for_tensorflows_import() -> None:
    with worker() as run:
        run.order(spec("lstm", **SMALL_LSTM))
        run.until(PhaseStarted, "import")
        run.close()
        assert run.finish().outcome == "stopped"
        assert run.phases == ["import"], "one that had imported would tell that it finishes"
