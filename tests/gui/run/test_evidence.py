"""The evidence of a run on its page, on the Run screen, in both tables, light and dark."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.gui.compare.screen import CompareView
from app.gui.history.page import RunPageView
from app.gui.run.evidence import EvidencePanel, StackedBar
from app.gui.run.live import LiveView
from app.gui.theme import DARK, LIGHT, Theme
from app.gui.widgets.basic import BreakingLabel
from app.storage.store import Store
from app.values.events import Outcome
from app.viewmodels.compare.comparison import compare, prepare_comparison
from app.viewmodels.history import evidence
from app.viewmodels.history.run_detail import run_detail
from app.viewmodels.run.live import LiveModel
from tests.fakes.evidence import AS_REQUESTED, MISLABELLED, PORTABLE, UNKNOWN
from tests.fakes.traces import CONV, SLOW_GEMM, traced_run
from tests.gui.actions import RecordedActions
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.events import GPU_INVENTORY, ended, handle_all, started, training
from tests.unit.viewmodels.stored import keep, run_row, stored_run
from workloads.protocol import Evidence


def view_of(found: Evidence | None) -> evidence.EvidenceView:
    row = run_row(3, gpus=1, found=found)
    return evidence.stored_evidence_view(stored_run(row, evidence=found, portability=PORTABLE if found else ()))


def show(panel: EvidencePanel, view: evidence.EvidenceView) -> None:
    """Show evidence, all its parts at once."""
    panel.show_view(view)
    displayed_text(panel)
    QApplication.processEvents()


def visible(page: QWidget) -> list[str]:
    return [label.text() for label in page.findChildren(QLabel) if label.isVisible()]


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme) -> EvidencePanel:
    made = EvidencePanel(theme)
    qtbot.addWidget(made)
    made.resize(900, 800)
    made.show()
    return made


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, recorded: RecordedActions) -> RunPageView:
    made = RunPageView(theme, recorded.actions)
    qtbot.addWidget(made)
    made.resize(1400, 900)
    with qtbot.waitExposed(made):
        made.show()
    return made


def open_run(page: RunPageView, found: Evidence | None, run: int = 3) -> None:
    page.show_model(run_detail(stored_run(run_row(run, found=found), evidence=found), None))


def test_what_differs_stands_out_by_a_symbol_too(panel: EvidencePanel) -> None:
    show(panel, view_of(MISLABELLED))
    assert "✘  Standard" in visible(panel)
    assert "✔  float32" in visible(panel)
    show(panel, view_of(AS_REQUESTED))
    assert not any("✘" in words for words in visible(panel))
    assert "TF32" in visible(panel)


def test_names_are_short_and_whole_under_the_pointer(panel: EvidencePanel) -> None:
    show(panel, view_of(AS_REQUESTED))
    first, name, *_ = panel.findChildren(BreakingLabel)
    assert name.text() == "elemWiseRNNcell"
    assert first.fontMetrics().horizontalAdvance(first.text()) > first.width(), "a long name"
    assert first.height() >= 2 * first.fontMetrics().height(), "is in two lines, whole"
    assert "elemWiseRNNcell&lt;float" in name.toolTip(), "brackets are no mark-up"
    assert panel.horizontalScrollBar().maximum() == 0
    assert "13 more kernels, 0.7\N{NO-BREAK SPACE}% together" in visible(panel)


def test_long_names_fit_beside_the_notes_of_a_run_on_a_small_screen(panel: EvidencePanel) -> None:
    panel.resize(643, 800)
    kernel = replace(view_of(AS_REQUESTED).kernels[0], name="SwapDimension1And2InTensor3UsingTiles", occupancy="100 %")
    show(panel, replace(view_of(AS_REQUESTED), kernels=(kernel,), traced=" ".join(["10 steps traced after it"] * 5)))
    QApplication.processEvents()
    assert panel.horizontalScrollBar().maximum() == 0


def test_time_by_class_is_one_bar_whose_parts_say_what_they_are(panel: EvidencePanel) -> None:
    show(panel, view_of(AS_REQUESTED))
    bar = panel.findChildren(StackedBar)[0]
    assert bar.text_at(1).startswith("GEMM, 61.1")
    assert bar.text_at(0.7 * bar.width()).startswith("RNN, 31.7")
    assert "point-wise 5.2" in bar.accessibleName()
    assert "87.7\N{NO-BREAK SPACE}%" in visible(panel)
    assert any(words.startswith("Standard on Intel Xeon") for words in visible(panel)), "weights tried elsewhere"


def test_the_bar_has_the_colours_of_the_scheme(panel: EvidencePanel, theme: Theme) -> None:
    show(panel, view_of(AS_REQUESTED))
    (bar,) = panel.findChildren(StackedBar)
    for scheme, colour in ((Qt.ColorScheme.Light, LIGHT.curves[0]), (Qt.ColorScheme.Dark, DARK.curves[0])):
        theme.apply(scheme)
        assert bar.grab().toImage().pixelColor(1, 1).name() == colour
        assert any(f"color:{colour}" in words for words in visible(panel)), "its legend too"


def test_a_part_of_the_bar_has_its_name_where_there_is_room(panel: EvidencePanel) -> None:
    show(panel, view_of(AS_REQUESTED))
    bar = panel.findChildren(StackedBar)[0]
    image = bar.grab().toImage()

    def inked(start: float, end: float) -> bool:
        columns = range(int(start * bar.width()) + 1, int(end * bar.width()) - 1)
        return any(image.pixelColor(x, y) == QColor("white") for x in columns for y in range(3, image.height() - 3))

    assert inked(0.0, 0.611), "GEMM"
    assert not inked(0.93, 0.97), "point-wise, in 5 % of the width"


def test_what_could_not_be_seen_is_said(panel: EvidencePanel) -> None:
    show(panel, view_of(UNKNOWN))
    assert not panel.findChildren(StackedBar)
    assert any("libcupti is missing" in words for words in visible(panel))


def test_products_without_tensor_cores_are_a_warning_above_the_time(panel: EvidencePanel) -> None:
    show(panel, evidence.stored_evidence_view(traced_run(1, 20.0, {CONV: 9.0, SLOW_GEMM: 1.6})))
    texts = displayed_text(panel).splitlines()
    (warning,) = (n for n, text in enumerate(texts) if text.startswith("▲  Products without tensor cores take 1.60"))
    assert warning < texts.index("Where the time went")


def test_a_run_s_page_says_what_was_verified_and_turns_to_the_evidence(page: RunPageView) -> None:
    open_run(page, MISLABELLED)
    assert displayed_text(page.badge) == (f"✘  Mismatch {MISLABELLED.reason}")
    assert not page.evidence.isVisible()
    page.badge.button.click()
    assert page.evidence.isVisible()
    assert page.badge.button.text().replace("&", "") == "Hide evidence"
    open_run(page, AS_REQUESTED, run=4)
    assert page.evidence.isVisible(), "the next run's evidence too"
    assert "✔  Verified" in displayed_text(page.badge)
    page.badge.button.click()
    assert page.panels.isVisible()


def test_an_old_run_has_no_evidence_to_turn_to(page: RunPageView) -> None:
    open_run(page, AS_REQUESTED)
    page.badge.button.click()
    open_run(page, None)
    assert (
        displayed_text(page.badge)
        == "No evidence was stored The run is from a version that did not collect evidence yet."
    )
    assert not page.badge.button.isVisible()
    assert page.panels.isVisible()


def test_the_run_screen_shows_evidence_when_the_run_has_ended(qtbot: QtBot, theme: Theme) -> None:
    view, model = LiveView(theme), LiveModel()
    qtbot.addWidget(view)
    with qtbot.waitExposed(view):
        view.show()
    handle_all(model, [GPU_INVENTORY, started(GPU_INVENTORY), *training(), MISLABELLED])
    view.show_model(model.state())
    assert not view.badge.isVisible(), "nothing is sure before the end"
    handle_all(model, [ended(Outcome(name="completed"))])
    view.show_model(model.state())
    assert "Mismatch" in displayed_text(view.badge)
    view.badge.button.click()
    assert view.evidence.isVisible()
    QTest.keyClick(view, Qt.Key.Key_Escape)
    assert not view.evidence.isVisible(), "the innermost thing that is open"
    view.badge.button.click()
    handle_all(model, [started(GPU_INVENTORY)])
    view.show_model(model.state())
    assert (view.badge.isVisible(), view.evidence.isVisible(), view.stack.isVisible()) == (False, False, True)


def test_compare_says_first_which_runs_are_not_what_they_say(
    qtbot: QtBot, theme: Theme, recorded: RecordedActions
) -> None:
    view = CompareView(theme, recorded.actions)
    qtbot.addWidget(view)
    view.resize(1400, 900)
    with qtbot.waitExposed(view):
        view.show()
    rows = [run_row(1, found=AS_REQUESTED), run_row(2, layers=4, found=MISLABELLED)]
    view.show_model(compare(prepare_comparison([stored_run(row) for row in rows]), 1))
    wrong = evidence.describe_mismatches(rows)
    assert f"▲  {wrong} So the verdict is about what ran" in displayed_text(view.header)
    saying = [each for each in view.findChildren(QLabel) if "did not run what was requested" in each.text()]
    (label,) = [each for each in saying if each.isVisible()]
    assert label.mapTo(view, QPoint()).y() < view.table.mapTo(view, QPoint()).y()
    plain = compare(prepare_comparison([stored_run(run_row(n)) for n in (1, 2)]), 1)
    view.show_model(plain)
    assert "did not run what was requested" not in displayed_text(view.header)
    hidden = {key for n, key in enumerate(plain.table.keys) if view.table.isColumnHidden(n)}
    assert {"evidence", "gflops", "energy"} <= hidden, "columns of which nothing is known"
    assert "throughput" not in hidden


def test_the_window_s_database_gives_the_page_its_evidence(qtbot: QtBot, theme: Theme, database_path: Path) -> None:
    with Store.open(database_path) as store:
        row = run_row(1, gpus=1, found=AS_REQUESTED)
        number = keep(store, stored_run(row, evidence=AS_REQUESTED, portability=PORTABLE))
        stored = store.load(number)
    assert evidence.stored_evidence_view(stored) == view_of(AS_REQUESTED)
