"""The store of a run in progress: if its database is gone or stays locked, the run continues in a rescue file."""

import contextlib
import logging
import os
import sqlite3
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from app.errors import DatabaseError, DatabaseGoneError, RunRescuedError
from app.fields import Sample, SlowSample
from app.log import log_folder
from app.paths import PROGRAM
from app.samples import LogLine
from app.storage import rows
from app.storage.database import open_database, read_only_error, transaction, translate_sqlite_errors
from app.storage.file_guard import FileGuard
from app.storage.store import Store, StoredEvent
from app.storage.transfer.copying import DEVICE_TABLES, DEVICES, RUN_TABLES, RUNS, Table, stored_columns

_log = logging.getLogger("variantscope.storage")

_FIRST_TABLES = (RUNS, Table("devices", "run"))
_LATER_TABLES = (*RUN_TABLES, *DEVICE_TABLES)
_LARGE_EVENTS = (Sample, SlowSample, LogLine)

_RESERVED_BYTES = 256_000
"""Set aside for a run's end: some pages of the log."""

_Rows = tuple[str, tuple[str, ...], Iterable[rows.Row]]
"""Rows of a table: its name, its columns, and the rows."""


class RunStore(Store):
    """A store for one run, which continues in a rescue file where the database is no longer the one that was opened.

    In memory it keeps what figures follow from: all but samples and log, which are lost with an unreadable database.
    """

    def __init__(self, db: Database, path: Path) -> None:
        super().__init__(db, path)
        self._guard: FileGuard | None = None
        self._reserve = contextlib.ExitStack()
        try:
            if self.is_read_only:
                raise read_only_error(path)
            self._reserve.enter_context(_reserve_space(path))
            with translate_sqlite_errors(path):
                self._guard = FileGuard(path)
        except BaseException:
            self._reserve.close()
            db.close()
            raise
        self._first_rows: list[_Rows] = []
        self._events: list[StoredEvent] = []
        self.rescue: str | None = None
        """What happened to the database and where the run is now, as a sentence; None while it is in the database."""

    def begin(self, *args: Any, **values: Any) -> int:
        """Store a run that starts now, as `Store.begin` does; from now on the file must be the one that has it."""
        run = super().begin(*args, **values)
        with translate_sqlite_errors(self.path):
            self._first_rows = [
                (name, columns, list(found)) for name, columns, found in self._select(_FIRST_TABLES, run)
            ]
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.OperationalError as error:
            # The run is in the log; only a file that is overwritten in place is not noticed then.
            _log.warning("the log cannot be copied into %s: %s", self.path, error)
        if self._guard is not None:
            self._guard.expect(values["uid"])
        return run

    def wait_at_most(self, seconds: float) -> None:
        """Let each later write wait at most so long for its turn."""
        self._db.execute(f"PRAGMA busy_timeout = {int(1000 * seconds)}").fetchall()

    def write(self, run: int, events: Iterable[StoredEvent], *, first_log_line: int = 0) -> None:
        """Store a batch as `Store.write` does, in the rescue file where the database is no longer there."""
        batch = list(events)
        if self._guard is not None and (problem := self._guard.problem()) is not None:
            self.move_to_rescue_file(run, f"{self.path} {problem}")
        try:
            super().write(run, batch, first_log_line=first_log_line)
        except (DatabaseGoneError, sqlite3.Error) as error:
            self._explain(run, error)
            super().write(run, batch, first_log_line=first_log_line)
        self._events += [event for event in batch if not isinstance(event, _LARGE_EVENTS)]

    def move_to_rescue_file(self, run: int, reason: str) -> None:
        """Copy the run into a new database, and go on there; the old one is left as it is.

        Args:
            run: Number of the run; it stays the same.
            reason: Beginning of a sentence about the database.

        Raises:
            DatabaseError: No rescue file can be made.
        """
        uid = uuid.uuid4().hex
        path, db = _open_rescue_file(self.path, uid)
        _log.warning("run %d moves to %s: %s", run, path, reason)
        try:
            self._fill(db, path, run)
            # It would pass for the run that the database may have the beginning of, and never be imported.
            db.execute("UPDATE runs SET uid = ?", (uid,))
        except BaseException:
            db.close()
            raise
        self.close()
        self.rescue = f"{reason}; the run is in {path}."
        self._db, self.path, self._guard = db, path, None

    @property
    def rescue_error(self) -> DatabaseError | None:
        """What happened to the database, with what brings the run into one; None while it is in the database."""
        if self.rescue is None:
            return None
        return RunRescuedError(
            f"{self.rescue[:-1]}, and `{PROGRAM} import {self.path}` adds it to a database.",
            in_window=f"{self.rescue} Drop that file on the window to add the run to a database.",
            path=Path(self.path),
        )

    def use_reserve(self) -> None:
        """Give back the space that was set aside, so that a run's end can be stored on a full disk."""
        self._reserve.close()

    def close(self) -> None:
        """Close the file; leave alone one that has taken its place."""
        self.use_reserve()
        if self._guard is None:
            super().close()
        elif self._guard.problem() is None:
            self._guard.close()
            super().close()
        else:
            self._guard.abandon(self._db.conn)

    def _explain(self, run: int, error: Exception) -> None:
        """Move the run where an error comes from a file that is not the database any more, else raise the error."""
        problem = None if self._guard is None else self._guard.problem()
        if problem is not None:
            self.move_to_rescue_file(run, f"{self.path} {problem}")
        elif self._guard is not None and isinstance(error, DatabaseGoneError):
            self.move_to_rescue_file(run, str(error).rstrip("."))
        else:
            raise error

    def _fill(self, db: Database, path: Path, run: int) -> None:
        """Copy what the database has of the run; write what is in memory where that cannot be read any more."""
        if self._guard is not None and self._guard.reads_old_file:
            try:
                with transaction(db, path):
                    _insert(db.conn, self._select((*_FIRST_TABLES, *_LATER_TABLES), run))
            except (sqlite3.Error, DatabaseError) as error:
                _log.warning("run %d cannot be read: %s", run, error)
            else:
                return
        _log.warning("the samples and the log of run %d are lost, but for the last", run)
        with transaction(db, path):
            _insert(db.conn, self._first_rows)
        Store(db, path).write(run, self._events)

    def _select(self, tables: Iterable[Table], run: int) -> Iterable[_Rows]:
        for table in tables:
            columns = stored_columns(self._db.conn, table.name)
            condition = "run = ?"
            if table.key == DEVICES.key:
                condition = "device_id IN (SELECT device_id FROM devices WHERE run = ?)"
            found = self._db.conn.execute(f"SELECT {', '.join(columns)} FROM {table.name} WHERE {condition}", (run,))
            yield table.name, columns, found


def _insert(connection: sqlite3.Connection, found: Iterable[_Rows]) -> None:
    for name, columns, values in found:
        rows.insert(connection, name, columns, values)


@contextlib.contextmanager
def _reserve_space(database: Path) -> Iterator[None]:
    """Take space beside the database with an unnamed file, which is gone when the process ends."""
    try:
        with tempfile.TemporaryFile(dir=database.absolute().parent) as file:
            file.write(os.urandom(_RESERVED_BYTES))
            file.flush()
            yield
    except OSError as error:
        raise DatabaseError(
            f"The disk that holds {database} cannot be written ({error.strerror}); free some space, then run again."
        ) from error


def _open_rescue_file(database: Path, uid: str) -> tuple[Path, Database]:
    """Open a new database beside the old one, or in the folder of the log where none can be made there."""
    name = f"{database.stem}-rescued-{uid[:8]}{database.suffix}"
    sibling = database.absolute().with_name(name)
    try:
        if sibling.parent.is_dir():
            return sibling, open_database(sibling)
    except DatabaseError as error:
        _log.warning("no rescue file beside the database: %s", error)
    elsewhere = log_folder().absolute() / name
    return elsewhere, open_database(elsewhere)
