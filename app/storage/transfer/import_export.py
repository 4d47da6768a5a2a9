"""Export runs to a small complete database, and import runs from a database that somebody gave us.

Both raise `DatabaseError` for a file that cannot be used, `UserError` for runs that cannot be transferred, and
`StoppedError` where the user stops; then everything is left as it was. Reading a file safely is in source_file.py.
"""

import contextlib
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from app import units
from app.errors import DatabaseError
from app.paths import weights_path
from app.storage import retention
from app.storage.changes import NO_CHANGES, Changes
from app.storage.database import open_database, transaction, translate_sqlite_errors
from app.storage.files import MIN_FREE_BYTES, atomic_output, disk_space
from app.storage.migrations import migrations
from app.storage.transfer.copying import TRANSFERRED, RunCopier, count_rows, require_exportable
from app.storage.transfer.progress import NO_PROGRESS, RowCounter, TransferProgress, interruptible
from app.storage.transfer.source_file import SourceFile, check_damage, inspect_file, open_source, translate_file_errors
from app.storage.transfer.staging import (
    SourceRun,
    Stager,
    check_schema,
    list_entries,
    list_runs,
    load_annotations,
    open_staging,
    schema_version,
    staged_tables,
)
from app.storage.transfer.validation import check_values

_SPACE_FACTOR = 3
"""Disk space of an import, in sizes of the file: the private copy, the write-ahead log, the database."""


@dataclass(frozen=True, slots=True)
class ExistingRun:
    """A run that was here already, by its number here; `differs` names those of `note` and `tags` that differ."""

    run: int
    differs: tuple[str, ...] = ()
    in_trash: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import: `runs` are new numbers here; `unfinished` and `in_trash` are numbers there, skipped.

    `entries` are the numbers here of unfinished experiments that came into the queue, `complete` those that these runs
    completed, so that they left it; `completed` undoes that.
    """

    runs: tuple[int, ...]
    already: tuple[ExistingRun, ...]
    unfinished: tuple[int, ...]
    in_trash: tuple[int, ...]
    seconds: float
    entries: tuple[int, ...] = ()
    complete: tuple[int, ...] = ()
    completed: Changes = NO_CHANGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export: its files, number of runs, bytes on the disk, and saved weights, which are not exported.

    `entries` is the number of unfinished experiments of the queue that were exported too.
    """

    files: tuple[Path, ...]
    runs: int
    bytes: int
    seconds: float
    weights: tuple[Path, ...] = ()
    entries: int = 0


@dataclass(frozen=True, slots=True)
class _SourceContents:
    """The contents of a source file: runs that are here already, new ones, and the progress of the import.

    `entries` are those of its queue that are not here, by their numbers there.
    """

    already: tuple[ExistingRun, ...]
    new: tuple[SourceRun, ...]
    entries: tuple[int, ...]
    counter: RowCounter


@dataclass(frozen=True, slots=True)
class _LocalRun:
    """A run of our database: its number, its annotations, and whether it is in the trash."""

    run: int
    note: str
    tags: tuple[str, ...]
    in_trash: bool


def import_runs(database: Path, file: Path, progress: TransferProgress = NO_PROGRESS) -> Imported:
    """Import the runs of another database that are not here yet, in one transaction, under new numbers.

    Args:
        database: Path of the database that gets them.
        file: The other database.
        progress: Hears the share that is done, and may stop it.

    Raises:
        DatabaseError: The file or the database cannot be used, or a run is in progress.
        StoppedError: `progress` stopped it.
    """
    started_s = time.monotonic()
    source_file = inspect_file(file)
    local_runs = _local_runs(database)
    _check_importable(database, source_file)
    with _scratch(database) as folder:
        staged = folder / "staged.db"
        contents = _stage(source_file, staged, local_runs, _queued_uids(database), progress)
        runs, entries = _copy_staged(database, staged, contents, progress)
    return Imported(
        runs=runs,
        already=contents.already,
        unfinished=tuple(run.run for run in contents.new if not run.ended),
        in_trash=tuple(run.run for run in contents.new if run.ended and run.deleted),
        seconds=time.monotonic() - started_s,
        entries=entries,
    )


def check_exportable(database: Path, runs: Iterable[int]) -> None:
    """Raise `UserError` for a run that cannot be exported: no such run, one in progress, or one in the trash."""
    with contextlib.closing(open_database(database)) as db, translate_sqlite_errors(database):
        require_exportable(db.conn, runs, database)


def export_database(
    database: Path,
    runs: Sequence[int],
    target: Path,
    progress: TransferProgress = NO_PROGRESS,
    entries: Sequence[int] = (),
) -> Exported:
    """Write runs into a new database, which appears at `target` when it is complete.

    Args:
        database: Path of the database that has them.
        runs: Numbers of the runs.
        target: Path of the new database.
        progress: Hears the share that is done, and may stop it.
        entries: Entries of the queue to export too; each continues there with its exported runs.

    Raises:
        UserError: A run cannot be exported, or `target` exists or cannot be written.
        StoppedError: `progress` stopped it.
    """
    started_s = time.monotonic()
    with atomic_output(target) as partial, contextlib.closing(_new_database(partial)) as db:
        with translate_sqlite_errors(database):
            db.execute("ATTACH ? AS kept", (str(database.absolute()),))
            require_exportable(db.conn, runs, database, "kept")
            row_count = count_rows(db.conn, runs, (table.name for table in TRANSFERRED), "kept")
        with transaction(db, target), interruptible(db.conn, progress):
            copier = RunCopier(db.conn, "kept", RowCounter(progress, row_count))
            copier.copy(runs)
            copier.copy_entries(entries)
        uids = [uid for (uid,) in db.execute("SELECT uid FROM runs ORDER BY run")]
    return Exported(
        files=(target,),
        runs=len(runs),
        bytes=target.stat().st_size,
        seconds=time.monotonic() - started_s,
        weights=tuple(path for path in (weights_path(database, uid) for uid in uids) if path.exists()),
        entries=len(entries),
    )


