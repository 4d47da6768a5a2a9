"""Pictures in the window: pointed at, opened, run again and saved, by mouse and by keyboard."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QMenu, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.gui.plots import TimePanel
from app.gui.saving import file_name, save_picture
from app.gui.saving_shown import picture_meant, save_shown
from app.gui.theme import DARK, LIGHT, Theme
from app.gui.views.pictures import PicturesView, PictureWidget
from app.gui.views.scaling import ScalingPicture
from app.report.pictures.drawing import Spot
from app.viewmodels.pictures.gallery import gallery
from app.viewmodels.pictures.values import Picture
from app.viewmodels.plotted import Band
from app.viewmodels.scaling import scaling_views
from tests.fakes.pictures import grid
from tests.fakes.scaling import ONE, TALKING
from tests.gui.screens import Screen

OFF_SCREEN = pytest.mark.qt_log_ignore("propagateSizeHints", "does not support", extend=True)
"""Menus and tooltips want what Qt's platform without a screen has not."""


@pytest.fixture(scope="module")
def pictures() -> tuple[Picture, ...]:
    return gallery(grid(), 1).pictures


@pytest.fixture
def screen(qtbot: QtBot, theme: Theme, pictures: tuple[Picture, ...]) -> Screen[PicturesView]:
    made = Screen(qtbot, PicturesView(theme), 1000, 2600)
    made.view.show_pictures(pictures)
    qtbot.addWidget(made.view)
    qtbot.waitUntil(lambda: made.view.widgets[-1].width() > 900)
    return made


@pytest.fixture
def batch(screen: Screen[PicturesView]) -> PictureWidget:
    """Throughput against batch size: three runs behind each point."""
    return screen.view.widgets[2]


def middle(spot: Spot) -> QPoint:
    return QPointF(*spot.middle).toPoint()


def entries(menu: QMenu) -> list[str]:
    return [action.text().replace("&", "") for action in menu.actions() if action.text()]


def trigger(menu: QMenu, words: str) -> None:
    next(action for action in menu.actions() if action.text().replace("&", "") == words).trigger()


def save_as(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **_options: (str(path), "PNG (*.png)"))


@OFF_SCREEN
def test_pointing_tells_the_figures_and_a_click_asks_which_run(batch: PictureWidget, qtbot: QtBot) -> None:
    spot = batch.spots[-1]
    QTest.mouseMove(batch, middle(spot))
    assert batch.accessibleDescription() == spot.place.words
    assert "95 % interval" in batch.toolTip()
    QTest.mouseClick(batch, Qt.MouseButton.LeftButton, pos=middle(spot))
    (menu,) = batch.findChildren(QMenu)
    assert entries(menu) == [f"Open run {run}" for run in spot.place.runs]
    with qtbot.waitSignal(batch.run_opened) as opened:
        trigger(menu, f"Open run {spot.place.runs[1]}")
    assert opened.args == [spot.place.runs[1]]
    menu.close()


def test_a_click_opens_the_one_run_behind_a_mark(qtbot: QtBot, theme: Theme) -> None:
    made = Screen(qtbot, PicturesView(theme), 900, 900)
    qtbot.addWidget(made.view)
    made.view.show_pictures(gallery(grid()[:2], 1).pictures)
    bars = made.view.widgets[0]
    with qtbot.waitSignal(made.view.run_opened) as opened:
        QTest.mouseClick(bars, Qt.MouseButton.LeftButton, pos=middle(bars.spots[1]))
    assert opened.args == [2]
    with qtbot.assertNotEmitted(made.view.run_opened):
        QTest.mouseClick(bars, Qt.MouseButton.LeftButton, pos=QPoint(5, 5))


@OFF_SCREEN
def test_the_keyboard_goes_from_mark_to_mark(batch: PictureWidget, qtbot: QtBot) -> None:
    batch.setFocus()
    assert batch.grab().toImage().pixelColor(300, 1).name() == LIGHT.accent
    QTest.keyClick(batch, Qt.Key.Key_Right)
    assert batch.accessibleDescription() == batch.spots[0].place.words
    QTest.keyClick(batch, Qt.Key.Key_Left)
    assert batch.accessibleDescription() == batch.spots[-1].place.words
    with qtbot.waitSignal(batch.run_again_asked) as asked:
        trigger(batch.menu(), "Run again exactly")
    assert asked.args == [batch.spots[-1].place.runs[-1]]
    QTest.keyClick(batch, Qt.Key.Key_Escape)
    assert entries(batch.menu()) == ["Save picture …"]


