"""Moving runs between databases: out into a small complete one, and in from one that somebody gave us.

Both raise `DatabaseError` for what is wrong with a file and `UserError` for runs that cannot move, and then leave
everything as it was; `StoppedError` where the watch says so. How to read a file safely is in transfer_source.py.
"""

import contextlib
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import DatabaseError
from app.storage import retention
from app.storage.location import weights_path
from app.storage.migrations import migrations
from app.storage.opening import open_database, told_plainly, transaction
from app.storage.space import LEAST_BYTES, room_for
from app.storage.transfer_check import check
from app.storage.transfer_copy import RunCopier, checked_runs, count_rows
from app.storage.transfer_place import written_whole
from app.storage.transfer_source import GivenFile, look_at, look_for_damage, opened, told_of_file
from app.storage.transfer_staging import (
    Found,
    Stager,
    check_schema,
    entries_in,
    library_of,
    runs_in,
    staged_at,
    tables_of,
    version_of,
)
from app.storage.transfer_tables import CARRIED
from app.storage.transfer_watch import QUIET, Counter, Watch, interruptible

_TIMES_THE_SIZE = 3
"""What an import may take on the disk, of the file's size: the private copy, the write-ahead log, the database."""


@dataclass(frozen=True, slots=True)
class Known:
    """A run that was here already, by its number here; `differs` names what of `note` and `tags` the file has else."""

    run: int
    differs: tuple[str, ...] = ()
    in_trash: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did: `runs` are the new numbers here; `unfinished` and `in_trash` numbers there, left out.

    `entries` are the numbers here of unfinished experiments that came into the queue, `complete` those that these runs
    completed, so that they left it.
    """

    runs: tuple[int, ...]
    already: tuple[Known, ...]
    unfinished: tuple[int, ...]
    in_trash: tuple[int, ...]
    seconds: float
    entries: tuple[int, ...] = ()
    complete: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote: its files, how many runs, bytes on the disk, and saved weights that stay where they are.

    `entries` is how many unfinished experiments of the queue came along.
    """

    files: tuple[Path, ...]
    runs: int
    bytes: int
    seconds: float
    weights: tuple[Path, ...] = ()
    entries: int = 0


@dataclass(frozen=True, slots=True)
class _There:
    """What a given file has: runs that are here already, the others, and how far the work is.

    `entries` are those of its queue that are not here, by their numbers there.
    """

    already: tuple[Known, ...]
    new: tuple[Found, ...]
    entries: tuple[int, ...]
    counter: Counter


@dataclass(frozen=True, slots=True)
class _Ours:
    """A run of our database: its number, what was noted of it, and whether it is in the trash."""

    run: int
    note: str
    tags: tuple[str, ...]
    in_trash: bool


def import_runs(database: Path, file: Path, watch: Watch = QUIET) -> Imported:
    """Adds the runs of another database that are not here yet, in one transaction, under new numbers."""
    started_s = time.monotonic()
    given = look_at(file)
    ours = _ours(database)
    _check_place(database, given)
    with _scratch(database) as folder:
        staged = folder / "staged.db"
        there = _stage(given, staged, ours, _queued(database), watch)
        runs, entries = _take(database, staged, there, watch)
    return Imported(
        runs=runs,
        already=there.already,
        unfinished=tuple(run.run for run in there.new if not run.ended),
        in_trash=tuple(run.run for run in there.new if run.ended and run.deleted),
        seconds=time.monotonic() - started_s,
        entries=entries,
    )


def check_takeable(database: Path, runs: Iterable[int]) -> None:
    """Raises `UserError` for a run that cannot be taken away: no run at all, one going on, or one in the trash."""
    with contextlib.closing(open_database(database)) as db, told_plainly(database):
        checked_runs(db.conn, runs, database)


def export_database(
    database: Path, runs: Sequence[int], target: Path, watch: Watch = QUIET, entries: Sequence[int] = ()
) -> Exported:
    """Writes these runs into a new database at `target`, which appears when it is complete.

    `entries` of the queue come along: there each goes on with those of the runs that are its own.
    """
    started_s = time.monotonic()
    with written_whole(target) as part, contextlib.closing(open_database(part)) as db:
        db.execute("ATTACH ? AS kept", (str(database.absolute()),))
        with told_plainly(database):
            checked_runs(db.conn, runs, database, "kept")
            total = count_rows(db.conn, runs, (table.name for table in CARRIED), "kept")
        with transaction(db, target), interruptible(db.conn, watch):
            copier = RunCopier(db.conn, "kept", Counter(watch, total))
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


