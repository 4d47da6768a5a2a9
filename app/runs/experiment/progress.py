"""Progress of experiments and queue entries, and estimates of the remaining time."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app import units
from app.errors import UserError
from app.plan import Plan
from app.queries import QueueEntry, QueueProgress, RemainingWork
from app.records import RunHeader, RunRow
from app.runs.custom import is_source_changed
from app.runs.experiment.entry_session import EntryStatus
from app.runs.experiment.estimates import count_timing_runs, expected_resolution, total_s
from app.runs.experiment.idle_wait import WaitStatus
from app.runs.experiment.presets import FindWorkload, NamedPreset, load_preset
from app.runs.experiment.queue import entry_plan, unfinished_entry
from app.runs.experiment.reuse import (
    current_fingerprint,
    named_fingerprint,
    reusable_runs,
    runs_on_same_hardware,
)
from app.runs.experiment.schedule import count_done, remaining_runs
from app.runs.experiment.session import PlannedRun
from app.runs.host import RUN_WAITS
from app.runs.sinks import Sink
from app.samples import Inventory
from app.storage.store import Store
from workloads.catalog import Machine, runnable
from workloads.protocol import RunSpec


def estimate_remaining(
    store: Store,
    plan: Plan,
    inventory: Inventory | None,
    entry: QueueEntry | None = None,
    stored: Sequence[RunRow] | None = None,
) -> RemainingWork:
    """Return what is stored and left of a plan on its host; what the host refuses takes no time.

    Args:
        store: The stored runs.
        plan: The plan.
        inventory: The host; None where that is another one than this machine, and not asked.
        entry: Its entry of the queue; None for the unfinished one of the same plan, if there is one.
        stored: All rows of the store, where they were read already.
    """
    stored = store.list_runs() if stored is None else stored
    fingerprint = named_fingerprint(plan.host) if plan.host or inventory is None else current_fingerprint(inventory)
    machine = inventory.machine if inventory else None
    entry = entry or unfinished_entry(store, plan)
    reusable = reusable_runs(store, plan, fingerprint, machine, entry, stored=stored)
    rows = [run.row for run in reusable.runs]
    to_make, made = remaining_runs(plan, rows, machine), count_done(plan, rows)
    possible = runnable(to_make, machine) if machine else to_make
    comparable_runs = (
        runs_on_same_hardware(stored, machine) if machine else [row for row in stored if row.host == plan.host]
    )
    return RemainingWork(
        planned=made + len(to_make),
        done=made,
        left_s=total_s(plan, possible, comparable_runs, machine or Machine()),
        timing_runs=count_timing_runs(possible, comparable_runs),
        from_other_workloads=not any(
            row.spec.workload == spec.workload for row in comparable_runs for spec in plan.variants
        ),
        excluded=reusable.excluded,
        excluded_due_to=reusable.excluded_due_to,
        imported=reusable.imported,
        imported_differences=reusable.imported_differences,
        counted_utc_ns=tuple(row.started_utc_ns for row in rows),
        older_utc_ns=reusable.older_utc_ns,
        resolution=expected_resolution(plan, rows, comparable_runs, machine) if to_make else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetStatus:
    """A preset on this machine: its plan, and how much of it is stored and left."""

    preset: NamedPreset
    question: str
    plan: Plan
    remaining: RemainingWork


def preset_status(
    key: str, find: FindWorkload, store: Store, inventory: Inventory, stored: Sequence[RunRow]
) -> PresetStatus:
    """Return what the lists of presets show of one.

    Args:
        key: Its name, or the path of its file.
        find: Finds the custom workloads that it names.
        store: Where its runs are.
        inventory: This machine.
        stored: All runs of the store.

    Raises:
        UserError: The file cannot be used.
        UsageError: It names what this program does not have.
    """
    preset = load_preset(key, find)
    plan = preset.plan(inventory.machine)
    return PresetStatus(
        preset=preset,
        question=preset.experiment_for(inventory.machine).question,
        plan=plan,
        remaining=estimate_remaining(store, plan, inventory, stored=stored),
    )


def queue_progress(store: Store, inventory: Inventory) -> list[QueueProgress]:
    """Return how far every entry is, in order; an entry of an unknown version has nothing planned, and a message."""
    stored = store.list_runs()
    return [_entry_progress(store, entry, inventory, stored) for entry in store.queue.entries()]


def remaining_s(status: EntryStatus, runs: Sequence[RunRow], comparable_runs: Sequence[RunRow]) -> float | None:
    """Return the expected seconds of what is left of an entry, None if there is nothing to estimate from.

    Args:
        status: The entry.
        runs: The runs that count.
        comparable_runs: Stored runs to estimate from.
    """
    plan, machine = status.experiment.plan, status.machine
    possible = runnable(remaining_runs(plan, runs, machine), machine)
    if possible and not count_timing_runs(possible, comparable_runs):
        return None
    return total_s(plan, possible, comparable_runs, machine)


def describe_imported(imported: int, differences: Sequence[str]) -> str:
    """Return a sentence on runs that count although they were made in another environment; "" if there are none."""
    if not imported:
        return ""
    runs, subject = ("1 run was", "it counts") if imported == 1 else (f"{imported} runs were", "they count")
    elsewhere = " on another machine," if {"CPU", "GPU"} & set(differences) else ""
    return f"{runs} made{elsewhere} with another {', another '.join(differences)}: {subject} all the same."


def _entry_progress(store: Store, entry: QueueEntry, inventory: Inventory, stored: Sequence[RunRow]) -> QueueProgress:
    try:
        plan = entry_plan(entry)
    except UserError as error:
        return QueueProgress(
            entry=entry.entry, name=entry.name, state=entry.state, done=0, planned=0, message=str(error)
        )
    host = None if plan.host else inventory
    remaining = estimate_remaining(store, plan, host, entry, stored=stored)
    is_known = remaining.timing_runs or remaining.done == remaining.planned
    imported = describe_imported(remaining.imported, remaining.imported_differences)
    return QueueProgress(
        entry=entry.entry,
        name=entry.name,
        state=entry.state,
        done=remaining.done,
        planned=remaining.planned,
        left_s=remaining.left_s if is_known else None,
        experiment=entry.experiment,
        message=" ".join(filter(None, (imported, _describe_changed_source(entry, plan, store.path)))),
        host=plan.host,
        interpreters=plan.interpreters,
        imported=entry.imported,
    )


def _describe_changed_source(entry: QueueEntry, plan: Plan, database: Path) -> str:
    """Return a sentence if the user has changed the file of the entry's workload since; else ""."""
    # All variants are of one text.
    if not is_source_changed(plan.variants[0], database):
        return ""
    return f"Entry {entry.entry} uses the workload's file as it was when queued; the file has changed since."


