"""A stack of plots: one alone, and the keys."""

import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeySequence, QPaintEvent, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMainWindow, QMenu, QScrollArea, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.gui.plot.panel_stack import PaintTurns, PanelStack
from app.gui.plot.time_bar import TimeBar
from app.gui.theme import Theme
from app.viewmodels.plot.model import RUN_RANGES, Band, Curve, Look, Panel, Plots, Points

TIMES = np.arange(61.0)


def plots(*keys: str) -> Plots:
    """A panel for each key, with two curves, a and b."""
    return Plots(
        panels=tuple(
            Panel(
                key=key,
                title=key.capitalize(),
                unit="W",
                curves=tuple(
                    Curve(key=name, label=f"Run {name}", colour=n, source=Points(TIMES, TIMES * 0 + 10.0 * (n + 1)))
                    for n, name in enumerate("ab")
                ),
            )
            for key in keys
        ),
        window=(0.0, 60.0),
        measured=(10.0, 50.0),
        extent=(0.0, 60.0),
    )


class Shown:
    """A window with a stack in it."""

    def __init__(self, qtbot: QtBot, theme: Theme) -> None:
        self.window = QMainWindow()
        qtbot.addWidget(self.window)
        self.stack = PanelStack(theme)
        self.bar = TimeBar(self.stack, RUN_RANGES)
        self.window.setCentralWidget(self.stack)
        self.window.resize(900, 600)
        with qtbot.waitActive(self.window):
            self.window.show()
            self.window.activateWindow()
        self.stack.show_plots(plots("power", "load"))
        qtbot.waitUntil(lambda: not self.stack.busy)
        self.stack.setFocus()

    def titles(self) -> list[str]:
        return [plot.title for plot in self.stack.visible_plots]


@pytest.fixture
def made(qtbot: QtBot, theme: Theme) -> Shown:
    return Shown(qtbot, theme)


def test_a_double_click_shows_a_plot_alone_and_escape_all_again(made: Shown) -> None:
    closed: list[bool] = []
    QShortcut(QKeySequence("Escape"), made.window).activated.connect(lambda: closed.append(True))
    made.stack.hide_curves(["b"])
    load = made.stack.panel("load").plot
    QTest.mouseDClick(load.viewport(), Qt.MouseButton.LeftButton, pos=load.rect().center())
    assert made.titles() == ["Load"]
    assert made.stack.visible_plots[0].shown_keys() == ("a",), "what is hidden stays hidden"
    made.stack.show_plots(plots("power", "load"))
    assert made.titles() == ["Load"], "data that arrive change nothing"
    made.stack.setFocus()
    made.stack.set_crosshair(None)
    made.stack.raise_curve("")
    QTest.keyClick(made.stack, Qt.Key.Key_Escape)
    assert made.titles() == ["Power", "Load"]
    assert not closed, "the shortcut of the screen around it waits"
    QTest.keyClick(made.stack, Qt.Key.Key_Escape)
    assert closed


def test_everything_is_there_for_the_keyboard(made: Shown) -> None:
    stack = made.stack
    QTest.keyClick(stack, Qt.Key.Key_Down)
    assert stack.raised == "a"
    QTest.keyClick(stack, Qt.Key.Key_Up)
    assert stack.raised == ""
    for key in (Qt.Key.Key_PageDown, Qt.Key.Key_PageDown, Qt.Key.Key_Return):
        QTest.keyClick(stack, key)
    assert made.titles() == ["Load"]
    QTest.keyClick(stack, Qt.Key.Key_Menu)
    (menu,) = [menu for menu in stack.visible_plots[0].findChildren(QMenu) if menu.parent() is stack.visible_plots[0]]
    assert len(menu.actions()) > 5
    menu.close()


def test_what_was_chosen_for_a_plot_follows_it(made: Shown) -> None:
    made.stack.panel("load").change_look(Look(mode="log"))
    made.stack.show_plots(plots("load", "power"))
    assert [plot.look.mode for plot in made.stack.visible_plots] == ["log", "zero"]
    made.stack.show_plots(plots("power"))
    made.stack.show_plots(plots("power", "load"))
    assert [plot.look.mode for plot in made.stack.visible_plots] == ["zero", "log"]


def test_the_pointer_raises_a_curve_in_all_plots_and_names_it(made: Shown) -> None:
    made.stack.panel("power").refresh()
    made.stack.panel("power").plot.hovered.emit(30.0, 20.0)
    assert made.stack.raised == "b"
    assert made.stack.readout.text() == "Run b 20.0"
    made.stack.panel("power").plot.left.emit()
    assert (made.stack.raised, made.stack.readout.text()) == ("", "")


def test_plots_that_scroll_are_high_enough_for_their_lowest_label(qtbot: QtBot, theme: Theme) -> None:
    scroller = QScrollArea()
    qtbot.addWidget(scroller)
    stack = PanelStack(theme, staggered=True)
    scroller.setWidgetResizable(True)
    scroller.setWidget(stack)
    scroller.resize(600, 200)
    scroller.show()
    with qtbot.waitSignal(stack.drawn):
        stack.show_plots(plots("power", "load", "memory"))
    for panel in stack.visible_plots:
        axis_end = panel.plot.axes[1].mapRectToScene(panel.plot.axes[1].rect()).bottom()
        assert panel.plot.mapTo(panel, QPoint(0, round(axis_end))).y() <= panel.height()
    assert [panel.axis.style["showValues"] for panel in stack.visible_plots] == [True, False, True], (
        "the times are in sight"
    )


