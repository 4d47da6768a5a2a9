"""`scaling`: how well stored runs scale to more GPUs, and why not better."""

from argparse import Namespace
from pathlib import Path

from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.report.scaling import scaling_document, scaling_page
from app.viewmodels.scaling import NOTHING, ScalingView, scaling_views
from workloads.catalog import UsageError

_ENDINGS = (".html", ".md")


def scaling(chosen: Namespace) -> int:
    """Prints every pair of runs that differ in GPUs, and writes it as a page where that is asked for."""
    numbers = list(dict.fromkeys(chosen.runs))
    if len(numbers) < 2:
        raise UsageError("scaling takes two runs or more; `python -m app list` shows their numbers.")
    if chosen.report is not None and chosen.report.suffix not in _ENDINGS:
        raise UsageError(f"--report takes a file that ends in {' or '.join(_ENDINGS)}.")
    with opened_store(chosen.db) as store:
        runs = [store.load(number) for number in numbers]
    views = scaling_views(runs)
    if not views:
        raise UserError(NOTHING)
    if chosen.report is not None:
        _write(chosen.report, scaling_page(runs, markdown=chosen.report.suffix == ".md"))
    if chosen.json:
        print_json(scaling_document(runs))
    else:
        for view in views:
            _print(view)
    return 0


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    say(f"Written to {path}.")


def _print(view: ScalingView) -> None:
    print(view.title)
    print(f"Efficiency {view.efficiency} ({view.interval}), {view.speedup} as fast.")
    print(view.cause)
    print()
    print_table(("", *view.sides), [(f"  {label}", *figures) for label, *figures in view.rows], right=frozenset({1, 2}))
    print()
