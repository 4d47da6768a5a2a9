"""`compare` and `scaling`: stored runs compared, and their scaling to more GPUs."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from app import units
from app.analysis.scaling import has_scaling
from app.cli.candidates import complete_runs
from app.cli.library import run_query
from app.cli.options import (
    RUN_NUMBER,
    RunFilter,
    command,
    filter_options,
    report_option,
    runs_argument,
)
from app.cli.services import open_store
from app.cli.terminal import print_json, print_table, print_text, say
from app.errors import UserError
from app.records import StoredRun
from app.report.comparison import compare_document
from app.report.render import check_suffix, render_scaling, write_page, write_report
from app.report.scaling import efficiency_headline, scaling_document
from app.storage.library import Library
from app.viewmodels.charts.palette import MAX_COMPARED
from app.viewmodels.compare.comparison import default_baseline, prepare_comparison
from app.viewmodels.compare.scaling import NO_SCALING_PAIRS, ScalingView, scaling_views
from app.viewmodels.compare.table import constant_columns, describe_constant_columns
from app.viewmodels.compare.warnings import EARLIER_RUNS, EVIDENCE
from app.viewmodels.format import cells
from app.viewmodels.format.naming import shared_settings
from workloads.catalog import UsageError

_HEADER = ("95 % interval", "ratio", "95 % interval", "energy", "ratio", "step p50")
_LAST = {"outcome": "outcome", "as_asked": "as asked"}
"""Columns that are left out where they say the usual of all runs."""
_RESULT_OUTCOMES = ("completed", "stopped", "running")
"""Outcomes that need no reason."""
_MAX_LABELS = 6
"""So many variants are named for which one reason holds."""
_NAMED = 12
"""So many runs a command is shown with."""


@command("compare", "compare 1 2 3 4 --baseline 1", "compare --tag paper --report paper.html")
@runs_argument(required=False)
@filter_options
@click.option(
    "--baseline",
    type=RUN_NUMBER,
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run others are compared with (default: the first that measured).",
)
@report_option
def compare(
    database: Path | None,
    as_json: bool,
    runs: Sequence[int],
    baseline: int | None,
    report: Path | None,
    wanted: RunFilter,
) -> int:
    """Print the comparison, and write a report of it where one is requested."""
    if report is not None:
        check_suffix(report)
    requested = list(dict.fromkeys(runs))
    if not wanted.is_search:
        _check_runs(requested, baseline)
    elif requested:
        raise UsageError("compare takes runs by number or by what finds them (--search, --tag …), not both.")
    with open_store(database) as store:
        numbers = requested or _search_runs(wanted, baseline, store.library)
        stored = [store.load(number) for number in numbers]
        if baseline is None:
            baseline = default_baseline([run.row for run in stored])
        older = store.load_earlier(baseline, numbers, EARLIER_RUNS)
    if report is not None:
        write_report(report, prepare_comparison(stored), baseline, time.time_ns(), older)
        say(f"Written to {report}.")
    document = compare_document(stored, baseline, older)
    if as_json:
        print_json(document)
    else:
        print_comparison(document, stored)
    return 0


def _search_runs(wanted: RunFilter, baseline: int | None, library: Library) -> list[int]:
    """Return the runs searched for, the oldest first; raises `UsageError` where they cannot be compared."""
    numbers = library.find(run_query(replace(wanted, sort="run", reverse=True), library))
    if len(numbers) < 2:
        found = "one run" if numbers else "no run"
        raise UsageError(f"compare takes two runs or more; the search found {found}.")
    _check_runs(numbers, baseline)
    return numbers


def _check_runs(numbers: Sequence[int], baseline: int | None) -> None:
    """Raises `UsageError` for runs that cannot be compared."""
    if len(numbers) < 2:
        raise UsageError("compare takes two runs or more; `python -m app list` shows their numbers.")
    if len(numbers) > MAX_COMPARED:
        raise UsageError(f"compare takes at most {MAX_COMPARED} runs at once; these are {len(numbers):,}.")
    if baseline is not None and baseline not in numbers:
        raise UsageError(f"The baseline, run {baseline}, is not among the runs compared.")


def print_comparison(document: dict[str, Any], runs: Sequence[StoredRun]) -> None:
    """Prints a `compare` document of these runs: the verdict, a table, why runs failed, and every doubt."""
    print_text(document["verdict"]["text"])
    print()
    rows = [run.row for run in runs]
    for words in filter(None, (shared_settings([row.spec for row in rows]), describe_constant_columns(rows))):
        print_text(words)
    found_units = {row["throughput"]["unit"] for row in document["rows"]}
    unit = found_units.pop() if len(found_units) == 1 else "examples/s"
    last = [column for column in _LAST if column not in constant_columns(rows)]
    header = ("variant", "runs", unit, *_HEADER, *(_LAST[column] for column in last))
    print_table(header, [_row(row, last) for row in document["rows"]], right=frozenset(range(1, 9)))
    # What runs that are not what they say they are mean for the verdict, the verdict itself has said.
    warnings = warning_lines([warning for warning in document["warnings"] if warning["key"] != EVIDENCE])
    lines = [*reason_lines(document["rows"]), *warnings]
    if has_scaling(runs):
        numbers = " ".join(str(run.row.run) for run in runs) if len(runs) <= _NAMED else "RUN RUN ..."
        lines.append(f"How well these scale to more GPUs, and why not better: `python -m app scaling {numbers}`")
    if lines:
        print()
    for line in lines:
        print_text(line)


def reason_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why runs of a `compare` document's rows have no result: a line a reason, with the variants it is about."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for outcome, reason in zip(row["outcomes"], row["reasons"], strict=True):
            if outcome not in _RESULT_OUTCOMES:
                by_reason.setdefault((cells.OUTCOMES[outcome].word, reason or ""), []).append(row["label"])
    return [
        f"{outcome.capitalize()}: {_name_some(list(dict.fromkeys(labels)))}. {units.sentence(reason)}".rstrip()
        for (outcome, reason), labels in by_reason.items()
    ]


def _name_some(labels: Sequence[str]) -> str:
    more = len(labels) - _MAX_LABELS
    return ", ".join(labels) if more < 2 else f"{', '.join(labels[:_MAX_LABELS])} and {more} more"


def warning_lines(warnings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The warnings of a `compare` document, a line each."""
    return [f"{'Note' if each['severity'] == 'note' else 'Warning'}: {each['text']}" for each in warnings]