class ProgressReporter:
    """Reports how far the current entry is, whenever that changes; a listener of `QueueRunner`.

    Thread: as `QueueListener` says. Concurrent runs change the progress under a lock, so that reports keep their order.
    """

    def __init__(self, notify: Callable[[QueueProgress], None], sinks: Callable[[], Sequence[Sink]]) -> None:
        self._notify = notify
        self._sinks = sinks
        self._status: EntryStatus | None = None
        self._new_runs: list[RunRow] = []
        self._progress: QueueProgress | None = None
        self._running: list[RunSpec] = []
        self._wait_messages: dict[int, str] = {}
        # Guards `_progress` alone. The others are changed by single calls, on the thread of the run they are about.
        self._lock = threading.Lock()

    def entry_started(self, status: EntryStatus) -> None:
        """Report an entry's beginning."""
        self._status, self._new_runs, self._running, self._wait_messages = status, [], [], {}
        self._progress = QueueProgress(
            entry=status.entry.entry,
            name=status.entry.name,
            state="running",
            done=status.experiment.done,
            planned=status.experiment.planned,
            left_s=self._remaining_s(),
            experiment=status.entry.experiment,
            message=describe_imported(status.reusable.imported, status.reusable.imported_differences),
            host=status.experiment.plan.host,
            interpreters=status.experiment.plan.interpreters,
            imported=status.entry.imported,
        )
        self._notify(self._progress)

    def run_started(self, planned_run: PlannedRun) -> Sequence[Sink]:
        """Report a run's beginning, and return new sinks for it."""
        self._running.append(planned_run.spec)
        self._update(
            lambda now: replace(
                now,
                position=planned_run.position,
                specs=tuple(self._running),
                message="" if now.waits_for_device else now.message,
                waits_for_device=False,
            )
        )
        return self._sinks()

    def run_waiting(self, planned_run: PlannedRun, wait: WaitStatus | None) -> bool:
        """Report what a run waits for."""
        if wait is None:
            self._wait_messages.pop(planned_run.position, None)
        else:
            self._wait_messages[planned_run.position] = f"{wait.reason} ({units.with_unit(wait.limit_s, 's')} at most)"
        self._update(lambda now: replace(now, waiting_for=self._join_wait_messages()))
        return True

    def run_ended(self, run: RunHeader, *, accepted: bool) -> None:
        """Report a run's end."""
        if accepted:
            self._new_runs.append(run.row)
        self._running.remove(run.row.spec)
        plan, rows = self._plan_and_rows()
        self._update(
            lambda now: replace(
                now, specs=tuple(self._running), done=count_done(plan, rows), left_s=self._remaining_s()
            )
        )

    def message(self, sentence: str) -> None:
        """Report a sentence on the entry."""
        self._update(lambda now: replace(now, message=sentence, waits_for_device=sentence == RUN_WAITS))

    def entry_ended(self, status: EntryStatus) -> None:
        """Report the state in which an entry ends."""
        state, done, number = status.state, status.experiment.done, status.entry.experiment
        self._update(lambda now: replace(now, state=state, specs=(), waiting_for="", done=done, experiment=number))

    def _join_wait_messages(self) -> str:
        return "; ".join(self._wait_messages.copy().values())

    def _plan_and_rows(self) -> tuple[Plan, list[RunRow]]:
        assert self._status is not None, "an entry begins before it is told of"
        before = self._status.experiment
        return before.plan, [*(run.row for run in before.runs), *self._new_runs]

    def _remaining_s(self) -> float | None:
        assert self._status is not None, "an entry begins before it is told of"
        _, rows = self._plan_and_rows()
        return remaining_s(self._status, rows, [*self._status.comparable_runs, *self._new_runs])

    def _update(self, change: Callable[[QueueProgress], QueueProgress]) -> None:
        """Change the progress and report it, one change at a time."""
        with self._lock:
            if self._progress is not None and (progress := change(self._progress)) != self._progress:
                self._progress = progress
                self._notify(progress)
