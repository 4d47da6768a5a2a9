"""Colours of charts and pages, and the colour and dash pattern of each compared run.

Hues after Okabe and Ito (2008), "Color Universal Design", shifted until they also differ for dichromats and contrast
with their background; `tests/gui/test_colours.py` has the limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest

import numpy as np

from app.analysis.effects import explained_share
from app.values.records import RunRow
from app.viewmodels.charts.model import Plot, Point, PointChart, PointSeries
from app.viewmodels.format.naming import differing_parameters, format_setting
from workloads.catalog import own_variant
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours of a chart, in any form that SVG takes.

    Runs, variants and GPUs use the first `HUES` of `curves`; classes of kernels use all of them.
    """

    text: str
    muted: str
    line: str
    surface: str
    warning: str
    curves: tuple[str, ...]

    def curve(self, index: int) -> str:
        return self.curves[index % HUES]

    def kernel_class(self, index: int) -> str:
        return self.curves[index]


# fmt: off
LIGHT = Palette(
    text="#1a1d21",
    muted="#5b636d",
    line="#d9dce0",
    surface="#ffffff",
    warning="#925f02",
    curves=("#025d99", "#da6e1b", "#0c8f65", "#b85f91", "#8f5f00", "#0d90df", "#514800", "#52555d",
            "#6856cf", "#890e3e", "#14777c"),
)
DARK = Palette(
    text="#e8eaed",
    muted="#a0a8b2",
    line="#33383f",
    surface="#1d2024",
    warning="#eeb94e",
    curves=("#3194dc", "#dc7943", "#15bd88", "#cd87b0", "#eba926", "#9fd8fe", "#f3ec5a", "#b6c1bd",
            "#b5a4fd", "#df496a", "#2ad1d3"),
)
# fmt: on
HUES = 8
PAGE = Palette(
    text="var(--text)",
    muted="var(--muted)",
    line="var(--line)",
    surface="var(--surface)",
    warning="var(--warning)",
    curves=tuple(f"var(--curve{index})" for index in range(len(LIGHT.curves))),
)
"""The colours of an HTML page, light or dark as its reader chooses."""


def css_variables(palette: Palette) -> str:
    """Return the CSS declarations that give the variables of `PAGE` these colours."""
    colours = {name: value for name, value in asdict(palette).items() if name != "curves"}
    curves = {f"curve{index}": colour for index, colour in enumerate(palette.curves)}
    return "".join(f"--{name}:{colour};" for name, colour in {**colours, **curves}.items())


DASHES: tuple[tuple[int, ...], ...] = ((), (9, 5), (2, 4), (12, 4, 2, 4), (4, 10), (16, 3), (12, 3, 2, 3, 2, 3))
"""Pixels drawn and skipped in turn, the first solid. A style is a hue's index plus `HUES` times a dash's index."""

MAX_COMPARED = 750
"""Largest number of runs in one comparison: three of each of 250 variants."""

MAX_DRAWN = 20
"""Largest number of runs with curves in one plot; more cannot be distinguished."""


def interleave_variants(groups: Sequence[Sequence[RunRow]]) -> list[RunRow]:
    """Return all runs: each variant's first run, then each one's second, and so on."""
    return [row for turn in zip_longest(*groups) for row in turn if row is not None]


def curve_styles(groups: Sequence[Sequence[RunRow]]) -> dict[int, int]:
    """Return the style of each run by its number; no two drawn runs have the same.

    Runs of one variant share a hue and differ in their dashes. If there are too few dashes, or only one variant, each
    run has its own hue as long as there are any.
    """
    rows = interleave_variants(groups)
    variant_index = {row.run: n for n, group in enumerate(groups) for row in group}
    uses = [0] * HUES
    by_variant: dict[int, int] = {}
    for row in rows:
        hue = variant_index[row.run] % HUES
        by_variant[row.run] = hue + HUES * uses[hue]
        uses[hue] += 1
    drawn = {by_variant[row.run] // HUES for row in rows[:MAX_DRAWN]}
    if len(groups) > 1 and max(drawn) < len(DASHES):
        return by_variant
    return {row.run: n for n, row in enumerate(rows)}


def dash_pattern(style: int) -> tuple[int, ...]:
    """Return the pixels that a style draws and skips in turn; empty for a solid line."""
    return DASHES[style // HUES % len(DASHES)]


Specs = Mapping[int, RunSpec]
"""The specs of the runs, by number."""


def colour_choices(chart: PointChart, specs: Specs) -> tuple[str, ...]:
    """Return the parameters that a chart's points can be coloured by: those with as many values as there are hues.

    The workload is one of them if the points of one plot belong to several.
    """
    point_specs = [specs[point.runs[0]] for plot in chart.plots for point in _points(plot)]
    mixed = any(len({specs[point.runs[0]].workload for point in _points(plot)}) > 1 for plot in chart.plots)
    names = (name for name in differing_parameters(point_specs) if mixed or name != "workload")
    return tuple(name for name in names if 1 < len({_value(spec, name) for spec in point_specs}) <= HUES)


def default_colouring(chart: PointChart, specs: Specs) -> str:
    """Return the parameter that explains most of the points' differences; "" if each can have its own hue.

    What a parameter explains is its adjusted share of the variance of the logarithms, over both axes. A parameter that
    some points lack is left to the user.
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
    """Return a chart with its colour choices, and each plot coloured by the parameter that explains most, if any."""
    alone = (replace(chart, plots=(plot,)) for plot in chart.plots)
    coloured = (colour_by(plot_chart, default_colouring(plot_chart, specs), specs) for plot_chart in alone)
    plots = tuple(plot for plot_chart in coloured for plot in plot_chart.plots)
    return replace(chart, plots=plots)


def colour_by(chart: PointChart, parameter: str, specs: Specs) -> PointChart:
    """Return a chart whose points have a colour and a shape by the value of a parameter.

    A plot whose points all have the same value does not change.

    No line joins them. With "" every variant keeps its own colour.
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
    series = []
    for index, value in enumerate(order):
        points = tuple(point for point in _points(plot) if _value(specs[point.runs[0]], parameter) == value)
        if points:
            spec = specs[points[0].runs[0]]
            label = format_setting(spec, parameter) if _has(spec, parameter) else "not set"
            series.append(PointSeries(label=label, colour=index, shape=index, points=points, joined=False))
    return series


def _points(plot: Plot) -> list[Point]:
    return [point for series in plot.series for point in series.points]


def _has(spec: RunSpec, name: str) -> bool:
    return name == "workload" or name in own_variant(spec)


def _value(spec: RunSpec, name: str) -> object:
    return spec.workload if name == "workload" else spec.variant.get(name)
