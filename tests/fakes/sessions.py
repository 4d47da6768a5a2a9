"""Runs of real workers for tests: a sink that can be waited on, a session on a thread, services with a database."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.records import Outcome, RunEvent, StoredRun
from app.runs.host import Host
from app.runs.launcher import Launcher, LocalLauncher
from app.runs.leases import Leases
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.runs.supervisor import WorkerTimeouts
from app.samples import Inventory, Processes
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from tests.fakes.nvml import Card, Driver, environment
from workloads.catalog import complete
from workloads.protocol import Block, RunSpec, Value

LIMIT_S = 240.0
PATIENT = WorkerTimeouts(closed_stdin_s=LIMIT_S, terminated_s=LIMIT_S, finished_s=LIMIT_S)
"""On a busy machine too, a worker gets the time to obey; a rung of the ladder that it obeys costs none."""
Event = TypeVar("Event")


class Recorder:
    """A sink that keeps every event, and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self._came = threading.Condition()

    def handle(self, event: RunEvent) -> None:
        with self._came:
            self.events.append(event)
            self._came.notify_all()

    def of(self, kind: type[Event]) -> list[Event]:
        with self._came:
            return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[Event], that: Callable[[Event], bool] = lambda _: True) -> Event:
        """The first event of that kind for which `that` holds."""
        with self._came:
            assert self._came.wait_for(lambda: any(map(that, self.of_now(kind))), LIMIT_S), f"no {kind.__name__} came"
            return next(event for event in self.of_now(kind) if that(event))

    def of_now(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Going:
    """A session that runs on a thread of its own."""

    session: RunSession
    recorder: Recorder
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=lambda: self.outcomes.append(self.session.run()), name="a test's run")
        self._thread.start()

    def result(self) -> Outcome:
        """The outcome, when it has come."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the run does not end"
        return self.outcomes[0]


def is_measured(block: Block) -> bool:
    return block.phase == "measure"


@contextmanager
def going(spec: RunSpec, services: RunServices) -> Iterator[Going]:
    """The run, going on; stopped at the end where the test did not end it."""
    recorder = Recorder()
    run = Going(RunSession(spec, services, [recorder]), recorder)
    try:
        yield run
    finally:
        run.session.stop()
        run.result()


def run_through(spec: RunSpec, services: RunServices, *sinks: Sink) -> tuple[Outcome, Recorder, StoredRun]:
    """A whole run: its outcome, its events, and what the database has of it."""
    recorder = Recorder()
    session = RunSession(spec, services, [recorder, *sinks])
    outcome = session.run()
    assert session.number is not None
    with Store.open(services.database) as store:
        return outcome, recorder, store.load(session.number)


@contextmanager
def started_feed(hz: float = 10.0) -> Iterator[TelemetryFeed]:
    feed = TelemetryFeed(hz)
    feed.start()
    try:
        yield feed
    finally:
        feed.close()


@contextmanager
def feed_of(*cards: Card, missing: tuple[str, ...] = (), hz: float = 10.0) -> Iterator[TelemetryFeed]:
    """Telemetry of a machine with these cards, through a driver that lacks the functions `missing`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(Driver(cards=cards, missing=missing)).items():
            patch.setenv(name, value)
        with started_feed(hz) as feed:
            feed.wait_inventory(LIMIT_S)
            yield feed


def wait_listed(feed: TelemetryFeed, uuid: str) -> None:
    """Waits until the driver has listed the processes of a card anew."""
    asked_ns = time.monotonic_ns()
    said: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(said.put)
    while not (isinstance(one := said.get(timeout=LIMIT_S), Processes) and one.device == uuid and one.t_ns > asked_ns):
        pass
    unsubscribe()


def services(
    folder: Path,
    feed: TelemetryFeed,
    *,
    command: tuple[str, ...] | None = None,
    limits: WorkerTimeouts | None = None,
) -> RunServices:
    """Services with a database and leases in that folder."""
    launcher: Launcher = LocalLauncher() if command is None else LocalLauncher(command)
    return RunServices(
        database=folder / "profiles.db",
        host=Host(telemetry=feed, launcher=launcher, leases=Leases(folder)),
        timeouts=limits or PATIENT,
    )


def with_launcher(given: RunServices, launcher: Launcher) -> RunServices:
    """The same services, with workers from another launcher."""
    return replace(given, host=replace(given.host, launcher=launcher))


def dummy(inventory: Inventory, behaviour: str = "train", **given: Value) -> RunSpec:
    """A short dummy run: 40 steps of 1 ms, unless told otherwise."""
    settings: dict[str, Value] = {"gpus": 0, "step_ms": 1.0, "steps": 40, "warmup_steps": 2, "behaviour": behaviour}
    return complete("dummy", {**settings, **given}, inventory.machine)
