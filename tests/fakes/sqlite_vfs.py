"""SQLite below a file system of Python: the program's own code runs on it, and every write is seen or refused.

APSW (https://rogerbinns.github.io/apsw/vfs.html) brings an SQLite of its own whose files pass through Python. `on_vfs`
puts it at the place of `sqlite3.connect`, with as much of that module's interface as the program uses.
"""

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import apsw
import pytest

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class Disk:
    """Sees what SQLite does to files, before it is done; raises an error of APSW to refuse it."""

    def write(self, name: str, offset: int, data: bytes, *, extends: bool) -> None:
        """Bytes are written."""

    def truncate(self, name: str, size: int) -> None:
        """A file is cut."""

    def sync(self, name: str) -> None:
        """All that was written to a file before reaches the disk."""

    def delete(self, name: str, *, synced: bool) -> None:
        """A file is deleted; where `synced`, the folder reaches the disk."""


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else str(name)).name

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.write(self._name, offset, bytes(data), extends=offset + len(data) > self.xFileSize())
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.truncate(self._name, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        # The test's own disk needs no sync.
        self._disk.sync(self._name)


class _System(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        if name is None:
            return super().xOpen(name, flags)
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.delete(Path(filename).name, synced=bool(syncdir))
        super().xDelete(filename, syncdir)


class _Cursor:
    """The rows of a statement, all read at once."""

    def __init__(self, description: Any, found: Sequence[Any], lastrowid: int, rowcount: int) -> None:
        self.description = description
        self.lastrowid = lastrowid
        self.rowcount = rowcount
        self._rows = iter(found)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchmany(self, size: int) -> list[Any]:
        return list(itertools.islice(self._rows, size))

    def fetchall(self) -> list[Any]:
        return list(self._rows)


class Connection:
    """What the program uses of `sqlite3.Connection`, with its way of beginning transactions."""

    def __init__(self, address: str, vfs: str, timeout: float, committed: Callable[["Connection"], None]) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._committed = committed
        self.isolation_level: str | None = ""
        with _translated():
            self._db = apsw.Connection(address, flags=flags, vfs=vfs)
            self._db.set_busy_timeout(int(1000 * timeout))

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def execute(self, sql: str, parameters: Any = ()) -> _Cursor:
        self._begin(sql)
        return self._run(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> None:
        self._begin(sql)
        with _translated():
            self._db.cursor().executemany(sql, parameters)

    def commit(self) -> None:
        if self.in_transaction:
            self._run("COMMIT", ())

    def rollback(self) -> None:
        if self.in_transaction:
            self._run("ROLLBACK", ())

    def set_progress_handler(self, handler: Callable[[], bool] | None, steps: int) -> None:
        self._db.set_progress_handler(handler, steps)

    def close(self) -> None:
        # SQLite closes a database whose log it cannot copy into it all the same, and says nothing.
        with contextlib.suppress(apsw.Error):
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def _begin(self, sql: str) -> None:
        if sql.split(None, 1)[0].upper() in _WRITES and self.isolation_level is not None and not self.in_transaction:
            self._run("BEGIN", ())

    def _run(self, sql: str, parameters: Any) -> _Cursor:
        description: Any = None

        def trace(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
            nonlocal description
            description = cursor.get_description() or None
            return True

        was_open = self.in_transaction
        with _translated():
            cursor = self._db.cursor()
            cursor.exec_trace = trace
            found = list(cursor.execute(sql, parameters))
        if was_open and not self.in_transaction:
            self._committed(self)
        return _Cursor(description, found, self._db.last_insert_rowid(), self._db.changes())


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise APSW's errors as those of `sqlite3`."""
    try:
        yield
    except apsw.Error as error:
        code = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
        kind = {
            apsw.ConstraintError: sqlite3.IntegrityError,
            apsw.CorruptError: sqlite3.DatabaseError,
            apsw.NotADBError: sqlite3.DatabaseError,
        }.get(type(error), sqlite3.OperationalError)
        found = kind(str(error))
        known = {**apsw.mapping_result_codes, **apsw.mapping_extended_result_codes}
        found.sqlite_errorname = str(known.get(code, "SQLITE_ERROR"))
        raise found from error


@contextlib.contextmanager
def on_vfs(disk: Disk, database: Path, committed: Callable[[Connection], None] = lambda _: None) -> Iterator[None]:
    """Open a database on this disk, and what it attaches; all others stay with the module `sqlite3`.

    `committed` is called after each transaction.
    """
    name = f"test-{id(disk)}"
    system = _System(name, disk)
    ordinary = sqlite3.connect

    def connect(address: Any, timeout: float = 5.0, **words: Any) -> Any:
        if str(address).partition("?")[0].removeprefix("file://") != str(database):
            return ordinary(address, timeout=timeout, **words)
        return Connection(str(address), name, timeout, committed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        yield
    system.unregister()
