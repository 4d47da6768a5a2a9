"""Read runs from a source file into a private database of the same version, which this program creates.

Our migrations create the private one, so no statement of the file's schema is ever executed, and an older version is
migrated without touching the file.
"""

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from app.errors import DatabaseError
from app.storage.database import known_migrations
from app.storage.migrations import APPLICATION_ID, migrations
from app.storage.transfer.copying import (
    DEVICE_TABLES,
    EXPERIMENT_RUNS,
    QUEUE,
    TRANSFERRED,
    Table,
    columns,
    count_rows,
    stored_columns,
)
from app.storage.transfer.progress import RowCounter
from app.storage.transfer.source_file import SourceFile

MAX_RUNS = 200_000
"""The most runs that a source file may hold."""
MAX_ENTRIES = 1_000
"""The most entries that its queue may hold."""
_NUMERIC_BATCH_ROWS, _TEXT_BATCH_ROWS = 2_000, 20
"""Rows in memory at a time: of numbers only, and of rows that may hold long texts."""


@dataclass(frozen=True, slots=True)
class SourceRun:
    """One run of a source file: its number there, and what decides whether it is imported."""

    run: int
    uid: str
    ended: bool
    deleted: bool


def schema_version(connection: sqlite3.Connection, source_file: SourceFile) -> tuple[str, ...]:
    """Return the migrations that the file has had.

    Raises:
        DatabaseError: The file is another program's or a newer version's, or its version is not known.
    """
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise DatabaseError(f"{source_file.path} is a database of another program; nothing was imported.")
    log_table = migrations.migrations_table
    plain_columns = {
        name for _, name, _, _, _, _, hidden in connection.execute(f"PRAGMA table_xinfo({log_table})") if not hidden
    }
    if not {"migration_set", "name"} <= plain_columns:
        raise DatabaseError(f"{source_file.path} does not say which version it is of; nothing was imported.")
    found = connection.execute(f"SELECT name FROM {log_table} WHERE migration_set = ? LIMIT 1000", (migrations.name,))
    names = {name for (name,) in found}
    known = known_migrations()
    if names - set(known):
        raise DatabaseError(
            f"{source_file.path} was written by a newer version of VariantScope; update the program here."
        )
    if not names or names != set(known[: len(names)]):
        raise DatabaseError(f"{source_file.path} does not say which version it is of; nothing was imported.")
    return known[: len(names)]


