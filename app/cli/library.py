"""`list`, `note`, `tag`, `delete` and `restore`: search, annotate and remove stored runs."""

import contextlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from app.cli.options import (
    COUNT,
    Parsed,
    RunFilter,
    Verb,
    command,
    filter_options,
    given_parameters,
    option_name,
    run_argument,
    runs_argument,
)
from app.cli.services import open_store
from app.cli.terminal import is_terminal, print_json, print_json_list, print_table, say
from app.errors import UserError
from app.metrics import METRICS
from app.paths import PROGRAM
from app.queries import RUN_ORDERS, TEXT_ORDERS, RunQuery, StoredExperiment
from app.report.documents import iso_utc, list_document, listed_document
from app.storage import retention
from app.storage.library import Library
from app.storage.retention import Pruned, prune
from app.values import units
from app.values.records import RunRow
from app.viewmodels.format import cells
from app.viewmodels.format.naming import short_name
from app.viewmodels.history.labels import describe_left_out, format_run_count
from workloads.catalog import UsageError

_KINDS = ("runs", "experiments", "presets", "parameters")
_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}

_TERMINAL_RUNS = 20
"""The most runs listed on a terminal unless a limit is given."""
_LISTED = [metric for metric in METRICS if metric.list_column and metric.list_column.in_terminal]
"""The metrics that `list` prints for each run."""
_PAGE_RUNS = 500
"""Runs that `list` reads and prints at a time, so that the first ones appear immediately."""


@command("note", "note 3 power limit 300 W", "note 3")
@run_argument
@click.argument("text", nargs=-1, metavar="[TEXT]...", help='The note; "" removes it; without it, it is shown.')
def note(database: Path | None, as_json: bool, run: int, text: Sequence[str]) -> int:
    """Keep a note on a run, or print the stored one."""
    with open_store(database) as store:
        if text:
            store.library.set_note(run, " ".join(text))
        row = store.load(run, fields=()).row
    if as_json:
        print_json(list_document([row]))
    else:
        print(row.note or f"Run {row.run} has no note.")
    return 0


@command("tag", "tag --add paper 3 4 5", "tag --remove paper 3")
@click.option("--add", multiple=True, metavar="TAG", help="A tag to add; may be repeated.")
@click.option("--remove", multiple=True, metavar="TAG", help="A tag to remove; may be repeated.")
@runs_argument(required=True)
def tag(database: Path | None, as_json: bool, add: Sequence[str], remove: Sequence[str], runs: Sequence[int]) -> int:
    """Give tags to runs or take them off, and print the tags that each has now."""
    if not (add or remove):
        raise UsageError("tag needs --add TAG or --remove TAG.")
    with open_store(database) as store:
        for word in add:
            store.library.add_tag(runs, word)
        for word in remove:
            store.library.remove_tag(runs, word)
        rows = store.library.run_rows(runs)
    if as_json:
        print_json(list_document(rows))
    else:
        for row in rows:
            print(f"run {row.run}: {', '.join(row.tags) or 'no tags'}")
    return 0


def _read_days(word: str) -> float:
    """Return days from `30d`, `12h`, `2w` or a bare number of days."""
    number, unit = (word[:-1], word[-1]) if word[-1:] in _DAYS else (word, "d")
    with contextlib.suppress(ValueError):
        if 0 <= (days := float(number) * _DAYS[unit]) <= 36_500:
            return days
    raise ValueError(f"{word!r} is not an age such as 30d, 12h or 2w, up to 36500 days")


@command("delete", "delete 3 4", "delete --for-good 3", "delete --samples-older-than 30d --dry-run")
@runs_argument(required=False)
@click.option("--for-good", is_flag=True, help="Delete runs that are in the trash, with their samples.")
@click.option(
    "--samples-older-than",
    type=Parsed(_read_days),
    metavar="AGE",
    help="Delete samples and log lines of all runs that ended more than AGE ago (30d, 12h or 2w), for good;"
    " figures, phases and blocks stay.",
)
@click.option("--dry-run", is_flag=True, help="With --samples-older-than: show what would be deleted; delete nothing.")
def delete(
    database: Path | None,
    as_json: bool,
    runs: Sequence[int],
    for_good: bool,
    samples_older_than: float | None,
    dry_run: bool,
) -> int:
    """Put runs into the trash; with `for_good`, delete those that are in it; or delete samples of old runs."""
    if samples_older_than is not None:
        if runs or for_good:
            raise UsageError("--samples-older-than is about all runs: leave out --for-good and the numbers of runs.")
        return _delete_samples(database, samples_older_than, dry_run=dry_run, as_json=as_json)
    if not runs or dry_run:
        raise UsageError("delete takes the numbers of runs, or --samples-older-than AGE, which --dry-run goes with.")
    with open_store(database) as store:
        if for_good:
            store.library.purge(runs)
            sentence = f"{format_run_count(len(runs))} deleted for good; later runs fill the space in the file."
            return _print_moved(store.library, [], sentence, as_json=as_json)
        moved = store.library.delete(runs)
        undo = f"`{PROGRAM} restore {' '.join(map(str, moved))}` undoes it."
        done = f"{format_run_count(len(moved))} put into the trash. {undo}"
        sentence = done if moved else "Nothing to do: already in the trash."
        return _print_moved(store.library, moved, sentence, as_json=as_json)


