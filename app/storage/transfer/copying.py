"""Copies runs between two databases of this schema on one connection, under new numbers."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import UserError
from app.paths import PROGRAM
from app.storage.listing import no_such_run
from app.storage.transfer.progress import RowCounter


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows are transferred; `key` is the column with the number of a row's owner."""

    name: str
    key: str


RUNS = Table("runs", "run")
DEVICES = Table("devices", "device_id")
RUN_TABLES = tuple(
    Table(name, "run")
    for name in (
        "phases",
        "blocks",
        "epochs",
        "log_lines",
        "evidence",
        "kernels",
        "device_times",
        "step_traces",
        "step_streams",
        "step_kernels",
        "portability",
        "equality",
        "tags",
    )
)
DEVICE_TABLES = (Table("samples", "device_id"), Table("slow_samples", "device_id"))
EXPERIMENTS = Table("experiments", "experiment")
EXPERIMENT_RUNS = Table("experiment_runs", "experiment")
QUEUE = Table("queue", "entry")
TRANSFERRED = (RUNS, DEVICES, *RUN_TABLES, *DEVICE_TABLES, EXPERIMENTS, EXPERIMENT_RUNS, QUEUE)
"""In the order in which rows can be inserted: referenced tables come first."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the schema: `type` is INTEGER, REAL or TEXT; SQLite computes a `generated` one from others."""

    name: str
    type: str
    generated: bool = False


def columns(connection: sqlite3.Connection, table: str) -> tuple[Column, ...]:
    """Return the columns of one of our tables in `main`; () if this version of the schema lacks it.

    Hidden columns of kind 2 and 3 are generated: https://www.sqlite.org/pragma.html#pragma_table_xinfo
    """
    cursor = connection.execute("SELECT name, type, hidden FROM pragma_table_xinfo(?, 'main')", (table,))
    return tuple(Column(name, kind, hidden in (2, 3)) for name, kind, hidden in cursor)


