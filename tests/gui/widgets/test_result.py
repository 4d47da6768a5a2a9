"""The forest plot of an answer."""

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QImage, QPainter

from app.gui.widgets.result import paint_whisker


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
