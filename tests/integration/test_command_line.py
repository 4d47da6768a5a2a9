"""The command line in processes of its own: documents, exit statuses, sentences; training with real TensorFlow."""

import contextlib
import json
import signal
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from app.storage.store import Store
from tests.fakes.command_line import LIMIT_S, CommandLine, Process, dummy_arguments
from tests.fakes.nvml import LAPTOP, TWO_H200, Card, Driver, environment
from tests.fakes.nvml_cards import Flaw
from tests.present import present

TENSORFLOW_NOISE = ("oneDNN", "cuda", "CUDA", "cpu_feature_guard", "WARNING", "Traceback")
RUN_FIELDS = {
    "run": set(),
    "workload": set(),
    "variant": set(),
    "outcome": set(),
    "reason": set(),
    "phases": set(),
    "throughput": {"value", "unit", "blocks"},
    "step_ms": {"p50", "p95", "p99", "gpu"},
    "loss": {"first", "last"},
    "energy": {"mj_per_example", "source"},
    "memory": {"device_peak_bytes", "allocator_peak_bytes"},
    "evidence": set(),
    "environment": set(),
    "devices": set(),
}
"""What the `run` document always holds."""


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A database with three short runs of the dummy: 1 ms a step, 50 ms a step, and one that fails."""
    line = CommandLine(tmp_path_factory.mktemp("trained"))
    line.read("run", *dummy_arguments())
    line.read("run", *dummy_arguments(step_ms=50.0))
    line.read("run", *dummy_arguments(behaviour="fail"), status=1)
    return line


def assert_has_fields(document: dict[str, Any]) -> None:
    for name, parts in RUN_FIELDS.items():
        assert name in document, name
        assert not parts or parts <= set(document[name]), name


@pytest.mark.tensorflow
def test_training_with_tensorflow_gives_one_whole_document(command_line: CommandLine) -> None:
    settings = ("layout=NHWC", "channels=4", "steps=20", "evidence=graph", "gpus=0")
    done = command_line("run", "cnn10", *(word for setting in settings for word in ("-s", setting)), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert_has_fields(document)
    assert (document["outcome"], document["reason"]) == ("completed", None)
    assert document["throughput"]["value"] > 0
    assert document["throughput"]["unit"] == "images/s"
    assert all(value > 0 for value in document["throughput"]["blocks"])
    assert document["loss"]["last"] < document["loss"]["first"]
    assert document["step_ms"]["p50"] <= document["step_ms"]["p95"] <= document["step_ms"]["p99"]
    assert document["memory"]["device_peak_bytes"] > 100_000_000, "the worker with TensorFlow in it"
    assert document["memory"]["allocator_peak_bytes"] is None, "a CPU run has no allocator figure"
    phases = [phase["phase"] for phase in document["phases"]]
    assert phases == ["import", "build", "compile", "warmup", "measure", "finish"]
    assert {"tensorflow", "keras", "python", "cpu", "os", "program_version"} <= set(document["environment"])
    assert not [word for word in TENSORFLOW_NOISE if word in done.stderr], done.stderr
    assert document == command_line.read("show", "1"), "stored as it was printed"


def test_training_with_jax_is_verified_and_names_its_version(command_line: CommandLine) -> None:
    settings = ("framework=jax", "gpus=0", "units=8", "timesteps=10", "unroll=5", "steps=20")
    document = command_line.read("run", "lstm", *(word for setting in settings for word in ("-s", setting)))
    assert (document["outcome"], document["reason"]) == ("completed", None)
    assert document["evidence"]["match"] is True
    assert document["environment"]["jax"][0].isdigit()
    assert "jaxlib" in document["environment"]
    assert document["loss"]["last"] < document["loss"]["first"]


@pytest.mark.parametrize(
    ("variable", "outcome", "reason"),
    [
        ("XLA_FLAGS=--none_such=1", "crashed", "JAX gave up: Unknown flag"),
        ("JAX_DISABLE_JIT=1", "refused", "JAX_DISABLE_JIT keeps XLA from compiling the step; unset it"),
    ],
)
def test_a_variable_that_jax_cannot_run_with_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, outcome: str, reason: str
) -> None:
    monkeypatch.setenv(*variable.split("=", 1))
    command_line = CommandLine(tmp_path)
    document = command_line.read("run", "lstm", "-s", "framework=jax", "-s", "gpus=0", "-s", "steps=2", status=1)
    assert document["outcome"] == outcome
    assert document["reason"].startswith(reason)


def test_what_did_not_complete_is_status_1(trained: CommandLine) -> None:
    document = trained.read("show", "3")
    assert (document["outcome"], document["reason"]) == ("failed", "ValueError: the dummy fails, as asked")
    assert_has_fields(document)
    text = trained.inside("show", "3", "--log").stdout
    assert "Traceback (most recent call last)" in text


def test_list_names_runs_newest_first(trained: CommandLine) -> None:
    runs = trained.read("list")["runs"]
    assert [run["run"] for run in runs] == [3, 2, 1]
    for run in runs:
        assert {"run", "started_utc", "workload", "variant", "outcome", "throughput", "match", "state"} <= set(run)
        assert datetime.fromisoformat(run["started_utc"]).tzinfo is not None
    table = trained.inside("list").stdout.splitlines()
    assert table[0].split() == ["run", "started", "variant", "outcome", "evidence", "throughput", "tags"]
    assert len(table) == 4


def test_an_experiment_repeats_and_ends_in_a_verdict(command_line: CommandLine) -> None:
    document = command_line.read(
        "experiment", "--no-gate", *dummy_arguments(step_ms="1,60"), "--repeats", "2", "--baseline", "step_ms=60"
    )
    assert [(row["variant"]["step_ms"], row["n"]) for row in document["rows"]] == [(60.0, 2), (1.0, 2)]
    assert document["rows"][1]["speedup"]["ratio"] > 2
    assert document["verdict"]["decision"] == "too few runs"
    order = [run["variant"]["step_ms"] for run in reversed(command_line.read("list")["runs"])]
    assert [sorted(order[:2]), sorted(order[2:])] == [[1.0, 60.0]] * 2, "interleaved"


def test_ctrl_c_stops_the_run_and_stores_it(command_line: CommandLine) -> None:
    process = command_line.start("run", *dummy_arguments(steps=0, seconds=600.0), "--json")
    document, err = interrupted(process, "measure\n")
    assert (process.returncode, document["outcome"]) == (1, "stopped")
    assert "Traceback" not in err
    assert command_line.read("show", "1")["outcome"] == "stopped"


def interrupted(process: Process, line: str) -> tuple[dict[str, Any], str]:
    """Ctrl-C once that line of progress has come: the document on stdout, and what was said afterwards."""
    while present(process.stderr).readline() != line:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    return json.loads(out), err


def test_ctrl_c_ends_an_experiment_with_the_runs_made_so_far(command_line: CommandLine) -> None:
    words = dummy_arguments(steps=0, seconds="0.1,600")
    command_line.read("run", *dummy_arguments(steps=0, seconds=0.1))  # whichever comes first: the other is left
    process = command_line.start("experiment", "--no-gate", *words, "--repeats", "2", "--json")
    document, err = interrupted(process, "[2/4] measure\n")
    assert process.returncode == 1
    assert [row["outcomes"] for row in document["rows"]] == [["completed", "stopped"]], "measured longer or not"
    assert (document["state"], document["planned"], document["done"]) == ("stopped", 4, 1)
    goes_on = "The same command continues from here, or `python -m app queue run 1`."
    assert err.splitlines()[-1] == f"Stopped: 1 of 4 runs done. {goes_on}"
    assert "Traceback" not in err
    again = command_line.read("experiment", "--no-gate", *words, "--repeats", "2", "--budget", "1m", status=1)
    assert (again["state"], again["done"]) == ("out of budget", 1), "ten minutes are not begun within one"
    assert [row["runs"] for row in again["rows"]] == [[1]], "what was stopped is no result"


def test_an_experiment_keeps_to_its_budget_and_goes_on_from_what_is_stored(command_line: CommandLine) -> None:
    # A run of two seconds takes longer than that, so that a second one never ends within four.
    words = ["experiment", "--no-gate", *dummy_arguments(steps=0, seconds=2.0, step_ms="1,2"), "--repeats", "1"]
    first = command_line.read(*words, "--budget", "4s", status=1)
    assert (first["state"], first["planned"], first["done"]) == ("out of budget", 2, 1)
    rest = command_line.read(*words)
    assert (rest["state"], rest["done"], sorted(row["runs"] for row in rest["rows"])) == ("complete", 2, [[1], [2]])
    nothing = command_line.inside(*words, "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)) == (0, rest), "nothing is run twice"
    assert "All 2 runs are stored: nothing is left to run." in nothing.stderr
    more = command_line.read(*words[:-1], "2", "--budget", "0.5s", status=1)
    assert (more["planned"], more["done"], len(command_line.read("list")["runs"])) == (4, 2, 2), "more repeats go on"
    assert command_line.read("show", "1")["environment"]["planned_repeats"] == "1"


def test_runs_of_another_day_count_only_if_asked_for_or_made_by_an_experiment_that_goes_on(
    command_line: CommandLine,
) -> None:
    words = ["experiment", "--no-gate", *dummy_arguments(steps=0, seconds=0.1, step_ms="1,2"), "--repeats"]
    command_line.read(*words, "1")
    with contextlib.closing(sqlite3.connect(command_line.database)) as database, database:
        database.execute("UPDATE runs SET started_utc_ns = started_utc_ns - 86400000000000")
    no_time = ("--budget", "0.001s", "--json")
    anew = command_line.inside(*words, "1", *no_time)
    assert (anew.returncode, json.loads(anew.stdout)["done"]) == (1, 0)
    assert "--reuse counts them." in anew.stderr.splitlines()
    counted = command_line.read(*words, "2", "--reuse", *no_time[:2], status=1)
    assert (counted["done"], counted["planned"]) == (2, 4)
    its_own = command_line.read(*words, "2", *no_time[:2], status=1)
    assert (its_own["done"], its_own["planned"]) == (2, 4), "what once counted for it counts as long as it goes on"
    assert len(command_line.read("list")["runs"]) == 2


def test_an_experiment_ends_early_once_its_speed_ups_are_known(command_line: CommandLine) -> None:
    steps = dummy_arguments(step_ms="20,40", steps=10)
    words = ["experiment", "--no-gate", *steps, "--until", "99%", "--repeats", "20"]
    done = command_line.inside(*words, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["state"], document["until_pct"]) == (0, "settled", 99.0)
    assert [row["n"] for row in document["rows"]] == [document["repeats"]] * 2
    assert 3 <= document["repeats"] < 20, "the first look is after three processes"
    assert max(document["half_widths_pct"]) <= 99
    assert [row["looks"] for row in document["rows"]] == [1, 1], "the program looked, not somebody who hoped"
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("40 runs planned at most, 0 done, 40 left (")
    assert last.startswith(
        f"Target precision reached after {document['repeats']} repeats: {document['done']} runs done. Speed-ups are"
    )
    again = command_line.inside(*words, "--json")
    assert json.loads(again.stdout) == document, "nothing is run twice"
    assert "Nothing is left to run; --again repeats every run." in again.stderr


def test_ctrl_c_ends_watch_quietly(command_line: CommandLine) -> None:
    process = command_line.start("watch", "--json", "--every", "0.1")
    assert json.loads(present(process.stdout).readline())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("word", ["run", "list"])
def test_a_database_that_cannot_be_is_one_sentence_and_status_1(
    command_line: CommandLine, tmp_path: Path, word: str
) -> None:
    words = [word, *dummy_arguments()] if word == "run" else [word]
    (tmp_path / "notes.txt").write_text("These are notes. " * 100)
    done = command_line.inside(*words, database=tmp_path / "notes.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not an SQLite database" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_gpus_shows_cards_fields_and_reasons(tmp_path: Path) -> None:
    refused = Card(uuid="GPU-x", flaws=(Flaw("nvmlDeviceGetHandleByIndex_v2", "UNKNOWN"),))
    line = CommandLine(tmp_path, environment(Driver(cards=(TWO_H200[0], LAPTOP, refused))))
    document = line.json("gpus")
    assert (document["driver"], document["cuda_driver"]) == ("580.65.06", "13.0")
    first, laptop, closed = document["gpus"]
    reason = "The driver does not open this GPU (Unknown Error)."
    assert (closed["index"], closed["lost"], first["lost"]) == (2, reason, None)
    assert (first["index"], first["uuid"], first["name"]) == (0, "GPU-aaaa", "NVIDIA H200")
    assert first["memory_total_bytes"] == 150_754_820_096
    power = first["fields"]["power_mw"]
    assert (power["supported"], power["value"], power["reason"], power["unit"]) == (True, 688_123, None, "mW")
    assert power["cost_us"] > 0
    lacking = laptop["fields"]["power_mw"]
    assert (lacking["supported"], lacking["value"], lacking["reason"]) == (False, None, "not supported")
    energy = first["fields"]["energy_mj"]
    assert (energy["supported"], energy["unit"]) == (True, "mJ")
    assert energy["value"] > 0, "slow values are waited for"
    assert energy["period_ms"] == pytest.approx(100, abs=40), "watched until it changed"
    assert document["host"]["fields"]["memory_bytes"]["value"] > 0
    text = line.inside("gpus").stdout
    assert "driver 580.65.06, CUDA up to 13.0" in text
    (overview,) = (row for row in text.splitlines() if row.startswith("0 "))
    assert "688 W" in overview
    assert "power_mw" not in text, "the name has another unit than the value beside it"
    assert reason in text
    assert len(text.splitlines()) < 12, "a line a card, and why one is lost"
    every = line.inside("gpus", "--all").stdout
    assert len(every.splitlines()) > 60
    assert {f"GPU {n}" for n in range(3)} <= {row[:5] for row in every.splitlines()}
    assert "Host" in every
    assert not line.database.exists(), "looking makes no database"


@pytest.mark.parametrize("words", [["watch", "--json", "--every", "0.05"], ["list", "--json"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(trained: CommandLine, words: list[str]) -> None:
    process = trained.start(*words)
    assert process.stdout is not None
    assert process.stderr is not None
    if words[0] == "watch":
        assert json.loads(process.stdout.readline())
    # Without a single byte read, `list` meets the closed pipe at its first write.
    process.stdout.close()
    process.wait(LIMIT_S)
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_result_that_cannot_be_written_is_said_in_words(trained: CommandLine) -> None:
    with Path("/dev/full").open("w") as full:
        process = trained.start("list", "--json", stdout=full)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert err.startswith("The result cannot be written: the disk is full.")
    assert len(err.splitlines()) == 1


def test_an_experiment_of_which_nothing_can_run_measured_nothing(command_line: CommandLine) -> None:
    words = dummy_arguments(gpus=1, seed="1,2")
    done = command_line.inside("experiment", *words, "--repeats", "1", "--parallel", "2")
    assert done.returncode == 1
    assert "Nothing was measured: none of 2 runs completed." in done.stderr + done.stdout
    assert "on the CPU" not in done.stderr


def test_a_terminal_without_signs_for_all_words_gets_the_verdict(tmp_path: Path, trained: CommandLine) -> None:
    """`×` is in Latin-1, `…` and `µ`s of other alphabets are not; ASCII has none of them."""
    poor = CommandLine(tmp_path, {"PYTHONIOENCODING": "ascii"})
    done = poor("compare", "1", "2", database=trained.database)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "?" in done.stdout


def test_a_run_that_nobody_listens_to_is_made_and_stored(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    done = line("experiment", *dummy_arguments(step_ms="1.0,2.0"), "--repeats", "1", redirect="<&- >&- 2>&-")
    assert done.returncode == 0, done.stderr
    with Store.open(line.database) as store:
        assert [row.outcome.name for row in store.list_runs() if row.outcome] == ["completed"] * 2


def test_a_gate_fails_what_is_slower_and_passes_what_is_not(command_line: CommandLine, tmp_path: Path) -> None:
    # Twice the time of a step is no noise on any machine: the gate of 90 % passes it, and that of 10 % does not.
    words = ["experiment", "--no-gate", *dummy_arguments(step_ms="20,40", steps=10), "--repeats", "3"]
    summary = tmp_path / "speed.md"
    slower = command_line.inside(*words, "--fail-if-slower", "10%", "--summary", str(summary))
    assert slower.returncode == 3, slower.stderr
    assert slower.stderr.splitlines()[-1].startswith("Failed: slower by more than 10 %. ")
    assert summary.read_text("utf-8").startswith("## Failed: slower by more than 10\xa0%\n")
    passed = command_line.read(*words, "--fail-if-slower", "90%")
    assert (passed["gate"]["outcome"], passed["state"]) == ("passed", "complete"), "of the same runs"


def test_a_run_needs_no_home_no_locale_and_nobody_who_reads(tmp_path: Path) -> None:
    """Without what a service, a container or a batch system may lack: HOME, XDG folders, TMPDIR, a locale, streams."""
    nowhere = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "TMPDIR"), "/dev/null")
    bare = CommandLine(tmp_path, {**nowhere, "LC_ALL": "C", "PYTHONUTF8": "0", "VARIANTSCOPE_LOG_DIR": ""})
    done = bare("run", *dummy_arguments(), redirect="<&- 2>&-")
    assert done.returncode == 0
    assert "throughput" in done.stdout
    assert "train ? CPU" in done.stdout, "a dot that ASCII lacks"
    assert bare.json("show", "1")["outcome"] == "completed"
