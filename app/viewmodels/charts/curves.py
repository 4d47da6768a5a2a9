"""Time series charts of stored runs: one panel of curves, clipped and decimated for drawing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.analysis.align import decimate
from app.records import Floats
from app.viewmodels.charts import model
from app.viewmodels.charts.model import Axis
from app.viewmodels.plot.model import Band, Panel

_TIME_TICKS = 8
_BUCKETS = 300
"""Points that a curve is reduced to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCurve:
    """One curve in its panel's unit, NaN for gaps; `dash` is pixels drawn and skipped in turn, empty if solid.

    `mark` stands along it, and tells it from others without its colour.
    """

    label: str
    colour: int
    x: Floats
    y: Floats
    dash: tuple[int, ...] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """One panel; `bands` are shaded and named ranges of its axis."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[DrawnCurve, ...]
    bands: tuple[Band, ...] = ()


def stored_plot(
    panel: Panel,
    span: tuple[float, float],
    names: Mapping[str, str],
    dashes: Sequence[tuple[int, ...]],
    bands: Sequence[Band] = (),
) -> CurvePlot | None:
    """Return a panel of stored runs over a range of time; None if no curve has a value there.

    `names` has a label by the key of each curve, `dashes` a pattern for each in turn.
    """
    curves = [
        clip_curve(DrawnCurve(label=names[curve.key], colour=curve.colour, x=curve.x, y=curve.y, dash=dash), *span)
        for curve, dash in zip(panel.curves, dashes, strict=True)
    ]
    tops = [float(np.nanmax(curve.y)) for curve in curves if np.isfinite(curve.y).any()]
    if not tops:
        return None
    low, high = panel.y_range or (0.0, max(tops) * 1.05 or 1.0)
    return CurvePlot(
        title=panel.title,
        x=time_axis(*span),
        y=Axis(title=panel.unit, low=low, high=high, ticks=tuple(model.linear_ticks(low, high, 4))),
        curves=tuple(curves),
        bands=tuple(bands),
    )


def time_axis(start: float, end: float) -> Axis:
    """Return an axis of seconds, labelled as minutes and seconds."""
    values = [value for value, _ in model.linear_ticks(start, end, _TIME_TICKS)]
    spacing = values[1] - values[0] if len(values) > 1 else end - start
    labels = model.time_labels(values, spacing)
    return Axis(title="", low=start, high=end, ticks=tuple(zip(values, labels, strict=True)))


def clip_curve(curve: DrawnCurve, start: float, end: float) -> DrawnCurve:
    """Return the part of a curve between two x values, with no more points than a chart can show."""
    inside = (curve.x >= start) & (curve.x <= end)
    x, y = decimate(curve.x[inside], curve.y[inside], _BUCKETS)
    return replace(curve, x=x, y=y)
