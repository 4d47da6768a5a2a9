"""Runs of one experiment beside each other: real workers, and a real sampler on a fake driver with two H200s."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.runs.experiment.queue import add_plan
from app.runs.experiment.session import ExperimentSession, PlannedRun, QueueListener
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.environment_keys import CONCURRENT_GPUS_KEY
from app.values.events import Outcome, RunEvent
from app.values.plan import Plan
from app.values.records import RunHeader
from tests.fakes.command_line import ROOT, CommandLine, dummy_arguments
from tests.fakes.nvml import TWO_H200, environment
from tests.fakes.nvml_cards import Driver
from tests.fakes.sessions import LIMIT_S, dummy, is_measured, services
from tests.present import present
from workloads.protocol import Block, RunSpec

UUIDS = [card.uuid for card in TWO_H200]
NAMES = [f"NVIDIA H200 ({card.uuid})" for card in TWO_H200]


class Making(QueueListener):
    """An experiment of these variants, two runs at once; `measured` is called as each begins to measure."""

    def __init__(
        self, variants: Sequence[RunSpec], running: RunServices, measured: Callable[[PlannedRun], None]
    ) -> None:
        self._measured = measured
        plan = Plan(name="some", variants=tuple(variants), repeats=1, parallel=2, max_idle_wait_s=0.0)
        with Store.open(running.database) as store:
            entry = store.queue.entry(add_plan(store, plan))
        self.session = ExperimentSession(entry, running, self, lambda: True)

    def sinks(self, planned_run: PlannedRun) -> Sequence[Sink]:
        return [_Measured(lambda: self._measured(planned_run))]


class _Measured:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def handle(self, event: RunEvent) -> None:
        if self._call and isinstance(event, Block) and is_measured(event):
            self._call()
            self._call = None


def variants(feed: TelemetryFeed, steps: int) -> list[RunSpec]:
    """Three that differ, of so many steps or, with 0, of ten minutes."""
    inventory = feed.wait_inventory()
    return [dummy(inventory, gpus=1, step_ms=ms, steps=steps, seconds=600.0) for ms in (1.0, 2.0, 3.0)]


def span_ns(run: RunHeader) -> range:
    return range(run.row.started_utc_ns, present(run.row.ended_utc_ns))


def overlap(one: RunHeader, other: RunHeader) -> bool:
    first, second = span_ns(one), span_ns(other)
    return max(first.start, second.start) < min(first.stop, second.stop)


def test_two_runs_overlap_on_different_gpus_and_a_third_follows(tmp_path: Path, feed: TelemetryFeed) -> None:
    begun = {place: threading.Event() for place in (1, 2, 3)}

    def measured(turn: PlannedRun) -> None:
        begun[turn.position].set()
        assert all(begun[place].wait(LIMIT_S) for place in (1, 2)), "the first two do not go on at once"

    found = Making(variants(feed, steps=40), services(tmp_path, feed), measured).session.run()
    assert (found.state, found.done) == ("complete", 3)
    first, second, third = sorted(found.runs, key=lambda run: run.row.started_utc_ns)
    assert overlap(first, second)
    assert sorted(run.environment["gpus_used"] for run in (first, second)) == NAMES
    assert third.row.spec.variant["step_ms"] == 3.0
    for earlier in (first, second):
        same = earlier.environment["gpus_used"] == third.environment["gpus_used"]
        assert not (same and overlap(earlier, third)), "two runs on one GPU"
    assert [first.environment[CONCURRENT_GPUS_KEY], second.environment[CONCURRENT_GPUS_KEY]] == [
        second.environment["gpus_used"],
        first.environment["gpus_used"],
    ]


def test_what_this_machine_refuses_leases_nothing(tmp_path: Path, feed: TelemetryFeed) -> None:
    used = services(tmp_path, feed)
    both = used.host.leases.take(UUIDS, 2)
    assert both is not None, "so that a wait would not end"
    three = dummy(feed.wait_inventory(), gpus=3)
    found = Making([three], used, lambda _: None).session.run()
    assert [run.row.outcome for run in found.runs] == [
        Outcome(name="refused", reason="3 GPUs asked for, but this machine has 2.")
    ]
    both.release()


@pytest.fixture(scope="module")
def two_cards(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("two"), environment(Driver(cards=TWO_H200)))


def test_the_command_line_makes_as_many_at_once_as_there_are_gpus(two_cards: CommandLine) -> None:
    words = dummy_arguments(gpus=1, step_ms="1,2", steps=0, seconds=1.5)
    document = two_cards.read("experiment", *words, "--repeats", "2", "--no-gate", "--no-standby", "--parallel")
    assert (document["state"], document["done"]) == ("complete", 4)
    runs = [two_cards.read("show", str(number)) for number in (1, 2)]
    assert [runs[0]["environment"][CONCURRENT_GPUS_KEY], runs[1]["environment"][CONCURRENT_GPUS_KEY]] == [
        runs[1]["environment"]["gpus_used"],
        runs[0]["environment"]["gpus_used"],
    ]


def test_one_variant_against_itself_uses_both_gpus_for_both_sides(two_cards: CommandLine) -> None:
    settings = dummy_arguments(gpus=1, step_ms=1.5)[1:]
    words = ["dummy", *settings, "--pairs", "3", "--no-gate", "--parallel", "--db", str(two_cards.database)]

    def noise(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks.noise", *words, *more]
        environment = {**os.environ, **two_cards.own}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True
        )

    document = json.loads(noise("--json").stdout)
    assert (document["runs"], document["variant"]["step_ms"]) == (6, 1.5)
    assert document["sd"] > 0
    assert {each["name"]: each["count"] for each in document["comparisons"]} == {
        "all 3 against 3, interleaved": 1,
        "3, then 3, not interleaved": 1,
    }
    assert [each["minutes"] for each in document["can_show"]] == [5, 30]
    table = noise()
    assert table.stderr.endswith("\nAll 6 runs are stored: nothing is left to run. --again repeats them.\n")
    assert "step time 1.5 ms against itself: 6 runs, one every " in table.stdout


def test_ctrl_c_stops_every_run_that_goes_on(two_cards: CommandLine) -> None:
    endless = dummy_arguments(gpus=1, step_ms="3,4,5", steps=0, seconds=600)
    process = two_cards.start("experiment", *endless, "--repeats", "1", "--no-gate", "--no-standby", "--parallel", "2")
    with process:
        said = iter(present(process.stderr))
        measuring = (line.split("]")[0] for line in said if line.rstrip().endswith("] measure"))
        assert sorted([next(measuring), next(measuring)]) == ["[1/3", "[2/3"]
        process.send_signal(signal.SIGINT)
        *_, last = said
    assert last.startswith("Stopped: 0 of 3 runs done.")
    assert process.returncode == 1
    listed = two_cards.read("list")["runs"]
    assert [run["outcome"] for run in listed[:2]] == ["stopped", "stopped"]
    assert [run["outcome"] for run in listed].count("stopped") == 2
