"""Experiments in the database: the stored ones, and the queue of unfinished ones."""

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from app.errors import UserError
from app.paths import PROGRAM
from app.queries import QueueEntry, SettableState, StoredExperiment
from app.storage.database import transaction, translate_sqlite_errors
from app.storage.listing import TRASH
from app.storage.owner import Owner, this_process

_EXPERIMENT_COLUMNS = ("experiment", "uid", "name", "preset", "created_utc_ns", "plan")
_RUNS = (
    "SELECT run FROM experiment_runs WHERE experiment_runs.experiment = experiments.experiment"
    f" AND run NOT IN ({TRASH}) ORDER BY place LIMIT -1"
)


def load_experiments(db: Database, experiment: int | None = None) -> list[StoredExperiment]:
    """Return one experiment, or all, newest first, without the runs in the trash."""
    cursor = db.execute(
        f"SELECT {', '.join(_EXPERIMENT_COLUMNS)}, (SELECT json_group_array(run) FROM ({_RUNS})) FROM experiments"
        " WHERE :experiment IS NULL OR experiment = :experiment ORDER BY created_utc_ns DESC, experiment DESC",
        {"experiment": experiment},
    )
    return [
        StoredExperiment(**dict(zip(_EXPERIMENT_COLUMNS, values, strict=True)), runs=tuple(json.loads(runs)))
        for *values, runs in cursor
    ]


def save_experiment(
    db: Database, runs: Sequence[int], *, uid: str, name: str, preset: str | None, plan: str, utc_ns: int
) -> int:
    """Save runs as an experiment, in the caller's transaction, and return its number.

    An experiment of the same name and variants with one of the runs, and no other result, is extended: the number of
    repeats does not distinguish experiments.

    A new one gets this `uid`, the same in every database, and `utc_ns`. `preset` is a preset's key, `plan` a `Plan` as
    JSON.
    """
    row = db.execute(
        "SELECT experiment FROM experiments JOIN experiment_runs USING (experiment)"
        " WHERE name = ? AND json_extract(plan, '$.variants') = json_extract(?, '$.variants')"
        " AND run IN (SELECT value FROM json_each(?)) AND NOT EXISTS"
        " (SELECT 1 FROM experiment_runs AS others JOIN runs USING (run) WHERE outcome = 'completed'"
        " AND others.experiment = experiments.experiment AND run NOT IN (SELECT value FROM json_each(?))"
        f" AND run NOT IN ({TRASH})) ORDER BY experiment DESC",
        (name, plan, *2 * (json.dumps(list(runs)),)),
    ).fetchone()
    if row is None:
        values = (uid, name, preset, utc_ns, plan)
        row = db.execute(
            f"INSERT INTO experiments ({', '.join(_EXPERIMENT_COLUMNS[1:])}) VALUES (?, ?, ?, ?, ?)"
            " RETURNING experiment",
            values,
        ).fetchone()
    else:
        db.execute("UPDATE experiments SET plan = ? WHERE experiment = ?", (plan, row[0]))
    experiment: int = row[0]
    add_runs(db, experiment, runs)
    return experiment


def add_runs(db: Database, experiment: int, runs: Sequence[int]) -> None:
    """Add the runs that an experiment lacks, in their order, after its runs."""
    last = db.execute("SELECT max(place) FROM experiment_runs WHERE experiment = ?", (experiment,)).fetchone()[0]
    positioned = enumerate(runs, 0 if last is None else last + 1)
    db.conn.executemany(
        "INSERT OR IGNORE INTO experiment_runs (experiment, run, place) VALUES (?, ?, ?)",
        ((experiment, run, position) for position, run in positioned),
    )


_OWNER_COLUMNS = ("owner_pid", "owner_started_s", "owner_boot_id")
_COLUMNS = (
    "entry",
    "uid",
    "name",
    "preset",
    "plan",
    "state",
    "added_utc_ns",
    "experiment",
    "imported",
    *_OWNER_COLUMNS,
)


