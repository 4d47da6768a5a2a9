"""Waterfall charts drawn as SVG: from one total to another, part by part."""

from app.report.charts import svg
from app.report.charts.canvas import Canvas
from app.viewmodels.charts.model import WaterfallBar, WaterfallChart

_ROW, _BAR_HEIGHT = 28.0, 16.0
_LEFT, _GAP = 4.0, 14.0
_MAX_NAME_SHARE = 0.3
_COLOURS = {"total": 7, "less": 2, "more": 1}
"""Curve colours of the bars: grey, green and vermilion differ for every kind of colour vision, and in brightness."""
_TOTAL_OPACITY = 0.5
_TEAR, _TEAR_WIDTH = 14.0, 4.0


def draw_waterfall(chart: WaterfallChart, canvas: Canvas) -> None:
    """Draw the rows below what is on the canvas, each bar joined to the next by a thin line."""
    names = max(svg.text_width(bar.label) for bar in chart.bars)
    figures, shares = (max(svg.text_width(text) for text in column) for column in _text_columns(chart))
    left = _LEFT + min(names, _MAX_NAME_SHARE * canvas.width) + _GAP
    share_end = canvas.width - _LEFT
    figure_end = share_end - (shares + _GAP if shares else 0)
    right = figure_end - figures - _GAP
    top = canvas.height + 6
    bottom = top + _ROW * len(chart.bars)

    def to_x(value: float) -> float:
        clipped = min(max(value, chart.axis.low), chart.axis.high)
        return left + (right - left) * chart.axis.share(clipped)

    for value, label in chart.axis.ticks:
        canvas.parts.append(svg.line(to_x(value), top, to_x(value), bottom, canvas.palette.line))
        canvas.parts.append(svg.text(to_x(value), bottom + 16, label, canvas.palette.muted, "middle", 11))
    for number, bar in enumerate(chart.bars):
        middle = top + _ROW * (number + 0.5)
        span = (left if bar.role == "total" else to_x(bar.start), to_x(bar.end))
        ends = None if bar.low is None or bar.high is None else (to_x(bar.low), to_x(bar.high))
        is_torn = bar.role == "total" and chart.axis.low > 0
        marks = svg.text(_LEFT, middle + 4, svg.elide(bar.label, left - _GAP - _LEFT), canvas.palette.text)
        marks += _bar_marks(bar, span, ends, middle, canvas) + (_tear(left + _TEAR, middle, canvas) if is_torn else "")
        marks += svg.text(figure_end, middle + 4, bar.figure, canvas.palette.text, "end")
        marks += svg.text(share_end, middle + 4, bar.share, canvas.palette.muted, "end")
        if number + 1 < len(chart.bars):
            down = (middle + _BAR_HEIGHT / 2, middle + _ROW - _BAR_HEIGHT / 2)
            canvas.parts.append(svg.line(to_x(bar.end), down[0], to_x(bar.end), down[1], canvas.palette.muted))
        canvas.add_mark(marks, (0, middle - _ROW / 2, canvas.width, _ROW), bar)
    canvas.parts.append(svg.text((left + right) / 2, bottom + 32, chart.axis.title, canvas.palette.muted, "middle", 11))
    canvas.height = bottom + 42


def _text_columns(chart: WaterfallChart) -> tuple[list[str], list[str]]:
    return [bar.figure for bar in chart.bars], [bar.share for bar in chart.bars]


def _bar_marks(
    bar: WaterfallBar, span: tuple[float, float], ends: tuple[float, float] | None, middle: float, canvas: Canvas
) -> str:
    """Return a bar, at least a pixel wide, with its interval on top."""
    palette = canvas.palette
    begin, end = sorted(span)
    colour = palette.curve(_COLOURS[bar.role])
    opacity = _TOTAL_OPACITY if bar.role == "total" else 1
    marks = svg.rectangle(begin, middle - _BAR_HEIGHT / 2, max(end - begin, 1.0), _BAR_HEIGHT, colour, opacity)
    if ends is not None:
        marks += svg.whisker(ends, middle, palette.surface, upright=False, width=4)  # seen on any bar
        marks += svg.whisker(ends, middle, palette.text, upright=False, width=1.5)
    return marks


def _tear(x: float, middle: float, canvas: Canvas) -> str:
    """Return a slanted gap that shows that a bar is cut off."""
    reach = _BAR_HEIGHT / 2 + 1
    return svg.line(x - 3, middle + reach, x + 3, middle - reach, canvas.palette.surface, _TEAR_WIDTH)
