"""The store of a run in progress: it notices when its file is another one, and has room for the run's end.

SQLite finds a database's write-ahead log by name. When a file is replaced while a connection is open, its log stays
behind, and the next program that opens the new file writes the old one's pages into it
(https://www.sqlite.org/howtocorrupt.html, sections 2.4 and 4.1). Nothing here opens such a file except through SQLite:
closing a plain handle would drop the locks of all connections of this process (the same page, section 2.2).
"""

import contextlib
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from app.errors import DatabaseError, DatabaseGoneError
from app.storage.database import read_only_error, translate_sqlite_errors
from app.storage.files import index_path, log_path
from app.storage.store import Store, StoredEvent

_log = logging.getLogger("variantscope.storage")

_RESERVED_BYTES = 256_000
"""Set aside for a run's end: some pages of the log."""
_LOOKS = 5
_LOOK_S = 0.05

FileId = tuple[int, int]
"""Device and inode of a file."""


class FileGuard:
    """Watches the files of an open database.

    It has a connection of its own, for reading alone: as long as that is open, closing the other one neither copies its
    log into the database nor deletes a log by name, which may be that of a new file.

    Thread: the one that made it.
    """

    def __init__(self, path: Path) -> None:
        """Begin to watch; the database must be open, and have a log.

        Raises:
            sqlite3.Error: It cannot be read.
        """
        self._path = path.absolute()
        self._connection = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        self._ids = {file: _file_id(file) for file in self._files()}
        self._last_write = self._write_time()
        self._marker: str | None = None

    def expect(self, uid: str) -> None:
        """Expect a run of that uid, which is in the file (not only its log), whenever the file was written."""
        if self._is_stored(uid):
            self._marker = uid

    def problem(self) -> str | None:
        """Return what happened to the file, as a part of a sentence; None where it is the one that was opened."""
        file_id = _file_id(self._path)
        if file_id is None:
            return "was deleted, or its disk is gone"
        if file_id != self._ids[self._path]:
            return "was replaced by another file"
        return "was overwritten" if self._is_overwritten() else None

    def close(self) -> None:
        """Stop watching; the other connection is still open."""
        self._connection.close()

    def abandon(self, connection: sqlite3.Connection) -> None:
        """Close the other connection without a trace in the file that is there now, and take the old log away."""
        if self._is_moved:
            with contextlib.suppress(sqlite3.Error):
                # Into the old file, wherever it is now: without its log it would lack the last runs.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        self.close()
        for file in self._files():
            if file != self._path and self._ids[file] is not None and _file_id(file) == self._ids[file]:
                file.unlink(missing_ok=True)

    @property
    def _is_moved(self) -> bool:
        return _file_id(self._path) != self._ids[self._path]

    def _files(self) -> Iterator[Path]:
        return iter((self._path, log_path(self._path), index_path(self._path)))

    def _is_overwritten(self) -> bool:
        """Return whether the file was written, but not by a database that has the expected run."""
        for _ in range(_LOOKS):
            written = self._write_time()
            if written == self._last_write:
                return False
            if self._marker is None or self._is_stored(self._marker):
                self._last_write = written
                return False
            # SQLite may be copying its log into the file; a copy that has ended is final.
            time.sleep(_LOOK_S)
            if written == self._write_time():
                return True
        return True

    def _is_stored(self, uid: str) -> bool:
        """Return whether the file, without its log, has that run."""
        try:
            with contextlib.closing(sqlite3.connect(f"{self._path.as_uri()}?immutable=1", uri=True)) as file:
                return file.execute("SELECT 1 FROM runs WHERE uid = ?", (uid,)).fetchone() is not None
        except sqlite3.Error:
            return False

    def _write_time(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_size


def _file_id(path: Path) -> FileId | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class RunStore(Store):
    """A store for one run; a batch that comes when the database is no longer the one that was opened is not written."""

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

    def begin(self, *args: Any, **values: Any) -> int:
        """Store a run that starts now, as `Store.begin` does; from now on the file must be the one that has it."""
        run = super().begin(*args, **values)
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
        """Store a batch as `Store.write` does; raises `DatabaseGoneError` where the database is no longer there."""
        self._require_file()
        try:
            super().write(run, events, first_log_line=first_log_line)
        except (DatabaseError, sqlite3.Error):
            self._require_file()
            raise

    def use_reserve(self) -> None:
        """Give back the space that was set aside, so that a run's end can be stored on a full disk."""
        self._reserve.close()

    def close(self) -> None:
        """Close the file; leave alone one that has taken its place."""
        self.use_reserve()
        guard, self._guard = self._guard, None
        if guard is None:
            super().close()
        elif guard.problem() is None:
            guard.close()
            super().close()
        else:
            guard.abandon(self._db.conn)

    def _require_file(self) -> None:
        problem = None if self._guard is None else self._guard.problem()
        if problem is not None:
            raise DatabaseGoneError(f"{self.path} {problem}.")


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
