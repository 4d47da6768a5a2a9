"""What a user set for one database, kept in it by name."""

import contextlib
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from app.storage.opening import open_database, told_plainly


def setting(connection: sqlite3.Connection, name: str) -> str | None:
    """What a setting is; None where it was never set."""
    found = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if found is None else str(found[0])


def keep_setting(connection: sqlite3.Connection, name: str, value: str | None) -> None:
    """Sets it, in the caller's transaction; None is as if it had never been set."""
    connection.execute("DELETE FROM settings WHERE name = ?", (name,))
    if value is not None:
        connection.execute("INSERT INTO settings (name, value) VALUES (?, ?)", (name, value))


def kept_in(path: Path, name: str) -> str | None:
    """What a setting is in the database at that path; None where it was never set. Raises `DatabaseError`."""
    with contextlib.closing(open_database(path)) as db, told_plainly(path):
        return setting(db.conn, name)


def keep_in(path: Path, name: str, value: str | None) -> None:
    """Sets it in the database at that path. Raises `DatabaseError`."""
    with contextlib.closing(open_database(path)) as db, told_plainly(path), db.conn:
        keep_setting(db.conn, name, value)


def words_kept_in(path: Path, name: str) -> list[str]:
    """A setting that is several words, in their order; none where it was never set. Raises `DatabaseError`."""
    kept = kept_in(path, name)
    return [] if kept is None else [str(word) for word in json.loads(kept)]


def keep_words_in(path: Path, name: str, words: Iterable[str]) -> None:
    """Sets it in the database at that path. Raises `DatabaseError`."""
    keep_in(path, name, json.dumps(list(words)))
