"""A picture as SVG in given colours and of a given width."""

from app.report.pictures.bars import draw_bars
from app.report.pictures.charts import draw_charts
from app.report.pictures.drawing import Drawing, Sheet, headed
from app.report.pictures.ink import Ink
from app.viewmodels.pictures.values import BarPicture, Picture

WIDTH = 880.0
LEAST_WIDTH = 480.0


def draw(picture: Picture, ink: Ink, width: float = WIDTH) -> Drawing:
    """The drawing, as high as it needs to be."""

    def below(sheet: Sheet) -> None:
        if isinstance(picture, BarPicture):
            draw_bars(picture, sheet)
        else:
            draw_charts(picture, sheet)

    return headed(picture, ink, max(width, LEAST_WIDTH), below)
