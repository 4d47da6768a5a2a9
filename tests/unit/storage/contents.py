"""The contents of databases in a form that does not depend on their numbers, and databases of older versions."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from app.storage.database import known_migrations
from app.storage.migrations import migrations
from app.storage.transfer.copying import TRANSFERRED, stored_columns

Rows = dict[str, list[tuple[Any, ...]]]

_WHOSE = {
    "run": "(SELECT uid FROM runs WHERE runs.run = t.run)",
    "device_id": "(SELECT uid || device FROM devices JOIN runs USING (run) WHERE devices.device_id = t.device_id)",
    "experiment": "(SELECT uid FROM experiments WHERE experiments.experiment = t.experiment)",
}


def contents(path: Path) -> Rows:
    """Return every row of every transferred table, sorted; numbers are replaced by what they stand for."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found: Rows = {}
        for table in TRANSFERRED:
            columns = ", ".join(_WHOSE.get(name, f"t.{name}") for name in stored_columns(connection, table.name))
            found[table.name] = sorted(connection.execute(f"SELECT {columns} FROM {table.name} t").fetchall(), key=repr)
        return found


def older(path: Path, target: Path, version: int) -> None:
    """Make a database of the first migrations from one of the newest, with all that it can hold of it."""
    with contextlib.closing(Database(target, execute_plugins=False)) as db:
        migrations.apply(db, stop_before=known_migrations()[version : version + 1])
        db.execute("ATTACH ? AS newest", (str(path),))
        for table in TRANSFERRED:
            if names := ", ".join(stored_columns(db.conn, table.name)):
                db.execute(f"INSERT INTO main.{table.name} ({names}) SELECT {names} FROM newest.{table.name}")
        db.conn.commit()
        assert len(migrations.applied(db)) == version


def changed(path: Path, *statements: str) -> Path:
    """Execute statements on a file, whatever they do to its schema; return its path."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path
