"""What a user makes of a plot: its value axis, smoothing, and the curve that the pointer raises."""

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from app.gui.plot.curves import PanelCurve
from app.gui.plot.pictures import draw_stacked
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import LIGHT, Theme
from app.viewmodels.plot.model import Look, Points
from tests.gui.plot.test_plots import count, panel
from tests.gui.screens import set_curve, turn_wheel


@pytest.fixture
def made(qtbot: QtBot, theme: Theme) -> TimePanel:
    """A plot of two level curves, at 10 and at 1,000 W."""
    plot = panel(qtbot, theme)
    for key, level in (("a", 10.0), ("b", 1000.0)):
        set_curve(plot, key, np.arange(61.0), np.full(61, level), colour=int(key == "b"), label=f"Run {key}")
    plot.refresh()
    return plot


def choose(plot: TimePanel, submenu: str, text: str) -> None:
    plot.show_menu(QPoint())
    (menu,) = [each for each in plot.findChildren(QMenu) if each.parent() is plot]
    (chosen,) = [each for each in menu.findChildren(QMenu) if each.title().replace("&", "") == submenu]
    action = next(each for each in chosen.actions() if each.text().replace("&", "").startswith(text))
    assert isinstance(action, QAction)
    action.trigger()
    menu.close()
    QApplication.sendPostedEvents(menu, 0)


def test_a_logarithmic_axis_has_decades_and_says_so(made: TimePanel) -> None:
    choose(made, "Value axis", "Logarithmic")
    made.refresh()
    low, high = made.values.span
    assert 1.0 < low <= 10.0 < 1000.0 <= high < 10_000.0
    ((_, ticks),) = made.plot.axes[0].tickValues(*made.plot.view.viewRange()[1], 150)
    assert {"10", "100", "1,000"} <= set(made.plot.axes[0].tickStrings(ticks, 1.0, 1.0))
    assert made.plot.axes[0].tickStrings([5.0, 6.0, 7.3], 1.0, 1.0) == ["100,000", "1\xa0M", "20\xa0M"]
    assert "logarithmic" in made.plot.accessibleName()
    assert made.snapshot().y.log, "a saved picture is logarithmic too"
    set_curve(made, "a", np.arange(61.0), np.zeros(61), colour=0, label="Run a")
    made.refresh()
    assert made.columns_drawn("a") == 0, "zero has no place on it"


def test_the_axis_fits_the_values_in_view_or_begins_at_zero(made: TimePanel) -> None:
    made.hide_curves(["a"])
    choose(made, "Value axis", "Fit")
    made.refresh()
    assert made.values.span[0] > 500.0
    choose(made, "Value axis", "From zero")
    made.refresh()
    assert made.values.span[0] == 0.0


def test_a_range_by_hand_wins_over_a_fixed_one_which_comes_back(made: TimePanel) -> None:
    made.values.fix(0.0, 100.0)
    made.change_look(Look(values=(20.0, 40.0)))
    assert made.values.span == (20.0, 40.0)
    made.change_look(Look())
    assert made.values.span == (0.0, 100.0)


def test_wheel_and_drag_on_the_value_axis_change_it_alone(made: TimePanel) -> None:
    made.plot.interactive = True
    before, time = made.values.span, made.span
    at = QPointF(10.0, made.plot.height() / 2)
    turn_wheel(made.plot, at)
    zoomed = made.values.span
    assert zoomed[1] - zoomed[0] == pytest.approx(0.8 * (before[1] - before[0]), rel=0.01)
    QTest.mousePress(made.plot.viewport(), Qt.MouseButton.LeftButton, pos=at.toPoint())
    QTest.mouseMove(made.plot.viewport(), at.toPoint() + QPoint(0, 30))
    QTest.mouseRelease(made.plot.viewport(), Qt.MouseButton.LeftButton)
    assert made.values.span[0] > zoomed[0]
    assert made.span == time
    QTest.mouseDClick(made.plot.viewport(), Qt.MouseButton.LeftButton, pos=at.toPoint())
    assert made.look == Look()


def test_a_smoothed_curve_stands_before_the_raw_one_and_names_its_window(made: TimePanel, theme: Theme) -> None:
    made.hide_curves(["b"])
    set_curve(made, "a", np.arange(601.0) / 10, np.tile([0.0, 20.0], 301)[:601], colour=0, label="Run a")
    made.refresh()
    solid = count(made, LIGHT.curves[0])
    choose(made, "Smoothing", "Running mean of 2\xa0s")
    made.refresh()
    assert "running mean of 2\xa0s" in made.plot.accessibleName()
    assert 400 < count(made, LIGHT.curves[0]) < solid / 5, "a level line, where the raw one fills the plot"
    assert made.curves["a"].source.points()[1].max() == 20.0, "values to be read stay those measured"
    choose(made, "Smoothing", "None")
    made.refresh()
    assert count(made, LIGHT.curves[0]) == solid


def test_the_pointer_raises_the_nearest_curve_and_the_others_become_faint(made: TimePanel) -> None:
    both = [count(made, LIGHT.curves[colour]) for colour in (0, 1)]
    assert min(both) > 400
    assert made.curve_at(30.0, 15.0) == "a"
    assert made.curve_at(30.0, 990.0) == "b"
    assert made.curve_at(30.0, 500.0) == ""
    made.raise_curve("b")
    assert count(made, LIGHT.curves[0]) == 0
    assert count(made, LIGHT.curves[1]) == both[1]
    made.raise_curve("elsewhere")
    assert count(made, LIGHT.curves[0]) == both[0], "a curve of another plot makes none here faint"


def test_curves_have_marks(made: TimePanel) -> None:
    bare = made.plot.grab().toImage()
    for key, mark in (("a", "A"), ("b", "B")):
        level = Points(np.arange(40.0), np.full(40, 10.0 if key == "a" else 1000.0))
        made.give(key, PanelCurve(0, "", level, mark))
    made.refresh()
    marked = made.plot.grab().toImage()
    assert any(bare.pixel(x, y) != marked.pixel(x, y) for y in range(bare.height()) for x in range(80, 110))


def test_a_saved_picture_has_smoothing_marks_and_the_edges_of_a_spread(made: TimePanel, theme: Theme) -> None:
    x = np.arange(61.0)
    edges = Points(x, np.full(61, 5.0)), Points(x, np.full(61, 15.0))
    made.remove_curve("b")
    made.give("a", PanelCurve(0, "Units 64", Points(x, np.tile([9.0, 11.0], 31)[:61]), "A", edges))
    made.change_look(Look(smoothing=20.0))
    low, high, mean = made.snapshot().curves
    assert (set(low.y), set(high.y)) == ({5.0}, {15.0})
    assert abs(mean.y[10:50] - 10.0).max() < 0.1
    svg = draw_stacked([made.snapshot()], theme, 600).svg()
    assert svg.count(">A</text>") == 1
    assert "A Units 64" in svg
