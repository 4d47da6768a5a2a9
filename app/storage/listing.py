"""Find the runs that match a query, and load them as rows of a list."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlite_utils import Database

from app.errors import UserError
from app.metrics import METRICS
from app.paths import PROGRAM
from app.queries import RUN_ORDERS, FoundRuns, RunQuery, Totals
from app.records import RunRow
from app.storage import rows
from app.storage.facets import RUNNING, query_conditions, utf8_safe
from app.storage.search import match_runs

_PART_ROWS = 100

TRASH = "SELECT run FROM runs WHERE deleted_utc_ns IS NOT NULL"
"""SQL of the runs in the trash; an index answers it without reading the wide rows."""

_DEVICES = "(SELECT group_concat(name, ' ') FROM devices WHERE devices.run = runs.run AND kind = 'gpu')"
_EVIDENCE_STATE = "(SELECT state FROM evidence INDEXED BY evidence_listed WHERE run = runs.run)"
_ORDERS: Mapping[str, Sequence[str]] = {
    "run": ("run",),
    "match": ("started_utc_ns",),
    "started": ("started_utc_ns",),
    "workload": ("workload",),
    "variant": ("implementation", "layout", "gpus", "batch_size", "precision", "xla"),
    "tags": ("(SELECT group_concat(tag, ', ') FROM tags WHERE tags.run = runs.run)",),
    "host": ("host",),
    "devices": (f"coalesce({_DEVICES}, iif(gpus = 0, 'CPU', 'GPU'))", "gpus"),
    "outcome": (f"coalesce(outcome, '{RUNNING}')",),
    "evidence": (_EVIDENCE_STATE,),
    **{metric.list_column.order: (metric.list_column.sql,) for metric in METRICS if metric.list_column},
}
"""SQL expressions of each order, most significant first. A variant sorts by its parts: batch size 64 before 1024.

How well a search matches is no column: runs that match alike are ordered as here.
"""

assert set(_ORDERS) == set(RUN_ORDERS), "every order is known"


def no_such_run(run: int, path: Path) -> UserError:
    """Return the error for a number that is no run."""
    return UserError(f"There is no run {run} in {path}; `{PROGRAM} list` shows what there is.")


def find_runs(db: Database, query: RunQuery) -> FoundRuns:
    """Return the numbers of the runs that match a query, in its order; ties newest first.

    Raises:
        UserError: The search has too many words.
    """
    conditions, values = query_conditions(query)
    matches = match_runs(db, utf8_safe(query.text), conditions, values)
    if matches is not None:
        conditions.append("run IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(matches.fields)))
    direction = "DESC" if query.descending else "ASC"
    keys = [f"{key} IS NULL, {key} {direction}" for key in _ORDERS[query.order]]
    # All numbers as one value: fetched row by row, this thread would wait for the GUI thread's lock at every row.
    (found,) = db.execute(
        "SELECT json_group_array(run) FROM (SELECT run FROM runs"
        f" WHERE {' AND '.join(conditions)} ORDER BY {', '.join(keys)}, run DESC LIMIT -1)",
        values,
    ).fetchone()
    runs = msgspec.json.decode(found, type=list[int])
    if matches is None:
        return FoundRuns(runs=runs)
    if query.order == "match":
        runs.sort(key=matches.ranks.__getitem__, reverse=not query.descending)
    return FoundRuns(runs=runs, fields=matches.fields, left_out=matches.left_out, wider=matches.wider)


def count_runs(db: Database, *, deleted: bool) -> Totals:
    """Count all runs, or those in the trash."""
    in_trash = f"deleted_utc_ns IS {'NOT ' if deleted else ''}NULL"
    total, in_any_trash, other_hosts = db.execute(
        f"SELECT count(*) FILTER (WHERE {in_trash}), count(deleted_utc_ns), count(host) FILTER (WHERE {in_trash})"
        " FROM runs INDEXED BY runs_listed"
    ).fetchone()
    tags = db.execute(f"SELECT tag, count(*) FROM tags WHERE run {'' if deleted else 'NOT'} IN ({TRASH}) GROUP BY tag")
    return Totals(total=total, deleted=in_any_trash, tags=dict(tags.fetchall()), other_hosts=other_hosts > 0)


def load_rows(db: Database, runs: Sequence[int]) -> list[RunRow]:
    """Return the rows of these runs in this order, without runs that were deleted."""
    found = {row.run: row for row in select_rows(db, "run IN (SELECT value FROM json_each(?))", json.dumps(list(runs)))}
    return [found[run] for run in runs if run in found]


def select_rows(db: Database, condition: str, *values: Any) -> list[RunRow]:
    """Return the rows of the runs for which an SQL condition on `runs` is true; the SQL may end in ORDER BY."""
    return list(each_row(db, condition, *values))


def each_row(db: Database, condition: str, *values: Any) -> Iterator[RunRow]:
    """Yield what `select_rows` returns; of a part at a time, for what is read of a run is three times its row."""
    columns = (
        *(f"runs.{name}" for name in rows.RUN_COLUMNS),
        rows.PLANNED_SQL,
        *(f"evidence.{name}" for name in rows.EVIDENCE_LIST_COLUMNS),
    )
    found = db.execute(
        f"SELECT {', '.join(columns)} FROM runs LEFT JOIN evidence USING (run) WHERE {condition}", values
    )
    while part := found.fetchmany(_PART_ROWS):
        runs = json.dumps([row[0] for row in part])
        gpu_names, uuids = (
            _values_by_run(db, column, "devices WHERE kind = 'gpu' AND", "device_index", runs)
            for column in ("name", "device")
        )
        tags = _values_by_run(db, "tag", "tags WHERE", "tag", runs)
        experiments = _values_by_run(db, "experiment", "experiment_runs WHERE", "experiment", runs)
        for row in part:
            lists = (by_run.get(row[0], ()) for by_run in (gpu_names, uuids, tags, experiments))
            yield rows.run_row(row, *lists)


def _values_by_run(db: Database, column: str, table: str, order: str, runs: str) -> dict[int, tuple[Any, ...]]:
    """Return all values of a column by run, in order."""
    by_run: dict[int, list[Any]] = {}
    sql = f"SELECT run, {column} FROM {table} run IN (SELECT value FROM json_each(?)) ORDER BY run, {order}"
    for run, value in db.execute(sql, (runs,)):
        by_run.setdefault(run, []).append(value)
    return {run: tuple(values) for run, values in by_run.items()}
