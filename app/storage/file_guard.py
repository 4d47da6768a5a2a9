"""Notice that another file has taken the place of an open database, and keep the two apart.

SQLite finds a database's write-ahead log by name. When a file is replaced while a connection is open, its log stays
behind, and the next program that opens the new file writes the old one's pages into it
(https://www.sqlite.org/howtocorrupt.html, sections 2.4 and 4.1). Nothing here opens such a file except through SQLite:
closing a plain handle would drop the locks of all connections of this process (the same page, section 2.2).
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

_LOCKS = Path("/proc/locks")
_LOOKS = 5
_LOOK_S = 0.05

FileId = tuple[int, int]
"""Device and inode of a file."""


def log_path(path: Path) -> Path:
    """Return the write-ahead log of the database at `path`."""
    return path.with_name(f"{path.name}-wal")


def _index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-shm")


def uses_foreign_log(path: Path) -> bool:
    """Return whether a program that is open uses the log at `path`, but with another database than the one there.

    While a connection has the log open it holds a lock on the log's index and one on its database, and it takes the
    latter first. Linux lists all locks (https://man7.org/linux/man-pages/man5/proc_locks.5.html); elsewhere this is
    never true.
    """
    for _ in range(_LOOKS):
        try:
            index, database = _lock_id(_index_path(path)), _lock_id(path)
            owners = _lock_owners(index, database)
        except OSError:
            return False
        if owners[index] <= owners[database]:
            return False
        # A list that was read while locks changed may be neither the old nor the new state.
        time.sleep(_LOOK_S / _LOOKS)
    return True


def _lock_id(path: Path) -> str:
    """Return a file's name in the list of locks; raises `OSError`."""
    found = path.stat()
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _lock_owners(*files: str) -> dict[str, set[str]]:
    """Return the ids of the processes that have a lock on each of these files; raises `OSError`."""
    owners: dict[str, set[str]] = {file: set() for file in files}
    for line in _LOCKS.read_text(encoding="ascii").splitlines():
        _, *words = line.split()
        if words[0] == "POSIX" and words[4] in owners:
            owners[words[4]].add(words[3])
    return owners


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
        found = _file_id(self._path)
        if found is None:
            return "was deleted, or its disk is gone"
        if found != self._ids[self._path]:
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
        return iter((self._path, log_path(self._path), _index_path(self._path)))

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
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size


def _file_id(path: Path) -> FileId | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
