"""A report of a comparison, written to a file."""

from collections.abc import Sequence
from pathlib import Path

from app.records import StoredRun
from app.report.contents import Section, report_contents
from app.report.files import write_page
from app.report.html import html_report
from app.report.markdown import markdown_report
from app.report.marked import Marked
from app.viewmodels.compare import Compared


def write_report(
    path: Path,
    found: Compared,
    baseline: int,
    made_utc_ns: int,
    older: Sequence[StoredRun] = (),
    article: tuple[Section, ...] = (),
) -> None:
    """Write a report of a comparison, with an article's tables first; raises `UserError` where it cannot be written."""
    contents = report_contents(found, baseline, made_utc_ns, older, article)
    if path.suffix.lower() == ".md":
        write_page(path, markdown_report(contents, path.stem))
    else:
        write_page(path, Marked(html_report(contents)))
