"""Every screen in both schemes against expected pictures.

`VARIANTSCOPE_NEW_PICTURES=1 python3 start.py test tests/gui/test_pictures.py` takes them anew.

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
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.theme import Theme
from app.storage.reference import add_reference
from tests.gui.windows import window_on
from tests.pictures import PICTURES, SIZE
from tests.vision import lost_edges

EXPECTED = Path(__file__).parent / "pictures"
STEADY = {name: take for name, take in PICTURES.items() if name not in ("replay", "report")}
"""Those that come out alike: a replay stops somewhere in its last second, and a report is drawn by a browser."""
SCHEMES = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}
SMALL = 320, 200
TILES = 16, 10
TILE_LIMIT, MEAN_LIMIT = 26.0, 3.0
"""Largest difference of a tile's mean colour, and the mean over all tiles, of 255."""


def pictures(workbench: Workbench, theme: Theme) -> Iterator[tuple[str, QImage]]:
    """Yield every picture in both schemes with the name of its file."""
    workbench.window.resize(*SIZE)
    for name, take in STEADY.items():
        for scheme, value in SCHEMES.items():
            theme.apply(value)
            take(workbench)
            yield f"{name}-{scheme}.png", workbench.window.grab().toImage()


def small(image: QImage) -> QImage:
    """Return a picture as the expected ones are stored."""
    return image.scaled(*SMALL, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation)


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


def test_every_screen_looks_as_expected_and_apart_to_everybody(qtbot: QtBot, tmp_path: Path, theme: Theme) -> None:
    """Take the expected pictures anew instead, where VARIANTSCOPE_NEW_PICTURES is set."""
    renews = bool(os.environ.get("VARIANTSCOPE_NEW_PICTURES"))
    database, wrong, blurred = tmp_path / "profiles.db", {}, {}
    add_reference(database)
    with window_on(qtbot, database, theme) as workbench:
        for name, full in pictures(workbench, theme):
            shown = small(full)
            if lost := lost_edges(pixels(full)):
                blurred[name] = lost
            shown.save(str((EXPECTED if renews else tmp_path) / name))
            difference = np.abs(tiles(shown) - tiles(QImage(str(EXPECTED / name)))).mean(2)
            if difference.max() > TILE_LIMIT or difference.mean() > MEAN_LIMIT:
                row, column = np.unravel_index(difference.argmax(), difference.shape)
                wrong[name] = f"{difference.max():.0f} at row {row}, column {column}; mean {difference.mean():.1f}"
    assert not wrong, f"the pictures are in {tmp_path}; if they are right, take them anew: see above"
    assert not blurred, "areas side by side that look alike to some people"


def test_a_screen_of_the_other_scheme_or_without_a_panel_is_told_apart() -> None:
    for name in STEADY:
        light, dark = (QImage(str(EXPECTED / f"{name}-{scheme}.png")) for scheme in SCHEMES)
        assert np.abs(tiles(light) - tiles(dark)).mean() > 10 * MEAN_LIMIT
        blank = light.copy()
        blank.fill(light.pixelColor(SMALL[0] - 2, SMALL[1] // 2))
        assert np.abs(tiles(light) - tiles(blank)).mean(2).max() > TILE_LIMIT
