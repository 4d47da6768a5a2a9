"""File helpers that do not open the database: whether it still exists, free disk space, atomic output."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PosixPath

from app.errors import DatabaseMissingError, DatabaseReplacedError, UserError, read_error, write_error
from app.paths import PROGRAM, open_regular
from app.values import units

LOW_SPACE_BYTES = 200_000_000
"""Warn below this: it holds a few hours of samples of a few GPUs."""

MIN_FREE_BYTES = 20_000_000
"""Refuse to run below this: it is not enough to store a run."""


class KnownDatabase(PosixPath):
    """The path of a database that must stay the same: the first opening may create it, later ones never do.

    Otherwise a program that stays open for days would continue in an empty file after its database was deleted. A copy
    counts as the same database, so it may be restored. Paths derived from this one are ordinary paths.

    Thread: any.
    """

    created_at: str | None = None
    """When the first migration created the database, to the microsecond; None before it was opened."""

    was_chosen = False
    """Whether the user chose it in Settings, so that even the first opening does not create it."""

    @classmethod
    def of(cls, path: Path) -> "KnownDatabase":
        """Return a path as that of a database that must stay the same; a known one is returned unchanged."""
        return path if isinstance(path, cls) else cls(path)

    @property
    def may_be_made(self) -> bool:
        """Return whether opening it creates a missing database."""
        return self.created_at is None and not self.was_chosen

    def require(self) -> None:
        """Raise `DatabaseMissingError` if a required file is missing."""
        if not self.may_be_made and not self.exists():
            raise DatabaseMissingError(f"{self} no longer exists: it was deleted or moved, or its disk is gone.")

    def recognise(self, created_at: str | None) -> None:
        """Accept the open database, created then, as this one; raises `DatabaseReplacedError` if it is another."""
        if self.created_at not in (None, created_at):
            raise DatabaseReplacedError(f"{self} was replaced by another database.")
        self.created_at = created_at


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Free space on the disk of a database, in bytes; None if the system does not report it."""

    path: Path
    free_bytes: int | None

    @property
    def warning(self) -> str:
        """Return one sentence if little space is left, else ""."""
        return self._warn(f"delete old samples with `{PROGRAM} delete --samples-older-than`")

    @property
    def warning_in_window(self) -> str:
        """Return the warning for the window, which names no command."""
        return self._warn("have old samples deleted in Settings")

    def _warn(self, way_on: str) -> str:
        if self.free_bytes is None or self.free_bytes >= LOW_SPACE_BYTES:
            return ""
        return f"Only {self._format_free()} is free on the disk that holds {self.path}; free some space, or {way_on}."

    @property
    def refusal(self) -> str:
        """Return one sentence if no run can be stored, else ""."""
        if self.free_bytes is None or self.free_bytes >= MIN_FREE_BYTES:
            return ""
        return f"The disk that holds {self.path} has only {self._format_free()} free; free some space, then run again."

    def _format_free(self) -> str:
        return units.byte_size(self.free_bytes or 0)


def disk_space(database: Path) -> DiskSpace:
    """Return the free space for a database, which need not exist yet."""
    folder = next(parent for parent in (database.absolute().parent, *database.absolute().parents) if parent.is_dir())
    try:
        return DiskSpace(database, shutil.disk_usage(folder).free)
    except OSError:
        return DiskSpace(database, None)


FileFingerprint = tuple[tuple[int, int], ...]
"""The last write, in nanoseconds, and the size in bytes of each file of a database."""


_APPLICATION_ID = slice(68, 72)
"""The bytes of the application id: https://www.sqlite.org/fileformat.html#the_database_header"""


def database_application(path: Path) -> int | None:
    """Return the application id in the header of an SQLite database; None for another file.

    Raises:
        UserError: It cannot be read.
    """
    try:
        with open_regular(path) as file:
            header = file.read(_APPLICATION_ID.stop)
    except OSError as error:
        raise read_error(path, error) from error
    return int.from_bytes(header[_APPLICATION_ID]) if header.startswith(b"SQLite format 3\0") else None


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database by its header; raises `UserError` if it cannot be read."""
    return database_application(path) is not None


def file_fingerprint(path: Path) -> FileFingerprint:
    """Return a value that changes whenever a program writes to the database at `path`, and never when one reads.

    A write goes to the write-ahead log and later to the database (https://www.sqlite.org/wal.html). Readers also create
    and delete an empty log, so an empty log counts as none.
    """
    return tuple(map(_mtime_and_size, (path, log_path(path))))


def _mtime_and_size(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return (status.st_mtime_ns, status.st_size) if status.st_size else (0, 0)


_LOCKS = Path("/proc/locks")
_LOOKS = 5
_LOOK_S = 0.01


def log_path(path: Path) -> Path:
    """Return the write-ahead log of the database at `path`."""
    return path.with_name(f"{path.name}-wal")


def uses_foreign_log(path: Path) -> bool:
    """Return whether a running program uses the log at `path`, but with another database than the one there.

    A connection with an open log holds a lock on its database, taken first, and one on the log's index. Linux lists all
    locks (https://man7.org/linux/man-pages/man5/proc_locks.5.html); elsewhere this is never true.
    """
    for _ in range(_LOOKS):
        try:
            index, database = _lock_id(path.with_name(f"{path.name}-shm")), _lock_id(path)
            owners = _lock_owners(index, database)
        except OSError:
            return False
        if owners[index] <= owners[database]:
            return False
        # A list read while locks changed may show neither the old nor the new state.
        time.sleep(_LOOK_S)
    return True


def _lock_id(path: Path) -> str:
    """Return a file's name in the list of locks; raises `OSError`."""
    status = path.stat()
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


def _lock_owners(*files: str) -> dict[str, set[str]]:
    """Return the ids of the processes that have a lock on each of these files; raises `OSError`."""
    owners: dict[str, set[str]] = {file: set() for file in files}
    for line in _LOCKS.read_text(encoding="ascii").splitlines():
        _, *words = line.split()
        if words[0] == "POSIX" and words[4] in owners:
            owners[words[4]].add(words[3])
    return owners


@contextlib.contextmanager
def atomic_output(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which is renamed to `target` at the end; an error leaves nothing behind.

    Raises:
        UserError: `target` exists already (an empty folder does not count), or cannot be written.
    """
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise UserError(f"{target} already exists; name another place, or delete it first.")
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.part-", dir=target.absolute().parent) as folder:
            part = Path(folder) / target.name
            yield part
            part.rename(target)
    except OSError as error:
        raise write_error(target, error) from error
