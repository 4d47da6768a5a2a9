"""The store of a run in progress: it notices when its file is another one, and has room for the run's end."""

import contextlib
import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from app.errors import DatabaseError, DatabaseGoneError
from app.storage.database import read_only_error, translate_sqlite_errors
from app.storage.file_guard import FileGuard
from app.storage.store import Store, StoredEvent

_log = logging.getLogger("variantscope.storage")

_RESERVED_BYTES = 256_000
"""Set aside for a run's end: some pages of the log."""


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
