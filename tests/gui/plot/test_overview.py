"""The strip over plots: which part they show."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.time_bar import Overview
from app.gui.theme import Theme
from tests.gui.plot.test_stack import plots


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
