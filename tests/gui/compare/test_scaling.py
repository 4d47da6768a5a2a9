"""Scaling on the Compare screen."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.gui.compare.screen import CompareView
from app.gui.compare.tabs import ScalingChart, ScalingPanel
from app.gui.run.evidence import EvidencePanel
from app.gui.theme import DARK, LIGHT, Theme
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import compare, prepare_comparison
from app.viewmodels.history.evidence import stored_evidence_view
from tests.fakes.scaling import LAUNCHING, ONE, TALKING
from tests.gui.texts import displayed_text


def show(qtbot: QtBot, screen: CompareView, *runs: StoredRun) -> None:
    """Show these runs, and how they scale where they do."""
    screen.show_model(compare(prepare_comparison(runs), runs[0].row.run))
    if "Scaling" in screen.tabs.titles:
        screen.tabs.open_tab("Scaling")
        qtbot.waitUntil(lambda: all(chart.isVisible() for chart in screen.findChildren(ScalingChart)))


def visible(screen: CompareView) -> str:
    words = "\n".join(label.text() for label in screen.findChildren(QLabel) if label.isVisible())
    return words.replace("\N{NO-BREAK SPACE}", " ")


def test_runs_that_differ_in_gpus_say_why_not_twice(screen: CompareView, qtbot: QtBot) -> None:
    show(qtbot, screen, *ONE, *TALKING, *LAUNCHING)
    words = visible(screen)
    assert "1 to 2 GPUs, the same batch per GPU (weak scaling)" in words
    assert "79.2 %" in words
    assert "Most likely communication: a step takes 5.50 ms too long" in words
    assert "Most likely launching" in words
    show(qtbot, screen, *ONE)
    assert not screen.findChildren(ScalingPanel)[0].isVisible()
    assert "efficiency" not in visible(screen)


def test_the_picture_has_the_colours_of_the_scheme(screen: CompareView, theme: Theme, qtbot: QtBot) -> None:
    show(qtbot, screen, *ONE, *TALKING)

    def communication() -> str:
        return screen.findChildren(ScalingChart)[-1].grab().toImage().pixelColor(400, 110).name()

    light = communication()
    theme.apply(Qt.ColorScheme.Dark)
    assert (light, communication()) == (LIGHT.curves[1], DARK.curves[1])
    theme.apply(Qt.ColorScheme.Light)


def test_the_evidence_of_several_gpus_has_a_row_for_each(theme: Theme, qtbot: QtBot) -> None:
    panel = EvidencePanel(theme)
    qtbot.addWidget(panel)
    panel.show_view(stored_evidence_view(TALKING[0]))
    assert "GPU:1" in displayed_text(panel)
    assert "computes 0.0" in displayed_text(panel)
    panel.show_view(stored_evidence_view(ONE[0]))
    assert "GPU:0" not in displayed_text(panel)
