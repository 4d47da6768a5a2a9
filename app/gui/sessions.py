"""What the window starts: runs, searches and the queue, and the worker that stands by for the next of them."""

from collections.abc import Callable
from pathlib import Path

from app.analysis.largest_batch import bounds_of
from app.gui.bridge import Bridge, BridgeSink
from app.queries import QueueProgress
from app.runs.largest_batch import LargestBatchSession
from app.runs.leases import Leases
from app.runs.queue_progress import ProgressTeller
from app.runs.queue_runner import QueueRunner
from app.runs.session import RunServices, RunSession
from app.runs.standby import StandbyLauncher
from app.runs.standby_setting import wanted
from app.storage.known_settings import STANDBY
from app.storage.settings import kept_in
from app.telemetry.feed import TelemetryFeed
from workloads.protocol import RunSpec


class Sessions:
    """Makes sessions that store in `database` and tell the window of it; `close` it when the last one has ended."""

    def __init__(self, database: Path, feed: TelemetryFeed, bridge: Bridge) -> None:
        self._bridge = bridge
        self._launcher = StandbyLauncher(Leases(), lambda: wanted(feed, lambda: kept_in(database, STANDBY)))
        self._services = RunServices(database=database, feed=feed, launcher=self._launcher)

    def prepare(self) -> None:
        """Has a worker stand by where one is wanted, and none where not; returns at once."""
        self._launcher.prepare()

    def one(self, spec: RunSpec) -> RunSession:
        """One run."""
        return RunSession(spec, self._services, (BridgeSink(self._bridge),))

    def search(self, spec: RunSpec, limit: int) -> LargestBatchSession:
        """The search for the largest batch up to `limit`; raises `UsageError` where there is nothing to search."""
        return LargestBatchSession(spec, bounds_of(spec, limit), self._services, lambda *_: (BridgeSink(self._bridge),))

    def queue(self, told: Callable[[QueueProgress], None]) -> QueueRunner:
        """One walk through the queue; `told` hears how far it is, on the threads that make the runs."""
        return QueueRunner(self._services, ProgressTeller(told, lambda: (BridgeSink(self._bridge),)))

    def close(self) -> None:
        """Ends the worker that stands by."""
        self._launcher.close()
