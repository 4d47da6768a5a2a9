"""Workloads of the user's own on the command line: real runs of the example, and of files with a fault in them."""

import json
from pathlib import Path

import pytest

from app.storage.store import Store
from tests.fakes.command_line import ROOT, CommandLine

EXAMPLE = ROOT / "examples" / "mlp.py"
SHORT = ["-s", "gpus=0", "-s", "steps=10", "-s", "warmup_steps=1"]

FAULTY = """
import numpy as np


def late(batch_size: int = 4, fault: str = "none"):
    print('{"type":"finished","outcome":"completed","t_ns":1}', flush=True)
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.Lambda(own)])

    def own_loss(wanted, given):
        if fault == "loss":
            return given.nothing_such
        return (given - wanted) ** 2

    return model, own_loss, lambda step: (np.ones((batch_size, 2)), np.ones((batch_size, 1)))


def own(values):
    return 2 * values
"""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.mark.tensorflow
def test_the_example_is_run_stored_with_its_source_and_taken_elsewhere(command: CommandLine, tmp_path: Path) -> None:
    word = f"{EXAMPLE}:mlp"
    document = command.read("run", word, *SHORT, "-s", "units=16", "-s", "precision=bfloat16")
    assert (document["workload"], document["outcome"], document["variant"]["units"]) == ("mlp.py:mlp", "completed", 16)
    assert document["evidence"]["ran"]["precision"] == "bfloat16"
    assert document["evidence"]["match"] is True
    assert document["loss"]["last"] < document["loss"]["first"]
    assert document["environment"]["own_path"] == str(EXAMPLE)
    assert command.inside("show", "1", "--source").stdout == EXAMPLE.read_text(encoding="utf-8")
    assert command.read("show", "1", "--source") == {"run": 1, "own_source": EXAMPLE.read_text(encoding="utf-8")}
    assert "own_source" not in command.inside("show", "1").stdout
    listed = json.loads(command.inside("list", "--json").stdout)["runs"]
    assert [run["workload"] for run in listed] == ["mlp.py:mlp"]
    taken = tmp_path / "taken.db"
    assert command.inside("export", "1", "-o", str(taken)).returncode == 0
    elsewhere = tmp_path / "elsewhere.db"
    assert command.inside("import", str(taken), database=elsewhere).returncode == 0
    with Store.open(elsewhere) as store:
        assert store.load(1).environment["own_source"] == EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.tensorflow
def test_a_fault_of_the_user_s_is_told_with_file_and_line(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY)
    wrong = command.inside("run", f"{file}:late", "-s", "faul=loss")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "There is no parameter of faulty.py:late called 'faul'. Did you mean fault?" in wrong.stderr
    done = command.read("run", f"{file}:late", *SHORT, "-s", "fault=loss", status=1)
    assert done["outcome"] == "failed"
    assert done["reason"].startswith("faulty.py:13: AttributeError:")


def test_a_name_of_two_lines_is_told_in_one(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "two\nlines.py"
    file.write_text("def net(batch_size: int = 4):\n    pass\n")
    missing = command.inside("run", f"{file}:other")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.splitlines()[0] == "Reading two lines.py …"
    assert missing.stderr.splitlines()[-1].startswith("two lines.py: There is no function other in it.")
    wrong = command.inside("run", f"{file}:net", "-s", "none=1")
    assert wrong.stderr.splitlines()[-1].startswith("There is no parameter of two lines.py:net called 'none'.")


SCALED = """
import numpy as np
import torch


class Scaled(torch.nn.Linear):
    def forward(self, values):
        return super().forward(self.scale * values)


def net(batch_size: int = 4, scale: float = 1.0):
    model = Scaled(8, 1)
    model.scale = scale
    values = np.random.default_rng(1).normal(size=(batch_size, 8)).astype("float32")
    return model, torch.nn.functional.mse_loss, lambda step: (values, values.sum(1, keepdims=True))
"""


def test_a_variant_that_computes_something_else_is_told_before_the_first_run(
    command: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "scaled.py"
    file.write_text(SCALED)
    given = [*SHORT, "-s", "evidence=off", "-s", "scale=1.0,1.1", "--repeats", "1"]
    done = command.inside("experiment", f"{file}:net", *given, "--no-gate", "--no-standby", "--check-equal", "--json")
    assert done.returncode == 0, done.stderr
    begun, ended, run = (
        done.stderr.index(text)
        for text in ("Checking that the variants", "scale=1.1 does not compute the same as the baseline", "[1/2]")
    )
    assert begun < ended < run
    (found,) = json.loads(done.stdout)["equality"]
    assert (found["label"], found["state"], found["runs"]) == ("scale 1.1", "differs", [2])
    assert found["loss_difference"] > 10 * found["loss_tolerance"]
    (stored,) = command.read("show", "2")["equality"]
    assert (stored["baseline"]["scale"], stored["difference"]) == (1.0, found["difference"])
    assert command.read("show", "1")["equality"] == []


def test_an_example_in_pytorch_is_run_with_evidence(command: CommandLine) -> None:
    word = f"{EXAMPLE.with_name('transformer_torch.py')}:transformer"
    sizes = ["batch_size=4", "layers=1", "heads=2", "width=8", "length=6", "vocabulary=9"]
    run = command.read("run", word, *SHORT, *(text for size in sizes for text in ("-s", size)))
    assert (run["outcome"], run["variant"]["framework"]) == ("completed", "pytorch")
    assert (run["evidence"]["match"], run["environment"]["pytorch_devices"]) == (True, "CPU")
