from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractItemModel, QModelIndex, Qt, SignalInstance
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QPushButton
from pytestqt.qtbot import QtBot

from app.gui.background import Background
from app.gui.controllers.history import HistoryController
from app.gui.theme import Theme
from app.gui.views.history import HistoryView
from app.gui.views.history_table import HistoryModel
from app.gui.views.run_detail import RunDetailView
from app.storage.store import Store
from app.viewmodels.history import COLUMNS, History, HistoryScreen, Query, history
from app.viewmodels.run_detail import run_detail
from tests.gui.screens import Screen
from tests.unit.viewmodels.stored import keep, run_row, stored_run

TITLES = [column.title for column in COLUMNS]


class HistoryPage(Screen[HistoryView]):
    """The History screen on a real database."""

    def __init__(self, qtbot: QtBot, database: Path, background: Background) -> None:
        super().__init__(qtbot, HistoryView(Theme()), 1200, 700)
        self.controller = HistoryController(self.view, database, background)

    @property
    def model(self) -> QAbstractItemModel:
        return self.view.table.model()

    def refresh(self) -> None:
        with self.qtbot.waitSignal(self.model.modelReset, timeout=10_000):
            self.controller.refresh()

    def open(self, run: int) -> None:
        self.controller.open_run(run)
        self.wait_for_page(run)

    def wait_for_page(self, run: int) -> None:
        detail = self.view.detail
        self.qtbot.waitUntil(lambda: f"Run {run} ·" in detail.words() and not detail.panels.busy, timeout=10_000)
        assert self.view.shows_run

    def column(self, title: str) -> list[str]:
        return [str(self.model.index(row, TITLES.index(title)).data()).strip() for row in range(self.model.rowCount())]

    def choose(self, *runs: int) -> None:
        """Choose runs whatever modifier keys the test before left pressed; the last one is the current one."""
        selection = self.view.table.selectionModel()
        selection.clearSelection()
        for run in runs:
            index = self.model.index(self.column("Run").index(str(run)), 0)
            selection.setCurrentIndex(index, selection.SelectionFlag.Select | selection.SelectionFlag.Rows)

    def key(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        QTest.keyClick(self.view.table, key, modifier)

    def type(self, text: str) -> None:
        next(f for f in self.view.findChildren(QLineEdit) if f.accessibleName() == "Search runs").setText(text)

    def button(self, words: str) -> QPushButton:
        return next(b for b in self.view.findChildren(QPushButton) if b.text().replace("&", "").startswith(words))


@pytest.fixture
def background(qtbot: QtBot) -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


@pytest.fixture
def database(database_path: Path) -> Path:
    with Store.open(database_path) as store:
        keep(store, stored_run(run_row(1, throughput=800.0)))
        keep(store, stored_run(run_row(2, workload="cnn10", throughput=43601.0, energy_mj=12.4)))
        failed = run_row(3, outcome="failed", reason="The loss is not a finite number.", throughput=None)
        keep(store, stored_run(failed, measured=False))
    return database_path


@pytest.fixture
def on_database(qtbot: QtBot, background: Background) -> Iterator[Callable[[Path], HistoryPage]]:
    made: list[HistoryPage] = []

    def open_screen(path: Path) -> HistoryPage:
        made.append(HistoryPage(qtbot, path, background))
        return made[-1]

    yield open_screen
    for screen in made:
        screen.destroy()


@pytest.fixture
def screen(on_database: Callable[[Path], HistoryPage], database: Path) -> HistoryPage:
    made = on_database(database)
    made.refresh()
    return made


def test_an_empty_database_says_what_to_do(on_database: Callable[[Path], HistoryPage], database_path: Path) -> None:
    empty = on_database(database_path)
    empty.refresh()
    assert "No runs yet" in empty.visible_words()
    assert "Ctrl+1" in empty.visible_words()


def test_runs_come_newest_first_and_a_click_on_a_head_sorts(screen: HistoryPage) -> None:
    assert screen.column("Run") == ["3", "2", "1"]
    assert screen.column("Outcome") == ["failed", "completed", "completed"]
    screen.view.table.horizontalHeader().sectionClicked.emit(TITLES.index("Throughput"))
    assert screen.column("Throughput") == ["43,601 images/s", "800 sequences/s", "–"]
    assert str(screen.model.headerData(TITLES.index("Throughput"), Qt.Orientation.Horizontal)) == "Throughput ↓"
    screen.view.table.horizontalHeader().sectionClicked.emit(TITLES.index("Throughput"))
    assert screen.column("Run") == ["1", "2", "3"]


def test_search_narrows_and_escape_clears_it(screen: HistoryPage) -> None:
    screen.type("cnn10")
    assert screen.column("Run") == ["2"]
    assert "1 of 3 runs" in screen.visible_words()
    screen.type("nothing like it")
    assert "No run matches" in screen.visible_words()
    QTest.keyClick(screen.view, Qt.Key.Key_Escape)
    assert screen.column("Run") == ["3", "2", "1"]


def test_ctrl_f_goes_to_the_search(screen: HistoryPage) -> None:
    screen.view.table.setFocus()
    screen.key(Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    screen.qtbot.waitUntil(lambda: isinstance(screen.view.focusWidget(), QLineEdit), timeout=5_000)


def test_compare_wants_two_runs_and_sends_the_oldest_first(screen: HistoryPage) -> None:
    compare = screen.button("Compare")
    screen.choose(2)
    assert not compare.isEnabled()
    screen.choose(2, 1)
    assert (compare.isEnabled(), compare.text()) == (True, "Compare 2 runs")
    with screen.qtbot.waitSignal(screen.controller.compare_requested, timeout=5_000) as asked:
        screen.key(Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert asked.args == [[1, 2]]


def test_a_refresh_shows_new_runs_and_keeps_choice_and_order(screen: HistoryPage, database: Path) -> None:
    screen.view.table.horizontalHeader().sectionClicked.emit(TITLES.index("Throughput"))
    screen.choose(1, 3)
    with Store.open(database) as store:
        keep(store, stored_run(run_row(4, outcome=None, throughput=None), measured=False))
    screen.refresh()
    assert screen.column("Run") == ["2", "1", "4", "3"]
    assert screen.column("Outcome")[2] == "running"
    assert screen.view.table.chosen() == [1, 3]


def test_refreshes_asked_for_while_reading_are_one_more_reading(screen: HistoryPage) -> None:
    resets = Counter(screen.model.modelReset)
    for _ in range(5):
        screen.controller.refresh()
    screen.qtbot.waitUntil(lambda: resets.count == 2, timeout=10_000)


def test_enter_opens_the_run_with_its_plots_and_escape_goes_back_to_the_choice(screen: HistoryPage) -> None:
    screen.choose(2)
    screen.key(Qt.Key.Key_Return)
    screen.wait_for_page(2)
    plots = screen.view.detail.panels.shown
    assert [len(plot.curve_keys()) for plot in plots] == [1, 1, 1, 1, 1]
    x, y = plots[0].points(plots[0].curve_keys()[0])
    assert (x[0], y[0]) == (0.0, 600.0)
    assert "43,601" in screen.visible_words()
    QTest.keyClick(screen.view, Qt.Key.Key_Escape)
    assert not screen.view.shows_run
    assert screen.view.table.chosen() == [2]


def test_a_failed_run_tells_why_and_how_to_run_it_again(screen: HistoryPage) -> None:
    screen.open(3)
    assert "The loss is not a finite number." in screen.view.detail.words()
    assert "Implementation" in screen.view.detail.words()
    screen.button("Copy as command").click()
    assert QGuiApplication.clipboard().text().startswith("python -m app run lstm -s implementation=standard")


def test_one_page_after_another_shows_only_its_own_panels(screen: HistoryPage) -> None:
    screen.open(2)
    screen.open(3)
    assert [len(plot.curve_keys()) for plot in screen.view.detail.panels.shown] == [1, 2]


def test_axes_that_grow_are_painted_as_if_they_had_always_been_that_long(qtbot: QtBot, theme: Theme) -> None:
    few = run_detail(stored_run(run_row(2, gpus=1, outcome="failed", throughput=None), measured=False), UTC)
    views = [RunDetailView(theme), RunDetailView(theme)]
    for view in views:
        qtbot.addWidget(view)
        view.resize(1400, 860)
        with qtbot.waitExposed(view):
            view.show()
    views[0].show_model(run_detail(stored_run(run_row(1, gpus=1)), UTC))
    qtbot.waitUntil(lambda: not views[0].panels.busy, timeout=10_000)
    views[0].grab()
    for view in views:
        view.show_model(few)
    qtbot.waitUntil(lambda: axes_of(views[0]) == axes_of(views[1]), timeout=10_000)


def axes_of(view: RunDetailView) -> QImage:
    return view.grab().toImage().copy(0, 100, 72, 560)


def test_a_problem_stands_on_the_screen_and_goes_when_it_is_solved(
    qtbot: QtBot, on_database: Callable[[Path], HistoryPage], database_path: Path
) -> None:
    database_path.write_text("this is no database", encoding="utf-8")
    screen = on_database(database_path)
    screen.controller.refresh()
    qtbot.waitUntil(lambda: "is not an SQLite database" in screen.visible_words(), timeout=10_000)
    database_path.unlink()
    screen.refresh()
    assert "is not an SQLite database" not in screen.visible_words()


def test_ten_thousand_runs_cost_only_the_rows_in_view(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[int] = set()
    data = HistoryModel.data

    def counted(model: HistoryModel, index: QModelIndex, role: int = 0) -> object:
        asked.add(index.row())
        return data(model, index, role)

    monkeypatch.setattr(HistoryModel, "data", counted)
    found = history([run_row(n, throughput=float(n)) for n in range(10_000)], History(), None)
    view = HistoryView(Theme())
    qtbot.addWidget(view)
    view.resize(1200, 700)
    with qtbot.waitExposed(view):
        view.show()
    view.show_model(HistoryScreen.of(found, Query()))
    view.grab()
    in_view = view.table.viewport().height() // view.table.rowHeight(0) + 2
    assert 0 < len(asked) <= in_view
    view.table.selectAll()
    assert len(view.table.chosen()) == 10_000
    view.show_model(HistoryScreen.of(found, Query(text="99")))
    assert len(view.table.chosen()) == view.table.model().rowCount() < 10_000


class Counter:
    def __init__(self, signal: SignalInstance) -> None:
        self.count = 0
        signal.connect(self._one_more)

    def _one_more(self) -> None:
        self.count += 1
