"""Creates run sessions, batch searches and queue runners for the window, with a standby worker for the next one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.analysis.largest_batch import search_bounds
from app.grants import Consent
from app.gui.threads import Bridge, BridgeSink
from app.hosts.connections import Connections
from app.queries import ExperimentProgress
from app.runs.experiment.queue_runner import QueueRunner
from app.runs.experiment.session import PlannedRun, QueueListener
from app.runs.host import Host
from app.runs.leases import Leases
from app.runs.probes import LargestBatchSession
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.runs.standby import StandbyLauncher
from app.runs.standby_setting import is_standby_wanted
from app.storage.database import load_setting
from app.storage.known_settings import STANDBY
from app.telemetry.feed import TelemetryFeed
from workloads.protocol import RunSpec


class SessionFactory:
    """Creates sessions that store their run and forward its events to the window; close it after the last one.

    Thread: any; each session blocks the thread that runs it.
    """

    def __init__(
        self, database: Path, feed: TelemetryFeed, bridge: Bridge, hosts: Connections, consent: Consent
    ) -> None:
        """Create what runs need.

        `consent` is called for what was never allowed, on the threads that start something.
        """
        self._bridge = bridge
        self._hosts = hosts
        leases = Leases()
        self._launcher = StandbyLauncher(
            leases, lambda: is_standby_wanted(feed, lambda: load_setting(database, STANDBY))
        )
        self._services = RunServices(
            database=database,
            host=Host(telemetry=feed, launcher=self._launcher, leases=leases),
            consent=consent,
        )

    def prepare(self) -> None:
        """Start the standby worker if enabled, else end it; returns immediately."""
        self._launcher.prepare()

    def make_run(self, spec: RunSpec, host: str, purpose: str | None) -> RunSession:
        """Return the session of one run on a host ("" is this machine); raises `UserError` if not connected."""
        return RunSession(spec, self._services_on(host), (BridgeSink(self._bridge),), purpose=purpose)

    def make_search(self, spec: RunSpec, limit: int, host: str) -> LargestBatchSession:
        """Create the search for the largest batch up to a limit.

        Raises:
            UsageError: There is nothing to search.
            UserError: The host is not connected.
        """
        return LargestBatchSession(
            spec, search_bounds(spec, limit), self._services_on(host), lambda *_: (BridgeSink(self._bridge),)
        )

    def make_queue_runner(self, on_progress: Callable[[ExperimentProgress], None]) -> QueueRunner:
        def open_host(word: str) -> Host:
            return self._hosts.wait_host(word, lambda: runner.is_stopped)

        services = replace(self._services, open_host=open_host)
        runner = QueueRunner(services, _WindowListener(on_progress, self._bridge))
        return runner

    def _services_on(self, host: str) -> RunServices:
        """Return the services of runs that the window itself starts, without waiting."""
        return replace(self._services, host=self._hosts.connected(host)) if host else self._services

    def close(self) -> None:
        self._launcher.close()


class _WindowListener(QueueListener):
    """Forwards the queue's progress to a function, and its runs' events to the window."""

    def __init__(self, on_progress: Callable[[ExperimentProgress], None], bridge: Bridge) -> None:
        self._on_progress = on_progress
        self._bridge = bridge

    def progressed(self, progress: ExperimentProgress) -> None:
        self._on_progress(progress)

    def sinks(self, _planned_run: PlannedRun) -> Sequence[Sink]:
        return (BridgeSink(self._bridge),)
