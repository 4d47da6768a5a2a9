"""What `experiment` says: how far it is, its verdict, and an article's table beside what was measured."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.cli.compare import print_comparison
from app.cli.terminal import print_table, say
from app.errors import UserError
from app.records import StoredRun
from app.report.article import article_page, epoch_rows, epoch_title, rate_title, says_lines, throughput_rows
from app.report.experiment import in_order
from app.report.files import write_page
from app.report.marked import Marked
from app.report.written import write_report
from app.runs.counted import Counted
from app.runs.experiment import Experiment
from app.viewmodels import units
from app.viewmodels.compare import compared
from app.viewmodels.environment import environment_differences

_GOES_ON = "The same command goes on from here."
_SHOWN = "Without --show the same command goes on from here."


def counted_words(counted: Counted) -> list[str]:
    """That stored runs of the same variants do not count, and why."""
    if not counted.elsewhere:
        return []
    runs = f"{counted.elsewhere} stored {units.plural('run', counted.elsewhere)}"
    return [f"Not counted: {runs} of these variants with another {', another '.join(counted.because)}."]


def ahead_words(before: Experiment, budget_s: float | None) -> list[str]:
    """What is planned, done and left, before the first run."""
    ahead = before.planned - before.done
    if not ahead:
        return [f"All {before.planned} runs are stored: nothing is left to run. --again makes them anew."]
    within = "" if budget_s is None else f", within {units.duration(budget_s)}"
    return [f"{before.planned} runs planned, {before.done} done, {ahead} left{within}."]


def ending_words(found: Experiment, *, shown: bool = False) -> str:
    """How far the experiment came, in this command or, where it is only shown, in those before."""
    far = f"{found.done} of {found.planned} runs done"
    if found.state == "out of budget" and found.next_s is not None:
        return f"Out of budget: {far}, and the next one takes about {units.duration(found.next_s)}. {_GOES_ON}"
    if shown:
        return f"{far}." if found.state == "complete" else f"{far}. {_SHOWN}"
    if found.state == "failed":
        return f"{far}: the others gave no result. The same command makes them again."
    return f"Complete: {far}." if found.state == "complete" else f"Stopped: {far}. {_GOES_ON}"


def print_experiment(found: Experiment, document: Mapping[str, Any]) -> None:
    """Prints the tables of an article, or else the verdict."""
    if document["article"]:
        for table in document["article"]:
            _print_table(table)
        _print_doubts(in_order(found))
    elif found.runs:
        print_comparison(dict(document), in_order(found))


def _print_table(table: Mapping[str, Any]) -> None:
    print(f"{table['workload']}: {rate_title(table)}; gains and ratios with their 95 % interval")
    _print_rows(throughput_rows(table))
    print(f"\n{epoch_title(table)}")
    _print_rows(epoch_rows(table))
    print()
    for line in says_lines(table):
        print(line)
    print(f"It measured on {table['article_machine']}.\n")


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    print_table(rows[0], rows[1:], right=frozenset(range(len(rows[0]))))


def _print_doubts(runs: Sequence[StoredRun]) -> None:
    """Why some runs did not run as asked, and the facts of the environment that were not the same for all."""
    for reason in sorted({run.row.mismatch_reason for run in runs if run.row.mismatch_reason}):
        print(f"✘ not as asked: {reason}")
    if different := environment_differences(runs):
        print(different)


def write_found(found: Experiment, tables: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes an article's tables where Markdown is asked for and there are some, else a report of the comparison.

    Raises `UserError` where there is nothing to report yet, or the file cannot be written.
    """
    runs = in_order(found)
    if tables and path.suffix == ".md":
        write_page(path, Marked(article_page(tables)))
    elif runs:
        write_report(path, compared(runs), runs[0].row.run, time.time_ns())
    else:
        raise UserError("No run of this experiment has a result yet, so there is nothing to report.")
    say(f"Written to {path}.")
