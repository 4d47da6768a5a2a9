"""What windows remember: in one file, by type, of several windows at once, and of a broken file nothing."""

import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.theme import Theme
from app.gui.widgets.panes import splitter
from app.gui.window import HISTORY, MainWindow, Page
from app.gui.window_state import WindowState, write_states
from app.viewmodels.history.table import DEVICES_COLUMN
from tests.gui.history_page import HistoryPage
from tests.gui.screens import button
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run


@dataclass(frozen=True)
class Filter:
    word: str = ""
    tags: tuple[str, ...] = ()


@pytest.fixture
def screen(qtbot: QtBot) -> Callable[[], QWidget]:
    made: list[QWidget] = []

    def make() -> QWidget:
        made.append(QWidget())
        qtbot.addWidget(made[-1])
        return made[-1]

    return make


def test_values_of_every_kind_come_back_as_they_were(window_state: Path, screen: Callable[[], QWidget]) -> None:
    values = ('ä, "b"; [c]\n', True, 2.0, 7, b"\0\xff", Filter("cudnn", ("one",)))
    first = screen()
    state = WindowState("history", first)
    for number, value in enumerate(values):
        state.keep(str(number), value)
    state.keep("words", ["one"])
    write_states(first)
    state = WindowState("history", screen())
    assert tuple(state.read(str(number), type(value)()) for number, value in enumerate(values)) == values
    assert state.read("words", [], list[str]) == ["one"]
    assert state.read("0", 3) == 3, "a text where a number is wanted"
    assert state.read("words", [], list[int]) == []
    assert WindowState("compare", screen()).read("0", "none") == "none"
    assert stat.S_IMODE(window_state.stat().st_mode) == 0o600


def test_what_one_window_keeps_does_not_undo_what_another_kept(
    window_state: Path, screen: Callable[[], QWidget]
) -> None:
    one, other = WindowState("run", screen()), WindowState("run", screen())
    one.keep("form", "lstm")
    other.keep("range", "30 s")
    other.write()
    one.write()
    fresh = WindowState("run", screen())
    assert (fresh.read("form", ""), fresh.read("range", "")) == ("lstm", "30 s")


def test_of_two_databases_each_has_its_own(window_state: Path, screen: Callable[[], QWidget], tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        state = WindowState("history", screen(), tmp_path / name)
        state.keep("tag", name)
        state.write()
    assert [WindowState("history", screen(), tmp_path / name).read("tag", "") for name in ("a.db", "b.db")] == [
        "a.db",
        "b.db",
    ]


@pytest.mark.parametrize("content", [b"\0\xff\x01 no [ini", b"[window]\ngeometry=five, six\n", None])
def test_a_broken_file_is_as_if_there_were_none(
    content: bytes | None, window_state: Path, qtbot: QtBot, theme: Theme
) -> None:
    if content is None:
        window_state.unlink()
        window_state.mkdir()
    else:
        window_state.write_bytes(content)
    window = MainWindow((Page("Run", QWidget),), theme)
    qtbot.addWidget(window)
    window.show()
    window.setGeometry(60, 70, 620, 480)
    window.allow_close()
    window.close()
    write_states(window)
    wanted = window.geometry() if content is not None else None
    again = MainWindow((Page("Run", QWidget),), theme)
    qtbot.addWidget(again)
    assert wanted is None or again.geometry() == wanted, "a file with broken lines takes new ones"


def test_a_window_opens_where_it_was_and_never_out_of_sight(window_state: Path, qtbot: QtBot, theme: Theme) -> None:
    def open_window() -> MainWindow:
        made = MainWindow((Page("Run", QWidget),), theme)
        qtbot.addWidget(made)
        with qtbot.waitExposed(made):
            made.show()
        return made

    def close(window: MainWindow) -> None:
        window.allow_close()
        window.close()
        write_states(window)

    window = open_window()
    window.setGeometry(60, 70, 620, 480)
    wanted = window.geometry()
    close(window)
    window = open_window()
    assert window.geometry() == wanted
    window.setGeometry(9_000, 7_000, 620, 480)
    close(window)
    window = open_window()
    assert window.screen().availableGeometry().contains(window.geometry())
    assert window.size() == wanted.size()
    close(window)
    state = WindowState("window", window)
    state.keep("geometry", b"of a screen of another width")
    state.write()
    assert open_window().size() == wanted.size()


def test_the_page_the_form_and_the_range_are_as_they_were_left(
    window_state: Path, qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    for expected in (0, HISTORY):
        workbench = Workbench(database_path, theme)
        qtbot.addWidget(workbench.window)
        shown: list[int] = []
        workbench.window.page_shown.connect(shown.append)
        workbench.start()
        assert shown == [expected]
        form, bar = workbench.run_view.form, workbench.run_view.live.time_bar
        every = button(form, "All")
        found = form.state.workload if form.state else "", every.isChecked()
        assert (*found, bar.range_buttons["30 s"].isChecked()) == (
            ("lstm", True, True) if expected else ("cnn10", False, False)
        )
        form.workload_chosen.emit("lstm")
        every.setChecked(True)
        bar.range_buttons["30 s"].click()
        workbench.window.show_page(HISTORY)
        workbench.quit()
        workbench.close()


def test_a_splitter_and_columns_are_as_the_user_left_them(
    window_state: Path,
    qtbot: QtBot,
    screen: Callable[[], QWidget],
    history_on: Callable[[Path], HistoryPage],
    database_path: Path,
) -> None:
    def split() -> tuple[QWidget, "list[int]"]:
        window = screen()
        window.resize(400, 100)
        made = splitter(Qt.Orientation.Horizontal, QWidget(), QWidget(), (1, 1))
        made.setParent(window)
        made.resize(400, 100)
        WindowState("split", window).keep_splitter("sizes", made)
        with qtbot.waitExposed(window):
            window.show()
        if not window_state.stat().st_size:
            made.moveSplitter(100, 1)
        return window, made.sizes()

    window, sizes = split()
    assert sizes[0] == 100
    write_states(window)
    assert split()[1] == sizes

    keep_all(database_path, [stored_run(run_row(1))])
    widths = []
    for _ in range(2):
        page = history_on(database_path)
        table = page.view.table
        table.remember_widths(WindowState("history", page.view))
        page.refresh()
        widths.append(table.columnWidth(DEVICES_COLUMN))
        table.horizontalHeader().resizeSection(DEVICES_COLUMN, 173)
        table.setColumnHidden(DEVICES_COLUMN, True)
        table.setColumnHidden(DEVICES_COLUMN, False)
        write_states(page.view)
    assert widths[0] != 173
    assert widths[1] == 173
    table.horizontalHeader().sectionHandleDoubleClicked.emit(DEVICES_COLUMN)
    page.view.resize(700, 500)
    write_states(page.view)
    assert WindowState("history", page.view).read("widths", {}, dict[str, int]) == {}