@command("restore", "restore 3 4")
@runs_argument(required=True)
def restore(database: Path | None, as_json: bool, runs: Sequence[int]) -> int:
    """Take runs out of the trash."""
    with open_store(database) as store:
        moved = store.library.restore(runs)
        done = f"{format_run_count(len(moved))} taken out of the trash."
        sentence = done if moved else f"Nothing to do: the trash has no run {', '.join(map(str, runs))}."
        return _print_moved(store.library, moved, sentence, as_json=as_json)


def _print_moved(library: Library, moved: Sequence[int], sentence: str, *, as_json: bool) -> int:
    if as_json:
        print_json(list_document(library.run_rows(moved)))
    else:
        print(sentence)
    return 0


@command("list", "list --tag paper --sort throughput --limit 10", "list presets", "list parameters lstm")
@click.argument(
    "kind", type=Verb(_KINDS), default="runs", metavar="[KIND]", help=f"{', '.join(_KINDS)} (default: runs)."
)
@click.argument("workload_name", required=False, metavar="[WORKLOAD]", help="With parameters: the workload.")
@filter_options
@click.option("--deleted", is_flag=True, help="Only the runs in the trash.")
@click.option(
    "--sort",
    type=click.Choice(RUN_ORDERS),
    default="started",
    metavar="COLUMN",
    help=f"Order by one of {', '.join(RUN_ORDERS)}.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", type=COUNT, metavar="N", help="At most N runs.")
def list_runs(
    database: Path | None,
    as_json: bool,
    kind: str,
    workload_name: str | None,
    run_filter: RunFilter,
    limit: int | None,
) -> int:
    """Print the runs wanted, newest first unless requested otherwise, or what else there is of a kind."""
    if (workload_name is None) == (kind == "parameters"):
        raise UsageError("list parameters takes a workload, such as lstm; other lists take none.")
    of_all = {"kind", "workload_name", "database", "as_json"}
    of_runs = given_parameters(click.get_current_context()) - of_all
    if of_runs and kind != "runs":
        raise UsageError(f"{', '.join(sorted(map(option_name, of_runs)))} goes with runs, not with list {kind}.")
    if kind == "presets":
        from app.cli.experiment import list_presets  # here, as below: few lists need it

        return list_presets(database, as_json=as_json)
    if workload_name is not None:
        from app.cli.run import list_parameters

        return list_parameters(workload_name, database, as_json=as_json)
    with open_store(database) as store:
        if kind == "experiments":
            _print_experiments(store.library.experiments(), as_json=as_json)
            return 0
        query = run_query(run_filter, store.library)
        matches = store.library.search(query)
        is_cut = limit is None and not as_json and is_terminal() and len(matches.runs) > _TERMINAL_RUNS
        runs = matches.runs[: _TERMINAL_RUNS if is_cut else limit]
        pages = (store.library.run_rows(runs[start : start + _PAGE_RUNS]) for start in range(0, len(runs), _PAGE_RUNS))
        if as_json:
            print_json_list("runs", (listed_document(row) for page in pages for row in page))
            return 0
        totals, path = store.library.totals(deleted=query.deleted), store.path
        for number, page in enumerate(pages):
            _print_page(page, with_host=totals.other_hosts, with_header=number == 0)
    if runs:
        print(
            f"{_format_count(len(runs), totals.total)}, {units.byte_size(retention.size_bytes(path))} in {path}",
            file=sys.stderr,
        )
        if is_cut:
            say(f"--limit {len(matches.runs)} lists {len(matches.runs) - len(runs):,} more.")
    else:
        print(_describe_empty(totals.total, query))
    if matches.left_out:
        say(f"{describe_left_out(matches)}: --search {shlex.quote(matches.wider)}")
    return 0


