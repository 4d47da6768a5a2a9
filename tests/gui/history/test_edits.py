"""The user's edits in History: tags, notes, columns, the trash."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialogButtonBox, QMenu, QMessageBox

from app.gui.history.annotations import NoteDialog, TagDialog
from app.storage.store import Store
from tests.fakes.saved_experiments import save_experiment
from tests.gui.history_page import TITLES, HistoryPage
from tests.unit.viewmodels.stored import keep, run_row, stored_run


@pytest.fixture
def screen(history_on: Callable[[Path], HistoryPage], database_path: Path) -> HistoryPage:
    """Four runs: 1 and 2 have a tag, 3 a note, 4 failed; 1 to 3 in two experiments."""
    with Store.open(database_path) as store:
        for number in (1, 2, 3):
            keep(store, stored_run(run_row(number, throughput=1000.0 * number), measured=False))
        keep(store, stored_run(run_row(4, outcome="failed", throughput=None), measured=False))
        store.library.add_tag([1, 2], "night")
        store.library.set_note(3, "Too hot.\nRepeat it.")
        save_experiment(store.library, [1], name="layers", preset=None, plan="{}", utc_ns=1)
        save_experiment(store.library, [2, 3], name="layouts", preset=None, plan="{}", utc_ns=2)
    return history_on(database_path).refresh()


def annotations(screen: HistoryPage, run: int) -> tuple[tuple[str, ...], str]:
    with screen.store() as store:
        (row,) = store.library.run_rows([run])
    return row.tags, row.note


def save(dialog: TagDialog | NoteDialog) -> None:
    (box,) = dialog.findChildren(QDialogButtonBox)
    box.button(QDialogButtonBox.StandardButton.Save).click()


def test_t_tags_all_chosen_runs(screen: HistoryPage) -> None:
    screen.choose(4, 1)
    screen.key(Qt.Key.Key_T)
    dialog = screen.dialog(TagDialog)
    assert dialog.states() == {"night": Qt.CheckState.PartiallyChecked}
    QTest.keyClicks(dialog.line, "for the report")
    QTest.keyClick(dialog.line, Qt.Key.Key_Return)
    QTest.keyClick(dialog.line, Qt.Key.Key_Return)
    screen.wait_for("Tags, note", "for the report", "Too hot.", "night", "for the report, night")
    assert annotations(screen, 1)[0] == ("for the report", "night")


def test_a_tag_is_taken_off_by_its_box(screen: HistoryPage) -> None:
    screen.choose(1, 2)
    screen.key(Qt.Key.Key_T)
    dialog = screen.dialog(TagDialog)
    dialog.tick("night", Qt.CheckState.Unchecked)
    save(dialog)
    screen.wait_for("Tags, note", "", "Too hot.", "", "")


def test_n_writes_one_note_on_all_chosen_runs(screen: HistoryPage) -> None:
    screen.choose(3, 4)
    screen.key(Qt.Key.Key_N)
    dialog = screen.dialog(NoteDialog)
    assert dialog.editor.toPlainText() == ""
    QTest.keyClicks(dialog.editor, "Fan was off")
    QTest.keyClick(dialog.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    screen.wait_for("Tags, note", "Fan was off", "Fan was off", "night", "night")
    assert annotations(screen, 3)[1] == "Fan was off"


def test_a_note_that_was_only_looked_at_stays(screen: HistoryPage) -> None:
    screen.choose(3, 4)
    screen.key(Qt.Key.Key_N)
    dialog = screen.dialog(NoteDialog)
    with screen.qtbot.assertNotEmitted(dialog.changed):
        save(dialog)


def test_deleted_runs_go_without_a_question_and_come_back_by_undo(screen: HistoryPage) -> None:
    screen.choose(2, 3)
    screen.key(Qt.Key.Key_Delete)
    screen.wait_for("Run", "4", "1")
    assert "2 runs deleted" in screen.visible_text()
    assert screen.view.table.chosen() == []
    assert screen.undo.undo_name == "Undo: delete 2 runs"
    screen.button("Undo").setFocus()
    screen.button("Undo").click()
    screen.wait_for("Run", "4", "3", "2", "1")
    assert "2 runs deleted" not in screen.visible_text()
    assert screen.view.table.hasFocus()
    screen.undo.redo()
    screen.wait_for("Run", "4", "1")


def test_tags_and_notes_are_undone_also_on_the_page_that_shows_them(screen: HistoryPage) -> None:
    screen.open(3)
    words = screen.view.detail.annotations
    words.tags_button.click()
    tags = screen.dialog(TagDialog)
    QTest.keyClicks(tags.line, "day, Throttled")
    for _ in range(2):  # the first adds it to the list, the second saves
        QTest.keyClick(tags.line, Qt.Key.Key_Return)
    screen.qtbot.waitUntil(lambda: words.tags.text() == "day, Throttled")
    assert screen.undo.undo_name == "Undo: change tags of run 3"
    words.note_button.click()
    note = screen.dialog(NoteDialog)
    QTest.keyClicks(note.editor, " Cool.")
    save(note)
    screen.qtbot.waitUntil(lambda: screen.undo.undo_name == "Undo: change the note on run 3")
    screen.undo.undo()
    screen.undo.undo()
    screen.qtbot.waitUntil(lambda: words.tags.text() == "No tags")
    assert words.note.text() == "Too hot.\nRepeat it."
    assert annotations(screen, 3) == ((), "Too hot.\nRepeat it.")
    assert screen.undo.undo_name == ""


def test_a_run_that_goes_on_is_not_deleted_and_said(screen: HistoryPage) -> None:
    with screen.store() as store:
        keep(store, stored_run(run_row(5, outcome=None, throughput=None), measured=False))
    screen.refresh()
    screen.choose(5)
    screen.key(Qt.Key.Key_Delete)
    screen.wait_for_text("Run 5 is in progress")
    assert screen.column("Run")[0] == "5"


def test_deleted_runs_are_looked_at_restored_or_deleted_for_good(screen: HistoryPage) -> None:
    screen.choose(1, 2, 3)
    screen.key(Qt.Key.Key_Delete)
    screen.wait_for("Run", "4")
    screen.menu_entry("View", "Deleted runs (3)")
    screen.wait_for("Run", "3", "2", "1")
    assert "3 deleted runs" in screen.visible_text()
    screen.choose(2)
    screen.button("Restore 1 run").click()
    screen.wait_for("Run", "3", "1")
    screen.choose(3)
    screen.key(Qt.Key.Key_Delete, Qt.KeyboardModifier.ShiftModifier)
    box = screen.dialog(QMessageBox)
    assert "Delete 1 run for good?" in box.text()
    next(button for button in box.buttons() if button.text() == "&Delete").click()
    screen.wait_for("Run", "1")
    screen.escape()
    screen.wait_for("Run", "4", "2")


def test_groups_fold_and_choosing_a_group_chooses_its_runs(screen: HistoryPage) -> None:
    table = screen.view.table
    screen.key(Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    assert screen.column("Run") == [
        "layouts 2 runs · 1970-01-01 00:00",
        "3",
        "2",
        "layers 1 run · 1970-01-01 00:00",
        "1",
        "Without an experiment 1 run",
        "4",
    ]
    screen.key(Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    screen.key(Qt.Key.Key_Space)
    assert table.chosen() == [2, 3]
    assert screen.button("Compare 2 runs").isEnabled()
    screen.key(Qt.Key.Key_Left)
    assert screen.column("Run")[:2] == ["layouts 2 runs · 1970-01-01 00:00", "layers 1 run · 1970-01-01 00:00"]
    assert table.chosen() == [2, 3]
    screen.key(Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert screen.recorded.calls == [("compare", [2, 3])]
    screen.key(Qt.Key.Key_Right)
    assert screen.column("Run")[:3] == ["layouts 2 runs · 1970-01-01 00:00", "3", "2"]
    screen.key(Qt.Key.Key_Down)
    assert table.current_line() == 3
    screen.key(Qt.Key.Key_Left)
    assert table.current_runs() == [2, 3], "the group's line"
    assert table.chosen() == [2, 3], "a key that goes to another line changes no box"


def test_the_rows_of_groups_are_read_too(screen: HistoryPage) -> None:
    screen.key(Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    screen.search("layouts")
    screen.wait_for("Run", "layouts 2 runs · 1970-01-01 00:00", "3", "2")
    assert screen.column("Throughput, 1/s")[2] == "2,000"


def test_columns_are_chosen_and_remembered(screen: HistoryPage, history_on: Callable[[Path], HistoryPage]) -> None:
    duration, started = TITLES.index("Duration"), TITLES.index("Started")
    assert (screen.view.table.isColumnHidden(duration), screen.view.table.isColumnHidden(started)) == (True, False)
    for title in ("Duration", "Started"):
        submenu_entry(screen, "Columns", title).trigger()
    assert not screen.view.table.isColumnHidden(duration)
    with screen.qtbot.waitSignal(screen.view.table.chosen_changed):
        pass
    again = history_on(screen.database).refresh()
    assert (again.view.table.isColumnHidden(duration), again.view.table.isColumnHidden(started)) == (False, True)


def test_the_menu_of_columns_stays_open_while_several_are_chosen(screen: HistoryPage) -> None:
    duration, started = (submenu_entry(screen, "Columns", title) for title in ("Duration", "Started"))
    menu = next(m for m in screen.view.findChildren(QMenu) if duration in m.actions())
    menu.popup(screen.view.mapToGlobal(screen.view.rect().topLeft()))
    menu.setActiveAction(duration)
    QTest.keyClick(menu, Qt.Key.Key_Space)
    at = menu.actionGeometry(started).center()
    QTest.mouseMove(menu, at)
    QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=at)
    assert (duration.isChecked(), started.isChecked(), menu.isVisible()) == (True, False, True)
    assert not screen.view.table.isColumnHidden(TITLES.index("Duration"))
    menu.setActiveAction(started)
    QTest.keyClick(menu, Qt.Key.Key_Return)
    assert (started.isChecked(), menu.isVisible()) == (True, False)


def submenu_entry(screen: HistoryPage, menu: str, words: str) -> QAction:
    found = next(m for m in screen.view.findChildren(QMenu) if m.title().replace("&", "") == menu)
    return next(action for action in found.actions() if action.text().replace("&", "") == words)


def test_the_menu_offers_what_can_be_done_with_the_chosen_runs(screen: HistoryPage) -> None:
    screen.choose(1, 2)
    screen.view.table.customContextMenuRequested.emit(screen.view.table.rect().center())
    menu = next(m for m in screen.view.table.findChildren(QMenu) if m.isVisible())
    words = [action.text().replace("&", "") for action in menu.actions() if not action.isSeparator()]
    assert words == [
        *("Open\tEnter", "Compare 2 runs", "Diff", "Compare with baseline", "Copy command", "Show files"),
        *("Tags …", "Note …", "Export", "Delete"),
    ]
    with screen.qtbot.waitSignal(screen.view.overview.run_menu.export_requested) as requested:
        submenu_entry(screen, "Export", "CSV tables …").trigger()
    assert requested.args == [[1, 2], "csv"]
    menu.close()
