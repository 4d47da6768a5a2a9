"""Writing reports to files: what a name's ending asks for, and what lies beside it."""

from pathlib import Path

from app.errors import UserError
from app.report.marked import Marked
from workloads.catalog import UsageError

ENDINGS = (".html", ".md")


def check_ending(path: Path) -> None:
    """Raises `UsageError` for a file that no report is written to."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"--report takes a file that ends in {' or '.join(ENDINGS)}.")


def write_page(path: Path, written: Marked) -> None:
    """Write a page and what lies beside it; raises `UserError` where that cannot be."""
    for target, text in {path: written.text, **{path.with_name(n): t for n, t in written.files.items()}}.items():
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{target} cannot be written: {error.strerror}.") from error