def staggered_stack(qtbot: QtBot, theme: Theme) -> PanelStack:
    stack = PanelStack(theme, staggered=True)
    qtbot.addWidget(stack)
    stack.resize(900, 700)
    stack.show()
    with qtbot.waitSignal(stack.drawn):
        stack.show_plots(plots("power", "load", "memory"))
    return stack


def spend_turn(stack: PanelStack) -> None:
    """Wait until this turn of the event loop has no time left for painting."""
    begin_s = time.monotonic()
    while stack.turns.take(stack):
        assert time.monotonic() - begin_s < 5


def test_plots_that_wait_for_their_turn_end_as_if_they_had_been_painted_at_once(qtbot: QtBot, theme: Theme) -> None:
    stack = staggered_stack(qtbot, theme)
    stack.resize(700, 700)
    # Without the event loop, in which plots would take their turns.
    assert all(panel.plot.width() <= 700 for panel in stack.visible_plots)
    spend_turn(stack)
    stretched = [panel.plot.grab().toImage() for panel in stack.visible_plots]
    anew: set[str] = set()
    for panel in stack.visible_plots:
        panel.plot.painting.connect(partial(anew.add, panel.title))
    qtbot.waitUntil(lambda: len(anew) == len(stack.visible_plots))
    painted = [panel.plot.grab().toImage() for panel in stack.visible_plots]
    assert all(old.size() == new.size() and old != new for old, new in zip(stretched, painted, strict=True))
    for panel in stack.visible_plots:
        panel.plot.turns = None
    assert [panel.plot.grab().toImage() for panel in stack.visible_plots] == painted


def test_another_theme_is_painted_at_once_and_not_in_turns(qtbot: QtBot, theme: Theme) -> None:
    """Some plots stood white among dark ones."""
    theme.apply(Qt.ColorScheme.Light)
    stack = staggered_stack(qtbot, theme)
    spend_turn(stack)
    theme.apply(Qt.ColorScheme.Dark)
    for widget in (panel.plot for panel in stack.visible_plots):
        corner = widget.grab().toImage().pixelColor(widget.width() - 3, widget.height() // 2)
        assert corner.lightness() < 128


def test_a_run_that_measured_nothing_offers_no_measured_part(made: Shown) -> None:
    for measured, offered in (((10.0, 50.0), True), ((0.0, 60.0), False)):
        made.stack.show_plots(Plots(measured=measured, extent=(0.0, 60.0)))
        assert [not range_button.isHidden() for range_button in made.bar.range_buttons.values()] == [offered, offered]


@pytest.mark.parametrize("staggered", [True, False])
def test_a_hidden_plot_gives_its_image_back_and_looks_the_same_when_it_is_shown_again(
    qtbot: QtBot, theme: Theme, staggered: bool
) -> None:
    stack = PanelStack(theme, staggered=staggered)
    qtbot.addWidget(stack)
    stack.resize(900, 400)
    stack.show()
    stack.show_plots(plots("power"))
    qtbot.waitUntil(lambda: not stack.busy and not stack.visible_plots[0].plot._ground.isNull())
    (panel,) = stack.visible_plots
    seen = panel.plot.grab().toImage()
    stack.hide()
    assert panel.plot._ground.isNull()
    stack.show()
    qtbot.waitUntil(lambda: not panel.plot._ground.isNull())
    assert panel.plot.grab().toImage() == seen


def test_bands_are_named_in_the_first_plot_alone(qtbot: QtBot, theme: Theme) -> None:
    """Seven times in one comparison they were; the others tell the pointer."""
    stack = PanelStack(theme)
    qtbot.addWidget(stack)
    stack.resize(600, 700)
    stack.show()
    with qtbot.waitExposed(stack):
        stack.show_plots(replace(plots("power", "load", "memory"), bands=(Band("measure", 0.0, 60.0),)))
    stack.grab()
    for panel in stack.visible_plots:
        panel.plot.hovered.emit(10.0, -1e9)
    first, *others = ["measure" in panel.plot.toolTip() for panel in stack.visible_plots]
    assert (first, set(others)) == (False, {True})


def busy(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


class SlowPaint(QWidget):
    """Takes 8 ms to paint itself, when it may."""

    def __init__(self, turns: PaintTurns, said: list[str]) -> None:
        super().__init__()
        self._turns = turns
        self._said = said

    def paintEvent(self, _event: QPaintEvent) -> None:
        if not self._turns.take(self):
            self._said.append("waits")
            return
        busy(0.008)
        self._said.append("painted")


def test_what_takes_long_to_paint_is_painted_in_turns(qtbot: QtBot) -> None:
    window = QWidget()
    turns, said = PaintTurns(window), list[str]()
    column = QVBoxLayout(window)
    for _ in range(5):
        column.addWidget(SlowPaint(turns, said))
    qtbot.addWidget(window)
    window.resize(200, 200)
    window.show()
    qtbot.waitUntil(lambda: said.count("painted") >= 5)
    assert "waits" in said
    assert not turns.busy


def test_what_is_painted_first_counts_and_waits_for_none(qtbot: QtBot) -> None:
    window = QWidget()
    turns, said = PaintTurns(window), list[str]()

    class Leading(QWidget):
        def paintEvent(self, _event: QPaintEvent) -> None:
            busy(0.012)
            said.append("led")

    leading, other = Leading(), SlowPaint(turns, said)
    column = QVBoxLayout(window)
    column.addWidget(leading)
    column.addWidget(other)
    turns.lead(leading)
    qtbot.addWidget(window)
    window.resize(200, 200)
    window.show()
    qtbot.waitUntil(lambda: "painted" in said)
    assert said == ["led", "waits", "painted"]
