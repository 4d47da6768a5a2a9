"""Export and import of runs in the window."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QLabel

from app.storage.reference import reference_files
from app.storage.store import Store
from tests.fakes.runs import EVIDENCE, begin
from tests.gui.history_page import HistoryPage
from tests.unit.viewmodels.stored import keep, keep_all, run_row, stored_run


@pytest.fixture
def screen(history_on: Callable[[Path], HistoryPage], database_path: Path) -> HistoryPage:
    keep_all(database_path, (stored_run(run_row(number)) for number in (1, 2)))
    return history_on(database_path).refresh()


def pick(screen: HistoryPage, path: Path) -> None:
    """Name a file in the dialog that is open."""
    screen.dialog(QFileDialog).fileSelected.emit(str(path))
    screen.dialog(QFileDialog).reject()


def status_has(screen: HistoryPage, words: str) -> bool:
    return any(words in label.toolTip() for label in screen.view.findChildren(QLabel))


def test_chosen_runs_are_written_to_a_database_that_another_one_imports(
    screen: HistoryPage, history_on: Callable[[Path], HistoryPage], tmp_path: Path
) -> None:
    taken = tmp_path / "taken.db"
    screen.controller.transfer.export([2], "db")
    pick(screen, taken)
    screen.qtbot.waitUntil(lambda: status_has(screen, f"Wrote 1 run to {taken}"))
    other = history_on(tmp_path / "other.db")
    other.controller.transfer.import_runs()
    pick(other, taken)
    other.wait_for("Run", "1")
    other.qtbot.waitUntil(lambda: status_has(other, "Imported 1 run as run 1."))


def test_tables_go_into_a_new_folder(screen: HistoryPage, tmp_path: Path) -> None:
    screen.controller.transfer.export([1, 2], "csv")
    assert "new folder of csv files" in screen.dialog(QFileDialog).windowTitle()
    pick(screen, tmp_path / "tables")
    screen.qtbot.waitUntil(lambda: status_has(screen, "Wrote 2 runs"))
    assert "runs.csv" in {path.name for path in (tmp_path / "tables").iterdir()}


def test_a_timeline_is_one_file(screen: HistoryPage, tmp_path: Path) -> None:
    screen.controller.transfer.export([1, 2], "trace")
    dialog = screen.dialog(QFileDialog)
    assert dialog.windowTitle() == "Export 2 runs to a timeline, with paths, variables and log lines"
    assert [Path(file).name for file in dialog.selectedFiles()] == ["2-runs.trace.json"]
    pick(screen, tmp_path / "two.json")
    screen.qtbot.waitUntil(lambda: status_has(screen, "Wrote 2 runs to"))
    events = json.loads((tmp_path / "two.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}


def test_the_evidence_of_a_run_writes_its_step_for_perfetto(screen: HistoryPage, tmp_path: Path) -> None:
    with screen.store() as store:
        run = keep(store, stored_run(run_row(3, gpus=1, found=EVIDENCE), evidence=EVIDENCE))
    screen.refresh()
    screen.wait_for("Run", "3", "2", "1")
    screen.open(run)
    screen.view.detail.badge.button.click()
    screen.qtbot.waitUntil(lambda: "Open in &Perfetto …" in screen.button_labels())
    screen.button("Open in Perfetto …").click()
    pick(screen, tmp_path / "step.json")
    screen.wait_for_text(f"Wrote 1 run to {tmp_path / 'step.json'}")
    assert json.loads((tmp_path / "step.json").read_text(encoding="utf-8"))["traceEvents"]


def test_what_is_there_already_is_left_and_said(screen: HistoryPage, tmp_path: Path) -> None:
    there = tmp_path / "notes.db"
    there.write_text("mine")
    screen.controller.transfer.export([1], "db")
    pick(screen, there)
    screen.wait_for_text("already exists")
    assert there.read_text() == "mine"
    screen.controller.transfer.export([1], "db")
    pick(screen, tmp_path / "others.db")
    screen.qtbot.waitUntil(lambda: status_has(screen, "Wrote 1 run"))
    assert "already exists" not in screen.visible_text(), "what was wrong before is not wrong now"


def test_what_is_told_below_the_table_makes_no_window_wider(screen: HistoryPage) -> None:
    overview = screen.view.overview
    widths = []
    for times in (1, 20):
        overview.footer.show_message("Wrote 2 runs. " * times, can_undo=True)
        overview.footer.show_progress("Importing a file … 12 % " * times)
        widths.append(overview.minimumSizeHint().width())
    assert widths[0] == widths[1]


def test_a_file_that_is_no_database_is_said_and_nothing_is_imported(screen: HistoryPage, tmp_path: Path) -> None:
    text = tmp_path / "notes.db"
    text.write_text("no database at all, but long enough to be looked at" * 20)
    screen.menu_entry("View", "Import runs")
    pick(screen, text)
    screen.wait_for_text("notes.db")
    assert screen.column("Run") == ["2", "1"]


def test_a_newcomer_sees_the_reference_runs_by_one_click_and_is_rid_of_them_by_one(
    history_on: Callable[[Path], HistoryPage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.reference._FILES", "scaling.db.gz")
    page = history_on(tmp_path / "new.db")
    page.controller.refresh()
    page.wait_for_text("runs measured on real GPUs")
    show = page.button("Show reference runs")
    show.setFocus()
    show.click()
    count = sum(len(file.uids) for file in reference_files())
    page.qtbot.waitUntil(lambda: len(page.view.overview.listing.runs) == count)
    page.qtbot.waitUntil(lambda: status_has(page, " reference runs as runs "))
    assert not show.isVisible()
    page.qtbot.waitUntil(page.view.table.hasFocus)
    assert page.entry("View", "Reference runs").isChecked()
    page.qtbot.waitUntil(lambda: set(page.column("Devices")[:40]) <= {"H200", "2× H200", "4× H200"})
    assert all(words.startswith("reference") for words in page.column("Tags, note")[:40])
    page.menu_entry("View", "Reference runs")
    page.wait_for_text("No runs yet")
    page.qtbot.waitUntil(lambda: status_has(page, f"Removed {count} reference runs."))


def test_while_a_run_is_going_on_the_reference_runs_wait_and_are_not_said_to_be_here(screen: HistoryPage) -> None:
    with Store.open(screen.database) as store:
        begin(store, uid="going-on")
    screen.menu_entry("View", "Reference runs")
    screen.wait_for_text("A run is active, and adding others to the database would disturb what it measures")
    keep_all(screen.database, [stored_run(run_row(4))])
    screen.controller.refresh()
    screen.qtbot.waitUntil(lambda: len(screen.column("Run")) == 4)
    assert "would disturb" in screen.visible_text(), "a list that is read again takes back no answer"
    assert not screen.entry("View", "Reference runs").isChecked()
