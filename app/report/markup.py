"""Building blocks of HTML and Markdown pages: page frame, tables, images and escaping."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.report.charts.canvas import DARK, LIGHT, PAGE, css_variables
from app.report.charts.svg import escape_xml, replace_invalid_xml

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A text, and the pictures that lie beside it: SVG by the name of its file.

    Forges show pictures in files, and none that stand in the text.
    """

    text: str
    files: Mapping[str, str] = field(default_factory=dict)


def escape_markdown(words: str) -> str:
    """Text in one line that Markdown shows as it is, HTML in it too."""
    return _SPECIAL.sub(r"\\\1", " ".join(replace_invalid_xml(words).split()))


def markdown_code(words: str) -> str:
    """A block that nothing in the words can end: indented, in one line."""
    return "    " + " ".join(replace_invalid_xml(words).splitlines())


def markdown_image(name: str, file: str) -> str:
    """A picture that lies beside the text."""
    return f"![{escape_markdown(name)}](<{file}>)"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int]) -> str:
    """Cells of words under their heads; `numeric` columns are right-aligned."""
    rule = ["---:" if n in numeric else "---" for n in range(len(head))]
    body = ([escape_markdown(cell) for cell in row] for row in (head, *rows))
    first, *rest = (f"| {' | '.join(line)} |" for line in body)
    return "\n".join([first, f"| {' | '.join(rule)} |", *rest])


_LONG = 40
"""From so many letters on a cell may be broken anywhere."""

_STYLE = """
:root{color-scheme:light dark;%(light)s--warning:#8a5a00}
@media screen and (prefers-color-scheme:dark){:root{%(dark)s--warning:#e5b04a}}
body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1.5em;color:var(--text);
background:var(--paper);font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{font-size:1.6em;margin:0}h2{font-size:1.2em;margin:2em 0 .5em}h3{font-size:1em;margin:1.5em 0 .3em}
.quiet{color:var(--muted);margin:.2em 0}.verdict{font-size:1.25em;margin:1em 0;padding-left:.8em;
border-left:4px solid var(--curve0)}.warning{color:var(--warning)}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.5em 0 1em;font-size:.87em}
th,td{text-align:left;vertical-align:top;padding:.25em 1em .25em 0;border-bottom:1px solid var(--line);
overflow-wrap:normal}th{font-weight:normal;color:var(--muted);vertical-align:bottom}.number{text-align:right}
td.number{white-space:nowrap}
td:first-child{min-width:15em}.long{overflow-wrap:anywhere;max-width:26em}
.swatch{display:inline-block;width:.8em;height:.8em;margin-right:.5em;print-color-adjust:exact;
-webkit-print-color-adjust:exact}
summary{color:var(--muted);cursor:pointer}
figure{margin:1.5em 0}svg{max-width:100%%;height:auto}
pre{white-space:pre-wrap;border:1px solid var(--line);border-radius:4px;padding:.6em .8em;font-size:.87em}
@page{margin:14mm}
@media print{body{max-width:none;margin:0;padding:0;font-size:11px}.wide{overflow:visible}
h2,h3{break-after:avoid}figure,tr,pre,li{break-inside:avoid}thead{display:table-header-group}
summary{list-style:none}details::details-content{content-visibility:visible;height:auto}}
"""


def html_page(title: str, body: str) -> str:
    """The whole document; `body` is HTML, the title any text."""
    style = _STYLE % {"light": css_variables(LIGHT), "dark": css_variables(DARK)}
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape_xml(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def html_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: frozenset[int],
    colours: Sequence[int | None] = (),
) -> str:
    """Cells of words under their heads; `numeric` columns are right-aligned, `colours` mark the rows."""
    top = "".join(f"<th{_cell_class(n, '', numeric)}>{escape_xml(words)}</th>" for n, words in enumerate(head))
    marks = colours or (None,) * len(rows)
    body = "".join(_html_row(row, numeric, colour) for row, colour in zip(rows, marks, strict=True))
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _html_row(row: Sequence[str], numeric: frozenset[int], colour: int | None) -> str:
    swatch = "" if colour is None else f'<span class="swatch" style="background:{PAGE.curve(colour)}"></span>'
    cells = (
        f"<td{_cell_class(n, words, numeric)}>{swatch if n == 0 else ''}{escape_xml(words)}</td>"
        for n, words in enumerate(row)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _cell_class(column: int, words: str, numeric: frozenset[int]) -> str:
    if column in numeric:
        return ' class="number"'
    return ' class="long"' if len(words) > _LONG else ""
