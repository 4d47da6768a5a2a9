"""What is recorded of a run: its own devices, energy at the edges of phases, and who else used its GPUs."""

import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pynvml
import pytest

from app.runs import supervisor
from app.runs.host import ClockAnchor, WorkerTimeouts
from app.runs.maker import OtherProcesses, TelemetryRecorder
from app.runs.supervisor import Inbox, Supervisor
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.values.environment_keys import OTHERS_ON_GPU_KEY, OTHERS_UNKNOWN_KEY
from app.values.events import RunEvent
from app.values.fields import Sample, SlowSample
from app.values.samples import HOST, Device, DeviceLost, GpuProcess, Inventory, Processes
from tests.fakes.nvml_cards import ENERGY, LAPTOP, TWO_H200, Card, Flaw
from tests.fakes.sessions import feed_of, wait_listed
from tests.present import present
from workloads.catalog import Machine
from workloads.protocol import PhaseName, PhaseStarted

WORKER_PID = 100


def listed(*pids: int, device: str = "GPU-a") -> Processes:
    return Processes(t_ns=0, device=device, processes=tuple(GpuProcess(pid=pid, name=f"p{pid}") for pid in pids))


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([], ""),
        ([listed(), listed(WORKER_PID), listed(WORKER_PID)], ""),
        ([listed(WORKER_PID), listed(WORKER_PID, 7), listed(WORKER_PID)], "p7 (7)"),
        ([listed(7), listed(WORKER_PID)], "p7 (7)"),
        ([listed(WORKER_PID, 7), listed(WORKER_PID, 8, device="GPU-b"), listed(WORKER_PID, 7)], "p7 (7), p8 (8)"),
        ([listed(55), listed(55)], ""),
        ([listed(55), listed(55, 56)], "1 other process"),
        ([listed(55, 56, 57)], "2 other processes"),
        ([listed(55), listed(66, device="GPU-b")], ""),
    ],
)
def test_only_processes_beside_the_worker_are_told(lists: list[Processes], words: str) -> None:
    """The last four are of a driver that numbers processes otherwise: the worker is one of those listed."""
    processes = OtherProcesses(WORKER_PID)
    for each in lists:
        processes.add(each)
    assert processes.description == words


@pytest.mark.parametrize("own_session", [False, True], ids=["by the worker", "by torchrun"])
def test_a_rank_that_the_worker_started_is_none_of_the_others(own_session: bool) -> None:
    """The worker leads a session of its own; a rank of torchrun has another one, as this process has."""
    starts_rank = (
        f"import subprocess; rank = subprocess.Popen(['cat'], start_new_session={own_session}); "
        "print(rank.pid, flush=True); rank.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starts_rank], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as worker:
        rank_pid = int(present(worker.stdout).readline())
        processes = OtherProcesses(worker.pid)
        processes.add(listed(rank_pid, device="GPU-b"))
        processes.add(listed(rank_pid, os.getpid(), device="GPU-b"))
        present(worker.stdin).close()
    assert processes.description == f"p{os.getpid()} ({os.getpid()})"


def test_a_card_lost_before_the_recorder_listens_is_told_once() -> None:
    feed, inbox = TelemetryFeed(), Inbox()
    gpu = Device(device="GPU-a", kind="gpu", index=0, name="NVIDIA H200")
    feed._dispatch(Inventory(machine=Machine(cpu_count=2), devices=(gpu,)))
    feed._dispatch(DeviceLost(t_ns=1, device="GPU-a", reason="It is gone."))
    recorder = TelemetryRecorder(feed, [gpu], inbox)
    recorder.start()
    feed._dispatch(feed.wait_inventory())
    recorder.stop()
    lost = inbox.get(0.0)
    assert isinstance(lost, DeviceLost)
    assert lost.reason == "It is gone."
    assert inbox.qsize() == 0


def test_a_list_that_could_not_be_read_before_the_run_is_noted() -> None:
    feed = TelemetryFeed()
    gpu = Device(device="GPU-a", kind="gpu", index=0, name="NVIDIA H200")
    feed._dispatch(Processes(t_ns=1, device="GPU-a", reason="no permission"))
    assert TelemetryRecorder(feed, [gpu], Inbox()).environment == {OTHERS_UNKNOWN_KEY: "no permission"}
    feed._dispatch(Processes(t_ns=2, device="GPU-a"))
    assert TelemetryRecorder(feed, [gpu], Inbox()).environment == {}


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([listed(7)], "p7 (7)"),
        ([listed(7, 55)], "p7 (7)"),
        ([listed(7, 55, 56)], "p7 (7), 1 other process"),
        ([listed(55)], ""),
        ([listed(7, WORKER_PID, 8)], "p7 (7), p8 (8)"),
    ],
)
def test_who_was_there_before_the_worker_is_not_taken_for_it(lists: list[Processes], words: str) -> None:
    processes = OtherProcesses(WORKER_PID, earlier_pids=[7, 9])
    for each in lists:
        processes.add(each)
    assert processes.description == words


