"""The queue as the rest of the window sees it: its controller is imported when there is first an entry."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.threads import Background
from app.samples import Inventory
from app.storage.files import FileFingerprint, file_fingerprint

if TYPE_CHECKING:
    from app.gui.experiment.queue_controller import QueueController
    from app.gui.run.sessions import SessionFactory


class QueueSignals(QObject):
    """`changed` tells that the queue's runs begin to be made here, or rest; `run_made` that another may be stored.

    `entry_ended` tells in a title and a sentence that an experiment has ended, `entry_left` that it was stopped or
    cancelled, `compare_asked` which runs' verdict is wanted, `open_asked` which run.
    """

    running_changed = Signal(bool)
    run_stored = Signal()
    entry_ended = Signal(str, str)
    entry_cancelled = Signal()
    compare_requested = Signal(list)
    open_run_requested = Signal(int)


_POLL_S = 3.0

QueueSnapshot = tuple[tuple[int, str], ...]
"""Every entry with its state, in their order."""


class QueueWatcher:
    """Compares what is `shown` with the database now and then; `changed` hears of a difference, and whether more came.

    A look that finds no file written since the last one ends there. A difference has to be there at two looks in a
    row: an experiment that begins in a terminal waits for an instant, which is nothing to be shown.
    """

    def __init__(
        self, database: Path, reads: Background, shown: Callable[[], QueueSnapshot], changed: Callable[[bool], None]
    ) -> None:
        self._database = database
        self._reads = reads
        self._shown = shown
        self._changed = changed
        self._polled_s = time.monotonic()
        self._polling = False
        self._fingerprint: FileFingerprint | None = None
        self._previous: QueueSnapshot | None = None

    def poll(self) -> None:
        """Look, where it is time to; quick where it is not."""
        now_s = time.monotonic()
        if not self._polling and now_s - self._polled_s >= _POLL_S:
            self._polled_s, self._polling = now_s, True
            fingerprint = self._fingerprint
            self._reads.run(lambda: _read_snapshot(self._database, fingerprint), self._handle_snapshot, self._fail)

    def _handle_snapshot(self, answer: tuple[FileFingerprint, QueueSnapshot | None]) -> None:
        self._polling = False
        fingerprint, found = answer
        if found is None:
            return
        shown = self._shown()
        is_sure = found in (shown, self._previous)
        self._fingerprint = fingerprint if is_sure else None
        self._previous = found
        if is_sure and found != shown:
            self._changed(bool({entry for entry, _ in found} - {entry for entry, _ in shown}))

    def _fail(self, _: UserError) -> None:
        """Nobody asked for it: whatever else needs the database says what is wrong with it."""
        self._polling = False


def _read_snapshot(database: Path, previous: FileFingerprint | None) -> tuple[FileFingerprint, QueueSnapshot | None]:
    """The queue as it is now, None where nothing was written since `before`."""
    fingerprint = file_fingerprint(database)  # first: what is written meanwhile is then seen by the next look
    if fingerprint == previous:
        return fingerprint, None
    from app.storage.store import Store

    with Store.open(database) as store:
        return fingerprint, tuple((entry.entry, entry.state) for entry in store.queue.entries())


class LazyQueue:
    """Makes the queue's controller, which tells by `news`; a single run of the form goes before the queue's."""

    def __init__(
        self,
        view: RunView,
        run: RunController,
        database: Path,
        inventory: Callable[[], Inventory],
        session_factory: Callable[[], "SessionFactory"],
        reads: Background,
        background: Background,
    ) -> None:
        self.signals = QueueSignals(view)
        self._view = view
        self._run = run
        self._database = database
        self._inventory = inventory
        self._session_factory = session_factory
        self._reads = reads
        self._background = background
        self._controller: QueueController | None = None
        self._watch: QueueWatcher | None = None
        self._closing = False

    def start(self) -> None:
        """Listen to the form."""
        self._run.queue_requested.connect(lambda spec: self.controller().add_run(spec))
        self._run.queue_stop_requested.connect(self.stop)
        self._run.ended.connect(self._begin)
        self.signals.running_changed.connect(lambda running: self._run.show_queue(running=running))

    @property
    def running(self) -> bool:
        """Whether this window makes the queue's runs."""
        return self._controller is not None and self._controller.running

    def controller(self) -> "QueueController":
        """What adds to the queue and has its runs made."""
        if self._controller is None:
            from app.gui.experiment.queue_controller import QueueController

            self._controller = QueueController(
                self._view.queue_view(),
                self.signals,
                self._database,
                self._inventory,
                lambda on_progress: self._session_factory().make_queue_runner(on_progress),
                lambda: not self._run.running and not self._closing,
                self._reads,
                self._background,
                self._run.show_error,
            )
        return self._controller

    def check_entries(self) -> None:
        """Offer to go on with what is in the queue; if that is nothing, nothing is imported for it."""
        self._reads.run(lambda: _has_entries(self._database), self._handle_entries, self._run.show_error)

    def refresh(self) -> None:
        """Let the time left pass, and at rest see now and then what other programs put into the queue."""
        if self._controller is not None:
            self._controller.refresh()
        if self._watch is not None and not (self._run.running or self.running or self._closing):
            self._watch.poll()

    def stop(self) -> None:
        """End the run that goes on, and pause the queue; the news tell when it has ended."""
        if self._controller is not None:
            self._controller.stop()

    def shut_down(self) -> None:
        """Stop, and begin no more."""
        self._closing = True
        self.stop()

    def _handle_entries(self, has_entries: bool) -> None:
        if has_entries:
            self.controller().offer_resume()
        if self._watch is None:
            self._watch = QueueWatcher(
                self._database, self._reads, self._snapshot, lambda more: self.controller().show_changed(more=more)
            )

    def _snapshot(self) -> QueueSnapshot:
        return () if self._controller is None else self._controller.snapshot

    def _begin(self) -> None:
        if self._controller is not None:
            self._controller.begin()


def _has_entries(database: Path) -> bool:
    from app.storage.store import Store

    with Store.open(database) as store:
        return bool(store.queue.entries())
