"""Record a run's telemetry, its energy counters at phase boundaries, and other processes on its GPUs."""

from collections.abc import Callable, Collection, Mapping, Sequence

from app.environment_keys import OTHERS_ON_GPU_KEY, OTHERS_UNKNOWN_KEY
from app.events import RunEvent
from app.fields import SlowSample
from app.runs.supervisor import Inbox
from app.samples import HOST, Device, DeviceLost, FieldsUpdated, GpuProcess, Inventory, Processes, TelemetryGap
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from workloads.protocol import PhaseStarted


class OtherProcesses:
    """Processes other than the run's worker on its GPUs, as the driver lists them every few seconds.

    Inside some containers the driver uses process ids of the host. A worker that is never listed is therefore taken to
    be one of the processes listed, and only the others count. It is none of those that were listed before it started.
    """

    def __init__(self, worker_pid: int, earlier_pids: Collection[int] = ()) -> None:
        self._worker_pid = worker_pid
        self._earlier_pids = frozenset(earlier_pids)
        self._worker_listed = False
        self._seen: dict[int, GpuProcess] = {}
        self._max_at_once = 0

    def add(self, listed: Processes) -> None:
        """Add one list of one GPU."""
        others = {each.pid: each for each in listed.processes if each.pid != self._worker_pid}
        self._worker_listed |= len(others) < len(listed.processes)
        self._seen = self._seen | others
        self._max_at_once = max(self._max_at_once, len(others.keys() - self._earlier_pids))

    @property
    def description(self) -> str:
        """The others, as `python3 (4242), ffmpeg (77)`, or their number if their ids mean nothing here; "" for none."""
        identified = self._seen.keys() if self._worker_listed else self._seen.keys() & self._earlier_pids
        names = [other.title for pid, other in self._seen.items() if pid in identified]
        more = 0 if self._worker_listed else self._max_at_once - 1
        counted = [f"{more} other {'process' if more == 1 else 'processes'}"] if more > 0 else []
        return ", ".join([*names, *counted])


class TelemetryRecorder:
    """Puts samples of the host and of a run's GPUs into the run's inbox, from `start` to `stop`.

    It is a sink, too: it has the energy counters read where a phase begins.

    Thread: the session's; `_receive` runs on the feed's thread.
    """

    def __init__(self, feed: TelemetryFeed, gpus: Sequence[Device], inbox: Inbox) -> None:
        self._feed = feed
        self._inbox = inbox
        self._recorded = {HOST, *(gpu.device for gpu in gpus)}
        self._with_energy = {gpu.device for gpu in gpus if "energy_mj" in gpu.fields}
        self._worker_pid: int | None = None
        self._other_processes: OtherProcesses | None = None
        self._earlier_pids: frozenset[int] = frozenset()
        self._began_ns = 0
        self._final_ns = 0
        self._awaited: set[str] = set()
        self._lost: set[str] = set()
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start to record, with the energy counters as they are before the first phase.

        Processes that are on the GPUs now are not this run's worker, which starts later.
        """
        self._earlier_pids, self._began_ns = self._feed.gpu_process_ids(self._recorded), self._feed.now_ns()
        self._unsubscribe = self._feed.subscribe(self._receive)
        if self._with_energy:
            self._feed.read_energy()

    def follow(self, pid: int) -> None:
        """Record the load and memory of this worker, too, and from now on who else uses its GPUs."""
        self._other_processes = OtherProcesses(pid, self._earlier_pids)
        self._worker_pid = pid
        self._feed.follow(pid)

    def handle(self, event: RunEvent) -> None:
        """Have the energy counters read where a phase begins, and note which final readings have come."""
        if isinstance(event, PhaseStarted) and self._with_energy:
            self._feed.read_energy()
        elif isinstance(event, SlowSample) and _was_energy_read(event) and event.t_ns > self._final_ns:
            self._awaited.discard(event.device)
        elif isinstance(event, FieldsUpdated) and "energy_mj" in event.fields:
            self._with_energy.add(event.device)
        elif isinstance(event, DeviceLost):
            self._with_energy.discard(event.device)
            self._awaited.discard(event.device)

    def request_final_energy(self) -> None:
        """Have the energy counters read once more, after the last phase."""
        self._final_ns, self._awaited = self._feed.now_ns(), set(self._with_energy)
        if self._awaited:
            self._feed.read_energy()

    @property
    def awaits_energy(self) -> bool:
        """Whether a final reading has not come yet."""
        return bool(self._awaited)

    @property
    def environment(self) -> Mapping[str, str]:
        """Who else used the run's GPUs and why that may be unknown, for its environment; empty if nobody was seen."""
        description = self._other_processes.description if self._other_processes is not None else ""
        found = {OTHERS_ON_GPU_KEY: description, OTHERS_UNKNOWN_KEY: self._feed.unlisted_reason(self._recorded)}
        return {key: text for key, text in found.items() if text}

    def stop(self) -> None:
        """Stop recording."""
        if self._worker_pid is not None:
            self._feed.unfollow(self._worker_pid)
        self._unsubscribe()

    def _receive(self, message: SamplerMessage) -> None:
        if isinstance(message, Inventory):
            self._receive_inventory(message)
        elif isinstance(message, TelemetryGap) or message.device in self._recorded:
            if isinstance(message, Processes):
                self._receive_processes(message)
            else:
                if isinstance(message, DeviceLost):
                    self._lost.add(message.device)
                self._inbox.put(message)

    def _receive_inventory(self, inventory: Inventory) -> None:
        """Record what a card that came back, or another sampler, knows of the run's devices.

        A card that was lost after the run had chosen it, and before this listened, is told by the inventory alone.
        """
        for device in inventory.devices:
            if device.device not in self._recorded:
                continue
            if device.lost is not None and device.device not in self._lost:
                self._lost.add(device.device)
                self._inbox.put(DeviceLost(t_ns=self._feed.now_ns(), device=device.device, reason=device.lost))
            elif device.lost is None:
                self._lost.discard(device.device)
                if device.fields:
                    self._inbox.put(FieldsUpdated(device=device.device, fields=device.fields, absent=device.absent))

    def _receive_processes(self, listed: Processes) -> None:
        # An older list may still contain the worker of the previous run.
        if self._other_processes is not None and listed.t_ns >= self._began_ns:
            self._other_processes.add(listed)


def _was_energy_read(sample: SlowSample) -> bool:
    """Return whether the energy counter was read for this sample, whatever it said."""
    return sample.energy_mj is not None or "energy_mj" in sample.implausible
