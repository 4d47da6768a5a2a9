"""A user's own PyTorch module on two real GPUs, by a process each and by threads, and what can go wrong there."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import ROOT, CommandLine
from tests.unit.workloads.pytorch.test_custom import NET, source

pytestmark = pytest.mark.gpu

SHORT = ("gpus=2", "steps=30", "warmup_steps=5")
RESNET = ("batch_size=64", "image_size=64", "classes=10")
TRANSFORMER = ("batch_size=128", "precision=bfloat16")


@pytest.fixture(autouse=True)
def pytorch(two_gpus: None) -> None:
    pytest.importorskip("torch")


def run(folder: Path, file: Path, function: str, *settings: str, status: int = 0) -> dict[str, Any]:
    given = [word for setting in (*SHORT, *settings) for word in ("-s", setting)]
    return CommandLine(folder).json("run", f"{file}:{function}", *given, status=status)


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    file = folder / "mine.py"
    file.write_text(source(NET, *changes).text, encoding="utf-8")
    return file


@pytest.mark.parametrize("all_reduce", ["nccl", "data_parallel"])
@pytest.mark.parametrize(("name", "sizes"), [("resnet50", RESNET), ("transformer", TRANSFORMER)])
def test_a_users_module_trains_on_two_gpus(tmp_path: Path, name: str, sizes: tuple[str, ...], all_reduce: str) -> None:
    done = run(tmp_path, ROOT / f"examples/{name}_torch.py", name, *sizes, f"all_reduce={all_reduce}")
    assert done["outcome"] == "completed", done
    evidence = done["evidence"]
    assert evidence["match"] is not False, evidence
    assert (evidence["ran"]["all_reduce"], evidence["ran"]["replicas"]) == (all_reduce, "2")
    assert [device["device"] for device in evidence["devices"]] == ["GPU:0", "GPU:1"]
    assert all(device["communication_ns"] > 0 for device in evidence["devices"])


@pytest.mark.parametrize("settings", [("compile=true",), ("mode=inference",), ("memory_limit=4", "precision=float16")])
def test_settings_hold_on_two_gpus(tmp_path: Path, settings: tuple[str, ...]) -> None:
    done = run(tmp_path, ROOT / "examples/transformer_torch.py", "transformer", "batch_size=128", *settings)
    assert done["outcome"] == "completed", done
    assert done["evidence"]["ran"]["replicas"] == "2", done["evidence"]
    assert done["evidence"]["ran"].get("memory_limit", "4 GiB") == "4 GiB"


def test_a_norm_over_all_ranks_waits_for_none_afterwards(tmp_path: Path) -> None:
    """`SyncBatchNorm` exchanges in training; what looks at outputs after the measured part is one rank alone."""
    done = run(tmp_path, written(tmp_path, ("nn.BatchNorm2d(8)", "nn.SyncBatchNorm(8)")), "net", "batch_size=64")
    assert done["outcome"] == "completed", done
    assert done["evidence"]["ran"]["examples"] == "different examples", done["evidence"]


@pytest.mark.parametrize("all_reduce", ["nccl", "data_parallel"])
def test_an_error_of_the_file_is_told_by_its_line(tmp_path: Path, all_reduce: str) -> None:
    file = written(tmp_path, ("Linear(8, 4)", "Linear(9, 4)"))
    done = run(tmp_path, file, "net", f"all_reduce={all_reduce}", status=1)
    assert done["outcome"] == "failed"
    assert "mine.py:16: RuntimeError: mat1 and mat2 shapes cannot be multiplied" in done["reason"], done


def test_memory_that_runs_out_in_a_rank_is_told_as_such(tmp_path: Path) -> None:
    settings = ("batch_size=4096", "image_size=64", "memory_limit=2")
    done = run(tmp_path, ROOT / "examples/resnet50_torch.py", "resnet50", *settings, status=1)
    assert done["outcome"] == "out_of_memory", done
    assert "under a memory limit of 2 GiB" in done["reason"]
