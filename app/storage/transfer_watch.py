"""Work that takes a while: how far it is, and whether it shall stop."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from app.errors import UserError

_EVERY = 2_000
"""Rows between two looks at the watch."""

_SHARE = 0.001
"""What is worth telling."""
STEPS = 100_000
"""Steps of SQLite's machine between two looks at the watch, some milliseconds."""

STOPPED = "Stopped; nothing was written."

Thing = TypeVar("Thing")


class StoppedError(UserError):
    """The user stopped the work; nothing of it is left."""


def _nobody(_fraction: float) -> None:
    """Nobody asks how far it is."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Watch:
    """Who watches: `told` hears the share that is done, from 0 to 1; `stop` is asked often and says whether to stop.

    Both are called on the thread that does the work.
    """

    told: Callable[[float], None] = _nobody
    stop: Callable[[], bool] = _never

    def check(self) -> None:
        """Raises `StoppedError` where it shall stop."""
        if self.stop():
            raise StoppedError(STOPPED)


QUIET = Watch()
"""Nobody watches."""


class Counter:
    """Counts rows towards a total and tells the watch; raises `StoppedError` where it says so."""

    def __init__(self, watch: Watch, total: int) -> None:
        self._watch = watch
        self._total = max(total, 1)
        self._done = 0
        self._told = -1.0

    def rows(self, rows: Iterable[Thing]) -> Iterator[Thing]:
        """The rows, counted as they pass; the watch is told now and then, and after the last."""
        for row in rows:
            self._done += 1
            if self._done % _EVERY == 0:
                self.look()
            yield row
        self.look()

    def add(self, rows: int) -> None:
        """Counts rows that were done at once."""
        self._done += rows
        self.look()

    def look(self) -> None:
        """Tells how far it is and raises `StoppedError` where it shall stop."""
        self._watch.check()
        share = min(1.0, self._done / self._total)
        if share >= self._told + _SHARE or share == 1.0 > self._told:
            self._told = share
            self._watch.told(share)


@contextlib.contextmanager
def interruptible(connection: sqlite3.Connection, watch: Watch) -> Iterator[None]:
    """While inside, a statement of the connection ends soon after the watch says stop, and raises `StoppedError`."""
    connection.set_progress_handler(watch.stop, STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_INTERRUPT":
            raise
        raise StoppedError(STOPPED) from error
    finally:
        connection.set_progress_handler(None, 0)
