"""Charts in the window: marks, menus and saving, by mouse and by keyboard."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QMenu, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.gui.compare import charts
from app.gui.compare.charts import ChartsView, ChartWidget
from app.gui.compare.tabs import ScalingChart
from app.gui.plot.pictures import drawing_in_sight, save_chart, save_picture_in_sight
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import DARK, LIGHT, Theme
from app.report.charts.canvas import Drawing, HitArea
from app.report.charts.draw import draw_chart
from app.viewmodels.charts.model import Chart
from app.viewmodels.charts.palette import Palette
from app.viewmodels.compare.scaling import scaling_views
from app.viewmodels.plot.model import Band
from tests.fakes.pictures import charts_of, grid
from tests.fakes.scaling import ONE, TALKING
from tests.gui.actions import RecordedActions
from tests.gui.screens import Screen, set_curve

"""Menus and tooltips need what Qt's offscreen platform lacks."""


@pytest.fixture(scope="module")
def pictures() -> tuple[Chart, ...]:
    return charts_of(grid(), 1)


@pytest.fixture
def screen(qtbot: QtBot, theme: Theme, pictures: tuple[Chart, ...], recorded: RecordedActions) -> Screen[ChartsView]:
    made = Screen(qtbot, ChartsView(theme, recorded.actions), 1000, 2600)
    made.view.show_charts(pictures)
    qtbot.addWidget(made.view)
    qtbot.waitUntil(lambda: made.view.widgets[-1].width() > 900)
    return made


@pytest.fixture
def batch(screen: Screen[ChartsView]) -> ChartWidget:
    """Throughput against batch size: three runs behind each point."""
    return screen.view.widgets[3]


