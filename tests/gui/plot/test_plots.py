from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gui.plot.canvas import TimeAxis, ValueAxis
from app.gui.plot.curves import PanelCurve
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import DARK, DARK_ALWAYS, LIGHT, Theme, style_sheet
from app.gui.widgets.basic import plain_tooltip
from app.viewmodels.charts.palette import HUES
from app.viewmodels.plot.model import Band, LiveSeries, Look, Marker, ShiftedCurve, Strip
from tests.gui.screens import expose, set_curve


def panel(qtbot: QtBot, theme: Theme) -> TimePanel:
    made = TimePanel("Power", "W", theme)
    expose(qtbot, made, 600, 200)
    return made


def count(made: TimePanel, colour: str) -> int:
    """How many pixels of the plot have exactly this colour."""
    image = made.plot.grab().toImage()
    wanted = QColor(colour).rgb()
    return sum(image.pixel(x, y) == wanted for x in range(60, image.width()) for y in range(image.height()))


def test_it_draws_what_the_pixels_show_and_keeps_the_data(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    x = np.linspace(0, 60, 100_000)
    set_curve(made, "a", x, np.sin(x), colour=0, label="GPU 0")
    made.set_x_range(0, 60)
    made.refresh()
    assert 400 < made.columns_drawn("a") < 600
    assert len(made.curves["a"].source.points()[0]) == 100_000


def test_a_curve_of_nothing_but_gaps_draws_nothing(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "a", np.arange(10.0), np.full(10, np.nan), colour=0, label="GPU 0")
    made.refresh()
    made.grab()
    assert made.columns_drawn("a") == 0


def test_a_single_point_is_seen(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "a", np.array([30.0]), np.array([5.0]), colour=0, label="GPU 0")
    made.refresh()
    assert count(made, LIGHT.curves[0]) == 9  # three pixels by three


def test_nothing_is_drawn_while_nobody_looks(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "a", np.arange(60.0), np.arange(60.0), colour=0, label="GPU 0")
    made.hide()
    made.refresh()
    assert made.columns_drawn("a") == 0
    made.show()
    qtbot.waitUntil(lambda: made.columns_drawn("a") > 400)


def drawn_anew(made: TimePanel) -> QImage:
    """The plot with nothing taken over from the frames before."""
    made.set_look(Look(mode="log"))
    made.plot.grab()  # only what was painted replaces the image that is moved
    made.set_look(Look())
    image: QImage = made.plot.grab().toImage()
    return image


class CountedPaints:
    """Something behind the curves of a plot that counts how often it is painted."""

    count = 0

    def paint(self, _painter: QPainter, _area: QRectF) -> None:
        self.count += 1


def test_axes_and_what_is_behind_the_curves_are_painted_only_when_they_change(qtbot: QtBot, theme: Theme) -> None:
    made, ground = panel(qtbot, theme), CountedPaints()
    made.plot.behind = (ground,)
    changes: tuple[tuple[Callable[[], object], int], ...] = (
        (lambda: set_curve(made, "a", np.arange(60.0), np.full(60, 50.0), colour=0, label="GPU 0"), 1),
        (lambda: set_curve(made, "a", np.arange(60.0), np.full(60, 10.0), colour=0, label="GPU 0"), 0),
        (lambda: made.marks.set_crosshair(30.0), 0),
        (lambda: made.set_x_range(0.0, 30.0), 1),
        (lambda: made.values.fix(0.0, 10.0), 1),
        (lambda: made.set_counted(True), 1),
        (lambda: made.axis.show_labels(False), 1),
        (lambda: made.bands.set_bands([Band("measure", 1.0, 2.0)]), 1),
        (lambda: made.resize(500, 180), 1),
    )
    made.grab()
    for change, paints in changes:
        before = ground.count
        change()
        made.grab()
        made.grab()
        assert ground.count - before == paints


def test_a_plot_fits_its_last_size_alone_when_it_is_painted(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "a", np.arange(60.0), np.arange(60.0), colour=0, label="GPU 0")
    made.grab()
    fitted: list[float] = []
    made.plot.sigDeviceRangeChanged.connect(lambda _, area: fitted.append(area.width()))
    for width in (500, 700, 640):
        made.resize(width, 200)
    assert fitted == []
    made.grab()
    assert set(fitted) == {made.plot.width()}
    columns = made.columns_drawn("a")
    made.refresh()
    assert made.columns_drawn("a") == columns > 500, "the curve is drawn for this size"


def test_one_painting_is_enough_for_another_size_and_other_colours(qtbot: QtBot, theme: Theme) -> None:
    made, front = panel(qtbot, theme), CountedPaints()
    set_curve(made, "a", np.arange(60.0), np.arange(60.0), colour=0, label="GPU 0")
    qtbot.waitUntil(lambda: made.columns_drawn("a") > 400)
    made.plot.front = (*made.plot.front, front)
    changes: tuple[Callable[[], object], ...] = (
        lambda: made.resize(500, 180),
        lambda: theme.choose(DARK_ALWAYS),
    )
    for change in changes:
        QApplication.processEvents()
        front.count = 0
        change()
        qtbot.waitUntil(lambda: front.count > 0)
        QApplication.processEvents()
        assert front.count == 1
    assert made.axis.pen().color().name() == DARK.line


def test_a_curve_out_of_range_stays_out_of_the_plot(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    made.values.fix(0.0, 10.0)
    set_curve(made, "a", np.array([0.0, 60.0]), np.array([90.0, 90.0]), colour=0, label="GPU 0")
    made.refresh()
    assert count(made, LIGHT.curves[0]) == 0
    set_curve(made, "a", np.array([0.0, 60.0]), np.array([-90.0, 90.0]), colour=0, label="GPU 0")
    made.refresh()
    assert count(made, LIGHT.curves[0]) > 50


def test_a_curve_that_moves_with_the_time_looks_as_if_drawn_anew(qtbot: QtBot, theme: Theme) -> None:
    made, other = panel(qtbot, theme), panel(qtbot, theme)  # of one size, so that they share what they draw in
    set_curve(other, "a", np.arange(60.0), np.arange(60.0), colour=0, label="GPU 0")
    made.values.fix(0.0, 120.0)
    made.set_x_range(-0.1 * round(made.plot.view.width()), 0.0)  # a column is 0.1 s wide
    random = np.random.default_rng(0)
    series = (LiveSeries(periodic=False), LiveSeries(periodic=False))
    for frame in range(401):  # every other frame moves by a column
        now = 0.05 * frame
        for colour, each in enumerate(series):
            each.append(now - 0.013, None if random.random() < 0.6 else random.uniform(0, 130))
            made.give(f"{colour}", PanelCurve(colour * HUES, f"GPU {colour}", ShiftedCurve(each, now)))
        moved = made.plot.grab().toImage()
        other.set_x_range(0.0, 60.0 + now)
        other.plot.grab()
    assert moved == drawn_anew(made)


@pytest.mark.parametrize("mark", ["", "A"])
def test_frames_leave_the_window_as_if_painted_whole(qtbot: QtBot, theme: Theme, mark: str) -> None:
    made = panel(qtbot, theme)
    made.values.fix(0.0, 120.0)
    made.set_x_range(-0.3 * round(made.plot.view.width()), 0.0)  # a column is 0.3 s wide
    random = np.random.default_rng(0)
    series = (LiveSeries(periodic=False), LiveSeries(periodic=False))
    for each in series:
        each.extend(0.05 * np.arange(2000.0), random.uniform(0, 130, 2000))
    for frame in range(2000, 2400):
        for colour, each in enumerate(series):
            value = None if random.random() < 0.3 else random.uniform(0, 130)
            each.append(0.05 * frame, value)
            made.give(f"{colour}", PanelCurve(colour, f"GPU {colour}", ShiftedCurve(each, 0.05 * frame), mark))
            made.legend.set_value(f"{colour}", f"{value or 0:.0f}")
        made.refresh()
        QApplication.processEvents()
    shown = made.screen().grabWindow(made.winId()).toImage()
    assert shown.convertToFormat(QImage.Format.Format_RGB32) == made.grab().toImage()


def test_a_lone_point_that_gets_a_neighbour_is_no_longer_painted_wider(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    made.values.fix(0.0, 120.0)
    made.set_x_range(0.0, 0.1 * round(made.plot.view.width()))  # a column is 0.1 s wide
    series = LiveSeries(periodic=False)
    for at, value in ((9.95, None), (10.05, 50.0), (10.15, 50.0)):
        series.append(at, value)
        made.give("a", PanelCurve(0, "GPU 0", ShiftedCurve(series, 0.0)))
        moved = made.plot.grab().toImage()
    assert moved == drawn_anew(made)


def test_a_zoomed_view_follows_the_data_in_it(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "a", np.arange(60.0), np.where(np.arange(60) < 30, 1000.0, 1.0), colour=0, label="GPU 0")
    made.set_x_range(0.0, 60.0)
    made.refresh()
    assert made.plot.view.viewRange()[1][1] > 1000
    made.set_x_range(40.0, 50.0, fit=True)
    made.refresh()
    assert made.plot.view.viewRange()[1][1] < 2


def test_marks_and_strips_are_seen(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    made.marks.set_marks([Marker("out of memory", 30.0)], [Strip(5.0, 25.0, 1, 0), Strip(35.0, 36.0, 0, 1)])
    assert count(made, LIGHT.bad) > 100
    assert count(made, LIGHT.curves[1]) > 3 * 100
    assert count(made, LIGHT.curves[0]) > 3 * 5


def test_what_strips_are_is_written_over_the_first(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    pictures = []
    for names in (("", ""), ("throttled", ""), ("throttled", "throttled")):
        made.marks.set_marks([], [Strip(5.0, 25.0, 1, 0, names[0]), Strip(35.0, 36.0, 0, 1, names[1])])
        pictures.append(made.plot.grab().toImage())
    assert pictures[0] != pictures[1]
    assert pictures[1] != pictures[2], "clear of the higher one"
    made.marks.set_marks([], [Strip(59.0, 60.0, 1, 0)])
    assert made.plot.grab().toImage() != pictures[0]


def test_a_band_too_narrow_for_its_name_tells_it_to_the_pointer(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    made.bands.set_bands([Band("import", 0.0, 30.0), Band("build", 30.0, 30.5), Band("measure", 30.5, 60.0)])
    made.grab()
    made.plot.hovered.emit(30.2, -1e9)
    assert made.plot.toolTip() == plain_tooltip("build")
    made.plot.hovered.emit(10.0, -1e9)
    assert made.plot.toolTip() == ""


def test_y_grows_and_never_shrinks(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    tops = []
    for high in (10.0, 90.0, 5.0):
        set_curve(made, "a", np.arange(3.0), np.array([0.0, high, 1.0]), colour=0, label="GPU 0")
        made.refresh()
        tops.append(made.plot.view.viewRange()[1][1])
    assert tops[0] < tops[1] == tops[2]


def test_colours_follow_light_and_dark(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "a", np.arange(3.0), np.arange(3.0), colour=0, label="GPU 0")
    made.bands.set_bands([Band("measure", 0.0, 60.0, strong=True)])
    made.refresh()
    theme.apply(Qt.ColorScheme.Dark)
    assert count(made, DARK.curves[0]) > 10
    dark = made.grab().toImage().pixelColor(500, 150).lightness()
    theme.apply(Qt.ColorScheme.Light)
    light = made.grab().toImage().pixelColor(500, 150).lightness()
    assert count(made, LIGHT.curves[0]) > 10
    assert dark < 80 < 200 < light


def test_the_system_turning_dark_turns_the_application(theme: Theme) -> None:
    hints = QGuiApplication.styleHints()
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert QGuiApplication.palette().window().color().name() == DARK.window
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert QGuiApplication.palette().window().color().name() == LIGHT.window


def test_the_style_sheet_has_every_colour() -> None:
    sheet = style_sheet()
    assert "$" not in sheet
    assert "palette(placeholder-text)" in sheet


@pytest.mark.parametrize(
    ("top", "size", "spacing"), [(115.0, 300.0, 20.0), (115.0, 50.0, 50.0), (0.8, 300.0, 0.2), (9.6, 44.0, 5.0)]
)
def test_labels_are_few_round_and_apart(qtbot: QtBot, theme: Theme, top: float, size: float, spacing: float) -> None:
    ((found, offset),) = ValueAxis("left").tickSpacing(0.0, top, size)
    assert [found, offset] == pytest.approx([spacing, 0.0])


def test_a_second_dash_of_one_colour_leaves_columns_out_and_a_lone_point_none(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    level = np.arange(0.0, 61.0), np.full(61, 5.0)
    set_curve(made, "a", *level, colour=0, label="Run 1")
    made.refresh()
    solid = count(made, LIGHT.curves[0])
    set_curve(made, "a", *level, colour=HUES, label="Run 1")
    made.refresh()
    assert 0.4 < count(made, LIGHT.curves[0]) / solid < 0.8
    set_curve(made, "a", np.array([30.0]), np.array([5.0]), colour=2 * HUES, label="Run 1")
    made.refresh()
    assert count(made, LIGHT.curves[0]) == 9


def test_a_hidden_curve_is_not_drawn_but_named_and_the_rest_has_the_room(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    set_curve(made, "1", np.arange(61.0), np.full(61, 1000.0), colour=0, label="Run 1")
    set_curve(made, "2", np.arange(61.0), np.full(61, 10.0), colour=1, label="Run 2")
    made.refresh()
    made.hide_curves(["1"])
    assert count(made, LIGHT.curves[0]) == 0
    assert count(made, LIGHT.curves[1]) > 400
    assert made.plot.view.viewRange()[1][1] < 20
    assert made.legend.text() == "Run 1, Run 2"


def test_a_click_on_a_name_in_the_legend_tells_which(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    for look in (0, 1):
        set_curve(made, str(look), np.arange(3.0), np.arange(3.0), colour=look, label=f"Run {look}")
    made.legend.grab()
    with qtbot.waitSignal(made.legend.clicked) as clicked:
        QTest.mouseClick(made.legend, Qt.MouseButton.LeftButton, pos=QPoint(made.legend.width() - 8, 8))
    assert clicked.args == ["1"]
    with qtbot.assertNotEmitted(made.legend.clicked):
        QTest.mouseClick(made.legend, Qt.MouseButton.LeftButton, pos=QPoint(2, 8))


def test_a_legend_too_narrow_gives_up_values_first_and_then_names(qtbot: QtBot, theme: Theme) -> None:
    made = panel(qtbot, theme)
    for look in range(20):
        set_curve(made, str(look), np.arange(3.0), np.arange(3.0), colour=look, label=f"Run {look}")
        made.legend.set_value(str(look), "1,234")
    shown = []
    for width in (600, 4000):
        made.resize(width, 200)
        shown.append(made.legend.shows_values)
    assert shown == [False, True]


def test_a_curve_that_is_alone_in_a_small_plot_has_room_for_its_name(qtbot: QtBot, theme: Theme) -> None:
    time_panel = panel(qtbot, theme)
    time_panel.legend.all_or_none = True
    set_curve(time_panel, "27", np.arange(3.0), np.arange(3.0), colour=0, label="Run 27")
    time_panel.resize(time_panel.head.minimumSize().width(), 200)
    assert time_panel.legend.width() > time_panel.legend.fontMetrics().horizontalAdvance("Run 27")


def test_an_axis_can_count(qtbot: QtBot, theme: Theme) -> None:
    axis = TimeAxis("bottom")
    assert axis.tickStrings([-60.0, 0.0], 1.0, 60.0) == ["−1:00", "0:00"]
    assert axis.tickSpacing(-2_000.0, 0.0, 1_000.0) == [(300.0, 0.0)], "not 500 s, which a clock reads as 8:20"
    for width, step in ((287.0, 14_400.0), (288.0, 7_200.0)):
        assert axis.tickSpacing(-28_800.0, 0.0, width) == [(step, 0.0)], "labels with hours are wide"
    axis.set_counted(True)
    assert axis.tickSpacing(-2_000.0, 0.0, 1_000.0)[0] == (200.0, 0)
    assert axis.tickStrings([-1000.0, 0.0, 2000.0], 1.0, 1000.0) == ["−1,000", "0", "2,000"]
