"""The answer, its forest plot and its waterfall on one screen."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication

from app.gui.compare.screen import CompareView
from app.gui.widgets.basic import BreakingLabel
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import compare, prepare_comparison
from tests.fakes.traces import CONV, POOL, SLOW_GEMM, traced_run
from tests.unit.viewmodels.stored import run_row, stored_run

BELOW_THE_BAR = 1280, 766
"""What a window of 1280 x 800 has below its own bar."""


@pytest.fixture
def screen(screen: CompareView) -> CompareView:
    screen.resize(*BELOW_THE_BAR)
    return screen


def traced(variants: int) -> list[StoredRun]:
    """A run of each variant, the slowest first; each has six bars on its way from the first."""
    return [
        traced_run(n + 1, 400.0 - n, {POOL: 4.0 + n / 9, CONV: 10.0 - n / 99, SLOW_GEMM: 2.0 + n / 5}, batch=32 + n)
        for n in range(variants)
    ]


def show(screen: CompareView, runs: list[StoredRun]) -> None:
    screen.show_model(compare(prepare_comparison(runs), runs[0].row.run))
    QApplication.processEvents()


def ends(screen: CompareView) -> tuple[int, int, int]:
    """Where the plot and the waterfall end, and how high what is seen of them is."""
    answer, scroller = screen.tabs.answer, screen.tabs.answer_scroller
    (waterfall,) = answer.waterfall.widgets
    plot = screen.header.result.plot
    below = [widget.mapTo(answer, QPoint(0, widget.height())).y() for widget in (plot, waterfall)]
    return below[0], below[1], scroller.viewport().height()


@pytest.mark.parametrize("variants", [2, 8])
def test_plot_and_waterfall_of_a_few_variants_fit_without_scrolling(screen: CompareView, variants: int) -> None:
    show(screen, traced(variants))
    plot, waterfall, room = ends(screen)
    assert plot < waterfall <= room
    assert screen.tabs.answer_scroller.verticalScrollBar().maximum() == 0
    assert screen.rect().contains(screen.notes.geometry()), "what qualifies it is in sight"
    assert "Why" in screen.tabs.titles


def test_of_eighteen_variants_the_plot_is_whole_and_the_waterfall_scrolls(screen: CompareView) -> None:
    show(screen, traced(18))
    plot, waterfall, room = ends(screen)
    assert plot <= room < waterfall
    assert screen.tabs.answer_scroller.verticalScrollBar().maximum() > 0


def test_of_240_variants_the_plot_scrolls_and_has_a_row_each(screen: CompareView) -> None:
    show(screen, traced(240))
    plot, _, room = ends(screen)
    assert room < plot
    assert screen.header.result.plot.height() > 240 * 24
    picture = screen.grab().toImage()
    screen.tabs.answer_scroller.verticalScrollBar().setValue(2000)
    assert screen.grab().toImage() != picture


def test_the_waterfall_leads_to_the_fastest_and_keeps_what_to_know_of_it(screen: CompareView) -> None:
    show(screen, traced(3))
    (waterfall,) = screen.tabs.answer.waterfall.widgets
    assert [area.item.runs for area in waterfall.hit_areas][:: len(waterfall.hit_areas) - 1] == [(1,), (3,)]
    assert screen.tabs.answer.obstacle.isHidden()


def test_without_a_trace_a_sentence_stands_below_the_plot(screen: CompareView) -> None:
    first, second = traced(2)
    show(screen, [first, replace(second, evidence=None)])
    assert screen.tabs.answer.waterfall.isHidden()
    assert screen.tabs.answer.obstacle.isVisible()
    assert screen.tabs.answer.obstacle.text().startswith("Why is not known: there is no trace of ")
    show(screen, [first])
    assert screen.tabs.answer.obstacle.isHidden(), "one variant differs from nothing"


def test_answers_on_several_workloads_leave_room_for_their_plots(screen: CompareView) -> None:
    workloads = "cnn10", "lstm", "wrn28-10", "gru"
    show(screen, [stored_run(run_row(n, workload=workloads[n // 2], batch_size=8 << n)) for n in range(8)])
    answer = next(label for label in screen.header.findChildren(BreakingLabel) if label.isVisible())
    assert [line.partition(":")[0] for line in answer.text().splitlines()] == list(workloads)
    assert answer.property("role") == "verdict", "not in the largest letters"


def test_an_answer_with_long_names_leaves_room_for_its_plot(screen: CompareView) -> None:
    names = [f"{name}_name_of_an_implementation_that_says_what_it_does_and_how" for name in ("one", "two", "three")]
    show(screen, [stored_run(run_row(n, throughput=100.0 * n, implementation=name)) for n, name in enumerate(names, 1)])
    answer = next(label for label in screen.header.findChildren(BreakingLabel) if label.isVisible())
    assert len(answer.text()) > 200
    assert answer.property("role") == "verdict", "not in the largest letters"


def test_nothing_moves_while_another_baseline_is_awaited(screen: CompareView) -> None:
    show(screen, traced(8))
    widgets = screen.tabs, screen.header.result.plot, screen.tabs.answer.waterfall, screen.notes
    before = [widget.mapTo(screen, QPoint()) for widget in widgets]
    screen.show_waiting("Comparing with run 2 …")
    QApplication.processEvents()
    assert [widget.mapTo(screen, QPoint()) for widget in widgets] == before
    assert not screen.header.result.plot.isVisible()
    assert not screen.tabs.answer.waterfall.widgets


def test_a_small_window_has_the_speed_up_beside_the_name(screen: CompareView) -> None:
    names = "a_rather_long_name_of_an_implementation", "another_name_that_is_as_long_as_that"
    runs = [
        stored_run(run_row(n, throughput=1000.0 + n, implementation=name, units=64 * n))
        for n, name in enumerate(names, 1)
    ]
    screen.resize(800, 566)
    show(screen, runs)
    screen.tabs.open_tab("Table")
    QApplication.processEvents()
    table = screen.table
    speed = table.table.keys.index("speedup")
    assert not table.isColumnHidden(speed)
    assert table.columnViewportPosition(speed) + table.columnWidth(speed) <= table.viewport().width()
