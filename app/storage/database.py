"""Opens and migrates a database file, translates SQLite errors, runs transactions, reads and writes settings."""

import contextlib
import functools
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from app.errors import DatabaseError, DatabaseGoneError, DatabaseLockedError, UserError
from app.paths import open_private
from app.storage.files import KnownDatabase, disk_space, log_path, uses_foreign_log
from app.storage.known_settings import Setting, Value
from app.storage.migrations import APPLICATION_ID, migrations

BUSY_TIMEOUT_S = 10.0
"""How long a connection waits for another program's write."""

_RETRY_S = 0.01

_log = logging.getLogger("variantscope.storage")

_Kind = TypeVar("_Kind", bound=DatabaseError)


@contextlib.contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about file, disk and locks into a `DatabaseError` of one sentence; let bugs pass.

    Result codes: https://www.sqlite.org/rescode.html

    Raises:
        DatabaseError: The file, the disk or another program is in the way.
        UserError: A number is too large for SQLite.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorname", "")
        # Python itself detects invalid UTF-8, and has no error code for it; SQLite has none for JSON.
        is_no_text = any(words in str(error) for words in ("decode", "malformed JSON"))
        if is_no_text or (code == "SQLITE_ERROR" and _has_damaged_schema(path)):
            code = "SQLITE_CORRUPT"
        database_error = _known_error(path, code, str(error))
        if database_error is None:
            raise
        raise database_error from error
    except OverflowError as error:
        raise UserError(f"A number is too large for {path}, which holds numbers below 2⁶³.") from error


@contextlib.contextmanager
def transaction(db: Database, path: Path) -> Iterator[None]:
    """Run the body in one write transaction; roll back if it raises.

    It begins immediately: a deferred transaction that reads first can fail without waiting.
    """
    connection = db.conn
    with translate_sqlite_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise


def _has_damaged_schema(path: Path) -> bool:
    """Return whether the file's tables differ from the migrations' schema: if not, what SQLite refuses is a bug."""
    with contextlib.closing(Database(memory=True, execute_plugins=False)) as fresh:
        migrations.apply(fresh)
        fresh.execute("ATTACH ? AS stored", (str(path),))
        missing = "SELECT name, sql FROM main.sqlite_schema EXCEPT SELECT name, sql FROM stored.sqlite_schema"
        return fresh.execute(missing).fetchone() is not None


_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_CONSTRAINT_CHECK", "SQLITE_CONSTRAINT_DATATYPE")
"""Also raised when a copied row has invalid JSON or a wrong type."""


def _known_error(path: Path, code: str, text: str) -> DatabaseError | None:
    in_use = DatabaseLockedError(f"{path} is locked by another program; close that program, or try again later.")
    no_permission = _or_another_file(DatabaseError, f"{path} may not be opened; check its permissions or")
    full = _full_error(path)
    unusable = DatabaseError(f"{path} cannot be read or written ({text}); check the disk that holds it.")
    for prefix, error in (
        ("SQLITE_NOTADB", _or_another_file(DatabaseGoneError, f"{path} is not an SQLite database;")),
        *((damage, _damaged_error(path)) for damage in _DAMAGED),
        ("SQLITE_READONLY_DBMOVED", DatabaseGoneError(f"{path} was moved or replaced while it was open.")),
        ("SQLITE_FULL", full),
        # On a full disk SQLite cannot create the log's index.
        ("SQLITE_IOERR", full if disk_space(path).free_bytes == 0 else unusable),
        ("SQLITE_READONLY", read_only_error(path)),
        (
            "SQLITE_CANTOPEN",
            DatabaseError(f"{path} cannot be opened or created; check that its folder exists and is writable."),
        ),
        ("SQLITE_BUSY", in_use),
        ("SQLITE_LOCKED", in_use),
        ("SQLITE_PERM", no_permission),
        ("SQLITE_AUTH", no_permission),
    ):
        if code.startswith(prefix):
            return error
    return None


