import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QHeaderView, QLabel, QMenu, QProgressBar, QWidget
from pytestqt.qtbot import QtBot

from app.gui.compare import charts
from app.gui.compare.compare_controller import CompareController
from app.gui.compare.screen import CompareView
from app.gui.compare.table import columns_menu
from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.pictures import drawing_in_sight
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import Theme
from app.gui.threads import Background
from app.gui.widgets.cell_delegate import CellModel
from app.gui.widgets.cell_table import FrozenColumns, MoreColumns
from app.gui.window_state import write_states
from app.queries import Question
from app.report.charts.canvas import Drawing
from app.report.charts.draw import draw_chart
from app.storage.database import load_setting
from app.storage.known_settings import HIDDEN_FIGURES
from app.storage.store import Store
from app.values.events import Outcome, Summary
from app.values.plan import Plan, encode_plan
from app.values.records import REFERENCE_TAG, StoredRun
from app.viewmodels.charts.model import Chart
from app.viewmodels.charts.palette import MAX_DRAWN, Palette
from app.viewmodels.compare.comparison import ComparedRuns, compare, prepare_comparison
from app.viewmodels.compare.table import TableRow
from app.viewmodels.experiment.preview import QUIET_WAIT_S
from tests.fakes.saved_experiments import save_experiment
from tests.gui.actions import RecordedActions
from tests.gui.screens import Screen, turn_wheel
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.stored import keep, keep_all, run_row, stopped_after_one_reading, stored_run


class ComparePage(Screen[CompareView]):
    """The Compare screen on a real database."""

    def __init__(self, qtbot: QtBot, database: Path, background: Background) -> None:
        self.recorded = RecordedActions()
        super().__init__(qtbot, CompareView(Theme(), self.recorded.actions), 1300, 800)
        self.controller = CompareController(self.view, database, background, self.recorded.actions)

    @property
    def panels(self) -> PanelStack:
        return self.view.tabs.curves.panels

    def compare(self, *runs: int, curves: bool = False) -> None:
        if curves:
            self.view.tabs.open_tab("Curves")
        with self.qtbot.waitSignal(self.view.painted):
            self.controller.show_runs(list(runs))

    def column(self, title: str) -> list[str]:
        return [row.cells[self.titles().index(title)].text for row in self.rows()]

    def rows(self) -> list[TableRow]:
        return self.view.table.rows()

    def titles(self) -> list[str]:
        model = self.view.table.model()
        heads = [model.headerData(n, Qt.Orientation.Horizontal) for n in range(model.columnCount())]
        return [str(head).removesuffix(" ↓").removesuffix(" ↑") for head in heads]

    def press(self, key: Qt.Key, row: int | None = None) -> None:
        if row is not None:
            self.view.table.select_row(row)
        QTest.keyClick(self.view.table, key)

    def click(self, row: int, title: str, offset: int) -> None:
        table = self.view.table
        place = table.visualRect(table.model().index(row, self.titles().index(title))).topLeft() + QPoint(offset, 14)
        QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=place)

    def planned(self) -> Plan:
        """What was asked to be run, and nothing else was asked."""
        ((name, plan),) = self.recorded.calls
        assert name == "run_plan"
        assert isinstance(plan, Plan)
        return plan

    def panel(self, title: str) -> TimePanel:
        return next(panel for panel in self.panels.visible_plots if panel.title == title)

    def drawn(self) -> set[str]:
        """The runs of whose curves something is painted."""
        self.view.grab()
        keys = {key for plot in self.panels.visible_plots for key in plot.shown_keys()}
        return {key for key in keys if any(plot.columns_drawn(key) for plot in self.panels.visible_plots)}