class Queue:
    """The queue of one open database. Every change is one transaction.

    Methods raise `DatabaseError` like `Store`'s. A missing entry is not an error unless documented: another program may
    have finished it.

    Thread: the one that opened the store. Between processes, transactions serve as the lock.
    """

    def __init__(self, db: Database, path: Path) -> None:
        self._db = db
        self.path = path

    def entries(self) -> tuple[QueueEntry, ...]:
        with translate_sqlite_errors(self.path):
            rows = self._db.execute(f"SELECT {', '.join(_COLUMNS)} FROM queue ORDER BY place, entry").fetchall()
        return tuple(map(_parse_entry, rows))

    def entry(self, entry: int) -> QueueEntry:
        """Return one entry; raises `UserError` if it does not exist."""
        queued = next((queued for queued in self.entries() if queued.entry == entry), None)
        if queued is None:
            raise _no_such_entry(entry)
        return queued

    def add(self, *, name: str, preset: str | None, plan: str) -> int:
        """Add an experiment at the end and return its number; `preset` is a preset's key, `plan` a `Plan` as JSON."""
        with transaction(self._db, self.path):
            return self._add(name, preset, plan)

    def add_or_update(
        self,
        *,
        name: str,
        preset: str | None,
        plan: str,
        is_same: Callable[[QueueEntry], bool],
        merged_plan: Callable[[QueueEntry], str],
    ) -> tuple[QueueEntry, bool]:
        """Update the first entry for which `is_same` is true, or add one; return it, and whether it is new.

        An existing entry waits again, with the plan that `merged_plan` returns, and counts as added here. One that a
        living process owns keeps its state.
        """
        with transaction(self._db, self.path):
            queued = next(filter(is_same, self.entries()), None)
            if queued is None:
                return self.entry(self._add(name, preset, plan)), True
            merged = merged_plan(queued)
            self._db.execute("UPDATE queue SET plan = ? WHERE entry = ?", (merged, queued.entry))
            self._db.execute(
                "UPDATE experiments SET plan = ? WHERE experiment = (SELECT experiment FROM queue WHERE entry = ?)",
                (merged, queued.entry),
            )
            self._db.execute("UPDATE queue SET imported = 0 WHERE entry = ?", (queued.entry,))
            if not queued.owned:
                self._set_state(queued.entry, "waiting")
            return self.entry(queued.entry), False

    def move(self, entry: int, before: int | None) -> None:
        """Move an entry before another one, or to the end; raises `UserError` if either is missing."""
        with transaction(self._db, self.path):
            order = [queued.entry for queued in self.entries()]
            for number in {entry, before} - {None, *order}:
                raise _no_such_entry(number)
            order_without = [number for number in order if number != entry]
            position = (
                order.index(entry)
                if before == entry
                else len(order_without)
                if before is None
                else order_without.index(before)
            )
            order_without.insert(position, entry)
            self._db.conn.executemany("UPDATE queue SET place = ? WHERE entry = ?", enumerate(order_without, 1))

    def set_state(self, entry: int, state: SettableState) -> None:
        """Pause an entry, or let it wait; its current run continues."""
        with transaction(self._db, self.path):
            self._set_state(entry, state)

    def claim(self, entry: int) -> bool:
        """Make this process the owner of an entry; return False if it was removed or a living process owns it."""
        with transaction(self._db, self.path):
            owner = self._owner(entry)
            if owner is not None and owner != this_process() and owner.is_alive():
                return False
            return self._set_owner(entry, this_process()) == 1

    def release(self, entry: int, state: SettableState | None = None) -> None:
        """Give up an entry and set its state if one is given; another process's entry does not change."""
        with transaction(self._db, self.path):
            if self._owner(entry) == this_process():
                self._set_owner(entry, None)
                if state is not None:
                    self._set_state(entry, state)

    def remove(self, entry: int) -> None:
        """Remove an entry; its runs and its experiment remain."""
        with transaction(self._db, self.path):
            self._db.execute("DELETE FROM queue WHERE entry = ?", (entry,))

    def finish(self, entry: int, plan: str) -> bool:
        """Remove an entry whose plan is done; return False if its plan has changed meanwhile."""
        with transaction(self._db, self.path):
            self._db.execute("DELETE FROM queue WHERE entry = ? AND plan = ?", (entry, plan))
            return not self._db.execute("SELECT 1 FROM queue WHERE entry = ?", (entry,)).fetchall()

    def add_runs(self, entry: int, runs: Sequence[int]) -> int | None:
        """Add runs to the entry's experiment and return its number; None without entry or runs."""
        with transaction(self._db, self.path):
            row = self._db.execute(
                "SELECT uid, name, preset, plan, experiment FROM queue WHERE entry = ?", (entry,)
            ).fetchone()
            if row is None:
                return None
            experiment: int | None
            uid, name, preset, plan, experiment = row
            if experiment is not None:
                add_runs(self._db, experiment, runs)
            elif runs:
                # With the entry's uid it is the same experiment on every machine that continues it.
                experiment = save_experiment(
                    self._db, runs, uid=uid, name=name, preset=preset, plan=plan, utc_ns=time.time_ns()
                )
                self._db.execute("UPDATE queue SET experiment = ? WHERE entry = ?", (experiment, entry))
        return experiment

    def remove_runs(self, entry: int, runs: Sequence[int]) -> None:
        """Remove runs that do not count from the entry's experiment; they stay in the history."""
        with transaction(self._db, self.path):
            self._db.conn.executemany(
                "DELETE FROM experiment_runs WHERE run = ?"
                " AND experiment = (SELECT experiment FROM queue WHERE entry = ?)",
                ((run, entry) for run in runs),
            )

    def _add(self, name: str, preset: str | None, plan: str) -> int:
        added = self._db.execute(
            "INSERT INTO queue (uid, name, preset, plan, added_utc_ns, place)"
            " VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(place), 0) + 1 FROM queue))",
            (uuid.uuid4().hex, name, preset, plan, time.time_ns()),
        )
        assert added.lastrowid is not None, "SQLite names the row it inserted"
        return added.lastrowid

    def _set_state(self, entry: int, state: SettableState) -> None:
        self._db.execute("UPDATE queue SET state = ? WHERE entry = ?", (state, entry))

    def _owner(self, entry: int) -> Owner | None:
        row = self._db.execute(f"SELECT {', '.join(_OWNER_COLUMNS)} FROM queue WHERE entry = ?", (entry,)).fetchone()
        return None if row is None else _parse_owner(row)

    def _set_owner(self, entry: int, owner: Owner | None) -> int:
        values = (None, None, None) if owner is None else (owner.pid, owner.started_s, owner.boot_id)
        sets = ", ".join(f"{name} = ?" for name in _OWNER_COLUMNS)
        return int(self._db.execute(f"UPDATE queue SET {sets} WHERE entry = ?", (*values, entry)).rowcount)


def _no_such_entry(entry: int | None) -> UserError:
    return UserError(f"The queue has no entry {entry}; `{PROGRAM} queue` lists all.")


def _parse_owner(values: Sequence[Any]) -> Owner | None:
    return None if values[0] is None else Owner(*values)


def _parse_entry(row: Sequence[Any]) -> QueueEntry:
    values = dict(zip(_COLUMNS, row, strict=True))
    owner = _parse_owner([values.pop(name) for name in _OWNER_COLUMNS])
    owned = owner is not None and owner.is_alive()
    is_running = owned and values["state"] == "waiting"
    changed = {"state": "running" if is_running else values["state"], "imported": bool(values["imported"])}
    return QueueEntry(**{**values, **changed}, owned=owned)
