"""Sees what other programs change in the queue while the window makes nothing of it."""

import time
from collections.abc import Callable
from pathlib import Path

from app.errors import UserError
from app.gui.background import Background
from app.storage.stamp import Stamp, stamp_of

_LOOK_S = 3.0

Places = tuple[tuple[int, str], ...]
"""Every entry with its state, in their order."""


class QueueWatch:
    """Compares what is `shown` with the database now and then; `changed` hears of a difference, and whether more came.

    A look that finds no file written since the last one ends there. A difference has to be there at two looks in a
    row: an experiment that begins in a terminal waits for an instant, which is nothing to be shown.
    """

    def __init__(
        self, database: Path, reads: Background, shown: Callable[[], Places], changed: Callable[[bool], None]
    ) -> None:
        self._database = database
        self._reads = reads
        self._shown = shown
        self._changed = changed
        self._looked_s = time.monotonic()
        self._looking = False
        self._stamp: Stamp | None = None
        self._before: Places | None = None

    def look(self) -> None:
        """Look, where it is time to; quick where it is not."""
        now_s = time.monotonic()
        if not self._looking and now_s - self._looked_s >= _LOOK_S:
            self._looked_s, self._looking = now_s, True
            stamp = self._stamp
            self._reads.run(lambda: _seen(self._database, stamp), self._take, self._fail)

    def _take(self, seen: tuple[Stamp, Places | None]) -> None:
        self._looking = False
        stamp, found = seen
        if found is None:
            return
        shown = self._shown()
        is_sure = found in (shown, self._before)
        self._stamp = stamp if is_sure else None
        self._before = found
        if is_sure and found != shown:
            self._changed(bool({entry for entry, _ in found} - {entry for entry, _ in shown}))

    def _fail(self, _: UserError) -> None:
        """Nobody asked for it: whatever else needs the database says what is wrong with it."""
        self._looking = False


def _seen(database: Path, before: Stamp | None) -> tuple[Stamp, Places | None]:
    """The queue as it is now, None where nothing was written since `before`."""
    stamp = stamp_of(database)  # first: what is written meanwhile is then seen by the next look
    if stamp == before:
        return stamp, None
    from app.storage.store import Store

    with Store.open(database) as store:
        return stamp, tuple((entry.entry, entry.state) for entry in store.queue.entries())
