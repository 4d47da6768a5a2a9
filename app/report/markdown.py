"""A report as Markdown, with its pictures as SVG files beside it."""

from collections.abc import Iterator, Mapping, Sequence

from app.report import marked
from app.report.contents import ALL_PAIRS, Contents, Section, Table
from app.report.marked import Marked, code, literal
from app.report.pictures.curves import draw_curves
from app.report.pictures.draw import WIDTH, draw
from app.report.pictures.ink import LIGHT
from app.report.scaling_pages import scaling_files, scaling_markdown


def markdown_report(contents: Contents, stem: str) -> Marked:
    """The report; `stem` begins the names of its pictures' files."""
    drawings = {f"{stem}-{picture.key}.svg": draw(picture, LIGHT) for picture in contents.gallery.pictures}
    if contents.curves:
        drawings[f"{stem}-over-time.svg"] = draw_curves(contents.curves, LIGHT, WIDTH, "Curves of the runs over time")
    names = {file: drawing.name for file, drawing in drawings.items()}
    scaling = scaling_files(contents.scaling, stem)
    text = "\n\n".join(filter(None, _parts(contents, names, tuple(scaling))))
    pictures = {file: drawing.svg(LIGHT.paper) for file, drawing in drawings.items()}
    return Marked(text + "\n", {**pictures, **scaling})


def _parts(contents: Contents, pictures: Mapping[str, str], scaling: Sequence[str]) -> Iterator[str]:
    yield f"# {literal(contents.title)}"
    yield literal(contents.shared)
    yield literal(contents.made)
    yield f"> {literal(contents.verdict)}"
    yield f"{literal(contents.method)}."
    if contents.doubts:
        yield "## Reasons to doubt it"
        yield "\n".join(
            f"- {'▲ ' if doubt.severity == 'warning' else ''}{literal(doubt.sentence)}" for doubt in contents.doubts
        )
    for section in contents.article:
        yield from _section(section)
    yield "## Figures"
    yield from map(_table, contents.figures)
    yield literal(" ".join(contents.notes))
    yield "## Pictures"
    yield from (marked.picture(name, file) for file, name in pictures.items())
    yield from (f"No picture “{literal(each.title)}”: {literal(each.why)}" for each in contents.gallery.silences)
    if contents.scaling:
        yield "## Where scaling is lost"
        if contents.pairs.rows:
            yield ALL_PAIRS
            yield _table(contents.pairs)
        yield from map(scaling_markdown, contents.scaling, scaling)
    yield "## What ran"
    yield _table(contents.evidence)
    yield "## Environment"
    if contents.differing.rows:
        yield "Not the same for all runs:"
        yield _table(contents.differing)
    yield "The same for all runs:"
    yield _table(contents.common)
    yield "## How to repeat it"
    for repeat in contents.repeats:
        yield f"{literal(repeat.name)}:"
        yield code(repeat.command)
    yield "## Runs"
    yield _table(contents.runs)


def _section(section: Section) -> Iterator[str]:
    yield f"## {literal(section.title)}"
    for caption, shown in section.tables:
        yield f"{literal(caption)}:"
        yield _table(shown)
    yield "\n".join(f"- {literal(line)}" for line in section.lines)


def _table(shown: Table) -> str:
    return marked.table(shown.head, shown.rows, shown.numeric) if shown.rows else "Nothing is known."
