"""What a user set for one database, kept in it by name."""

import contextlib
import sqlite3
from pathlib import Path

from app.storage.known_settings import Setting, Value
from app.storage.opening import open_database, told_plainly


def setting(connection: sqlite3.Connection, known: Setting[Value]) -> Value | None:
    """What a setting is; None where it was never set."""
    found = connection.execute("SELECT value FROM settings WHERE name = ?", (known.name,)).fetchone()
    return None if found is None else known.read(found[0])


def keep_setting(connection: sqlite3.Connection, known: Setting[Value], value: Value | None) -> None:
    """Sets it, in the caller's transaction; None is as if it had never been set."""
    connection.execute("DELETE FROM settings WHERE name = ?", (known.name,))
    if value is not None:
        connection.execute("INSERT INTO settings (name, value) VALUES (?, ?)", (known.name, known.write(value)))


def kept_in(path: Path, known: Setting[Value]) -> Value | None:
    """What a setting is in the database at that path; None where it was never set. Raises `DatabaseError`."""
    with contextlib.closing(open_database(path)) as db, told_plainly(path):
        return setting(db.conn, known)


def keep_in(path: Path, known: Setting[Value], value: Value | None) -> None:
    """Sets it in the database at that path. Raises `DatabaseError`."""
    with contextlib.closing(open_database(path)) as db, told_plainly(path), db.conn:
        keep_setting(db.conn, known, value)