@contextlib.contextmanager
def open_staging(path: Path, version: Sequence[str], max_bytes: int) -> Iterator[Database]:
    """Create an empty private database.

    Args:
        path: Its path.
        version: Names of the migrations it gets.
        max_bytes: Size limit that it never exceeds.
    """
    known = known_migrations()
    connection = sqlite3.connect(path)
    db = Database(connection, execute_plugins=False)
    try:
        for setting in ("journal_mode = MEMORY", "synchronous = OFF"):
            connection.execute(f"PRAGMA {setting}").close()
        migrations.apply(db, stop_before=known[len(version) :][:1])
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count = {max(1000, max_bytes // page_bytes)}").close()
        connection.execute("PRAGMA foreign_keys = ON")
        yield db
    finally:
        db.close()


def staged_tables(staged: sqlite3.Connection) -> tuple[Table, ...]:
    """Return the transferred tables that this version has."""
    return tuple(table for table in TRANSFERRED if columns(staged, table.name))


def check_schema(source: sqlite3.Connection, staged: sqlite3.Connection, source_file: SourceFile) -> None:
    """Check that the file's tables have word for word the schema of our migrations.

    Args:
        source: Connection to the file.
        staged: Connection to the private database of the same version.
        source_file: The file.

    Raises:
        DatabaseError: A table differs.
    """
    expected, actual = _schema_statements(staged), _schema_statements(source)
    for table in staged_tables(staged):
        if actual.get(table.name) != expected[table.name]:
            raise DatabaseError(
                f"{source_file.path} is not as VariantScope makes it: its table {table.name} is"
                f" {'another' if table.name in actual else 'not there'}; nothing was imported."
            )


def _schema_statements(connection: sqlite3.Connection) -> Mapping[str, list[str]]:
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND sql NOT NULL")
    return {name: sql.split() for name, sql in found}


def list_runs(source: sqlite3.Connection, staged: sqlite3.Connection, source_file: SourceFile) -> list[SourceRun]:
    """Return the runs of the file in the order of their numbers.

    Args:
        source: Connection to the file.
        staged: Connection to the private database of the same version.
        source_file: The file.

    Raises:
        DatabaseError: It has too many runs.
    """
    (count,) = source.execute("SELECT count(*) FROM runs NOT INDEXED").fetchone()
    if count > MAX_RUNS:
        raise DatabaseError(
            f"{source_file.path} holds {count:,} runs; at most {MAX_RUNS:,} can be imported from one file."
        )
    deleted_column = "deleted_utc_ns IS NOT NULL" if _has_annotations(staged) else "0"
    # A longer uid is refused later; here it only must not fill the memory.
    found = source.execute(
        f"SELECT run, substr(uid, 1, 100), outcome IS NOT NULL, {deleted_column} FROM runs NOT INDEXED ORDER BY run"
    )
    return [SourceRun(run, uid, bool(ended), bool(deleted)) for run, uid, ended, deleted in found]


def list_entries(
    source: sqlite3.Connection, staged: sqlite3.Connection, known: Collection[str], source_file: SourceFile
) -> dict[int, int | None]:
    """Return the entries of the file's queue in order, with the number of each one's experiment.

    Args:
        source: Connection to the file.
        staged: Connection to the private database of the same version.
        known: Uids of entries to leave out.
        source_file: The file.

    Raises:
        DatabaseError: It has too many entries.
    """
    if not columns(staged, QUEUE.name):
        return {}
    found = source.execute(
        "SELECT entry, substr(uid, 1, 100), experiment FROM queue NOT INDEXED ORDER BY place, entry LIMIT ?",
        (MAX_ENTRIES + 1,),
    ).fetchall()
    if len(found) > MAX_ENTRIES:
        raise DatabaseError(f"{source_file.path} has more than {MAX_ENTRIES:,} experiments in its queue.")
    return {entry: experiment for entry, uid, experiment in found if uid not in known}


def load_annotations(source: sqlite3.Connection, staged: sqlite3.Connection, run: int) -> tuple[str, tuple[str, ...]]:
    """Return the note and the tags of a run of the file.

    Args:
        source: Connection to the file.
        staged: Connection to the private database of the same version.
        run: Number of the run in the file.
    """
    if not _has_annotations(staged):
        return "", ()
    (note,) = source.execute("SELECT note FROM runs NOT INDEXED WHERE run = ?", (run,)).fetchone()
    tags = source.execute("SELECT tag FROM tags NOT INDEXED WHERE run = ? ORDER BY tag LIMIT 1000", (run,))
    return note, tuple(tag for (tag,) in tags)


def _has_annotations(staged: sqlite3.Connection) -> bool:
    """Return whether this version has notes, tags and a trash."""
    return bool(columns(staged, "tags"))


class Stager:
    """Reads runs row by row from a source file into the private database, where they keep their numbers.

    `entries` of its queue are read too, with their experiments.
    """

    def __init__(
        self, source: sqlite3.Connection, staged: sqlite3.Connection, entries: Mapping[int, int | None]
    ) -> None:
        self._source = source
        self._staged = staged
        self._entries = entries
        self._tables = staged_tables(staged)

    def count(self, runs: Collection[int]) -> int:
        """Count the rows to read."""
        return count_rows(self._source, runs, (table.name for table in self._tables))

    def stage(self, runs: Collection[int], counter: RowCounter) -> None:
        """Read the runs with all that belongs to them, in one transaction."""
        with self._staged:
            for table in self._tables:
                counter.update()
                self._stage(table, self._keys(table, runs), runs, counter)

    def _stage(self, table: Table, keys: Collection[int], runs: Collection[int], counter: RowCounter) -> None:
        names = stored_columns(self._staged, table.name)
        insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        # NOT INDEXED: an index of the file may not match its rows; the table's own key is still used.
        select = f"SELECT {', '.join(names)} FROM {table.name} NOT INDEXED WHERE {table.key} = ?"
        size = _NUMERIC_BATCH_ROWS if table in DEVICE_TABLES else _TEXT_BATCH_ROWS
        for key in keys:
            found = self._source.execute(select, (key,))
            while batch := found.fetchmany(size):
                rows = batch if table != EXPERIMENT_RUNS else [row for row in batch if row[names.index("run")] in runs]
                self._staged.executemany(insert, rows)
                counter.add(len(batch))

    def _keys(self, table: Table, runs: Collection[int]) -> Collection[int]:
        if table.key == "run":
            return runs
        if table == QUEUE:
            return self._entries.keys()
        link_table = EXPERIMENT_RUNS.name if table.key == "experiment" else "devices"
        found = self._source.execute(f"SELECT {table.key}, run FROM {link_table} NOT INDEXED ORDER BY {table.key}")
        entry_keys = self._entries.values() if table.key == "experiment" else ()
        return dict.fromkeys([*(key for key, run in found if run in runs), *filter(None, entry_keys)])
