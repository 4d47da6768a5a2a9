"""Points of a chart coloured and shaped by the value of one parameter, with a legend, where variants are too many."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.analysis.effects import explained_share
from app.viewmodels.charts.model import Plot, Point, PointChart, PointSeries
from app.viewmodels.charts.palette import HUES
from app.viewmodels.format.naming import differing_parameters, format_setting
from workloads.protocol import RunSpec

Specs = Mapping[int, RunSpec]
"""The specs of the runs, by number."""


def colour_choices(chart: PointChart, specs: Specs) -> tuple[str, ...]:
    """Return the parameters that a chart's points can be coloured by: those with as many values as there are hues.

    The workload is one of them where the points of one plot are of several.
    """
    shown = [specs[point.runs[0]] for plot in chart.plots for point in _points(plot)]
    mixed = any(len({specs[point.runs[0]].workload for point in _points(plot)}) > 1 for plot in chart.plots)
    names = (name for name in differing_parameters(shown) if mixed or name != "workload")
    return tuple(name for name in names if 1 < len({_value(spec, name) for spec in shown}) <= HUES)


def default_colouring(chart: PointChart, specs: Specs) -> str:
    """Return the parameter that explains most of how points differ, "" where each can have a hue of its own.

    What a parameter explains is its adjusted share of the variance of the logarithms, over both axes. One that some
    points do not have is left to the user.
    """
    points = [point for plot in chart.plots for point in _points(plot) if point.y is not None]
    names = [n for n in colour_choices(chart, specs) if all(_has(specs[point.runs[0]], n) for point in points)]
    if len(points) <= HUES or not names:
        return ""

    def explained(name: str) -> float:
        values = [_value(specs[point.runs[0]], name) for point in points]
        axes = ([point.x for point in points], [point.y or 0.0 for point in points])
        return sum(explained_share(np.log(axis), values) for axis in axes)

    return max(names, key=explained)


def colour_automatically(chart: PointChart, specs: Specs) -> PointChart:
    """Return a chart with each of its plots coloured by the parameter that explains most in it, where there is one.

    It has its colour choices too.

    Args:
        chart: A chart of points that no line joins.
        specs: The specs of the runs.
    """
    alone = (replace(chart, plots=(plot,)) for plot in chart.plots)
    coloured = (colour_by(each, default_colouring(each, specs), specs) for each in alone)
    plots = tuple(plot for each in coloured for plot in each.plots)
    return replace(chart, plots=plots, colour_choices=colour_choices(chart, specs))


def colour_by(chart: PointChart, parameter: str, specs: Specs) -> PointChart:
    """Return a chart whose points have a colour and a shape by the value of a parameter.

    A plot in which no point has another value than the others stays as it is.

    Args:
        chart: A chart of points that no line joins.
        parameter: The parameter; "" leaves every variant its own colour.
        specs: The specs of the runs.
    """
    if not parameter:
        return chart
    values = [_value(specs[point.runs[0]], parameter) for plot in chart.plots for point in _points(plot)]
    order = list(dict.fromkeys(values))
    plots = (
        replace(plot, series=tuple(_series(plot, parameter, order, specs)))
        if len({_value(specs[point.runs[0]], parameter) for point in _points(plot)}) > 1
        else plot
        for plot in chart.plots
    )
    return replace(chart, plots=tuple(plots))


def _series(plot: Plot, parameter: str, order: Sequence[object], specs: Specs) -> list[PointSeries]:
    found = []
    for place, value in enumerate(order):
        points = tuple(point for point in _points(plot) if _value(specs[point.runs[0]], parameter) == value)
        if points:
            spec = specs[points[0].runs[0]]
            label = format_setting(spec, parameter) if _has(spec, parameter) else "not set"
            found.append(PointSeries(label=label, colour=place, shape=place, points=points, joined=False))
    return found


def _points(plot: Plot) -> list[Point]:
    return [point for series in plot.series for point in series.points]


def _has(spec: RunSpec, name: str) -> bool:
    return name == "workload" or name in spec.variant


def _value(spec: RunSpec, name: str) -> object:
    return spec.workload if name == "workload" else spec.variant.get(name)
