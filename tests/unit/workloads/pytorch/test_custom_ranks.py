"""A user's own module on two devices: ranks share its batches, and what goes wrong in one of them ends the run."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
import torch._utils  # what DataParallel passes errors of its threads on with
import torch.distributed

from tests.fakes.processes import has_ended
from tests.unit.workloads.pytorch.test_custom import NET, example, source, spec_of
from tests.unit.workloads.pytorch.test_ranks import Running, connected, planted
from tests.unit.workloads.test_frameworks import collected, task_of
from workloads import seeding
from workloads.catalog import CustomFile, Gpu, Machine, check, custom_workload, fill_defaults
from workloads.custom.source import describe_file
from workloads.errors import outcome_of
from workloads.protocol import Block, Finished, Source
from workloads.pytorch import ranks
from workloads.pytorch.custom import CustomStep

OWN = ("batch\n", "batch, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n")
# Without a batch norm, whose statistics are of a part, two parts compute what the whole does.
BUFFER = (
    ("nn.BatchNorm2d(8)", "nn.Dropout(0.0); self.register_buffer('noise', torch.randn(8))"),
    ("mean((2, 3))", "mean((2, 3)) * self.noise"),
    ("model = Net()", "torch.manual_seed(-1); model = Net()"),
)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "-1")
    monkeypatch.setattr(seeding, "_MAX_BATCHES", 64)  # as many as in the process of the other rank
    torch.set_num_threads(1)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks, although there are no GPUs."""
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ((*BUFFER, OWN, ("images.to(memory_format=form), classes", "{'images': images}, classes")), "train"),
        (BUFFER, "inference"),
    ],
    ids=["own optimizer, inputs by name", "inference"],
)
def test_two_ranks_compute_what_one_device_does(
    monkeypatch: pytest.MonkeyPatch, changes: tuple[tuple[str, str], ...], mode: str
) -> None:
    given = source(NET, *changes)
    spec = spec_of(given, mode=mode)
    alone = task_of(spec, given)
    expected = [alone.fetch(alone.step()) for _ in range(6)]
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)
    with connected(spec, given) as task:
        assert [task.fetch(task.step()) for _ in range(6)] == pytest.approx(expected, rel=1e-5)
        assert len(set(expected)) > 1


@pytest.mark.usefixtures("_two")
def test_ranks_leave_out_others_in_their_dropout() -> None:
    given = source(NET, ("nn.CrossEntropyLoss()", "lambda outputs, targets: 0 * outputs.sum() + torch.rand([])"))
    spec = spec_of(given)
    with connected(spec, given) as task:
        mean = task.fetch(task.step())
        assert isinstance(task.step, ranks.RankedStep)
        assert isinstance(task.step.local, CustomStep)
        assert mean != pytest.approx(float(task.step.local.last), rel=1e-6)


@pytest.mark.usefixtures("_two")
def test_evidence_is_of_both_ranks() -> None:
    sizes = {"batch_size": 4, "layers": 1, "heads": 2, "width": 16, "length": 8, "vocabulary": 20}
    given = example("transformer_torch.py")
    spec = spec_of(given, "transformer", **sizes)
    with connected(spec, given) as task:
        found = collected(spec, task)
    assert found.actual == {**found.requested, "all_reduce": "gloo"}, "there is no NCCL on the CPU"
    assert found.requested["replicas"] == "2"
    assert found.actual["training"] == "all weights trained"


IN_THE_RANK = "sys.argv[0].endswith('rank.py')"
"""What a file can ask to behave otherwise in the other process than in the worker."""
ASKS = ("import numpy as np\n", "import sys\nimport numpy as np\n")
LONG = ("import numpy as np\n", f"import numpy as np\n# {'x' * 2**18}\n")

