import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt, SignalInstance
from PySide6.QtGui import QGuiApplication, QHelpEvent, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QMenu, QPlainTextEdit, QToolTip
from pytestqt.qtbot import QtBot

from app.gui.history.page import RunPageView
from app.gui.history.table_model import HistoryModel
from app.gui.theme import GRID, Theme
from app.gui.widgets.cell_delegate import BOX_LEFT, CHECK_BOX_PX
from app.gui.window_state import write_states
from app.storage.store import Store
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.format.cells import Cell
from app.viewmodels.history.labels import answer_hint
from app.viewmodels.history.run_detail import run_detail
from tests.fakes.evidence import AS_REQUESTED
from tests.gui.actions import RecordedActions
from tests.gui.history_page import TITLES, HistoryPage
from tests.gui.screens import expose, locked
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.stored import keep, keep_all, run_row, stored_run


@pytest.fixture
def database(database_path: Path) -> Path:
    with Store.open(database_path) as store:
        keep(store, stored_run(run_row(1, throughput=800.0), evidence=AS_REQUESTED))
        keep(store, stored_run(run_row(2, workload="cnn10", throughput=43601.0, energy_mj=12.4)))
        failed = run_row(3, outcome="failed", reason="The loss is not a finite number.", throughput=None)
        keep(store, stored_run(failed, measured=False))
    return database_path


@pytest.fixture
def screen(history_on: Callable[[Path], HistoryPage], database: Path) -> HistoryPage:
    return history_on(database).refresh()


def test_an_empty_database_says_what_to_do(history_on: Callable[[Path], HistoryPage], database_path: Path) -> None:
    empty = history_on(database_path).refresh()
    assert "No runs yet" in empty.visible_text()
    assert "Ctrl+1" in empty.visible_text()
    empty.button("Filter by").click()
    assert not empty.view.overview.facets.isVisibleTo(empty.view.overview)


def test_until_runs_are_read_that_is_said_and_no_titles_are_cut(
    history_on: Callable[[Path], HistoryPage], database: Path
) -> None:
    page = history_on(database)
    table = page.view.table
    assert table.head.isHidden()
    blank = table.viewport().grab().toImage()
    assert len({blank.pixel(x, y) for x in range(blank.width()) for y in range(blank.height())}) > 2, "a sentence"
    page.refresh()
    assert not table.head.isHidden()


def test_runs_come_newest_first_and_a_click_on_a_head_sorts(screen: HistoryPage) -> None:
    assert screen.column("Run") == ["3", "2", "1"]
    assert screen.column("Outcome") == ["failed", "completed", "completed"]
    screen.sort("Throughput, 1/s")
    assert screen.column("Throughput, 1/s") == ["43,601", "800", "–"]
    assert (
        str(screen.model.headerData(TITLES.index("Throughput, 1/s"), Qt.Orientation.Horizontal)) == "Throughput, 1/s ↓"
    )
    screen.sort("Throughput, 1/s")
    assert screen.column("Run") == ["1", "2", "3"]


def test_words_give_way_to_symbols_and_titles_go_last(screen: HistoryPage) -> None:
    table, marks = screen.view.table, [TITLES.index(title) for title in ("Outcome", "Evidence")]
    seen: dict[str, list[bool]] = {}
    for width in range(1600, 500, -4):
        screen.view.resize(width, 700)
        titles = [str(screen.model.headerData(column, Qt.Orientation.Horizontal)) for column in marks]
        words = max(table.columnWidth(column) for column in marks)
        seen.setdefault(",".join(titles), []).append(words > table.fontMetrics().horizontalAdvance("✔ completed"))
    assert list(seen) == ["Outcome,Evidence", "Outcome,", ","]
    with_titles = seen["Outcome,Evidence"]
    assert (with_titles[0], with_titles[-1]) == (True, False), "symbols under titles before the titles go"


def test_a_column_in_which_all_runs_agree_is_said_once_above_the_table(screen: HistoryPage) -> None:
    agreed, outcome = screen.view.overview.header.agreed, TITLES.index("Outcome")
    assert (agreed.text(), screen.view.table.isColumnHidden(outcome)) == ("TensorFlow", False)
    screen.search("outcome:completed")
    screen.qtbot.waitUntil(lambda: "all completed" in agreed.text())
    assert screen.view.table.isColumnHidden(outcome)
    screen.search("")
    screen.qtbot.waitUntil(lambda: not screen.view.table.isColumnHidden(outcome))
    assert agreed.text() == "TensorFlow"


