"""Plans in the queue: adding, decoding, progress, export and import."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import randbits

import msgspec

from app.errors import UserError
from app.queries import ExperimentProgress, QueueEntry
from app.runs.custom import describe_change
from app.runs.experiment.estimates import Experiment, describe_imported, expected_resolution, time_left
from app.runs.experiment.reuse import (
    ReusableRuns,
    ThrottleFilter,
    current_fingerprint,
    named_fingerprint,
    reusable_runs,
    runs_on_same_hardware,
)
from app.runs.experiment.schedule import remaining_runs
from app.runs.weight_transfer import pending_trials, runs_with_weights
from app.storage.store import Store
from app.storage.transfer.import_export import Imported, import_runs
from app.storage.transfer.progress import NO_PROGRESS, TransferProgress
from app.values.plan import Plan, decode_plan, encode_plan
from app.values.records import RunRow
from app.values.samples import Inventory
from workloads.catalog import Machine, find_workload


def exportable_queue(store: Store) -> tuple[list[int], list[int]]:
    """Return the numbers of all entries, and of their runs so far.

    Raises:
        UserError: The queue is empty, or one of its entries runs.
    """
    entries = store.queue.entries()
    if not entries:
        raise UserError("The queue is empty: no experiment is unfinished.")
    for entry in entries:
        if entry.owned:
            raise UserError(f"Entry {entry.entry} of the queue, “{entry.name}”, is running: stop it first.")
    experiments = [entry.experiment for entry in entries if entry.experiment is not None]
    runs = [run for experiment in experiments for run in store.library.runs_of_experiment(experiment)]
    return [entry.entry for entry in entries], list(dict.fromkeys(runs))


def pause_unowned_queue(store: Store) -> None:
    """Pause the whole queue if no living process runs it: what a dead one left waits for the user."""
    entries = store.queue.entries()
    if not any(entry.owned for entry in entries):
        for entry in entries:
            store.queue.set_state(entry.entry, "paused")


def entry_plan(entry: QueueEntry) -> Plan:
    """Return the plan of an entry.

    Raises:
        UserError: Another version of the program wrote it, and this one cannot read it.
    """
    try:
        plan = msgspec.structs.replace(decode_plan(entry.plan), preset=entry.preset)
        unknown = {spec.workload for spec in plan.specs if find_workload(spec.workload) is None}
    except msgspec.MsgspecError as error:
        raise _unknown_plan(entry, str(error)) from error
    if unknown:
        raise _unknown_plan(entry, f"there is no workload called {', '.join(sorted(unknown))}")
    return plan


def _unknown_plan(entry: QueueEntry, reason: str) -> UserError:
    return UserError(
        f"Entry {entry.entry} of the queue cannot be read by this version ({reason}): update the program, or remove it."
    )


def add_plan(store: Store, plan: Plan) -> int:
    """Add an entry at the end of the queue and return its number, even if the same plan is already queued.

    A single run is a plan of one variant, one repeat and `again`: otherwise a stored run would count instead.
    """
    return store.queue.add(name=plan.name, preset=plan.preset, plan=encode_plan(plan))


def enqueue(store: Store, plan: Plan) -> tuple[QueueEntry, bool]:
    """Return the entry of an experiment, and whether it is new; an unfinished one waits again, with this plan.

    A new entry draws a new order, so that repetitions do not share an order that happens to match a machine's cycle. An
    unfinished one keeps its order. An entry that a living process runs only gets more repeats: a second entry would
    repeat its runs. Programs that add the same plan concurrently get the same entry.
    """

    def merged_plan(entry: QueueEntry) -> str:
        mine = entry_plan(entry)
        if entry.owned:
            return encode_plan(_with_more_repeats(mine, plan))
        return encode_plan(msgspec.structs.replace(plan, order_seed=mine.order_seed))

    if plan.order_seed is None:
        plan = msgspec.structs.replace(plan, order_seed=randbits(32))
    return store.queue.add_or_update(
        name=plan.name,
        preset=plan.preset,
        plan=encode_plan(plan),
        is_same=partial(_is_of, plan),
        merged_plan=merged_plan,
    )


def unfinished_entry(store: Store, plan: Plan) -> QueueEntry | None:
    """Return the entry that `enqueue` would continue; None if it would add one."""
    return next((entry for entry in store.queue.entries() if _is_of(plan, entry)), None)


def _is_of(plan: Plan, entry: QueueEntry) -> bool:
    try:
        return _identity(entry_plan(entry)) == _identity(plan)
    except UserError:  # leave an entry of another version alone
        return False


def _identity(plan: Plan) -> tuple[object, ...]:
    """Return what identifies an experiment: its variants and baseline, but not its name or number of repeats."""
    baseline, *others = (msgspec.json.encode(spec, order="sorted") for spec in plan.variants)
    return baseline, sorted(others), plan.weight_transfers, plan.again, plan.preset, plan.host


def _with_more_repeats(mine: Plan, other: Plan) -> Plan:
    """Return `mine` with the repeats and the target precision of whichever plan needs more runs."""
    more = max(mine, other, key=lambda plan: (plan.repeats, -(plan.until_pct or 0.0)))
    return msgspec.structs.replace(mine, repeats=more.repeats, until_pct=more.until_pct)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReading:
    """An experiment as it is stored.

    Attributes:
        experiment: Its runs that count, except those whose missing weights are still to be tried.
        progress: Its progress.
        reusable: Which stored runs count, and why others do not.
        alike: Stored runs for estimates of times.
        machine: The machine it runs on, empty if unknown.
    """

    experiment: Experiment
    progress: ExperimentProgress
    reusable: ReusableRuns
    alike: Sequence[RunRow]
    machine: Machine


def read_experiment(
    store: Store,
    plan: Plan,
    inventory: Inventory | None,
    entry: QueueEntry | None = None,
    *,
    stored: Sequence[RunRow] | None = None,
    environment: Mapping[str, str] | None = None,
    throttle_filter: ThrottleFilter | None = None,
) -> ExperimentReading:
    """Return the stored state of an experiment: its own runs, wherever they ran, and others that count here.

    `inventory` is its host's, None for another machine that was not asked; `environment` is the host's own report.
    `stored` are all rows of the store, if already read. `throttle_filter` decides which runs count, and remembers that
    for later runs.
    """
    here = inventory if environment is not None or not plan.host else None
    fingerprint = current_fingerprint(here, environment) if here else named_fingerprint(plan.host)
    machine = inventory.machine if inventory else None
    reusable = reusable_runs(store, plan, fingerprint, machine, entry, throttle_filter, stored)
    experiment = Experiment.from_runs(plan, "stopped", runs_with_weights(plan, reusable.runs, store.path), machine)
    rows = [run.row for run in experiment.runs]
    newest_first = store.each_run() if stored is None else stored
    alike = (
        runs_on_same_hardware(newest_first, machine)
        if machine
        else [row for row in newest_first if row.host == plan.host]
    )
    left, timing_runs = time_left(plan, rows, alike, machine)
    workloads = {spec.workload for spec in plan.variants}
    progress = ExperimentProgress(
        planned=experiment.planned,
        done=experiment.done,
        left=left,
        timing_runs=timing_runs,
        from_other_workloads=not any(row.spec.workload in workloads for row in alike),
        excluded=reusable.excluded,
        excluded_due_to=reusable.excluded_due_to,
        counted_utc_ns=tuple(row.started_utc_ns for row in rows),
        older_utc_ns=reusable.older_utc_ns,
        resolution=expected_resolution(plan, rows, alike, machine) if experiment.next_s is not None else None,
        message=describe_imported(reusable.imported, reusable.imported_differences),
        name=plan.name,
        host=plan.host,
        interpreters=plan.interpreters,
    )
    return ExperimentReading(
        experiment=experiment,
        progress=progress if entry is None else _with_entry(progress, entry),
        reusable=reusable,
        alike=alike,
        machine=machine or Machine(),
    )


def _with_entry(progress: ExperimentProgress, entry: QueueEntry) -> ExperimentProgress:
    return replace(
        progress,
        entry=entry.entry,
        name=entry.name,
        state=entry.state,
        experiment=entry.experiment,
        imported=entry.imported,
    )


def estimate_remaining(
    store: Store, plan: Plan, inventory: Inventory, stored: Sequence[RunRow] | None = None
) -> ExperimentProgress:
    """Return the progress of a plan, with its unfinished entry of the queue if it has one.

    `stored` are all rows of the store, if already read.
    """
    return read_experiment(store, plan, inventory, unfinished_entry(store, plan), stored=stored).progress


def queue_progress(store: Store, inventory: Inventory) -> list[ExperimentProgress]:
    """Return the progress of every entry, in order; an entry of an unknown version has no runs, and a message."""
    stored = store.list_runs()
    return [_entry_progress(store, entry, inventory, stored) for entry in store.queue.entries()]


def _entry_progress(
    store: Store, entry: QueueEntry, inventory: Inventory, stored: Sequence[RunRow]
) -> ExperimentProgress:
    try:
        plan = entry_plan(entry)
    except UserError as error:
        return _with_entry(ExperimentProgress(planned=0, done=0, message=str(error)), entry)
    progress = read_experiment(store, plan, None if plan.host else inventory, entry, stored=stored).progress
    change = describe_change(plan.variants[0], store.path)  # all variants have the same text
    message = " ".join(filter(None, (progress.message, change and f"Entry {entry.entry} {change}")))
    return replace(progress, message=message)


def import_with_queue(database: Path, file: Path, watch: TransferProgress = NO_PROGRESS) -> Imported:
    """Import the runs of another database, then remove the entries that these complete."""
    imported = import_runs(database, file, watch)
    with Store.open(database) as store:
        complete, completed = store.library.record(lambda: _finish_complete(store))
    return replace(
        imported,
        entries=tuple(entry for entry in imported.entries if entry not in complete),
        complete=tuple(sorted(complete - set(imported.entries))),
        completed=completed,
    )


def _finish_complete(store: Store) -> set[int]:
    finished = [entry for entry in store.queue.entries() if not entry.owned and _is_complete(store, entry)]
    return {entry.entry for entry in finished if store.queue.finish(entry.entry, entry.plan)}


def _is_complete(store: Store, entry: QueueEntry) -> bool:
    """Return whether the entry's own runs, without other stored runs of its variants, fulfil its plan."""
    if entry.experiment is None:
        return False
    try:
        plan = entry_plan(entry)
    except UserError:  # leave what another version wrote alone
        return False
    runs = store.library.runs_of_experiment(entry.experiment)
    if remaining_runs(plan, [row for row in store.list_runs() if row.run in runs]):
        return False
    return not (plan.weight_transfers and pending_trials(plan, [store.load_header(run) for run in runs]))
