"""The evidence of a run on its page, on the Run screen, in both tables, light and dark."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gui.history.page import RunPageView
from app.gui.run.evidence import EvidencePanel
from app.gui.run.live import LiveView
from app.gui.theme import DARK, LIGHT, Theme
from app.storage.store import Store
from app.values.events import Outcome
from app.viewmodels.history import evidence
from app.viewmodels.history.run_detail import run_detail
from app.viewmodels.run.live import LiveModel
from tests.fakes.evidence import AS_REQUESTED, MISLABELLED, PORTABLE
from tests.fakes.traces import CONV, SLOW_GEMM, traced_run
from tests.gui.actions import RecordedActions
from tests.gui.screens import expose
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.events import GPU_INVENTORY, ended, handle_all, started, training
from tests.unit.viewmodels.stored import keep, run_row, stored_run
from workloads.protocol import Evidence


def view_of(found: Evidence | None) -> evidence.EvidenceView:
    row = run_row(3, gpus=1, found=found)
    return evidence.stored_evidence_view(stored_run(row, evidence=found, portability=PORTABLE if found else ()))


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
    expose(qtbot, made, 1400, 900)
    return made


def open_run(page: RunPageView, found: Evidence | None, run: int = 3) -> None:
    page.show_model(run_detail(stored_run(run_row(run, found=found), evidence=found), None))


def test_what_differs_stands_out_by_a_symbol_too(panel: EvidencePanel) -> None:
    panel.show_view(view_of(MISLABELLED))
    assert "✘ Standard" in displayed_text(panel)
    assert "✔ float32" in displayed_text(panel)
    panel.show_view(view_of(AS_REQUESTED))
    assert "✘" not in displayed_text(panel)
    assert "TF32" in displayed_text(panel).splitlines()


def test_names_are_short_and_whole_under_the_pointer(panel: EvidencePanel) -> None:
    panel.show_view(view_of(AS_REQUESTED))
    name = panel.page.document().find("elemWiseRNNcell")
    assert "elemWiseRNNcell<float" in name.charFormat().toolTip(), "brackets are no mark-up"
    assert panel.page.horizontalScrollBar().maximum() == 0
    assert "13 more kernels, 0.7 % together" in displayed_text(panel)


def test_long_names_fit_beside_the_notes_of_a_run_on_a_small_screen(panel: EvidencePanel) -> None:
    panel.resize(643, 800)
    kernel = replace(view_of(AS_REQUESTED).kernels[0], name="SwapDimension1And2InTensor3UsingTiles", occupancy="100 %")
    panel.show_view(
        replace(view_of(AS_REQUESTED), kernels=(kernel,), traced=" ".join(["10 steps traced after it"] * 5))
    )
    QApplication.processEvents()
    assert panel.page.horizontalScrollBar().maximum() == 0


def test_time_by_class_has_a_bar_in_its_colour_each(panel: EvidencePanel, theme: Theme) -> None:
    panel.show_view(view_of(AS_REQUESTED))
    lines = displayed_text(panel).splitlines()
    start = lines.index("GEMM")
    name, bar, share, second, shorter_bar, *_ = lines[start : start + 6]
    assert (name, share, second) == ("GEMM", "61.1 %", "RNN")
    assert len(bar) > len(shorter_bar) > 0
    assert "87.7 % of the measured step no kernel runs." in lines
    assert any(words.startswith("Standard on Intel Xeon") for words in lines), "weights tried elsewhere"
    for scheme, colours in ((Qt.ColorScheme.Light, LIGHT), (Qt.ColorScheme.Dark, DARK)):
        theme.apply(scheme)
        cursor = panel.page.document().find("GEMM")
        cursor.movePosition(QTextCursor.MoveOperation.NextCell)
        cursor.movePosition(QTextCursor.MoveOperation.NextCharacter)
        assert cursor.charFormat().background().color().name() == colours.curves[0]


def test_products_without_tensor_cores_are_a_warning_above_the_time(panel: EvidencePanel) -> None:
    panel.show_view(evidence.stored_evidence_view(traced_run(1, 20.0, {CONV: 9.0, SLOW_GEMM: 1.6})))
    texts = displayed_text(panel).splitlines()
    (warning,) = (n for n, text in enumerate(texts) if text.startswith("▲ Products without tensor cores take 1.60"))
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


def test_the_window_s_database_gives_the_page_its_evidence(qtbot: QtBot, theme: Theme, database_path: Path) -> None:
    with Store.open(database_path) as store:
        row = run_row(1, gpus=1, found=AS_REQUESTED)
        number = keep(store, stored_run(row, evidence=AS_REQUESTED, portability=PORTABLE))
        stored = store.load(number)
    assert evidence.stored_evidence_view(stored) == view_of(AS_REQUESTED)
