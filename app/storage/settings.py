"""What a user set for one database, kept in it by name."""

import sqlite3


def setting(connection: sqlite3.Connection, name: str) -> str | None:
    """What a setting is; None where it was never set."""
    found = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if found is None else str(found[0])


def keep_setting(connection: sqlite3.Connection, name: str, value: str | None) -> None:
    """Sets it, in the caller's transaction; None is as if it had never been set."""
    connection.execute("DELETE FROM settings WHERE name = ?", (name,))
    if value is not None:
        connection.execute("INSERT INTO settings (name, value) VALUES (?, ?)", (name, value))