@pytest.fixture(scope="module")
def six_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs each of two variants that differ by 6.4 %; and one refused, one out of memory, one that goes on."""
    path = tmp_path_factory.mktemp("compare") / "profiles.db"
    with Store.open(path) as store:
        keep(store, stored_run(run_row(1, throughput=1000.0), environment={"tensorflow": "2.21.0"}))
        later = run_row(2, throughput=1064.0, units=128)
        keep(store, stored_run(later, begin_s=5000.0, environment={"tensorflow": "2.20.0"}))
        refused = run_row(3, outcome="refused", reason="cuDNN needs an NVIDIA GPU.", throughput=None, layers=2)
        keep(store, stored_run(refused, measured=False))
        for n in (4, 6):
            keep(store, stored_run(run_row(n, throughput=1001.0 + n)))
            keep(store, stored_run(run_row(n + 1, throughput=1065.0 + n, units=128)))
        keep(store, stored_run(run_row(8, outcome="out_of_memory", throughput=None, units=4096), measured=False))
        keep(store, stored_run(run_row(9, outcome=None, throughput=None, units=256), measured=False))
    return path


@pytest.fixture
def database(six_runs: Path, database_path: Path) -> Path:
    return shutil.copyfile(six_runs, database_path)


@pytest.fixture
def screen(qtbot: QtBot, database: Path, background: Background) -> Iterator[ComparePage]:
    page = ComparePage(qtbot, database, background)
    yield page
    page.destroy()


def test_the_verdict_stands_over_the_table_and_can_be_copied_with_its_doubts(screen: ComparePage) -> None:
    screen.compare(1, 4, 6, 2, 5, 7)
    verdict = next(label for label in screen.view.header.findChildren(QLabel) if "% faster than" in label.text())
    assert "\N{NO-BREAK SPACE}%)" in verdict.text(), "no line ends before a percent sign"
    assert verdict.property("role") == "answer", "the largest text"
    assert verdict.mapTo(screen.view, QPoint()).y() < top(screen, screen.view.header.result.plot)
    assert verdict.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
    assert "TensorFlow differs" in screen.visible_text()
    next(entry for entry in screen.view.menu.actions() if entry.text() == "Copy the &verdict").trigger()
    assert QGuiApplication.clipboard().text().startswith(verdict.text().replace("\N{NO-BREAK SPACE}", " "))
    assert "TensorFlow differs" in QGuiApplication.clipboard().text()


def top(screen: ComparePage, widget: QWidget) -> int:
    """Where a widget begins on the screen."""
    return widget.mapTo(screen.view, QPoint()).y()


@pytest.mark.parametrize(("facts", "in_sight", "notes"), [(3, 3, "&Notes"), (4, 3, "1 &note"), (5, 3, "2 &notes")])
def test_three_doubts_are_in_sight_the_worst_first_and_the_rest_unfolds_and_moves_nothing_above(
    screen: ComparePage, facts: int, in_sight: int, notes: str
) -> None:
    keys = ("driver", "keras", "cudnn_loaded", "cpu", "tensorflow")[:facts]
    runs = [stored_run(run_row(10 + n, units=32 + n), environment=dict.fromkeys(keys, "ab"[n])) for n in range(2)]
    comparison = compare(prepare_comparison(runs), 10)
    screen.view.show_model(comparison)
    assert [label.text() for label in screen.view.notes.warnings] == [
        f"▲  {warning.sentence}" for warning in comparison.warnings[:3]
    ]
    assert screen.visible_text().count("differs") == in_sight
    assert screen.view.notes.button.text() == notes
    below = (screen.view.header, screen.view.tabs, screen.view.notes.provenance, screen.view.notes.button)
    QApplication.processEvents()  # lays out what has just been shown
    before = [top(screen, widget) for widget in below]
    screen.view.notes.button.click()
    screen.qtbot.waitUntil(lambda: screen.view.notes.unfolded.y() > 0)
    assert screen.visible_text().count("differs") == facts
    assert [top(screen, widget) for widget in below] == before
    screen.view.notes.button.click()
    assert screen.visible_text().count("differs") == in_sight


def test_charts_are_drawn_ahead_of_their_tabs_in_the_background(
    screen: ComparePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, float, bool]] = []

    def recorded(chart: Chart, palette: Palette, width: float) -> Drawing:
        drawn.append((chart.key, width, threading.current_thread() is threading.main_thread()))
        return draw_chart(chart, palette, width)

    charts._drawing.cache_clear()
    monkeypatch.setattr(charts, "draw_chart", recorded)
    screen.compare(1, 2, 3)
    last = screen.view.tabs.titles[-1]
    screen.qtbot.waitUntil(lambda: len(drawn) == 2 * len({key for key, *_ in drawn}) > 0)
    screen.view.tabs.open_tab(last)
    screen.view.grab()
    assert not [(key, width) for key, width, in_gui in drawn if in_gui], drawn


def test_one_click_measures_variants_interleaved_that_were_not(screen: ComparePage, database: Path) -> None:
    units = (32, 32, 32, 32, 16, 16)
    keep_all(database, (stored_run(run_row(10 + n, units=of, throughput=1010.0 + n)) for n, of in enumerate(units)))
    screen.compare(*range(10, 16))
    assert "All or most runs of units 16 were made before or after those of the baseline" in screen.visible_text()
    QTest.mouseClick(screen.button("Measure them interleaved"), Qt.MouseButton.LeftButton)
    plan = screen.planned()
    assert (plan.name, plan.repeats, plan.again) == ("Interleaved: Units 32, Units 16", 4, True)
    assert [spec.variant["units"] for spec in plan.variants] == [32, 16], "the baseline first"


def test_a_lamp_says_whether_the_machine_was_quiet_and_a_click_measures_again(
    screen: ComparePage, database: Path
) -> None:
    for n, (units, processors) in enumerate(((32, "2"), (32, "2"), (16, "2"), (16, "4")), 10):
        row = run_row(n, units=units, gpus=0, throughput=1000.0 + n)
        keep_all(database, [stored_run(row, environment={"cpu_count": processors})])
    result = screen.view.header.result
    screen.compare(10, 12)
    assert "Quiet machine" in displayed_text(result)
    assert not result.quiet_button.isVisible()
    screen.compare(*range(10, 14))
    assert "Busy machine in 1 of 4 runs" in displayed_text(result)
    result.quiet_button.click()
    plan = screen.planned()
    assert (plan.repeats, plan.again, plan.max_idle_wait_s) == (2, True, QUIET_WAIT_S)


def test_b_or_a_click_makes_a_baseline_and_the_verdict_follows(screen: ComparePage) -> None:
    screen.compare(1, 2)
    text = displayed_text(screen.view)
    screen.press(Qt.Key.Key_B, row=1)
    screen.qtbot.waitUntil(lambda: screen.column("Speed-up") == ["baseline", "−6.0\xa0%"])
    assert "Units 128 trains 6.4 % faster" in displayed_text(screen.view) != text, "the winner is first all the same"
    screen.compare(1, 2, 3)
    assert screen.column("Speed-up") == ["baseline", "−6.0\xa0%", "refused"], "it stays when runs are added"
    screen.click(1, "Base", 20)
    screen.qtbot.waitUntil(lambda: screen.column("Speed-up") == ["baseline", "+6.4\xa0%", "refused"])


def chosen_margin(view: CompareView) -> str:
    return next(action.text() for action in view.margins if action.isChecked())


def test_a_margin_is_tested_and_stays_with_other_runs_and_another_baseline(screen: ComparePage) -> None:
    screen.compare(1, 4, 6, 2, 5, 7)
    assert (chosen_margin(screen.view), "margin of" in displayed_text(screen.view)) == ("off", False)
    assert [action.text() for action in screen.view.margins] == ["off", "1\xa0%", "2\xa0%", "5\xa0%"]
    screen.view.margins[2].trigger()
    screen.qtbot.waitUntil(lambda: "margin of 2 %: 1 faster by more" in displayed_text(screen.view))
    assert chosen_margin(screen.view) == "2\xa0%"
    screen.press(Qt.Key.Key_B, row=1)
    screen.qtbot.waitUntil(lambda: "margin of 2 %: 1 slower by more" in displayed_text(screen.view))
    screen.compare(1, 2)
    assert chosen_margin(screen.view) == "2\xa0%"
    screen.view.margins[0].trigger()
    screen.qtbot.waitUntil(lambda: "margin" not in displayed_text(screen.view))


def test_while_the_same_runs_are_compared_in_another_way_no_old_answer_is_seen_or_saved(screen: ComparePage) -> None:
    screen.compare(1, 4, 6, 2, 5, 7)
    text = displayed_text(screen.view)
    screen.press(Qt.Key.Key_B, row=1)
    assert "Comparing with run 2 …" in screen.visible_text()
    assert "% faster" not in screen.visible_text()
    save = screen.button("Save report")
    assert not save.isEnabled()
    screen.qtbot.waitUntil(save.isEnabled)
    assert displayed_text(screen.view) != text
    assert "% faster" in screen.visible_text()


def test_the_answer_is_there_before_the_runs_are_read(
    screen: ComparePage, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that their experiment asks for: of two settings, the other one than the runs alone would show."""
    runs = [1, 4, 6, 2, 5, 7]
    with Store.open(database) as store:
        for n in range(10, 16):
            rate, units = (2001.0 + n, 64) if n % 2 else (2065.0 + n, 128)
            runs.append(keep(store, stored_run(run_row(n, throughput=rate, layers=2, units=units))))
        plan = encode_plan(Plan(name="units", variants=(store.load_header(1).row.spec,), repeats=3, asked="units"))
        save_experiment(store.library, runs, name="units", preset=None, plan=plan)
    go_on = threading.Event()

    def prepare_later(runs: list[StoredRun], left_out: int, asked: str) -> ComparedRuns:
        go_on.wait()
        return prepare_comparison(runs, left_out, asked)

    monkeypatch.setattr("app.gui.compare.compare_controller.prepare_comparison", prepare_later)
    screen.controller.show_runs(runs)
    try:
        screen.qtbot.waitUntil(lambda: "%" in screen.visible_text())
        early = [label.text() for label in screen.view.reading.findChildren(QLabel)]
    finally:
        go_on.set()
    screen.qtbot.waitUntil(screen.view.tabs.isVisible)
    (answer,) = (label for label in screen.view.findChildren(QLabel) if label.property("role") == "answer")
    assert answer.text() in early


