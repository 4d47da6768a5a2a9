"""`list`: the stored runs that are asked for, or the experiments."""

import sys
from argparse import Namespace
from typing import Any

from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table
from app.errors import UserError
from app.queries import WORD_ORDERS, RunQuery, StoredExperiment
from app.records import RunRow
from app.report.documents import iso_utc, list_document
from app.storage import retention
from app.storage.library import Library
from app.viewmodels import cells, units
from app.viewmodels.naming import short_name


def list_runs(chosen: Namespace) -> int:
    """Prints the runs asked for, newest first unless told otherwise; with `experiments`, those instead."""
    with opened_store(chosen.db) as store:
        if chosen.experiments:
            _print_experiments(store.library.experiments(), as_json=chosen.json)
            return 0
        found = store.library.find(query := asked(chosen, store.library))
        rows = store.library.run_rows(found[: chosen.limit])
        total, path = store.library.facets(deleted=query.deleted).total, store.path
    if chosen.json:
        print_json(list_document(rows))
        return 0
    if rows:
        header = ("run", "started", "variant", "outcome", "as asked", "throughput", "tags")
        print_table(header, [_list_row(row) for row in rows], right=frozenset({0, 5}))
        print(f"{_count(len(rows), total)}, {units.byte_size(retention.size_bytes(path))} in {path}", file=sys.stderr)
    else:
        print(_nothing(total, query))
    return 0


def asked(chosen: Namespace, library: Library) -> RunQuery:
    """The query that the words of the command line make."""
    return RunQuery(
        text=chosen.search,
        workload=chosen.workload,
        outcome=chosen.outcome,
        tag=chosen.tag,
        experiment=None if chosen.experiment is None else _experiment(chosen.experiment, library),
        deleted=chosen.deleted,
        order=chosen.sort,
        descending=(chosen.sort not in WORD_ORDERS) != chosen.reverse,
    )


def _experiment(word: str, library: Library) -> int:
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
    return (str(row.run), started, name, outcome, cells.as_asked(row).symbol, throughput, ", ".join(row.tags))


def _count(shown: int, total: int) -> str:
    there = f"{total:,} {units.plural('run', total)}"
    return there if shown == total else f"{shown:,} of {there}"


def _nothing(total: int, query: RunQuery) -> str:
    if total:
        return f"No run matches, of {total:,} {units.plural('run', total)}."
    if query.deleted:
        return "The trash is empty."
    return "No runs yet. `python -m app run lstm` makes the first one; `python -m app reference` has some of real GPUs."


def _print_experiments(found: list[StoredExperiment], *, as_json: bool) -> None:
    if as_json:
        print_json({"experiments": [_document(experiment) for experiment in found]})
    elif found:
        cells_of = ((str(e.experiment), units.utc_time(e.created_utc_ns), e.name, f"{len(e.runs):,}") for e in found)
        print_table(("experiment", "begun", "name", "runs"), list(cells_of), right=frozenset({0, 3}))
    else:
        print("No experiments yet. `python -m app experiment --preset quick` makes the first one.")


def _document(experiment: StoredExperiment) -> dict[str, Any]:
    return {
        "experiment": experiment.experiment,
        "uid": experiment.uid,
        "name": experiment.name,
        "preset": experiment.preset,
        "created_utc": iso_utc(experiment.created_utc_ns),
        "runs": list(experiment.runs),
    }
