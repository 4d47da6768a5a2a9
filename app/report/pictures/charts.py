"""Plots of points and lines, drawn: intervals, names beside them, what has no result in a line above."""

from collections import Counter
from collections.abc import Iterator, Sequence

from app.report.pictures import labels, svg
from app.report.pictures.drawing import Sheet
from app.report.pictures.frame import BELOW, Frame, draw_frame, numbers_width
from app.viewmodels.pictures.values import Chart, ChartPicture, Guide, Point, Series

_HEIGHT = 230.0
_HEAD = 30.0
_LANE = 18.0
_CROSSES = 9.0
_BETWEEN = 24.0
_SMALL_PX = 11.0
_RADIUS = 4.0
_REACH = 9.0
_WHISKER = 3.0
_BESIDE = 26.0
"""Room at the right of a frame for half of its last number."""
_POINT_NAME, _NAME_SHARE = 300.0, 0.35
_LABEL_SHARE = 0.4
"""Of a plot's width that the names of its lines take at most."""
_AFTER_LINE = 14.0


def draw_charts(picture: ChartPicture, sheet: Sheet) -> None:
    """One plot over the whole width, several in two columns where the names of lines have room in these."""
    half = (sheet.width - _BETWEEN) / 2
    columns = 2 if len(picture.charts) > 1 and _longest(picture.charts) <= _LABEL_SHARE * half else 1
    width = half if columns == 2 else sheet.width
    top = sheet.height
    for first in range(0, len(picture.charts), columns):
        row = picture.charts[first : first + columns]
        above = _HEAD + _LANE * max(len(_lanes(chart)) for chart in row) + (15 if any(c.title for c in row) else 0)
        room = (top + above, top + above + max(map(_height, row)))
        for place, chart in enumerate(row):
            _draw(chart, sheet, place * (width + _BETWEEN), top, room, width)
        top = room[1] + BELOW
    sheet.height = top


def _longest(charts: Sequence[Chart]) -> float:
    """The width of the longest name of a line."""
    names = (series.label for chart in charts for series in chart.series if series.joined)
    return max(map(svg.text_width, names), default=0.0)


def _height(chart: Chart) -> float:
    """Of the frame: every line has its name beside it."""
    return max(_HEIGHT, labels.HEIGHT * sum(series.joined for series in chart.series))


def _draw(chart: Chart, sheet: Sheet, left: float, top: float, room: tuple[float, float], width: float) -> None:
    """A plot whose frame reaches from the first height of `room` to the second."""
    ends = min(_longest([chart]), _LABEL_SHARE * width)
    lanes = _lanes(chart)
    frame = Frame(
        left=left + numbers_width(chart.y),
        top=room[0],
        right=left + width - (ends + _AFTER_LINE if ends else _BESIDE),
        bottom=room[1],
        x=chart.x,
        y=chart.y,
    )
    if chart.title:
        title = svg.elided(chart.title, width - 8, bold=True)
        sheet.parts.append(svg.text(left + 4, top + 16, title, sheet.ink.text, bold=True))
    unit_at = top + (31 if chart.title else 16)
    sheet.parts.append(svg.text(left + 4, unit_at, chart.y.title, sheet.ink.muted, size=_SMALL_PX))
    draw_frame(frame, sheet)
    taken = _draw_guides(chart.guides, frame, sheet)
    _draw_lanes(lanes, chart, frame, sheet)
    for series in chart.series:
        _draw_series(series, frame, sheet)
    _name_lines(chart, ends, frame, sheet)
    _name_points(chart, taken, frame, sheet)


def _lanes(chart: Chart) -> list[str]:
    """What runs without a result came to, each kind once."""
    return list(dict.fromkeys(p.outcome for series in chart.series for p in series.points if p.y is None))


def _draw_guides(guides: Sequence[Guide], frame: Frame, sheet: Sheet) -> list[labels.Box]:
    """Each line, and its name over its end, no two names over one another; where the names stand."""
    for guide in guides:
        colour = sheet.ink.muted if guide.colour is None else sheet.ink.curve(guide.colour)
        places = [(frame.at_x(x), frame.at_y(y)) for x, y in guide.points]
        sheet.parts.append(svg.polyline(places, colour, 1, "5 4" if guide.dashed else ""))
    named = [guide for guide in guides if guide.label]
    wanted = [frame.at_y(guide.points[-1][1]) - 6 for guide in named]
    boxes = []
    for guide, height in zip(named, labels.spread(wanted, frame.top, frame.bottom), strict=True):
        end, length = frame.at_x(guide.points[-1][0]) - 4, svg.text_width(guide.label, _SMALL_PX)
        sheet.parts.append(svg.text(end, height, guide.label, sheet.ink.muted, "end", _SMALL_PX))
        boxes.append((end - length, height - labels.HEIGHT + 3, length, labels.HEIGHT))
    return boxes


