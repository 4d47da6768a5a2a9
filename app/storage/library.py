"""The library of runs: search, notes, tags and the trash."""

import json
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from sqlite_utils import Database

from app.errors import UserError
from app.paths import PROGRAM, weights_path
from app.queries import (
    NO_QUESTION,
    Common,
    FacetCounts,
    Question,
    RunQuery,
    SearchResult,
    StoredExperiment,
    Totals,
    plan_question,
)
from app.storage import changes, listing, queue
from app.storage.changes import Changes, Result
from app.storage.database import transaction, translate_sqlite_errors
from app.storage.listing import count_facets
from app.storage.owner import Owner, unfinished_runs
from app.values.environment_keys import DETACHED_KEY, HOST_KEY
from app.values.plan import decode_plan
from app.values.records import RunRow

MAX_NOTE_LENGTH = 10_000
MAX_TAG_LENGTH = 60


class Library:
    """The runs of one open database. Every change is one transaction; methods raise `DatabaseError` like the store.

    Methods that take run numbers raise `UserError` for an unknown one, and then change nothing. Thread: the store's.
    """

    def __init__(self, db: Database, path: Path) -> None:
        self._db = db
        self.path = path

    def record(self, change: Callable[[], Result]) -> tuple[Result, Changes]:
        """Change tags, notes, trash or queue, and return its result and its `Changes`."""
        return changes.record(self._db, self.path, change)

    def undo(self, change: Changes) -> Changes:
        """Undo a change, and return what redoes it; raises `UserError` if everything in it has since changed again."""
        return changes.undo(self._db, self.path, change)

    def can_undo(self, change: Changes) -> bool:
        """Return whether a change can be undone: not everything in it has since changed again."""
        return changes.can_undo(self._db, self.path, change)

    def find(self, query: RunQuery) -> list[int]:
        """Return the numbers of the runs that match a query, in its order; raises `UserError` like `search`."""
        return list(self.search(query).runs)

    def search(self, query: RunQuery) -> SearchResult:
        """Return the runs that match a query, in its order, and where the words were found.

        Raises:
            UserError: The search has too many words.
        """
        with translate_sqlite_errors(self.path):
            return listing.find_runs(self._db, query)

    def common_values(self, query: RunQuery, result: SearchResult) -> Common:
        """Return what the runs of a query have in common, and the largest figures of each workload among them."""
        with translate_sqlite_errors(self.path):
            return listing.common_values(self._db, query, result)

    def run_rows(self, runs: Sequence[int]) -> list[RunRow]:
        """Return the rows of these runs, such as one page, in this order, without deleted runs."""
        with translate_sqlite_errors(self.path):
            return listing.load_rows(self._db, runs)

    def totals(self, *, deleted: bool = False) -> Totals:
        with translate_sqlite_errors(self.path):
            return listing.count_runs(self._db, deleted=deleted)

    def count_facets(self, query: RunQuery) -> FacetCounts:
        """Count the runs of each facet's values among those that match the rest of a query.

        Raises:
            UserError: The search has too many words.
        """
        with translate_sqlite_errors(self.path):
            return count_facets(self._db, query)

    def census(self) -> tuple[int, ...]:
        """Return counts that change when a run begins, ends, goes into the trash or comes out; cheap enough to poll."""
        with translate_sqlite_errors(self.path):
            cursor = self._db.execute("SELECT count(*), max(run), count(outcome), count(deleted_utc_ns) FROM runs")
            return tuple(cursor.fetchone())

    def runs_with_uids(self, uids: Sequence[str], *, deleted: bool) -> list[int]:
        with translate_sqlite_errors(self.path):
            cursor = self._db.execute(
                "SELECT run FROM runs WHERE uid IN (SELECT value FROM json_each(?))"
                f" AND deleted_utc_ns IS {'NOT ' if deleted else ''}NULL ORDER BY run",
                (json.dumps(list(uids)),),
            )
            return [number for (number,) in cursor]

    def fetched_run(self, uid: str, host: str) -> int | None:
        """Return the run with this uid if it was fetched completely; set aside what a killed fetch left of it.

        That gets another uid, so that the run can be stored completely beside it; see `parts`.

        Raises:
            UserError: A living process is storing it, or another run has its id: a host may name any.
        """
        with transaction(self._db, self.path):
            row = self._db.execute(
                "SELECT run, environment, owner_pid, owner_started_s, owner_boot_id FROM runs WHERE uid = ?", (uid,)
            ).fetchone()
            if row is None:
                return None
            run, environment, *owner = row
            state = json.loads(environment)
            if state.get(DETACHED_KEY) == "yes":
                return int(run)
            if state.get(DETACHED_KEY) != "in part" or state.get(HOST_KEY) != host:
                raise UserError(
                    f"Run {run} of this database has the id of the run on {host}, and is another one: nothing was"
                    " fetched. It can be fetched into another database."
                )
            if Owner(*owner).is_alive():  # also of a run that has ended, whose marker follows
                raise UserError(f"Run {run} is in progress; another process is storing it.")
            self._db.execute("UPDATE runs SET uid = uid || '-part' || run WHERE run = ?", (run,))
        return None

    def parts(self, uid: str) -> list[int]:
        with translate_sqlite_errors(self.path):
            cursor = self._db.execute("SELECT run FROM runs WHERE uid = ? || '-part' || run", (uid,))
            return [number for (number,) in cursor]

    def set_note(self, run: int, note: str) -> None:
        """Replace the note of a run; "" removes it."""
        text = checked_note(note)
        with transaction(self._db, self.path):
            self._require_runs([run])
            self._db.execute("UPDATE runs SET note = ? WHERE run = ?", (text, run))

    def add_tag(self, runs: Sequence[int], tag: str) -> None:
        text = checked_tag(tag)
        with transaction(self._db, self.path):
            self._require_runs(runs)
            self._db.conn.executemany("INSERT OR IGNORE INTO tags (run, tag) VALUES (?, ?)", ((r, text) for r in runs))

    def remove_tag(self, runs: Sequence[int], tag: str) -> None:
        text = checked_tag(tag)
        with transaction(self._db, self.path):
            self._require_runs(runs)
            self._db.conn.executemany("DELETE FROM tags WHERE run = ? AND tag = ?", ((run, text) for run in runs))

    def delete(self, runs: Sequence[int], *, utc_ns: int | None = None) -> list[int]:
        """Move runs to the trash; return those that were not there before, whose `restore` undoes it.

        Raises:
            UserError: A run is in progress.
        """
        with transaction(self._db, self.path):
            self._require_runs(runs)
            for run, owner in unfinished_runs(self._db.conn):
                if run in runs and owner.is_alive():
                    raise UserError(f"Run {run} is in progress; stop it first, or delete it when it has ended.")
            return self._set_deleted(runs, "deleted_utc_ns IS NULL", time.time_ns() if utc_ns is None else utc_ns)

    def restore(self, runs: Sequence[int]) -> list[int]:
        """Take runs out of the trash; return those that were in it."""
        with transaction(self._db, self.path):
            self._require_runs(runs)
            return self._set_deleted(runs, "deleted_utc_ns IS NOT NULL", None)

    def purge(self, runs: Sequence[int]) -> None:
        """Permanently delete runs in the trash, with their samples and weights.

        Raises:
            UserError: A run is not in the trash.
        """
        with transaction(self._db, self.path):
            self._require_runs(runs)
            for row in listing.load_rows(self._db, runs):
                if row.deleted_utc_ns is None:
                    raise UserError(f"Run {row.run} is not in the trash; `{PROGRAM} delete {row.run}` puts it there.")
            run_list = json.dumps(list(runs))
            uids = self._db.execute("SELECT uid FROM runs WHERE run IN (SELECT value FROM json_each(?))", (run_list,))
            weights = [weights_path(self.path, uid) for (uid,) in uids.fetchall()]
            self._db.execute("DELETE FROM runs WHERE run IN (SELECT value FROM json_each(?))", (run_list,))
            self._db.execute("DELETE FROM experiments WHERE experiment NOT IN (SELECT experiment FROM experiment_runs)")
        for path in weights:
            path.unlink(missing_ok=True)

    def earlier_runs(self, run: int, excluding: Sequence[int], limit: int) -> list[int]:
        """Return at most `limit` earlier completed runs of a run's variant, newest first."""
        with translate_sqlite_errors(self.path):
            cursor = self._db.execute(
                "SELECT earlier.run FROM runs AS earlier JOIN runs AS this USING (workload, variant)"
                " WHERE this.run = ? AND earlier.started_utc_ns < this.started_utc_ns"
                " AND earlier.deleted_utc_ns IS NULL AND earlier.outcome = 'completed'"
                " AND earlier.run NOT IN (SELECT value FROM json_each(?))"
                " ORDER BY earlier.started_utc_ns DESC LIMIT ?",
                (run, json.dumps(list(excluding)), limit),
            )
            return [number for (number,) in cursor]

    def experiments(self) -> list[StoredExperiment]:
        """Return all experiments that have a run outside the trash, newest first."""
        with translate_sqlite_errors(self.path):
            return [experiment for experiment in queue.load_experiments(self._db) if experiment.runs]

    def experiment(self, experiment: int) -> StoredExperiment | None:
        with translate_sqlite_errors(self.path):
            return next(iter(queue.load_experiments(self._db, experiment)), None)

    def runs_of_experiment(self, experiment: int) -> tuple[int, ...]:
        """Return an experiment's runs in the order they ran or were reused, without those in the trash."""
        stored = self.experiment(experiment)
        return () if stored is None else stored.runs

    def compared_by(self, experiment: int) -> tuple[tuple[int, ...], Question]:
        """Return an experiment's runs as `runs_of_experiment` does, and its question about them."""
        runs = self.runs_of_experiment(experiment)
        return runs, self.question_of(self.run_rows(runs), experiment)

    def question_of(self, rows: Sequence[RunRow], experiment: int | None = None) -> Question:
        """Return an experiment's question about these runs, by default that of the newest with all of them."""
        shared = set.intersection(*(set(row.experiments) for row in rows)) if rows else set[int]()
        stored = self.experiment(experiment or max(shared, default=0))
        try:
            return NO_QUESTION if stored is None else plan_question(decode_plan(stored.plan), rows)
        except msgspec.MsgspecError:  # from another version
            return NO_QUESTION

    def _require_runs(self, runs: Iterable[int]) -> None:
        for run in runs:
            if self._db.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is None:
                raise listing.no_such_run(run, self.path)

    def _set_deleted(self, runs: Iterable[int], condition: str, utc_ns: int | None) -> list[int]:
        moved = []
        for run in dict.fromkeys(runs):
            sql = f"UPDATE runs SET deleted_utc_ns = ? WHERE run = ? AND {condition}"
            moved += [run] * self._db.execute(sql, (utc_ns, run)).rowcount
        return moved


def checked_tag(tag: str) -> str:
    """Return the tag without surrounding spaces; raises `UserError` if it is invalid."""
    text = _checked(tag, "tag", MAX_TAG_LENGTH)
    if "," in text:
        raise UserError("A tag cannot contain a comma; give several tags one by one.")
    return text


def checked_note(note: str) -> str:
    """Return the note without surrounding spaces; raises `UserError` if it is too long or has control characters."""
    text = note.strip()
    return _checked(text, "note", MAX_NOTE_LENGTH, allowed="\n\t") if text else ""


def _checked(text: str, what: str, max_length: int, allowed: str = "") -> str:
    stripped = text.strip()
    if not stripped:
        raise UserError(f"A {what} needs at least one letter.")
    if len(stripped) > max_length:
        raise UserError(f"A {what} has at most {max_length:,} characters; this one has {len(stripped):,}.")
    if any(unicodedata.category(letter) in ("Cc", "Cs") and letter not in allowed for letter in stripped):
        raise UserError(f"A {what} cannot contain control characters.")
    return stripped
