"""The timeline of a traced step on a run's page: zoomed, panned and read by mouse and keyboard."""

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gui.run.evidence import EvidencePanel, StepCanvas, StepTimelineWidget
from app.gui.theme import DARK, LIGHT, Theme, ink_on
from app.viewmodels.history.evidence import stored_evidence_view
from tests.fakes.runs import EVIDENCE
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.stored import run_row, stored_run

LEFT, NO_KEY = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme) -> EvidencePanel:
    made = EvidencePanel(theme)
    qtbot.addWidget(made)
    made.resize(900, 900)
    made.show_view(stored_evidence_view(stored_run(run_row(3, gpus=1, found=EVIDENCE), evidence=EVIDENCE)))
    with qtbot.waitExposed(made):
        made.show()
    displayed_text(made)
    qtbot.waitUntil(timeline_of(made)[1].isVisible)
    return made


def timeline_of(panel: EvidencePanel) -> tuple[StepTimelineWidget, StepCanvas]:
    (found,) = panel.findChildren(StepTimelineWidget)
    return found, found.canvas


def at(canvas: StepCanvas, time_us: float, row: int) -> QPoint:
    """Where a time is on a row."""
    return QPoint(round(canvas._x_of(time_us)), 24 * row + 12)


def turn_wheel(canvas: StepCanvas, position: QPoint, modifiers: Qt.KeyboardModifier) -> bool:
    """One notch up; returns whether the canvas took it."""
    place, none, phase = QPointF(position), Qt.MouseButton.NoButton, Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(place, place, QPoint(), QPoint(0, 120), none, modifiers, phase, False)
    event.ignore()
    QApplication.sendEvent(canvas, event)
    return event.isAccepted()


def test_the_mouse_zooms_pans_and_reads(panel: EvidencePanel, qtbot: QtBot) -> None:
    widget, canvas = timeline_of(panel)
    assert canvas.accessibleName().startswith("One of the traced steps, 250")
    assert widget.reading.text().startswith("Ctrl+wheel")
    QTest.mouseMove(canvas, at(canvas, 110, 1))
    qtbot.waitUntil(lambda: widget.reading.text().startswith("point-wise · at 0.100"))
    QTest.mouseClick(canvas, LEFT, NO_KEY, at(canvas, 75, 0))
    assert (canvas.selected, widget.reading.text()[:11]) == (0, "convolution")
    QTest.mouseClick(canvas, Qt.MouseButton.RightButton, NO_KEY, at(canvas, 110, 1))
    assert canvas.selected == 0, "the left button selects"
    assert canvas.accessibleDescription() == widget.reading.text()
    assert not turn_wheel(canvas, at(canvas, 50, 0), Qt.KeyboardModifier.NoModifier), "it scrolls the page"
    assert turn_wheel(canvas, at(canvas, 50, 0), Qt.KeyboardModifier.ControlModifier)
    assert canvas.range_us == pytest.approx((10, 210), abs=1.0), "50 stays where it is"
    middle = at(canvas, 110, 0)
    QTest.mousePress(canvas, LEFT, NO_KEY, middle)
    QTest.mouseMove(canvas, middle - QPoint(300, 0))
    QTest.mouseRelease(canvas, LEFT, NO_KEY, middle - QPoint(300, 0))
    assert canvas.range_us == pytest.approx((50, 250), abs=0.1), "to the end of the step, no further"
    assert canvas.selected == 0, "a drag selects nothing"
    widget._whole_step.click()
    assert canvas.range_us == (0.0, 250.0)
    assert not widget._whole_step.isEnabled()


def test_the_keyboard_reaches_every_kernel(panel: EvidencePanel) -> None:
    widget, canvas = timeline_of(panel)
    found = []
    for key in (
        Qt.Key.Key_Right,
        Qt.Key.Key_Right,
        Qt.Key.Key_Right,
        Qt.Key.Key_Left,
        Qt.Key.Key_Down,
        Qt.Key.Key_Down,
        Qt.Key.Key_Up,
    ):
        QTest.keyClick(canvas, key)
        found.append(canvas.selected)
    assert found == [0, 2, 2, 0, 1, 1, 0]
    QTest.keyClick(canvas, Qt.Key.Key_Plus)
    assert canvas.range_us == pytest.approx((0, 160)), "about the selected kernel"
    QTest.keyClick(canvas, Qt.Key.Key_Right)
    start_us, end_us = canvas.range_us
    assert (start_us <= 200 < end_us, canvas.selected) == (True, 2), "what is selected comes into view"
    assert "at 0.200" in widget.reading.text()
    QTest.keyClick(canvas, Qt.Key.Key_PageUp)
    assert canvas.range_us[0] < start_us
    QTest.keyClick(canvas, Qt.Key.Key_0)
    assert canvas.range_us == (0.0, 250.0)


def test_bars_and_gaps_have_the_colours_of_the_scheme(panel: EvidencePanel, theme: Theme) -> None:
    def colours() -> tuple[str, str]:
        _, canvas = timeline_of(panel)
        image = canvas.grab().toImage()
        bar, gap = (image.pixelColor(at(canvas, time_us, 0)).name() for time_us in (75, 175))
        return bar, gap

    light = colours()
    assert light[0] == LIGHT.curves[1]
    assert light[1] != light[0], "a gap stays a gap"
    theme.apply(Qt.ColorScheme.Dark)
    QApplication.processEvents()
    assert colours()[0] == DARK.curves[1]


def test_other_colours_leave_the_zoom_the_selection_and_the_focus(panel: EvidencePanel, theme: Theme) -> None:
    widget, canvas = timeline_of(panel)
    canvas.setFocus()
    QTest.keyClick(canvas, Qt.Key.Key_Right)
    QTest.keyClick(canvas, Qt.Key.Key_Plus)
    before = canvas.range_us, canvas.selected, widget.reading.text()
    theme.apply(Qt.ColorScheme.Dark)
    QApplication.processEvents()
    assert timeline_of(panel) == (widget, canvas)
    assert (canvas.range_us, canvas.selected, widget.reading.text()) == before
    assert before[0] != (0.0, 250.0)
    assert canvas.hasFocus()


def test_a_long_kernel_has_the_name_of_its_class_on_its_bar(panel: EvidencePanel) -> None:
    _, canvas = timeline_of(panel)
    canvas.show_range(0.0, 100.0)
    image = canvas.grab().toImage()
    left, right = (at(canvas, time_us, 0).x() for time_us in (1, 20))
    drawn = {image.pixelColor(x, y).name() for x in range(left, right) for y in range(5, 19)}
    assert {ink_on(QColor(LIGHT.curves[1])).name(), LIGHT.curves[1]} <= drawn