def test_while_runs_are_read_nothing_else_is_seen_and_it_can_be_cancelled(screen: ComparePage) -> None:
    screen.controller.show_runs([1, 4, 6, 2, 5, 7])
    assert "Reading 6 runs" in screen.visible_text()
    assert "Nothing to compare" not in screen.visible_text()
    assert not screen.view.tabs.isVisible()
    (bar,) = screen.view.reading.findChildren(QProgressBar)
    for done, title in ((5, "Reading"), (6, "Comparing")):
        screen.view.show_reading(done, 6)
        assert (f"{title} 6 runs" in screen.visible_text(), bar.isVisible()) == (True, done < 6)
    screen.button("Cancel").click()
    assert "Nothing to compare yet" in screen.visible_text(), "there was nothing before"
    screen.compare(1, 2)
    screen.controller.show_runs([4, 5])
    assert "% faster" not in screen.visible_text(), "the verdict on other runs"
    with screen.qtbot.assertNotEmitted(screen.view.painted, wait=100):
        screen.button("Cancel").click()
    assert screen.column("Run") == ["1", "2"], "what was there before"
    assert screen.view.tabs.isVisible()


def test_a_card_s_question_is_answered_with_its_baseline_and_stays_when_read_again(screen: ComparePage) -> None:
    def answered() -> tuple[str, int]:
        comparison = screen.controller._comparison
        return comparison.compared_runs.asked, comparison.baseline

    screen.compare(1, 2)
    assert answered() == ("", 1)
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.controller.show_runs([1, 2, 9], Question("units", 2))
    assert answered() == ("units", 2)
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.controller.refresh()
    assert answered() == ("units", 2), "run 9 goes on"
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.controller.show_runs([1, 2], Question())
    assert answered() == ("", 1), "not the baseline of before"


