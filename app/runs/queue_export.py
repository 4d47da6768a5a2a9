"""What of the queue is taken away to go on elsewhere."""

from app.errors import UserError
from app.storage.store import Store


def to_take_away(store: Store) -> tuple[list[int], list[int]]:
    """All entries of the queue, and the runs that were made of them so far.

    Raises `UserError` where there is nothing, or one of it is being made.
    """
    entries = store.queue.entries()
    if not entries:
        raise UserError("The queue is empty: no experiment is unfinished.")
    for entry in entries:
        if entry.owned:
            raise UserError(f"Entry {entry.entry} of the queue, “{entry.name}”, is being made: stop it first.")
    experiments = [entry.experiment for entry in entries if entry.experiment is not None]
    runs = [run for experiment in experiments for run in store.library.runs_of_experiment(experiment)]
    return [entry.entry for entry in entries], list(dict.fromkeys(runs))
