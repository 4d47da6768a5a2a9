"""What comes from another machine: its runs, and of its queue what is not complete with them."""

from dataclasses import replace
from pathlib import Path

from app.errors import UserError
from app.queries import QueueEntry
from app.runs.carried import untried
from app.runs.queued import asked_of
from app.runs.schedule import left
from app.storage.store import Store
from app.storage.transfer import Imported, import_runs
from app.storage.transfer_watch import QUIET, Watch


def import_with_queue(database: Path, file: Path, watch: Watch = QUIET) -> Imported:
    """Imports as `import_runs` does; an experiment of which every run is here then is in the queue no longer."""
    done = import_runs(database, file, watch)
    with Store.open(database) as store:
        finished = [entry for entry in store.queue.entries() if not entry.owned and _is_complete(store, entry)]
        complete = {entry.entry for entry in finished if store.queue.finish(entry.entry, entry.plan)}
    return replace(
        done,
        entries=tuple(entry for entry in done.entries if entry not in complete),
        complete=tuple(sorted(complete - set(done.entries))),
    )


def _is_complete(store: Store, entry: QueueEntry) -> bool:
    """Whether its own runs, not only stored ones of the same variants, are all that it asks for."""
    if entry.experiment is None:
        return False
    try:
        plan = asked_of(entry).plan
    except UserError:  # what another version wrote is left to it
        return False
    own = store.library.runs_of_experiment(entry.experiment)
    if left(plan, [row for row in store.list_runs() if row.run in own]):
        return False
    return not (plan.carried and untried(plan, [store.load(run) for run in own]))