def _new_database(path: Path) -> Database:
    """Create a database for others, with the mode that the umask gives any file."""
    path.touch()
    return open_database(path)


def _local_runs(database: Path) -> Mapping[str, _LocalRun]:
    with contextlib.closing(open_database(database)) as db, translate_sqlite_errors(database):
        tags: dict[int, list[str]] = {}
        for run, tag in db.execute("SELECT run, tag FROM tags ORDER BY tag"):
            tags.setdefault(run, []).append(tag)
        found = db.execute("SELECT uid, run, note, deleted_utc_ns IS NOT NULL FROM runs")
        return {uid: _LocalRun(run, note, tuple(tags.get(run, ())), bool(trash)) for uid, run, note, trash in found}


def _queued_uids(database: Path) -> frozenset[str]:
    """Return the uids of the entries in the queue here."""
    with contextlib.closing(open_database(database)) as db, translate_sqlite_errors(database):
        return frozenset(uid for (uid,) in db.execute("SELECT uid FROM queue"))


def _existing_run(local: _LocalRun, note: str, tags: tuple[str, ...]) -> ExistingRun:
    same = {"note": local.note == note, "tags": local.tags == tags}
    return ExistingRun(local.run, tuple(name for name, is_same in same.items() if not is_same), local.in_trash)


def _check_importable(database: Path, source_file: SourceFile) -> None:
    """Raise `DatabaseError` where this database cannot import from that file now."""
    if source_file.path.samefile(database):
        raise DatabaseError(f"{source_file.path} is the very database that runs would be imported into.")
    if retention.is_running(database):
        raise DatabaseError(
            f"A run is in progress in {database}, and an import would disturb what it measures; "
            "import when it has ended.",
            "A run is active, and adding others to the database would disturb what it measures: add them when it has "
            "ended.",
        )
    free, needed = disk_space(database).free_bytes, _SPACE_FACTOR * source_file.bytes + MIN_FREE_BYTES
    if free is not None and free < needed:
        raise DatabaseError(
            f"{source_file.path} takes {units.byte_size(source_file.bytes)}, and importing it may need "
            f"{units.byte_size(needed)} for a"
            f" while; the disk that holds {database} has {units.byte_size(free)} free."
        )


def _stage(
    source_file: SourceFile,
    path: Path,
    local_runs: Mapping[str, _LocalRun],
    queued: Collection[str],
    progress: TransferProgress,
) -> _SourceContents:
    """Read what will be imported into a private database, migrate it to the newest version, check every value."""
    with contextlib.ExitStack() as private:
        with open_source(source_file, path.parent, progress) as source:
            version = schema_version(source, source_file)
            staged = private.enter_context(open_staging(path, version, 2 * source_file.bytes + MIN_FREE_BYTES))
            check_schema(source, staged.conn, source_file)
            found = list_runs(source, staged.conn, source_file)
            already = tuple(
                _existing_run(local_runs[run.uid], *load_annotations(source, staged.conn, run.run))
                for run in found
                if run.uid in local_runs
            )
            new = tuple(run for run in found if run.uid not in local_runs)
            importable = dict.fromkeys(run.run for run in new if run.ended and not run.deleted)
            entries = list_entries(source, staged.conn, queued, source_file)
            if importable or entries:
                check_damage(source, source_file, (table.name for table in staged_tables(staged.conn)), progress)
            stager = Stager(source, staged.conn, entries)
            counter = RowCounter(progress, 2 * stager.count(importable.keys()))
            stager.stage(importable.keys(), counter)
        with translate_file_errors(source_file.path), interruptible(staged.conn, progress):
            migrations.apply(staged)
            check_values(staged.conn, source_file)
    return _SourceContents(already, new, tuple(entries), counter)


@contextlib.contextmanager
def _scratch(database: Path) -> Iterator[Path]:
    """Give a temporary folder next to the database, on the same disk."""
    try:
        with tempfile.TemporaryDirectory(prefix=f"{database.name}.import-", dir=database.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise DatabaseError(f"The file cannot be read into {database.parent} ({error.strerror}).") from error


def _copy_staged(
    database: Path, staged: Path, contents: _SourceContents, progress: TransferProgress
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Copy the staged database into ours; return the new numbers of its runs and of its entries."""
    with contextlib.closing(open_database(database)) as db:
        db.execute("ATTACH ? AS staged", (str(staged),))
        with transaction(db, database), interruptible(db.conn, progress):
            # Another import may have added some of them in the meantime.
            found = db.execute("SELECT run FROM staged.runs WHERE uid NOT IN (SELECT uid FROM main.runs) ORDER BY run")
            copier = RunCopier(db.conn, "staged", contents.counter)
            return copier.copy([run for (run,) in found.fetchall()]), copier.copy_entries(contents.entries)
