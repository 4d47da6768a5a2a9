"""A database that is locked, replaced or cannot be written during a run: the run's outcome is right and told."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.cli.experiment_progress import EntryReporter
from app.errors import UserError
from app.runs import sinks
from app.runs.experiment.queue import add_plan, queue_progress
from app.runs.experiment.queue_runner import QueueRunner
from app.runs.experiment.session import PlannedRun
from app.runs.sinks import Sink
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.events import RunEvent
from app.values.plan import Plan
from app.values.samples import Waiting
from tests.fakes.runs import keep
from tests.fakes.sessions import dummy, going, is_measured, run_through, services
from workloads.protocol import Block


class LockedWhileItMeasures:
    """Keeps the database locked from the first measured block until the run waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lock: sqlite3.Connection | None = None
        self.waits: list[str] = []

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, Block) and is_measured(event) and self.lock is None:
            self.lock = sqlite3.connect(self._path)
            self.lock.execute("BEGIN IMMEDIATE")
        elif isinstance(event, Waiting) and self.lock is not None:
            self.waits.append(event.reason)
            self.lock.close()


@pytest.fixture(autouse=True)
def batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 0.0)
    monkeypatch.setattr(sinks, "_LOCK_TRY_S", 0.001)


def test_a_lock_that_ends_in_time_costs_nothing(tmp_path: Path, feed: TelemetryFeed) -> None:
    locked = LockedWhileItMeasures(tmp_path / "profiles.db")
    outcome, recorder, stored = run_through(dummy(feed.wait_inventory()), services(tmp_path, feed), locked)
    assert (outcome.name, outcome.reason) == ("completed", None)
    assert stored.row.outcome == outcome
    assert stored.blocks.steps.size == len(recorder.of(Block))
    (wait,) = locked.waits
    assert wait.endswith(
        "profiles.db is locked by another program; close it: the run waits 60\xa0s at most to be stored."
    )


def test_a_worker_can_be_stopped_while_the_database_is_locked(tmp_path: Path, feed: TelemetryFeed) -> None:
    used = services(tmp_path, feed)
    Store.open(used.database).close()
    with going(dummy(feed.wait_inventory(), seconds=600.0, steps=0), used) as run:
        run.recorder.wait(Block, is_measured)
        with contextlib.closing(sqlite3.connect(used.database)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            run.session.stop()
            run.recorder.wait(Waiting)
        assert run.result().name == "stopped"


class Replacing(EntryReporter):
    """Puts another file at the place of the database while a run measures."""

    def __init__(self, path: Path, other: Path) -> None:
        super().__init__()
        self._path, self._other = path, other

    def sinks(self, planned_run: PlannedRun) -> Sequence[Sink]:
        return (*super().sinks(planned_run), self)

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, Block) and is_measured(event) and self._other.exists():
            self._other.replace(self._path)


def test_an_experiment_whose_database_is_replaced_ends_and_leaves_the_new_one_alone(
    tmp_path: Path, feed: TelemetryFeed
) -> None:
    used, other = services(tmp_path, feed), tmp_path / "other.db"
    plan = Plan(name="mine", variants=(dummy(feed.wait_inventory()),), repeats=3, max_idle_wait_s=0.0)
    with Store.open(other) as store:
        keep(store)
        add_plan(store, plan)
    with Store.open(used.database) as store:
        entry = add_plan(store, plan)
    with pytest.raises(UserError, match="was replaced by another file"):
        QueueRunner(used, Replacing(used.database, other)).run([entry])
    with Store.open(used.database) as store:
        assert [row.uid for row in store.list_runs()] == ["uid-1"]
        (progress,) = queue_progress(store, feed.wait_inventory())
    assert progress.state == "waiting", "it is another entry, of the same number"
