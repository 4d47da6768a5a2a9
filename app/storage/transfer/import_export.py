"""Exports runs to a small complete database, and imports runs from untrusted databases.

Both raise `DatabaseError` for a file that cannot be used, `UserError` for runs that cannot be transferred, and
`StoppedError` when the user stops; then nothing has changed. Reading a file safely is in source_file.py.
"""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from app.errors import DatabaseError
from app.paths import weights_path
from app.storage import retention
from app.storage.changes import NO_CHANGES, Changes
from app.storage.database import known_migrations, open_database, transaction, translate_sqlite_errors
from app.storage.files import MIN_FREE_BYTES, atomic_output, disk_space
from app.storage.migrations import APPLICATION_ID, migrations
from app.storage.transfer.copying import (
    DEVICE_TABLES,
    EXPERIMENT_RUNS,
    QUEUE,
    TRANSFERRED,
    RunCopier,
    Table,
    columns,
    count_rows,
    require_exportable,
    stored_columns,
)
from app.storage.transfer.progress import NO_PROGRESS, RowCounter, TransferProgress, interruptible
from app.storage.transfer.source_file import SourceFile, check_damage, inspect_file, open_source, translate_file_errors
from app.storage.transfer.validation import check_values
from app.values import units

MAX_RUNS = 200_000
"""The most runs that a source file may hold."""
MAX_ENTRIES = 1_000
"""The most entries that its queue may hold."""
_NUMERIC_BATCH_ROWS, _TEXT_BATCH_ROWS = 2_000, 20
"""Rows in memory at a time: of numbers only, and of rows that may hold long texts."""


@dataclass(frozen=True, slots=True)
class SourceRun:
    """One run of a source file: its number there, and what determines whether it is imported."""

    run: int
    uid: str
    ended: bool
    deleted: bool


def schema_version(connection: sqlite3.Connection, source_file: SourceFile) -> tuple[str, ...]:
    """Return the migrations applied to the file.

    Raises:
        DatabaseError: The file belongs to another program or a newer version, or its version is unknown.
    """
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise DatabaseError(f"{source_file.path} is a database of another program; nothing was imported.")
    log_table = migrations.migrations_table
    plain_columns = {
        name for _, name, _, _, _, _, hidden in connection.execute(f"PRAGMA table_xinfo({log_table})") if not hidden
    }
    if not {"migration_set", "name"} <= plain_columns:
        raise DatabaseError(f"{source_file.path} does not state its version; nothing was imported.")
    cursor = connection.execute(f"SELECT name FROM {log_table} WHERE migration_set = ? LIMIT 1000", (migrations.name,))
    names = {name for (name,) in cursor}
    migration_names = known_migrations()
    if names - set(migration_names):
        raise DatabaseError(
            f"{source_file.path} was written by a newer version of VariantScope; update the program here."
        )
    if not names or names != set(migration_names[: len(names)]):
        raise DatabaseError(f"{source_file.path} does not state its version; nothing was imported.")
    return migration_names[: len(names)]


