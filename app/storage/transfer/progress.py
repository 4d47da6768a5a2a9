"""Progress reporting and cancellation of long database operations."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from app.errors import UserError

_CHECK_EVERY_ROWS = 2_000
"""Rows between two looks at the watch."""

_MIN_REPORTED_STEP = 0.001
"""What is worth telling."""
VM_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the watch, some milliseconds."""

STOPPED_MESSAGE = "Stopped; nothing was written."

Thing = TypeVar("Thing")


class StoppedError(UserError):
    """The user stopped the work; nothing of it is left."""


def _ignore(_fraction: float) -> None:
    """Nobody asks how far it is."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """Who watches: `told` hears the share that is done, from 0 to 1; `stop` is asked often and says whether to stop.

    Both are called on the thread that does the work.
    """

    report: Callable[[float], None] = _ignore
    should_stop: Callable[[], bool] = _never

    def check(self) -> None:
        """Raises `StoppedError` where it shall stop."""
        if self.should_stop():
            raise StoppedError(STOPPED_MESSAGE)


NO_PROGRESS = TransferProgress()
"""Nobody watches."""


class RowCounter:
    """Counts rows towards a total and tells the watch; raises `StoppedError` where it says so."""

    def __init__(self, progress: TransferProgress, total: int) -> None:
        self._progress = progress
        self._total = max(total, 1)
        self._done = 0
        self._reported = -1.0

    def rows(self, rows: Iterable[Thing]) -> Iterator[Thing]:
        """The rows, counted as they pass; the watch is told now and then, and after the last."""
        for row in rows:
            self._done += 1
            if self._done % _CHECK_EVERY_ROWS == 0:
                self.update()
            yield row
        self.update()

    def add(self, rows: int) -> None:
        """Counts rows that were done at once."""
        self._done += rows
        self.update()

    def update(self) -> None:
        """Tells how far it is and raises `StoppedError` where it shall stop."""
        self._progress.check()
        share = min(1.0, self._done / self._total)
        if share >= self._reported + _MIN_REPORTED_STEP or share == 1.0 > self._reported:
            self._reported = share
            self._progress.report(share)


@contextlib.contextmanager
def interruptible(connection: sqlite3.Connection, progress: TransferProgress) -> Iterator[None]:
    """While inside, a statement of the connection ends soon after the watch says stop, and raises `StoppedError`."""
    connection.set_progress_handler(progress.should_stop, VM_STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_INTERRUPT":
            raise
        raise StoppedError(STOPPED_MESSAGE) from error
    finally:
        connection.set_progress_handler(None, 0)
