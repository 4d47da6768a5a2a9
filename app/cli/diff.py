"""`diff`: two stored runs side by side."""

from pathlib import Path

import click

from app.cli.candidates import complete_runs
from app.cli.options import RUN_NUMBER, command, report_option
from app.cli.services import open_store
from app.cli.terminal import print_json, print_table, print_text, say
from app.report.diff import diff_document
from app.report.render import check_suffix, render_diff, write_page
from app.viewmodels.history.run_diff import DiffRow, DiffSection, RunDiff, TextDiff, run_diff, text_line
from workloads.catalog import UsageError


@command("diff", "diff 12 14", "diff 12 14 --all", "diff 12 14 --report diff.html")
@click.argument("first", type=RUN_NUMBER, shell_complete=complete_runs, help="Its number in `list`.")
@click.argument("second", type=RUN_NUMBER, shell_complete=complete_runs, help="Its number in `list`.")
@click.option("--all", "everything", is_flag=True, help="Print what is equal too.")
@report_option
def diff(database: Path | None, as_json: bool, first: int, second: int, everything: bool, report: Path | None) -> int:
    """Print in what two runs differ, changes counted from the first one, and write a page of it where requested."""
    if report is not None:
        check_suffix(report)
    if first == second:
        raise UsageError(f"diff takes two runs; run {first} was given twice.")
    with open_store(database) as store:
        runs = store.load(first), store.load(second)
    differences = run_diff(*runs, None)
    if report is not None:
        write_page(report, render_diff(differences, report))
        say(f"Written to {report}.")
    if as_json:
        print_json(diff_document(*runs))
    else:
        print_diff(differences, everything=everything)
    return 0


def print_diff(differences: RunDiff, *, everything: bool) -> None:
    """Print the sections of a diff, what is alike only where `everything` is wanted."""
    for label, name in zip(differences.labels, differences.names, strict=True):
        print(f"{label.lower()}  {name}")
    for section in differences.sections:
        _print_section(section, differences.labels, everything=everything)
    for text in differences.texts:
        _print_text_diff(text)


def _print_section(section: DiffSection, labels: tuple[str, str], *, everything: bool) -> None:
    print()
    print(": ".join(filter(None, (section.title, section.counts))))
    if section.note:
        print_text(section.note)
    rows = [*section.rows, *(section.alike if everything else ())]
    changes = any(row.change for row in rows)
    right = frozenset({1, 2, 3}) if changes else frozenset[int]()
    header = ("", *(label.lower() for label in labels), *(["change"] if changes else []))
    print_table(header if rows else (), [_cells(row, changes=changes) for row in rows], right=right)


def _cells(row: DiffRow, *, changes: bool) -> tuple[str, ...]:
    name = f"    {row.name}" if row.kernel else f"  {row.name}"
    return (name, row.first, row.second, *([row.change] if changes else []))


def _print_text_diff(text: TextDiff) -> None:
    print()
    print(f"{text.title}: {text.counts}")
    for change in text.changes:
        print(f"  {text_line(change)}")