def test_the_fastest_is_the_current_row_until_another_is_chosen(screen: ComparePage, database: Path) -> None:
    def current() -> tuple[int, ...]:
        row = screen.view.table.current_row()
        assert row is not None
        return row.runs

    screen.compare(1, 2)
    assert current() == (2,)
    faster = keep_all(database, (stored_run(run_row(n, throughput=1000.0 + n, units=n)) for n in (300, 400)))
    screen.compare(1, 2, faster[0])
    assert current() == (faster[0],), "an answer about another stands above it"
    screen.view.table.select_row(len(screen.rows()) - 1)
    chosen = current()
    screen.compare(1, 2, *faster)
    assert current() == chosen, "the user has chosen it"


def head(titles: QHeaderView, section: int) -> QImage:
    left = titles.sectionViewportPosition(section)
    area = QRect(left, 0, titles.sectionSize(section), titles.height())
    return titles.viewport().grab(area).toImage()


def test_above_the_boxes_stands_that_they_are_of_curves(screen: ComparePage) -> None:
    screen.compare(1, 2)
    table = screen.view.table
    model = table.model()
    assert isinstance(model, CellModel)
    assert model.marks_title == "Curves"
    with_title = head(table.horizontalHeader(), 0)
    model.marks_title = ""
    assert head(table.horizontalHeader(), 0) != with_title


def test_variants_have_a_forest_plot_of_which_more_repeats_are_a_click_away(
    screen: ComparePage, database: Path
) -> None:
    screen.compare(1, 2)
    plot = screen.view.header.result.plot
    assert plot.isVisible()
    assert "Units 128 +6.4\xa0%" in plot.accessibleName()
    screen.view.header.result.more_button.click()
    plan = screen.planned()
    assert (plan.repeats, len(plan.variants)) == (2, 2)
    screen.view.tabs.open_tab("Curves")
    assert not plot.isVisible()
    many = keep_all(database, (stored_run(run_row(40 + n, units=500 + n)) for n in range(8)))
    screen.compare(*many, 1)
    screen.view.tabs.open_tab("Answer")
    assert plot.isVisible()
    assert screen.view.header.result.more_button.text() == "Run 2 more of &each"


def keep_rates(database: Path, rates: Mapping[int, tuple[float, ...]]) -> list[int]:
    """Store runs of these throughputs, by their units."""
    figures = [(units, rate) for units, of_units in rates.items() for rate in of_units]
    rows = (run_row(500 + n, units=units, throughput=rate) for n, (units, rate) in enumerate(figures))
    return keep_all(database, map(stored_run, rows))


def test_what_would_tell_the_fastest_apart_repeats_those_alone(screen: ComparePage, database: Path) -> None:
    rates = {900: (100.0, 100.1, 99.9), 901: (200.0, 201.0, 199.0), 902: (200.5, 201.5, 199.5)}
    screen.compare(*keep_rates(database, rates))
    more = screen.view.header.result.more_button
    assert more.text().endswith(" more of th&ese 2")
    more.click()
    plan = screen.planned()
    assert [spec.variant["units"] for spec in plan.variants] == [902, 901]
    assert f"Run {plan.repeats:,} more" in more.text()


@pytest.mark.parametrize(("variants", "is_offered"), [(50, True), (51, False)])
def test_more_repeats_are_a_click_up_to_a_hundred_runs_that_can_be_made_here(
    screen: ComparePage, database: Path, variants: int, is_offered: bool
) -> None:
    many = keep_all(database, (stored_run(run_row(100 + n, units=600 + n)) for n in range(variants)))
    screen.compare(*many)
    more = screen.view.header.result.more_button
    assert (more.isVisible(), "(100 runs)" in more.text()) == (is_offered, is_offered)
    screen.recorded.is_unable = True
    screen.compare(*many[:2])
    assert not more.isVisible(), "nothing can be done here"


def test_what_another_machine_measured_can_be_measured_here(screen: ComparePage, database: Path) -> None:
    with Store.open(database) as store:
        runs = [keep(store, stored_run(run_row(300 + n, units=700 + n))) for n in range(2)]
        store.library.add_tag(runs, REFERENCE_TAG)
    header = screen.view.header
    screen.compare(*runs)
    assert not header.result.more_button.isVisible(), "these would be no repeats of those"
    header.here_button.click()
    plan = screen.planned()
    assert (plan.repeats, len(plan.variants)) == (3, 2)
    screen.recorded.is_unable = True
    screen.compare(*runs)
    assert not header.here_button.isVisible()


