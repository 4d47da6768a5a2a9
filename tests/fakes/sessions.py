"""Runs of real workers for tests: a sink with waiting, a session on a thread, services with a database."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.grants import typed
from app.runs.host import Host, WorkerTimeouts
from app.runs.launcher import Launcher
from app.runs.leases import Leases
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.telemetry.sampler_process import SamplerProcess
from app.values.events import Outcome, RunEvent
from app.values.records import StoredRun
from app.values.samples import Inventory, Processes
from tests.fakes.nvml import Card, Driver, environment
from tests.present import present
from workloads.catalog import complete
from workloads.protocol import Block, RunSpec, Value

LIMIT_S = 240.0
PATIENT = WorkerTimeouts(closed_stdin_s=LIMIT_S, terminated_s=LIMIT_S, finished_s=LIMIT_S)
"""Even on a busy machine a worker has time to obey; a request that it obeys costs none of it."""
Event = TypeVar("Event")


class Recorder:
    """A sink that stores every event, and lets a test wait for one.

    Thread: any.
    """

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
        """Wait for the first event of that kind for which `that` is true."""
        with self._came:
            assert self._came.wait_for(lambda: any(map(that, self.of_now(kind))), LIMIT_S), f"no {kind.__name__} came"
            return next(event for event in self.of_now(kind) if that(event))

    def of_now(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Going:
    session: RunSession
    recorder: Recorder
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=lambda: self.outcomes.append(self.session.run()), name="a test's run")
        self._thread.start()

    def result(self) -> Outcome:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the run does not end"
        return self.outcomes[0]


def is_measured(block: Block) -> bool:
    return block.phase == "measure"


@contextmanager
def going(spec: RunSpec, services: RunServices, *sinks: Sink) -> Iterator[Going]:
    """Start a run; stop it at the end where the test did not."""
    recorder = Recorder()
    run = Going(RunSession(spec, services, [recorder, *sinks]), recorder)
    try:
        yield run
    finally:
        run.session.stop()
        run.result()


def run_through(spec: RunSpec, services: RunServices, *sinks: Sink) -> tuple[Outcome, Recorder, StoredRun]:
    """Run to the end; return the outcome, the events and the stored run."""
    recorder = Recorder()
    session = RunSession(spec, services, [recorder, *sinks])
    outcome = session.run()
    with Store.open(services.database) as store:
        return outcome, recorder, store.load(present(session.number))


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
    """Start telemetry of a machine with these GPUs, through a driver that lacks the functions `missing`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(Driver(cards=cards, missing=missing)).items():
            patch.setenv(name, value)
        with started_feed(hz) as feed:
            feed.wait_inventory(LIMIT_S)
            yield feed


def kill_sampler(feed: TelemetryFeed) -> None:
    """Kill the sampler as the kernel does where memory runs out, and wait until it is gone."""
    sampler = feed._sampler
    assert isinstance(sampler, SamplerProcess), "the feed was started, here"
    sampler.process.kill()
    sampler.process.wait()


def wait_listed(feed: TelemetryFeed, uuid: str) -> None:
    """Wait until the driver has listed the processes of a GPU again."""
    began_ns = time.monotonic_ns()
    inbox: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(inbox.put)
    while not (isinstance(one := inbox.get(timeout=LIMIT_S), Processes) and one.device == uuid and one.t_ns > began_ns):
        pass
    unsubscribe()


def services(
    folder: Path, feed: TelemetryFeed, *, command: tuple[str, ...] | None = None, limits: WorkerTimeouts | None = None
) -> RunServices:
    """Return services with database and leases in a folder; `command` starts another worker."""
    launcher = Launcher() if command is None else Launcher(command)
    return RunServices(
        database=folder / "profiles.db",
        host=Host(telemetry=feed, launcher=launcher, leases=Leases(folder)),
        consent=typed,
        timeouts=limits or PATIENT,
    )


def with_launcher(given: RunServices, launcher: Launcher) -> RunServices:
    return replace(given, host=replace(given.host, launcher=launcher))


def dummy(inventory: Inventory, behaviour: str = "train", **given: Value) -> RunSpec:
    """Return the spec of a short dummy run: 40 steps of 1 ms; `given` overrides parameters."""
    settings: dict[str, Value] = {"gpus": 0, "step_ms": 1.0, "steps": 40, "warmup_steps": 2, "behaviour": behaviour}
    return complete("dummy", {**settings, **given}, inventory.machine)


def with_values(spec: RunSpec, **values: Value) -> RunSpec:
    """Return the spec with these values, whether its workload has such parameters or not."""
    return RunSpec(workload=spec.workload, variant={**spec.variant, **values})


HELLO = (
    "import os, sys, time\n"
    "from workloads.protocol import *\n"
    "def say(message): sys.stdout.buffer.write(encode(message)); sys.stdout.flush()\n"
    "hello = dict(pid=os.getpid(), t_ns=time.monotonic_ns(), utc_ns=time.time_ns())\n"
    "def begin(phase): say(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))\n"
    "def measure():\n"
    "    begin('measure')\n"
    "    start_ns = time.monotonic_ns()\n"
    "    say(Block(phase='measure', first_step=0, steps=1, examples=8, start_ns=start_ns, end_ns=start_ns + 1))\n"
    "    begin('finish')\n"
    "def end(): say(Finished(outcome='completed', t_ns=time.monotonic_ns()))\n"
)
"""The start of a worker of another making."""
GREETS = "say(Hello(protocol=PROTOCOL_VERSION, **hello)); "
"""It says hello."""