@contextlib.contextmanager
def open_staging(path: Path, version: Sequence[str], max_bytes: int) -> Iterator[Database]:
    """Create an empty private database with these migrations, which never exceeds a size limit."""
    migration_names = known_migrations()
    connection = sqlite3.connect(path)
    db = Database(connection, execute_plugins=False)
    try:
        for setting in ("journal_mode = MEMORY", "synchronous = OFF"):
            connection.execute(f"PRAGMA {setting}").close()
        migrations.apply(db, stop_before=migration_names[len(version) :][:1])
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count = {max(1000, max_bytes // page_bytes)}").close()
        connection.execute("PRAGMA foreign_keys = ON")
        yield db
    finally:
        db.close()


class Stager:
    """Reads runs row by row from a source file into a private database of the same version, keeping their numbers.

    Methods raise `DatabaseError` for a file that this program would not have written.
    """

    def __init__(self, source: sqlite3.Connection, staged: sqlite3.Connection, path: Path) -> None:
        self._source = source
        self._staged = staged
        self._path = path
        self.tables = tuple(table for table in TRANSFERRED if columns(staged, table.name))
        """The transferred tables that this version has."""
        self._has_annotations = bool(columns(staged, "tags"))  # notes, tags and a trash

    def check_schema(self) -> None:
        """Check that the file's tables have exactly the schema of our migrations."""
        expected, actual = _schema_statements(self._staged), _schema_statements(self._source)
        for table in self.tables:
            if actual.get(table.name) != expected[table.name]:
                raise DatabaseError(
                    f"{self._path} was not written by VariantScope: its table {table.name} is"
                    f" {'different' if table.name in actual else 'missing'}; nothing was imported."
                )

    def list_runs(self) -> list[SourceRun]:
        (count,) = self._source.execute("SELECT count(*) FROM runs NOT INDEXED").fetchone()
        if count > MAX_RUNS:
            raise DatabaseError(
                f"{self._path} holds {count:,} runs; at most {MAX_RUNS:,} can be imported from one file."
            )
        deleted_column = "deleted_utc_ns IS NOT NULL" if self._has_annotations else "0"
        # A longer uid is refused later; here it just must not fill the memory.
        cursor = self._source.execute(
            f"SELECT run, substr(uid, 1, 100), outcome IS NOT NULL, {deleted_column} FROM runs NOT INDEXED ORDER BY run"
        )
        return [SourceRun(run, uid, bool(ended), bool(deleted)) for run, uid, ended, deleted in cursor]

    def list_entries(self) -> dict[int, int | None]:
        """Return the experiment's number for each entry of the file's queue."""
        if QUEUE not in self.tables:
            return {}
        rows = self._source.execute(
            "SELECT entry, experiment FROM queue NOT INDEXED LIMIT ?", (MAX_ENTRIES + 1,)
        ).fetchall()
        if len(rows) > MAX_ENTRIES:
            raise DatabaseError(f"{self._path} has more than {MAX_ENTRIES:,} experiments in its queue.")
        return dict(rows)

    def load_annotations(self, run: int) -> tuple[str, tuple[str, ...]]:
        if not self._has_annotations:
            return "", ()
        (note,) = self._source.execute("SELECT note FROM runs NOT INDEXED WHERE run = ?", (run,)).fetchone()
        tags = self._source.execute("SELECT tag FROM tags NOT INDEXED WHERE run = ? ORDER BY tag LIMIT 1000", (run,))
        return note, tuple(tag for (tag,) in tags)

    def count(self, runs: Collection[int]) -> int:
        return count_rows(self._source, runs, (table.name for table in self.tables))

    def stage(self, runs: Collection[int], entries: Mapping[int, int | None], counter: RowCounter) -> None:
        with self._staged:
            for table in self.tables:
                counter.update()
                keys = entries.keys() if table == QUEUE else self._keys(table, runs, entries)
                self._stage(table, keys, runs, counter)

    def _stage(self, table: Table, keys: Collection[int], runs: Collection[int], counter: RowCounter) -> None:
        names = stored_columns(self._staged, table.name)
        insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        # NOT INDEXED: an index of the file may not match its rows; the table's own key is still used.
        select = f"SELECT {', '.join(names)} FROM {table.name} NOT INDEXED WHERE {table.key} = ?"
        size = _NUMERIC_BATCH_ROWS if table in DEVICE_TABLES else _TEXT_BATCH_ROWS
        for key in keys:
            cursor = self._source.execute(select, (key,))
            while batch := cursor.fetchmany(size):
                rows = batch if table != EXPERIMENT_RUNS else [row for row in batch if row[names.index("run")] in runs]
                self._staged.executemany(insert, rows)
                counter.add(len(batch))

    def _keys(self, table: Table, runs: Collection[int], entries: Mapping[int, int | None]) -> Collection[int]:
        if table.key == "run":
            return runs
        link_table = EXPERIMENT_RUNS.name if table.key == "experiment" else "devices"
        cursor = self._source.execute(f"SELECT {table.key}, run FROM {link_table} NOT INDEXED ORDER BY {table.key}")
        entry_keys = entries.values() if table.key == "experiment" else ()
        return dict.fromkeys([*(key for key, run in cursor if run in runs), *filter(None, entry_keys)])


def _schema_statements(connection: sqlite3.Connection) -> Mapping[str, list[str]]:
    cursor = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND sql NOT NULL")
    return {name: sql.split() for name, sql in cursor}


_NEW = "SELECT rowid FROM staged.{table} WHERE uid NOT IN (SELECT uid FROM main.{table}) ORDER BY {order}"
_SPACE_FACTOR = 3
"""Disk space of an import, in sizes of the file: the private copy, the write-ahead log, the database."""


@dataclass(frozen=True, slots=True)
class ExistingRun:
    """An existing run, by its number here; `differs` lists which of `note` and `tags` differ."""

    run: int
    differs: tuple[str, ...] = ()
    in_trash: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import: `runs` are new numbers here; `unfinished` and `in_trash` are numbers there, skipped.

    `entries` are the new queue numbers of unfinished experiments, `complete` those that these runs completed, so that
    they left the queue; `completed` undoes that.
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
    """The result of an export: its files, number of runs, bytes on the disk, and the saved weights left out.

    `entries` is the number of unfinished experiments exported with them.
    """

    files: tuple[Path, ...]
    runs: int
    bytes: int
    seconds: float
    weights: tuple[Path, ...] = ()
    entries: int = 0


@dataclass(frozen=True, slots=True)
class _LocalRun:
    """A run of our database: its number, its annotations, and whether it is in the trash."""

    run: int
    note: str
    tags: tuple[str, ...]
    in_trash: bool


def import_runs(database: Path, file: Path, progress: TransferProgress = NO_PROGRESS) -> Imported:
    """Import the new runs of a database file, in one transaction, under new numbers.

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
        already, new, counter = _stage(source_file, staged, local_runs, progress)
        runs, entries = _copy_staged(database, staged, counter, progress)
    return Imported(
        runs=runs,
        already=already,
        unfinished=tuple(run.run for run in new if not run.ended),
        in_trash=tuple(run.run for run in new if run.ended and run.deleted),
        seconds=time.monotonic() - started_s,
        entries=entries,
    )


def check_exportable(database: Path, runs: Iterable[int]) -> None:
    """Raise `UserError` for a run that cannot be exported: it does not exist, is in progress, or is in the trash."""
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

    Queue entries are exported with them; each continues there with its exported runs.

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
    path.touch()
    return open_database(path)


def _local_runs(database: Path) -> Mapping[str, _LocalRun]:
    with contextlib.closing(open_database(database)) as db, translate_sqlite_errors(database):
        tags: dict[int, list[str]] = {}
        for run, tag in db.execute("SELECT run, tag FROM tags ORDER BY tag"):
            tags.setdefault(run, []).append(tag)
        cursor = db.execute("SELECT uid, run, note, deleted_utc_ns IS NOT NULL FROM runs")
        return {uid: _LocalRun(run, note, tuple(tags.get(run, ())), bool(trash)) for uid, run, note, trash in cursor}


def _existing_run(local: _LocalRun, note: str, tags: tuple[str, ...]) -> ExistingRun:
    same = {"note": local.note == note, "tags": local.tags == tags}
    return ExistingRun(local.run, tuple(name for name, is_same in same.items() if not is_same), local.in_trash)


def _check_importable(database: Path, source_file: SourceFile) -> None:
    """Raise `DatabaseError` if this database cannot import from that file now."""
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
    source_file: SourceFile, path: Path, local_runs: Mapping[str, _LocalRun], progress: TransferProgress
) -> tuple[tuple[ExistingRun, ...], tuple[SourceRun, ...], RowCounter]:
    """Read what will be imported into a private database, migrate it to the newest version, check every value.

    Return the file's runs that exist here, those that are new, and the progress of the import.
    """
    with contextlib.ExitStack() as private:
        with open_source(source_file, path.parent, progress) as source:
            version = schema_version(source, source_file)
            staged = private.enter_context(open_staging(path, version, 2 * source_file.bytes + MIN_FREE_BYTES))
            stager = Stager(source, staged.conn, source_file.path)
            stager.check_schema()
            source_runs = stager.list_runs()
            already = tuple(
                _existing_run(local_runs[run.uid], *stager.load_annotations(run.run))
                for run in source_runs
                if run.uid in local_runs
            )
            new = tuple(run for run in source_runs if run.uid not in local_runs)
            importable = dict.fromkeys(run.run for run in new if run.ended and not run.deleted)
            entries = stager.list_entries()
            if importable or entries:
                check_damage(source, source_file, (table.name for table in stager.tables), progress)
            counter = RowCounter(progress, 2 * stager.count(importable.keys()))
            stager.stage(importable.keys(), entries, counter)
        with translate_file_errors(source_file.path), interruptible(staged.conn, progress):
            migrations.apply(staged)
            check_values(staged.conn, source_file.path)
    return already, new, counter


@contextlib.contextmanager
def _scratch(database: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the database, on the same disk."""
    try:
        with tempfile.TemporaryDirectory(prefix=f"{database.name}.import-", dir=database.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise DatabaseError(f"The file cannot be read into {database.parent} ({error.strerror}).") from error


def _copy_staged(
    database: Path, staged: Path, counter: RowCounter, progress: TransferProgress
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Copy the staged database into ours; return the new numbers of its runs and of its entries."""
    with contextlib.closing(open_database(database)) as db:
        db.execute("ATTACH ? AS staged", (str(staged),))
        with transaction(db, database), interruptible(db.conn, progress):
            # Another import may have added some of them meanwhile.
            runs, entries = (
                [number for (number,) in db.execute(_NEW.format(table=table, order=order)).fetchall()]
                for table, order in (("runs", "run"), ("queue", "place, entry"))
            )
            copier = RunCopier(db.conn, "staged", counter)
            return copier.copy(runs), copier.copy_entries(entries)
