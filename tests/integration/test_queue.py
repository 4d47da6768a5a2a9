"""The queue with real workers: its order, what changes it between two runs, and experiments that were cut off."""

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from app.errors import UserError
from app.queries import ExperimentProgress
from app.runs.experiment import queue_runner
from app.runs.experiment.queue import add_plan, enqueue, entry_plan, queue_progress
from app.runs.experiment.queue_runner import QueueRunner
from app.runs.experiment.session import ExperimentSession, QueueListener
from app.runs.host import Host, describe_wait
from app.runs.session import RunServices
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.plan import Plan
from app.values.records import StoredRun
from tests.fakes.sessions import dummy, run_through, services, started_feed
from tests.reliability.resume import KilledExperiment, Tally, kill_and_resume
from workloads.catalog import UsageError
from workloads.protocol import Value


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    with started_feed() as feed:
        yield feed


@pytest.fixture
def used(tmp_path: Path, feed: TelemetryFeed) -> RunServices:
    return services(tmp_path, feed)


class RecordedRunner(QueueListener):
    """A runner with what it told; `at_run` is done as each run begins."""

    def __init__(self, used: RunServices, at_run: Callable[["RecordedRunner"], None] = lambda _: None) -> None:
        self.all: list[ExperimentProgress] = []
        self.runner = QueueRunner(used, self)
        self._at_run = at_run

    def progressed(self, now: ExperimentProgress) -> None:
        begins = bool(now.specs) and (not self.all or not self.all[-1].specs)
        self.all.append(now)
        if begins:
            self._at_run(self)

    @property
    def now(self) -> ExperimentProgress:
        return self.all[-1]

    @property
    def ends(self) -> list[tuple[str, str, int]]:
        """Name, state and done runs of every entry at the end of its turn."""
        return [(now.name, now.state, now.done) for now in self.all if now.state != "running"]

    def run(self) -> "RecordedRunner":
        self.runner.run()
        return self


def add(
    used: RunServices, *names: str, repeats: int = 1, how: dict[str, Any] | None = None, **given: Value
) -> list[int]:
    """Entries of these names, each an experiment of two variants, that wait for no quiet host."""
    inventory = used.host.inventory()
    settings: dict[str, Value] = {"steps": 5, **given}
    entries = []
    for number, name in enumerate(names):
        specs = tuple(dummy(inventory, batch_size=10 * number + n, **settings) for n in (1, 2))  # type: ignore[arg-type]
        plan = Plan(name=name, variants=specs, repeats=repeats, max_idle_wait_s=0.0)
        with Store.open(used.database) as store:
            entries.append(add_plan(store, structs.replace(plan, **(how or {}))))
    return entries


def in_queue(used: RunServices) -> list[tuple[str, str, str]]:
    with Store.open(used.database) as store:
        progress = queue_progress(store, used.host.inventory())
    return [(each.name, each.state, f"{each.done}/{each.planned}") for each in progress]


def outcomes(used: RunServices) -> list[str]:
    with Store.open(used.database) as store:
        return [row.outcome.name for row in reversed(store.list_runs()) if row.outcome is not None]


def test_entries_are_made_in_their_order_and_leave(used: RunServices) -> None:
    add(used, "a", "b")
    recorded = RecordedRunner(used).run()
    assert recorded.ends == [("a", "complete", 2), ("b", "complete", 2)]
    assert in_queue(used) == []
    with Store.open(used.database) as store:
        assert [(found.name, found.runs) for found in store.library.experiments()] == [("b", (3, 4)), ("a", (1, 2))]
    assert [now.experiment for now in recorded.all if now.state == "complete"] == [1, 2]
    assert {now.experiment for now in recorded.all if now.name == "a" and now.done} == {1}, "its verdict can be shown"
    left = [now.left.likely_s for now in recorded.all if now.name == "b"]
    assert left[0] > left[-1] == 0


def test_that_a_run_waits_is_said_until_it_starts(used: RunServices) -> None:
    add(used, "a")
    other = used.host.lease_for_run(dummy(used.host.inventory()), notify=lambda _: None, wait_for_stop=lambda _: True)

    class ReleasingRunner(RecordedRunner):
        def progressed(self, now: ExperimentProgress) -> None:
            super().progressed(now)
            if now.waits_for_device and other is not None:
                other.release()

    recorded = ReleasingRunner(used).run()
    assert describe_wait() in [now.message for now in recorded.all if now.waits_for_device]
    assert (recorded.now.state, recorded.now.message, recorded.now.waits_for_device) == ("complete", "", False)


