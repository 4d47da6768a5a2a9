"""Colours that stand side by side differ for everybody, and stand out from their ground."""

from itertools import combinations

import numpy as np
import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QCheckBox, QLabel, QStackedWidget, QStyle, QStyleOptionButton, QWidget
from pytestqt.qtbot import QtBot

from app.gui.theme import DARK, DARK_ALWAYS, LIGHT, LIGHT_ALWAYS, Colours, Theme, ink_on
from app.gui.widgets.basic import text_label
from app.gui.window import MainWindow
from app.viewmodels.charts.palette import HUES
from tests.vision import VISIONS, contrast, distance, lab, linear, seen

SCHEMES = {"light": LIGHT, "dark": DARK}
LIMITS = {"curves": 10.0, "kernel classes": 7.0, "states": 9.5}
"""CIEDE2000 between any two; kernel classes, which have names too, are more than can be held further apart."""


def side_by_side(colours: Colours) -> dict[str, tuple[str, ...]]:
    """Return the colours of which any two can stand side by side in one picture, by what they are of."""
    return {
        "curves": colours.curves[:HUES],
        "kernel classes": colours.curves,
        "states": (colours.good, colours.warning, colours.bad, colours.muted, colours.accent),
    }


def nearest(colours: tuple[str, ...], vision: str) -> tuple[float, str, str]:
    """Return the least distance between two colours as a vision sees them, and which they are."""
    found = dict(zip(colours, lab(seen(linear(colours), vision)), strict=True))
    return min((float(distance(found[one], found[other])), one, other) for one, other in combinations(found, 2))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_side_by_side_differ(scheme: str, vision: str) -> None:
    for name, colours in side_by_side(SCHEMES[scheme]).items():
        found = nearest(colours, vision)
        assert found[0] >= LIMITS[name], (name, found)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_stand_out_from_their_ground(scheme: str) -> None:
    """By 4.5 where text has them and by 3 elsewhere: WCAG 2.2, 1.4.3 and 1.4.11."""
    colours = SCHEMES[scheme]
    grounds = (colours.surface, colours.window, colours.raised)
    words = (colours.text, colours.muted, colours.good, colours.warning, colours.bad, colours.accent)
    assert min(contrast(word, ground) for word in words for ground in grounds) >= 4.5
    assert min(contrast(ink_on(QColor(curve)).name(), curve) for curve in colours.curves) >= 4.5
    assert contrast(colours.on_accent, colours.accent) >= 4.5
    assert contrast(colours.on_accent, colours.accent_hover) >= 4.5
    assert min(contrast(mark, ground) for mark in (*colours.curves, colours.faint) for ground in grounds[:2]) >= 3.0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, -1.0, 2.0), (50.0, 0.0, 0.0), 2.3669),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0011), 7.2195),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
    ],
)
def test_distances_are_those_of_the_published_pairs(
    one: tuple[float, ...], other: tuple[float, ...], expected: float
) -> None:
    """Sharma, Wu and Dalal (2005), "The CIEDE2000 Color-Difference Formula", Color Research and Application 30(1)."""
    assert float(distance(np.array(one), np.array(other))) == pytest.approx(expected, abs=1e-4)


def test_the_machine_s_state_has_a_shape_for_each_tone(qtbot: QtBot, theme: Theme) -> None:
    window = MainWindow((), theme)
    qtbot.addWidget(window)
    marks = set()
    for tone in ("good", "muted", "warning", "bad"):
        window.show_machine("8× H100", tone)
        (mark,) = [each for each in window.findChildren(QLabel) if each.accessibleName() == "State of telemetry"]
        marks.add(mark.text())
    assert len(marks) == 4


def test_what_is_hidden_takes_its_colours_too(qtbot: QtBot, theme: Theme) -> None:
    front, behind = text_label("front", "problem"), text_label("behind", "problem")
    stack = QStackedWidget()
    qtbot.addWidget(stack)
    for page in (front, behind):
        stack.addWidget(page)
    stack.show()
    qtbot.waitExposed(stack)
    theme.choose(LIGHT_ALWAYS)
    theme.apply_style_sheet(stack)
    theme.choose(DARK_ALWAYS)
    assert behind.isHidden()
    assert [label.palette().windowText().color().name() for label in (front, behind)] == [DARK.bad, DARK.bad]


def test_the_mark_of_a_box_is_dark_in_the_dark_scheme_and_white_in_the_light_one(qtbot: QtBot, theme: Theme) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    theme.apply_style_sheet(around)
    box = QCheckBox(around)
    box.setChecked(True)
    around.show()

    def extremes() -> tuple[int, int]:
        option = QStyleOptionButton()
        box.initStyleOption(option)
        area = box.style().subElementRect(QStyle.SubElement.SE_CheckBoxIndicator, option, box)
        picture = box.grab(area.adjusted(3, 3, -3, -3)).toImage()
        found = [picture.pixelColor(x, y).lightness() for x in range(picture.width()) for y in range(picture.height())]
        return min(found), max(found)

    theme.choose(DARK_ALWAYS)
    assert extremes()[0] < 80
    theme.choose(LIGHT_ALWAYS)
    assert extremes()[1] > 220
