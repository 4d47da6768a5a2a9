"""The queue taken away from the window: the database that goes on elsewhere, and what is said of it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.gui.experiment.queue import QueueExport, QueueView
from app.gui.theme import Theme
from app.gui.threads import CancellableJob, close_jobs
from app.queries import ExperimentProgress
from app.storage.store import Store
from app.viewmodels.experiment.queue import QueueModel
from tests.fakes.runs import keep
from tests.gui.windows import READ_LIMIT_MS


@pytest.fixture
def view(qtbot: QtBot, theme: Theme, database_path: Path) -> Iterator[QueueView]:
    """The queue unfolded: an experiment of which one run of two was made."""
    with Store.open(database_path) as store:
        entry = store.queue.add(name="two", preset=None, plan='{"variants": [], "repeats": 2}')
        store.queue.add_runs(entry, [keep(store)])
    board = QueueModel()
    board.update([ExperimentProgress(entry=entry, name="two", state="waiting", done=1, planned=2)])
    made = QueueView(theme)
    qtbot.addWidget(made)
    QueueExport(made, database_path)
    made.show_model(board.state(0.0))
    made.unfold()
    made.show()
    yield made
    close_jobs(made)


def export(view: QueueView, target: Path) -> None:
    view.export_button.click()
    dialog = view.findChild(QFileDialog)
    assert isinstance(dialog, QFileDialog)
    dialog.fileSelected.emit(str(target))
    dialog.reject()


def test_the_queue_is_written_with_its_runs(qtbot: QtBot, view: QueueView, tmp_path: Path) -> None:
    target = tmp_path / "rest.db"
    export(view, target)
    qtbot.waitUntil(lambda: view.export_banner.displayed_text.startswith("Wrote "), timeout=READ_LIMIT_MS)
    assert view.export_banner.displayed_text.startswith(f"Wrote 1 run and 1 unfinished experiment to {target}, ")
    with Store.open(target) as there:
        (entry,) = there.queue.entries()
        assert (entry.name, entry.experiment is not None, len(there.list_runs())) == ("two", True, 1)
    view.export_banner.button("dismiss").click()
    assert not view.export_banner.isVisible()


def test_what_is_wrong_is_said_as_on_the_command_line(
    qtbot: QtBot, view: QueueView, database_path: Path, tmp_path: Path
) -> None:
    there = tmp_path / "notes.db"
    there.write_text("mine")
    export(view, there)
    qtbot.waitUntil(lambda: "notes.db" in view.export_banner.displayed_text, timeout=READ_LIMIT_MS)
    assert there.read_text() == "mine"
    with Store.open(database_path) as other:
        other.queue.claim(1)
        export(view, tmp_path / "rest.db")
        sentence = "Entry 1 of the queue, “two”, is running: stop it first."
        qtbot.waitUntil(lambda: view.export_banner.displayed_text == sentence, timeout=READ_LIMIT_MS)
        other.queue.remove(1)
    export(view, tmp_path / "rest.db")
    empty = "The queue is empty: no experiment is unfinished."
    qtbot.waitUntil(lambda: view.export_banner.displayed_text == empty, timeout=READ_LIMIT_MS)
    assert not (tmp_path / "rest.db").exists()


def test_it_can_be_stopped(qtbot: QtBot, view: QueueView, tmp_path: Path) -> None:
    held, job = threading.Event(), view.findChild(CancellableJob)
    assert isinstance(job, CancellableJob)
    job.run(lambda _: held.wait(), lambda _: None, lambda _: None)
    export(view, tmp_path / "rest.db")
    assert view.export_banner.displayed_text == "Exporting the queue … 0\xa0%"
    view.export_banner.button("stop").click()
    held.set()
    qtbot.waitUntil(lambda: not view.export_banner.isVisible(), timeout=READ_LIMIT_MS)
    assert not (tmp_path / "rest.db").exists()


def test_what_is_made_cannot_be_taken_away(view: QueueView) -> None:
    assert view.export_button.isEnabled()
    board = QueueModel()
    board.update([ExperimentProgress(entry=1, name="two", state="running", done=1, planned=2)])
    view.show_model(board.state(0.0))
    assert not view.export_button.isEnabled()
