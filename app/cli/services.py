"""The composition root of the command line: opens what a command needs, and closes it."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from app.cli.arguments import SAMPLE_MS
from app.errors import UserError
from app.runs.leases import Leases
from app.runs.recovery import recover
from app.runs.session import RunServices
from app.runs.standby import StandbyLauncher
from app.runs.standby_setting import wanted
from app.storage.location import default_database
from app.storage.space import room_for
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed


@contextlib.contextmanager
def opened_store(database: Path | None, *, may_be_new: bool = False) -> Iterator[Store]:
    """The store, after runs whose owner is gone were found.

    A path that the user gave is made a new database only with `may_be_new`; else a slip of the pen would leave one.
    """
    if database is not None and not may_be_new and not database.exists():
        raise UserError(
            f"There is no database {database}: a run or an import makes one. Without --db it is {default_database()}."
        )
    with Store.open(database or default_database()) as store:
        recover(store)
        yield store


@contextlib.contextmanager
def run_services(
    database: Path | None, sample_ms: float = SAMPLE_MS, *, standby: bool = False
) -> Iterator[RunServices]:
    """What runs need, with telemetry going on; little room on the disk is said on stderr.

    With `standby` (where several runs will come) a worker stands by for the next, where one is wanted.
    """
    with opened_store(database, may_be_new=True) as store:
        path = store.path
    if warning := room_for(path).warning:
        print(warning, file=sys.stderr)
    with telemetry(sample_ms) as feed:
        if not standby:
            yield RunServices(database=path, feed=feed)
            return
        with contextlib.closing(StandbyLauncher(Leases(), lambda: wanted(feed))) as launcher:
            yield RunServices(database=path, feed=feed, launcher=launcher)


@contextlib.contextmanager
def telemetry(sample_ms: float) -> Iterator[TelemetryFeed]:
    """A telemetry feed with a reading every so many milliseconds, started, and closed at the end."""
    feed = TelemetryFeed(1000 / sample_ms)
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