def _row(row: dict[str, Any], last: Sequence[str]) -> tuple[str, ...]:
    throughput, speedup, energy_mj = row["throughput"], row["speedup"], row["energy_mj_per_example"]["value"]
    words = {
        "outcome": ", ".join(dict.fromkeys(cells.OUTCOMES[outcome].word for outcome in row["outcomes"])),
        "as_asked": {True: "✔", False: "✘", None: ""}[row["match"]],
    }
    return (
        row["label"],
        str(len(row["runs"])),
        units.number(throughput["value"], 4),
        _format_interval(throughput["interval"], 4),
        cells.ratio(speedup["ratio"]).text,
        _format_interval(speedup["interval"], 3),
        units.ABSENT if energy_mj is None else f"{units.number(energy_mj)} mJ",
        cells.ratio(row["energy_ratio"]).text,
        units.milliseconds(row["step_ms"]["p50"]),
        *(words[column] for column in last),
    )


def _format_interval(interval: Sequence[float] | None, digits: int) -> str:
    return units.ABSENT if interval is None else " to ".join(units.number(value, digits) for value in interval)


@command("scaling", "scaling 1 2 3 4", "scaling 1 2 3 4 --report scaling.html")
@runs_argument(required=True)
@report_option
def scaling(database: Path | None, as_json: bool, runs: Sequence[int], report: Path | None) -> int:
    """Print every pair of runs that differ in GPUs, and write a page of them where one is requested."""
    numbers = list(dict.fromkeys(runs))
    if len(numbers) < 2:
        raise UsageError("scaling takes two runs or more; `python -m app list` shows their numbers.")
    if report is not None:
        check_suffix(report)
    with open_store(database) as store:
        stored = [store.load(number) for number in numbers]
    views = scaling_views(stored)
    if not views:
        raise UserError(NO_SCALING_PAIRS)
    if report is not None:
        write_page(report, render_scaling(stored, report))
        say(f"Written to {report}.")
    if as_json:
        print_json(scaling_document(stored))
    else:
        for view in views:
            _print_view(view)
    return 0


def _print_view(view: ScalingView) -> None:
    print(view.title)
    print(efficiency_headline(view))
    print(view.cause)
    print()
    print_table(("", *view.sides), [(f"  {label}", *figures) for label, *figures in view.rows], right=frozenset({1, 2}))
    print()
