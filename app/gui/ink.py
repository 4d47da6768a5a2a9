"""The ink of the window's pictures: the colours in force."""

from app.gui.theme import Colours
from app.report.pictures.ink import Ink


def ink_of(colours: Colours) -> Ink:
    """Pictures on the surface of a screen."""
    return Ink(text=colours.text, muted=colours.muted, line=colours.line, paper=colours.surface, curves=colours.curves)
