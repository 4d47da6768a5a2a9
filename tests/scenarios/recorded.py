"""What the real sampler says of each scenario, and what a run makes of it: all scenarios at the same time."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from app.errors import TelemetryError
from app.runs.launcher import WorkerEvent
from app.runs.session import RunSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed, updated_inventory
from app.telemetry.messages import SamplerMessage
from app.telemetry.sampler_process import SamplerProcess
from app.values.events import Outcome
from app.values.fields import Sample, fields_of
from app.values.records import StoredRun
from app.values.samples import HOST, Device, DeviceLost, FieldsUpdated, Inventory
from tests.fakes.nvml import environment
from tests.fakes.scenarios import NAMES, Scenario, load
from tests.fakes.sessions import Going, Recorder, dummy, services, with_launcher
from tests.fakes.workers import ScriptedLauncher
from workloads.protocol import PROTOCOL_VERSION, Block, Finished, Hello, PhaseStarted

LIMIT_S = 120.0
HZ = 10.0
SPEED = 2.0
_BLOCK_NS = 50_000_000


@dataclass
class Recording:
    """Everything that the sampler has said of a scenario, in order.

    Thread: any.
    """

    scenario: Scenario
    messages: list[SamplerMessage] = field(default_factory=list)
    stderr: str = ""
    outcome: Outcome | None = None
    stored: StoredRun | None = None
    missing: str = ""

    def __post_init__(self) -> None:
        self._came = threading.Condition()

    def take(self, message: SamplerMessage) -> None:
        with self._came:
            self.messages.append(message)
            self._came.notify_all()

    def wait(self, what: str, is_there: Callable[[], bool]) -> None:
        """Wait until something was said; note what never was."""
        with self._came:
            if not self.missing and not self._came.wait_for(is_there, LIMIT_S):
                self.missing = what

    def answers(self, after_ns: int) -> set[str]:
        """Return the devices with a reading after a time."""
        return {each.device for each in self.messages if isinstance(each, Sample) and each.t_ns > after_ns}

    @property
    def lost(self) -> dict[str, int]:
        """The devices that were said to be lost, and when last."""
        return {each.device: each.t_ns for each in self.messages if isinstance(each, DeviceLost)}

    @property
    def inventory(self) -> Inventory:
        """The devices as they are known in the end."""
        found = next(each for each in self.messages if isinstance(each, Inventory))
        for message in self.messages:
            if isinstance(message, Inventory):
                found = message
            elif isinstance(message, FieldsUpdated):
                found = updated_inventory(found, message)
        return found


def record_all(folder: Path) -> Mapping[str, Recording]:
    """Let every scenario happen, each with a sampler and a run of its own."""
    empty = folder / "empty.db"
    Store.open(empty).close()
    with ThreadPoolExecutor(len(NAMES)) as pool:
        record = partial(_record, folder=folder, empty=empty, launching=threading.Lock())
        return dict(zip(NAMES, pool.map(record, NAMES), strict=True))


def _record(name: str, folder: Path, empty: Path, launching: threading.Lock) -> Recording:
    own = folder / name
    own.mkdir()
    scenario = load(name, speed=SPEED, begins_when=str(own / "begins"))
    shutil.copyfile(empty, own / "profiles.db")
    recording = Recording(scenario)
    with closing(_ScenarioFeed(scenario, own / "stderr", launching)) as feed:
        feed.start()
        feed.subscribe(recording.take)
        try:
            feed.wait_inventory(LIMIT_S)
        except TelemetryError as error:
            recording.missing = str(error)
        else:
            with _run(recording, feed, own):
                (own / "begins").touch()  # the story, which the run is part of on a machine as slow as it may be
                _wait_for_the_end(recording, time.monotonic_ns() + int(scenario.until_s / SPEED * 1e9))
    recording.stderr = (own / "stderr").read_text(encoding="utf-8", errors="replace")
    return recording


def _wait_for_the_end(recording: Recording, until_ns: int) -> None:
    scenario = recording.scenario
    recording.wait("the story's end", lambda: HOST in recording.answers(until_ns))
    recording.wait("word of the loss", lambda: recording.lost.keys() >= set(scenario.lost))
    recording.wait("the card's return", lambda: _are_back(recording))
    recording.wait("word of each field", lambda: all(_is_probed(device) for device in recording.inventory.devices))
    now_ns = time.monotonic_ns()
    recording.wait("readings", lambda: recording.answers(now_ns) >= scenario.alive | {HOST})


def _are_back(recording: Recording) -> bool:
    there = {device.device for device in recording.inventory.devices if device.lost is None}
    return all(
        uuid in there and uuid in recording.answers(recording.lost.get(uuid, 0)) for uuid in recording.scenario.back
    )


def _is_probed(device: Device) -> bool:
    """Whether it is known of each field if the GPU has it; of a lost one nothing need be known."""
    unknown = {field.name for field in fields_of("gpu")} - device.fields.keys() - device.absent.keys()
    return device.kind == "host" or device.lost is not None or not unknown


class _ScenarioFeed(TelemetryFeed):
    """Telemetry of a scenario; what its samplers say on stderr goes into a file."""

    def __init__(self, scenario: Scenario, stderr: Path, launching: threading.Lock) -> None:
        super().__init__(HZ, self._start_quietly)
        self._scenario, self._stderr, self._launching = scenario, stderr, launching

    def _start_quietly(self, hz: float) -> SamplerProcess:
        with self._launching, pytest.MonkeyPatch.context() as patch, self._stderr.open("ab") as file:
            for name, value in environment(self._scenario).items():
                patch.setenv(name, value)
            before = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                return SamplerProcess(hz)
            finally:
                os.dup2(before, 2)
                os.close(before)


@contextmanager
def _run(recording: Recording, feed: TelemetryFeed, folder: Path) -> Iterator[None]:
    """A run on all GPUs that there are, for the time of the body; its worker measures without a break."""
    inventory = feed.wait_inventory()
    gpus = inventory.machine.gpus
    instances = sum("MIG" in gpu.name for gpu in gpus)
    spec = dummy(inventory, gpus=min(instances, 1) or len(gpus), steps=0, seconds=600.0)
    begins_ns: list[int] = []
    began = threading.Event()

    def begin() -> list[WorkerEvent]:
        now_ns = time.monotonic_ns()
        begins_ns.append(now_ns)
        began.set()
        hello = Hello(protocol=PROTOCOL_VERSION, pid=1, t_ns=now_ns, utc_ns=time.time_ns())
        return [hello, PhaseStarted(phase="warmup", t_ns=now_ns), PhaseStarted(phase="measure", t_ns=now_ns + 1)]

    launcher = ScriptedLauncher(begin)
    recorder = Recorder()
    own = with_launcher(services(folder, feed), launcher)
    # The environment is asked of git, with variables that other scenarios set, and of every source file.
    own = replace(own, host=replace(own.host, describe=lambda inventory: {}))
    run = Going(RunSession(spec, own, [recorder]), recorder)
    began.wait(LIMIT_S)
    try:
        yield
    finally:
        for worker, begin_ns in zip(launcher.workers, begins_ns, strict=True):
            end_ns = max(time.monotonic_ns(), begin_ns + 3 * _BLOCK_NS)
            worker.say(
                *_blocks(begin_ns + 1, end_ns),
                PhaseStarted(phase="finish", t_ns=end_ns),
                Finished(outcome="completed", t_ns=end_ns),
            )
            worker.end()
        run.session.stop()  # where it never had a worker
        recording.outcome = run.result()
        recording.stored = run.session.stored


def _blocks(begin_ns: int, end_ns: int) -> Iterator[Block]:
    """Return measured steps without a break between them."""
    for number, start_ns in enumerate(range(begin_ns, end_ns - _BLOCK_NS, _BLOCK_NS)):
        times = {"start_ns": start_ns, "end_ns": start_ns + _BLOCK_NS}
        yield Block(phase="measure", first_step=number, steps=1, examples=8, loss=1.0, **times)
