"""What `experiment` says: how far it is, its verdict, and an article's table beside what was measured."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.analysis.fairness import throttled_pct
from app.cli.compare import doubt_lines, print_comparison, reason_lines
from app.cli.terminal import print_table, print_words, say
from app.errors import UserError
from app.records import RunRow, StoredRun
from app.report.article import article_sections
from app.report.contents import Section
from app.report.experiment import in_order
from app.report.written import write_report
from app.runs.ahead import learnt_from
from app.runs.experiment import Experiment
from app.runs.schedule import Plan, left, room_of, rounds, together_s
from app.storage.reference import is_reference
from app.viewmodels import units
from app.viewmodels.ahead import takes_words
from app.viewmodels.compare import compared
from app.viewmodels.variants import variant_names
from workloads.catalog import Machine, check, runnable

_SHOWN = "Without --show the same command goes on from here."


def reference_words(runs: Sequence[StoredRun]) -> list[str]:
    """That these are no runs of this machine's, where all are of the reference."""
    if not all(is_reference(run.row) for run in runs):
        return []
    cards = ", ".join(sorted({name for run in runs for name in run.row.gpu_names}))
    return [f"No run of your own is stored: these are the reference runs that come with the program, on {cards}."]


def refused_words(plan: Plan, machine: Machine) -> list[str]:
    """Which variants cannot run on this machine, a sentence for every reason."""
    names = variant_names(plan.variants)
    by_reason: dict[str, list[str]] = {}
    for name, spec in zip(names, plan.variants, strict=True):
        for refusal in check(spec, machine):
            by_reason.setdefault(refusal.reason, []).append(name)
    return [f"Cannot run here: {', '.join(names)}. {reason}" for reason, names in by_reason.items()]


def throttled_words(made: StoredRun) -> str:
    """That a run does not count, why, and what follows."""
    share = units.percent(throttled_pct(made))
    return f"Run {made.row.run} was throttled for {share} of its measured part: it does not count and is made again."


def ahead_words(
    before: Experiment, alike: Sequence[RunRow], machine: Machine, budget_s: float | None, parallel: int = 1
) -> list[str]:
    """What is planned, done and left before the first run; how long it takes, judged by runs `alike`."""
    plan, rows = before.plan, [run.row for run in before.runs]
    to_make = left(plan, rows, machine)
    if before.state == "settled":
        return [f"{ending_words(before)} Nothing is left to run; --again makes every run anew."]
    if not to_make:
        all_are, them = ("The only run is", "it") if before.planned == 1 else (f"All {before.planned} runs are", "them")
        return [f"{all_are} stored{_beyond_words(before)}: nothing is left to run. --again makes {them} anew."]
    possible = runnable(to_make, machine)
    most = "" if plan.until_pct is None else " at most"
    takes = takes_words(together_s(possible, alike, room_of(plan, machine, parallel)), learnt_from(possible, alike))
    within = "" if budget_s is None else f", within {units.duration(budget_s)}"
    planned = f"{before.planned} {units.plural('run', before.planned)} planned{most}"
    return [f"{planned}, {before.done} done{_beyond_words(before)}, {len(to_make)} left ({takes}){within}."]


def ending_words(found: Experiment, *, shown: bool = False, entry: int | None = None) -> str:
    """How far the experiment came, in this command or, where it is only shown, in those before.

    `entry` is the number under which it stays in the queue.
    """
    goes_on = "The same command goes on from here"
    goes_on += "." if entry is None else f", or `python -m app queue go-on {entry}`."
    return " ".join(filter(None, (_far_words(found, goes_on, shown=shown), _known_words(found))))


def _far_words(found: Experiment, goes_on: str, *, shown: bool) -> str:
    far = f"{found.done} of {found.planned} {units.plural('run', found.planned)} done{_beyond_words(found)}"
    if found.state == "settled":
        repeats = rounds(found.plan, [run.row for run in found.runs]).repeats
        return f"Settled after {repeats} repeats: {found.done} runs done{_beyond_words(found)}."
    if found.state == "out of budget" and found.next_s is not None:
        if found.budget_s is not None and found.next_s >= found.budget_s:
            goes_on = f"No run fits into {units.duration(found.budget_s)}: give --budget more."
        takes = f", and the next one takes about {units.duration(found.next_s)}" if found.next_s else ""
        return f"Out of budget: {far}{takes}. {goes_on}"
    if found.state == "complete" and not found.measured:
        return f"Nothing was measured: none of {found.planned} runs completed."
    if shown:
        of_reference = bool(reference_words(found.runs))
        return f"{far}." if found.state == "complete" or of_reference else f"{far}. {_SHOWN}"
    if found.state == "failed":
        return f"Failed: {far}; some gave no result. The same command makes those again."
    return f"Complete: {far}." if found.state == "complete" else f"Stopped: {far}. {goes_on}"


def _beyond_words(found: Experiment) -> str:
    """How many more stored runs the verdict counts than are planned; "" where there are none."""
    if not found.beyond:
        return ""
    counts = "counts" if found.beyond == 1 else "count"
    return f" ({found.beyond} more stored {units.plural('run', found.beyond)} {counts} too)"


def _known_words(found: Experiment) -> str:
    """How narrowly the speed-ups are known, beside what was asked; "" where they have no interval or none was asked."""
    halves = rounds(found.plan, [run.row for run in found.runs]).half_widths_pct()
    if found.plan.until_pct is None or not halves:
        return ""
    ends = dict.fromkeys(units.number(end, 2) for end in (min(halves), max(halves)))
    return f"Speed-ups are known to ± {' to '.join(ends)} %; ± {found.plan.until_pct:g} % was asked for."


def print_experiment(found: Experiment, document: Mapping[str, Any]) -> None:
    """Prints the tables of an article, or else the verdict."""
    if document["article"]:
        for section in article_sections(document["article"]):
            _print_section(section)
        for line in (*reason_lines(document["rows"]), *doubt_lines(document["warnings"])):
            print_words(line)
    elif found.runs:
        print_comparison(dict(document), in_order(found))


def _print_section(section: Section) -> None:
    print(section.title)
    for caption, shown in section.tables:
        print()
        print_words(f"{caption}:")
        print_table(shown.head, shown.rows, right=shown.numeric)
    print()
    for line in section.lines:
        print_words(line)
    print()


def write_found(found: Experiment, tables: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes a report of the comparison, with an article's tables where there are some.

    Raises `UserError` where there is nothing to report yet, or the file cannot be written.
    """
    runs = in_order(found)
    if not runs:
        raise UserError("No run of this experiment has a result yet, so there is nothing to report.")
    article = article_sections(tables)
    write_report(path, compared(runs), runs[0].row.run, time.time_ns(), article=article)
    say(f"Written to {path}.")