def _or_another_file(kind: type[_Kind], start: str) -> _Kind:
    """Return an error whose sentence begins with `start` and ends by offering another file."""
    return kind(f"{start} choose another file with --db.", f"{start} choose another file.")


def _damaged_error(path: Path) -> DatabaseGoneError:
    return _or_another_file(DatabaseGoneError, f"{path} is damaged; restore a copy of it or")


def _full_error(path: Path) -> DatabaseError:
    return DatabaseError(f"The disk that holds {path} is full; free some space, what is stored already is kept.")


def read_only_error(path: Path) -> DatabaseError:
    """Return the error for a database at `path` that would have to be written, but is read-only."""
    if disk_space(path).free_bytes == 0:
        return _full_error(path)
    start = f"{path} is read-only; make it writable, or choose another file"
    return DatabaseError(
        f"{start} with --db and `import` it there.", f"{start} in Settings and drop this one on the window."
    )


def open_database(path: Path, busy_s: float = BUSY_TIMEOUT_S) -> Database:
    """Open the database at `path`; create it and its folder if missing, migrate it to the newest schema.

    Only its user can read a new one: SQLite gives its other files the same mode. An existing one keeps its mode.

    Write-ahead log with synchronous=NORMAL: safe against a crash of the program, and a batch costs no fsync
    (https://www.sqlite.org/wal.html). Without write permission it is opened read-only.

    Raises:
        DatabaseError: It cannot be opened, belongs to another program, or was written by a newer version; or the path
            is a `KnownDatabase` that no longer exists.
    """
    may_be_made = not isinstance(path, KnownDatabase) or path.may_be_made
    if isinstance(path, KnownDatabase):
        path.require()
    if may_be_made:
        if path.is_dir():
            raise _or_another_file(DatabaseError, f"{path} is a folder, not a database file;")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sentence = f"The folder {path.parent} cannot be created ({error.strerror});"
            raise _or_another_file(DatabaseError, sentence) from error
        # Create an empty file if there is none; SQLite reports better what prevents that.
        with contextlib.suppress(OSError):
            os.close(open_private(str(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
    with translate_sqlite_errors(path):
        if _is_read_only(path):
            return _open_read_only(path)
        # A URI, because SQLite may read a typed `file:name` as one.
        uri = f"{path.absolute().as_uri()}?mode={'rwc' if may_be_made else 'rw'}"
        connection = sqlite3.connect(uri, timeout=busy_s, uri=True)
        try:
            _await_own_log(path, busy_s)
            db = Database(connection, execute_plugins=False)
            _log.debug("opened %s", path)
            _recognise(db, path)
            if _needs_migration(db, path):
                _log.info("migrating %s", path)
                _switch_to_wal(db, busy_s)
                with transaction(db, path):
                    migrations.apply(db)
                _recognise(db, path)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    return db


def _recognise(db: Database, path: Path) -> None:
    if isinstance(path, KnownDatabase):
        created_at = None
        if migrations.migrations_table in db.table_names():
            (created_at,) = db.execute(f"SELECT min(applied_at) FROM {migrations.migrations_table}").fetchone()
        path.recognise(created_at)


def is_read_only(db: Database) -> bool:
    return bool(db.execute("PRAGMA query_only").fetchone()[0])


def _await_own_log(path: Path, busy_s: float) -> None:
    """Wait while the log at `path` belongs to a replaced file: read now, it would overwrite the new file.

    The run that still uses the old file notices soon, and removes its log.
    """
    end_s = time.monotonic() + busy_s
    while uses_foreign_log(path):
        if time.monotonic() > end_s:
            raise DatabaseGoneError(
                f"{path} was replaced while another program had it open, whose changes are in {log_path(path)}; "
                "close that program, then move this log away."
            )
        time.sleep(_RETRY_S)


def _is_read_only(path: Path) -> bool:
    """Return whether a database can only be read: without permission, or as SQLite can make no log on a full disk."""
    may_write = os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)
    return path.exists() and path.stat().st_size > 0 and not (may_write and disk_space(path).free_bytes != 0)


def _open_read_only(path: Path) -> Database:
    """Open read-only: with its log if there is one, else as an immutable file.

    SQLite cannot create a log there: https://www.sqlite.org/wal.html#read_only_databases
    """
    log = log_path(path)
    has_log = log.exists() and log.stat().st_size > 0
    uri = f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    connection = sqlite3.connect(uri, uri=True)
    try:
        connection.execute("PRAGMA query_only = ON")
        db = Database(connection, execute_plugins=False)
        _recognise(db, path)
        if _needs_migration(db, path):
            raise DatabaseError(
                f"{path} was written by an older version and is read-only; copy it to a folder that you can write to."
            )
    except sqlite3.OperationalError as error:
        connection.close()
        if has_log and error.sqlite_errorname.startswith("SQLITE_CANTOPEN"):
            raise DatabaseError(
                f"{path} is read-only, and has newer changes in {log.name}; copy both to a folder that you can write "
                f"to."
            ) from error
        raise
    except BaseException:
        connection.close()
        raise
    return db


def _switch_to_wal(db: Database, busy_s: float) -> None:
    """Switch the write-ahead log on, retrying: while another program does so, SQLite is "busy" without waiting."""
    end_s = time.monotonic() + busy_s
    while True:
        try:
            db.enable_wal()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end_s:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _needs_migration(db: Database, path: Path) -> bool:
    """Return whether migrations are pending; raises `DatabaseError` for a newer or a foreign database."""
    # Tables before id: another program may create both, in one transaction, between the two queries.
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    if tables and application_id != APPLICATION_ID:
        raise _or_another_file(DatabaseError, f"{path} is a database of another program;")
    applied: set[str] = set()
    if migrations.migrations_table in tables:
        cursor = db.execute(
            f"SELECT name FROM {migrations.migrations_table} WHERE migration_set = ?", (migrations.name,)
        )
        applied = {name for (name,) in cursor}
    if not applied <= set(known_migrations()):
        raise _or_another_file(
            DatabaseError, f"{path} was written by a newer version of VariantScope; update the program or"
        )
    if applied != set(known_migrations()[: len(applied)]) or (tables and not applied):
        raise _damaged_error(path)
    return len(applied) < len(known_migrations())


@functools.cache
def known_migrations() -> tuple[str, ...]:
    """Return the names of all migrations of this version in order; on an empty database all are pending."""
    with contextlib.closing(Database(memory=True, execute_plugins=False)) as empty:
        return tuple(migration.name for migration in migrations.pending(empty))


def get_setting(connection: sqlite3.Connection, definition: Setting[Value]) -> Value | None:
    """Return the value of a setting; None if it was never set, or another program stored an invalid value."""
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (definition.name,)).fetchone()
    with contextlib.suppress(ValueError):
        return None if row is None else definition.read(row[0])
    return None


def set_setting(connection: sqlite3.Connection, definition: Setting[Value], value: Value | None) -> None:
    """Set a setting in the caller's transaction; None removes it, as if it had never been set."""
    connection.execute("DELETE FROM settings WHERE name = ?", (definition.name,))
    if value is not None:
        connection.execute(
            "INSERT INTO settings (name, value) VALUES (?, ?)", (definition.name, definition.write(value))
        )


def load_setting(path: Path, definition: Setting[Value]) -> Value | None:
    """Return the value of a setting in the database at `path`; None if it was never set. Raises `DatabaseError`."""
    with contextlib.closing(open_database(path)) as db, translate_sqlite_errors(path):
        return get_setting(db.conn, definition)


def save_setting(path: Path, definition: Setting[Value], value: Value | None) -> None:
    """Set a setting in the database at `path`, as `set_setting` does. Raises `DatabaseError`."""
    with contextlib.closing(open_database(path)) as db, translate_sqlite_errors(path), db.conn:
        set_setting(db.conn, definition, value)