def test_in_a_narrow_window_the_answer_ends_in_how_sure_it_is(screen: HistoryPage) -> None:
    answer = screen.view.overview.header.answer
    answer.setMinimumWidth(300)
    answer.setMaximumWidth(300)

    def picture(begin: str, end: str) -> QImage:
        answer.setText(f"{begin} leads 17 comparable variants: 10.9× as fast as Standard · TF32 ({end}).")
        return answer.grab().toImage()

    pictures = [picture("Auto", "8.20–14.0×"), picture("cuDNN", "8.20–14.0×"), picture("Auto", "1.20–14.0×")]
    assert pictures[0] == picture("Auto", "8.20–14.0×")
    assert pictures[1] != pictures[0] != pictures[2]


def test_checked_runs_give_the_answer_that_compare_gives_and_it_goes_with_the_checks(
    screen: HistoryPage, database: Path
) -> None:
    keep_all(database, [stored_run(run_row(4, throughput=1600.0, implementation="cudnn"))])
    screen.refresh()
    header, table = screen.view.overview.header, screen.view.table
    assert header.answer.text() == answer_hint(0, deleted=False)
    for run in (1, 4):
        click_box(screen, run)
    assert (table.chosen(), header.answer.text()) == ([1, 4], answer_hint(2, deleted=False))
    with screen.store() as store:
        expected = compute_verdict(store.library.run_rows([1, 4]))
    screen.qtbot.waitUntil(lambda: header.answer.text() == expected.answer)
    screen.key(Qt.Key.Key_Space)
    assert (table.chosen(), header.answer.text()) == ([1], answer_hint(1, deleted=False))
    assert not header.compare.isEnabled()
    screen.key(Qt.Key.Key_Space)
    screen.qtbot.waitUntil(lambda: header.answer.text() == expected.answer)
    header.compare.click()
    assert screen.recorded.calls == [("compare", [1, 4])]


