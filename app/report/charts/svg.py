"""SVG elements as text, using only what both Qt and browsers draw; text is escaped for SVG and HTML."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def replace_invalid_xml(words: str) -> str:
    """The words with U+FFFD for every character that XML cannot hold.

    XML 1.0, production 2 (Char): https://www.w3.org/TR/xml/#charsets
    """
    return _NOT_XML.sub("\ufffd", words)


def escape_xml(words: str) -> str:
    """The words between tags or in an attribute's quotes, made `plain`."""
    return escape(replace_invalid_xml(words), quote=True)


Anchor = Literal["start", "middle", "end"]
TEXT_PX = 12.0
_CAP = 3.5
_BOLDER = 1.15

_NARROW = frozenset("ijl.,:;|!'()[] ·-")
_WIDE = frozenset("mwMW@%×→")


def text_width(words: str, size: float = TEXT_PX) -> float:
    """About how wide words will be; no font is asked, so that pictures are the same everywhere."""
    return size * sum(0.36 if c in _NARROW else 0.92 if c in _WIDE else 0.7 if c.isupper() else 0.64 for c in words)


def elide(words: str, width: float, size: float = TEXT_PX, *, bold: bool = False) -> str:
    """The words, without their middle where they would be wider."""
    width /= _BOLDER if bold else 1
    if text_width(words, size) <= width:
        return words
    length = len(words)
    while length > 2 and text_width(_without_middle(words, length), size) > width:
        length -= 1
    return _without_middle(words, length)


def _without_middle(words: str, length: int) -> str:
    return f"{words[: (length + 1) // 2].rstrip()}…{words[len(words) - length // 2 :].lstrip()}"


def wrap(words: str, width: float) -> list[str]:
    """The words in lines that are about as wide at most."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, TEXT_PX) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def text(
    x: float,
    y: float,
    words: str,
    colour: str,
    anchor: Anchor = "start",
    size: float = TEXT_PX,
    *,
    bold: bool = False,
) -> str:
    """Words whose foot is at `y`."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size:g}"{weight}>'
        f"{escape_xml(words)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, dash: str = "") -> str:
    """A straight line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"{dashes}/>'


def polyline(points: Iterable[tuple[float, float]], colour: str, width: float = 1.5, dash: str = "") -> str:
    """A line through several points."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{coordinates}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
        f'stroke-linejoin="round"{dashes}/>'
    )


def rectangle(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> str:
    """A filled rectangle."""
    faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{faint}/>'


def circle(x: float, y: float, radius: float, fill: str, stroke: str) -> str:
    """A disc with a rim."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="2"/>'


def cross(x: float, y: float, reach: float, colour: str) -> str:
    """An ✕ as two lines, whatever fonts there are."""
    return line(x - reach, y - reach, x + reach, y + reach, colour, 2) + line(
        x - reach, y + reach, x + reach, y - reach, colour, 2
    )


def whisker(ends: tuple[float, float], across: float, colour: str, *, upright: bool, width: float = 1) -> str:
    """An interval with a cap at either end; `across` is where it stands on the other axis."""
    low, high = ends
    first, last = across - _CAP, across + _CAP
    if upright:
        stem = line(across, low, across, high, colour, width)
        return stem + "".join(line(first, end, last, end, colour, width) for end in ends)
    stem = line(low, across, high, across, colour, width)
    return stem + "".join(line(end, first, end, last, colour, width) for end in ends)


def with_tooltip(marks: str, words: str) -> str:
    """Marks that say something when the pointer rests on them, in a browser too."""
    return f"<g><title>{escape_xml(words)}</title>{marks}</g>"


def document(width: float, height: float, parts: Sequence[str], name: str, background: str = "") -> str:
    """One whole picture; without `paper` what is behind shows through."""
    ground = rectangle(0, 0, width, height, background) if background else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape_xml(name)}" font-family="sans-serif">'
        f"{ground}{''.join(parts)}</svg>"
    )
