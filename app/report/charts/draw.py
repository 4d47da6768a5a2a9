"""Charts drawn as SVG: bars, plots and waterfalls."""

from collections import Counter
from collections.abc import Iterator, Sequence

from app.report.charts import labels, svg
from app.report.charts.canvas import AXIS_HEIGHT, Canvas, Drawing, PlotFrame, draw_frame, draw_title, tick_labels_width
from app.viewmodels.charts.model import (
    Bar,
    BarChart,
    Chart,
    Guide,
    Plot,
    Point,
    PointChart,
    PointSeries,
    WaterfallBar,
    WaterfallChart,
)
from app.viewmodels.charts.palette import Palette

_STEP_ROW, _STEP_BAR_HEIGHT = 22.0, 14.0
_STEP_GAP = 14.0
_STEP_NAME_SHARE = 0.3
_COLOURS = {"total": 7, "less": 2, "more": 1}
"""Curve colours of the bars: grey, green and vermilion differ for every kind of colour vision, and in brightness."""
_TOTAL_OPACITY = 0.5
_TEAR, _TEAR_WIDTH = 14.0, 4.0


def draw_waterfall(chart: WaterfallChart, canvas: Canvas) -> None:
    """Draw the rows below the canvas's content, with a thin line between successive bars."""
    names = max(svg.text_width(bar.label) for bar in chart.bars)
    figures = max(svg.text_width(bar.figure) for bar in chart.bars)
    shares = max(svg.text_width(bar.share) for bar in chart.bars)
    left = min(names, _STEP_NAME_SHARE * canvas.width) + _STEP_GAP
    figure_end = canvas.width - (shares + _STEP_GAP if shares else 0)
    right = figure_end - figures - _STEP_GAP
    top = canvas.height
    bottom = top + _STEP_ROW * len(chart.bars)

    def to_x(value: float) -> float:
        clipped = min(max(value, chart.axis.low), chart.axis.high)
        return left + (right - left) * chart.axis.share(clipped)

    for value, label in chart.axis.ticks:
        canvas.parts.append(svg.line(to_x(value), top, to_x(value), bottom, canvas.palette.line))
        canvas.parts.append(svg.text(to_x(value), bottom + 16, label, canvas.palette.muted, "middle", 11))
    for number, bar in enumerate(chart.bars):
        middle = top + _STEP_ROW * (number + 0.5)
        span = (left if bar.role == "total" else to_x(bar.start), to_x(bar.end))
        ends = None if bar.low is None or bar.high is None else (to_x(bar.low), to_x(bar.high))
        marks = svg.text(0, middle + 4, svg.elide(bar.label, left - _STEP_GAP), canvas.palette.text)
        marks += _step_bar_marks(bar, span, ends, middle, canvas)
        if bar.role == "total" and chart.axis.low > 0:
            x, reach = left + _TEAR, _STEP_BAR_HEIGHT / 2 + 1
            marks += svg.line(x - 3, middle + reach, x + 3, middle - reach, canvas.palette.surface, _TEAR_WIDTH)
        marks += svg.text(figure_end, middle + 4, bar.figure, canvas.palette.text, "end")
        marks += svg.text(canvas.width, middle + 4, bar.share, canvas.palette.muted, "end")
        if number + 1 < len(chart.bars):
            down = (middle + _STEP_BAR_HEIGHT / 2, middle + _STEP_ROW - _STEP_BAR_HEIGHT / 2)
            canvas.parts.append(svg.line(to_x(bar.end), down[0], to_x(bar.end), down[1], canvas.palette.muted))
        canvas.add_mark(marks, (0, middle - _STEP_ROW / 2, canvas.width, _STEP_ROW), bar)
    canvas.parts.append(svg.text(figure_end, bottom + 16, chart.axis.title, canvas.palette.muted, "end", 11))
    canvas.height = bottom + 20


