"""The scripts of `examples/scripts` on real GPUs, unmodified: their steps are detected, on each GPU that they use."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.telemetry.sampler import take_inventory
from tests.fakes.command_line import ROOT, CommandLine

pytestmark = pytest.mark.gpu

SCRIPTS = ROOT / "examples" / "scripts"
LOOP = (SCRIPTS / "jax_loop.py").read_text(encoding="utf-8").partition("for step in range")[0].count("\n") + 1
TORCHRUN = ("--", "torchrun", "--nproc-per-node", "{gpus}", "gpt_ddp.py")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("torchvision")
    folder = str(tmp_path_factory.mktemp("images"))
    subprocess.run([sys.executable, SCRIPTS / "resnet_loader.py", folder, "--prepare"], check=True)
    return folder


@pytest.mark.parametrize(
    ("library", "gpus", "words"),
    [
        ("torch", 1, TORCHRUN),
        ("torch", 2, TORCHRUN),
        ("torchvision", 1, ("--", "python3", "resnet_loader.py", "IMAGES", "--workers", "8")),
        ("keras", 1, ("--", "python3", "keras_fit.py", "--jit")),
        ("jax", 1, ("--loop", f"jax_loop.py:{LOOP}", "--", "python3", "jax_loop.py", "--bf16")),
    ],
)
def test_a_script_is_measured_as_it_is(
    request: pytest.FixtureRequest, tmp_path: Path, library: str, gpus: int, words: tuple[str, ...]
) -> None:
    pytest.importorskip(library)
    if gpus > len(take_inventory().machine.gpus):
        pytest.skip("this machine has fewer GPUs")
    command = [request.getfixturevalue("images") if word == "IMAGES" else word for word in words]
    settings = ("-s", f"gpus={gpus}", "-s", "seconds=2", "-C", str(SCRIPTS))
    document = CommandLine(tmp_path).json("run", *settings, *command)
    assert document["outcome"] == "completed", document["reason"]
    assert document["measured"]["steps"] >= 10
    assert document["evidence"]["kernels"], document["evidence"]["notes"]
    assert "others_on_gpu" not in document["environment"]
    assert document["evidence"]["ran"].get("ranks", "1 rank") == ("1 rank" if gpus == 1 else f"{gpus} ranks")
