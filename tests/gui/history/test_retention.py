"""The footer of History: the size of the database, and the retention of samples."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox, QMessageBox, QPushButton
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.history.history_controller import HistoryController
from app.gui.history.screen import HistoryView
from app.gui.theme import Theme
from app.gui.threads import Background, close_jobs
from app.storage import retention
from app.storage.store import Store
from tests.fakes.runs import begin
from tests.gui.actions import RecordedActions
from tests.gui.screens import visible_text
from tests.unit.viewmodels.stored import keep, run_row, stored_run

LIMIT_MS = 120_000


@pytest.fixture
def view(qtbot: QtBot, theme: Theme, database_path: Path, recorded: RecordedActions) -> Iterator[HistoryView]:
    """The history of one run that is more than a year old or nearly so."""
    with Store.open(database_path) as store:
        keep(store, stored_run(run_row(1)))
    made, background = HistoryView(theme, recorded.actions), Background()
    controller = HistoryController(made, database_path, background, recorded.actions)
    made.show()
    controller.refresh()
    qtbot.waitUntil(lambda: combo(made).count() > 0, timeout=LIMIT_MS)
    yield made
    background.close()
    close_jobs(made)
    made.close()
    made.deleteLater()
    QCoreApplication.sendPostedEvents(made, QEvent.Type.DeferredDelete.value)


def combo(view: HistoryView) -> QComboBox:
    return next(c for c in view.findChildren(QComboBox) if c.accessibleName() == "How long samples are kept")


def choose(view: HistoryView, days: int | None) -> None:
    """As a user does: with the keyboard, entry by entry."""
    box = combo(view)
    box.setCurrentIndex(box.findData(days))
    box.activated.emit(box.currentIndex())


def answer(qtbot: QtBot, view: HistoryView, button: str) -> str:
    """Press a button of the question and return what was asked."""
    qtbot.waitUntil(lambda: view.findChild(QMessageBox) is not None, timeout=LIMIT_MS)
    box = view.findChild(QMessageBox)
    assert isinstance(box, QMessageBox)
    question = f"{box.text()} {box.informativeText()}"
    made = next(b for b in box.findChildren(QPushButton) if b.text() == button)
    QTest.mouseClick(made, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.findChild(QMessageBox) is None, timeout=LIMIT_MS)
    return question


def test_the_size_is_told_and_everything_is_kept_at_first(view: HistoryView) -> None:
    assert "profiles.db · " in visible_text(view)
    assert "free on its disk" in visible_text(view)
    assert combo(view).currentText() == "Keep all samples"


def test_nothing_is_deleted_before_the_user_agrees(qtbot: QtBot, view: HistoryView, database_path: Path) -> None:
    choose(view, 7)
    question = answer(qtbot, view, "&Keep them")
    assert question.startswith("Delete the samples and logs of 1 run that ended more than 7 days ago?")
    assert "122 samples and log lines would be deleted; figures, phases and blocks stay." in question
    assert combo(view).currentText() == "Keep all samples"
    assert (retention.load_days(database_path), retention.pruned_utc_ns(database_path, 1)) == (None, None)


def test_agreed_samples_are_deleted_and_the_setting_stays(qtbot: QtBot, view: HistoryView, database_path: Path) -> None:
    choose(view, 7)
    answer(qtbot, view, "&Delete")
    qtbot.waitUntil(lambda: "given back in" in visible_text(view), timeout=LIMIT_MS)
    assert retention.load_days(database_path) == 7
    assert retention.pruned_utc_ns(database_path, 1) is not None
    assert combo(view).currentText() == "Keep samples of the last 7 days"
    choose(view, None)
    qtbot.waitUntil(lambda: retention.load_days(database_path) is None, timeout=LIMIT_MS)


def test_while_a_run_goes_on_it_is_said_and_nothing_is_deleted(
    qtbot: QtBot, view: HistoryView, database_path: Path
) -> None:
    with Store.open(database_path) as store:
        begin(store, uid="uid-2")
    choose(view, 7)
    answer(qtbot, view, "&Delete")
    qtbot.waitUntil(lambda: "Run 2 is in progress" in visible_text(view), timeout=LIMIT_MS)
    qtbot.waitUntil(lambda: combo(view).currentText() == "Keep all samples", timeout=LIMIT_MS)
    assert retention.pruned_utc_ns(database_path, 1) is None


def test_opening_the_window_deletes_what_is_older_than_the_setting(
    qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    with Store.open(database_path) as store:
        keep(store, stored_run(run_row(1)))
    retention.save_days(database_path, 30)
    workbench = Workbench(database_path, theme)
    qtbot.addWidget(workbench.window)
    workbench.start()
    qtbot.waitUntil(lambda: retention.pruned_utc_ns(database_path, 1) is not None, timeout=LIMIT_MS)
    workbench.quit()
    workbench.close()