def _step_bar_marks(
    bar: WaterfallBar, span: tuple[float, float], ends: tuple[float, float] | None, middle: float, canvas: Canvas
) -> str:
    """Return a bar, at least a pixel wide, with its interval on top."""
    palette = canvas.palette
    begin, end = sorted(span)
    colour = palette.curve(_COLOURS[bar.role])
    opacity = _TOTAL_OPACITY if bar.role == "total" else 1
    marks = svg.rectangle(
        begin, middle - _STEP_BAR_HEIGHT / 2, max(end - begin, 1.0), _STEP_BAR_HEIGHT, colour, opacity
    )
    if ends is not None:
        marks += svg.whisker(ends, middle, palette.surface, upright=False, width=4)  # visible on any bar
        marks += svg.whisker(ends, middle, palette.text, upright=False, width=1.5)
    return marks


_ROW, _BAR_HEIGHT = 26.0, 12.0
_MAX_NAME_SHARE, _GAP = 0.46, 12.0
_BARS_ON_A_SCREEN = 8
"""From this many bars on, the axis's numbers are repeated above them."""


def draw_bars(chart: BarChart, canvas: Canvas) -> None:
    names = max(svg.text_width(bar.label) for bar in chart.bars)
    figures = max((svg.text_width(bar.text) for bar in chart.bars if bar.value is not None), default=0.0)
    left = min(names, _MAX_NAME_SHARE * canvas.width) + _GAP
    right = canvas.width - figures - 2 * _GAP
    ticks = chart.axis.ticks
    top = canvas.height + (18 if len(chart.bars) > _BARS_ON_A_SCREEN else 4)
    bottom = top + _ROW * len(chart.bars)

    def to_x(value: float) -> float:
        return left + (right - left) * chart.axis.share(value)

    if len(chart.bars) > _BARS_ON_A_SCREEN:
        canvas.parts += [svg.text(to_x(v), top - 4, label, canvas.palette.muted, "middle", 11) for v, label in ticks]
    for value, label in ticks:
        canvas.parts.append(svg.line(to_x(value), top, to_x(value), bottom, canvas.palette.line))
        canvas.parts.append(svg.text(to_x(value), bottom + 16, label, canvas.palette.muted, "middle", 11))
    start = to_x(chart.start)
    for number, bar in enumerate(chart.bars):
        middle = top + _ROW * (number + 0.5)
        name = svg.elide(bar.label, left - _GAP)
        marks = svg.text(0, middle + 4, name, canvas.palette.text)
        marks += _bar_marks(bar, start, None if bar.value is None else to_x(bar.value), middle, canvas)
        if bar.value is not None and bar.low is not None and bar.high is not None:
            ends = to_x(max(bar.low, chart.axis.low)), to_x(min(bar.high, chart.axis.high))
            cut = bar.low < chart.axis.low, bar.high > chart.axis.high
            ground = svg.whisker(ends, middle, canvas.palette.surface, upright=False, width=4, cut=cut)
            marks += ground + svg.whisker(ends, middle, canvas.palette.text, upright=False, width=1.5, cut=cut)
        canvas.add_mark(marks, (0, middle - _ROW / 2, canvas.width, _ROW), bar)
    canvas.parts.append(svg.line(start, top, start, bottom, canvas.palette.text))
    canvas.height = bottom + 26


def _bar_marks(bar: Bar, start: float, end: float | None, middle: float, canvas: Canvas) -> str:
    """Return a bar with its text at the right; without a value, the reason next to the line."""
    palette = canvas.palette
    if end is None:
        return svg.text(start + 8, middle + 4, bar.text, palette.muted)
    marks = svg.rectangle(
        min(start, end), middle - _BAR_HEIGHT / 2, abs(end - start), _BAR_HEIGHT, palette.curve(bar.colour)
    )
    return marks + svg.text(canvas.width, middle + 4, bar.text, palette.text, "end")


_HEIGHT, _MAX_HEIGHT, _HEIGHT_SHARE = 230.0, 440.0, 0.34
"""Least and largest height of a frame, and its usual height as a share of the width."""
_HEAD = 30.0
_LANE_HEIGHT = 18.0
_CROSS_SPACING = 9.0
_COLUMN_GAP = 24.0
_SMALL_PX = 11.0
_RADIUS = 4.0
_REACH = 9.0
_WHISKER = 3.0
_RIGHT_MARGIN = 26.0
"""Pixels at the right of a frame for half of its last tick label."""
_POINT_NAME, _NAME_SHARE = 300.0, 0.6
_LABEL_SHARE = 0.4
"""The largest share of a plot's width for its lines' names."""
_AFTER_LINE = 14.0


