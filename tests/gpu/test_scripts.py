"""The scripts of `examples/scripts` on real GPUs, unmodified: their steps are detected, on each GPU that they use."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.command_line import ROOT, CommandLine

pytestmark = pytest.mark.gpu

SCRIPTS = ROOT / "examples" / "scripts"
LOOP = (SCRIPTS / "jax_loop.py").read_text(encoding="utf-8").partition("for step in range")[0].count("\n") + 1
TORCHRUN = ("torchrun", "--nproc-per-node", "{gpus}", "gpt_ddp.py")


def measure(folder: Path, library: str, *words: str, gpus: int = 1) -> None:
    pytest.importorskip(library)
    settings = ("-s", f"gpus={gpus}", "-s", "seconds=2", "-C", str(SCRIPTS))
    document = CommandLine(folder).json("run", *settings, *words)
    assert document["outcome"] == "completed", document["reason"]
    assert document["measured"]["steps"] >= 10
    assert "others_on_gpu" not in document["environment"]
    assert document["evidence"]["ran"].get("ranks", "1 rank") == ("1 rank" if gpus == 1 else f"{gpus} ranks")


def test_torchrun_on_one_gpu(tmp_path: Path) -> None:
    measure(tmp_path, "torch", "--", *TORCHRUN)


@pytest.mark.usefixtures("two_gpus")
def test_torchrun_on_two_gpus(tmp_path: Path) -> None:
    measure(tmp_path, "torch", "--", *TORCHRUN, gpus=2)


def test_a_loader_of_files(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    data = str(tmp_path / "data")
    subprocess.run([sys.executable, SCRIPTS / "resnet_loader.py", data, "--prepare"], check=True)
    measure(tmp_path, "torch", "--", "python3", "resnet_loader.py", data, "--workers", "8")


def test_keras_fit(tmp_path: Path) -> None:
    measure(tmp_path, "keras", "--", "python3", "keras_fit.py", "--jit")


def test_a_jax_loop(tmp_path: Path) -> None:
    measure(tmp_path, "jax", "--loop", f"jax_loop.py:{LOOP}", "--", "python3", "jax_loop.py", "--bf16")
