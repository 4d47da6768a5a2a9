"""What the menu of runs does with a stored run, and the page of two of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog

from app.gui.history import history_controller
from app.gui.history.page import LogView
from app.storage.store import Store
from tests.fakes.evidence import AS_REQUESTED
from tests.fakes.saved_experiments import save_experiment
from tests.gui.history_page import HistoryPage
from tests.gui.screens import button
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.stored import keep, run_row, stored_run


@pytest.fixture
def screen(history_on: Callable[[Path], HistoryPage], database_path: Path) -> HistoryPage:
    """Runs 1 to 3 of an experiment, its baseline twice; run 4 is by hand."""
    with Store.open(database_path) as store:
        for number, batch in enumerate((32, 64, 32, 128), 1):
            keep(store, stored_run(run_row(number, gpus=1, batch_size=batch), evidence=AS_REQUESTED))
        save_experiment(store.library, [1, 2, 3], name="batches", preset=None, plan="{}")
    return history_on(database_path).refresh()


def test_d_shows_in_what_two_runs_differ_and_escape_goes_back(screen: HistoryPage) -> None:
    screen.choose(1, 2)
    screen.key(Qt.Key.Key_D)
    diff = screen.view.diff
    screen.qtbot.waitUntil(lambda: "Batch size" in displayed_text(diff))
    said = displayed_text(diff)
    assert "Runs 1 and 2" in said
    assert "Layers" not in said
    screen.button("Show what is equal").click()
    screen.qtbot.waitUntil(lambda: "Layers" in displayed_text(diff))
    screen.button("Swap").click()
    screen.qtbot.waitUntil(lambda: "Runs 2 and 1" in displayed_text(diff))
    button(diff, "Open in Compare").click()
    assert screen.recorded.calls == [("compare", [2, 1])]
    screen.escape()
    assert not diff.isVisible()
    assert screen.view.table.chosen() == [1, 2]


def test_a_diff_is_saved_as_a_page_but_over_no_file(screen: HistoryPage, tmp_path: Path) -> None:
    screen.choose(1, 2)
    screen.key(Qt.Key.Key_D)
    screen.qtbot.waitUntil(lambda: "Runs 1 and 2" in displayed_text(screen.view.diff))
    page = tmp_path / "diff.md"
    for _ in range(2):
        screen.button("Save …").click()
        dialog = screen.dialog(QFileDialog)
        dialog.fileSelected.emit(str(page))
        dialog.close()
        screen.qtbot.waitUntil(page.exists)
        screen.qtbot.waitUntil(lambda: screen.view.findChild(QFileDialog) is None)
    assert "# Runs 1 and 2" in page.read_text(encoding="utf-8")
    screen.wait_for_text("already exists")


def test_a_run_is_compared_with_the_baseline_of_its_experiment(screen: HistoryPage) -> None:
    screen.choose(2)
    screen.key(Qt.Key.Key_B)
    screen.qtbot.waitUntil(lambda: screen.recorded.calls == [("compare", [1, 2, 3])])
    screen.choose(1)
    screen.key(Qt.Key.Key_B)
    screen.wait_for_text("Run 1 is of the baseline itself.")
    screen.choose(4)
    screen.key(Qt.Key.Key_B)
    screen.wait_for_text("Run 4 belongs to no experiment")


def test_a_run_is_run_again_and_its_command_copied(
    screen: HistoryPage, database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen.choose(2)
    screen.key(Qt.Key.Key_A)
    assert screen.recorded.calls == [("run_again", 2)]
    screen.choose(2, 4)
    screen.key(Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    screen.wait_for_text("2 commands copied")
    assert [line.split()[:4] for line in QGuiApplication.clipboard().text().splitlines()] == [
        ["python", "-m", "app", "run"]
    ] * 2
    opened: list[Path] = []
    # A file manager is another program.
    monkeypatch.setattr(history_controller, "open_on_desktop", opened.append)
    screen.key(Qt.Key.Key_F)
    screen.qtbot.waitUntil(lambda: opened == [database_path.parent])


def test_l_opens_the_log_and_escape_closes_the_evidence_before_the_page(screen: HistoryPage) -> None:
    screen.choose(3)
    screen.key(Qt.Key.Key_L)
    screen.wait_for_page(3)
    focused = screen.view.focusWidget()
    assert focused is not None
    assert isinstance(focused.parent(), LogView)
    screen.view.detail.badge.button.click()
    screen.escape()
    assert screen.view.shows_run
    assert not screen.view.detail.badge.button.isChecked()
    screen.escape()
    assert not screen.view.shows_run


def test_the_files_of_a_run_are_its_weights_or_the_database(screen: HistoryPage) -> None:
    with screen.store() as store:
        row = store.library.run_rows([1])[0]
        folder = screen.database.with_name(f"{screen.database.name}.weights")
        assert history_controller.folder_of(store.library, 1) == screen.database.parent
        folder.mkdir()
        (folder / f"{row.uid}.npz").touch()
        assert history_controller.folder_of(store.library, 1) == folder