def test_the_box_of_a_group_checks_its_runs_and_says_whether_all_are(screen: HistoryPage) -> None:
    screen.key(Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    click_box(screen, row=0)
    assert screen.view.table.chosen() == [1, 2, 3]
    boxes = [state for row in range(4) if (state := check_state(screen, row)) is not None]
    assert boxes == [Qt.CheckState.Checked] * 4
    click_box(screen, row=2)
    assert screen.view.table.chosen() == [1, 3]
    assert check_state(screen, 0) == Qt.CheckState.PartiallyChecked
    click_box(screen, row=0)
    click_box(screen, row=0)
    assert screen.view.table.chosen() == []


def test_only_boxes_space_ctrl_and_shift_change_what_is_checked(screen: HistoryPage) -> None:
    table = screen.view.table

    def click(row: int, *held: Qt.KeyboardModifier) -> None:
        at = table.visualRect(screen.model.index(row, TITLES.index("Workload"))).center()
        modifiers = held[0] if held else Qt.KeyboardModifier.NoModifier
        QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, modifiers, at)

    for run in (1, 2):
        click_box(screen, run)
    click(0)
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Up):
        screen.key(key)
    assert (table.chosen(), table.current_line()) == ([1, 2], 2), "a click and keys go to other lines alone"
    click(0, Qt.KeyboardModifier.ControlModifier)
    assert table.chosen() == [1, 2, 3]
    click(1, Qt.KeyboardModifier.ControlModifier)
    assert table.chosen() == [1, 3]
    screen.key(Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert table.chosen() == []
    click(0)
    click(2, Qt.KeyboardModifier.ShiftModifier)
    assert table.chosen() == [1, 2, 3]
    screen.view.overview.facets.tree.setFocus()
    screen.key(Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    click(0)
    screen.key(Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert table.chosen() == [2, 3], "both ends"
    screen.key(Qt.Key.Key_Space)
    assert table.chosen() == [3]


def test_all_runs_are_checked_from_wherever_the_keyboard_is_and_by_the_box_above_them(screen: HistoryPage) -> None:
    table, overview = screen.view.table, screen.view.overview
    overview.bar.facets.click()
    screen.qtbot.waitUntil(overview.facets.tree.isVisible)
    overview.facets.tree.setFocus()
    QTest.keyClick(overview.facets.tree, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert table.chosen() == [1, 2, 3]

    def click_head() -> tuple[list[int], Qt.CheckState]:
        point = QPoint(BOX_LEFT + CHECK_BOX_PX // 2, table.head.height() // 2)
        QTest.mouseClick(table.head.viewport(), Qt.MouseButton.LeftButton, pos=point)
        return table.chosen(), table._lines.check_state_of_all()

    assert click_head() == ([], Qt.CheckState.Unchecked)
    click_box(screen, 2)
    assert table._lines.check_state_of_all() == Qt.CheckState.PartiallyChecked
    assert click_head() == ([1, 2, 3], Qt.CheckState.Checked)
    assert screen.column("Run") == ["3", "2", "1"], "the box sorts nothing"
    click_box(screen, 2)
    some = table.head.grab().toImage()
    click_box(screen, 2)
    assert some != table.head.grab().toImage()


def test_what_a_search_hides_stays_checked_and_a_folded_group_says_that_some_are(screen: HistoryPage) -> None:
    table, footer = screen.view.table, screen.view.overview.footer
    for run in (1, 2):
        click_box(screen, run)
    screen.search("cnn10")
    screen.wait_for("Run", "2")
    assert (table.chosen(), footer.count.text()) == ([2], "1 of 3 runs · 1 checked, 1 more out of sight")
    screen.search("")
    screen.wait_for("Run", "3", "2", "1")
    assert (table.chosen(), footer.count.text()) == ([1, 2], "3 runs · 2 checked")
    screen.key(Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    for _ in range(2):  # folded, and open again
        table.toggle_fold(0)
        assert table.chosen() == [1, 2]
        state = table.model().index(0, 0).data(Qt.ItemDataRole.CheckStateRole)
        assert state == Qt.CheckState.PartiallyChecked, "of the group's line"


def test_a_key_is_about_the_checked_runs_and_the_menu_of_another_line_about_that(screen: HistoryPage) -> None:
    table, menu = screen.view.table, screen.view.overview.run_menu
    copied: list[list[int]] = []
    menu.copy_requested.connect(copied.append)
    at = table.visualRect(screen.model.index(0, 1)).center()
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=at)
    screen.key(Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert copied == [[3]], "nothing is checked: the current run"
    for run in (1, 2):
        click_box(screen, run)
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=at)
    screen.key(Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    table.customContextMenuRequested.emit(at)
    popup = QApplication.activePopupWidget()
    assert isinstance(popup, QMenu)
    assert [action.text().partition("\t")[0] for action in popup.actions()].count("&Diff") == 0, "of one run"
    popup.close()
    table.customContextMenuRequested.emit(at)
    popup = QApplication.activePopupWidget()
    assert isinstance(popup, QMenu)
    entry = next(action for action in popup.actions() if action.text() == "Copy co&mmand")
    QTest.mouseClick(popup, Qt.MouseButton.LeftButton, pos=popup.actionGeometry(entry).center())
    assert copied == [[3], [1, 2], [3]]
    screen.qtbot.waitUntil(menu.diff.isEnabled)
    click_box(screen, 3)
    table.customContextMenuRequested.emit(at)
    popup = QApplication.activePopupWidget()
    assert isinstance(popup, QMenu)
    assert "Compare 3 runs" in [action.text() for action in popup.actions()]
    popup.close()


def test_curves_of_runs_in_view_are_drawn_behind_their_figures_and_enlarged_where_the_mouse_rests(
    screen: HistoryPage,
) -> None:
    table = screen.view.table
    throughput = TITLES.index("Throughput, 1/s")

    def sparks() -> list[int]:
        rows = (table.model().row_cells(row) for row in range(3))  # type: ignore[attr-defined]
        return [len(cells[throughput].spark) for cells in rows]

    screen.qtbot.waitUntil(lambda: sparks() == [0, 24, 24])  # the failed run has none
    for row, pictures in ((0, 0), (1, 1)):
        at = table.visualRect(screen.model.index(row, 0)).center()
        event = QHelpEvent(QHelpEvent.Type.ToolTip, at, table.viewport().mapToGlobal(at))
        QApplication.sendEvent(table.viewport(), event)
        assert QToolTip.text().count("<img") >= pictures
        assert ("<img" in QToolTip.text()) == bool(pictures)
    QToolTip.hideText()


def click_box(screen: HistoryPage, run: int = 0, *, row: int | None = None) -> None:
    """Click the check box of a run, or of a row."""
    at = screen.column("Run").index(str(run)) if row is None else row
    area = screen.view.table.visualRect(screen.model.index(at, 0))
    point = QPoint(area.left() + BOX_LEFT + CHECK_BOX_PX // 2, area.center().y())
    QTest.mouseClick(screen.view.table.viewport(), Qt.MouseButton.LeftButton, pos=point)


def check_state(screen: HistoryPage, row: int) -> object:
    return screen.model.index(row, 0).data(Qt.ItemDataRole.CheckStateRole)


def test_search_narrows_as_typed_and_escape_or_a_button_clears_it(screen: HistoryPage) -> None:
    screen.view.table.setFocus()
    screen.key(Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    screen.qtbot.waitUntil(lambda: isinstance(screen.view.focusWidget(), QLineEdit))
    for end in range(1, len("cnn10") + 1):
        screen.search("cnn10"[:end])
    screen.wait_for("Run", "2")
    assert "1 of 3 runs" in screen.visible_text()
    screen.search("nothing like it")
    screen.wait_for_text("No run matches")
    screen.escape()
    screen.wait_for("Run", "3", "2", "1")
    assert screen.view.overview.bar.search.text() == ""
    screen.search("nothing like it")
    screen.wait_for_text("No run matches")
    QTest.mouseClick(screen.button("Show all runs"), Qt.MouseButton.LeftButton)
    screen.wait_for("Run", "3", "2", "1")


def test_a_search_leaves_out_what_only_notes_say(screen: HistoryPage, database: Path) -> None:
    with Store.open(database) as store:
        keep(store, stored_run(run_row(4, implementation="cudnn"), measured=False))
        store.library.set_note(1, "measured with\ncuDNN loaded 9.19.0 and the driver that came with it")
    screen.search("cudnn")
    screen.wait_for("Run", "4")
    screen.button("1 more in notes").click()
    screen.wait_for("Run", "1")
    assert screen.view.overview.bar.search.text() == "note:cudnn"
    screen.search("")
    screen.wait_for("Run", "4", "3", "2", "1")


def test_words_of_a_search_are_marked_where_they_stand(screen: HistoryPage) -> None:
    def workload() -> QImage:
        table = screen.view.table
        return table.viewport().grab(table.visualRect(screen.model.index(0, TITLES.index("Workload")))).toImage()

    screen.search("variant:nchw")
    screen.wait_for("Run", "2")
    plain = workload()
    screen.search("cnn1")
    screen.qtbot.waitUntil(lambda: screen.view.overview.listing.query.text == "cnn1")
    marked = workload()
    area = [(x, y) for x in range(plain.width()) for y in range(plain.height())]
    changed = [at for at in area if plain.pixelColor(*at) != marked.pixelColor(*at)]
    assert len(changed) > 200
    assert max(x for x, _ in changed) < screen.view.fontMetrics().horizontalAdvance("cnn10") + GRID, "the end is not"


def test_a_search_begun_before_the_runs_were_read_knows_them_all_the_same(
    history_on: Callable[[Path], HistoryPage], database: Path
) -> None:
    early = history_on(database)
    early.controller.refresh()
    early.search("cnn10")
    early.wait_for("Run", "2")
    assert "1 of 3 runs" in early.visible_text()


def test_several_values_of_a_facet_are_chosen_at_once_and_all_are_counted(screen: HistoryPage, database: Path) -> None:
    keep_all(database, [stored_run(run_row(4, workload="wrn28-10", layout="NHWC"), measured=False)])
    screen.refresh()
    screen.filter("Workload", "cnn10")
    screen.wait_for("Run", "2")
    screen.filter("Workload", "wrn28-10")
    screen.wait_for("Run", "4", "2")
    tree = screen.view.overview.facets.tree

    def lines() -> list[str]:
        heads = [item for n in range(tree.topLevelItemCount()) if (item := tree.topLevelItem(n)) is not None]
        below = [head.child(n) for head in heads[:1] for n in range(head.childCount())]
        return [heads[0].text(0), *(f"{item.text(0)} {item.text(1)}" for item in below if item is not None)]

    screen.qtbot.waitUntil(lambda: lines() == ["Workload (2)", "lstm 2", "cnn10 1", "wrn28-10 1"])
    assert screen.button("Filter by (2)").isChecked()
    screen.filter("Layout", "NHWC")
    screen.wait_for("Run", "4")
    screen.escape()
    screen.wait_for("Run", "4", "3", "2", "1")
    screen.qtbot.waitUntil(lambda: lines()[0] == "Workload")
    screen.filter("Workload", "cnn10")
    screen.wait_for("Run", "2")
    screen.button("Clear").click()
    screen.wait_for("Run", "4", "3", "2", "1")


def test_the_filter_panel_stays_with_its_values_where_nothing_is_found(screen: HistoryPage) -> None:
    overview = screen.view.overview
    screen.filter("Outcome", "completed")
    screen.wait_for("Run", "2", "1")
    tree = overview.facets.tree

    def values(facet: str) -> list[str]:
        (head,) = tree.findItems(facet, Qt.MatchFlag.MatchStartsWith)
        below = [head.child(n) for n in range(head.childCount())]
        return [f"{item.text(0)} {item.text(1)}" for item in below if item is not None]

    screen.qtbot.waitUntil(lambda: values("Workload") == ["cnn10 1", "lstm 1"])
    screen.search("no run has this")
    screen.wait_for_text("No run matches “no run has this” and these filters")
    screen.qtbot.waitUntil(lambda: values("Workload") == ["cnn10 0", "lstm 0"])
    assert overview.facets.isVisibleTo(overview)
    assert [each.split()[-1] for each in values("Outcome")] == ["0", "0"]
    screen.filter("Outcome", "completed")
    screen.wait_for_text("No run matches “no run has this”\nChange the search, or press Escape to show all runs.")
    screen.search("")
    screen.wait_for("Run", "3", "2", "1")


def test_what_was_chosen_is_remembered_with_the_database(
    history_on: Callable[[Path], HistoryPage], database: Path, window_state: Path
) -> None:
    first = history_on(database).refresh()
    first.filter("Workload", "lstm")
    first.wait_for("Run", "3", "1")
    first.view.overview.facets.tree.collapseAll()
    write_states(first.view)
    again = history_on(database).refresh()
    again.wait_for("Run", "3", "1")
    tree = again.view.overview.facets.tree
    again.qtbot.waitUntil(lambda: tree.topLevelItemCount() > 0)
    assert not any(item.isExpanded() for n in range(tree.topLevelItemCount()) if (item := tree.topLevelItem(n)))


def test_a_refresh_shows_new_runs_and_keeps_choice_and_order(screen: HistoryPage, database: Path) -> None:
    screen.sort("Throughput, 1/s")
    screen.choose(1, 3)
    keep_all(database, [stored_run(run_row(4, outcome=None, throughput=None), measured=False)])
    screen.refresh()
    assert screen.column("Run") == ["2", "1", "4", "3"]
    assert screen.column("Outcome")[2] == "running"
    assert screen.view.table.chosen() == [1, 3]


def test_a_run_that_another_program_stores_appears_by_itself(screen: HistoryPage, database: Path) -> None:
    keep_all(database, [stored_run(run_row(4, outcome=None, throughput=None), measured=False)])
    screen.wait_for("Outcome", "running", "failed", "completed", "completed")


def test_refreshes_asked_for_while_reading_are_one_more_reading(screen: HistoryPage) -> None:
    shown = Counter(screen.view.table.chosen_changed)
    for _ in range(5):
        screen.controller.refresh()
    screen.qtbot.waitUntil(lambda: shown.count == 2)


def test_runs_that_are_read_again_keep_their_lines_and_show_what_changed(screen: HistoryPage) -> None:
    resets = Counter(screen.model.modelReset)
    with screen.store() as store:
        store.library.set_note(2, "Too hot.")
    screen.refresh()
    assert resets.count == 0
    assert "Too hot." in screen.column("Tags, note")


def test_enter_opens_the_run_with_its_plots_and_escape_goes_back_to_the_choice(screen: HistoryPage) -> None:
    screen.choose(2)
    screen.key(Qt.Key.Key_Return)
    screen.wait_for_page(2)
    plots = screen.view.detail.panels.visible_plots
    assert [len(plot.shown_keys()) for plot in plots] == [1, 1, 1, 1, 1]
    x, y = plots[0].curves[plots[0].shown_keys()[0]].source.points()
    assert (x[0], y[0]) == (0.0, 600.0)
    assert "43,601" in screen.visible_text()
    screen.escape()
    assert not screen.view.shows_run
    assert screen.view.table.chosen() == [2]


def test_a_failed_run_tells_why_and_how_to_run_it_again(screen: HistoryPage) -> None:
    screen.open(3)
    assert "The loss is not a finite number." in displayed_text(screen.view.detail)
    screen.qtbot.waitUntil(lambda: "Implementation" in displayed_text(screen.view.detail))  # laid out in a later turn
    screen.button("Copy command").click()
    assert (
        QGuiApplication.clipboard()
        .text()
        .startswith("python -m app run lstm -s framework=tensorflow -s implementation=standard")
    )


def test_a_traceback_is_open_at_the_users_own_line(qtbot: QtBot, theme: Theme, recorded: RecordedActions) -> None:
    """Not at its outermost frame, with that line below the fold."""
    libraries = [f'  File "/lib/keras/deep{n}.py", line {n}, in call\n    call()' for n in range(20)]
    own = '  File "/elsewhere/bad.py", line 10, in make\n    raise ValueError()'
    run = stored_run(run_row(1, outcome="failed", reason="bad.py:10: ValueError: no file", throughput=None))
    view = RunPageView(theme, recorded.actions)
    qtbot.addWidget(view)
    view.resize(1400, 860)
    (traceback,) = (editor for editor in view.findChildren(QPlainTextEdit) if editor.accessibleName() == "Traceback")
    with qtbot.waitExposed(view):
        view.show()
    for frames, line in (([*libraries, own, *libraries], own), (libraries, libraries[-1])):
        assert run.row.outcome is not None
        outcome = replace(run.row.outcome, detail="\n".join(["Traceback:", *frames, "ValueError: no file"]))
        view.show_model(run_detail(replace(run, row=replace(run.row, outcome=outcome)), UTC))
        top = traceback.cursorForPosition(QPoint(4, 4)).blockNumber()
        seen = traceback.toPlainText().splitlines()[top : top + 14]
        assert set(line.splitlines()) <= set(seen)


def test_one_page_after_another_shows_only_its_own_panels(screen: HistoryPage) -> None:
    screen.open(2)
    screen.open(3)
    assert [len(plot.shown_keys()) for plot in screen.view.detail.panels.visible_plots] == [1, 2]


def test_axes_that_grow_are_painted_as_if_they_had_always_been_that_long(
    qtbot: QtBot, theme: Theme, recorded: RecordedActions
) -> None:
    silent = replace(stored_run(run_row(2, gpus=1, outcome="failed", throughput=None), measured=False), log=())
    few = run_detail(silent, UTC)
    views = [RunPageView(theme, recorded.actions) for _ in range(2)]
    for view in views:
        expose(qtbot, view, 1400, 860)
    views[0].show_model(run_detail(stored_run(run_row(1, gpus=1)), UTC))
    qtbot.waitUntil(lambda: not views[0].panels.busy)
    views[0].grab()
    assert views[0].log.isVisible()
    for view in views:
        view.show_model(few)
        assert not view.log.isVisible(), "there is nothing in it"
    qtbot.waitUntil(lambda: axes_of(views[0]) == axes_of(views[1]))


def axes_of(view: RunPageView) -> QImage:
    return view.grab().toImage().copy(0, 100, 72, 560)


def test_a_problem_stands_on_the_screen_and_goes_when_it_is_solved(
    qtbot: QtBot, history_on: Callable[[Path], HistoryPage], database_path: Path
) -> None:
    database_path.write_text("this is no database", encoding="utf-8")
    screen = history_on(database_path)
    screen.controller.refresh()
    screen.wait_for_text("is not an SQLite database")
    header = screen.view.overview.header
    assert not header.restore.isVisible(), "nothing is offered for runs that cannot be read"
    assert not header.compare.isEnabled()
    database_path.unlink()
    screen.refresh()
    assert "is not an SQLite database" not in screen.visible_text()


def test_what_a_lock_or_a_full_disk_kept_from_being_read_is_read_at_a_click(
    qtbot: QtBot, history_on: Callable[[Path], HistoryPage], database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_all(database_path, [stored_run(run_row(1))])
    screen = history_on(database_path).refresh()
    for ask in (screen.controller.refresh, lambda: screen.controller.open_run(1)):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "open", locked)
            ask()
            screen.wait_for_text("is locked")
        qtbot.waitUntil(lambda: "Try again" in "".join(screen.button_labels()).replace("&", ""))
        screen.button("Try again").click()
        qtbot.waitUntil(lambda: "is locked" not in screen.visible_text())
    screen.wait_for_page(1)
    screen.view.problem.show_sentence("run 7 is gone")
    assert "&Try again" not in screen.button_labels()


@pytest.fixture
def many(history_on: Callable[[Path], HistoryPage], database_path: Path) -> HistoryPage:
    """Three thousand runs, number 1 the oldest."""
    (first,) = keep_all(database_path, [stored_run(run_row(1), measured=False)])
    copy_runs(database_path, first, 2_999)
    return history_on(database_path).refresh()


def test_thousands_of_runs_cost_only_the_cells_in_view(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[int] = set()
    row_cells = HistoryModel.row_cells

    def counted(model: HistoryModel, row: int) -> Sequence[Cell]:
        read.add(row)
        return row_cells(model, row)

    monkeypatch.setattr(HistoryModel, "row_cells", counted)
    many: HistoryPage = request.getfixturevalue("many")
    many.view.grab()
    in_view = many.view.table.viewport().height() // many.view.table.rowHeight(0) + 2
    assert 0 < len(read) <= in_view


def test_a_refresh_leaves_the_view_where_it_was(many: HistoryPage) -> None:
    table = many.view.table
    table.verticalScrollBar().setValue(1_000)
    with many.store() as store:
        keep(store, stored_run(run_row(3_001, outcome=None, throughput=None), measured=False))
    many.refresh()
    assert many.model.rowCount() == 3_001
    assert many.model.index(table.rowAt(0), 0).data() == "2000"
    table.scrollToBottom()
    assert many.model.index(3_000, TITLES.index("Run")).data() == "1", "the first run ever made"


def test_all_runs_found_can_be_chosen_at_once(many: HistoryPage) -> None:
    many.view.table.check_all(checked=True)
    assert len(many.view.table.chosen()) == 3_000
    many.search("299")
    many.qtbot.waitUntil(lambda: many.model.rowCount() < 3_000)
    assert many.view.table.chosen() == [299]
    many.search("")
    many.qtbot.waitUntil(lambda: many.model.rowCount() == 3_000)
    assert len(many.view.table.chosen()) == 3_000


def copy_runs(database: Path, run: int, times: int) -> None:
    """As many more runs as the first one, each a minute later."""
    columns = "workload, variant, outcome, throughput, owner_pid, owner_started_s, owner_boot_id, started_t_ns"
    minute_ns = 60_000_000_000
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(
            f"INSERT INTO runs (uid, started_utc_ns, {columns})"
            f" SELECT uid || ?, started_utc_ns + ?, {columns} FROM runs WHERE run = ?",
            ((f"-{n}", n * minute_ns, run) for n in range(1, times + 1)),
        )


class Counter:
    def __init__(self, signal: SignalInstance) -> None:
        self.count = 0
        signal.connect(self._one_more)

    def _one_more(self) -> None:
        self.count += 1


def test_the_page_of_a_run_shows_its_measured_part_first_and_the_whole_by_a_click(screen: HistoryPage) -> None:
    screen.open(1)
    detail = screen.view.detail
    assert detail.panels.span == pytest.approx((3.2, 12.5), abs=0.1)
    assert detail.time_bar.range_buttons["measured"].isChecked()
    detail.time_bar.range_buttons["all"].click()
    assert detail.panels.span == pytest.approx((0.0, 12.5), abs=0.1)
    assert not detail.time_bar.range_buttons["measured"].isChecked()