def draw_plots(point_chart: PointChart, canvas: Canvas) -> None:
    """Draw one plot over the whole width, several in two columns if their lines' names fit."""
    half = (canvas.width - _COLUMN_GAP) / 2
    columns = 2 if len(point_chart.plots) > 1 and _longest_name(point_chart.plots) <= _LABEL_SHARE * half else 1
    width = half if columns == 2 else canvas.width
    top = canvas.height
    for first in range(0, len(point_chart.plots), columns):
        row = point_chart.plots[first : first + columns]
        above = (
            _HEAD
            + _LANE_HEIGHT * max(len(_outcome_lanes(chart)) for chart in row)
            + (15 if any(c.title for c in row) else 0)
        )
        least = _HEIGHT if columns == 2 else max(_HEIGHT, min(_HEIGHT_SHARE * width, _MAX_HEIGHT))
        names = (labels.HEIGHT * sum(series.joined for series in chart.series) for chart in row)
        room = (top + above, top + above + max(least, *names))
        for column, chart in enumerate(row):
            _draw_plot(chart, canvas, column * (width + _COLUMN_GAP), top, room, width)
        top = room[1] + AXIS_HEIGHT
    canvas.height = top


def _longest_name(plots: Sequence[Plot]) -> float:
    names = (series.label for plot in plots for series in plot.series if series.joined)
    return max(map(svg.text_width, names), default=0.0)


def _draw_plot(plot: Plot, canvas: Canvas, left: float, top: float, room: tuple[float, float], width: float) -> None:
    """Draw a plot whose frame extends from the first y of `room` to the second."""
    ends = min(_longest_name([plot]), _LABEL_SHARE * width)
    lanes = _outcome_lanes(plot)
    frame = PlotFrame(
        left=left + tick_labels_width(plot.y),
        top=room[0],
        right=left + width - (ends + _AFTER_LINE if ends else _RIGHT_MARGIN),
        bottom=room[1],
        x=plot.x,
        y=plot.y,
    )
    if plot.title:
        title = svg.elide(plot.title, width, bold=True)
        canvas.parts.append(svg.text(left, top + 16, title, canvas.palette.text, bold=True))
    unit_y = top + (31 if plot.title else 16)
    canvas.parts.append(svg.text(left, unit_y, plot.y.title, canvas.palette.muted, size=_SMALL_PX))
    _draw_legend(plot, left + 8 + svg.text_width(plot.y.title, _SMALL_PX), frame.right, unit_y, canvas)
    draw_frame(frame, canvas)
    obstacles = _draw_guides(plot.guides, frame, canvas)
    _draw_lanes(lanes, plot, frame, canvas)
    for series in plot.series:
        _draw_series(series, frame, canvas)
    _label_lines(plot, ends, frame, canvas)
    _label_points(plot, obstacles, frame, canvas)


def _outcome_lanes(plot: Plot) -> list[str]:
    """Return the outcomes of points without a result, each once."""
    return list(dict.fromkeys(p.outcome for series in plot.series for p in series.points if p.y is None))


def _draw_guides(guides: Sequence[Guide], frame: PlotFrame, canvas: Canvas) -> list[labels.Box]:
    """Draw each line with its name at its end; return the boxes of names and lines, which other names avoid."""
    lines = [[(frame.x_pixel(x), frame.y_pixel(y)) for x, y in guide.points] for guide in guides]
    for guide, line in zip(guides, lines, strict=True):
        colour = canvas.palette.muted if guide.colour is None else canvas.palette.curve(guide.colour)
        canvas.parts.append(svg.polyline(line, colour, 1, "5 4" if guide.dashed else ""))
    named = [(guide.label, line) for guide, line in zip(guides, lines, strict=True) if guide.label]
    widths = [svg.text_width(name, _SMALL_PX) for name, _ in named]
    boxes = labels.name_lines([line for _, line in named], widths, frame.top - labels.HEIGHT, frame.bottom)
    for (name, _), (left, top, width, height) in zip(named, boxes, strict=True):
        baseline = top + height - 3
        canvas.parts.append(svg.text(left + width, baseline, name, canvas.palette.muted, "end", _SMALL_PX))
    return boxes + [box for line in lines for box in labels.boxes_along(line)]


