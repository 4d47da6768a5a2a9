"""Reversals of stored changes: an edit, an import, the reference runs, a preset in the list.

A reversal is called off the GUI thread. It undoes its change and returns the reversal that redoes it; it raises
`UserError` if that is impossible.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeVar

from app.runs.experiment.presets import list_user_preset_file
from app.runs.experiment.queue import add_plan, import_with_queue
from app.storage.changes import Changes
from app.storage.reference import add_reference, reference_runs, remove_reference
from app.storage.store import Store
from app.storage.transfer.import_export import Imported
from app.values.plan import Plan
from app.values.records import RunRow

Result = TypeVar("Result")


class Reversal(Protocol):
    """Undoes a change."""

    def __call__(self) -> "Reversal":
        """Undo it, and return the reversal that redoes it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Undoes recorded changes of one database: tags, notes, trash, queue."""

    database: Path
    changes: Changes

    @classmethod
    def make(cls, database: Path, change: Callable[[Store], Result]) -> tuple[Result, Self | None]:
        """Apply a change, and return its result with its reversal; None if it changed nothing."""
        with Store.open(database) as store:
            result, changes = store.library.record(lambda: change(store))
        return result, cls(database, changes) if changes.statements else None

    def __call__(self) -> "Edit":
        with Store.open(self.database) as store:
            return Edit(self.database, store.library.undo(self.changes))

    def is_stale(self) -> bool:
        """Return whether nothing is left to undo, for example because an experiment's runs have begun."""
        with Store.open(self.database) as store:
            return not store.library.can_undo(self.changes)


def drop_stale(reversals: Sequence[Reversal]) -> int:
    """Return how many of these remain when the last ones that can no longer undo anything are dropped."""
    left = len(reversals)
    while left and isinstance(last := reversals[left - 1], Edit) and last.is_stale():
        left -= 1
    return left


@dataclass(frozen=True, slots=True)
class Import:
    """Undoes an import: permanently removes its runs, because the file still has them, and its queue entries."""

    database: Path
    file: Path
    imported: Imported

    def __call__(self) -> Reversal:
        with Store.open(self.database) as store:
            for entry in self.imported.entries:
                store.queue.remove(entry)
            _purge(store, self.imported.runs)
            if self.imported.completed.statements:
                store.library.undo(self.imported.completed)
        return self._again

    def _again(self) -> Reversal:
        return Import(self.database, self.file, import_with_queue(self.database, self.file))


@dataclass(frozen=True, slots=True)
class ReferenceRuns:
    """Undoes adding or removing the reference runs; re-added ones get back their notes and tags.

    `before` is the state before the change.
    """

    database: Path
    before: Mapping[str, RunRow] = field(default_factory=dict)

    @classmethod
    def of(cls, database: Path) -> Self:
        with Store.open(database) as store:
            rows = store.library.run_rows(reference_runs(store))
        return cls(database, {row.uid: row for row in rows})

    def __call__(self) -> "ReferenceRuns":
        now = ReferenceRuns.of(self.database)
        if not self.before:
            remove_reference(self.database)
        else:
            add_reference(self.database)
            with Store.open(self.database) as store:
                self._annotate(store)
        return now

    def _annotate(self, store: Store) -> None:
        for row in store.library.run_rows(reference_runs(store)):
            old = self.before.get(row.uid)
            if old is None:
                _purge(store, (row.run,))
                continue
            if old.note != row.note:
                store.library.set_note(row.run, old.note)
            for tag in set(old.tags) - set(row.tags):
                store.library.add_tag([row.run], tag)


@dataclass(frozen=True, slots=True)
class PresetFile:
    """Undoes that a user's preset was added to the list, or removed from it."""

    database: Path
    file: str
    listed: bool

    def __call__(self) -> "PresetFile":
        list_user_preset_file(self.database, self.file, listed=not self.listed)
        return PresetFile(self.database, self.file, not self.listed)


@dataclass(frozen=True, slots=True)
class CancelledEntry:
    """Undoes that a running queue entry was cancelled: it waits again, paused, with its runs."""

    database: Path
    plan: Plan

    def __call__(self) -> Reversal:
        def put_back(store: Store) -> None:
            store.queue.set_state(add_plan(store, self.plan), "paused")

        _, reversal = Edit.make(self.database, put_back)
        assert reversal is not None, "a new entry is a change"
        return reversal


def _purge(store: Store, runs: tuple[int, ...]) -> None:
    """Delete runs permanently, whether in the trash or not; deleted ones need nothing."""
    here = [row.run for row in store.library.run_rows(runs)]
    store.library.delete(here)
    store.library.purge(here)