def test_what_is_added_moved_paused_or_removed_meanwhile_takes_effect_at_the_next_run(used: RunServices) -> None:
    a, b, c, d = add(used, "a", "b", "c", "d")

    def change(recorded: RecordedRunner) -> None:
        if recorded.now.done == 0 and recorded.now.name == "a":
            with Store.open(used.database) as store:
                store.queue.move(c, a)
                store.queue.set_state(b, "paused")
                store.queue.remove(d)
            add(used, "e", step_ms=2.0)

    recorded = RecordedRunner(used, change).run()
    assert recorded.ends == [("a", "waiting", 1), ("c", "complete", 2), ("a", "complete", 2), ("e", "complete", 2)]
    assert in_queue(used) == [("b", "paused", "0/2")]
    assert outcomes(used) == ["completed"] * 6, "what goes on is never disturbed"


def test_more_repeats_asked_for_while_it_goes_on_join_it_with_nothing_run_twice(used: RunServices) -> None:
    (a,) = add(used, "a")

    def ask(recorded: RecordedRunner) -> None:
        repeats = {1: 2, 4: 3}.get(recorded.now.position, 1)  # as its first run goes on, and as the last one does
        with Store.open(used.database) as store:
            wanted = structs.replace(entry_plan(store.queue.entry(a)), repeats=repeats)
            enqueue(store, wanted)

    owned: list[bool] = []

    class Watched(RecordedRunner):
        def progressed(self, now: ExperimentProgress) -> None:
            super().progressed(now)
            if now.state == "waiting":
                with Store.open(used.database) as store:
                    owned.append(store.queue.entry(a).owned)

    recorded = Watched(used, ask).run()
    assert recorded.ends == [("a", "waiting", 1), ("a", "waiting", 4), ("a", "complete", 6)]
    assert owned == [True, True], "another program would take it between two plans"
    assert in_queue(used) == []
    with Store.open(used.database) as store:
        assert [row.spec.variant["batch_size"] for row in reversed(store.list_runs())] == [1, 2, 2, 1, 1, 2]
        assert [found.runs for found in store.library.experiments()] == [(1, 2, 3, 4, 5, 6)]


def test_one_that_is_cancelled_stops_and_leaves_and_the_others_go_on(used: RunServices) -> None:
    (a,) = add(used, "a", steps=0, seconds=600.0)
    add(used, "b")

    def cancel(recorded: RecordedRunner) -> None:
        if recorded.now.entry == a:
            recorded.runner.cancel(a)

    assert RecordedRunner(used, cancel).run().ends == [("a", "removed", 0), ("b", "complete", 2)]
    assert outcomes(used) == ["stopped", "completed", "completed"]
    assert in_queue(used) == []


def test_stopped_it_stays_and_another_runner_goes_on_with_nothing_run_twice(used: RunServices) -> None:
    add(used, "a", "b", repeats=2)

    def stop(recorded: RecordedRunner) -> None:
        if recorded.now.position == 3:
            recorded.runner.stop()

    assert RecordedRunner(used, stop).run().ends == [("a", "stopped", 2)]
    assert in_queue(used) == [("a", "waiting", "2/4"), ("b", "waiting", "0/4")]
    assert RecordedRunner(used).run().ends == [("a", "complete", 4), ("b", "complete", 4)]
    assert outcomes(used) == ["completed"] * 2 + ["stopped"] + ["completed"] * 6
    with Store.open(used.database) as store:
        assert store.library.runs_of_experiment(1) == (1, 2, 4, 5), "what was cut off is no part of the verdict"


def test_one_of_which_every_run_was_tried_leaves_though_some_failed(used: RunServices) -> None:
    add(used, "a", behaviour="fail")
    assert RecordedRunner(used).run().ends == [("a", "failed", 0)]
    assert in_queue(used) == []