def _ours(database: Path) -> Mapping[str, _Ours]:
    with contextlib.closing(open_database(database)) as db, told_plainly(database):
        tags: dict[int, list[str]] = {}
        for run, tag in db.execute("SELECT run, tag FROM tags ORDER BY tag"):
            tags.setdefault(run, []).append(tag)
        found = db.execute("SELECT uid, run, note, deleted_utc_ns IS NOT NULL FROM runs")
        return {uid: _Ours(run, note, tuple(tags.get(run, ())), bool(trash)) for uid, run, note, trash in found}


def _queued(database: Path) -> frozenset[str]:
    """The uids of what is in the queue here."""
    with contextlib.closing(open_database(database)) as db, told_plainly(database):
        return frozenset(uid for (uid,) in db.execute("SELECT uid FROM queue"))


def _known(ours: _Ours, note: str, tags: tuple[str, ...]) -> Known:
    same = {"note": ours.note == note, "tags": ours.tags == tags}
    return Known(ours.run, tuple(name for name, is_same in same.items() if not is_same), ours.in_trash)


def _check_place(database: Path, given: GivenFile) -> None:
    """Raises `DatabaseError` where this database cannot take runs from that file now."""
    if given.path.samefile(database):
        raise DatabaseError(f"{given.path} is the very database that runs would be imported into.")
    if retention.is_running(database):
        raise DatabaseError(
            f"A run is going on in {database}, and an import would disturb what it measures; import when it has ended."
        )
    free, needed = room_for(database).free_bytes, _TIMES_THE_SIZE * given.bytes + LEAST_BYTES
    if free is not None and free < needed:
        raise DatabaseError(
            f"{given.path} takes {given.bytes / 1e9:,.2f} GB, and importing it may need {needed / 1e9:,.2f} GB for a"
            f" while; the disk that holds {database} has {free / 1e9:,.2f} GB free."
        )


def _stage(given: GivenFile, path: Path, ours: Mapping[str, _Ours], queued: Collection[str], watch: Watch) -> _There:
    """Reads what is to be imported into a private database of the newest version, and checks every value of it."""
    with contextlib.ExitStack() as private:
        with opened(given, path.parent, watch) as source:
            version = version_of(source, given)
            staged = private.enter_context(staged_at(path, version, 2 * given.bytes + LEAST_BYTES))
            check_schema(source, staged.conn, given)
            found = runs_in(source, staged.conn, given)
            already = tuple(
                _known(ours[run.uid], *library_of(source, staged.conn, run.run)) for run in found if run.uid in ours
            )
            new = tuple(run for run in found if run.uid not in ours)
            wanted = dict.fromkeys(run.run for run in new if run.ended and not run.deleted)
            entries = entries_in(source, staged.conn, queued, given)
            if wanted or entries:
                look_for_damage(source, given, (table.name for table in tables_of(staged.conn)), watch)
            stager = Stager(source, staged.conn, entries)
            counter = Counter(watch, 2 * stager.count(wanted.keys()))
            stager.stage(wanted.keys(), counter)
        with told_of_file(given.path), interruptible(staged.conn, watch):
            migrations.apply(staged)
            check(staged.conn, given)
    return _There(already, new, tuple(entries), counter)


@contextlib.contextmanager
def _scratch(database: Path) -> Iterator[Path]:
    """A folder beside the database, on the same disk, that is gone afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix=f"{database.name}.import-", dir=database.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise DatabaseError(f"The file cannot be read into {database.parent} ({error.strerror}).") from error


def _take(database: Path, staged: Path, there: _There, watch: Watch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Takes over what is staged; the new numbers of its runs and of its entries."""
    with contextlib.closing(open_database(database)) as db:
        db.execute("ATTACH ? AS staged", (str(staged),))
        with transaction(db, database), interruptible(db.conn, watch):
            # Another import may have brought some of them in the meantime.
            found = db.execute("SELECT run FROM staged.runs WHERE uid NOT IN (SELECT uid FROM main.runs) ORDER BY run")
            copier = RunCopier(db.conn, "staged", there.counter)
            return copier.copy([run for (run,) in found.fetchall()]), copier.copy_entries(there.entries)