def test_a_click_leads_from_a_noisy_baseline_that_was_chosen_to_a_steady_one(
    screen: ComparePage, database: Path
) -> None:
    rates = {800: (1000.0, 1300.0, 1100.0), 801: (2000.0, 2010.0, 2005.0), 802: (1500.0, 1501.0, 1500.5)}
    screen.compare(*keep_rates(database, rates))
    header = screen.view.header
    assert screen.rows()[0].cells[2].text == "Units 801"
    assert not header.steadier_button.isVisible(), "nothing contradicts the default"
    screen.press(Qt.Key.Key_B, row=2)
    screen.qtbot.waitUntil(lambda: screen.rows()[0].cells[2].text == "Units 800")
    screen.qtbot.waitUntil(header.steadier_button.isVisible)
    assert "Units 801" in header.steadier_button.toolTip()
    tops: list[int] = []
    screen.view.tabs.installEventFilter(watcher := Moves(tops))
    header.steadier_button.click()
    screen.qtbot.waitUntil(lambda: not header.steadier_button.isVisible())
    screen.qtbot.waitUntil(lambda: screen.rows()[0].cells[2].text == "Units 801")
    assert not header.steadier_button.isVisible(), "it is steady"
    QApplication.processEvents()
    screen.view.tabs.removeEventFilter(watcher)
    assert tops == [], "what is below a button that goes stays in its place"


class Moves(QObject):
    """Notes where a widget is put."""

    def __init__(self, tops: list[int]) -> None:
        super().__init__()
        self._tops = tops

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Move and isinstance(watched, QWidget):
            self._tops.append(watched.y())
        return False


def test_heads_order_the_rows_of_the_compared_runs_alone(screen: ComparePage) -> None:
    heads = screen.view.table.horizontalHeader()
    screen.compare(1, 3)
    heads.sectionClicked.emit(screen.titles().index("Run"))
    screen.compare(1, 2, 3)
    assert screen.column("Run") == ["1", "3", "2"], "the same comparison with one run more"
    screen.compare(2, 4)
    assert screen.view.table.arrangement.column is None


def test_of_more_runs_than_are_drawn_the_curves_say_how_many(screen: ComparePage, database: Path) -> None:
    many = keep_all(database, (stored_run(run_row(40 + n, units=500 + n)) for n in range(MAX_DRAWN + 2)))
    screen.compare(*many, curves=True)
    assert screen.view.tabs.curves.extent.text() == "Curves show 20 of 22 runs; table and verdict use all."
    screen.compare(*many[:2], curves=True)
    assert screen.view.tabs.curves.extent.text() == ""


def test_variants_unfold_into_their_runs(screen: ComparePage) -> None:
    screen.compare(1, 4, 6, 2, 5, 7)
    assert screen.column("Run") == ["3 runs", "3 runs"]
    screen.press(Qt.Key.Key_Right, row=0)
    assert screen.column("Run") == ["3 runs", "1", "6", "4", "3 runs"]
    screen.press(Qt.Key.Key_Left, row=0)
    screen.click(1, "Run", 6)
    assert screen.column("Run") == ["3 runs", "3 runs", "7", "5", "2"]


def test_a_wide_window_has_room_for_long_names(screen: ComparePage, database: Path) -> None:
    mine = run_row(60, implementation="a_rather_long_name_of_an_implementation_of_my_own", units=128)
    screen.compare(1, *keep_all(database, [stored_run(mine)]))
    screen.view.tabs.open_tab("Table")
    variant = screen.titles().index("Variant")
    narrow = screen.view.table.columnWidth(variant)
    screen.view.resize(2000, 800)
    assert screen.view.table.columnWidth(variant) > narrow
    screen.view.resize(1300, 800)
    assert screen.view.table.columnWidth(variant) == narrow


def test_space_the_box_and_the_legend_hide_a_run_in_every_panel(screen: ComparePage) -> None:
    screen.compare(1, 2, curves=True)
    screen.press(Qt.Key.Key_Space, row=0)
    assert screen.drawn() == {"2"}
    screen.click(0, "Run", 24)
    assert screen.drawn() == {"1", "2"}
    screen.panel("Throughput").legend.clicked.emit("2")
    assert screen.drawn() == {"1"}
    screen.press(Qt.Key.Key_B, row=1)
    screen.qtbot.waitUntil(lambda: screen.column("Speed-up")[1] == "−6.0\xa0%")
    assert screen.drawn() == {"1"}, "another baseline shows nothing that was hidden"


def test_a_variant_s_box_hides_all_its_runs(screen: ComparePage) -> None:
    screen.compare(1, 4, 6, 2, 5, 7, curves=True)
    screen.press(Qt.Key.Key_Space, row=0)
    assert screen.drawn() == {"2", "5", "7"}
    screen.press(Qt.Key.Key_Right, row=0)
    screen.press(Qt.Key.Key_Space, row=1)
    assert screen.drawn() == {"1", "2", "5", "7"}
    box = screen.view.table.model().index(0, 0).data(Qt.ItemDataRole.CheckStateRole)
    assert Qt.CheckState(box) == Qt.CheckState.PartiallyChecked


