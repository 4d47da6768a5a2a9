"""The queue's reads and writes of the database; imported when the queue is first read, off the GUI thread."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.plan import Plan
from app.queries import ExperimentProgress, SettableState
from app.records import RunRow
from app.report.export import describe_export
from app.runs.experiment.queue import (
    add_plan,
    enqueue,
    entry_plan,
    exportable_queue,
    pause_unowned_queue,
    queue_progress,
)
from app.runs.undo import Edit
from app.samples import Inventory
from app.storage.store import Store
from app.storage.transfer.import_export import export_database
from app.storage.transfer.progress import TransferProgress
from app.viewmodels.compare.warnings import machine_warnings
from app.viewmodels.experiment.queue_banner import VerdictText
from app.viewmodels.experiment.verdict_text import ExperimentResult, experiment_result, experiment_verdict


class QueueDatabase:
    """The queue of one database. Each change returns the queue as it is then, which other programs change too.

    Thread: any; each call opens the database for itself.
    """

    def __init__(self, database: Path, inventory: Inventory) -> None:
        self._database = database
        self._inventory = inventory
        self.reversal: Edit | None = None
        """What undoes the last change; None where it changed nothing."""

    def read(self) -> Sequence[ExperimentProgress]:
        """Return every entry, in order, with its progress."""
        with Store.open(self._database) as store:
            return queue_progress(store, self._inventory)

    def add(self, plan: Plan) -> Sequence[ExperimentProgress]:
        """Add a plan at the end, or let the unfinished entry of the same experiment go on.

        A single run may be wanted twice; an experiment is one entry, however often it is added.
        """
        add: Callable[[Store, Plan], object] = enqueue if len(plan.variants) > 1 else add_plan
        return self._change(lambda store: add(store, plan))

    def move(self, entry: int, before: int | None) -> Sequence[ExperimentProgress]:
        """Move an entry before another one, or to the end."""
        return self._change(lambda store: store.queue.move(entry, before))

    def set_state(self, entry: int | None, state: SettableState) -> Sequence[ExperimentProgress]:
        """Pause an entry, or let it wait for its turn; None is every entry.

        Imported ones, which nobody requested here, do not go on with all others: only one that is named, or alone.
        """

        def change(store: Store) -> None:
            entries = store.queue.entries()
            for each in entries:
                stays = each.imported and state == "waiting" and len(entries) > 1
                if entry == each.entry or (entry is None and not stays):
                    store.queue.set_state(each.entry, state)

        return self._change(change)

    def pause_unowned(self) -> Sequence[ExperimentProgress]:
        """Pause every entry, unless a living program runs one: nothing starts by itself."""
        return self._change(pause_unowned_queue)

    def remove(self, entries: Sequence[int]) -> Sequence[ExperimentProgress]:
        """Remove entries; their runs stay."""

        def remove(store: Store) -> None:
            for entry in entries:
                store.queue.remove(entry)

        return self._change(remove)

    def runs(self, experiment: int) -> Sequence[int]:
        """Return the runs of an experiment."""
        with Store.open(self._database) as store:
            return store.library.runs_of_experiment(experiment)

    def verdict(self, experiment: int) -> VerdictText:
        """Return the verdict on an experiment as Compare words it; empty where all runs are of one variant."""
        with Store.open(self._database) as store:
            rows = [store.load_header(run).row for run in store.library.runs_of_experiment(experiment)]
        return experiment_verdict(rows)

    def result(
        self, entry: int, experiment: int | None, disturbances: Mapping[int, str]
    ) -> tuple[Plan | None, ExperimentResult | None, Mapping[int, str]]:
        """Return an entry's plan and what its runs say so far.

        Args:
            entry: The entry; one that has ended is in the queue no more, and every variant has a run.
            experiment: Its experiment, if the caller knows it.
            disturbances: What disturbed each run, "" for nothing, where the caller knows it: it is read of the others.

        Returns:
            The plan, None where the entry is gone; the result, None where there is one variant; what disturbed each
            run.
        """
        with Store.open(self._database) as store:
            queued = next((each for each in store.queue.entries() if each.entry == entry), None)
            experiment = experiment if queued is None else queued.experiment
            runs = store.library.runs_of_experiment(experiment) if experiment is not None else ()
            rows = [store.load_header(run).row for run in runs]
            known = {run: disturbances[run] for run in runs if run in disturbances}
            known |= {row.run: _disturbance(store, row) for row in rows if row.run not in known and row.outcome}
        plan = None if queued is None else entry_plan(queued)
        return plan, experiment_result(plan.variants if plan else [row.spec for row in rows], rows, known), known

    def plan(self, entry: int) -> Plan:
        """Return the plan of an entry."""
        with Store.open(self._database) as store:
            return entry_plan(store.queue.entry(entry))

    def _change(self, change: Callable[[Store], object]) -> Sequence[ExperimentProgress]:
        _, self.reversal = Edit.make(self._database, change)
        return self.read()


def _disturbance(store: Store, row: RunRow) -> str:
    """Return what the machine did beside a run that may have cost it speed; "" for nothing."""
    run = store.load(row.run, ("load_pct", "worker_load_pct"))
    return " ".join(warning.sentence for warning in machine_warnings(run))


def export_queue(database: Path, target: Path, progress: TransferProgress) -> str:
    """Write the queue and its runs to a new database, and return what was written.

    The file must not exist; `progress` gets the progress, and says whether to stop.

    Raises:
        UserError: The queue is empty, it runs, or the file cannot be written.
        StoppedError: `progress` says to stop.
    """
    with Store.open(database) as store:
        entries, runs = exportable_queue(store)
    return " ".join(describe_export(export_database(database, runs, target, progress, entries), target))
