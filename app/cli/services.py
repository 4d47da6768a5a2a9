"""Context managers of commands: the database, telemetry, and the signals that stop a command."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from app.errors import UserError
from app.paths import default_database
from app.runs.outcome import mark_crashed_runs
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed


@contextlib.contextmanager
def open_store(database: Path | None, *, may_be_new: bool = False) -> Iterator[Store]:
    """Open the store, once runs whose owner is gone are marked as crashed.

    Args:
        database: The path that the user gave, None for the default one.
        may_be_new: Whether a given path may become a new database; else a mistyped one would.

    Raises:
        UserError: There is no such database.
    """
    if database is not None and not may_be_new and not database.exists():
        raise UserError(
            f"There is no database {database}: a run or an import makes one. Without --db it is {default_database()}."
        )
    with Store.open(database or default_database()) as store:
        if not store.is_read_only:
            mark_crashed_runs(store)
        yield store


@contextlib.contextmanager
def telemetry_feed(sample_ms: float) -> Iterator[TelemetryFeed]:
    """Start a telemetry feed with a reading every so many milliseconds, and close it at the end."""
    feed = TelemetryFeed(1000 / sample_ms)
    feed.start()
    try:
        yield feed
    finally:
        feed.close()


@contextlib.contextmanager
def stop_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at Ctrl-C, a hang-up or a request to terminate, instead of ending the program."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