def choose_align(screen: ComparePage, align: str) -> None:
    choice = screen.view.tabs.curves.align_choice
    choice.setCurrentIndex(choice.findText(f"Along {align}"))
    choice.activated.emit(choice.currentIndex())


def test_ctrl_and_the_wheel_zoom_all_panels_about_the_pointer_and_a_drag_moves_them(screen: ComparePage) -> None:
    screen.compare(1, 2, curves=True)
    canvas = screen.panel("CPU load").plot
    middle, before = QPointF(canvas.rect().center()), screen.panels.span
    turn_wheel(canvas, middle)
    assert screen.panels.span == before, "the page scrolls"
    turn_wheel(canvas, middle, Qt.KeyboardModifier.ControlModifier)
    start, end = screen.panels.span
    assert {tuple(plot.plot.view.viewRange()[0]) for plot in screen.panels.visible_plots} == {(start, end)}
    assert end - start == pytest.approx((before[1] - before[0]) / 1.25)
    canvas.dragged.emit(0.5)
    assert screen.panels.span == pytest.approx((start + 0.5, end + 0.5))
    screen.view.tabs.curves.time_bar.range_buttons["all"].click()
    assert screen.panels.span == pytest.approx((-4.0, 8.0), abs=0.2)


def test_small_multiples_have_a_row_of_panels_a_run(screen: ComparePage) -> None:
    screen.compare(1, 2, curves=True)
    together = len(screen.panels.visible_plots)
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.view.tabs.curves.side_by_side_button.click()
    assert len(screen.panels.visible_plots) == 2 * together
    first, second = screen.panels.visible_plots[0], screen.panels.visible_plots[together]
    assert (first.shown_keys(), second.shown_keys()) == (("1",), ("2",))
    assert first.plot.view.viewRange()[1] == pytest.approx(second.plot.view.viewRange()[1], rel=0.2), "one scale"
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.press(Qt.Key.Key_Space, row=0)
    assert {plot.shown_keys() for plot in screen.panels.visible_plots} == {("2",)}, "a hidden run has no row"
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.button("Laid over").click()
    assert screen.drawn() == {"2"}, "it stays hidden in panels for all"


def test_columns_can_be_left_out_and_that_is_remembered(screen: ComparePage, database: Path) -> None:
    screen.compare(1, 2)
    table = screen.view.table
    outcome = screen.titles().index("Sequences/s")
    menu = columns_menu(table)
    menu.popup(table.mapToGlobal(table.rect().topLeft()))
    menu.setActiveAction(next(entry for entry in menu.actions() if entry.text() == "Sequences/s"))
    QTest.keyClick(menu, Qt.Key.Key_Space)
    assert table.isColumnHidden(outcome)
    assert menu.isVisible(), "several are changed at once"
    menu.close()
    screen.compare(1, 2, 3)
    assert table.isColumnHidden(outcome)
    assert load_setting(database, HIDDEN_FIGURES) == frozenset({"throughput"})


