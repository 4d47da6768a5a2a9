"""Bars with intervals, drawn: names on the left, figures on the right, a line where the bars begin."""

from app.report.pictures import svg
from app.report.pictures.drawing import Sheet
from app.viewmodels.pictures.values import Bar, BarPicture

_ROW, _THICK = 26.0, 12.0
_MOST_NAME, _GAP = 0.46, 12.0
_LEFT = 4.0


def draw_bars(picture: BarPicture, sheet: Sheet) -> None:
    """Below what is on the sheet already."""
    names = max(svg.text_width(bar.label) for bar in picture.bars)
    figures = max(svg.text_width(bar.text) for bar in picture.bars if bar.value is not None)
    left = _LEFT + min(names, _MOST_NAME * sheet.width) + _GAP
    right = sheet.width - figures - 2 * _GAP
    top = sheet.height + 4
    bottom = top + _ROW * len(picture.bars)

    def across(value: float) -> float:
        return left + (right - left) * picture.axis.share(value)

    for value, words in picture.axis.ticks:
        sheet.parts.append(svg.line(across(value), top, across(value), bottom, sheet.ink.line))
        sheet.parts.append(svg.text(across(value), bottom + 16, words, sheet.ink.muted, "middle", 11))
    start = across(picture.start)
    for number, bar in enumerate(picture.bars):
        middle = top + _ROW * (number + 0.5)
        name = svg.elided(bar.label, left - _GAP - _LEFT)
        marks = svg.text(_LEFT, middle + 4, name, sheet.ink.text)
        ends = None if bar.low is None or bar.high is None else (across(bar.low), across(bar.high))
        marks += _row(bar, start, None if bar.value is None else across(bar.value), ends, middle, sheet)
        sheet.mark(marks, (0, middle - _ROW / 2, sheet.width, _ROW), bar)
    sheet.parts.append(svg.line(start, top, start, bottom, sheet.ink.text))
    sheet.height = bottom + 26


def _row(
    bar: Bar, start: float, end: float | None, ends: tuple[float, float] | None, middle: float, sheet: Sheet
) -> str:
    """The bar, its interval over it, and its figures at the right; without a value the reason beside the line."""
    ink = sheet.ink
    if end is None:
        return svg.text(start + 8, middle + 4, bar.text, ink.muted)
    marks = svg.rectangle(min(start, end), middle - _THICK / 2, abs(end - start), _THICK, ink.curve(bar.colour))
    if ends is not None:
        marks += svg.whisker(ends, middle, ink.paper, upright=False, width=4)  # seen on any bar
        marks += svg.whisker(ends, middle, ink.text, upright=False, width=1.5)
    return marks + svg.text(sheet.width - _LEFT, middle + 4, bar.text, ink.text, "end")
