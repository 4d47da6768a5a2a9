"""Keeps what is shown of the queue in step with the database, which other programs change too."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.threads import Background
from app.queries import ExperimentProgress
from app.samples import Inventory
from app.storage.files import FileFingerprint, file_fingerprint
from app.viewmodels.experiment.queue import QueueModel

if TYPE_CHECKING:
    from app.gui.experiment.queue_database import QueueDatabase
    from app.runs.undo import Edit

Result = TypeVar("Result")
QueueSnapshot = tuple[tuple[int, str], ...]
"""Every entry with its state, in order."""

_POLL_S = 3.0


class QueueSync(QObject):
    """Changes the queue of a database and brings `model` up to date with it.

    What reads the database is imported with the first read, in the background: the window opens without it.

    Thread: GUI only; the database is read and written in the background, where calls keep their order.
    """

    updated = Signal()
    """The model is up to date."""
    edited = Signal(str, object)
    """The user changed the queue: how, and what undoes it; None where nothing changed."""

    def __init__(
        self,
        database: Path,
        inventory: Callable[[], Inventory],
        reads: Background,
        failed: Callable[[UserError], None],
    ) -> None:
        """Prepare for a database; nothing is read yet.

        `inventory` waits for the devices, in the background; `failed` gets the error of a read or change.
        """
        super().__init__()
        self.database = database
        self.model = QueueModel()
        self._inventory = inventory
        self._reads = reads
        self._failed = failed
        self._is_watching = False
        self._polled_s = time.monotonic()
        self._polling = False
        self._fingerprint: FileFingerprint | None = None
        self._previous: QueueSnapshot | None = None

    def change(
        self,
        change: Callable[["QueueDatabase"], Sequence[ExperimentProgress]],
        then: Callable[[], None] | None = None,
        name: str = "",
    ) -> None:
        """Change the queue and take it over as it is then.

        Args:
            change: Changes it.
            then: Called just before the queue is shown.
            name: The change, in the imperative, where the user made it and may undo it.
        """

        def take(answer: "tuple[Sequence[ExperimentProgress], Edit | None]") -> None:
            entries, reversal = answer
            self.model.update(entries)
            if name:
                self.edited.emit(name, reversal)
            if then is not None:
                then()
            self.updated.emit()

        self.query(lambda queue: (change(queue), queue.reversal), take)

    def read(self, then: Callable[[], None] | None = None) -> None:
        """Take the queue over as it is; `then` is called just before it is shown."""
        self.change(lambda queue: queue.read(), then)

    def query(self, ask: Callable[["QueueDatabase"], Result], done: Callable[[Result], None]) -> None:
        """Ask the database in the background; `done` gets the answer."""

        def run() -> Result:
            from app.gui.experiment.queue_database import QueueDatabase

            return ask(QueueDatabase(self.database, self._inventory()))

        self._reads.run(run, done, self._failed)

    def check(self, found: Callable[[], None]) -> None:
        """Call `found` if there is any entry, and watch the queue from now on."""

        def take(answer: tuple[FileFingerprint, QueueSnapshot | None]) -> None:
            self._is_watching = True
            if answer[1]:
                found()

        self._reads.run(lambda: _read_snapshot(self.database, None), take, self._failed)

    def poll(self, added: Callable[[], None]) -> None:
        """Take over what other programs changed, if it is time to look; quick if not.

        A poll that finds no file written since the last one ends there. A difference has to be there at two polls in a
        row: an experiment that begins in a terminal waits for an instant, which need not be shown.

        Args:
            added: Called when there are more entries, just before they are shown.
        """
        now_s = time.monotonic()
        if not self._is_watching or self._polling or now_s - self._polled_s < _POLL_S:
            return
        self._polled_s, self._polling = now_s, True
        fingerprint = self._fingerprint
        self._reads.run(
            lambda: _read_snapshot(self.database, fingerprint),
            lambda answer: self._handle_snapshot(*answer, added),
            self._ignore,
        )

    def _handle_snapshot(
        self, fingerprint: FileFingerprint, found: QueueSnapshot | None, added: Callable[[], None]
    ) -> None:
        self._polling = False
        if found is None:
            return
        shown = tuple((entry.entry, entry.state) for entry in self.model.entries)
        is_sure = found in (shown, self._previous)
        self._fingerprint = fingerprint if is_sure else None
        self._previous = found
        if is_sure and found != shown:
            has_more = {entry for entry, _ in found} - {entry for entry, _ in shown}
            self.read(added if has_more else None)

    def _ignore(self, _: UserError) -> None:
        # Nobody asked for it: whatever else needs the database says what is wrong with it.
        self._polling = False


def _read_snapshot(database: Path, previous: FileFingerprint | None) -> tuple[FileFingerprint, QueueSnapshot | None]:
    """Read the queue; None where nothing was written since `previous`."""
    fingerprint = file_fingerprint(database)  # first: what is written meanwhile is then seen by the next poll
    if fingerprint == previous:
        return fingerprint, None
    from app.storage.store import Store

    with Store.open(database) as store:
        return fingerprint, tuple((entry.entry, entry.state) for entry in store.queue.entries())
