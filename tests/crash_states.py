"""Every state that a crash can leave of a database, for tests/unit/storage/test_crash_states.py.

A session of the program's own store is recorded write by write (tests/fakes/sqlite_vfs.py). Its states are

* killed: all writes up to one of them;
* power lost: what was written up to a file's last sync, and any of the later writes, each whole, missing, or with only
  some of its 512-byte sectors. A file that was deleted may still be there where its folder was not synced.

Each is opened by the program, and must be sound and whole up to one commit: the last one where the program was killed,
and where power was lost one no older than the last that was synced. Every run must end up with an outcome.
"""

import contextlib
import hashlib
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sqlite_utils import Database

from app.runs.experiment.queue import add_plan
from app.runs.sinks import mark_crashed_runs
from app.storage.migrations import migrations
from app.storage.owner import Owner
from app.storage.retention import prune
from app.storage.store import Store
from app.storage.transfer.import_export import import_runs
from app.values.plan import Plan
from tests.fakes.runs import (
    BLOCKS,
    EPOCHS,
    EVIDENCE,
    LOG,
    OUTCOME,
    PHASES,
    SAMPLES,
    SPEC,
    SUMMARY,
    UTC_NS,
    S,
    begin,
    keep,
)
from tests.fakes.sqlite_vfs import Connection, Disk, on_vfs

NAME = "profiles.db"
_FILES = (NAME, f"{NAME}-wal", f"{NAME}-journal")
_SECTOR_BYTES = 512
_SKIPPED_OF_MIGRATION = 0.9
"""Share of the moments of a migration to pass over when power is lost: opening one of its states takes ten times as
long as another, and all end up at the same two."""
_GONE = Owner(pid=1, started_s=0.0, boot_id="a boot before this one")
_COUNTED = {
    "runs": "count(*), count(outcome), count(deleted_utc_ns), count(pruned_utc_ns), total(length(note)), max(run)",
    "devices": "count(*), count(lost_t_ns)",
    "phases": "count(*), count(end_ns)",
    "queue": "count(*), count(experiment), group_concat(state)",
    **dict.fromkeys(("blocks", "epochs", "samples", "log_lines", "evidence", "kernels", "portability"), "count(*)"),
    **dict.fromkeys(("equality", "tags", "experiments", "experiment_runs", "settings"), "count(*)"),
}
_CONTENTS_SQL = "SELECT * FROM " + ", ".join(f"(SELECT {counts} FROM {table})" for table, counts in _COUNTED.items())
Contents = tuple[Any, ...]
"""Counts that differ between any two commits of a session."""


def contents(connection: Any) -> Contents:
    return tuple(connection.execute(_CONTENTS_SQL).fetchone())


@dataclass(frozen=True, slots=True)
class Change:
    """Something that SQLite did to a file; `data` of a write, `size` of a truncation."""

    kind: Literal["write", "truncate", "sync", "delete"]
    name: str
    offset: int = 0
    data: bytes = b""
    synced: bool = False


@dataclass(slots=True)
class Recording(Disk):
    """A disk that records what happens to the three files of a database, and after how many changes each commit was."""

    changes: list[Change] = field(default_factory=list)
    commits: list[tuple[int, Contents]] = field(default_factory=list)

    def write(self, name: str, offset: int, data: bytes, *, extends: bool) -> None:
        self._add(Change("write", name, offset, data))

    def truncate(self, name: str, size: int) -> None:
        self._add(Change("truncate", name, size))

    def sync(self, name: str) -> None:
        self._add(Change("sync", name))

    def delete(self, name: str, *, synced: bool) -> None:
        self._add(Change("delete", name, synced=synced))

    def committed(self, connection: Connection) -> None:
        self.commits.append((len(self.changes), contents(connection)))

    def _add(self, change: Change) -> None:
        if change.name in _FILES:
            self.changes.append(change)


@dataclass(slots=True)
class FileHistory:
    """One file during the recording: what is on the disk for sure, what was written since, and the name's deletion."""

    durable: bytes | None = None
    pending: list[Change] = field(default_factory=list)
    deleted: bytes | None = None
    generation: int = 0

    def apply(self, change: Change) -> None:
        if change.kind == "sync":
            self._settle(self.content(self.pending), None)
        elif change.kind == "delete":
            self._settle(None, None if change.synced else self.durable)
        else:
            self.pending.append(change)

    def content(self, changes: Sequence[Change]) -> bytes | None:
        """The file with these of the changes that are not synced; None where there is none."""
        if not changes:
            return self.durable
        made = bytearray(self.durable or b"")
        for change in changes:
            if change.kind == "truncate":
                del made[change.offset :]
                continue
            made.extend(bytes(max(0, change.offset - len(made))))
            made[change.offset : change.offset + len(change.data)] = change.data
        return bytes(made)

    def _settle(self, durable: bytes | None, deleted: bytes | None) -> None:
        self.durable, self.deleted, self.pending = durable, deleted, []
        self.generation += 1