def stored_columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the names of the columns of a table, without generated ones."""
    return tuple(column.name for column in columns(connection, table) if not column.generated)


_LARGE_RUN_TABLES = ("blocks", "log_lines", "kernels", "step_kernels")
"""Tables besides samples in which a run may have many rows."""


def count_rows(connection: sqlite3.Connection, runs: Iterable[int], tables: Iterable[str], schema: str = "main") -> int:
    """Count the rows of runs in the large ones of these tables, which determine how long copying takes.

    `schema` is the name of the attached database.
    """
    large = {table.name for table in DEVICE_TABLES} | set(_LARGE_RUN_TABLES)
    count = 0
    for table in large.intersection(tables):
        condition = "run = ?"
        if table not in _LARGE_RUN_TABLES:
            condition = f"device_id IN (SELECT device_id FROM {schema}.devices WHERE run = ?)"
        for run in runs:
            count += connection.execute(f"SELECT count(*) FROM {schema}.{table} WHERE {condition}", (run,)).fetchone()[
                0
            ]
    return count


def require_exportable(connection: sqlite3.Connection, runs: Iterable[int], path: Path, schema: str = "main") -> None:
    """Check that runs can be exported; `schema` is the name of the attached database.

    Raises:
        UserError: A number is not a run, or the run is in progress or in the trash.
    """
    for run in runs:
        row = connection.execute(
            f"SELECT outcome IS NULL, deleted_utc_ns IS NOT NULL FROM {schema}.runs WHERE run = ?", (run,)
        ).fetchone()
        if row is None:
            raise no_such_run(run, path)
        is_running, is_deleted = row
        if is_running:
            raise UserError(f"Run {run} is still in progress; export it when it has ended.")
        if is_deleted:
            raise UserError(f"Run {run} is in the trash; `{PROGRAM} restore {run}` takes it out.")


class RunCopier:
    """Copies runs from an attached database into `main`, in the caller's transaction.

    Both databases have the newest schema and were created by this program; `source` is the attached one's name.
    """

    def __init__(self, connection: sqlite3.Connection, source: str, counter: RowCounter) -> None:
        self._connection = connection
        self._source = source
        self._counter = counter
        self._names = {table.name: stored_columns(connection, table.name) for table in TRANSFERRED}
        self._experiments: dict[int, int] = {}

    def copy(self, runs: Sequence[int]) -> tuple[int, ...]:
        """Copy the runs with everything that belongs to them; return their new numbers in the same order."""
        numbers = {run: self._copy_run(run) for run in runs}
        self._copy_experiments(numbers)
        return tuple(numbers.values())

    def copy_entries(self, entries: Sequence[int]) -> tuple[int, ...]:
        """Copy entries of the queue to its end, paused and without owner; return their new numbers in the same order.

        Copy their runs first. An existing entry is linked to its experiment if that was copied.
        """
        numbers = tuple(self._copy_entry(entry) for entry in entries)
        self._connection.execute(
            "UPDATE main.queue SET experiment = (SELECT experiment FROM main.experiments WHERE uid = queue.uid)"
            " WHERE experiment IS NULL"
        )
        return numbers

    def _copy_entry(self, entry: int) -> int:
        ((experiment,),) = self._rows("SELECT experiment FROM {}.queue WHERE entry = ?", entry)
        last = self._connection.execute("SELECT coalesce(max(place), 0) FROM main.queue").fetchone()[0]
        overrides = {
            **dict.fromkeys(("owner_pid", "owner_started_s", "owner_boot_id")),
            "experiment": None if experiment is None else self._copy_experiment(experiment),
            "place": last + 1,
            "state": "paused",
            "imported": 1,
        }
        return self._copy_row(QUEUE.name, QUEUE.key, entry, overrides)

    def _copy_run(self, run: int) -> int:
        number = self._copy_row("runs", "run", run, {})
        for (device_id,) in self._rows("SELECT device_id FROM {}.devices WHERE run = ? ORDER BY device_id", run):
            device = self._copy_row("devices", "device_id", device_id, {"run": number})
            for table in DEVICE_TABLES:
                self._copy_rows(table, device_id, device)
        for table in RUN_TABLES:
            self._copy_rows(table, run, number)
        return number

    def _copy_experiments(self, numbers: dict[int, int]) -> None:
        """Copy the experiments of these runs; an existing one gets the runs that it lacks."""
        for run, number in numbers.items():
            for source_number, position in self._rows(
                "SELECT experiment, place FROM {0}.experiments JOIN {0}.experiment_runs USING (experiment) WHERE run=?",
                run,
            ):
                self._connection.execute(
                    "INSERT INTO main.experiment_runs (experiment, run, place) VALUES (?, ?, ?)",
                    (self._copy_experiment(source_number), number, position),
                )

    def _copy_experiment(self, source_number: int) -> int:
        """Return the local number of an experiment, copied if missing."""
        if source_number not in self._experiments:
            rows = self._rows(
                "SELECT experiment FROM main.experiments"
                " WHERE uid = (SELECT uid FROM {}.experiments WHERE experiment = ?)",
                source_number,
            )
            number = rows[0][0] if rows else self._copy_row(EXPERIMENTS.name, EXPERIMENTS.key, source_number, {})
            self._experiments[source_number] = number
        return self._experiments[source_number]

    def _copy_row(self, table: str, key: str, value: int, overrides: Mapping[str, int | str | None]) -> int:
        """Copy one row with some values replaced; return its new number."""
        names = [name for name in self._names[table] if name != key]
        selected = ", ".join(f":{name}" if name in overrides else name for name in names)
        cursor = self._connection.execute(
            f"INSERT INTO main.{table} ({', '.join(names)})"
            f" SELECT {selected} FROM {self._source}.{table} WHERE {key} = :their_key",
            {"their_key": value, **overrides},
        )
        assert cursor.lastrowid is not None, "SQLite names the row it inserted"
        return cursor.lastrowid

    def _copy_rows(self, table: Table, old: int, new: int) -> None:
        """Copy every row that belongs to `old`, as belonging to `new`."""
        names = ", ".join(name for name in self._names[table.name] if name != table.key)
        cursor = self._connection.execute(
            f"INSERT INTO main.{table.name} ({table.key}, {names})"
            f" SELECT ?, {names} FROM {self._source}.{table.name} WHERE {table.key} = ?",
            (new, old),
        )
        self._counter.add(cursor.rowcount)

    def _rows(self, sql: str, value: int) -> list[Any]:
        return self._connection.execute(sql.format(self._source), (value,)).fetchall()
