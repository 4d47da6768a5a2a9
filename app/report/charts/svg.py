"""SVG elements as text, using only what both Qt and browsers draw; text is escaped for SVG and HTML.

Lengths and positions are in pixels, colours are any that SVG takes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from typing import Literal

from app.values.plain import BIDI, CONTROL, joined_lines

_NOT_PLAIN = re.compile(f"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[{CONTROL}{BIDI}]")


def replace_invalid_xml(text: str) -> str:
    """Return the text with U+FFFD for control characters, bidirectional controls, and what XML cannot contain.

    XML 1.0, production 2 (Char): https://www.w3.org/TR/xml/#charsets
    """
    return _NOT_PLAIN.sub("\ufffd", text)


def escape_xml(text: str) -> str:
    """Escape text between tags or in an attribute's quotes."""
    return escape(replace_invalid_xml(text), quote=True)


Anchor = Literal["start", "middle", "end"]
TEXT_PX = 12.0
_CAP = 3.5
_BOLDER = 1.15

_NARROW = frozenset("ijl.,:;|!'()[] ·-")
_WIDE = frozenset("mwMW@%×→")


def text_width(label: str, size: float = TEXT_PX) -> float:
    """Estimate the width of text, without a font, so that charts are the same on every machine."""
    return size * sum(map(_letter_width, label))


@cache  # names are measured a dozen times each to see how much fits
def _letter_width(c: str) -> float:
    return 0.36 if c in _NARROW else 0.92 if c in _WIDE else 0.7 if c.isupper() else 0.64


def elide(label: str, width: float, size: float = TEXT_PX, *, bold: bool = False) -> str:
    """Return the text, without its middle if it is wider than `width` pixels."""
    width /= _BOLDER if bold else 1
    if text_width(label, size) <= width:
        return label
    lengths = range(3, len(label) + 1)
    fitting = bisect_right(lengths, width, key=lambda length: text_width(_without_middle(label, length), size))
    return _without_middle(label, min(2 + fitting, len(label)))


def _without_middle(label: str, length: int) -> str:
    return f"{label[: (length + 1) // 2].rstrip()}…{label[len(label) - length // 2 :].lstrip()}"


def wrap(caption: str, width: float) -> list[str]:
    """Break text into lines of at most about `width` pixels."""
    lines = [""]
    for word in joined_lines(caption).split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, TEXT_PX) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def text(
    x: float,
    y: float,
    content: str,
    colour: str,
    anchor: Anchor = "start",
    size: float = TEXT_PX,
    *,
    bold: bool = False,
) -> str:
    """Return a line of text. `y` is its base line, `anchor` the part of it that is at `x`."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size:g}"{weight}>'
        f"{escape_xml(content)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, dash: str = "") -> str:
    """Return a straight line from the first point to the second. `dash` is in SVG's notation: `9 5`."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"{dashes}/>'


def polyline(points: Iterable[tuple[float, float]], colour: str, width: float = 1.5, dash: str = "") -> str:
    """Return a line through several points; `dash` is in SVG's notation: `9 5`."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{coordinates}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
        f'stroke-linejoin="round"{dashes}/>'
    )


def rectangle(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> str:
    """Return a filled rectangle; `x` and `y` are its upper left corner."""
    faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{faint}/>'


def circle(x: float, y: float, radius: float, fill: str, stroke: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="2"/>'


def polygon(points: Iterable[tuple[float, float]], fill: str, stroke: str) -> str:
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{corners}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'


def cross(x: float, y: float, reach: float, colour: str) -> str:
    """Return an ✕ as two lines, because a font may lack the character; `reach` is half its width."""
    return line(x - reach, y - reach, x + reach, y + reach, colour, 2) + line(
        x - reach, y + reach, x + reach, y - reach, colour, 2
    )


def whisker(
    ends: tuple[float, float],
    across: float,
    colour: str,
    *,
    upright: bool,
    width: float = 1,
    cut: tuple[bool, bool] = (False, False),
) -> str:
    """Return an interval with a cap at each end.

    Its `ends` are on its own axis, `across` is its position on the other one. A `cut` end becomes an arrow, because the
    interval continues.
    """
    low, high = ends
    first, last = across - _CAP, across + _CAP
    if upright:
        stem = line(across, low, across, high, colour, width)
        return stem + "".join(line(first, end, last, end, colour, width) for end in ends)
    marks = line(low, across, high, across, colour, width)
    for end, inward, is_cut in zip(ends, (_CAP, -_CAP), cut, strict=True):
        back = end + inward
        if is_cut:
            marks += line(back, first, end, across, colour, width) + line(end, across, back, last, colour, width)
        else:
            marks += line(end, first, end, last, colour, width)
    return marks


def with_tooltip(marks: str, tooltip: str) -> str:
    """Group marks under a tooltip, which browsers also show."""
    return f"<g><title>{escape_xml(tooltip)}</title>{marks}</g>"


def document(width: float, height: float, parts: Sequence[str], name: str, background: str = "") -> str:
    """Return a complete SVG document. `name` is its accessible name; without a `background` it is transparent."""
    ground = rectangle(0, 0, width, height, background) if background else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape_xml(name)}" font-family="system-ui,sans-serif">'
        f"{ground}{''.join(parts)}</svg>"
    )
