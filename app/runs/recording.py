"""Records one run's telemetry, its energy counters at phase boundaries, and other processes on its GPUs."""

import queue
import time
from collections.abc import Callable, Collection, Sequence

from app.fields import Sample, SlowSample
from app.records import OTHERS_ON_GPU_KEY, RunEvent
from app.runs.supervisor import Inbox
from app.samples import HOST, Device, DeviceLost, FieldsUpdated, GpuProcess, Processes
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from workloads.protocol import EnvironmentInfo, PhaseStarted


class OtherProcesses:
    """Processes other than the run's own worker on its GPUs, as the driver lists them every few seconds.

    Inside some containers the driver names processes by numbers of the host. A worker that is never listed is therefore
    taken to be one of those listed, and only what is beside it counts. It is none of those that were listed `before` it
    was started.
    """

    def __init__(self, worker_pid: int, earlier_pids: Collection[int] = ()) -> None:
        self._worker_pid = worker_pid
        self._earlier_pids = frozenset(earlier_pids)
        self._worker_listed = False
        self._seen: dict[int, GpuProcess] = {}
        self._max_at_once = 0

    def add(self, listed: Processes) -> None:
        """Takes one list of one GPU."""
        others = {each.pid: each for each in listed.processes if each.pid != self._worker_pid}
        self._worker_listed |= len(others) < len(listed.processes)
        self._seen = self._seen | others
        self._max_at_once = max(self._max_at_once, len(others.keys() - self._earlier_pids))

    @property
    def description(self) -> str:
        """The others, as `python3 (4242), ffmpeg (77)`, or how many where their numbers say nothing; "" if none."""
        identified = self._seen.keys() if self._worker_listed else self._seen.keys() & self._earlier_pids
        names = [f"{other.name} ({pid})" for pid, other in self._seen.items() if pid in identified]
        more = 0 if self._worker_listed else self._max_at_once - 1
        counted = [f"{more} other {'process' if more == 1 else 'processes'}"] if more > 0 else []
        return ", ".join([*names, *counted])


_DRAIN_S = 2.0


class TelemetryRecorder:
    """Records the host and these GPUs from `start` to `stop`. It is a sink too, to hear of the phases."""

    def __init__(self, feed: TelemetryFeed, gpus: Sequence[Device], inbox: Inbox) -> None:
        self._feed = feed
        self._inbox = inbox
        self._recorded = {HOST, *(gpu.device for gpu in gpus)}
        self._with_energy = {gpu.device for gpu in gpus if "energy_mj" in gpu.fields}
        self._worker_pid: int | None = None
        self._other_processes: OtherProcesses | None = None
        self._earlier_pids: frozenset[int] = frozenset()
        self._began_ns = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begins to record, with the energy counters as they are before the first phase.

        Who is on the GPUs by now is not this run's worker, which is started later.
        """
        self._earlier_pids, self._began_ns = self._feed.gpu_process_ids(self._recorded), time.monotonic_ns()
        self._unsubscribe = self._feed.subscribe(self._receive)
        if self._with_energy:
            self._feed.read_energy()

    def follow(self, pid: int) -> None:
        """Records this worker's own load and memory too, and who else uses its GPUs from now on."""
        self._other_processes = OtherProcesses(pid, self._earlier_pids)
        self._worker_pid = pid
        self._feed.follow(pid)

    def handle(self, event: RunEvent) -> None:
        """Has the energy counters read where a phase begins: the edges of its energy."""
        if isinstance(event, PhaseStarted) and self._with_energy:
            self._feed.read_energy()
        elif isinstance(event, DeviceLost):
            self._with_energy.discard(event.device)

    def drain(self, emit: Callable[[RunEvent], None]) -> None:
        """Hands on what is still on its way, until the energy counters were read once more (two seconds at most).

        Last comes who else used the run's GPUs, if anybody was seen.
        """
        self._await_energy(emit)
        if self._other_processes is not None and self._other_processes.description:
            emit(EnvironmentInfo(facts={OTHERS_ON_GPU_KEY: self._other_processes.description}))

    def _await_energy(self, emit: Callable[[RunEvent], None]) -> None:
        requested_ns, end_s = time.monotonic_ns(), time.monotonic() + _DRAIN_S
        missing = set(self._with_energy)
        if missing:
            self._feed.read_energy()
        while missing and (left_s := end_s - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left_s)
            except queue.Empty:
                return
            if isinstance(item, Sample | SlowSample | DeviceLost | FieldsUpdated):
                emit(item)
            if isinstance(item, SlowSample) and item.energy_mj is not None and item.t_ns > requested_ns:
                missing.discard(item.device)
            if isinstance(item, DeviceLost):
                missing.discard(item.device)

    def stop(self) -> None:
        """Ends the recording."""
        if self._worker_pid is not None:
            self._feed.unfollow(self._worker_pid)
        self._unsubscribe()

    def _receive(self, message: SamplerMessage) -> None:
        if isinstance(message, Sample | SlowSample | DeviceLost | FieldsUpdated) and message.device in self._recorded:
            self._inbox.put(message)
        elif isinstance(message, Processes) and message.device in self._recorded:
            self._receive_processes(message)

    def _receive_processes(self, listed: Processes) -> None:
        # An older list may still name the worker of the run before.
        if self._other_processes is not None and listed.t_ns >= self._began_ns:
            self._other_processes.add(listed)
