"""`list`, `note`, `tag`, `delete`, `restore` and `prune`: the stored runs found, annotated and removed."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from app import units
from app.cli.services import open_store
from app.cli.terminal import print_json, print_table
from app.errors import UserError
from app.queries import TEXT_ORDERS, RunQuery, StoredExperiment
from app.records import RunRow
from app.report.documents import iso_utc, list_document
from app.storage import retention
from app.storage.library import Library
from app.storage.retention import Pruned, prune
from app.viewmodels.format import cells
from app.viewmodels.format.naming import short_name
from workloads.catalog import UsageError


def note(chosen: Namespace) -> int:
    """Keeps a note on a run, or prints the one there is."""
    with open_store(chosen.db) as store:
        if chosen.text is not None:
            store.library.set_note(chosen.run, chosen.text)
        row = store.load(chosen.run, fields=()).row
    if chosen.json:
        print_json(list_document([row]))
    else:
        print(row.note or f"Run {row.run} has no note.")
    return 0


def tag(chosen: Namespace) -> int:
    """Gives tags to runs or takes them off, and prints the tags each has now."""
    if not (chosen.add or chosen.remove):
        raise UsageError("tag needs --add TAG or --remove TAG.")
    with open_store(chosen.db) as store:
        for word in chosen.add:
            store.library.add_tag(chosen.runs, word)
        for word in chosen.remove:
            store.library.remove_tag(chosen.runs, word)
        rows = store.library.run_rows(chosen.runs)
    if chosen.json:
        print_json(list_document(rows))
    else:
        for row in rows:
            print(f"run {row.run}: {', '.join(row.tags) or 'no tags'}")
    return 0


def delete(chosen: Namespace) -> int:
    """Puts runs into the trash; with `for_good`, deletes those that are in it."""
    with open_store(chosen.db) as store:
        if chosen.for_good:
            store.library.purge(chosen.runs)
            done = f"{_count_runs(chosen.runs)} deleted for good; later runs fill the space in the file."
            return _print_moved(store.library, [], done, chosen)
        moved = store.library.delete(chosen.runs)
        undo = f"`python -m app restore {' '.join(map(str, moved))}` undoes it."
        done = f"{_count_runs(moved)} put into the trash. {undo}" if moved else "Nothing to do: in the trash already."
        return _print_moved(store.library, moved, done, chosen)


def restore(chosen: Namespace) -> int:
    """Takes runs out of the trash."""
    with open_store(chosen.db) as store:
        moved = store.library.restore(chosen.runs)
        done = f"{_count_runs(moved)} taken out of the trash." if moved else "Nothing to do: not in the trash."
        return _print_moved(store.library, moved, done, chosen)


def _print_moved(library: Library, moved: Sequence[int], done: str, chosen: Namespace) -> int:
    if chosen.json:
        print_json(list_document(library.run_rows(moved)))
    else:
        print(done)
    return 0


def _count_runs(runs: Sequence[int]) -> str:
    return f"{len(runs):,} {units.plural('run', len(runs))}"


def list_runs(chosen: Namespace) -> int:
    """Prints the runs asked for, newest first unless told otherwise; with `experiments`, those instead."""
    with open_store(chosen.db) as store:
        if chosen.experiments:
            _print_experiments(store.library.experiments(), as_json=chosen.json)
            return 0
        found = store.library.find(query := run_query(chosen, store.library))
        rows = store.library.run_rows(found[: chosen.limit])
        total, path = store.library.facets(deleted=query.deleted).total, store.path
    if chosen.json:
        print_json(list_document(rows))
        return 0
    if rows:
        header = ("run", "started", "variant", "outcome", "as asked", "throughput", "tags")
        print_table(header, [_list_row(row) for row in rows], right=frozenset({0, 5}))
        print(
            f"{_format_count(len(rows), total)}, {units.byte_size(retention.size_bytes(path))} in {path}",
            file=sys.stderr,
        )
    else:
        print(_describe_empty(total, query))
    return 0


def run_query(chosen: Namespace, library: Library) -> RunQuery:
    """The query that the words of the command line make."""
    return RunQuery(
        text=chosen.search,
        workload=chosen.workload,
        outcome=chosen.outcome,
        tag=chosen.tag,
        experiment=None if chosen.experiment is None else _experiment_number(chosen.experiment, library),
        deleted=chosen.deleted,
        order=chosen.sort,
        descending=(chosen.sort not in TEXT_ORDERS) != chosen.reverse,
    )


def _experiment_number(word: str, library: Library) -> int:
    """The number of an experiment of that number or name, the newest of several."""
    known = library.experiments()
    named = [found.experiment for found in known if word in (str(found.experiment), found.name)]
    if not named:
        raise UserError(f"There is no experiment {word!r}; `python -m app list --experiments` shows what there is.")
    return named[0]


def _list_row(row: RunRow) -> tuple[str, ...]:
    outcome = row.outcome.name if row.outcome else "running"
    throughput = units.rate(row.summary.throughput, cells.example_word(row.spec))
    started = units.utc_time(row.started_utc_ns)
    name = " · ".join(filter(None, (short_name(row.spec), row.purpose)))
    return (str(row.run), started, name, outcome, cells.verified(row).symbol, throughput, ", ".join(row.tags))


def _format_count(shown: int, total: int) -> str:
    there = f"{total:,} {units.plural('run', total)}"
    return there if shown == total else f"{shown:,} of {there}"


def _describe_empty(total: int, query: RunQuery) -> str:
    if total:
        return f"No run matches, of {total:,} {units.plural('run', total)}."
    if query.deleted:
        return "The trash is empty."
    return "No runs yet. `python -m app run lstm` makes the first one; `python -m app reference` has some of real GPUs."


def _print_experiments(found: list[StoredExperiment], *, as_json: bool) -> None:
    if as_json:
        print_json({"experiments": [_experiment_document(experiment) for experiment in found]})
    elif found:
        rows = ((str(e.experiment), units.utc_time(e.created_utc_ns), e.name, f"{len(e.runs):,}") for e in found)
        print_table(("experiment", "begun", "name", "runs"), list(rows), right=frozenset({0, 3}))
    else:
        print("No experiments yet. `python -m app experiment --preset quick` makes the first one.")


def _experiment_document(experiment: StoredExperiment) -> dict[str, Any]:
    return {
        "experiment": experiment.experiment,
        "uid": experiment.uid,
        "name": experiment.name,
        "preset": experiment.preset,
        "created_utc": iso_utc(experiment.created_utc_ns),
        "runs": list(experiment.runs),
    }


def prune_runs(chosen: Namespace) -> int:
    """Prunes and prints what that did, or would do."""
    with open_store(chosen.db) as store:
        path = store.path
    if not (chosen.dry_run or chosen.json):
        print("Deleting samples and packing the file; about a second for each 100 MB …", file=sys.stderr)
    done = prune(path, chosen.older_than, dry_run=chosen.dry_run)
    if chosen.json:
        print_json(_prune_document(done, dry_run=chosen.dry_run))
    else:
        print(describe_pruned(done, dry_run=chosen.dry_run))
    return 0


def _prune_document(done: Pruned, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "runs": list(done.runs),
        "rows": done.rows,
        "before_bytes": done.before_bytes,
        "after_bytes": done.after_bytes,
        "seconds": done.seconds,
        "packed": done.packed,
    }


def describe_pruned(done: Pruned, *, dry_run: bool) -> str:
    """What was done in a sentence or two."""
    if not done.runs:
        return "No run is old enough: nothing to delete."
    runs = f"{len(done.runs):,} {units.plural('run', len(done.runs))}"
    if dry_run:
        return f"Would delete {done.rows:,} samples and log lines of {runs}; figures, phases and blocks stay."
    sizes = f"The database took {units.byte_size(done.before_bytes)}, now {units.byte_size(done.after_bytes)}."
    packed = "" if done.packed else " There is no room to pack the file: later runs fill the space."
    return f"Deleted {done.rows:,} samples and log lines of {runs} in {units.seconds(done.seconds)}. {sizes}{packed}"