def _print_page(rows: Sequence[RunRow], *, with_host: bool, with_header: bool) -> None:
    names = [metric.name for metric in _LISTED]
    header = ("run", "started", "variant", *(["host"] if with_host else []), "outcome", "evidence", *names, "tags")
    first = header.index("evidence") + 1
    print_table(
        header if with_header else [""] * len(header),
        [_list_row(row, with_host=with_host) for row in rows],
        right=frozenset({0, *range(first, first + len(names))}),
        spare=(*names[:0:-1], "started", "evidence", "tags"),
    )


def run_query(run_filter: RunFilter, library: Library) -> RunQuery:
    """Return the query for the selected runs; raises `UserError` for an unknown experiment."""
    return RunQuery(
        text=run_filter.search,
        workload=run_filter.workload,
        outcome=run_filter.outcome,
        tag=run_filter.tag,
        experiment=None if run_filter.experiment is None else _experiment_number(run_filter.experiment, library),
        deleted=run_filter.deleted,
        order=run_filter.sort,
        descending=(run_filter.sort not in TEXT_ORDERS) != run_filter.reverse,
    )


def _experiment_number(word: str, library: Library) -> int:
    """Return an experiment's number from its number, name or preset, the newest if several; raises `UserError`."""
    rows = ((stored.experiment, stored.name, stored.preset) for stored in library.experiments())
    named = [number for number, name, preset in rows if word in (str(number), name, preset)]
    if not named:
        raise UserError(f"There is no experiment {word!r}; `{PROGRAM} list experiments` lists all.")
    return named[0]


def _list_row(row: RunRow, *, with_host: bool) -> tuple[str, ...]:
    outcome = row.outcome.name if row.outcome else "running"
    metrics = [metric.text(metric.row_value(row), cells.example_word(row.spec, row.summary)) for metric in _LISTED]
    started = units.local_time(row.started_utc_ns)
    name = " · ".join(filter(None, (short_name(row.spec), row.purpose)))
    hosts = [row.host or ""] if with_host else []
    return (str(row.run), started, name, *hosts, outcome, cells.verified(row).symbol, *metrics, ", ".join(row.tags))


def _format_count(count: int, total: int) -> str:
    total_text = f"{total:,} {units.plural('run', total)}"
    return total_text if count == total else f"{count:,} of {total_text}"


def _describe_empty(total: int, query: RunQuery) -> str:
    if total:
        return f"No run matches, of {total:,} {units.plural('run', total)}."
    if query.deleted:
        return "The trash is empty."
    return f"No runs yet. `{PROGRAM} run lstm` starts the first one; `{PROGRAM} reference` lists H200 runs."


def _print_experiments(experiments: list[StoredExperiment], *, as_json: bool) -> None:
    if as_json:
        print_json({"experiments": [_experiment_document(experiment) for experiment in experiments]})
    elif experiments:
        rows = (
            (str(e.experiment), units.local_time(e.created_utc_ns), e.name, f"{len(e.runs):,}") for e in experiments
        )
        print_table(("experiment", "begun", "name", "runs"), list(rows), right=frozenset({0, 3}))
    else:
        print(f"No experiments yet. `{PROGRAM} experiment --preset quick` runs the first one.")


def _experiment_document(experiment: StoredExperiment) -> dict[str, Any]:
    return {
        "experiment": experiment.experiment,
        "uid": experiment.uid,
        "name": experiment.name,
        "preset": experiment.preset,
        "created_utc": iso_utc(experiment.created_utc_ns),
        "runs": list(experiment.runs),
    }


def _delete_samples(database: Path | None, older_than_days: float, *, dry_run: bool, as_json: bool) -> int:
    with open_store(database) as store:
        path = store.path
    if not (dry_run or as_json):
        print(
            "Deleting samples and log lines, and packing the file; "
            f"about a second for each {units.byte_size(100 * 2**20)} …",
            file=sys.stderr,
        )
    pruned = prune(path, older_than_days, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, **asdict(pruned)})
    else:
        print(describe_pruned(pruned, dry_run=dry_run))
    return 0


def describe_pruned(pruned: Pruned, *, dry_run: bool) -> str:
    """Return what was or would be deleted, in a sentence or two."""
    if not pruned.runs:
        return "No run is old enough: nothing to delete."
    runs = format_run_count(len(pruned.runs))
    if dry_run:
        return f"Would delete {pruned.rows:,} samples and log lines of {runs}; figures, phases and blocks stay."
    sizes = f"The database took {units.byte_size(pruned.before_bytes)}, now {units.byte_size(pruned.after_bytes)}."
    packed = "" if pruned.packed else " There is no room to pack the file: later runs fill the space."
    return (
        f"Deleted {pruned.rows:,} samples and log lines of {runs} in {units.seconds(pruned.seconds)}. {sizes}{packed}"
    )
