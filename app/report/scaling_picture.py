"""How steps scale, drawn as SVG: a step's parts as stacked bars, and throughput against GPUs beside the ideal line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from app.viewmodels import units
from app.viewmodels.scaling import Bar, Point, ScalingView

WIDTH, HEIGHT = 880, 200
_PARTS = (("computing", "compute_ms"), ("communicating alone", "communication_ms"), ("no kernel", "idle_ms"))
_LEFT, _TOP, _BAR_ROOM, _BAR_HEIGHT, _ROW = 150, 44, 300, 26, 52
_PLOT_X, _PLOT_Y, _PLOT_W, _PLOT_H = 640, 30, 210, 130


@dataclass(frozen=True, slots=True)
class Ink:
    """The colours of a picture: words, faint lines, the paper, and one for each part of a step."""

    text: str = "#1f2328"
    muted: str = "#59636e"
    line: str = "#d0d7de"
    parts: tuple[str, str, str] = ("#0072b2", "#d55e00", "#b9c0c8")


def picture(view: ScalingView, ink: Ink | None = None) -> str:
    """The picture of one pair, `WIDTH` by `HEIGHT`, without a background."""
    used = ink or Ink()
    body = "".join((*_bars(view.bars, used), *_legend(used), *_plot(view.points, view.unit, used)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="13">{body}</svg>'
    )


def _bars(bars: Sequence[Bar], ink: Ink) -> Iterator[str]:
    yield _text(0, 18, "One step on a GPU", ink.muted)
    scale = _BAR_ROOM / max(bar.step_ms for bar in bars)
    for number, bar in enumerate(bars):
        y = _TOP + number * _ROW
        yield _text(0, y + 18, bar.label, ink.text)
        x = float(_LEFT)
        lengths = [getattr(bar.parts, name) for _, name in _PARTS] if bar.parts else [0.0, 0.0, bar.step_ms]
        for length, colour in zip(lengths, ink.parts, strict=True):
            yield f'<rect x="{x:.1f}" y="{y}" width="{length * scale:.1f}" height="{_BAR_HEIGHT}" fill="{colour}"/>'
            x += length * scale
        yield _text(x + 8, y + 18, units.milliseconds(bar.step_ms), ink.text)


def _legend(ink: Ink) -> Iterator[str]:
    x = _LEFT
    for (name, _), colour in zip(_PARTS, ink.parts, strict=True):
        yield f'<rect x="{x}" y="{HEIGHT - 39}" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 18, HEIGHT - 28, name, ink.muted)
        x += 36 + 7 * len(name)


def _plot(points: Sequence[Point], unit: str, ink: Ink) -> Iterator[str]:
    """From no GPU and nothing, so that lengths compare."""
    most_gpus, most = max(point.gpus for point in points), max(max(point.ideal, point.throughput) for point in points)

    def at(gpus: float, value: float) -> tuple[float, float]:
        return _PLOT_X + _PLOT_W * gpus / most_gpus, _PLOT_Y + _PLOT_H * (1 - value / most)

    yield _text(_PLOT_X, 18, f"{unit}, and the ideal line", ink.muted)
    corner, right, top = at(0, 0), at(most_gpus, 0), at(0, most)
    yield _line(corner, right, ink.line) + _line(corner, top, ink.line)
    yield _line(corner, at(most_gpus, most), ink.muted, dash="4 4")
    for point in points:
        x, y = at(point.gpus, point.throughput)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{ink.parts[0]}"/>'
        yield _text(
            x - 8, y + 18, units.number(point.throughput), ink.text, anchor="end" if point.gpus > 1 else "start"
        )
        yield _text(x, _PLOT_Y + _PLOT_H + 18, f"{point.gpus} {units.plural('GPU', point.gpus)}", ink.muted, "middle")


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {ends} stroke="{colour}"{dashes}/>'


def _text(x: float, y: float, words: str, colour: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'