def _draw_lanes(lanes: list[str], chart: Chart, frame: Frame, sheet: Sheet) -> None:
    """An ✕ for every variant without a result, above its place; several at one place stand side by side."""
    for number, outcome in enumerate(lanes):
        row = frame.top - _LANE * (len(lanes) - number) + 4
        missing = [(series, point) for series, point in _each(chart) if point.y is None and point.outcome == outcome]
        at_one_place = Counter(point.x for _, point in missing)
        seen: Counter[float] = Counter()
        columns = []
        for series, point in missing:
            columns.append(frame.at_x(point.x) + _CROSSES * (seen[point.x] - (at_one_place[point.x] - 1) / 2))
            seen[point.x] += 1
            marks = svg.cross(columns[-1], row, 3, sheet.ink.curve(series.colour))
            sheet.mark(marks, _around(columns[-1], row, _CROSSES / 2), point)
        sheet.parts.append(svg.text(min(columns) - 12, row + 4, outcome, sheet.ink.muted, "end", _SMALL_PX))


def _each(chart: Chart) -> Iterator[tuple[Series, Point]]:
    return ((series, point) for series in chart.series for point in series.points)


def _draw_series(series: Series, frame: Frame, sheet: Sheet) -> None:
    colour = sheet.ink.curve(series.colour)
    known = [(point, frame.at_x(point.x), frame.at_y(point.y)) for point in series.points if point.y is not None]
    if series.joined and len(known) > 1:
        sheet.parts.append(svg.polyline([(x, y) for _, x, y in known], colour))
    for point, x, y in known:
        fill = colour if point.mark == "full" else sheet.ink.paper
        marks = _whiskers(point, x, y, frame, colour) + svg.circle(x, y, _RADIUS, fill, colour)
        sheet.mark(marks, _around(x, y), point)


def _whiskers(point: Point, x: float, y: float, frame: Frame, colour: str) -> str:
    upright, across = _ends(point, frame)
    marks = svg.whisker(upright, x, colour, upright=True) if upright else ""
    return marks + (svg.whisker(across, y, colour, upright=False) if across else "")


def _ends(point: Point, frame: Frame) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Where its whiskers end, the upright one and the one across; an interval from two runs may reach beyond any axis.

    The lower end of a value is the larger height.
    """
    upright = across = None
    if point.low is not None and point.high is not None:
        upright = frame.at_y(max(point.low, frame.y.low)), frame.at_y(min(point.high, frame.y.high))
    if point.x_low is not None and point.x_high is not None:
        across = frame.at_x(max(point.x_low, frame.x.low)), frame.at_x(min(point.x_high, frame.x.high))
    return upright, across


def _whisker_boxes(point: Point, x: float, y: float, frame: Frame) -> Iterator[labels.Box]:
    """What its whiskers cover, so that no name stands there."""
    upright, across = _ends(point, frame)
    if upright:
        yield x - _WHISKER, upright[1], 2 * _WHISKER, upright[0] - upright[1]
    if across:
        yield across[0], y - _WHISKER, across[1] - across[0], 2 * _WHISKER


def _around(x: float, y: float, across: float = _REACH) -> tuple[float, float, float, float]:
    return x - across, y - _REACH, 2 * across, 2 * _REACH


def _name_lines(chart: Chart, longest: float, frame: Frame, sheet: Sheet) -> None:
    """At the right end of the plot, at the height of the line's last point."""
    ended = [
        (series, frame.at_y(known[-1]))
        for series in chart.series
        if series.joined and (known := [point.y for point in series.points if point.y is not None])
    ]
    heights = labels.spread([height for _, height in ended], frame.top, frame.bottom)
    for (series, _), height in zip(ended, heights, strict=True):
        words = svg.elided(series.label, longest)
        sheet.parts.append(svg.text(frame.right + 6, height + 4, words, sheet.ink.curve(series.colour)))


def _name_points(chart: Chart, taken: Sequence[labels.Box], frame: Frame, sheet: Sheet) -> None:
    """Beside each point of what is not joined, as far as there is room; the rest tell their name when pointed at."""
    longest = max(_POINT_NAME, _NAME_SHARE * (frame.right - frame.left))
    free = [(series, point, point.y) for series, point in _each(chart) if not series.joined and point.y is not None]
    places = [(frame.at_x(point.x), frame.at_y(y)) for _, point, y in free]
    names = [svg.elided(point.label, longest, _SMALL_PX) for _, point, _ in free]
    inside = (frame.left, frame.top - 6, frame.right - frame.left + _BESIDE, frame.bottom - frame.top + 6)
    whiskers = [
        box for (_, point, _), place in zip(free, places, strict=True) for box in _whisker_boxes(point, *place, frame)
    ]
    important = [point.mark == "full" for _, point, _ in free]
    boxes = labels.beside(places, names, _SMALL_PX, inside, important, taken, whiskers)
    for (series, _, _), name, box in zip(free, names, boxes, strict=True):
        if box is not None:
            sheet.parts.append(svg.text(box[0], box[1] + 11, name, sheet.ink.curve(series.colour), size=_SMALL_PX))
