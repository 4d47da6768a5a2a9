"""The gate before real runs on fake cards, and throttled runs of an experiment from the command line."""

import json
from pathlib import Path

import pytest

from app.values.environment_keys import IDLE_WAIT_KEY, THROTTLED_KEY
from tests.fakes.command_line import CommandLine, dummy_arguments
from tests.fakes.nvml import environment
from tests.fakes.nvml_cards import Card, Driver

OTHER_PID = 4_194_304 + 2
"""A number that no process has."""
SHARED = Card(uuid="GPU-shared", throttle_reasons=0, processes=((OTHER_PID, 1_000_000_000),))
HOT = Card(uuid="GPU-hot", throttle_reasons=0x40)


def test_a_wait_that_gives_up_says_on_whom_and_the_verdict_doubts_its_run(tmp_path: Path) -> None:
    shared = CommandLine(tmp_path, environment(Driver(cards=(SHARED,))))
    words = ["experiment", *dummy_arguments(gpus=1, step_ms="1,2"), "--repeats", "1", "--gate-limit", "2s"]
    made = shared.inside(*words, "--json")
    assert made.returncode == 0, made.stderr
    other = f"process ({OTHER_PID}) on GPU 0"
    said = next(line for line in made.stderr.splitlines() if line.startswith("The machine did not become idle within "))
    assert other in said
    (warning,) = (each for each in json.loads(made.stdout)["warnings"] if each["key"] == IDLE_WAIT_KEY)
    assert other in warning["runs"]["1"]
    assert other in warning["text"]


@pytest.fixture(scope="module")
def hot(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("hot"), environment(Driver(cards=(HOT,))))


def test_a_throttled_run_is_made_once_more_and_counted_once(hot: CommandLine) -> None:
    short = dummy_arguments(gpus=1, steps=0, seconds=1, step_ms="1,2")
    words = ["experiment", *short, "--repeats", "1", "--gate-limit", "0.3s"]
    done = hot.inside(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert "Run 1 was throttled for 100 % of its measured part: it does not count" in done.stderr
    assert done.stderr.count("does not count") == 2
    document = hot.read(*words)
    assert (document["planned"], document["done"]) == (2, 2)
    assert [run["run"] for run in hot.read("list")["runs"]] == [4, 3, 2, 1], "nothing was made by the second call"
    assert [row["runs"] for row in document["rows"]] == [[2], [4]]
    (warning,) = (each for each in document["warnings"] if each["key"] == "throttled heat")
    assert "100\N{NO-BREAK SPACE}%" in warning["text"]
    facts = hot.read("show", "2")["environment"]
    assert facts[IDLE_WAIT_KEY] == "timed out"
    assert facts[THROTTLED_KEY] == "100.0"


def test_how_much_is_too_much_is_the_users_to_say(hot: CommandLine) -> None:
    words = ["experiment", *dummy_arguments(gpus=1, steps=200, step_ms="3,4"), "--repeats", "1", "--no-gate"]
    done = hot.inside(*words, "--max-throttled", "100%", "--json")
    assert done.returncode == 0, done.stderr
    assert "does not count" not in done.stderr
