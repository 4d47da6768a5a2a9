"""A report model rendered as HTML or Markdown with its charts, and written to files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from app.errors import write_error
from app.records import StoredRun
from app.report import markup
from app.report.charts.canvas import LIGHT, PAGE, Drawing
from app.report.charts.curves import draw_curves
from app.report.charts.draw import WIDTH, draw_chart
from app.report.charts.svg import escape_xml
from app.report.markup import RenderedPage, escape_markdown, html_page, html_table, markdown_code
from app.report.model import ALL_PAIRS, ArticleSection, ReportModel, RerunCommand, TextTable, build_report
from app.report.scaling import scaling_files, scaling_html, scaling_markdown
from app.viewmodels.compare.comparison import ComparedRuns
from workloads.catalog import UsageError

REPORT_SUFFIXES = (".html", ".md")


def check_suffix(path: Path) -> None:
    """Raises `UsageError` for a file that no report is written to."""
    if path.suffix.lower() not in REPORT_SUFFIXES:
        raise UsageError(f"--report takes a file that ends in {' or '.join(REPORT_SUFFIXES)}.")


def check_writable(path: Path) -> None:
    """Raises `UsageError` for a file that no report could be written to, for who writes it only after long runs."""
    check_suffix(path)
    if not path.parent.is_dir():
        raise UsageError(f"--report takes a file in a folder that is there; {path.parent} is none.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--report takes a file that can be written; {path} cannot.")


def write_page(path: Path, page: RenderedPage) -> None:
    """Write a page and what lies beside it; raises `UserError` where that cannot be."""
    for target, text in {path: page.text, **{path.with_name(n): t for n, t in page.files.items()}}.items():
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise write_error(target, error) from error


_MAX_VISIBLE_ROWS = 12
"""Rows that are shown at once."""


def html_report(contents: ReportModel) -> str:
    """The file; every text in it is escaped, whatever the database holds."""
    return html_page(contents.title, "\n".join(filter(None, _report_html(contents))))


def _report_html(contents: ReportModel) -> Iterator[str]:
    yield f"<h1>{escape_xml(contents.title)}</h1>"
    yield _muted(contents.shared) + _muted(contents.made)
    yield f'<p class="verdict">{escape_xml(contents.verdict)}</p>' + _muted(f"{contents.method}.")
    yield _warnings(contents)
    yield from map(section_html, contents.article)
    first, *more = contents.figures
    yield "<h2>Figures</h2>" + _table_html(first) + _muted(" ".join(contents.notes))
    yield from (_collapsible(", ".join(piece.head[1:]), _table_html(piece), len(piece.rows)) for piece in more)
    yield "<h2>Pictures</h2>"
    yield from (_figure(draw_chart(chart, PAGE)) for chart in contents.gallery.charts)
    yield "".join(_muted(f"No picture “{missing.title}”: {missing.why}") for missing in contents.gallery.no_data)
    if contents.scaling:
        yield "<h2>Where scaling is lost</h2>"
        yield _muted(ALL_PAIRS) + _table_html(contents.pairs) if contents.pairs.rows else ""
        yield from map(scaling_html, contents.scaling)
    if contents.curves:
        yield "<h2>Over time</h2>" + _muted("Time zero is the start of the measured part.")
        yield _figure(draw_curves(contents.curves, PAGE, WIDTH, "Curves of the runs over time"))
    yield "<h2>What ran</h2>" + _long_table(contents.evidence, "variants")
    yield "<h2>Environment</h2>" + _environment(contents)
    yield "<h2>How to repeat it</h2>" + _rerun_commands(contents.reruns)
    yield "<h2>Runs</h2>" + _long_table(contents.runs, "runs")


def section_html(section: ArticleSection) -> str:
    """Its tables, each with its caption above, and what the article says below them."""
    tables = "".join(_muted(f"{caption}:") + _table_html(shown) for caption, shown in section.tables)
    return f"<h2>{escape_xml(section.title)}</h2>{tables}" + "".join(map(_muted, section.lines))


def _warnings(contents: ReportModel) -> str:
    items = [
        f'<li class="{"warning" if warning.severity == "warning" else "quiet"}">'
        f"{'▲ ' if warning.severity == 'warning' else ''}{escape_xml(warning.sentence)}</li>"
        for warning in contents.warnings
    ]
    return f"<h2>Reasons to doubt it</h2><ul>{''.join(items)}</ul>" if items else ""


def _environment(contents: ReportModel) -> str:
    differing = (
        "<h3>Not the same for all runs</h3>" + _table_html(contents.differing) if contents.differing.rows else ""
    )
    return differing + "<h3>The same for all runs</h3>" + _table_html(contents.common)


def _rerun_commands(reruns: Sequence[RerunCommand]) -> str:
    commands = (f"<h3>{escape_xml(each.name)}</h3><pre>{escape_xml(each.command)}</pre>" for each in reruns)
    return _collapsible(f"The commands of {len(reruns)} variants", "".join(commands), len(reruns))


def _long_table(shown: TextTable, rows: str) -> str:
    return _collapsible(f"The table of {len(shown.rows)} {rows}", _table_html(shown), len(shown.rows))


def _collapsible(title: str, html: str, rows: int) -> str:
    """What few would read to its end is folded up; a click unfolds it, and paper shows it."""
    return html if rows <= _MAX_VISIBLE_ROWS else f"<details><summary>{escape_xml(title)}</summary>{html}</details>"


def _muted(words: str) -> str:
    return f'<p class="quiet">{escape_xml(words)}</p>' if words else ""


def _figure(drawing: Drawing) -> str:
    return f"<figure>{drawing.svg()}</figure>"


def _table_html(shown: TextTable) -> str:
    return (
        html_table(shown.head, shown.rows, shown.numeric, shown.colours) if shown.rows else _muted("Nothing is known.")
    )


def markdown_report(contents: ReportModel, stem: str) -> RenderedPage:
    """The report; `stem` begins the names of its pictures' files."""
    drawings = {f"{stem}-{chart.key}.svg": draw_chart(chart, LIGHT) for chart in contents.gallery.charts}
    if contents.curves:
        drawings[f"{stem}-over-time.svg"] = draw_curves(contents.curves, LIGHT, WIDTH, "Curves of the runs over time")
    names = {file: drawing.name for file, drawing in drawings.items()}
    scaling = scaling_files(contents.scaling, stem)
    text = "\n\n".join(filter(None, _report_markdown(contents, names, tuple(scaling))))
    chart_files = {file: drawing.svg(LIGHT.background) for file, drawing in drawings.items()}
    return RenderedPage(text + "\n", {**chart_files, **scaling})


