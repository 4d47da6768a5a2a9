"""Comparison reports and scaling pages as HTML and Markdown, from the templates in resources."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from app.errors import write_error
from app.paths import RESOURCES
from app.report.charts.curves import draw_curves
from app.report.charts.draw import WIDTH, draw_chart
from app.report.charts.svg import escape_xml, replace_invalid_xml
from app.report.documents import diff_table, why_sections
from app.report.gate import Gate
from app.report.model import ALL_PAIRS, ReportModel, build_report
from app.report.scaling import scaling_sections
from app.values import units
from app.values.plain import joined_lines
from app.viewmodels.charts.palette import DARK, LIGHT, PAGE, css_variables
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.pivot import Pivot
from app.viewmodels.compare.scaling import ScalingView, scaling_mismatches
from app.viewmodels.format.cells import TextTable
from app.viewmodels.history.run_diff import RunDiff, text_line
from workloads.catalog import UsageError

Markup = Literal["latex", "markdown"]
MARKUPS: Mapping[Markup, str] = {"latex": "table.tex.jinja", "markdown": "table.md.jinja"}
REPORT_SUFFIXES = (".html", ".md")
_TEMPLATES = RESOURCES / "templates"
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")
_LATEX_SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "#$%&_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    | {"×": r"$\times$", "−": "$-$", "–": "--", "…": r"\dots{}", "·": r"$\cdot$", "µ": r"$\mu$"}
    | {"≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\rightarrow$", "²": r"$^2$", "°": r"$^\circ$", "\N{NO-BREAK SPACE}": "~"}
    | {"✔": r"$\surd$", "◐": r"($\surd$)", "✘": r"$\times$"}
)
_CURVES_NAME = "Curves of the runs over time"


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page's text and its charts: SVG by file name.

    Git forges show images from files and remove SVG that is part of a Markdown text.
    """

    text: str
    files: Mapping[str, str] = field(default_factory=dict)


def check_suffix(path: Path) -> None:
    """Raise `UsageError` unless reports can have the file's suffix."""
    if path.suffix.lower() not in REPORT_SUFFIXES:
        raise UsageError(f"--report takes a file that ends in {' or '.join(REPORT_SUFFIXES)}.")


def check_writable(path: Path) -> None:
    """Raise `UsageError` if no report can be written to the file."""
    check_suffix(path)
    check_file(path, "--report")


def check_file(path: Path, option: str) -> None:
    """Raise `UsageError` if an option's file cannot be written: before long runs instead of after them."""
    if not path.parent.is_dir():
        raise UsageError(f"{option} takes a file in an existing folder; {path.parent} is not one.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option} takes a file that can be written; {path} cannot.")


def render_table(table: TextTable, markup: Markup) -> str:
    """Render a table for a user's document; LaTeX needs the package booktabs."""
    return _render(MARKUPS[markup], table=table)


def write_page(path: Path, page: RenderedPage) -> None:
    """Write a page and its charts; raises `UserError` if a file cannot be written."""
    for target, text in {path: page.text, **{path.with_name(n): t for n, t in page.files.items()}}.items():
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise write_error(target, error) from error


def write_report(path: Path, comparison: Comparison, made_utc_ns: int, pivots: Sequence[Pivot] = ()) -> None:
    """Write the report of a comparison as HTML, or as Markdown if the path ends in `.md`.

    Charts of a Markdown report are written next to it.

    Raises:
        UserError: A file cannot be written.
    """
    report = build_report(comparison, made_utc_ns, pivots)
    if path.suffix.lower() == ".md":
        write_page(path, markdown_report(report, path.stem))
    else:
        write_page(path, RenderedPage(html_report(report)))


def html_report(report: ReportModel) -> str:
    """Render the report as one HTML file without scripts or references to other files."""
    return _render(
        "report.html.jinja",
        report=report,
        all_pairs=ALL_PAIRS,
        charts=[draw_chart(chart, PAGE) for chart in report.comparison.charts],
        scaling=scaling_sections(report.scaling, PAGE),
        why=why_sections(report.why, PAGE),
        curves=draw_curves(report.curves, PAGE, WIDTH, _CURVES_NAME) if report.curves else None,
    )