def _draw_lanes(lanes: list[str], plot: Plot, frame: PlotFrame, canvas: Canvas) -> None:
    """Draw an ✕ above the plot for every variant without a result, next to each other if x is the same."""
    for number, outcome in enumerate(lanes):
        row = frame.top - _LANE_HEIGHT * (len(lanes) - number) + 4
        missing = [
            (series, point) for series, point in _all_points(plot) if point.y is None and point.outcome == outcome
        ]
        count_at_x = Counter(point.x for _, point in missing)
        seen: Counter[float] = Counter()
        columns = []
        for series, point in missing:
            columns.append(frame.x_pixel(point.x) + _CROSS_SPACING * (seen[point.x] - (count_at_x[point.x] - 1) / 2))
            seen[point.x] += 1
            marks = svg.cross(columns[-1], row, 3, canvas.palette.curve(series.colour))
            canvas.add_mark(marks, _hit_box(columns[-1], row, _CROSS_SPACING / 2), point)
        canvas.parts.append(svg.text(min(columns) - 12, row + 4, outcome, canvas.palette.muted, "end", _SMALL_PX))


def _all_points(plot: Plot) -> Iterator[tuple[PointSeries, Point]]:
    return ((series, point) for series in plot.series for point in series.points)


def _draw_series(series: PointSeries, frame: PlotFrame, canvas: Canvas) -> None:
    colour = canvas.palette.curve(series.colour)
    pixels = [(point, frame.x_pixel(point.x), frame.y_pixel(point.y)) for point in series.points if point.y is not None]
    if series.joined and len(pixels) > 1:
        canvas.parts.append(svg.polyline([(x, y) for _, x, y in pixels], colour))
    for point, x, y in pixels:
        fill = colour if point.mark == "full" else canvas.palette.surface
        marks = _whiskers(point, x, y, frame, colour) + _shape(x, y, series.shape, fill, colour)
        canvas.add_mark(marks, _hit_box(x, y), point)


_DIAGONAL = _RADIUS * 0.9
_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-_DIAGONAL, -_DIAGONAL), (_DIAGONAL, -_DIAGONAL), (_DIAGONAL, _DIAGONAL), (-_DIAGONAL, _DIAGONAL)),
    ((0, -1.3 * _RADIUS), (1.2 * _RADIUS, _RADIUS), (-1.2 * _RADIUS, _RADIUS)),
    ((0, -1.35 * _RADIUS), (1.35 * _RADIUS, 0), (0, 1.35 * _RADIUS), (-1.35 * _RADIUS, 0)),
    ((0, 1.3 * _RADIUS), (1.2 * _RADIUS, -_RADIUS), (-1.2 * _RADIUS, -_RADIUS)),
)
"""Corners of marks about their centre, in pixels: a circle, square, triangle, diamond and a triangle upside down."""


def _shape(x: float, y: float, shape: int, fill: str, colour: str) -> str:
    """Return a mark at a position, in a shape that distinguishes it without colour."""
    corners = _SHAPES[shape % len(_SHAPES)]
    if not corners:
        return svg.circle(x, y, _RADIUS, fill, colour)
    return svg.polygon([(x + dx, y + dy) for dx, dy in corners], fill, colour)


def _draw_legend(plot: Plot, left: float, right: float, y: float, canvas: Canvas) -> None:
    """Draw mark and name of every named series without a line, from right to left."""
    named = [series for series in plot.series if series.label and not series.joined]
    x = right
    for series in reversed(named):
        x -= svg.text_width(series.label, _SMALL_PX) + 22
        if x < left:
            return
        colour = canvas.palette.curve(series.colour)
        canvas.parts.append(_shape(x, y - 4, series.shape, colour, colour))
        canvas.parts.append(svg.text(x + 9, y, series.label, canvas.palette.text, size=_SMALL_PX))


def _whiskers(point: Point, x: float, y: float, frame: PlotFrame, colour: str) -> str:
    upright, across = _whisker_ends(point, frame)
    marks = svg.whisker(upright, x, colour, upright=True) if upright else ""
    return marks + (svg.whisker(across, y, colour, upright=False) if across else "")


