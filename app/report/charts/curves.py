"""Stacked panels of curves over one axis, with shaded phases and one legend."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.report.charts import svg
from app.report.charts.canvas import Canvas, Drawing, PlotFrame, draw_frame, tick_labels_width
from app.viewmodels.charts.palette import Palette
from app.viewmodels.plot.model import CurvePlot, DrawnCurve

_HEIGHT, _HEAD, _FOOT = 110.0, 26.0, 22.0
_LEGEND_LINE, _DASH = 18.0, 16.0
_SMALL_PX = 11.0
_LINE, _DOT, _MARK_RADIUS = 1.2, 0.5, 6.5
_SHADE, _STRONG_SHADE = 0.04, 0.08


def draw_curves(plots: Sequence[CurvePlot], palette: Palette, width: float, name: str) -> Drawing:
    """Draw panels below each other, with frames of equal width. `name` is the accessible name."""
    canvas = Canvas(palette, width)
    _draw_legend(plots, canvas)
    left = max(tick_labels_width(plot.y) for plot in plots)
    for plot in plots:
        top = canvas.height + _HEAD
        frame = PlotFrame(left=left, top=top, right=width - 12, bottom=top + _HEIGHT, x=plot.x, y=plot.y)
        title = svg.text(4, canvas.height + 15, plot.title, palette.text, bold=True)
        unit_x = 14 + svg.text_width(plot.title) * 1.08
        canvas.parts += [title, svg.text(unit_x, canvas.height + 15, plot.y.title, palette.muted, size=_SMALL_PX)]
        _draw_bands(plot, frame, canvas)
        draw_frame(frame, canvas)
        for curve in plot.curves:
            canvas.parts += [_stroke(piece, curve, palette) for piece in _pieces(curve, frame)]
        canvas.parts += _marks(plot.curves, frame, palette)
        canvas.height = frame.bottom + _FOOT
    return canvas.finish(name)


@dataclass(frozen=True, slots=True)
class _LegendEntry:
    label: str
    colour: int
    dash: tuple[int, ...]


def _draw_legend(plots: Sequence[CurvePlot], canvas: Canvas) -> None:
    """Draw a dash and a name for each curve, once for all panels, in as many lines as needed."""
    entries = dict.fromkeys(
        _LegendEntry(_name(curve), curve.colour, curve.dash) for plot in plots for curve in plot.curves if curve.label
    )
    x, y = 4.0, 14.0
    for entry in entries:
        name = svg.elide(entry.label, canvas.width - _DASH - 12)
        length = _DASH + 6 + svg.text_width(name) + 14
        if x > 4 and x + length > canvas.width:
            x, y = 4.0, y + _LEGEND_LINE
        dash = " ".join(map(str, entry.dash))
        canvas.parts.append(svg.line(x, y - 4, x + _DASH, y - 4, canvas.palette.curve(entry.colour), 2, dash))
        canvas.parts.append(svg.text(x + _DASH + 6, y, name, canvas.palette.muted))
        x += length
    canvas.height = y + 8 if entries else 0.0


def _draw_bands(plot: CurvePlot, frame: PlotFrame, canvas: Canvas) -> None:
    for band in plot.bands:
        start, end = max(band.start, plot.x.low), min(band.end, plot.x.high)
        if start >= end:
            continue
        left, right = frame.x_pixel(start), frame.x_pixel(end)
        shade = _STRONG_SHADE if band.strong else _SHADE
        colour = canvas.palette.curve(0) if band.strong else canvas.palette.text
        canvas.parts.append(svg.rectangle(left, frame.top, right - left, frame.bottom - frame.top, colour, shade))
        if svg.text_width(band.name, 10) + 6 < right - left:
            canvas.parts.append(svg.text(left + 4, frame.top + 11, band.name, canvas.palette.muted, size=10))


def _name(curve: DrawnCurve) -> str:
    """Return the name of a curve after its mark, unless the name contains it: `B NCHW`, `GPU 0`."""
    return curve.label if not curve.mark or curve.mark in curve.label.split() else f"{curve.mark} {curve.label}"


def _marks(curves: Sequence[DrawnCurve], frame: PlotFrame, palette: Palette) -> list[str]:
    parts: list[str] = []
    marked = [curve for curve in curves if curve.mark and np.isfinite(curve.y).any()]
    for number, curve in enumerate(marked):
        share = (number + 0.5) / len(marked)
        is_finite = np.isfinite(curve.y)
        at = frame.x.low + share * (frame.x.high - frame.x.low)
        at = min(max(at, float(curve.x[is_finite][0])), float(curve.x[is_finite][-1]))
        value = float(np.interp(at, curve.x[is_finite], curve.y[is_finite]))
        x, y = frame.x_pixel(at), frame.y_pixel(min(max(value, frame.y.low), frame.y.high))
        colour = palette.curve(curve.colour)
        parts.append(svg.circle(x, y, _MARK_RADIUS, colour, palette.surface))
        parts.append(svg.text(x, y + 3, curve.mark, palette.surface, size=9, anchor="middle", bold=True))
    return parts


def _stroke(piece: Sequence[tuple[float, float]], curve: DrawnCurve, palette: Palette) -> str:
    """Return a line, or a dot for a single point, whose line would be invisible."""
    if len(piece) == 1:
        return svg.circle(*piece[0], _DOT, palette.curve(curve.colour), palette.curve(curve.colour))
    return svg.polyline(piece, palette.curve(curve.colour), _LINE, " ".join(map(str, curve.dash)))


def _pieces(curve: DrawnCurve, frame: PlotFrame) -> Iterator[list[tuple[float, float]]]:
    """Yield the points between gaps, in pixels; values beyond the axis stay at its edge."""
    is_finite = np.isfinite(curve.y)
    borders = np.flatnonzero(np.diff(is_finite.astype(np.int8), prepend=0, append=0))
    for first, last in borders.reshape(-1, 2):
        piece = zip(curve.x[first:last], curve.y[first:last], strict=True)
        yield [
            (frame.x_pixel(float(x)), frame.y_pixel(min(max(float(y), frame.y.low), frame.y.high))) for x, y in piece
        ]
