"""Writing reports to files: what a name's ending asks for, and what lies beside it."""

import os
from pathlib import Path

from app.errors import unwritable
from app.report.marked import Marked
from workloads.catalog import UsageError

ENDINGS = (".html", ".md")


def check_ending(path: Path) -> None:
    """Raises `UsageError` for a file that no report is written to."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--report takes a file that ends in {' or '.join(ENDINGS)}.")


def check_place(path: Path) -> None:
    """Raises `UsageError` for a file that no report could be written to, for who writes it only after long runs."""
    check_ending(path)
    if not path.parent.is_dir():
        raise UsageError(f"--report takes a file in a folder that is there; {path.parent} is none.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--report takes a file that can be written; {path} cannot.")


def write_page(path: Path, written: Marked) -> None:
    """Write a page and what lies beside it; raises `UserError` where that cannot be."""
    for target, text in {path: written.text, **{path.with_name(n): t for n, t in written.files.items()}}.items():
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise unwritable(target, error) from error