LIMIT_S = 120.0
TRIES = 10
"""How often a busy machine may come too late before it is the program that does."""
GPU_A, GPU_B = (card.uuid for card in TWO_H200)
WORKER, OTHER_PID = 4_194_304 + 1, 4_194_304 + 2
"""Numbers that no process has."""
DUMB = Card(uuid="GPU-dumb", flaws=(Flaw(ENERGY, pynvml.NVML_ERROR_UNKNOWN, first=3),))
"""Its energy counter answers while it is probed, and never again."""


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    with feed_of(*TWO_H200, hz=20.0) as feed:
        yield feed


def gpus(feed: TelemetryFeed, *uuids: str) -> list[Device]:
    return [device for device in feed.wait_inventory().devices if device.device in uuids]


@contextmanager
def recorded(feed: TelemetryFeed, *uuids: str) -> Iterator[tuple[TelemetryRecorder, Inbox]]:
    inbox = Inbox()
    recording = TelemetryRecorder(feed, gpus(feed, *uuids), inbox)
    recording.start()
    try:
        yield recording, inbox
    finally:
        recording.stop()


def energy_after(inbox: Inbox, t_ns: int) -> SlowSample:
    """The first energy reading of any device after that time."""
    while True:
        item = inbox.get(timeout=LIMIT_S)
        if isinstance(item, SlowSample) and item.energy_mj is not None and item.t_ns > t_ns:
            return item


class _Gone:
    """A worker whose process is over."""

    pid = 1

    def ask_to_stop(self) -> None:
        raise AssertionError("it is gone")

    terminate = kill = ask_to_stop


def finished(recording: TelemetryRecorder, inbox: Inbox) -> tuple[list[RunEvent], float]:
    """What was handed on at the end, and the seconds that took."""
    events: list[RunEvent] = []
    began_s = time.monotonic()

    def take(event: RunEvent) -> None:
        recording.handle(event)
        events.append(event)

    recording.request_final_energy()
    Supervisor(_Gone(), inbox, WorkerTimeouts(), take, ClockAnchor(0, 0)).drain(lambda: recording.awaits_energy)
    return events, time.monotonic() - began_s


def with_energy(events: Sequence[RunEvent], after_ns: int) -> set[str]:
    return {
        event.device
        for event in events
        if isinstance(event, SlowSample) and event.energy_mj is not None and event.t_ns > after_ns
    }


def test_only_the_run_s_own_devices_are_recorded(feed: TelemetryFeed) -> None:
    with recorded(feed, GPU_B) as (_, inbox):
        items = [inbox.get(timeout=LIMIT_S) for _ in range(40)]
        while not any(isinstance(item, Sample) and item.device == HOST for item in items):
            items.append(inbox.get(timeout=LIMIT_S))
    assert {item.device for item in items if isinstance(item, Sample | SlowSample)} == {GPU_B, HOST}


def just_read(feed: TelemetryFeed) -> None:
    """Waits until the first GPU's counter was read because it was time: it is not due again for two seconds."""
    said = Inbox()

    def note(message: SamplerMessage) -> None:
        if isinstance(message, SlowSample) and message.device == GPU_A:
            said.put(message)

    unsubscribe = feed.subscribe(note)
    energy_after(said, time.monotonic_ns())
    unsubscribe()


def test_energy_is_read_when_it_begins_where_a_phase_begins_and_at_the_end(feed: TelemetryFeed) -> None:
    soon = (max(_energy_waits_s(feed)) < 1.0 for _ in range(TRIES))
    assert any(soon), "not only when it is due, every two seconds"


def _energy_waits_s(feed: TelemetryFeed) -> tuple[float, float, float]:
    """How long after the beginning, after that of a phase, and after the end the first reading came."""
    just_read(feed)
    began_ns = time.monotonic_ns()
    with recorded(feed, GPU_A) as (recording, inbox):
        first = energy_after(inbox, began_ns)
        assert first.device == GPU_A
        phase_ns = time.monotonic_ns()
        recording.handle(PhaseStarted(phase="measure", t_ns=phase_ns))
        second = energy_after(inbox, phase_ns)
        _, last_s = finished(recording, inbox)
    return (first.t_ns - began_ns) / 1e9, (second.t_ns - phase_ns) / 1e9, last_s


