"""The forest plot of an answer."""

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QImage, QPainter
from pytestqt.qtbot import QtBot

from app.gui.theme import Theme
from app.gui.widgets.result import ForestPlot, paint_whisker
from app.viewmodels.charts.model import Axis
from app.viewmodels.experiment.verdict_text import ExperimentResult, ResultRow


@pytest.mark.parametrize(
    ("shares", "has_dot", "has_arrow"),
    [((0.4, 0.5, 0.6), True, False), ((0.4, 0.5, 1.2), True, True), ((1.1, 1.1, 1.1), False, True)],
)
def test_what_leaves_the_axis_is_an_arrow_at_its_border(
    shares: tuple[float, float, float], has_dot: bool, has_arrow: bool
) -> None:
    """The axis goes from pixel 50 to 150."""
    picture = QImage(200, 28, QImage.Format.Format_Grayscale8)
    picture.fill(255)
    painter = QPainter(picture)
    paint_whisker(painter, QRectF(50, 0, 100, 28), shares, QColor("black"))
    painter.end()

    def is_dark(x: int, y: int) -> bool:
        return picture.pixelColor(x, y).lightness() < 128

    assert is_dark(100, 11) == has_dot
    assert is_dark(145, 11) == has_arrow
    assert not any(is_dark(x, y) for x in range(152, 200) for y in range(28)), "nothing beyond the axis"


AXIS = Axis(title="", low=0.5, high=2.0, ticks=((1.0, "1×"), (2.0, "2×")), log=True)


def picture(qtbot: QtBot, theme: Theme, width: int, *rows: ResultRow) -> QImage:
    """The plot of some variants, of which two have room."""
    plot = ForestPlot(theme, 2)
    qtbot.addWidget(plot)
    plot.show_model(ExperimentResult(answer="", rows=rows, axis=AXIS))
    plot.resize(width, plot.sizeHint().height())
    return plot.grab().toImage()


@pytest.mark.parametrize(("width", "is_seen"), [(880, False), (881, True)])
def test_energy_is_left_out_where_the_plot_needs_the_room(
    qtbot: QtBot, theme: Theme, width: int, is_seen: bool
) -> None:
    with_energy, without = (ResultRow(name="NCHW", ratio=1.1, energy=energy) for energy in ("−6 % energy", ""))
    assert (picture(qtbot, theme, width, with_energy) != picture(qtbot, theme, width, without)) == is_seen


def test_of_more_variants_than_have_room_it_says_how_many_there_are(qtbot: QtBot, theme: Theme) -> None:
    rows = [ResultRow(name=f"batch {n}", ratio=1.0 + n / 10) for n in range(3)]
    two, of_three = picture(qtbot, theme, 900, *rows[:2]), picture(qtbot, theme, 900, *rows)
    assert of_three.height() == two.height()
    assert of_three != two, "2 of 3 variants"


def test_labels_of_the_axis_that_would_lie_on_each_other_are_left_out(qtbot: QtBot, theme: Theme) -> None:
    row = ResultRow(name="NCHW", ratio=1.1)
    crowded = Axis(title="", low=0.5, high=2.0, ticks=((1.0, "1×"), (1.01, "1.01×"), (2.0, "2×")), log=True)
    plot = ForestPlot(theme, 2)
    qtbot.addWidget(plot)
    plot.resize(600, 40)
    heads = []
    for axis in (AXIS, crowded):
        plot.show_model(ExperimentResult(answer="", rows=(row,), axis=axis))
        heads.append(plot.grab().toImage().copy(0, 0, 600, 15))
    assert heads[0] == heads[1]
