"""The telemetry of one run: its devices' readings, the energy counters at every phase's edge, and who disturbs it."""

import queue
import time
from collections.abc import Callable, Sequence

from app.facts import OTHERS_ON_GPU
from app.records import RunEvent
from app.runs.neighbours import Neighbours
from app.runs.supervisor import Inbox
from app.samples import HOST, Device, DeviceLost, FieldsSeen, Processes, Sample, SlowSample
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from workloads.protocol import Facts, PhaseStarted

_SETTLE_S = 2.0


class Recording:
    """Records the host and these GPUs from `start` to `stop`. It is a sink too, to hear of the phases."""

    def __init__(self, feed: TelemetryFeed, gpus: Sequence[Device], inbox: Inbox) -> None:
        self._feed = feed
        self._inbox = inbox
        self._recorded = {HOST, *(gpu.device for gpu in gpus)}
        self._with_energy = {gpu.device for gpu in gpus if "energy_mj" in gpu.fields}
        self._worker_pid: int | None = None
        self._neighbours: Neighbours | None = None
        self._before: frozenset[int] = frozenset()
        self._began_ns = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begins to record, with the energy counters as they are before the first phase.

        Who is on the GPUs by now is not this run's worker, which is started later.
        """
        self._before, self._began_ns = self._feed.users(self._recorded), time.monotonic_ns()
        self._unsubscribe = self._feed.subscribe(self._note)
        if self._with_energy:
            self._feed.read_energy()

    def follow(self, pid: int) -> None:
        """Records this worker's own load and memory too, and who else uses its GPUs from now on."""
        self._neighbours = Neighbours(pid, self._before)
        self._worker_pid = pid
        self._feed.follow(pid)

    def handle(self, event: RunEvent) -> None:
        """Has the energy counters read where a phase begins: the edges of its energy."""
        if isinstance(event, PhaseStarted) and self._with_energy:
            self._feed.read_energy()
        elif isinstance(event, DeviceLost):
            self._with_energy.discard(event.device)

    def settle(self, emit: Callable[[RunEvent], None]) -> None:
        """Hands on what is still on its way, until the energy counters were read once more (two seconds at most).

        Last comes who else used the run's GPUs, if anybody was seen.
        """
        self._await_energy(emit)
        if self._neighbours is not None and self._neighbours.words:
            emit(Facts(facts={OTHERS_ON_GPU: self._neighbours.words}))

    def _await_energy(self, emit: Callable[[RunEvent], None]) -> None:
        asked_ns, end_s = time.monotonic_ns(), time.monotonic() + _SETTLE_S
        missing = set(self._with_energy)
        if missing:
            self._feed.read_energy()
        while missing and (left_s := end_s - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left_s)
            except queue.Empty:
                return
            if isinstance(item, Sample | SlowSample | DeviceLost | FieldsSeen):
                emit(item)
            if isinstance(item, SlowSample) and item.energy_mj is not None and item.t_ns > asked_ns:
                missing.discard(item.device)
            if isinstance(item, DeviceLost):
                missing.discard(item.device)

    def stop(self) -> None:
        """Ends the recording."""
        if self._worker_pid is not None:
            self._feed.unfollow(self._worker_pid)
        self._unsubscribe()

    def _note(self, message: SamplerMessage) -> None:
        if isinstance(message, Sample | SlowSample | DeviceLost | FieldsSeen) and message.device in self._recorded:
            self._inbox.put(message)
        elif isinstance(message, Processes) and message.device in self._recorded:
            self._note_users(message)

    def _note_users(self, listed: Processes) -> None:
        # An older list may still name the worker of the run before.
        if self._neighbours is not None and listed.t_ns >= self._began_ns:
            self._neighbours.note(listed)
