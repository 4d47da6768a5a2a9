"""How steps scale, drawn as SVG: a step's parts as stacked bars, and throughput against GPUs beside the ideal line."""

from collections.abc import Iterator, Sequence

from app.report.pictures import svg
from app.report.pictures.drawing import Drawing
from app.report.pictures.ink import Ink
from app.viewmodels import units
from app.viewmodels.naming import gpus_words
from app.viewmodels.scaling import Bar, Point, ScalingView

WIDTH, HEIGHT = 880, 200
_PARTS = (("computing", "compute_ms"), ("communicating alone", "communication_ms"), ("no kernel", "idle_ms"))
_LEFT, _TOP, _BAR_ROOM, _BAR_HEIGHT, _ROW = 150, 44, 300, 26, 52
_TEXT_PX = 13.0
_PLOT_X, _PLOT_Y, _PLOT_W, _PLOT_H = 640, 30, 210, 130


def picture(view: ScalingView, ink: Ink) -> Drawing:
    """The picture of one pair, `WIDTH` by `HEIGHT`."""
    parts = (*_bars(view.bars, ink), *_legend(ink), *_plot(view.points, view.unit, ink))
    return Drawing(name=f"{view.title}: {view.efficiency}", width=WIDTH, height=HEIGHT, parts=parts)


def _colours(ink: Ink) -> tuple[str, ...]:
    """Of the parts of a step; where nothing runs it is grey."""
    return ink.curve(0), ink.curve(1), ink.curve(-1)


def _bars(bars: Sequence[Bar], ink: Ink) -> Iterator[str]:
    yield _text(0, 18, "One step on a GPU", ink.muted)
    scale = _BAR_ROOM / max(bar.step_ms for bar in bars)
    for number, bar in enumerate(bars):
        y = _TOP + number * _ROW
        yield _text(0, y + 18, bar.label, ink.text)
        x = float(_LEFT)
        lengths = [getattr(bar.parts, name) for _, name in _PARTS] if bar.parts else [0.0, 0.0, bar.step_ms]
        for length, colour in zip(lengths, _colours(ink), strict=True):
            yield svg.rectangle(x, y, length * scale, _BAR_HEIGHT, colour)
            x += length * scale
        yield _text(x + 8, y + 18, units.milliseconds(bar.step_ms), ink.text)


def _legend(ink: Ink) -> Iterator[str]:
    x = _LEFT
    for (name, _), colour in zip(_PARTS, _colours(ink), strict=True):
        yield svg.rectangle(x, HEIGHT - 39, 12, 12, colour)
        yield _text(x + 18, HEIGHT - 28, name, ink.muted)
        x += 36 + 7 * len(name)


def _plot(points: Sequence[Point], unit: str, ink: Ink) -> Iterator[str]:
    """From no GPU and nothing, so that lengths compare."""
    most_gpus, most = max(point.gpus for point in points), max(max(point.ideal, point.throughput) for point in points)

    def at(gpus: float, value: float) -> tuple[float, float]:
        return _PLOT_X + _PLOT_W * gpus / most_gpus, _PLOT_Y + _PLOT_H * (1 - value / most)

    yield _text(_PLOT_X, 18, f"{unit}, and the ideal line", ink.muted)
    corner, right, top = at(0, 0), at(most_gpus, 0), at(0, most)
    yield svg.line(*corner, *right, ink.line) + svg.line(*corner, *top, ink.line)
    yield svg.line(*corner, *at(most_gpus, most), ink.muted, dash="4 4")
    for point in points:
        x, y = at(point.gpus, point.throughput)
        yield svg.circle(x, y, 3.5, ink.curve(0), ink.curve(0))
        yield _text(x - 8, y + 18, units.number(point.throughput), ink.text, "end" if point.gpus > 1 else "start")
        yield _text(x, _PLOT_Y + _PLOT_H + 18, gpus_words(point.gpus), ink.muted, "middle")


def _text(x: float, y: float, words: str, colour: str, anchor: svg.Anchor = "start") -> str:
    return svg.text(x, y, words, colour, anchor, _TEXT_PX)
