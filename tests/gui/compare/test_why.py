"""Why a variant differs, on the Compare screen."""

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.gui.compare.screen import CompareView
from app.gui.compare.tabs import PartsTable
from app.gui.theme import Theme
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import compare, prepare_comparison
from app.viewmodels.compare.why import WhyRow
from tests.fakes.traces import CONV, POOL, SLOW_GEMM, traced_run
from tests.unit.viewmodels.stored import run_row, stored_run

NHWC = traced_run(1, 20.0, {POOL: 4.0, CONV: 10.0}, layout="NHWC")
NCHW = traced_run(2, 18.0, {POOL: 1.0, CONV: 9.0, SLOW_GEMM: 2.0}, layout="NCHW")
KERAS = traced_run(3, 25.0, {POOL: 9.0, CONV: 10.0}, implementation="keras", layout="NHWC")


def show(screen: CompareView, *runs: StoredRun) -> None:
    screen.show_model(compare(prepare_comparison(runs), runs[0].row.run))


def visible(screen: CompareView) -> str:
    words = "\n".join(label.text() for label in screen.tabs.why.findChildren(QLabel) if label.isVisible())
    return words.replace("\N{NO-BREAK SPACE}", " ")


def labels(table: PartsTable) -> list[str]:
    items = [table.topLevelItem(n) for n in range(table.topLevelItemCount())]
    return [item.text(0) for item in items if item is not None]


def test_the_first_variant_shown_is_one_of_which_there_is_something_to_say(screen: CompareView) -> None:
    untraced = stored_run(run_row(9, workload="cnn10", layout="NHWC", gpus=0, batch_size=8))
    show(screen, NHWC, untraced, NCHW)
    screen.tabs.open_tab("Why")
    assert screen.tabs.why.choice.currentText().startswith("NCHW")


@pytest.mark.parametrize("width", [856, 1038])
def test_long_names_of_variants_leave_the_parts_their_room(qtbot: QtBot, theme: Theme, width: int) -> None:
    """The part had no pixel left beside two names of three values each."""
    table = PartsTable()
    qtbot.addWidget(table)
    names = "PyTorch · cuDNN stack · Unroll factor 1", "JAX · Combined inputs · Unroll factor 25"
    cells = "0.089 ms", "0.147 ms", "−0.058 ms", "−0.099 to −0.016", "−0.9 %"
    row = WhyRow(label="communication", kind="part", cells=cells)
    table.resize(width, 400)
    table.show_rows((*names, "Change", "95 % CI", "Of the step"), [row])
    with qtbot.waitExposed(table):
        table.show()
    assert table.columnWidth(0) >= table.sizeHintForColumn(0)
    assert table.header().length() <= table.viewport().width(), "all columns are in sight"
    assert table.fontMetrics().horizontalAdvance(names[0]) > table.columnWidth(1), "it is cut"
    assert names[0] in table.headerItem().toolTip(1)


def test_the_tab_says_why_and_unfolds_the_kernels_of_a_part(screen: CompareView) -> None:
    show(screen, NHWC, NCHW)
    screen.tabs.open_tab("Why")
    assert "The first saves 3.00 ms in pooling" in visible(screen)
    assert "NHWC with the pooling of NCHW: 17.6 % faster" in visible(screen)
    assert not screen.tabs.why.choice.isVisible(), "there is one other variant"
    table = screen.tabs.why.table
    assert labels(table) == ["pooling", "GEMM", "convolution", "idle", "step"]
    folded = table.height()
    pooling = table.topLevelItem(0)
    assert pooling is not None
    pooling.setExpanded(True)
    kernel = pooling.child(0)
    assert kernel is not None
    assert kernel.text(0) == "pooling_bw_kernel_avg"
    assert "averpooling_func&lt;float" in kernel.toolTip(0), "the full name, not taken for mark-up"
    assert table.height() > folded
    screen.tabs.open_tab("Answer")
    assert not screen.tabs.why.isVisible()


def test_of_several_variants_one_is_chosen_and_stays_chosen(screen: CompareView) -> None:
    show(screen, NHWC, NCHW, KERAS)
    screen.tabs.open_tab("Why")
    choice = screen.tabs.why.choice
    assert choice.isVisible()
    assert [choice.itemText(n) for n in range(choice.count())] == ["Native · NCHW", "Keras · NHWC"]
    assert choice.currentIndex() == 1, "its step differs most"
    assert "Keras takes 5.00 ms more per step than Native" in visible(screen)
    choice.setCurrentIndex(0)
    show(screen, NHWC, NCHW, KERAS)
    assert choice.currentIndex() == 0
    show(screen, NHWC, NCHW)
    assert "The first saves 3.00 ms in pooling" in visible(screen)


def test_without_a_trace_the_tab_has_a_sentence_alone(screen: CompareView) -> None:
    show(screen, NHWC, replace(NCHW, evidence=None))
    screen.tabs.open_tab("Why")
    assert visible(screen).startswith("Why is not known: there is no trace of NCHW. ")
    assert not screen.tabs.why.table.isVisible()
    show(screen, NHWC)
    assert "Why" not in screen.tabs.titles, "one variant differs from nothing"