def test_one_that_cannot_be_made_is_told_and_does_not_stand_in_the_way(used: RunServices) -> None:
    with Store.open(used.database) as store:
        store.queue.add(name="newer", preset=None, plan='{"variants": []}')
    add(used, "a")
    with pytest.raises(UserError, match="Entry 1 of the queue cannot be read by this version"):
        RecordedRunner(used).run()
    assert in_queue(used)[0] == ("newer", "paused", "0/0")
    with Store.open(used.database) as store:
        store.queue.set_state(1, "waiting")
    wrong: list[UserError] = []
    recorded = RecordedRunner(used)
    recorded.runner.run(failed=wrong.append)
    assert recorded.ends == [("a", "complete", 2)]
    assert len(wrong) == 1
    with Store.open(used.database) as store:
        assert [(entry.name, entry.state) for entry in store.queue.entries()] == [("newer", "paused")]


def test_stored_runs_count_unless_it_is_to_be_made_anew(used: RunServices) -> None:
    inventory = used.host.inventory()
    run_through(dummy(inventory, batch_size=1, steps=5), used)
    add(used, "a")
    assert in_queue(used) == [("a", "waiting", "1/2")]
    add(used, "a", how={"again": True})
    assert in_queue(used)[1] == ("a", "waiting", "0/2")
    assert RecordedRunner(used).run().ends == [("a", "complete", 2), ("a", "complete", 2)]
    assert len(outcomes(used)) == 4


def test_a_single_run_asked_for_twice_is_made_twice(used: RunServices) -> None:
    spec = dummy(used.host.inventory(), steps=5)
    with Store.open(used.database) as store:
        plan = Plan(name="one", variants=(spec,), repeats=1, again=True, max_idle_wait_s=0.0)
        add_plan(store, plan)
        add_plan(store, plan)
    assert RecordedRunner(used).run().ends == [("one", "complete", 1)] * 2
    assert outcomes(used) == ["completed"] * 2


def test_an_experiment_that_has_ended_is_freed_without_a_garbage_collection(
    used: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the runs of ended experiments stay in memory until a full collection, which may be thousands of runs."""
    made = weakref.WeakSet[ExperimentSession]()

    class Watched(ExperimentSession):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.add(self)

    monkeypatch.setattr(queue_runner, "ExperimentSession", Watched)
    add(used, "a")
    gc.disable()
    try:
        assert RecordedRunner(used).run().ends == [("a", "complete", 2)]
        assert not made
    finally:
        gc.enable()


def test_killed_at_random_moments_it_always_goes_on(tmp_path: Path) -> None:
    """A few of the moments of `python -m tests.reliability resume`, in an experiment whose own runs alone count."""
    tally = Tally()
    kill_and_resume(KilledExperiment(tmp_path, again=True), np.random.default_rng(7), 2.0, 4, tally)
    assert tally.experiments == 1
    assert tally.kills.total() > 0
    assert +tally.broken == Counter()


def test_a_run_too_many_or_too_few_would_be_noticed(used: RunServices) -> None:
    experiment = KilledExperiment(used.database.parent, repeats=4)
    add(used, "a", repeats=4)
    RecordedRunner(used).run()
    assert experiment.judge() == (4, 0), "no run of the third variant"
    made: StoredRun = run_through(dummy(used.host.inventory(), batch_size=1, steps=5), used)[2]
    assert experiment.judge() == (4, 1)
    experiment.seen.add(made.row.uid)
    assert experiment.judge() == (5, 1), "one that was made and belongs to nothing is lost as well"


def test_an_entry_whose_host_cannot_be_reached_is_paused_and_the_others_go_on(used: RunServices) -> None:
    def open_host(word: str) -> Host:
        if word == "gone":
            raise UserError("gone does not answer: check its address.")
        if word == "removed":
            raise UsageError("There is no host 'removed'.")
        return replace(used.host, name=word)

    beyond = dummy(used.host.inventory(), gpus=9)  # refused, so that no worker starts
    with Store.open(used.database) as store:
        for host in ("gone", "removed", "gpu1", ""):
            add_plan(store, Plan(name=host or "here", variants=(beyond,), repeats=1, host=host))
    failures: list[UserError] = []
    recorded = RecordedRunner(replace(used, open_host=open_host))
    recorded.runner.run(failed=failures.append)
    assert [str(error) for error in failures] == [
        "gone does not answer: check its address.",
        "There is no host 'removed'.",
    ]
    assert in_queue(used) == [("gone", "paused", "0/1"), ("removed", "paused", "0/1")]
    assert [(now.name, now.host) for now in recorded.all if now.state == "complete"] == [("gpu1", "gpu1"), ("here", "")]
