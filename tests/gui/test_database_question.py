"""What the window asks where its database is gone, replaced or cannot be used; with real files."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QMessageBox
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.settings.settings import Chosen
from app.gui.theme import Theme
from app.paths import default_database
from app.storage.database import open_database
from app.storage.store import Store
from tests.gui.screens import visible_text
from tests.gui.texts import displayed_text
from tests.gui.windows import choose


def _question(qtbot: QtBot, workbench: Workbench) -> QMessageBox:
    def shown() -> list[QMessageBox]:
        return [box for box in workbench.window.findChildren(QMessageBox) if box.isVisible()]

    qtbot.waitUntil(lambda: bool(shown()))
    (box,) = shown()
    return box


def _click(box: QMessageBox, label: str) -> None:
    next(each for each in box.buttons() if each.text() == label).click()


def test_a_deleted_database_is_missed_and_nothing_is_made_in_its_place(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path
) -> None:
    choose(workbench)
    with qtbot.waitSignal(workbench.run.ended):
        workbench.run.run()
    path, elsewhere = Path(workbench.database), tmp_path / "elsewhere.db"
    path.rename(elsewhere)
    box = _question(qtbot, workbench)
    assert "no longer exists" in box.text()
    with qtbot.waitSignal(workbench.run.ended):
        workbench.run.run()
    said = [label.text() for label in workbench.run_view.form.findChildren(QLabel)]
    assert any("no longer exists" in text for text in said)
    _click(box, "&Try again")
    qtbot.waitUntil(lambda: _question(qtbot, workbench) is not box)
    assert "Start a &new one there" in [each.text() for each in _question(qtbot, workbench).buttons()]
    assert not path.exists()
    elsewhere.rename(path)
    _click(_question(qtbot, workbench), "&Try again")
    qtbot.waitUntil(lambda: not workbench.window.isVisible())
    assert workbench.next_database == path
    with Store.open(path) as store:
        assert len(store.list_runs()) == 1


@pytest.mark.parametrize("label", ["&Open the new one", "&Quit"])
def test_what_takes_the_place_of_a_database_is_the_users_choice(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path, label: str
) -> None:
    path, other = Path(workbench.database), tmp_path / "other.db"
    open_database(other).close()
    other.rename(path)
    box = _question(qtbot, workbench)
    assert "was replaced by another database" in box.text()
    _click(box, label)
    qtbot.waitUntil(lambda: not workbench.window.isVisible())
    assert workbench.next_database == (None if label == "&Quit" else path)


def test_a_chosen_database_that_is_missing_at_the_start_is_asked_for(
    qtbot: QtBot, theme: Theme, qapp: QApplication, window_state: Path, tmp_path: Path
) -> None:
    path, other = tmp_path / "disk" / "chosen.db", tmp_path / "other.db"
    Chosen(qapp).keep("database", str(path))
    chosen = Chosen(qapp).database
    assert chosen is not None
    workbench = Workbench(chosen, theme)
    qtbot.addWidget(workbench.window)
    workbench.start()
    box = _question(qtbot, workbench)
    assert (f"{path} no longer exists" in box.text(), "in Settings" in box.informativeText()) == (True, True)
    assert {"Start a &new one there", "Open the &usual one"} <= {each.text() for each in box.buttons()}
    _click(box, "Choose &another file …")
    qtbot.waitUntil(lambda: workbench.window.findChild(QFileDialog) is not None)
    (dialog,) = workbench.window.findChildren(QFileDialog)
    assert dialog.selectedFiles() == [str(tmp_path)], "no name is proposed"
    dialog.reject()
    _click(_question(qtbot, workbench), "Open the &usual one")
    qtbot.waitUntil(lambda: not workbench.window.isVisible())
    workbench.close()
    assert (workbench.next_database, path.parent.exists()) == (default_database(), False)
    Chosen(qapp).replace_missing(workbench.database, other)
    assert Chosen(qapp).database == other
    Chosen(qapp).replace_missing(workbench.database, default_database())
    assert Chosen(qapp).database is None


def test_a_run_whose_database_is_gone_ends_before_the_window_asks(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=600.0)
    workbench.run.run()
    live, path = workbench.run_view.live, Path(workbench.database)
    qtbot.waitUntil(lambda: "Measuring" in displayed_text(live))
    path.unlink()
    said = "was deleted, or its disk is gone; the end of the run is not stored."
    qtbot.waitUntil(lambda: said in visible_text(workbench.run_view.form))
    box = _question(qtbot, workbench)
    assert "no longer exists" in box.text()
    assert not path.exists()
    _click(box, "Start a &new one there")
    qtbot.waitUntil(lambda: not workbench.window.isVisible())
    assert workbench.next_database == path
