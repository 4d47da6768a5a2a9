"""Panels of curves over one axis, drawn one below the other: phases shaded, one key for all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.report.pictures import svg
from app.report.pictures.drawing import Drawing, Sheet
from app.report.pictures.frame import Frame, draw_frame, numbers_width
from app.report.pictures.ink import Ink
from app.viewmodels.pictures.curves import CurvePlot, DrawnCurve

_HEIGHT, _HEAD, _FOOT = 110.0, 26.0, 22.0
_KEY_LINE, _DASH = 18.0, 16.0
_SMALL_PX = 11.0
_LINE, _DOT = 1.2, 0.5
_SHADE, _STRONG_SHADE = 0.04, 0.08


def draw_curves(plots: Sequence[CurvePlot], ink: Ink, width: float, name: str) -> Drawing:
    """All panels on axes of one width."""
    sheet = Sheet(ink, width)
    _draw_key(plots, sheet)
    left = max(numbers_width(plot.y) for plot in plots)
    for plot in plots:
        top = sheet.height + _HEAD
        frame = Frame(left=left, top=top, right=width - 12, bottom=top + _HEIGHT, x=plot.x, y=plot.y)
        title = svg.text(4, sheet.height + 15, plot.title, ink.text, bold=True)
        beside = 14 + svg.text_width(plot.title) * 1.08
        sheet.parts += [title, svg.text(beside, sheet.height + 15, plot.y.title, ink.muted, size=_SMALL_PX)]
        _draw_bands(plot, frame, sheet)
        draw_frame(frame, sheet)
        for curve in plot.curves:
            sheet.parts += [_stroke(piece, curve, ink) for piece in _pieces(curve, frame)]
        sheet.height = frame.bottom + _FOOT
    return sheet.finished(name)


@dataclass(frozen=True, slots=True)
class _Entry:
    label: str
    colour: int
    dash: tuple[int, ...]


def _draw_key(plots: Sequence[CurvePlot], sheet: Sheet) -> None:
    """A dash and a name for each curve, once for all panels, in as many lines as that takes."""
    entries = dict.fromkeys(
        _Entry(curve.label, curve.colour, curve.dash) for plot in plots for curve in plot.curves if curve.label
    )
    x, y = 4.0, 14.0
    for entry in entries:
        name = svg.elided(entry.label, sheet.width - _DASH - 12)
        length = _DASH + 6 + svg.text_width(name) + 14
        if x > 4 and x + length > sheet.width:
            x, y = 4.0, y + _KEY_LINE
        dash = " ".join(map(str, entry.dash))
        sheet.parts.append(svg.line(x, y - 4, x + _DASH, y - 4, sheet.ink.curve(entry.colour), 2, dash))
        sheet.parts.append(svg.text(x + _DASH + 6, y, name, sheet.ink.muted))
        x += length
    sheet.height = y + 8 if entries else 0.0


def _draw_bands(plot: CurvePlot, frame: Frame, sheet: Sheet) -> None:
    for band in plot.bands:
        start, end = max(band.start, plot.x.low), min(band.end, plot.x.high)
        if start >= end:
            continue
        left, right = frame.at_x(start), frame.at_x(end)
        shade = _STRONG_SHADE if band.strong else _SHADE
        colour = sheet.ink.curve(0) if band.strong else sheet.ink.text
        sheet.parts.append(svg.rectangle(left, frame.top, right - left, frame.bottom - frame.top, colour, shade))
        if svg.text_width(band.name, 10) + 6 < right - left:
            sheet.parts.append(svg.text(left + 4, frame.top + 11, band.name, sheet.ink.muted, size=10))


def _stroke(piece: Sequence[tuple[float, float]], curve: DrawnCurve, ink: Ink) -> str:
    """A line, or a dot where there is a single point: a line through it alone is not seen."""
    if len(piece) == 1:
        return svg.circle(*piece[0], _DOT, ink.curve(curve.colour), ink.curve(curve.colour))
    return svg.polyline(piece, ink.curve(curve.colour), _LINE, " ".join(map(str, curve.dash)))


def _pieces(curve: DrawnCurve, frame: Frame) -> Iterator[list[tuple[float, float]]]:
    """The stretches between gaps, in pixels; what is above or below the axis stays at its edge."""
    there = np.isfinite(curve.y)
    borders = np.flatnonzero(np.diff(there.astype(np.int8), prepend=0, append=0))
    for first, last in borders.reshape(-1, 2):
        piece = zip(curve.x[first:last], curve.y[first:last], strict=True)
        yield [(frame.at_x(float(x)), frame.at_y(min(max(float(y), frame.y.low), frame.y.high))) for x, y in piece]
