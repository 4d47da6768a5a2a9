"""Records a change of the user's tables as the statements that undo it.

Triggers of the connection write one statement per changed row, as https://www.sqlite.org/undoredo.html describes. Each
applies only if the row is still as the change left it: later changes by other programs stay.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from app.errors import UserError
from app.storage.database import transaction, translate_sqlite_errors

Result = TypeVar("Result")

_QUEUE = "uid name preset plan state added_utc_ns place experiment imported owner_pid owner_started_s owner_boot_id"
_TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "tags": (("run", "tag"), ()),
    "runs": (("run",), ("note", "deleted_utc_ns")),
    "queue": (("entry",), tuple(_QUEUE.split())),
}
"""The recorded tables: the key, and the other columns whose changes are undone."""
_UPDATED_ONLY = ("runs",)
"""Tables in which recorded changes never insert or delete rows."""
_LOG = "undo_statements"


@dataclass(frozen=True, slots=True)
class Changes:
    """The statements that undo a change, in order; empty if it changed nothing."""

    statements: tuple[str, ...] = ()


NO_CHANGES = Changes()


def record(db: Database, path: Path, change: Callable[[], Result]) -> tuple[Result, Changes]:
    with translate_sqlite_errors(path), _recording(db.conn) as statements:
        result = change()
        return result, Changes(statements())


def undo(db: Database, path: Path, change: Changes) -> Changes:
    """Undo a change in one transaction, and return what redoes it.

    Raises:
        UserError: Everything that it changed has since been changed again or deleted.
    """
    with translate_sqlite_errors(path), _recording(db.conn) as statements:
        with transaction(db, path):
            try:
                undone = sum(db.execute(statement).rowcount for statement in change.statements)
            except sqlite3.IntegrityError as error:  # for example a tag of a permanently deleted run
                raise _changed_since() from error
            if not undone:
                raise _changed_since()
        return Changes(statements())


def can_undo(db: Database, path: Path, change: Changes) -> bool:
    """Return whether `undo` would undo anything; the database does not change."""
    connection = db.conn
    with translate_sqlite_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            return any(connection.execute(statement).rowcount for statement in change.statements)
        except sqlite3.IntegrityError:
            return False
        finally:
            connection.rollback()


def _changed_since() -> UserError:
    return UserError("It has changed since then, so it was not undone.")


@contextmanager
def _recording(connection: sqlite3.Connection) -> Iterator[Callable[[], tuple[str, ...]]]:
    """Record in the body; yield a function that returns the statements so far, last one first."""
    triggers = [trigger for table in _TABLES for trigger in _triggers(table)]
    connection.execute(f"CREATE TEMP TABLE {_LOG} (statement TEXT)")
    for name, sql in triggers:
        connection.execute(f"CREATE TEMP TRIGGER {name} {sql}")
    try:
        yield lambda: tuple(
            text for (text,) in connection.execute(f"SELECT statement FROM {_LOG} ORDER BY rowid DESC").fetchall()
        )
    finally:
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"DROP TABLE {_LOG}")


def _triggers(table: str) -> Iterator[tuple[str, str]]:
    keys, others = _TABLES[table]
    columns = (*keys, *others)
    if table not in _UPDATED_ONLY:
        added = f"'DELETE FROM {table} WHERE ' || {_conditions('NEW', columns)}"
        yield f"{table}_added", f"AFTER INSERT ON main.{table} BEGIN INSERT INTO {_LOG} VALUES ({added}); END"
        values = " || ', ' || ".join(f"quote(OLD.{name})" for name in columns)
        deleted = f"'INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES (' || {values} || ')'"
        yield f"{table}_deleted", f"AFTER DELETE ON main.{table} BEGIN INSERT INTO {_LOG} VALUES ({deleted}); END"
    if others:
        differs = [f"OLD.{name} IS NOT NEW.{name}" for name in others]
        sets, guards = (
            " || ".join(
                f"iif({test}, {before} || quote({row}.{name}), '')"
                for name, test, before in zip(others, differs, map(template.format, others), strict=True)
            )
            for row, template in (("OLD", "', {} = '"), ("NEW", "' AND {} IS '"))
        )
        updated = f"'UPDATE {table} SET ' || substr({sets}, 3) || ' WHERE ' || {_conditions('NEW', keys)} || {guards}"
        event = f"AFTER UPDATE OF {', '.join(others)} ON main.{table} WHEN {' OR '.join(differs)}"
        yield f"{table}_updated", f"{event} BEGIN INSERT INTO {_LOG} VALUES ({updated}); END"


def _conditions(row: str, columns: Sequence[str]) -> str:
    return " || ' AND ' || ".join(f"'{name} IS ' || quote({row}.{name})" for name in columns)