def markdown_report(report: ReportModel, stem: str) -> RenderedPage:
    """Render the report as Markdown; the names of its chart files begin with `stem`."""
    charts = {f"{stem}-{chart.key}.svg": draw_chart(chart, LIGHT) for chart in report.comparison.charts}
    if report.curves:
        charts[f"{stem}-over-time.svg"] = draw_curves(report.curves, LIGHT, WIDTH, _CURVES_NAME)
    scaling = {f"{stem}-scaling-{n}.svg": part for n, part in enumerate(scaling_sections(report.scaling, LIGHT), 1)}
    why = {f"{stem}-why-{n}.svg": section for n, section in enumerate(why_sections(report.why, LIGHT), 1)}
    text = _render("report.md.jinja", report=report, all_pairs=ALL_PAIRS, charts=charts, scaling=scaling, why=why)
    sections = {**scaling, **why}.items()
    drawings = {**charts, **{file: section["drawing"] for file, section in sections if section["drawing"]}}
    return RenderedPage(text, {file: drawing.svg(filled=True) for file, drawing in drawings.items()})


def render_scaling(views: Sequence[ScalingView], path: Path) -> RenderedPage:
    """Render pairs of runs that differ only in their GPUs, in the format of the path's suffix."""
    if path.suffix.lower() != ".md":
        page = _render("scaling.html.jinja", scaling=scaling_sections(views, PAGE), mismatch=scaling_mismatches(views))
        return RenderedPage(page)
    sections = {f"{path.stem}-scaling-{n}.svg": section for n, section in enumerate(scaling_sections(views, LIGHT), 1)}
    text = _render("scaling.md.jinja", scaling=sections, mismatch=scaling_mismatches(views))
    return RenderedPage(text, {file: section["drawing"].svg(filled=True) for file, section in sections.items()})


def render_diff(diff: RunDiff, path: Path) -> RenderedPage:
    """Render a comparison of two runs, in the format of the path's suffix."""
    template = "diff.md.jinja" if path.suffix.lower() == ".md" else "diff.html.jinja"
    return RenderedPage(_render_diff(template, diff))


def diff_html(diff: RunDiff, *, everything: bool) -> str:
    """Render differences as a piece of HTML, and with `everything` also what is equal."""
    return _render_diff("diff_sections.html.jinja", diff, everything=everything)


def _render_diff(template: str, diff: RunDiff, *, everything: bool = False) -> str:
    names = [f"{label}: {name}" for label, name in zip(diff.labels, diff.names, strict=True)]
    sections = [
        (section, diff_table([*section.rows, *(section.alike if everything else ())], diff.labels))
        for section in diff.sections
    ]
    texts = [(text, list(map(text_line, text.changes))) for text in diff.texts]
    return _render(template, diff=diff, names=names, sections=sections, texts=texts)


def gate_markdown(gate: Gate) -> str:
    return _render("gate.md.jinja", gate=gate)


def escape_markdown(text: str) -> str:
    """Return the text in one line that Markdown shows literally, including any HTML."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", joined_lines(replace_invalid_xml(text)))


def escape_latex(text: str) -> str:
    return joined_lines(replace_invalid_xml(text)).translate(_LATEX_SPECIAL)


_ESCAPES: Mapping[str, Callable[[str], str]] = {"html": escape_xml, "md": escape_markdown, "tex": escape_latex}
"""What protects values, by the format of a template."""


def _render(template: str, **values: object) -> str:
    # Only here: windows and commands that write no report do not wait for the imports.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    escape = _ESCAPES[template.split(".")[1]]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Markup is not escaped again.
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),  # noqa: S704
    )
    environment.filters["bound"] = units.bound
    # A Markdown block that no text ends.
    environment.filters["code"] = lambda text: Markup("    " + " ".join(replace_invalid_xml(text).splitlines()))  # noqa: S704
    environment.globals.update(light=css_variables(LIGHT), dark=css_variables(DARK), page_colour=PAGE.curve)
    return environment.get_template(template).render(values).rstrip() + "\n"
