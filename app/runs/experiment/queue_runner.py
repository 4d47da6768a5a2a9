"""Works through the queue entry by entry, rereading it before each run."""

import logging
import threading
from collections.abc import Callable, Sequence

from app.errors import DatabaseError, UserError
from app.queries import EntryState, QueueEntry, SettableState
from app.runs.experiment.estimates import Experiment
from app.runs.experiment.queue import entry_plan
from app.runs.experiment.session import ExperimentSession, QueueListener
from app.runs.session import RunServices
from app.runs.sinks import mark_crashed_runs
from app.storage.store import Store
from workloads.catalog import UsageError

_log = logging.getLogger("variantscope.queue")


class QueueRunner:
    """One pass through the queue.

    This program or another may change the queue at any time: add, move, pause or remove entries, and extend plans.
    Changes take effect at the next run.

    Thread: `run` blocks its thread, once; `stop`, `cancel` and `skip_wait` any.
    """

    def __init__(self, services: RunServices, listener: QueueListener) -> None:
        self._services = services
        self._listener = listener
        # `_current` is one reference, written by the thread of `run` and read by others: no lock is needed. For calls
        # just before a session is set, `_run_entry` checks `_stopped` and `_cancelled` afterwards.
        self._stopped = threading.Event()
        self._cancelled: set[int] = set()
        self._current: tuple[int, ExperimentSession] | None = None

    def run(self, only: Sequence[int] | None = None, failed: Callable[[UserError], object] | None = None) -> None:
        """Run the entries with these numbers, or all, until none waits or `stop` is called.

        If an entry cannot run, for example on a full disk, it is paused, `failed` is called with the reason, and the
        others run. Without `failed` the reason is raised.

        Raises:
            UserError: An entry cannot be run, and `failed` is None.
        """
        unfinished: int | None = None
        while (entry := self._take_next(only, unfinished)) is not None:
            try:
                unfinished = self._run_entry(entry, only)
            except UserError as error:
                unfinished = None
                if failed is None:
                    raise
                failed(error)

    def stop(self) -> None:
        """Stop the current run and start no other; its entry remains. Returns immediately."""
        self._stopped.set()
        if (current := self._current) is not None:
            current[1].stop()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def cancel(self, entry: int) -> None:
        """Stop the current run if it belongs to this entry, then remove the entry. Returns immediately."""
        self._cancelled.add(entry)
        if (current := self._current) is not None and current[0] == entry:
            current[1].stop()

    def forget_cancelled(self) -> None:
        """Run what was cancelled before it ran, if it is back in the queue; any thread."""
        current = self._current
        self._cancelled.intersection_update(() if current is None else (current[0],))

    def skip_wait(self) -> None:
        """Start the run that is waiting for an idle machine; returns immediately."""
        if (current := self._current) is not None:
            current[1].skip_wait()

    def _take_next(self, only: Sequence[int] | None, unfinished: int | None) -> QueueEntry | None:
        """Claim the next entry, and release the `unfinished` one if it is another.

        Between two plans of one entry no other program may take it: each would report that the other runs it.
        """
        entry = None
        with Store.open(self._services.database) as store:
            mark_crashed_runs(store)
            while not self._stopped.is_set():
                entry = next(iter(self._runnable_entries(store, only, unfinished)), None)
                if entry is None or store.queue.claim(entry.entry):
                    break
                entry = None
            if unfinished is not None and (entry is None or entry.entry != unfinished):
                store.queue.release(unfinished)
        return entry

    def _runnable_entries(
        self, store: Store, only: Sequence[int] | None, current: int | None = None
    ) -> list[QueueEntry]:
        """Return the entries to run, in order: without other processes' entries, but with the current one."""
        return [
            entry
            for entry in store.queue.entries()
            if (only is None or entry.entry in only)
            and entry.entry not in self._cancelled
            and entry.state != "paused"
            and (not entry.owned or entry.entry == current)
        ]

    def _run_entry(self, entry: QueueEntry, only: Sequence[int] | None) -> int | None:
        """Run an entry; return its number if its plan or position changed, and it still belongs to this process."""
        _log.info("entry %d starts: %s", entry.entry, entry.name)
        try:
            services = self._services_for(entry)
            session = ExperimentSession(entry, services, self._listener, lambda: self._is_next(entry, only))
            self._current = (entry.entry, session)
            if self._stopped.is_set() or entry.entry in self._cancelled:
                session.stop()
            experiment = session.run()
            state = self._update_entry(entry, experiment, is_over=session.is_over)
        except UserError as error:
            _log.warning("entry %d is paused: %s", entry.entry, error)
            # A failing entry that keeps waiting would block all others.
            try:
                self._release(entry.entry, "paused")
            except DatabaseError as second_error:
                # Report the first error to the user. The entry becomes free when this process ends.
                _log.warning("entry %d cannot be paused: %s", entry.entry, second_error)
            raise
        except BaseException:
            self._release(entry.entry)
            raise
        finally:
            self._current = None
        if state != "waiting":
            self._release(entry.entry)
        _log.info("entry %d ends: %s, %d runs done", entry.entry, state, experiment.done)
        session.end(state, experiment)
        return entry.entry if state == "waiting" else None

    def _services_for(self, entry: QueueEntry) -> RunServices:
        try:
            return self._services.on(entry_plan(entry).host)
        except UsageError as error:  # the host's name was removed after the entry was added
            raise UserError(str(error)) from error

    def _release(self, entry: int, state: SettableState | None = None) -> None:
        with Store.open(self._services.database) as store:
            store.queue.release(entry, state)

    def _is_next(self, entry: QueueEntry, only: Sequence[int] | None) -> bool:
        with Store.open(self._services.database) as store:
            first = next(iter(self._runnable_entries(store, only, entry.entry)), None)
        return first is not None and (first.entry, first.plan) == (entry.entry, entry.plan)

    def _update_entry(self, entry: QueueEntry, experiment: Experiment, *, is_over: bool) -> EntryState:
        number = entry.entry
        with Store.open(self._services.database) as store:
            if is_over and store.queue.finish(number, entry.plan):
                return experiment.state
            if number in self._cancelled:
                store.queue.remove(number)
            elif experiment.state == "out of budget":
                # If it kept waiting, it would get the same time again immediately.
                store.queue.set_state(number, "paused")
            state = next((queued.state for queued in store.queue.entries() if queued.entry == number), None)
        if experiment.state == "out of budget":
            return experiment.state
        if self._stopped.is_set():
            return "stopped"
        return "removed" if state is None else "waiting" if state == "running" else state