UNUSED = ("Linear(8, 4)", "Linear(8, 4); self.more = nn.Linear(2, 2)")
AT_FIRST = (
    ("Linear(8, 4)", "Linear(8, 4); self.more, self.steps = nn.Linear(4, 4), 0"),
    (
        "return self.head(found.mean((2, 3)))",
        (
            "self.steps += 1\n        found = self.head(found.mean((2, 3)))\n"
            "        return self.more(found) if self.steps < 3 else found"
        ),
    ),
)
FORKS = (
    "model = Net()",
    (
        f"model = Net()\n    if {IN_THE_RANK}:\n        import multiprocessing, time\n"
        "        multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,)).start()"
    ),
)
FROZEN = (UNUSED[0], f"{UNUSED[1]}.requires_grad_(False)")


@pytest.mark.parametrize(
    ("changes", "kills", "reason"),
    [
        ((ASKS, LONG, FROZEN, FORKS), True, "The process of rank 1 was ended by SIGKILL"),
        (
            (ASKS, ("model = Net()", f"model = Net() if not {IN_THE_RANK} else unknown")),
            False,
            "Rank 1: mine.py:21: NameError: name 'unknown' is not defined",
        ),
        (
            (ASKS, ("nn.Linear(8, 4)", f"nn.Linear(8, 5 if {IN_THE_RANK} else 4)")),
            False,
            "mine.py:20: RuntimeError: [1]: params[4] in this process with sizes [5, 8] appears not to match",
        ),
        (
            (UNUSED,),
            False,
            "mine.py:19: The loss does not depend on more.weight, more.bias, and DistributedDataParallel waits",
        ),
        (
            AT_FIRST,
            False,
            "mine.py:21: The loss does not depend on each weight in each step, and DistributedDataParallel waits",
        ),
    ],
    ids=["killed", "error in the function", "another model", "unused weights", "weights unused later"],
)
def test_whatever_ends_a_rank_ends_the_run_with_the_users_line(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], kills: bool, reason: str
) -> None:
    given = source(NET, *changes)
    running = Running(planted(tmp_path / "rank.py", ""), spec_of(given, seconds=600.0), given)
    rank, forked, finished = None, list[psutil.Process](), list[Finished]()
    for message in running.messages():
        if kills and isinstance(message, Block) and message.phase == "measure" and rank is None:
            rank = running.other_rank()
            forked = rank.children()
            rank.kill()
        if isinstance(message, Finished):
            finished.append(message)
    running.process.wait(60)
    for process in forked:
        process.kill()
    assert [message.outcome for message in finished] == ["failed"]
    assert reason in (finished[0].reason or "")
    assert len(forked) == kills
    assert rank is None or has_ended(rank.pid)
    for pipe in (running.process.stdin, running.process.stdout):
        assert pipe is not None
        pipe.close()


def on_two_gpus(given: Source, batch_size: int, **settings: str) -> list[str]:
    """What is refused on a machine with two GPUs."""
    (described,) = describe_file(given, "net").workloads
    workload = custom_workload(described, CustomFile(path=given.path, sha256=given.sha256))
    machine = Machine(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200") for n in range(2)), cpu_count=8)
    spec = fill_defaults(workload, {"gpus": 2, "batch_size": batch_size, **settings}, machine)
    return [refusal.reason for refusal in check(spec, machine)]


def test_two_gpus_share_a_batch_that_divides() -> None:
    assert on_two_gpus(source(), 16) == on_two_gpus(source(), 16, all_reduce="data_parallel") == []
    assert on_two_gpus(source(), 17) == ["A global batch of 17 does not divide evenly among 2 GPUs."]


def test_an_error_in_a_thread_of_data_parallel_is_told_by_its_line() -> None:
    """Its threads need GPUs; how it passes on what they raise does not."""
    given = source(NET, ("Linear(8, 4)", "Linear(9, 4)"))
    task = task_of(spec_of(given), given)
    try:
        task.step()
    except RuntimeError:
        wrapped = torch._utils.ExceptionWrapper(where="in replica 1 on device 1")
    with pytest.raises(RuntimeError) as raised:
        wrapped.reraise()
    assert outcome_of(raised.value, {}, None, given).reason == (
        "mine.py:16: RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x8 and 9x4)"
    )
