"""One small run's saved weights, from the command line: tried elsewhere, made into a model, and every wrong file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.storage.store import Store
from tests.fakes.command_line import LIMIT_S, CommandLine

SETTINGS = {"gpus": 0, "units": 8, "features": 4, "timesteps": 4, "layers": 2, "bidirectional": "true", "steps": 200}
LOADED = """
import json, sys
import keras, numpy as np, tensorflow as tf
model, served = keras.saving.load_model(sys.argv[1]), tf.saved_model.load(sys.argv[2])
with np.load(sys.argv[3]) as saved:
    sequences, outputs = saved["reference/sequences"], saved["reference/outputs"]
answers = model.predict_on_batch(sequences), served.serve(tf.constant(sequences)).numpy()
print(json.dumps([float(np.abs(answer - outputs).max()) for answer in answers]))
"""


def weights_of(line: CommandLine) -> Path:
    (found,) = line.database.with_name("profiles.db.weights").iterdir()
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A database with one run that saved its weights: a bidirectional stack that has begun to add."""
    line = CommandLine(tmp_path_factory.mktemp("portability"))
    words = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={value}")]
    line.read("run", "lstm", *words, "-s", "save_weights=true")
    with np.load(weights_of(line)) as saved:
        assert saved["reference/outputs"].std() > 0.1, "answers near one mean would hide a weight in the wrong place"
    return line


@pytest.mark.tensorflow
def test_the_run_tells_its_operations_and_what_share_of_the_processor_s_they_are(trained: CommandLine) -> None:
    with Store.open(trained.database) as store:
        run = store.load(1)
        known = store.calibration("cpu", "float32")
    summary = run.row.summary
    forward = 32 * (4 * 2 * 8 * 8 * (4 + 8 + 16 + 8) + 2 * 16)
    assert summary.flops_per_step == 3 * forward
    assert known is not None
    assert summary.peak_flops_per_s == known.flops_per_s > 1e8
    assert weights_of(trained).stem == run.row.uid
    assert [phase.name for phase in run.phases][-1] == "finish", "measured before anything was calibrated or saved"


@pytest.mark.tensorflow
def test_the_block_fused_op_answers_what_keras_was_trained_to(trained: CommandLine) -> None:
    document = trained.read("portability", "1", "--into", "block_fused")
    (trial,) = document["trials"]
    assert (trial["implementation"], trial["device"], trial["precision"]) == ("block_fused", "cpu", "float32")
    assert trial["max_difference"] < 1e-5
    assert trial["max_output"] > 0.5
    assert trial["same"]
    with Store.open(trained.database) as store:
        (stored,) = store.load(1).portability
    assert (stored.implementation, stored.max_difference) == ("block_fused", trial["max_difference"])


PRESET = """
    [gpu]
    question = "Not asked here."
    repeats = 1
    matrix = [{ workload = "lstm", settings = { gpus = 1 } }]
    [cpu]
    question = "Do the weights move?"
    repeats = 1
    [[cpu.matrix]]
    workload = "dummy"
    settings = { gpus = 0, steps = 5, warmup_steps = 1, step_ms = [1, 2] }
    [[cpu.portability]]
    workload = "lstm"
    into = ["block_fused", "combined_input"]
    [cpu.portability.settings]
    gpus = 0
    units = 8
    features = 4
    timesteps = 4
    layers = 2
    bidirectional = true
    steps = 200
"""


@pytest.mark.tensorflow
def test_a_preset_tries_the_weights_of_a_run_and_what_is_stored_of_that_counts(
    trained: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(PRESET, encoding="utf-8")
    made = trained.read("experiment", "--no-gate", "--preset", str(path))
    assert (made["state"], made["planned"], made["done"]) == ("complete", 3, 3), "the trained run counts"
    trials = trained.read("show", "1")["portability"][-2:]
    assert [trial["implementation"] for trial in trials] == ["block_fused", "combined_input"]
    assert all(trial["max_difference"] < 1e-5 < 0.5 < trial["max_output"] for trial in trials)
    again = trained.inside("experiment", "--no-gate", "--preset", str(path), "--json")
    assert json.loads(again.stdout) == made
    assert "Trying the weights" not in again.stderr


@pytest.mark.tensorflow
def test_the_exported_model_loads_and_answers_without_this_program(trained: CommandLine, tmp_path: Path) -> None:
    file, folder = tmp_path / "model.keras", tmp_path / "served"
    done = trained.inside("export", "1", "--model", str(file), "--model", str(folder))
    assert done.returncode == 0, done.stderr
    assert f'Wrote {file}: load it with keras.saving.load_model("{file}").' in done.stdout
    command = [sys.executable, "-c", LOADED, str(file), str(folder), str(weights_of(trained))]
    alone = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    loaded = subprocess.run(
        command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    differences = json.loads(loaded.stdout.splitlines()[-1])
    assert len(differences) == 2
    assert max(differences) < 1e-5


@pytest.mark.tensorflow
@pytest.mark.parametrize("words", [("export", "1", "--model", "m.keras"), ("portability", "1", "--into", "standard")])
def test_a_wrong_file_is_told_in_a_sentence(trained: CommandLine, tmp_path: Path, words: tuple[str, ...]) -> None:
    whole = weights_of(trained).read_bytes()
    (tmp_path / "short.npz").write_bytes(whole[: len(whole) // 2])
    done = trained.inside(*words, "--weights", str(tmp_path / "short.npz"))
    assert done.returncode == 1
    assert "is damaged, or no .npz file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.tensorflow
def test_without_a_sound_tensorflow_an_errand_says_so(trained: CommandLine, tmp_path: Path) -> None:
    code = "import os; os.write(2, b'F0000 00:00:1 7 cuda.cc:9] No such device\\n'); os.abort()"
    (tmp_path / "keras.py").write_text(code)
    line = CommandLine(tmp_path, {"PYTHONPATH": str(tmp_path)})
    done = line.inside("export", "1", "--model", str(tmp_path / "m.keras"), database=trained.database)
    assert done.returncode == 1
    assert "The process that did this ended with exit status -6: No such device" in done.stderr
    assert not (tmp_path / "m.keras").exists()


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("portability", "1", "--into", "blok_fused"), 2, "Did you mean block_fused?"),
        (("portability", "1", "--into", "cudnn"), 1, "cuDNN needs an NVIDIA GPU"),
        (("portability", "1", "--gpus", "1"), 1, "shows no NVIDIA GPU"),
        (("export", "1", "--model", "model.h5"), 2, "--model takes a file that ends in .keras, or a folder"),
        (("export", "1", "--model", "docs"), 1, "already exists; name another, or delete it first."),
        (("export", "7", "--model", "m.keras"), 1, "There is no run 7"),
    ],
)
def test_what_cannot_be_is_said_before_tensorflow_starts(
    trained: CommandLine, words: tuple[str, ...], status: int, sentence: str
) -> None:
    done = trained.inside(*words)
    assert done.returncode == status, done.stderr
    assert sentence in done.stderr
