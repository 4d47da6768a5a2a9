"""The keys of the whole window, the list of them, and the command palette."""

from itertools import chain
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.history.screen import HistoryView
from app.gui.shell.action_table import all_actions
from app.gui.theme import Theme
from app.gui.widgets.dialogs import message_box
from app.gui.window import COMPARE, HISTORY, MONITOR, RUN
from tests.gui.windows import window_on
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run


def titles(workbench: Workbench) -> list[str]:
    model = workbench.shell.palette.list.model()
    return [str(model.index(row, 0).data()) for row in range(model.rowCount())]


def shown_button(window: QWidget, text: str) -> bool:
    return any(each.isVisible() and each.text().replace("&", "") == text for each in window.findChildren(QPushButton))


def test_every_shortcut_of_every_screen_is_in_the_table(workbench: Workbench) -> None:
    window = workbench.window
    for page in (RUN, MONITOR, HISTORY, COMPARE):
        window.show_page(page)
    workbench.questions.open()
    bound = {keys.toString() for keys in chain(*map(QShortcut.keys, window.findChildren(QShortcut)))}
    bound |= {keys.toString() for keys in chain(*map(QAction.shortcuts, window.findChildren(QAction)))}
    listed = {QKeySequence(keys).toString() for _, action in all_actions() for keys in action.keys}
    in_fields = {"Shift+Return", "Ctrl+Return", "Ctrl+Enter"}
    assert bound - in_fields <= listed
    assert "" not in listed


def test_f1_and_the_question_mark_show_every_action_and_the_palette_the_buttons_in_sight_too(
    qtbot: QtBot, workbench: Workbench
) -> None:
    qtbot.waitUntil(workbench.run_view.gallery.plots_button.isVisible)
    palette = workbench.shell.palette
    for key in (Qt.Key.Key_F1, Qt.Key.Key_Question):
        QTest.keyClick(workbench.window, key)
        assert palette.isVisible()
        shown = titles(workbench)
        assert shown[0] == "Run", "the keys of the screen come first"
        assert len(shown) == sum(1 for _ in all_actions()) + 8
        assert "Pause or resume the plots, Space" in shown
        QTest.keyClick(palette.line, Qt.Key.Key_Escape)
        assert not palette.isVisible()
    workbench.shell.open_palette()
    assert any(title.startswith("Live plots, Show what this machine does now") for title in titles(workbench))
    assert any(title.startswith("Show log") for title in titles(workbench))
    QTest.keyClick(workbench.shell.palette.line, Qt.Key.Key_Escape)
    workbench.window.show_page(MONITOR)
    assert shown_button(workbench.window, "Show reference runs"), "it does what an action of that name does"
    workbench.shell.open_palette()
    QTest.keyClicks(workbench.shell.palette.line, "show reference runs")
    assert titles(workbench) == ["Show reference runs"]
    QTest.keyClick(workbench.shell.palette.line, Qt.Key.Key_Escape)
    workbench.window.show_page(RUN)
    workbench.shell.open_palette()
    QTest.keyClicks(workbench.shell.palette.line, "compare values several")
    QTest.keyClick(workbench.shell.palette.line, Qt.Key.Key_Return)
    assert workbench.run_view.gallery.isVisible()