@dataclass(frozen=True, slots=True)
class State:
    """The files after a crash, and the commits that the database may have: the numbers of the first and the last."""

    files: dict[str, bytes | None]
    first: int
    last: int


def states(recording: Recording, initial: bytes | None, count: int, seed: int) -> Iterator[State]:
    """Yield the states of a recording: all of a killed program, then of lost power as many as are wanted, each once.

    Args:
        recording: What was recorded.
        initial: The database before.
        count: The most states to yield.
        seed: Of the choice among subsets.
    """
    chance = random.Random(seed)
    moments = list(_moments(recording, initial))
    for files, _, last in moments:
        yield State({name: each.content(each.pending) for name, each in files.items()}, last - 1, last)
    left, seen = count - len(moments), set[object]()
    barren = 0
    while left > 0 and barren < 20 * len(moments):
        for files, first, last in moments:
            if last == 1 and chance.random() < _SKIPPED_OF_MIGRATION:
                continue
            chosen = {name: _choose(each, chance) for name, each in files.items()}
            key = tuple((each.generation, tuple(chosen[name])) for name, each in files.items())
            if left <= 0 or key in seen:
                barren += 1
                continue
            seen.add(key)
            left, barren = left - 1, 0
            yield State(
                {name: _after_power_loss(each, chosen[name], chance) for name, each in files.items()}, first, last
            )


def _moments(recording: Recording, initial: bytes | None) -> Iterator[tuple[dict[str, FileHistory], int, int]]:
    """Yield the files after each change, the last commit that is durable then, and the one that may be under way."""
    files = {name: FileHistory() for name in _FILES}
    files[NAME].durable = initial
    durable = done = 0
    for number, change in enumerate(recording.changes, 1):
        if change.kind == "sync" and files[change.name].durable is None:
            # With a new file's first sync SQLite syncs the folder, too, and with it earlier deletions.
            for each in files.values():
                each.deleted = None
        files[change.name].apply(change)
        if change.kind == "sync" and change.name != _FILES[2]:
            durable = done
        done = sum(at <= number for at, _ in recording.commits)
        copies = {
            name: FileHistory(each.durable, list(each.pending), each.deleted, each.generation)
            for name, each in files.items()
        }
        yield copies, durable, done + 1


def _choose(file: FileHistory, chance: random.Random) -> list[int]:
    """Choose which of the writes that are not synced reached the disk: most, few or about half of them."""
    share = chance.choice((0.1, 0.5, 0.9))
    return [number for number in range(len(file.pending)) if chance.random() < share]


def _after_power_loss(file: FileHistory, chosen: Sequence[int], chance: random.Random) -> bytes | None:
    if file.deleted is not None and not chosen and chance.random() < 0.5:
        return file.deleted
    changes = [file.pending[number] for number in chosen]
    if changes and chance.random() < 0.5:
        number = chance.randrange(len(changes))
        changes[number : number + 1] = _torn(changes[number], chance)
    return file.content(changes)


