"""The user's changes of the queue, written off the GUI thread; the queue is read again after each."""

from collections.abc import Callable, Sequence
from pathlib import Path

from app.errors import UserError
from app.gui.threads import Background
from app.plan import Plan
from app.queries import QueueProgress, SettableState
from app.runs.experiment.progress import queue_progress
from app.runs.experiment.queue import add_plan, enqueue
from app.runs.recovery import pause_unowned_queue
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.experiment.queue import QueueModel

Then = Callable[[], None]
"""Called on the GUI thread when a change is made and the board knows of it."""


class QueueEdits:
    """Changes the queue of a database; `shown` is called after each change, when the board knows of it."""

    def __init__(
        self,
        board: QueueModel,
        database: Path,
        inventory: Callable[[], Inventory],
        reads: Background,
        shown: Then,
        failed: Callable[[UserError], None],
    ) -> None:
        self._board = board
        self._database = database
        self._inventory = inventory
        self._reads = reads
        self._shown = shown
        self._failed = failed

    def read(self, then: Then | None = None) -> None:
        """Read anew; other programs change it too."""
        self._change(lambda _: None, then)

    def add(self, plan: Plan, then: Then) -> None:
        """Put an experiment at the end, or have the one that is there, unfinished, go on."""
        self._change(lambda store: _add(store, plan), then)

    def move(self, entry: int, by: int) -> None:
        """Move an entry by so many places, up where that is negative."""
        order = [each.entry for each in self._board.entries]
        others = [each for each in order if each != entry]
        index = max(0, order.index(entry) + by)
        before = others[index] if index < len(others) else None
        others.insert(index, entry)
        self._board.reorder(others)
        self._shown()
        self._change(lambda store: store.queue.move(entry, before))

    def set_state(self, entry: int, state: SettableState, then: Then | None = None) -> None:
        """Pause an entry, or have it wait for its turn."""
        self._change(lambda store: store.queue.set_state(entry, state), then)

    def set_all(self, state: SettableState, then: Then | None = None) -> None:
        """The same with all of them."""
        self._change(lambda store: _set_all(store, state), then)

    def pause_unowned(self, then: Then) -> None:
        """Pause all where no living program makes the queue's runs: nothing begins by itself."""
        self._change(pause_unowned_queue, then)

    def remove(self, entry: int) -> None:
        """Take an entry out; its runs stay."""
        self._change(lambda store: store.queue.remove(entry))

    def _change(self, change: Callable[[Store], None], then: Then | None = None) -> None:
        def show(entries: Sequence[QueueProgress]) -> None:
            self._board.update(entries)
            if then is not None:
                then()
            self._shown()

        self._reads.run(lambda: _apply_change(self._database, change, self._inventory()), show, self._failed)


def _apply_change(database: Path, change: Callable[[Store], None], inventory: Inventory) -> Sequence[QueueProgress]:
    with Store.open(database) as store:
        change(store)
        return queue_progress(store, inventory)


def _set_all(store: Store, state: SettableState) -> None:
    for entry in store.queue.entries():
        store.queue.set_state(entry.entry, state)


def _add(store: Store, plan: Plan) -> None:
    """A single run may be wanted twice; an experiment is one entry, however often it is asked for."""
    if len(plan.variants) > 1:
        enqueue(store, plan)
    else:
        add_plan(store, plan)
