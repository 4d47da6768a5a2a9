"""Reports the progress of long database operations, and cancels them."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from app.errors import UserError

_CHECK_EVERY_ROWS = 2_000
"""Rows between two checks of the progress."""

_MIN_REPORTED_STEP = 0.001
"""The smallest reported change of the share."""

VM_STEPS = 100_000
"""Steps of SQLite's virtual machine between two checks, a few milliseconds."""

STOPPED_MESSAGE = "Stopped; nothing was written."

Thing = TypeVar("Thing")


class StoppedError(UserError):
    """The user stopped the operation, which left nothing behind."""


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """Callbacks of an operation: `report` gets the completed share, from 0 to 1; `should_stop` is called often.

    Thread: both are called on the thread that does the work.
    """

    report: Callable[[float], None] = lambda _fraction: None
    should_stop: Callable[[], bool] = lambda: False

    def check(self) -> None:
        """Raise `StoppedError` if the operation should stop."""
        if self.should_stop():
            raise StoppedError(STOPPED_MESSAGE)

    def part(self, index: int, parts: int) -> "TransferProgress":
        """Return the progress of one of several consecutive operations of equal size."""
        return TransferProgress(lambda share: self.report((index + share) / parts), self.should_stop)


NO_PROGRESS = TransferProgress()
"""No callbacks: nobody watches, and nothing stops the operation."""


class RowCounter:
    """Counts rows towards a total and reports the share; methods raise `StoppedError` when the user stops."""

    def __init__(self, progress: TransferProgress, total: int) -> None:
        self._progress = progress
        self._total = max(total, 1)
        self._done = 0
        self._reported = -1.0

    def rows(self, rows: Iterable[Thing]) -> Iterator[Thing]:
        """Yield the rows and count them; report regularly, and after the last."""
        for row in rows:
            self._done += 1
            if self._done % _CHECK_EVERY_ROWS == 0:
                self.update()
            yield row
        self.update()

    def add(self, rows: int) -> None:
        self._done += rows
        self.update()

    def update(self) -> None:
        """Report the completed share; raises `StoppedError` if the operation should stop."""
        self._progress.check()
        share = min(1.0, self._done / self._total)
        if share >= self._reported + _MIN_REPORTED_STEP or share == 1.0 > self._reported:
            self._reported = share
            self._progress.report(share)


@contextlib.contextmanager
def interruptible(connection: sqlite3.Connection, progress: TransferProgress) -> Iterator[None]:
    """Let statements of the connection end soon after the user stops, with `StoppedError`."""
    connection.set_progress_handler(progress.should_stop, VM_STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_INTERRUPT":
            raise
        raise StoppedError(STOPPED_MESSAGE) from error
    finally:
        connection.set_progress_handler(None, 0)
