"""Every screen and dialog in both schemes against expected pictures.

`VARIANTSCOPE_NEW_PICTURES=1 python3 start.py test tests/gui/test_tour.py` takes them anew.

Fonts differ between machines, so the mean colours of tiles are compared: a panel that is missing, moved or of the wrong
scheme shows; a letter does not.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

from app.gui.app import Workbench
from app.gui.theme import Theme
from tests.gui.tour import SCREENS
from tests.pictures import settle
from tests.vision import lost_edges

EXPECTED = Path(__file__).parent / "pictures"
SCHEMES = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}
SMALL = 320, 200
TILES = 16, 10
TILE_LIMIT, MEAN_LIMIT = 26.0, 3.0
"""Largest difference of a tile's mean colour, and the mean over all tiles, of 255."""


def file_of(name: str, scheme: str) -> str:
    return f"{name.replace(' ', '-')}-{scheme}.png"


def small(image: QImage) -> QImage:
    """Return a picture as the expected ones are stored, with 256 colours at most."""
    scaled = image.scaled(*SMALL, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation)
    return scaled.convertToFormat(QImage.Format.Format_Indexed8)


def pixels(image: QImage) -> NDArray[np.uint8]:
    """Return the colours of a picture, [rows, columns, red green blue]."""
    plain = image.convertToFormat(QImage.Format.Format_RGBX8888)
    return np.frombuffer(plain.constBits(), np.uint8).reshape(plain.height(), -1, 4)[:, : plain.width(), :3].copy()


def tiles(image: QImage) -> NDArray[np.float64]:
    """Return the mean colour of each tile, [rows, columns, red green blue]."""
    width, height = SMALL
    columns, rows = TILES
    found: NDArray[np.float64] = pixels(image).reshape(rows, height // rows, columns, width // columns, 3).mean((1, 3))
    return found


def differs(one: QImage, other: QImage) -> str:
    """Return by how much, and where most, two small pictures differ; "" where they are alike."""
    found = np.abs(tiles(one) - tiles(other)).mean(2)
    row, column = np.unravel_index(found.argmax(), found.shape)
    is_alike = found.max() <= TILE_LIMIT and found.mean() <= MEAN_LIMIT
    return "" if is_alike else f"{found.max():.0f} at row {row}, column {column}; mean {found.mean():.1f}"


def turned(theme: Theme) -> Iterator[str]:
    """Yield the scheme that is applied, and then the other, which is applied from then on: applying one takes long."""
    yield theme.colours.scheme
    (other,) = SCHEMES.keys() - {theme.colours.scheme}
    theme.apply(SCHEMES[other])
    yield other


def picture_faults(workbench: Workbench, theme: Theme, name: str, shown: QWidget, folder: Path) -> list[str]:
    """Return how a screen differs from its pictures, and areas side by side that look alike to some people.

    Its pictures go into the folder, and take the place of the expected ones where VARIANTSCOPE_NEW_PICTURES is set.
    """
    faults = []
    for scheme in turned(theme):
        settle(workbench)
        full = shown.grab().toImage()
        picture, file = small(full), file_of(name, scheme)
        faults += [f"{scheme}: {each}" for each in lost_edges(pixels(full))]
        picture.save(str((EXPECTED if os.environ.get("VARIANTSCOPE_NEW_PICTURES") else folder) / file))
        if difference := differs(picture, QImage(str(EXPECTED / file))):
            faults.append(f"{folder / file} differs by {difference}; if it is right, take them anew: see {__name__}")
    return faults


def test_a_screen_of_the_other_scheme_or_without_a_panel_is_told_apart() -> None:
    for name in SCREENS:
        light, dark = (QImage(str(EXPECTED / file_of(name, scheme))) for scheme in SCHEMES)
        blank = light.copy()
        blank.fill(light.pixelIndex(SMALL[0] - 2, SMALL[1] // 2))
        assert differs(light, dark), name
        assert differs(light, blank), name