def _torn(change: Change, chance: random.Random) -> list[Change]:
    """Return some sectors of a write."""
    if change.kind != "write":
        return [change]
    end = change.offset + len(change.data)
    starts = [change.offset, *range(_SECTOR_BYTES * (change.offset // _SECTOR_BYTES + 1), end, _SECTOR_BYTES)]
    pieces = zip(starts, [*starts[1:], end], strict=True)
    return [
        Change("write", change.name, start, change.data[start - change.offset : stop - change.offset])
        for start, stop in pieces
        if chance.random() < 0.5
    ]


def check(state: State, expected: Sequence[Contents], folder: Path, sound: dict[bytes, Contents]) -> None:
    """Write a state as files, open it with the program, and hold what the program promises.

    Args:
        state: The state.
        expected: What the database has after each commit.
        folder: Where to write the files.
        sound: What databases have, by the hash of the file without a log, that were searched for damage: many states
            become the same one.
    """
    for name in (*_FILES, f"{NAME}-shm"):
        data = state.files.get(name)
        if data is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(data)
    with Store.open(folder / NAME) as store:
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        image = hashlib.blake2b((folder / NAME).read_bytes(), digest_size=16).digest()
        known = sound.get(image)
        sound[image] = found = known or contents(store._db.conn)
        possible = expected[max(0, state.first) : state.last + 1]
        assert found in possible, f"it is whole up to no commit of {state.first} to {state.last}"
        if known:
            return
        mark_crashed_runs(store)
        assert all(row.outcome is not None for row in store.list_runs())
        assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert store._db.execute("PRAGMA foreign_key_check").fetchall() == []


def record(database: Path, session: Callable[[Path], None]) -> tuple[Recording, bytes | None, list[Contents]]:
    """Record a session; return it with the database before, and the contents before it and after each commit."""
    initial = database.read_bytes() if database.exists() else None
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / NAME
        if initial is not None:
            before.write_bytes(initial)
        with Store.open(before) as store:
            expected = [contents(store._db.conn)]
    recording = Recording()
    with on_vfs(recording, database, recording.committed):
        session(database)
    return recording, initial, [*expected, *(found for _, found in recording.commits)]


def first_session(path: Path) -> None:
    """A new database, and one run."""
    with Store.open(path) as store:
        keep(store, owner=_GONE)


def long_session(path: Path) -> None:
    """The oldest database is migrated; runs, an import, annotations, the queue, the trash, and packing follow."""
    with Store.open(path) as store:
        run = begin(store, owner=_GONE)
        for number in range(3):
            lines = [type(LOG[0])(number, f"line {number}")]
            store.write(run, (*PHASES[number : number + 1], BLOCKS[number], lines[0]), first_log_line=number)
        store.write(run, SAMPLES)
        store.write(run, (EVIDENCE, *EPOCHS))
        store.finish(run, outcome=OUTCOME, summary=SUMMARY, t_ns=6 * S, utc_ns=UTC_NS + 6 * S)
    other = path.with_name("other.db")
    with Store.open(other) as store:
        keep(store, uid="imported-1")
        keep(store, uid="imported-2")
    import_runs(path, other)
    with Store.open(path) as store:
        keep(store, uid="uid-2", owner=_GONE)
        store.library.set_note(2, "a note")
        store.library.add_tag([1, 2, 3], "tag")
        add_plan(store, Plan(name="plan", variants=(SPEC,), repeats=2))
        store.queue.add_runs(1, [3])
    with Store.open(path) as store:
        store.library.delete([1, 4])
        store.library.restore([4])
        store.library.purge([1])
        store.queue.set_state(1, "paused")
    prune(path, 0.0)
    with Store.open(path) as store:
        run = begin(store, uid="uid-3", owner=_GONE)
        for block in BLOCKS:
            store.write(run, (block, *(SAMPLES if block is BLOCKS[0] else ())))


def oldest_database(path: Path) -> None:
    """Write a database of the first version with one run that has ended, and one that has not."""
    with contextlib.closing(Database(path)) as db:
        db.enable_wal()
        migrations.apply(db, stop_before="m002_telemetry")
        for uid, outcome in (("old-1", "completed"), ("old-2", None)):
            db.execute(
                "INSERT INTO runs (uid, workload, variant, started_utc_ns, started_t_ns, owner_pid, owner_started_s,"
                " owner_boot_id, outcome) VALUES (?, 'cnn10', '{\"layout\": \"NCHW\"}', ?, 1, 1, 1, 'x', ?)",
                (uid, UTC_NS, outcome),
            )


def check_states(count: int, seed: int = 0) -> tuple[int, int]:
    """Check so many states of both sessions; return how many, and how many changes they had."""
    checked = changes = 0
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder, scratch = Path(name) / "recorded", Path(name) / "state"
        scratch.mkdir()
        sound: dict[bytes, Contents] = {}
        for session, prepare, share in ((first_session, None, 0.2), (long_session, oldest_database, 0.8)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            if prepare is not None:
                prepare(folder / NAME)
            recording, initial, expected = record(folder / NAME, session)
            changes += len(recording.changes)
            for number, state in enumerate(states(recording, initial, round(share * count), seed)):
                try:
                    check(state, expected, scratch, sound)
                except (AssertionError, sqlite3.Error, Exception) as error:
                    raise AssertionError(f"state {number} of {session.__name__} with seed {seed}: {error}") from error
                checked += 1
    return checked, changes
