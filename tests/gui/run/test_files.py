"""Files that are opened with the window: their runs are added, once the user agrees."""

from pathlib import Path

from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.history.screen import HistoryView
from app.storage.store import Store
from tests.gui.windows import press
from tests.unit.viewmodels.stored import keep, run_row, stored_run


def test_a_file_that_is_no_database_is_said(qtbot: QtBot, workbench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("to do\n", encoding="utf-8")
    workbench.open_file(tmp_path / "notes.txt")
    button = workbench.run_view.form.run_button
    said = "notes.txt is not a database of this program."
    qtbot.waitUntil(lambda: said in button.accessibleDescription())


def test_runs_that_are_opened_as_a_file_are_added_when_the_user_agrees(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "night.vscope") as there:
        keep(there, stored_run(run_row(1)))
    workbench.open_file(tmp_path / "night.vscope")
    qtbot.waitUntil(lambda: workbench.window.findChild(QMessageBox) is not None)
    press(workbench, "Add them")
    (history,) = workbench.window.findChildren(HistoryView)
    qtbot.waitUntil(lambda: list(history.overview.listing.runs) == [1])
