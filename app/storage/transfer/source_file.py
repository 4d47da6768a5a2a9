"""Opens an untrusted database file: trusts nothing in it, changes nothing, runs none of its SQL.

Why each setting: https://www.sqlite.org/security.html (files from others), https://www.sqlite.org/c3ref/open.html
(`immutable`: no locks, no extra files). `trusted_schema = OFF` is not among them: SQLite 3.40 then refuses the JSON
functions that our own tables use. Instead an authorizer allows plain reads only, so a view, a function in a schema or
another database is never reached (https://www.sqlite.org/c3ref/set_authorizer.html).
"""

import contextlib
import errno
import os
import sqlite3
import stat
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import DatabaseError
from app.storage.transfer.progress import STOPPED_MESSAGE, VM_STEPS, StoppedError, TransferProgress
from app.values.plain import one_line

MAX_ROW_BYTES = 4_000_000
"""The longest text or row that is read; a run's longest log line is far shorter."""

_CHECK_TIMEOUT_S = 20.0
"""Time limit of the first search for damage; reading rows reveals damage that it misses."""

_PRAGMAS = ("application_id", "quick_check", "table_xinfo")
"""The allowed pragmas."""

_COPY_CHUNK_BYTES = 16_000_000
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_NOT_SQLITE = "is not an SQLite database, or it is encrypted; nothing was imported."


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to import from: its size on the disk in bytes, and whether it has a write-ahead log."""

    path: Path
    bytes: int
    has_log: bool


def inspect_file(path: Path) -> SourceFile:
    """Check a file before SQLite sees it.

    Raises:
        DatabaseError: It is not a database file with readable runs.
    """
    try:
        resolved = path.resolve(strict=True)
        status = resolved.stat()
    except FileNotFoundError:
        raise DatabaseError(f"There is no file {path}.") from None
    except (OSError, RuntimeError) as error:
        raise DatabaseError(f"{path} cannot be read ({_reason(error)}).") from error
    if stat.S_ISDIR(status.st_mode):
        raise DatabaseError(f"{path} is a folder; name the database file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise DatabaseError(f"{path} is not a regular file; copy the database to one first.")
    if _size(_sidecar(resolved, "-journal")):
        raise DatabaseError(
            f"{path} was left half-written by another program ({resolved.name}-journal is next to it);"
            " open it once with that program, then import it."
        )
    has_log = _size(_sidecar(resolved, "-wal")) > 0
    _check_header(path, status.st_size, has_log)
    # A sparse file takes less space than its length.
    size = status.st_size if has_log else min(status.st_size, status.st_blocks * 512)
    return SourceFile(resolved, size + _size(_sidecar(resolved, "-wal")), has_log)


def _check_header(path: Path, size: int, has_log: bool) -> None:
    """Check the header, the first 100 bytes (https://www.sqlite.org/fileformat.html#the_database_header)."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise DatabaseError(f"{path} cannot be read ({_reason(error)}).") from error
    if not header:
        raise DatabaseError(f"{path} is empty; nothing was imported.")
    if not header.startswith(_MAGIC):
        raise DatabaseError(f"{path} {_NOT_SQLITE}")
    page_bytes = int.from_bytes(header[16:18], "big")
    expected = (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(header[28:32], "big")
    if header[24:28] == header[92:96] and size < expected and not has_log:
        raise DatabaseError(f"{path} is truncated: it should have {expected:,} bytes and has {size:,}. Copy it again.")


@contextlib.contextmanager
def open_source(source_file: SourceFile, scratch: Path, progress: TransferProgress) -> Iterator[sqlite3.Connection]:
    """Open a connection that can only read the file.

    `scratch` is a folder for a private copy, needed if the file has a write-ahead log.

    Raises:
        DatabaseError: SQLite finds the file unusable, or it was written to meanwhile.
        StoppedError: `progress` stopped it.
    """
    state_before = _file_state(source_file.path)
    with translate_file_errors(source_file.path):
        connection = _connect(
            _private_copy(source_file, scratch, progress) if source_file.has_log else None, source_file
        )
        try:
            connection.set_progress_handler(progress.should_stop, VM_STEPS)
            yield connection
        finally:
            connection.close()
    if _file_state(source_file.path) != state_before:
        raise DatabaseError(
            f"{source_file.path} is being written to; import it when the program that does so has ended."
        )


def _private_copy(source_file: SourceFile, scratch: Path, progress: TransferProgress) -> Path:
    copy = scratch / "copy.db"
    for suffix in ("-wal", ""):
        with _sidecar(source_file.path, suffix).open("rb") as source, _sidecar(copy, suffix).open("wb") as target:
            while chunk := source.read(_COPY_CHUNK_BYTES):
                progress.check()
                target.write(chunk)
    return copy


def _connect(copy: Path | None, source_file: SourceFile) -> sqlite3.Connection:
    path, mode = (copy, "mode=rw") if copy else (source_file.path, "mode=ro&immutable=1")
    connection = sqlite3.connect(f"file:{urllib.parse.quote(os.fsencode(path))}?{mode}", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
    for setting in ("cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}").close()
    connection.set_authorizer(_allow_reads_only)
    return connection


def _allow_reads_only(action: int, name: str | None, other: str | None, _schema: str | None, inner: str | None) -> int:
    """Allow SELECT from tables, count, substr and a few pragmas, but not through a view (`inner`)."""
    allowed = (
        action == sqlite3.SQLITE_SELECT
        or (action == sqlite3.SQLITE_READ and inner is None)
        or (action == sqlite3.SQLITE_FUNCTION and other in ("count", "substr"))
        or (action == sqlite3.SQLITE_PRAGMA and name in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def check_damage(
    connection: sqlite3.Connection, source_file: SourceFile, tables: Iterable[str], progress: TransferProgress
) -> None:
    """Search tables for damage, for a limited time; `progress` may stop it.

    Raises:
        DatabaseError: The file is damaged.
    """
    end_s = time.monotonic() + _CHECK_TIMEOUT_S
    connection.set_progress_handler(lambda: progress.should_stop() or time.monotonic() > end_s, VM_STEPS)
    try:
        for table in tables:
            (result,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
            if result != "ok":
                raise DatabaseError(f"{source_file.path} is damaged ({one_line(result)}); nothing was imported.")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_INTERRUPT" or progress.should_stop():
            raise
    finally:
        connection.set_progress_handler(progress.should_stop, VM_STEPS)


@contextlib.contextmanager
def translate_file_errors(path: Path) -> Iterator[None]:
    """Raise every error of SQLite while a source file is read as a `DatabaseError` of one sentence."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorname", None) or ""
        if code == "SQLITE_INTERRUPT":
            raise StoppedError(STOPPED_MESSAGE) from error
        raise DatabaseError(f"{path} {_error_sentence(code, one_line(str(error)))}") from error


def _error_sentence(code: str, text: str) -> str:
    for prefix, sentence in (
        ("SQLITE_NOTADB", _NOT_SQLITE),
        ("SQLITE_CORRUPT", "is damaged or only half copied; nothing was imported."),
        ("SQLITE_TOOBIG", f"holds a text of more than {MAX_ROW_BYTES:,} bytes; nothing was imported."),
        ("SQLITE_FULL", "needs more room than the disk has, or than its own size; nothing was imported."),
        ("SQLITE_CANTOPEN", "cannot be opened; check its permissions."),
        ("SQLITE_PERM", "cannot be opened; check its permissions."),
        ("SQLITE_IOERR", "cannot be read; check the disk it is on."),
        ("SQLITE_CONSTRAINT", f"holds what VariantScope does not write ({text}); nothing was imported."),
    ):
        if code.startswith(prefix):
            return sentence
    return f"cannot be read as a database of VariantScope ({text}); nothing was imported."


def _sidecar(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _file_state(path: Path) -> tuple[int, int, bytes]:
    """Return a value that changes when a program writes to the file or restarts its write-ahead log (new salt)."""
    status, wal = path.stat(), _sidecar(path, "-wal")
    head = b""
    if _size(wal):
        with wal.open("rb") as file:
            head = file.read(32)
    return status.st_size, status.st_mtime_ns, head


def _reason(error: OSError | RuntimeError) -> str:
    if isinstance(error, RuntimeError) or error.errno == errno.ELOOP:  # the former: by `resolve` before Python 3.13
        return "it is a loop of links"
    return str(error.strerror)