def test_at_the_end_it_waits_for_the_last_reading_of_every_gpu(
    feed: TelemetryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_DRAIN_S", LIMIT_S)  # a busy machine may need more than the usual two seconds
    with recorded(feed, GPU_A, GPU_B) as (recording, inbox):
        requested_ns = time.monotonic_ns()
        events, _ = finished(recording, inbox)
    assert with_energy(events, requested_ns) == {GPU_A, GPU_B}


def test_a_counter_that_never_answers_is_waited_for_two_seconds() -> None:
    with feed_of(DUMB, hz=20.0) as feed, recorded(feed, "GPU-dumb") as (recording, inbox):
        events, seconds = finished(recording, inbox)
    assert 1.9 < seconds < LIMIT_S
    assert recording.awaits_energy
    assert with_energy(events, 0) == set()
    assert any(isinstance(event, Sample) and event.device == "GPU-dumb" for event in events), "the rest is handed on"


def test_without_a_counter_nothing_is_waited_for() -> None:
    with feed_of(LAPTOP, hz=20.0) as feed, recorded(feed, LAPTOP.uuid) as (recording, inbox):
        recording.handle(PhaseStarted(phase="measure", t_ns=time.monotonic_ns()))
        events, _ = finished(recording, inbox)
    assert events == []
    assert not recording.awaits_energy


def test_a_lost_gpu_is_not_waited_for() -> None:
    with feed_of(DUMB, hz=20.0) as feed, recorded(feed, "GPU-dumb") as (recording, inbox):
        recording.handle(DeviceLost(t_ns=time.monotonic_ns(), device="GPU-dumb", reason="It is gone."))
        finished(recording, inbox)
    assert not recording.awaits_energy


def test_another_process_on_the_run_s_gpu_is_told_at_the_end_and_one_elsewhere_is_not() -> None:
    shared = Card(uuid="GPU-shared", processes=((WORKER, 3_000_000_000), (OTHER_PID, 1_000_000_000)))
    own = Card(uuid="GPU-own", processes=((WORKER, 3_000_000_000),))
    with feed_of(shared, own, hz=20.0) as feed:
        assert other_processes(feed, "GPU-own") == {}
        facts = other_processes(feed, "GPU-shared")
    assert facts == {OTHERS_ON_GPU_KEY: f"process ({OTHER_PID})"}


def test_one_that_was_there_before_the_worker_is_told_though_the_worker_is_never_listed() -> None:
    """As in a container, where the driver has other numbers for its processes."""
    with feed_of(Card(uuid="GPU-shared", processes=((OTHER_PID, 1_000_000_000),)), hz=20.0) as feed:
        wait_listed(feed, "GPU-shared")
        facts = other_processes(feed, "GPU-shared")
    assert facts == {OTHERS_ON_GPU_KEY: f"process ({OTHER_PID})"}


@pytest.mark.parametrize(
    ("phase", "counts"),
    [("import", False), ("build", True), ("compile", True), ("warmup", True), ("evidence", False), ("finish", False)],
)
def test_a_process_counts_only_while_the_run_itself_occupies_the_gpu(phase: PhaseName, counts: bool) -> None:
    """A killed process of the run before it, or of this run's command, is listed for a moment longer."""
    with feed_of(Card(uuid="GPU-shared", processes=((WORKER, 1), (OTHER_PID, 1))), hz=20.0) as feed:
        assert bool(other_processes(feed, "GPU-shared", phase)) == counts


def other_processes(feed: TelemetryFeed, uuid: str, phase: PhaseName = "measure") -> Mapping[str, str]:
    """What a run on this card tells at its end, after the driver listed its processes in that phase."""
    with recorded(feed, uuid) as (recording, inbox):
        recording.follow(WORKER)
        recording.handle(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))
        wait_listed(feed, uuid)
        finished(recording, inbox)
        return recording.environment


def test_nothing_comes_after_the_end(feed: TelemetryFeed) -> None:
    with recorded(feed, GPU_A) as (_, inbox):
        inbox.get(timeout=LIMIT_S)
    # The feed may be handing out its present message; a second listener's next ones come after that.
    others: queue.SimpleQueue[object] = queue.SimpleQueue()
    unsubscribe = feed.subscribe(others.put)
    for _ in range(3):
        others.get(timeout=LIMIT_S)
    came = inbox.qsize()
    for _ in range(20):
        others.get(timeout=LIMIT_S)
    unsubscribe()
    assert inbox.qsize() == came
