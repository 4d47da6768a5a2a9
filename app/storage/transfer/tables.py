"""The tables that are transferred with a run, and their columns."""

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows are transferred; `key` is the column of the number that a row belongs to."""

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
        "portability",
        "tags",
    )
)
DEVICE_TABLES = (Table("samples", "device_id"), Table("slow_samples", "device_id"))
EXPERIMENTS = Table("experiments", "experiment")
EXPERIMENT_RUNS = Table("experiment_runs", "experiment")
QUEUE = Table("queue", "entry")
TRANSFERRED = (RUNS, DEVICES, *RUN_TABLES, *DEVICE_TABLES, EXPERIMENTS, EXPERIMENT_RUNS, QUEUE)
"""In the order in which rows can be inserted: referenced tables come first."""

NOT_TRANSFERRED = ("settings", "filters", "calibrations", "run_words")
"""Tables that belong to one database or machine, or are computed from the runs."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the schema: `type` is INTEGER, REAL or TEXT; SQLite computes a `generated` one from others."""

    name: str
    type: str
    generated: bool = False


def columns(connection: sqlite3.Connection, table: str) -> tuple[Column, ...]:
    """Return the columns of one of our tables in `main`, () where this version of the schema has no such table.

    Hidden columns of kind 2 and 3 are generated: https://www.sqlite.org/pragma.html#pragma_table_xinfo
    """
    found = connection.execute("SELECT name, type, hidden FROM pragma_table_xinfo(?, 'main')", (table,))
    return tuple(Column(name, kind, hidden in (2, 3)) for name, kind, hidden in found)


def stored_columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the names of the columns of a table, without generated ones."""
    return tuple(column.name for column in columns(connection, table) if not column.generated)
