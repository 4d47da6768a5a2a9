"""The user's edits of the queue, each of which can be undone: move, pause, resume, remove and cancel entries."""

from collections.abc import Callable
from typing import Protocol

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.experiment.queue_sync import QueueSync
from app.plan import Plan
from app.queries import SettableState
from app.viewmodels.experiment.queue_banner import quote_name


class Runner(Protocol):
    """Makes the runs of the queue; see `app.runs.experiment.queue_runner`.

    Thread: `run` blocks its thread; the others any, and return at once.
    """

    def run(self, *, failed: Callable[[UserError], object]) -> None:
        """Run what waits, until nothing does. `failed` gets the reason when an entry cannot be run."""

    def stop(self) -> None:
        """Stop the current run and start no other."""

    def cancel(self, entry: int) -> None:
        """Stop the current run if it is of this entry, then remove the entry."""

    def forget_cancelled(self) -> None:
        """Run again what was cancelled before it ran, if it is back in the queue."""

    def skip_wait(self) -> None:
        """Start the next run without waiting for an idle machine."""


class QueueEdits:
    """Writes the user's edits, shows them, and hands on what undoes them.

    Thread: GUI only; the database is written in the background.
    """

    def __init__(
        self,
        sync: QueueSync,
        actions: Actions,
        runner: Callable[[], Runner | None],
        resume: Callable[[], None],
        show: Callable[[], None],
    ) -> None:
        """Prepare for a window's queue.

        Args:
            sync: Reads and changes the queue.
            actions: The window's, which take what undoes a change.
            runner: Returns what makes the runs; None while nothing does.
            resume: Runs what waits.
            show: Shows the model.
        """
        self._sync = sync
        self._model = sync.model
        self._actions = actions
        self._runner = runner
        self._resume = resume
        self._show = show
        sync.edited.connect(actions.record_change)

    def add(self, plan: Plan) -> None:
        """Add an experiment at the end; it begins at once if nothing else runs."""
        self._sync.change(lambda queue: queue.add(plan), self._resume, f"add {quote_name(plan.name)} to the queue")

    def move(self, entry: int, by: int) -> None:
        """Move an entry by so many places, up if negative, before the database has it so."""
        before = self._model.move(entry, by)
        self._show()
        self._sync.change(lambda queue: queue.move(entry, before), name=f"move {self._name(entry)}")

    def pause_or_resume(self, entry: int | None, action: str) -> None:
        """Pause an entry or let it go on; None is every entry."""
        state: SettableState = "paused" if action == "pause" else "waiting"
        name = f"{'pause' if state == 'paused' else 'resume'} {self._name(entry)}"
        then = self._resume if state == "waiting" else None
        self._sync.change(lambda queue: queue.set_state(entry, state), then, name)

    def remove(self, *entries: int) -> None:
        """Remove entries; a running one is stopped first, and last, so that no other takes its place."""
        running = [entry for entry in entries if self._model.is_running_here(entry)]
        others = [entry for entry in entries if entry not in running]
        runner = self._runner()
        if runner is not None:  # which may be just about to claim one
            for entry in others:
                runner.cancel(entry)
        for entry in running:
            self._cancel(entry)
        if others:
            name = self._name(others[0]) if len(others) == 1 else f"{len(others)} experiments"
            self._sync.change(lambda queue: queue.remove(others), name=f"remove {name} from the queue")

    def _cancel(self, entry: int) -> None:
        """Cancel a running entry, once its plan is read, which undoes that: the runner removes both."""
        from app.runs.undo import CancelledEntry

        name, database = self._name(entry), self._sync.database

        def cancel(plan: Plan) -> None:
            runner = self._runner()
            if runner is not None:
                self._actions.record_change(f"cancel {name}", CancelledEntry(database, plan))
                runner.cancel(entry)

        self._sync.query(lambda queue: queue.plan(entry), cancel)

    def _name(self, entry: int | None) -> str:
        """Return the name of an entry in quotes; None is the whole queue."""
        found = (each.name for each in self._model.entries if each.entry == entry)
        return quote_name(next(found, "")) if entry is not None else "the queue"

    def take_undone(self) -> None:
        """Take the queue over after something was undone, and go on with what waits again by that."""
        runner = self._runner()
        if runner is not None:
            runner.forget_cancelled()
        before = {entry.entry for entry in self._model.entries if entry.state != "paused"}

        def go_on() -> None:
            if any(entry.state == "waiting" and entry.entry not in before for entry in self._model.entries):
                self._resume()

        self._sync.read(go_on)

    def cancel_all(self) -> None:
        """Remove every entry."""
        self.remove(*(entry.entry for entry in self._model.entries))
