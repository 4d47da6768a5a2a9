from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.gui.background import Background
from app.gui.controllers.compare import CompareController
from app.gui.plots import TimePanel
from app.gui.theme import Theme
from app.gui.views.compare import CompareView
from app.storage.store import Store
from app.viewmodels.compare import COLUMNS
from tests.gui.screens import Screen
from tests.unit.viewmodels.stored import keep, run_row, stored_run

TITLES = [column.title for column in COLUMNS]


class ComparePage(Screen[CompareView]):
    """The Compare screen on a real database."""

    def __init__(self, qtbot: QtBot, database: Path, background: Background) -> None:
        super().__init__(qtbot, CompareView(Theme()), 1300, 800)
        self.controller = CompareController(self.view, database, background)

    def compare(self, *runs: int) -> None:
        self.controller.show_runs(list(runs))
        self.qtbot.waitUntil(lambda: self.column("Run") == [str(run) for run in runs], timeout=10_000)
        self.settle()

    def settle(self) -> None:
        self.qtbot.waitUntil(lambda: not self.view.panels.busy, timeout=10_000)

    def column(self, title: str) -> list[str]:
        model = self.view.table.model()
        return [str(model.index(row, TITLES.index(title)).data()) for row in range(model.rowCount())]

    def panel(self, title: str) -> TimePanel:
        return next(p for p in self.view.panels.shown if any(label.text() == title for label in p.findChildren(QLabel)))


@pytest.fixture
def screen(qtbot: QtBot, database_path: Path) -> Iterator[ComparePage]:
    with Store.open(database_path) as store:
        keep(store, stored_run(run_row(1, throughput=1000.0), environment={"tensorflow": "2.21.0"}))
        later = stored_run(
            run_row(2, throughput=1064.0, units=128), begin_s=5000.0, environment={"tensorflow": "2.20.0"}
        )
        keep(store, later)
        refused = run_row(3, outcome="refused", reason="cuDNN needs an NVIDIA GPU.", throughput=None)
        keep(store, stored_run(refused, measured=False))
    background = Background()
    made = ComparePage(qtbot, database_path, background)
    yield made
    background.close()
    made.destroy()


def test_before_anything_is_chosen_it_says_how(screen: ComparePage) -> None:
    assert "Ctrl+Shift+C" in screen.visible_words()


def test_two_runs_overlay_their_curves_from_the_start_of_measure(screen: ComparePage) -> None:
    screen.compare(1, 2)
    assert screen.column("Variant") == ["Units 64", "Units 128"]
    assert screen.column("Speed-up") == ["baseline", "1.064×"]
    throughput = screen.panel("Throughput")
    assert throughput.curve_keys() == ("1", "2")
    first, second = throughput.points("1"), throughput.points("2")
    assert first[0] == pytest.approx(second[0])
    assert first[0][0] == pytest.approx(0.2)
    assert "TensorFlow 2.21.0 (run 1), 2.20.0 (run 2)" in screen.view.words()
    assert "no interval" in screen.view.words()


def test_b_makes_another_run_the_baseline_and_it_stays_when_runs_are_added(screen: ComparePage) -> None:
    screen.compare(1, 2)
    screen.view.table.choose(1)
    QTest.keyClick(screen.view.table, Qt.Key.Key_B)
    assert screen.view.baseline == 2
    assert screen.column("Speed-up") == ["0.940×", "baseline"]
    screen.compare(1, 2, 3)
    assert screen.column("Speed-up") == ["0.940×", "baseline", "–"]


def test_space_and_the_box_hide_a_run_in_every_panel(screen: ComparePage) -> None:
    screen.compare(1, 2)
    screen.view.table.choose(0)
    QTest.keyClick(screen.view.table, Qt.Key.Key_Space)
    screen.settle()
    assert {plot.curve_keys() for plot in screen.view.panels.shown} == {("2",)}
    box = screen.view.table.visualRect(screen.view.table.model().index(0, 0)).topLeft() + QPoint(14, 14)
    QTest.mouseClick(screen.view.table.viewport(), Qt.MouseButton.LeftButton, pos=box)
    screen.settle()
    assert {plot.curve_keys() for plot in screen.view.panels.shown} == {("1", "2")}


def test_a_run_that_never_measured_keeps_its_row_and_says_why(screen: ComparePage) -> None:
    screen.compare(1, 3)
    assert screen.column("Outcome") == ["completed", "refused"]
    assert "Run 3 (refused) never reached its measured part. cuDNN needs an NVIDIA GPU." in screen.view.words()
    assert screen.panel("Throughput").curve_keys() == ("1",)
    assert screen.panel("CPU load").points("3")[0][0] == pytest.approx(0.0)


def test_a_run_that_is_gone_is_a_sentence_on_the_screen(screen: ComparePage) -> None:
    screen.controller.show_runs([1, 99])
    screen.qtbot.waitUntil(lambda: "There is no run 99" in screen.visible_words(), timeout=10_000)
    screen.compare(1, 2)
    assert "There is no run 99" not in screen.visible_words()