def _whisker_ends(point: Point, frame: PlotFrame) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Return the ends of the vertical and the horizontal whisker in pixels, cut at the axes.

    An interval from two runs may reach beyond any axis. The lower end of a value is the larger y.
    """
    upright = across = None
    if point.low is not None and point.high is not None:
        upright = frame.y_pixel(max(point.low, frame.y.low)), frame.y_pixel(min(point.high, frame.y.high))
    if point.x_low is not None and point.x_high is not None:
        across = frame.x_pixel(max(point.x_low, frame.x.low)), frame.x_pixel(min(point.x_high, frame.x.high))
    return upright, across


def _whisker_boxes(point: Point, x: float, y: float, frame: PlotFrame) -> Iterator[labels.Box]:
    upright, across = _whisker_ends(point, frame)
    if upright:
        yield x - _WHISKER, upright[1], 2 * _WHISKER, upright[0] - upright[1]
    if across:
        yield across[0], y - _WHISKER, across[1] - across[0], 2 * _WHISKER


def _hit_box(x: float, y: float, across: float = _REACH) -> tuple[float, float, float, float]:
    return x - across, y - _REACH, 2 * across, 2 * _REACH


def _label_lines(plot: Plot, longest: float, frame: PlotFrame, canvas: Canvas) -> None:
    """Write the name of each line, after a bar of its colour, at the right end, near the line's last point."""
    ended = [
        (series, frame.y_pixel(values[-1]))
        for series in plot.series
        if series.joined and (values := [point.y for point in series.points if point.y is not None])
    ]
    heights = labels.separate_heights([height for _, height in ended], frame.top, frame.bottom)
    for (series, _), height in zip(ended, heights, strict=True):
        name, colour = svg.elide(series.label, longest), canvas.palette.curve(series.colour)
        canvas.parts.append(svg.rectangle(frame.right + 2, height - 5, 2, 10, colour))
        canvas.parts.append(svg.text(frame.right + 6, height + 4, name, canvas.palette.text))


def _label_points(plot: Plot, obstacles: Sequence[labels.Box], frame: PlotFrame, canvas: Canvas) -> None:
    """Write the names of points in series without a line where there is room; others have a tooltip."""
    longest = max(_POINT_NAME, _NAME_SHARE * (frame.right - frame.left))
    free = [
        (series, point, point.y)
        for series, point in _all_points(plot)
        if point.label and not series.joined and point.y is not None
    ]
    positions = [(frame.x_pixel(point.x), frame.y_pixel(y)) for _, point, y in free]
    names = [svg.elide(point.label, longest, _SMALL_PX) for _, point, _ in free]
    inside = (frame.left, frame.top - 6, frame.right - frame.left + _RIGHT_MARGIN, frame.bottom - frame.top + 6)
    whiskers = [
        box
        for (_, point, _), position in zip(free, positions, strict=True)
        for box in _whisker_boxes(point, *position, frame)
    ]
    important = [point.mark == "full" for _, point, _ in free]
    boxes = labels.place_labels(positions, names, _SMALL_PX, inside, important, obstacles, whiskers)
    for name, box, position in zip(names, boxes, positions, strict=True):
        if box is not None:
            leader = labels.leader_line(position, box)
            canvas.parts += [svg.line(*ends, canvas.palette.muted, 0.8) for ends in ([leader] if leader else [])]
            x, y, colour = box[0], box[1] + 11, canvas.palette.text
            if x + box[2] <= position[0]:  # it ends at its point: a box may be too wide, but not too narrow
                canvas.parts.append(svg.text(x + box[2], y, name, colour, "end", _SMALL_PX))
            else:
                canvas.parts.append(svg.text(x, y, name, colour, size=_SMALL_PX))


WIDTH = 880.0
MIN_WIDTH = 480.0


def draw_chart(chart: Chart, palette: Palette, width: float = WIDTH) -> Drawing:
    """Draw a chart below its title and caption, as high as it needs to be; the width is at least `MIN_WIDTH` pixels."""
    canvas = Canvas(palette, max(width, MIN_WIDTH))
    draw_title(chart, canvas)
    if isinstance(chart, BarChart):
        draw_bars(chart, canvas)
    elif isinstance(chart, WaterfallChart):
        draw_waterfall(chart, canvas)
    else:
        draw_plots(chart, canvas)
    return canvas.finish(chart.title)