def test_the_palette_finds_actions_and_runs_and_goes_back_to_where_the_keyboard_was(
    qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    keep_all(database_path, (stored_run(run_row(number, batch_size=32 * number), measured=False) for number in (1, 2)))
    with window_on(qtbot, database_path, theme) as workbench:
        palette, plots = workbench.shell.palette, workbench.run_view.live.stack
        workbench.run_view.show_live()
        plots.setFocus()
        QTest.keyClick(workbench.window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
        assert palette.line.hasFocus()
        QTest.keyClicks(palette.line, "batch 64")
        qtbot.waitUntil(lambda: titles(workbench)[0].startswith("2  lstm"))
        assert palette.list.verticalScrollBar().maximum() == 0, "what is shown is shown whole"
        QTest.keyClick(palette.line, Qt.Key.Key_Escape)
        assert plots.hasFocus()
        workbench.shell.open_palette()
        QTest.keyClicks(palette.line, "2 lstm")
        QTest.keyClick(palette.line, Qt.Key.Key_Return)
        (history,) = workbench.window.findChildren(HistoryView)
        qtbot.waitUntil(lambda: history.shows_run)
        workbench.shell.open_palette()
        assert titles(workbench)[:2] == ["Recent", titles(workbench)[1]]
        assert titles(workbench)[1].startswith("2  lstm")
        workbench.shell.show_keys()
        assert palette.list.currentIndex().row() == 1


def test_the_palette_lists_what_it_undoes_once_and_finds_what_is_in_menus_of_plots(workbench: Workbench) -> None:
    palette = workbench.shell.palette
    workbench.undo.push("add “a very long name of an experiment” to the queue", lambda: pytest.fail("nobody asked"))
    for words, found in (
        ("undo", "Undo: add “a very"),
        ("smoothing", "Show the menu of"),
    ):
        workbench.shell.open_palette()
        QTest.keyClicks(palette.line, words)
        assert sum(title.startswith(found) for title in titles(workbench)) == 1
        assert titles(workbench)[0].startswith(found)
        QTest.keyClick(palette.line, Qt.Key.Key_Escape)


FOUND = {
    "dark": "Theme: Dark",
    "theme": "Theme: Same as system",
    "standby": "Standby …",
    "preferences": "Settings",
    "hosts": "Hosts: add, check and remove",
    "ssh": "Hosts: add, check and remove",
    "export": "Export runs, in History: right-click the checked runs",
    "csv": "Export runs, in History: right-click the checked runs",
    "import": "Import runs, in History: View, or drop a file on the window",
}


def test_settings_values_synonyms_and_what_another_screen_has_are_found_set_and_led_to(
    workbench: Workbench, theme: Theme
) -> None:
    palette = workbench.shell.palette
    for typed, title in FOUND.items():
        workbench.shell.open_palette()
        QTest.keyClicks(palette.line, typed)
        assert titles(workbench)[0].startswith(title)
        QTest.keyClick(palette.line, Qt.Key.Key_Escape)
    for typed in ("dark", "light"):
        workbench.shell.open_palette()
        QTest.keyClicks(palette.line, typed)
        QTest.keyClick(palette.line, Qt.Key.Key_Return)
        assert theme.choice == typed
    workbench.shell.open_palette()
    QTest.keyClicks(palette.line, "export")
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert workbench.window.findChild(HistoryView).isVisible()  # type: ignore[union-attr]


def test_an_action_of_another_screen_is_done_there_by_its_keys(workbench: Workbench) -> None:
    palette, live = workbench.shell.palette, workbench.run_view.live
    workbench.window.show_page(MONITOR)
    for words, chip in (("pause resume plots", "Paused"), ("follow new", "")):
        workbench.shell.open_palette()
        QTest.keyClicks(palette.line, words)
        QTest.keyClick(palette.line, Qt.Key.Key_Return)
        assert live.isVisible()
        assert live.time_bar.chip.text() == chip
    workbench.shell.open_palette()
    QTest.keyClicks(palette.line, "tags of the checked")
    QTest.keyClick(palette.line, Qt.Key.Key_Down)
    QTest.keyClick(palette.line, Qt.Key.Key_Up)
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert (QApplication.focusWidget() or palette).accessibleName() == "Stored runs"
    for page in (HISTORY, RUN):
        workbench.window.show_page(page)
        workbench.run_view.show_live()
        QTest.keyClick(workbench.window, Qt.Key.Key_E, Qt.KeyboardModifier.ControlModifier)
        assert workbench.run_view.gallery.isVisible()


def test_buttons_of_boxes_have_no_icons(qtbot: QtBot, theme: Theme) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    box = message_box(parent, theme, QMessageBox.Icon.Warning, "Title", "Text")
    assert box.addButton(QMessageBox.StandardButton.Save).icon().isNull()
