"""A report as one HTML file."""

from collections.abc import Iterator, Sequence

from app.report.contents import ALL_PAIRS, Contents, Repeat, Section, Table
from app.report.markup import escaped
from app.report.page import page, table
from app.report.pictures.curves import draw_curves
from app.report.pictures.draw import WIDTH, draw
from app.report.pictures.drawing import Drawing
from app.report.pictures.ink import PAGE
from app.report.scaling_pages import scaling_html

_FEW = 12
"""Rows that are shown at once."""


def html_report(contents: Contents) -> str:
    """The file; every text in it is escaped, whatever the database holds."""
    return page(contents.title, "\n".join(filter(None, _parts(contents))))


def _parts(contents: Contents) -> Iterator[str]:
    yield f"<h1>{escaped(contents.title)}</h1>"
    yield _quiet(contents.shared) + _quiet(contents.made)
    yield f'<p class="verdict">{escaped(contents.verdict)}</p>' + _quiet(f"{contents.method}.")
    yield _doubts(contents)
    yield from map(section_html, contents.article)
    first, *more = contents.figures
    yield "<h2>Figures</h2>" + _table(first) + _quiet(" ".join(contents.notes))
    yield from (_folded(", ".join(piece.head[1:]), _table(piece), len(piece.rows)) for piece in more)
    yield "<h2>Pictures</h2>"
    yield from (_figure(draw(picture, PAGE)) for picture in contents.gallery.pictures)
    yield "".join(_quiet(f"No picture “{silent.title}”: {silent.why}") for silent in contents.gallery.silences)
    if contents.scaling:
        yield "<h2>Where scaling is lost</h2>"
        yield _quiet(ALL_PAIRS) + _table(contents.pairs) if contents.pairs.rows else ""
        yield from map(scaling_html, contents.scaling)
    if contents.curves:
        yield "<h2>Over time</h2>" + _quiet("Time zero is the start of the measured part.")
        yield _figure(draw_curves(contents.curves, PAGE, WIDTH, "Curves of the runs over time"))
    yield "<h2>What ran</h2>" + _long(contents.evidence, "variants")
    yield "<h2>Environment</h2>" + _environment(contents)
    yield "<h2>How to repeat it</h2>" + _repeats(contents.repeats)
    yield "<h2>Runs</h2>" + _long(contents.runs, "runs")


def section_html(section: Section) -> str:
    """Its tables, each with its caption above, and what the article says below them."""
    tables = "".join(_quiet(f"{caption}:") + _table(shown) for caption, shown in section.tables)
    return f"<h2>{escaped(section.title)}</h2>{tables}" + "".join(map(_quiet, section.lines))


def _doubts(contents: Contents) -> str:
    items = [
        f'<li class="{"warning" if doubt.severity == "warning" else "quiet"}">'
        f"{'▲ ' if doubt.severity == 'warning' else ''}{escaped(doubt.sentence)}</li>"
        for doubt in contents.doubts
    ]
    return f"<h2>Reasons to doubt it</h2><ul>{''.join(items)}</ul>" if items else ""


def _environment(contents: Contents) -> str:
    differing = "<h3>Not the same for all runs</h3>" + _table(contents.differing) if contents.differing.rows else ""
    return differing + "<h3>The same for all runs</h3>" + _table(contents.common)


def _repeats(repeats: Sequence[Repeat]) -> str:
    commands = (f"<h3>{escaped(each.name)}</h3><pre>{escaped(each.command)}</pre>" for each in repeats)
    return _folded(f"The commands of {len(repeats)} variants", "".join(commands), len(repeats))


def _long(shown: Table, rows: str) -> str:
    return _folded(f"The table of {len(shown.rows)} {rows}", _table(shown), len(shown.rows))


def _folded(title: str, html: str, rows: int) -> str:
    """What few would read to its end is folded up; a click unfolds it, and paper shows it."""
    return html if rows <= _FEW else f"<details><summary>{escaped(title)}</summary>{html}</details>"


def _quiet(words: str) -> str:
    return f'<p class="quiet">{escaped(words)}</p>' if words else ""


def _figure(drawing: Drawing) -> str:
    return f"<figure>{drawing.svg()}</figure>"


def _table(shown: Table) -> str:
    return table(shown.head, shown.rows, shown.numeric, shown.colours) if shown.rows else _quiet("Nothing is known.")