def _report_markdown(contents: ReportModel, charts: Mapping[str, str], scaling: Sequence[str]) -> Iterator[str]:
    yield f"# {escape_markdown(contents.title)}"
    yield escape_markdown(contents.shared)
    yield escape_markdown(contents.made)
    yield f"> {escape_markdown(contents.verdict)}"
    yield f"{escape_markdown(contents.method)}."
    if contents.warnings:
        yield "## Reasons to doubt it"
        yield "\n".join(
            f"- {'▲ ' if warning.severity == 'warning' else ''}{escape_markdown(warning.sentence)}"
            for warning in contents.warnings
        )
    for section in contents.article:
        yield from _section_markdown(section)
    yield "## Figures"
    yield from map(_table_markdown, contents.figures)
    yield escape_markdown(" ".join(contents.notes))
    yield "## Pictures"
    yield from (markup.markdown_image(name, file) for file, name in charts.items())
    yield from (
        f"No picture “{escape_markdown(each.title)}”: {escape_markdown(each.why)}" for each in contents.gallery.no_data
    )
    if contents.scaling:
        yield "## Where scaling is lost"
        if contents.pairs.rows:
            yield ALL_PAIRS
            yield _table_markdown(contents.pairs)
        yield from map(scaling_markdown, contents.scaling, scaling)
    yield "## What ran"
    yield _table_markdown(contents.evidence)
    yield "## Environment"
    if contents.differing.rows:
        yield "Not the same for all runs:"
        yield _table_markdown(contents.differing)
    yield "The same for all runs:"
    yield _table_markdown(contents.common)
    yield "## How to repeat it"
    for repeat in contents.reruns:
        yield f"{escape_markdown(repeat.name)}:"
        yield markdown_code(repeat.command)
    yield "## Runs"
    yield _table_markdown(contents.runs)


def _section_markdown(section: ArticleSection) -> Iterator[str]:
    yield f"## {escape_markdown(section.title)}"
    for caption, shown in section.tables:
        yield f"{escape_markdown(caption)}:"
        yield _table_markdown(shown)
    yield "\n".join(f"- {escape_markdown(line)}" for line in section.lines)


def _table_markdown(shown: TextTable) -> str:
    return markup.markdown_table(shown.head, shown.rows, shown.numeric) if shown.rows else "Nothing is known."


def write_report(
    path: Path,
    found: ComparedRuns,
    baseline: int,
    made_utc_ns: int,
    older: Sequence[StoredRun] = (),
    article: tuple[ArticleSection, ...] = (),
) -> None:
    """Write a report of a comparison, with an article's tables first; raises `UserError` where it cannot be written."""
    contents = build_report(found, baseline, made_utc_ns, older, article)
    if path.suffix.lower() == ".md":
        write_page(path, markdown_report(contents, path.stem))
    else:
        write_page(path, RenderedPage(html_report(contents)))