def test_the_table_can_be_copied(screen: ComparePage) -> None:
    screen.compare(1, 2)
    QTest.keyClick(screen.view.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[0].startswith("Run\tVariant\tSpeed-up\t95 % CI\tSequences/s\t95 % CI")
    assert lines[1].startswith("1\tUnits 64\tbaseline\t–\t1,000\t–")
    screen.view.table.copy(markdown=True)
    assert QGuiApplication.clipboard().text().startswith("| Run | Variant |")


def test_a_run_that_was_going_on_is_read_again_and_others_are_not(screen: ComparePage, database: Path) -> None:
    screen.compare(1, 9)
    assert screen.view.tabs.hasFocus(), "arrows lead from the answer to the table"
    with Store.open(database) as store:
        store.finish(9, outcome=Outcome(name="completed"), summary=Summary(throughput=500.0), t_ns=0, utc_ns=0)
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.controller.refresh()
        assert screen.view.tabs.isVisible(), "they stay in sight"
    assert screen.column("Outcome") == ["completed", "completed"]
    assert screen.column("Speed-up") == ["baseline", "0.500×"]
    with screen.qtbot.assertNotEmitted(screen.view.painted, wait=100):
        screen.controller.refresh()


def test_charts_stand_in_the_place_of_the_table_and_lead_to_their_runs(screen: ComparePage, database: Path) -> None:
    xla = (stored_run(run_row(n, throughput=n * 3000.0, units=n, xla=True)) for n in (64, 128))
    screen.compare(1, 2, *keep_all(database, xla))
    assert screen.view.tabs.titles == ["Answer", "Table", "Pivot", "Why", "Charts", "Curves"]
    screen.view.tabs.open_tab("Charts")
    assert not screen.view.table.isVisible()
    (picture,) = screen.view.tabs.charts.widgets
    assert picture.isVisible()
    assert [area.item.label for area in picture.hit_areas] == ["Units 64 → 128", "XLA off → on"]
    picture.setFocus()
    QTest.keyClick(picture, Qt.Key.Key_End)
    acts = {act.text(): act for act in picture.menu().actions()}
    acts["Open run 1"].trigger()
    acts["Run &again exactly"].trigger()
    assert screen.recorded.calls == [("open_run", 1), ("run_again", 11)]
    screen.compare(1, 2)
    assert screen.view.header.result.plot.isVisible(), "a tab that has nothing to say leads to the answer"
    assert "Charts" not in screen.view.tabs.titles


def test_margin_axis_and_widths_are_there_in_the_next_window(
    qtbot: QtBot, database: Path, background: Background, window_state: Path
) -> None:
    seen = []
    for _ in range(2):
        page = ComparePage(qtbot, database, background)
        page.compare(1, 4, 6, 2, 5, 7, curves=True)
        column = page.titles().index("Sequences/s")
        width = page.view.table.columnWidth(column)
        seen.append((chosen_margin(page.view), page.view.tabs.curves.align_choice.currentText(), width == 173))
        page.view.margin_chosen.emit(2.0)
        qtbot.waitUntil(partial(has_margin, page.view, "2\xa0%"))
        with qtbot.waitSignal(page.panels.drawn):
            page.view.tabs.curves.alignment_requested.emit("steps")
        page.view.table.horizontalHeader().resizeSection(column, 173)
        write_states(page.view)
        page.destroy()
    assert seen == [("off", "Along time", False), ("2\xa0%", "Along steps", True)]


def has_margin(view: CompareView, text: str) -> bool:
    return chosen_margin(view) == text


def test_an_alignment_chosen_while_runs_are_read_is_that_of_their_curves(screen: ComparePage) -> None:
    screen.compare(1, 2, curves=True)
    curves, shown = screen.view.tabs.curves, list[set[str]]()
    keep_keys = partial(_add_keys, shown, screen.panels)
    screen.panels.changed.connect(keep_keys)
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.controller.show_runs([4, 5])
        choose_align(screen, "steps")
    screen.qtbot.waitUntil(lambda: screen.drawn() == {"4", "5"})
    screen.qtbot.waitUntil(lambda: float(screen.panel("Loss").curves["4"].source.points()[0][-1]) == 400.0)
    assert curves.align_choice.currentText() == "Along steps"
    assert shown
    assert {"1", "2"} not in shown, "the runs before are not aligned for the table of these"


def _add_keys(shown: list[set[str]], panels: PanelStack) -> None:
    shown.append({curve.key for panel in panels.offered.panels for curve in panel.curves})


def test_no_column_is_cut_and_a_sign_leads_to_those_beyond_the_edge(screen: ComparePage) -> None:
    screen.compare(1, 2)
    screen.view.tabs.open_tab("Table")
    table, header = screen.view.table, screen.view.table.horizontalHeader()
    table.setFixedWidth(340)
    screen.view.grab()
    (more,) = table.findChildren(MoreColumns)
    spans = [(header.sectionViewportPosition(n), header.sectionSize(n)) for n in range(header.count())]
    beyond = [left for left, width in spans if width and left + width > more.x()]
    assert more.isVisible()
    assert min(beyond) >= more.x() - table.frameWidth()
    assert f"{len(beyond)} more columns" in more.toolTip()
    while more.isVisible():
        position = table.horizontalScrollBar().value()
        more.click()
        assert table.horizontalScrollBar().value() > position


def test_run_and_variant_stay_while_the_other_columns_scroll(screen: ComparePage) -> None:
    screen.compare(1, 2)
    screen.view.tabs.open_tab("Table")
    table = screen.view.table
    table.setFixedWidth(420)
    screen.view.grab()
    table.horizontalScrollBar().setValue(table.horizontalScrollBar().maximum())
    (frozen,) = table.findChildren(FrozenColumns)
    assert frozen.isVisible()
    assert [n for n in range(frozen.model().columnCount()) if not frozen.isColumnHidden(n)] == [0, 1, 2]
    base = frozen.visualRect(frozen.model().index(1, 1)).center()
    QTest.mouseClick(frozen.viewport(), Qt.MouseButton.LeftButton, pos=base)
    screen.qtbot.waitUntil(lambda: screen.column("Speed-up")[1] == "−6.0\xa0%")
    table.horizontalScrollBar().setValue(0)
    assert not frozen.isVisible()


def test_the_menu_of_a_row_does_what_the_keys_do(screen: ComparePage) -> None:
    screen.compare(1, 2, curves=True)
    screen.press(Qt.Key.Key_Return, row=1)
    screen.view.table.customContextMenuRequested.emit(QPoint(5, 5))
    menu = next(m for m in screen.view.table.findChildren(QMenu) if not m.title())
    acts = {act.text(): act for act in menu.actions()}
    acts["&Run again …"].trigger()
    assert screen.recorded.calls == [("open_run", 2), ("run_again", 2)]
    acts["Hide or show &curves\tSpace"].trigger()
    assert screen.drawn() == {"1"}
    acts["Make &baseline\tB"].trigger()
    screen.qtbot.waitUntil(lambda: screen.column("Speed-up") == ["baseline", "−6.0\xa0%"])
    acts["Copy as &Markdown"].trigger()
    assert QGuiApplication.clipboard().text().startswith("| Run |")
    menu.close()


def test_an_empty_screen_offers_the_experiments(screen: ComparePage, database: Path) -> None:
    with Store.open(database) as store:
        save_experiment(store.library, [2, 1], name="units & more", preset=None, plan='{"variants": []}')
    assert "Ctrl+Shift+C" in screen.visible_text()
    screen.controller.refresh()
    screen.qtbot.waitUntil(screen.view.offers.experiments_button.isVisible)
    screen.view.offers.experiments_button.click()

    def offered() -> list[QMenu]:
        return [menu for menu in screen.view.findChildren(QMenu) if menu.isVisible()]

    screen.qtbot.waitUntil(lambda: bool(offered()))
    (menu,) = offered()
    (entry,) = menu.actions()
    assert entry.text() == "1  units && more · 2 runs"
    with screen.qtbot.waitSignal(screen.view.painted):
        entry.trigger()
    assert screen.column("Run") == ["2", "1"]
    menu.close()


def test_runs_without_any_curve_are_a_table_and_a_verdict(screen: ComparePage, database: Path) -> None:
    failed = [stored_run(run_row(40 + n, outcome="failed", throughput=None), measured=False) for n in range(2)]
    screen.compare(*keep_all(database, (replace(run, samples=()) for run in failed)), curves=True)
    assert screen.column("Outcome") == ["failed"]
    assert screen.panels.visible_plots == []


def test_a_single_reading_is_seen_and_saved_as_a_picture(screen: ComparePage, database: Path) -> None:
    (bare,) = keep_all(database, [stopped_after_one_reading(40)])
    screen.compare(bare, curves=True)
    assert screen.drawn() == {str(bare)}
    meant = drawing_in_sight(screen.view, screen.panel("CPU load"), Theme())
    assert meant is not None
    assert "<circle" in meant.svg(filled=True)


def test_a_baseline_that_drifted_from_its_older_runs_is_doubted(screen: ComparePage, database: Path) -> None:
    rows = (*(run_row(20 + n, throughput=500.0 + n) for n in range(3)), run_row(30, throughput=600.0, units=128))
    screen.compare(*keep_all(database, map(stored_run, rows)))
    assert "drifted" in screen.visible_text()


def test_where_legends_have_no_room_the_values_stand_beside_the_pointer(screen: ComparePage, database: Path) -> None:
    numbers = keep_all(database, (stored_run(run_row(40 + n, units=500 + n)) for n in range(20)))
    screen.compare(*numbers, curves=True)
    load = screen.panel("CPU load")
    load.plot.hovered.emit(4.0, -1e9)
    assert screen.panels.readout.text().split(", ") == [f"Units {500 + n} 90.0" for n in range(20)]
    screen.view.table.toggle_runs([numbers[0]])
    load.plot.hovered.emit(4.1, -1e9)
    assert screen.panels.readout.text().split(", ") == [f"Units {500 + n} 90.0" for n in range(1, 20)]
    load.plot.left.emit()
    assert not screen.panels.readout.isVisible()


def test_the_legend_has_a_letter_and_a_name_for_each_variant_and_hides_all_its_runs(screen: ComparePage) -> None:
    screen.compare(1, 2, 4, 5, curves=True)
    legend = screen.view.tabs.curves.legend
    assert [button.text() for button in legend.buttons()] == ["Units 64 × 2", "Units 128 × 2"]
    first = legend.buttons()[0]
    first.click()
    assert screen.drawn() == {"2", "5"}
    assert not first.isChecked()
    first.click()
    assert screen.drawn() == {"1", "2", "4", "5"}


def test_a_mean_per_variant_says_what_its_band_is_and_goes_with_its_runs(screen: ComparePage) -> None:
    screen.compare(1, 2, 4, 5, curves=True)
    curves = screen.view.tabs.curves
    with screen.qtbot.waitSignal(screen.view.painted):
        curves.means_box.click()
    assert "band: from the lowest to the highest run" in curves.extent.text()
    assert "aligned by time" in curves.extent.text()
    assert screen.panel("Throughput").shown_keys() == ("1", "2")
    assert "Units 64 · mean of 2 runs" in screen.panel("Throughput").legend.text()
    screen.view.table.toggle_runs([1])
    assert screen.panel("Throughput").shown_keys() == ("1", "2"), "another run of the variant is still there"
    curves.legend.buttons()[0].click()
    assert screen.panel("Throughput").shown_keys() == ("2",)
    with screen.qtbot.waitSignal(screen.view.painted):
        screen.controller.show_runs([1, 2])
    assert not curves.means_box.isVisible(), "no variant has two runs"


def test_a_run_that_is_gone_is_a_sentence_on_the_screen(screen: ComparePage) -> None:
    screen.controller.show_runs([1, 99])
    screen.wait_for_text("There is no run 99")
    screen.compare(1, 2)
    assert "There is no run 99" not in screen.visible_text()
