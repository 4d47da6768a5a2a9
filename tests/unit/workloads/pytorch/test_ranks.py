"""Two processes compute together what one does; whatever ends one of them ends the run, in a sentence, and both."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed

from tests.evidence_runs import spec_of
from tests.fakes.processes import has_ended
from tests.present import present
from tests.unit.workloads.test_frameworks import computed, difference, task_of
from workloads import seeding
from workloads.errors import CustomWorkloadError
from workloads.protocol import (
    PROTOCOL_VERSION,
    Block,
    Evidence,
    Finished,
    Message,
    RunSpec,
    Source,
    Start,
    Value,
    decode_message,
    encode,
)
from workloads.pytorch import ranks, steps
from workloads.pytorch.backend import PytorchBackend
from workloads.training import Task

pytestmark = pytest.mark.usefixtures("restored_variables")
ROOT = Path(__file__).parents[4]


def in_pytorch(workload: str, **settings: Value) -> RunSpec:
    return spec_of(workload, framework="pytorch", cpu_threads=1, **settings)


@pytest.fixture(autouse=True)
def _all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has as many as the one of the other rank."""
    monkeypatch.setattr(seeding, "_MAX_BATCHES", 64)


@pytest.fixture
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks, although there are no GPUs."""
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)


@contextmanager
def connected(spec: RunSpec, source: Source | None = None) -> Iterator[Task]:
    """The task of two ranks, this process and another one."""
    task, ends = task_of(spec, source), list[Finished]()
    task.connect(ends.append)
    try:
        yield task
    finally:
        task.close()
        torch.distributed.destroy_process_group()
    assert ends == []


def collected(spec: RunSpec, task: Task) -> Evidence:
    collector = PytorchBackend().make_collector(spec, task)
    collector.first_step_done()
    collector.trace()
    return present(collector.evidence())


def planted(path: Path, plant: str) -> Path:
    """A program in place of the other rank's, which does something else first."""
    path.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from workloads.pytorch import models, rank, ranks, steps\n"
        f"{plant}\n"
        "rank.main()\n"
    )
    return path


SAME_PART = "share = ranks.Share.of; ranks.Share.of = lambda self, batch: share(ranks.Share(0, self.ranks), batch)"


def test_two_ranks_train_as_one_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = in_pytorch("lstm", bidirectional=True, sequence_lengths="right_padded")
    alone = task_of(spec)
    expected = [alone.fetch(alone.step()) for _ in range(6)]
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)
    with connected(spec) as task:
        assert [task.fetch(task.step()) for _ in range(6)] == pytest.approx(expected, rel=1e-5)
        evidence = collected(spec, task)
    assert evidence.actual == {**evidence.requested, "all_reduce": "gloo"}, "there is no NCCL on the CPU"
    assert [device.device for device in evidence.devices] == ["CPU:0", "CPU:1"]
    assert [kernel.name for kernel in evidence.kernels if kernel.kind == "communication"] == ["c10d::allreduce_"]


def test_gradients_of_two_ranks_are_those_of_two_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Batch norm is of a part, and of a rank; the weights come from another seed."""
    start = tmp_path / "start.npz"
    spec = in_pytorch("cnn10", precision="float16")
    computed(in_pytorch("cnn10", seed=2), start)
    of_parts = computed(spec, tmp_path / "parts.npz", parts=2, start=start)
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)
    of_ranks = computed(spec, tmp_path / "ranks.npz", start=start)
    torch.distributed.destroy_process_group()
    assert of_ranks.losses == pytest.approx(of_parts.losses, rel=1e-6)
    assert difference(tmp_path / "ranks.npz", tmp_path / "parts.npz") < 1e-5


@pytest.mark.usefixtures("_two")
def test_an_idle_rank_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ranks, "_ENTRY", planted(tmp_path / "same.py", SAME_PART))
    spec = in_pytorch("gru")
    with connected(spec) as task:
        task.step()
        evidence = collected(spec, task)
    assert evidence.match is False
    assert (evidence.requested["replicas"], evidence.actual["replicas"]) == ("2", "1")
    assert "computed 1 different parts" in (evidence.reason or "")


@pytest.mark.usefixtures("_two")
def test_ranks_that_train_alone_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ranks, "_ENTRY", planted(tmp_path / "alone.py", "steps.Step.join = lambda self: None"))
    monkeypatch.setattr(steps.Step, "join", lambda self: None)
    spec = in_pytorch("gru")
    with connected(spec) as task:
        task.step()
        evidence = collected(spec, task)
    assert evidence.actual["replicas"] == "2"
    assert (evidence.requested["all_reduce"], evidence.actual["all_reduce"]) == ("nccl", "none")
    assert "each trained alone" in (evidence.reason or "")


@pytest.mark.parametrize("of_a_file", [False, True])
def test_a_broken_exchange_is_told_as_such_and_is_none_of_the_users_errors(of_a_file: bool) -> None:
    broken = torch.distributed.DistBackendError("NCCL error: unhandled system error")
    raised = CustomWorkloadError("mine.py:19: DistBackendError: NCCL error: unhandled system error")
    raised.__cause__ = broken
    cause = present(PytorchBackend().explain_error(raised if of_a_file else broken))
    assert cause.outcome == "failed"
    assert cause.reason == "GPUs could not exchange gradients: DistBackendError: NCCL error: unhandled system error."


class Running:
    """A worker of two ranks, up to its first measured block."""

    def __init__(self, entry: Path, spec: RunSpec, source: Source | None = None) -> None:
        program = (
            "from workloads.pytorch import ranks; import pathlib; ranks.replica_count = lambda variant: 2; "
            f"ranks._ENTRY = pathlib.Path({str(entry)!r}); from workloads.worker import main; main([])"
        )
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, cwd=ROOT)
        assert self.process.stdin is not None
        self.process.stdin.write(encode(Start(protocol=PROTOCOL_VERSION, spec=spec, source=source)))
        self.process.stdin.flush()

    def messages(self) -> Iterator[Message]:
        return map(decode_message, present(self.process.stdout))

    def other_rank(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child


OUT_OF_MEMORY = """
step, steps_done = steps.Step.__call__, []
def fail(self):
    steps_done.append(1)
    if len(steps_done) > 9:
        raise MemoryError
    return step(self)
steps.Step.__call__ = fail
"""


@pytest.mark.parametrize(
    ("end", "plant", "outcome", "words"),
    [
        ("wait", OUT_OF_MEMORY, "out_of_memory", "Memory ran out at batch size 8"),
        ("stop", "", "stopped", "Stopped before its end"),
        ("kill the worker", "", None, ""),
    ],
)
def test_whatever_ends_a_rank_ends_the_run_and_all_ranks(
    tmp_path: Path, end: str, plant: str, outcome: str | None, words: str
) -> None:
    running = Running(planted(tmp_path / "rank.py", plant), in_pytorch("gru", seconds=600.0))
    rank: psutil.Process | None = None
    finished: list[Finished] = []
    for message in running.messages():
        if isinstance(message, Block) and message.phase == "measure" and rank is None:
            rank = running.other_rank()
            match end:
                case "kill the worker":
                    running.process.kill()
                case "stop":
                    present(running.process.stdin).close()
        if isinstance(message, Finished):
            finished.append(message)
    running.process.wait(60)
    assert [message.outcome for message in finished] == ([outcome] if outcome else [])
    assert all(words in (message.reason or "") for message in finished), finished
    assert rank is None or has_ended(rank.pid)
    for pipe in (running.process.stdin, running.process.stdout):
        assert pipe is not None
        pipe.close()
