"""Exposes runs as flat tables for other programs, with relative and UTC times."""

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.storage.database import open_database, translate_sqlite_errors
from app.storage.transfer.copying import (
    DEVICE_TABLES,
    DEVICES,
    EXPERIMENT_RUNS,
    EXPERIMENTS,
    RUN_TABLES,
    RUNS,
    TRANSFERRED,
    Column,
    Table,
    columns,
    count_rows,
    require_exportable,
)
from app.storage.transfer.progress import RowCounter, TransferProgress
from workloads.kernels import classify, on_tensor_cores

Row = Sequence[Any]

Kind = Literal["integer", "real", "text", "utc"]

_SINCE_START = {
    "t_ns": "utc",
    "start_ns": "start_utc",
    "end_ns": "end_utc",
    "tested_ns": "tested_utc",
    "lost_t_ns": "lost_utc",
}
"""Columns with times on the monotonic clock, and the names of their UTC columns."""

_BY_NAME = {"kind": classify, "tensor_cores": on_tensor_cores}
"""Columns of `kernels` that the program derives from its name now, not when they were stored."""

_OMITTED = {
    "run",
    "device_id",
    "experiment",
    "owner_pid",
    "owner_started_s",
    "owner_boot_id",
    "started_t_ns",
    "started_utc",
    "deleted_utc_ns",
}
"""Columns that mean nothing outside their database, or that another column replaces."""
_BATCH_ROWS = 20_000
"""Rows in memory at a time."""
_KINDS: dict[str, Kind] = {"INTEGER": "integer", "REAL": "real", "TEXT": "text"}


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A column of a flat table; values of kind `utc` are nanoseconds since 1970. `sql` selects it."""

    name: str
    kind: Kind
    sql: str


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A flat table: the rows of `source` that belong to the exported runs."""

    name: str
    columns: tuple[FlatColumn, ...]
    source: Table
    joined: str
    order: str


class FlatRuns:
    """Some runs of an open database as flat tables, all read in one transaction."""

    def __init__(self, connection: sqlite3.Connection, runs: Sequence[int], counter: RowCounter) -> None:
        self._connection = connection
        self._runs = runs
        self._counter = counter
        for name, function in _BY_NAME.items():
            connection.create_function(name, 1, function)
        flat = (RUNS, DEVICES, *RUN_TABLES, *DEVICE_TABLES, EXPERIMENT_RUNS)
        self.tables = tuple(_flat_table(connection, table) for table in flat)

    def batches(self, table: FlatTable) -> Iterator[list[Row]]:
        """Yield the rows of a table, some thousands at a time, in the order of the runs."""
        rows = self._counter.rows(self._rows(table))
        while batch := list(itertools.islice(rows, _BATCH_ROWS)):
            yield batch

    def _rows(self, table: FlatTable) -> Iterator[Row]:
        key = "device_id" if table.source in DEVICE_TABLES else "run"
        names = ", ".join(column.sql for column in table.columns)
        # One query per run or device: rows then come in the order of the table's key, and SQLite need not sort them.
        sql = f"SELECT {names} FROM {table.joined} WHERE t.{key} = ? ORDER BY {table.order}"
        values = self._device_ids() if key == "device_id" else iter(self._runs)
        # Not `yield from` the cursor: whichever thread drops the rest of a stopped export would close it.
        return itertools.chain.from_iterable(self._connection.execute(sql, (value,)) for value in values)

    def _device_ids(self) -> Iterator[int]:
        for run in self._runs:
            cursor = self._connection.execute("SELECT device_id FROM devices WHERE run = ? ORDER BY device_id", (run,))
            yield from (device_id for (device_id,) in cursor.fetchall())


@contextlib.contextmanager
def open_flat_tables(database: Path, runs: Sequence[int], progress: TransferProgress) -> Iterator[FlatRuns]:
    """Open the runs as flat tables; `progress` gets the share of rows read, and may stop it.

    Raises:
        UserError: A run cannot be exported.
    """
    with contextlib.closing(open_database(database)) as db, translate_sqlite_errors(database):
        db.conn.execute("BEGIN")
        require_exportable(db.conn, runs, database)
        total = count_rows(db.conn, runs, (table.name for table in TRANSFERRED))
        yield FlatRuns(db.conn, runs, RowCounter(progress, total))


def _flat_table(connection: sqlite3.Connection, table: Table) -> FlatTable:
    name = EXPERIMENTS.name if table == EXPERIMENT_RUNS else table.name
    key = "SELECT 't.' || name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
    order = ", ".join(part for (part,) in connection.execute(key, (table.name,)))
    return FlatTable(name, tuple(_all_flat_columns(connection, table)), table, _join_clause(table), order)


def _join_clause(table: Table) -> str:
    joins = "devices USING (device_id) JOIN" if table in DEVICE_TABLES else ""
    joins = "experiments USING (experiment) JOIN" if table == EXPERIMENT_RUNS else joins
    return f"{table.name} AS t JOIN {joins} runs USING (run)"


def _all_flat_columns(connection: sqlite3.Connection, table: Table) -> Iterator[FlatColumn]:
    yield FlatColumn("run", "integer", "runs.run")
    if table in DEVICE_TABLES:
        yield FlatColumn("device", "text", "devices.device")
    for column in columns(connection, table.name):
        if table.name == "kernels" and column.name in _BY_NAME:
            yield FlatColumn(column.name, _KINDS[column.type], f"{column.name}(t.name)")
        else:
            yield from _flat_columns(column, "t")
    if table == EXPERIMENT_RUNS:
        for column in columns(connection, EXPERIMENTS.name):
            yield from _flat_columns(column, "experiments")


def _flat_columns(column: Column, table: str) -> Iterator[FlatColumn]:
    """Yield the flat columns of a column: none for a database's own number, two for a time."""
    name, sql = column.name, f"{table}.{column.name}"
    if name in _OMITTED:
        return
    if name in _SINCE_START:
        since_start = f"{sql} - runs.started_t_ns"
        yield FlatColumn(name, "integer", since_start)
        yield FlatColumn(_SINCE_START[name], "utc", f"runs.started_utc_ns + {since_start}")
    elif name.endswith("utc_ns"):
        yield FlatColumn(name.removesuffix("_ns"), "utc", sql)
    else:
        yield FlatColumn(name, _KINDS[column.type], sql)
