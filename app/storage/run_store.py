"""The store of a run in progress: it notices when its file is another one, and has room for the run's end."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from sqlite_utils import Database

from app.errors import DatabaseError, DatabaseGoneError
from app.storage.database import read_only_error
from app.storage.store import Store, StoredEvent

_RESERVED_BYTES = 256_000
"""Set aside for a run's end: some pages of the log."""


class RunStore(Store):
    """A store for one run; a batch that comes when the database is no longer the one that was opened is not written."""

    def __init__(self, db: Database, path: Path) -> None:
        super().__init__(db, path)
        self._file_id = _file_id(path)
        self._reserve = contextlib.ExitStack()
        try:
            if self.is_read_only:
                raise read_only_error(path)
            self._reserve.enter_context(_reserve_space(path))
        except BaseException:
            self._reserve.close()
            db.close()
            raise

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
        """Close the file; where another one has its name now, leave no log that SQLite would write into that."""
        self.use_reserve()
        if _file_id(self.path) != self._file_id:
            with contextlib.suppress(sqlite3.Error):  # https://www.sqlite.org/howtocorrupt.html, section 2.4
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        super().close()

    def _require_file(self) -> None:
        """Raise `DatabaseGoneError` where another file has the database's name now, which SQLite does not notice."""
        if (file_id := _file_id(self.path)) != self._file_id:
            problem = "was deleted, or its disk is gone" if file_id is None else "was replaced by another file"
            raise DatabaseGoneError(f"{self.path} {problem}; the end of the run is not stored.")


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
