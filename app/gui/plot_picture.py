"""Plots of the window as pictures: vectors of what they show now, not of the pixels they painted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QWidget

from app.gui.axes import TimeAxis
from app.gui.ink import ink_of
from app.gui.saving import offer_to_save
from app.gui.theme import Theme
from app.report.pictures.curves import draw_curves
from app.report.pictures.drawing import Drawing
from app.viewmodels import ticks
from app.viewmodels.looks import dash_of
from app.viewmodels.pictures.curves import CurvePlot, DrawnCurve, within
from app.viewmodels.pictures.values import Axis
from app.viewmodels.plotted import Band
from app.viewmodels.series import CurveSource

_COLUMNS = 1000
_X_TICKS, _Y_TICKS = 8, 4


def plot_of(
    head: tuple[str, str],
    span: tuple[float, float],
    scaled: tuple[float, float],
    axis: TimeAxis,
    curves: Sequence[DrawnCurve],
    bands: Sequence[Band],
) -> CurvePlot:
    """A panel with its title and unit, the stretch of its axis that is in view, and the range of its values."""
    values = [value for value, _ in ticks.linear(*span, _X_TICKS)]
    words = axis.tickStrings(values, 1.0, values[1] - values[0] if len(values) > 1 else 1.0)
    return CurvePlot(
        title=head[0],
        x=Axis(title="", low=span[0], high=span[1], ticks=tuple(zip(values, words, strict=True))),
        y=Axis(title=head[1], low=scaled[0], high=scaled[1], ticks=tuple(ticks.linear(*scaled, _Y_TICKS))),
        curves=tuple(within(curve, *span) for curve in curves),
        bands=tuple(bands),
    )


def drawn_curve(source: CurveSource, span: tuple[float, float], label: str, look: int) -> DrawnCurve:
    """A curve over a stretch of its axis; where only ranges are known of older parts, a stroke from end to end."""
    x, low, high = source.window(*span, _COLUMNS)
    if low is not high:
        x, low = np.repeat(x, 2), np.stack([low, high], axis=1).ravel()
    return DrawnCurve(label=label, colour=look, x=x, y=low, dash=dash_of(look))


@dataclass(frozen=True, slots=True)
class PlotsPicture:
    """Plots one below the other, in the theme's colours."""

    plots: tuple[CurvePlot, ...]
    theme: Theme
    width: float

    def drawing(self) -> Drawing:
        """Named after its first plots."""
        name = ", ".join(plot.title for plot in self.plots if plot.title)
        return draw_curves(self.plots, ink_of(self.theme.colours), self.width, name)

    def paper(self) -> str:
        """The colour behind the plots."""
        return self.theme.colours.surface


def offer_plot(parent: QWidget, contents: Callable[[], CurvePlot], theme: Theme, where: QPoint) -> None:
    """A menu at a place of the screen that saves a plot as wide as it is."""
    offer_to_save(parent, lambda: PlotsPicture((contents(),), theme, parent.width()), where)
