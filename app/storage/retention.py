"""Deletes the large parts of old runs: samples, slow samples and log lines.

Metrics, phases and blocks stay, so an old run can still be compared. Functions raise `DatabaseError` like the store.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import DatabaseError
from app.storage.database import load_setting, open_database, save_setting, translate_sqlite_errors
from app.storage.files import disk_space
from app.storage.known_settings import KEEP_SAMPLES_DAYS
from app.storage.owner import unfinished_runs

DAY_NS = 86_400 * 1_000_000_000
_PRUNED_TABLES = {
    "samples": "device_id IN (SELECT device_id FROM devices WHERE run = ?)",
    "slow_samples": "device_id IN (SELECT device_id FROM devices WHERE run = ?)",
    "log_lines": "run = ?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The (simulated) deletion: runs and rows, the file's size before and after, and its duration.

    `packed` is false if the space stays in the file for later runs, for example without space for a copy.
    """

    runs: tuple[int, ...]
    rows: int
    before_bytes: int
    after_bytes: int
    seconds: float
    packed: bool = True


def prune(
    path: Path, older_than_days: float, *, now_utc_ns: int | None = None, dry_run: bool = False, pack: bool = True
) -> Pruned:
    """Delete the samples and log lines of runs that ended more than `older_than_days` ago.

    A dry run only counts. With `pack` the space returns to the disk; without, it stays in the file for later runs,
    which takes no time.

    Raises:
        DatabaseError: A run is in progress, and would have to wait while the file is packed.
    """
    now_ns = time.time_ns() if now_utc_ns is None else now_utc_ns
    started_s = time.monotonic()
    with _open_connection(path) as connection:
        before_bytes = size_bytes(path)
        cursor = connection.execute(
            "SELECT run FROM runs WHERE ended_utc_ns < ? AND pruned_utc_ns IS NULL ORDER BY run",
            (now_ns - int(older_than_days * DAY_NS),),
        )
        runs = tuple(run for (run,) in cursor)
        rows = sum(_count_rows(connection, run) for run in runs)
        packed = False
        if runs and not dry_run:
            if (running := _running_run(connection)) is not None:
                raise DatabaseError(f"Run {running} is in progress in {path}; prune again when it has ended.")
            _delete(connection, runs, now_ns)
            packed = pack and _pack(connection, path, before_bytes)
    return Pruned(
        runs=runs,
        rows=rows,
        before_bytes=before_bytes,
        after_bytes=size_bytes(path),
        seconds=time.monotonic() - started_s,
        packed=packed,
    )


def pruned_utc_ns(path: Path, run: int) -> int | None:
    """Return when a run's samples were deleted; None if they were not."""
    with _open_connection(path) as connection:
        row = connection.execute("SELECT pruned_utc_ns FROM runs WHERE run = ?", (run,)).fetchone()
    return None if row is None else row[0]


def preview_days(path: Path, days: int | None) -> Pruned | None:
    """Return what keeping samples for that many days would delete; if nothing, set it."""
    preview = None if days is None else prune(path, days, dry_run=True)
    if preview is None or not preview.runs:
        save_setting(path, KEEP_SAMPLES_DAYS, days)
    return preview


def apply_days(path: Path, days: int) -> Pruned:
    """Keep samples for that many days from now on, and delete older ones."""
    pruned = prune(path, days)
    save_setting(path, KEEP_SAMPLES_DAYS, days)
    return pruned


def prune_by_setting(path: Path) -> Pruned | None:
    """Prune by the database's setting, without packing; return None if it is not set or a run is in progress."""
    days = load_setting(path, KEEP_SAMPLES_DAYS)
    if days is None or is_running(path):
        return None
    return prune(path, days, pack=False)


def is_running(path: Path) -> bool:
    """Return whether a run of this database is in progress, in this program or another."""
    with _open_connection(path) as connection:
        return _running_run(connection) is not None


def size_bytes(path: Path) -> int:
    """Return the size of the database on the disk in bytes, with its write-ahead log."""
    size = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError):  # the log disappears with its last connection, at any moment
            size += file.stat().st_size
    return size


@contextlib.contextmanager
def _open_connection(path: Path) -> Iterator[sqlite3.Connection]:
    db = open_database(path)
    try:
        with translate_sqlite_errors(path):
            yield db.conn
    finally:
        db.close()


def _count_rows(connection: sqlite3.Connection, run: int) -> int:
    counts = (
        connection.execute(f"SELECT count(*) FROM {name} WHERE {condition}", (run,))
        for name, condition in _PRUNED_TABLES.items()
    )
    return sum(count.fetchone()[0] for count in counts)


def _running_run(connection: sqlite3.Connection) -> int | None:
    """Return a run without an outcome whose owner is alive."""
    return next((run for run, owner in unfinished_runs(connection) if owner.is_alive()), None)


def _delete(connection: sqlite3.Connection, runs: tuple[int, ...], now_utc_ns: int) -> None:
    """Delete in one transaction per run: other programs never wait long, and finished runs stay deleted."""
    for run in runs:
        with connection:
            for name, condition in _PRUNED_TABLES.items():
                connection.execute(f"DELETE FROM {name} WHERE {condition}", (run,))
            connection.execute("UPDATE runs SET pruned_utc_ns = ? WHERE run = ?", (now_utc_ns, run))


def _pack(connection: sqlite3.Connection, path: Path, before_bytes: int) -> bool:
    """Rewrite the file without free pages (https://www.sqlite.org/lang_vacuum.html); return whether it was done.

    It needs space for two copies.
    """
    free_bytes = disk_space(path).free_bytes
    if free_bytes is not None and free_bytes < 2 * before_bytes:
        return False
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return True