def test_a_picture_is_as_wide_as_there_is_room_and_in_the_colours_of_the_scheme(
    screen: Screen[PicturesView], batch: PictureWidget, theme: Theme, qtbot: QtBot
) -> None:
    assert batch.drawing().width == batch.width()
    screen.view.resize(700, 2600)
    qtbot.waitUntil(lambda: batch.drawing().width == batch.width() < 800)
    assert LIGHT.muted in batch.drawing().svg()
    theme.apply(Qt.ColorScheme.Dark)
    assert DARK.muted in batch.drawing().svg()
    theme.apply(Qt.ColorScheme.Light)


def test_it_is_saved_as_vectors_and_as_pixels(
    batch: PictureWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_what_cannot_be_written_is_said(batch: PictureWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(QMessageBox, "warning", lambda _parent, _title, words: said.append(words))
    save_as(monkeypatch, tmp_path / "nowhere" / "a.svg")
    save_picture(batch, batch)
    assert "cannot be written" in said[0]
    save_as(monkeypatch, Path())
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **_options: ("", ""))
    save_picture(batch, batch)
    assert len(said) == 1


def test_a_title_makes_a_file_name() -> None:
    assert file_name("Speed-up against NHWC · 1 GPU/../x") == "speed-up-against-nhwc-1-gpu-x"
    assert file_name("···") == "picture"


@pytest.fixture
def plot(qtbot: QtBot, theme: Theme) -> TimePanel:
    panel = TimePanel("Power", "W", theme)
    qtbot.addWidget(panel)
    panel.resize(800, 200)
    x = np.arange(0.0, 100.0, 0.1)
    y = np.where((x > 40) & (x < 50), np.nan, 300 + x)
    panel.set_curve("a", x, y, colour=1, label="GPU 0")
    panel.set_curve("b", x, x, colour=10, label="Hidden")
    panel.hide_curves(["b"])
    panel.set_x_range(20.0, 80.0)
    panel.set_y_range(0.0, 500.0)
    panel.set_shades([Band("measure", 30.0, 70.0, strong=True)])
    with qtbot.waitExposed(panel):
        panel.show()
    return panel


def test_a_plot_is_saved_as_the_vectors_it_shows(plot: TimePanel, theme: Theme) -> None:
    meant = picture_meant(QWidget(), plot, theme)
    assert meant is not None
    root = ElementTree.fromstring(meant.drawing().svg(meant.paper()))
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
    assert picture_meant(page, None, theme) is None
    power, load = (TimePanel(title, "W", theme) for title in ("Power", "Load"))
    for number, panel in enumerate((power, load)):
        panel.setParent(page)
        panel.setGeometry(0, 200 * number, 800, 200)
    page.resize(800, 400)
    with qtbot.waitExposed(page):
        page.show()
    for pointed_at, name in ((None, "Power, Load"), (load.plot.viewport(), "Load")):
        meant = picture_meant(page, pointed_at, theme)
        assert meant is not None
        assert meant.drawing().name == name


def test_a_picture_under_the_pointer_is_meant_else_the_first_in_sight(
    screen: Screen[PicturesView], batch: PictureWidget, theme: Theme
) -> None:
    assert picture_meant(screen.view, batch, theme) is batch
    assert picture_meant(screen.view, None, theme) is screen.view.widgets[0]


@pytest.fixture
def pair(qtbot: QtBot, theme: Theme) -> ScalingPicture:
    made = ScalingPicture(theme, scaling_views([*ONE, *TALKING])[0])
    qtbot.addWidget(made)
    with qtbot.waitExposed(made):
        made.show()
    return made


@OFF_SCREEN
def test_the_picture_of_a_pair_is_saved_from_its_menu(
    pair: ScalingPicture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr("app.gui.saving_shown.QToolTip.showText", lambda _at, words, _page: said.append(words))
    page = QWidget()
    qtbot.addWidget(page)
    save_shown(page, theme)
    assert said == ["There is no plot here to save."]
