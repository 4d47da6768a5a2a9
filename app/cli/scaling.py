"""`scaling`: how well stored runs scale to more GPUs, and why not better."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.records import StoredRun
from app.report.files import check_ending, write_page
from app.report.marked import Marked
from app.report.scaling import scaling_document
from app.report.scaling_pages import headline, scaling_html_page, scaling_markdown_page
from app.viewmodels.scaling import NOTHING, ScalingView, scaling_views
from workloads.catalog import UsageError


def scaling(chosen: Namespace) -> int:
    """Prints every pair of runs that differ in GPUs, and writes it as a page where that is asked for."""
    numbers = list(dict.fromkeys(chosen.runs))
    if len(numbers) < 2:
        raise UsageError("scaling takes two runs or more; `python -m app list` shows their numbers.")
    if chosen.report is not None:
        check_ending(chosen.report)
    with opened_store(chosen.db) as store:
        runs = [store.load(number) for number in numbers]
    views = scaling_views(runs)
    if not views:
        raise UserError(NOTHING)
    if chosen.report is not None:
        write_page(chosen.report, _written(chosen.report, runs))
        say(f"Written to {chosen.report}.")
    if chosen.json:
        print_json(scaling_document(runs))
    else:
        for view in views:
            _print(view)
    return 0


def _written(path: Path, runs: Sequence[StoredRun]) -> Marked:
    return scaling_markdown_page(runs, path.stem) if path.suffix == ".md" else Marked(scaling_html_page(runs))


def _print(view: ScalingView) -> None:
    print(view.title)
    print(headline(view))
    print(view.cause)
    print()
    print_table(("", *view.sides), [(f"  {label}", *figures) for label, *figures in view.rows], right=frozenset({1, 2}))
    print()