def test_charts_that_follow_others_are_drawn_once_at_their_width(
    screen: Screen[ChartsView], pictures: tuple[Chart, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []

    def draw(chart: Chart, palette: Palette, width: float) -> Drawing:
        drawn.append(width)
        return draw_chart(chart, palette, width)

    screen.view.show_charts(())
    screen.view.resize(1003, 2600)  # at this width no chart was drawn before
    monkeypatch.setattr(charts, "draw_chart", draw)
    screen.view.show_charts(pictures[:2])
    screen.view.grab()
    assert drawn == [screen.view.width()] * 2


def middle(spot: HitArea) -> QPoint:
    return QPointF(*spot.centre).toPoint()


def entries(menu: QMenu) -> list[str]:
    return [action.text().replace("&", "") for action in menu.actions() if action.text()]


def trigger(menu: QMenu, words: str) -> None:
    next(action for action in menu.actions() if action.text().replace("&", "") == words).trigger()


def save_as(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **_options: (str(path), "PNG (*.png)"))


def test_pointing_tells_the_figures_and_a_click_asks_which_run(batch: ChartWidget, recorded: RecordedActions) -> None:
    spot = batch.hit_areas[-1]
    QTest.mouseMove(batch, middle(spot))
    assert batch.accessibleDescription() == spot.item.tooltip
    assert "95\xa0% CI" in batch.toolTip()
    QTest.mouseClick(batch, Qt.MouseButton.LeftButton, pos=middle(spot))
    (menu,) = batch.findChildren(QMenu)
    assert entries(menu) == [f"Open run {run}" for run in spot.item.runs]
    trigger(menu, f"Open run {spot.item.runs[1]}")
    assert recorded.calls == [("open_run", spot.item.runs[1])]
    menu.close()


def test_a_click_opens_the_one_run_behind_a_mark(qtbot: QtBot, theme: Theme, recorded: RecordedActions) -> None:
    made = Screen(qtbot, ChartsView(theme, recorded.actions), 900, 900)
    qtbot.addWidget(made.view)
    made.view.show_charts(charts_of(grid()[:2], 1))
    bars = made.view.widgets[0]
    QTest.mouseClick(bars, Qt.MouseButton.LeftButton, pos=middle(bars.hit_areas[1]))
    assert recorded.calls == [("open_run", 2)]
    QTest.mouseClick(bars, Qt.MouseButton.LeftButton, pos=QPoint(5, 5))
    assert recorded.calls == [("open_run", 2)]


def test_the_keyboard_goes_from_mark_to_mark(batch: ChartWidget, recorded: RecordedActions) -> None:
    batch.setFocus()
    assert batch.grab().toImage().pixelColor(300, 1).name() == LIGHT.accent
    QTest.keyClick(batch, Qt.Key.Key_Right)
    assert batch.accessibleDescription() == batch.hit_areas[0].item.tooltip
    QTest.keyClick(batch, Qt.Key.Key_Left)
    assert batch.accessibleDescription() == batch.hit_areas[-1].item.tooltip
    trigger(batch.menu(), "Run again exactly")
    assert recorded.calls == [("run_again", batch.hit_areas[-1].item.runs[-1])]
    QTest.keyClick(batch, Qt.Key.Key_Escape)
    assert entries(batch.menu()) == ["Copy picture", "Save picture …"]


def test_a_picture_is_as_wide_as_there_is_room_and_in_the_colours_of_the_scheme(
    screen: Screen[ChartsView], batch: ChartWidget, theme: Theme, qtbot: QtBot
) -> None:
    assert batch.drawing().width == batch.width()
    screen.view.resize(700, 2600)
    qtbot.waitUntil(lambda: batch.drawing().width == batch.width() < 800)
    assert LIGHT.muted in batch.drawing().svg()
    theme.apply(Qt.ColorScheme.Dark)
    assert DARK.muted in batch.drawing().svg()
    theme.apply(Qt.ColorScheme.Light)


def test_it_is_saved_as_vectors_and_as_pixels(
    batch: ChartWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.svg", "b.png", "c"):
        save_as(monkeypatch, tmp_path / name)
        trigger(batch.menu(), "Save picture …")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert len([part for part in root.iter() if part.tag.endswith("polyline")]) == 6
    for name in ("b.png", "c.png"):
        image = QImage(str(tmp_path / name))
        assert image.width() == pytest.approx(2 * batch.width(), abs=2)
        assert image.pixelColor(0, 0).name() == LIGHT.surface


def test_it_is_copied_as_it_is_saved(batch: ChartWidget) -> None:
    trigger(batch.menu(), "Copy picture")
    copied = QGuiApplication.clipboard().image()
    assert copied.width() == pytest.approx(2 * batch.width(), abs=2)
    assert copied.pixelColor(0, 0).name() == LIGHT.surface


def test_what_cannot_be_written_is_said(batch: ChartWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(QMessageBox, "exec", lambda box: said.append(box.text()))
    save_as(monkeypatch, tmp_path / "nowhere" / "a.svg")
    save_chart(batch, batch.drawing())
    assert "cannot be written" in said[0]
    save_as(monkeypatch, Path())
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **_options: ("", ""))
    save_chart(batch, batch.drawing())
    assert len(said) == 1


@pytest.fixture
def plot(qtbot: QtBot, theme: Theme) -> TimePanel:
    panel = TimePanel("Power", "W", theme)
    qtbot.addWidget(panel)
    panel.resize(800, 200)
    x = np.arange(0.0, 100.0, 0.1)
    y = np.where((x > 40) & (x < 50), np.nan, 300 + x)
    set_curve(panel, "a", x, y, colour=1, label="GPU 0")
    set_curve(panel, "b", x, x, colour=10, label="Hidden")
    panel.hide_curves(["b"])
    panel.set_x_range(20.0, 80.0)
    panel.values.fix(0.0, 500.0)
    panel.bands.set_bands([Band("measure", 30.0, 70.0, strong=True)])
    with qtbot.waitExposed(panel):
        panel.show()
    return panel


def test_a_plot_is_saved_as_the_vectors_it_shows(plot: TimePanel, theme: Theme) -> None:
    meant = drawing_in_sight(QWidget(), plot, theme)
    assert meant is not None
    root = ElementTree.fromstring(meant.svg(filled=True))
    lines = [part for part in root.iter() if part.tag.endswith("polyline")]
    assert len(lines) == 2, "a gap is no line, a hidden curve neither"
    assert {line.get("stroke") for line in lines} == {LIGHT.curves[1]}
    words = "".join(root.itertext())
    assert all(word in words for word in ("Power", "W", "GPU 0", "measure", "0:20", "1:20"))
    assert "Hidden" not in words
    assert not [part for part in root.iter() if part.tag.endswith("image")]


def test_of_several_plots_that_under_the_pointer_is_meant(theme: Theme, qtbot: QtBot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    assert drawing_in_sight(page, None, theme) is None
    power, load = (TimePanel(title, "W", theme) for title in ("Power", "Load"))
    for number, panel in enumerate((power, load)):
        panel.setParent(page)
        panel.setGeometry(0, 200 * number, 800, 200)
    page.resize(800, 400)
    with qtbot.waitExposed(page):
        page.show()
    for pointed_at, name in ((None, "Power, Load"), (load.plot.viewport(), "Load")):
        meant = drawing_in_sight(page, pointed_at, theme)
        assert meant is not None
        assert meant.name == name


def test_a_picture_under_the_pointer_is_meant_else_the_first_in_sight(
    screen: Screen[ChartsView], batch: ChartWidget, theme: Theme
) -> None:
    assert drawing_in_sight(screen.view, batch, theme) is batch.drawing()
    assert drawing_in_sight(screen.view, None, theme) is screen.view.widgets[0].drawing()


@pytest.fixture
def pair(qtbot: QtBot, theme: Theme) -> ScalingChart:
    made = ScalingChart(theme, scaling_views([*ONE, *TALKING])[0])
    qtbot.addWidget(made)
    with qtbot.waitExposed(made):
        made.show()
    return made


def test_the_picture_of_a_pair_is_saved_from_its_menu(
    pair: ScalingChart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_as(monkeypatch, tmp_path / "pair.svg")
    here = QPoint(50, 50)
    QApplication.sendEvent(pair, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, here, pair.mapToGlobal(here)))
    (menu,) = pair.findChildren(QMenu)
    trigger(menu, "Save picture …")
    menu.close()
    assert ElementTree.parse(tmp_path / "pair.svg").getroot().get("aria-label") == pair.accessibleName()


def test_a_page_without_plots_says_so(qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("app.gui.plot.pictures.QToolTip.showText", lambda _at, words, _page: said.append(words))
    page = QWidget()
    qtbot.addWidget(page)
    save_picture_in_sight(page, theme, to_clipboard=False)
    assert said == ["There is no plot here to save or copy."]
