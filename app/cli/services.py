"""The composition root of the command line: opens what a command needs, and closes it."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from app.runs.recovery import recover
from app.runs.session import RunServices
from app.storage.location import default_database
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed


@contextlib.contextmanager
def opened_store(database: Path | None) -> Iterator[Store]:
    """The store, after runs whose owner is gone were found."""
    with Store.open(database or default_database()) as store:
        recover(store)
        yield store


@contextlib.contextmanager
def run_services(database: Path | None) -> Iterator[RunServices]:
    """What runs need, with telemetry going on."""
    with opened_store(database) as store:
        path = store.path
    with telemetry() as feed:
        yield RunServices(database=path, feed=feed)


@contextlib.contextmanager
def telemetry(hz: float = 10.0) -> Iterator[TelemetryFeed]:
    """A telemetry feed that is started, and closed at the end."""
    feed = TelemetryFeed(hz)
    feed.start()
    try:
        yield feed
    finally:
        feed.close()


@contextlib.contextmanager
def interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """While inside, Ctrl-C and a polite end of the terminal call `stop` instead of ending the program."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
