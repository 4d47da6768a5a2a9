"""The strip over plots: which part they show, and where a replay is."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.time_bar import Overview
from app.gui.run.replay import ReplayController
from app.gui.run.screen import RunView
from app.gui.theme import Theme
from app.telemetry.replay import run_recording
from tests.gui.plot.test_stack import plots
from tests.gui.run.test_replay import RUN_ON_GPUS
from tests.gui.texts import displayed_text


@pytest.fixture
def made(qtbot: QtBot, theme: Theme) -> tuple[Overview, PanelStack]:
    """A strip over plots of 60 s, 800 pixels wide."""
    stack = PanelStack(theme)
    strip = Overview(stack, theme)
    qtbot.addWidget(stack)
    qtbot.addWidget(strip)
    stack.show_plots(plots("power"))
    strip.resize(800, strip.sizeHint().height())
    return strip, stack


def drag(strip: Overview, start: float, end: float, y: int | None = None) -> None:
    """Drag from one time to another."""
    row = strip.height() // 2 if y is None else y
    first, last = (QPoint(round(strip.x_of(time)), row) for time in (start, end))
    QTest.mousePress(strip, Qt.MouseButton.LeftButton, pos=first)
    QTest.mouseMove(strip, last)
    QTest.mouseRelease(strip, Qt.MouseButton.LeftButton, pos=last)


def test_dragging_makes_a_part_moves_it_and_its_ends(made: tuple[Overview, PanelStack]) -> None:
    strip, stack = made
    assert not strip.isHidden()
    assert (strip.extent, stack.span) == ((0.0, 60.0), (0.0, 60.0))
    drag(strip, 20.0, 40.0)
    assert stack.span == pytest.approx((20.0, 40.0), abs=0.2)
    drag(strip, 30.0, 50.0)
    assert stack.span == pytest.approx((40.0, 60.0), abs=0.3)
    drag(strip, 40.0, 45.0)
    assert stack.span == pytest.approx((45.0, 60.0), abs=0.3)
    drag(strip, 30.0, 30.0)
    assert stack.span == pytest.approx((22.5, 37.5), abs=0.3), "a click elsewhere moves it there"
    drag(strip, 30.0, 500.0)
    assert stack.span[1] == 60.0, "there is nothing beyond the end"
    QTest.mouseDClick(strip, Qt.MouseButton.LeftButton, pos=QPoint(round(strip.x_of(5.0)), strip.height() // 2))
    assert stack.span == (0.0, 60.0)


def test_it_is_not_there_without_plots(made: tuple[Overview, PanelStack]) -> None:
    strip, stack = made
    stack.show_plots(plots())
    assert strip.isHidden()


def test_a_replay_goes_on_from_where_its_line_is_dragged_or_moved_by_keys(qtbot: QtBot, theme: Theme) -> None:
    view = RunView(theme)
    qtbot.addWidget(view)
    view.resize(1200, 800)
    view.show()
    controller = ReplayController(view)
    controller.play(run_recording(RUN_ON_GPUS))
    replay = view.replay
    assert replay is not None
    strip, stack = replay.live.overview, replay.live.stack
    qtbot.waitUntil(lambda: bool(strip.accessibleDescription()))
    replay.pause_button.click()
    assert strip.extent == pytest.approx((0.0, 12.0), abs=0.1), "all of the recording, from its beginning"
    drag(strip, 1.0, 9.0, y=2)
    qtbot.waitUntil(lambda: "Measuring" in displayed_text(replay.live))
    assert replay.pause_button.text() == "&Resume replay", "what is paused stays so"
    played = len(stack.panel("power_mw").curves["GPU-1"].source.points()[0])
    assert 80 <= played < 120
    strip.setFocus()
    QTest.keyClick(strip, Qt.Key.Key_Home)
    qtbot.waitUntil(lambda: "Measuring" not in displayed_text(replay.live))
    assert strip.accessibleDescription().startswith("0 of ")
    QTest.keyClick(strip, Qt.Key.Key_End)
    qtbot.waitUntil(lambda: "Completed" in displayed_text(replay.live))
    drag(strip, 2.0, 4.0, y=strip.height() - 8)
    assert stack.span == pytest.approx((2.0, 4.0), abs=0.2)
    at = QPoint(round(strip.x_of(1.0)), strip.height() - 8)
    QTest.mouseClick(strip, Qt.MouseButton.LeftButton, pos=at)
    qtbot.waitUntil(lambda: strip.accessibleDescription().startswith("1 of "))
    controller.stop()
