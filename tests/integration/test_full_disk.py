"""A disk with little room, foreseen: a warning before a run, and none begun where it cannot be stored."""

from pathlib import Path

import pytest

from app.cli.experiment_progress import EntryReporter
from app.cli.run import run_services
from app.errors import UserError
from app.queries import ExperimentProgress
from app.runs.experiment.queue import add_plan, queue_progress
from app.runs.experiment.queue_runner import QueueRunner
from app.storage.store import Store
from app.values.plan import Plan
from tests.fakes.sessions import dummy, run_through, services, started_feed


def with_free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free_bytes}))


def test_next_to_no_room_begins_no_run_and_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 5_000_000)
    with started_feed() as feed, pytest.raises(UserError) as raised:
        run_through(dummy(feed.wait_inventory()), services(tmp_path, feed))
    assert str(raised.value) == (
        f"The disk that holds {tmp_path / 'profiles.db'} has only 4.8\xa0MiB free; free some space, then run again."
    )


class Filling(EntryReporter):
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch

    def progressed(self, progress: ExperimentProgress) -> None:
        if progress.done == 3:
            with_free(self._monkeypatch, 10_000_000)


def test_a_disk_that_fills_up_pauses_the_experiment_and_answers_for_no_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started_feed() as feed:
        used = services(tmp_path, feed)
        variants = tuple(dummy(feed.wait_inventory(), batch_size=size, steps=5) for size in (1, 2))
        with Store.open(used.database) as store:
            entry = add_plan(store, Plan(name="filling", variants=variants, repeats=3, max_idle_wait_s=0.0))
        with pytest.raises(UserError, match=r"has only 9\.5\xa0MiB free; free some space"):
            QueueRunner(used, Filling(monkeypatch)).run([entry])
        with Store.open(used.database) as store:
            (progress,) = queue_progress(store, feed.wait_inventory())
    assert (progress.state, progress.done, progress.planned) == ("paused", 3, 6)


@pytest.mark.parametrize(("free_bytes", "warned"), [(150_000_000, True), (10**12, False)])
def test_the_command_line_warns_of_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free_bytes: int, warned: bool
) -> None:
    with_free(monkeypatch, free_bytes)
    with run_services(tmp_path / "profiles.db"):
        err = capsys.readouterr().err
    assert ("Only 143\xa0MiB is free on the disk" in err) is warned
