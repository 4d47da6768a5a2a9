"""Executes one run on a host: leases devices, starts the worker, watches it, and emits events; no database."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
import psutil

from app.environments.packages import fetch_packages
from app.environments.steps import CancelledError
from app.errors import UserError, bug_message
from app.runs.experiment.idle_wait import IdleLimits, IdleState, IdleWait, WaitStatus
from app.runs.host import Host, RunOrder, RunWishes
from app.runs.leases import CPU, Lease
from app.runs.supervisor import (
    Inbox,
    StopRequested,
    Supervisor,
    form_outcome,
    with_file_name,
    with_host,
    with_memory_size,
)
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.values import units
from app.values.environment_keys import GPUS_USED_KEY, OTHERS_ON_GPU_KEY, OTHERS_UNKNOWN_KEY
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.fields import SlowSample
from app.values.samples import (
    HOST,
    Device,
    DeviceLost,
    FieldsUpdated,
    GpuProcess,
    Inventory,
    Processes,
    TelemetryGap,
    Waiting,
)
from workloads.catalog import framework_of, is_script
from workloads.protocol import EnvironmentInfo, PhaseStarted, Start


class OtherProcesses:
    """Processes on the run's GPUs other than its worker and that worker's children, as the driver lists them regularly.

    In some containers the driver lists process ids of the host. So if the worker is never listed, one of the listed
    processes, but none that was listed before it started, is assumed to be the worker, and only the others count.
    """

    def __init__(self, worker_pid: int, earlier_pids: Collection[int] = ()) -> None:
        self._worker_pid = worker_pid
        self._earlier_pids = frozenset(earlier_pids)
        self._worker_listed = False
        self._seen: dict[int, GpuProcess] = {}
        self._max_at_once = 0

    def add(self, listed: Processes) -> None:
        others = {process.pid: process for process in listed.processes if not self.is_of_run(process.pid)}
        self._worker_listed |= len(others) < len(listed.processes)
        self._seen = self._seen | others
        self._max_at_once = max(self._max_at_once, len(others.keys() - self._earlier_pids))

    def is_of_run(self, pid: int) -> bool:
        """Return whether a process is the worker, or in its session or below it, such as a rank of torchrun."""
        with contextlib.suppress(OSError, psutil.Error):  # it has ended, or belongs to another system
            if pid == self._worker_pid or os.getsid(pid) == self._worker_pid:
                return True
            return any(parent.pid == self._worker_pid for parent in psutil.Process(pid).parents())
        return False

    @property
    def description(self) -> str:
        """Return the others, as `python3 (4242), ffmpeg (77)`, or only their number if their ids mean nothing here."""
        identified = self._seen.keys() if self._worker_listed else self._seen.keys() & self._earlier_pids
        names = [other.title for pid, other in self._seen.items() if pid in identified]
        more = 0 if self._worker_listed else self._max_at_once - 1
        counted = [f"{more} other {'process' if more == 1 else 'processes'}"] if more > 0 else []
        return ", ".join([*names, *counted])


class TelemetryRecorder:
    """Puts samples of the host and of a run's GPUs into the run's inbox, from `start` to `stop`.

    As a sink, it has the energy counters read when a phase begins.

    Thread: the session's; `_receive` runs on the feed's thread.
    """

    def __init__(self, feed: TelemetryFeed, gpus: Sequence[Device], inbox: Inbox) -> None:
        self._feed = feed
        self._inbox = inbox
        self._recorded = {HOST, *(gpu.device for gpu in gpus)}
        self._with_energy = {gpu.device for gpu in gpus if "energy_mj" in gpu.fields}
        self._worker_pid: int | None = None
        self._other_processes: OtherProcesses | None = None
        self._occupies_gpus = False  # set by the session's thread, read by the feed's
        self._earlier_pids: frozenset[int] = frozenset()
        self._began_ns = 0
        self._final_ns = 0
        self._awaited: set[str] = set()
        self._lost: set[str] = set()
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start recording, with the energy counters before the first phase.

        Processes on the GPUs now are not this run's worker, which starts later.
        """
        self._earlier_pids, self._began_ns = self._feed.gpu_process_ids(self._recorded), self._feed.now_ns()
        self._unsubscribe = self._feed.subscribe(self._receive)
        if self._with_energy:
            self._feed.read_energy()

    def follow(self, pid: int, *, computes: bool = True) -> None:
        """Record this worker's load and memory, if it computes itself, and from now on who else uses its GPUs."""
        self._other_processes = OtherProcesses(pid, self._earlier_pids)
        if computes:
            self._worker_pid = pid
            self._feed.follow(pid)

    def follow_inner(self, pid: int) -> None:
        """Record that process of the run instead: if uv starts the worker, the launched process is uv."""
        if self._worker_pid not in (None, pid) and self._other_processes and self._other_processes.is_of_run(pid):
            self._feed.unfollow(self._worker_pid)
            self._worker_pid = pid
            self._feed.follow(pid)

    def handle(self, event: RunEvent) -> None:
        """Have the energy counters read when a phase begins, and record which final readings have arrived."""
        if isinstance(event, PhaseStarted):
            # Before and after, the driver may list processes of the run before it, or of this one, that are gone.
            self._occupies_gpus = event.phase not in ("import", "evidence", "finish")
            if self._with_energy:
                self._feed.read_energy()
        elif isinstance(event, SlowSample) and event.t_ns > self._final_ns:
            if event.energy_mj is not None or "energy_mj" in event.implausible:
                self._awaited.discard(event.device)
        elif isinstance(event, FieldsUpdated) and "energy_mj" in event.fields:
            self._with_energy.add(event.device)
        elif isinstance(event, DeviceLost):
            self._with_energy.discard(event.device)
            self._awaited.discard(event.device)

    def request_final_energy(self) -> None:
        """Have the energy counters read again, after the last phase."""
        self._final_ns, self._awaited = self._feed.now_ns(), set(self._with_energy)
        if self._awaited:
            self._feed.read_energy()

    @property
    def awaits_energy(self) -> bool:
        """Return whether a final reading has not arrived yet."""
        return bool(self._awaited)

    @property
    def environment(self) -> Mapping[str, str]:
        """Return who else used the run's GPUs, and why that may be unknown, for its environment; empty if nobody."""
        description = self._other_processes.description if self._other_processes is not None else ""
        facts = {OTHERS_ON_GPU_KEY: description, OTHERS_UNKNOWN_KEY: self._feed.unlisted_reason(self._recorded)}
        return {key: text for key, text in facts.items() if text}

    def stop(self) -> None:
        if self._worker_pid is not None:
            self._feed.unfollow(self._worker_pid)
        self._unsubscribe()

    def _receive(self, message: SamplerMessage) -> None:
        if isinstance(message, Inventory):
            self._receive_inventory(message)
        elif isinstance(message, TelemetryGap) or message.device in self._recorded:
            if isinstance(message, Processes):
                if self._other_processes is not None and self._occupies_gpus and message.t_ns >= self._began_ns:
                    self._other_processes.add(message)
            else:
                if isinstance(message, DeviceLost):
                    self._lost.add(message.device)
                self._inbox.put(message)

    def _receive_inventory(self, inventory: Inventory) -> None:
        """Record what a recovered card, or another sampler, reports of the run's devices.

        A card lost between the run's choice and the start of recording appears only in the inventory.
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


def run_devices(inventory: Inventory, gpu_uuids: Sequence[str]) -> tuple[Device, ...]:
    return tuple(device for device in inventory.devices if device.device in (HOST, *gpu_uuids))


_QUIET_S = 1.0
"""A shorter wait is not reported."""
_STOPPED_WAITING = "Stopped by the user while it waited for a free device."


@dataclass(eq=False)
class RunMaker:
    """One execution of one variant in one fresh worker, from `RunStarted` to `RunEnded`, on this machine or another.

    Attributes:
        order: What to run.
        host: Where it happens.
        emit: Gets every event, in order. Its `UserError`, such as a full disk, ends the run.
        needs_calibration: Whether to calibrate a host's devices if the order requests it.
        lease: Its devices, which the caller releases; None to lease them here.
        idle_state: What earlier waits for an idle machine found, if the order has one.

    Thread: `run` blocks its thread, once, and emits on it; `stop` and `run_anyway` any.
    """

    order: RunOrder
    host: Host
    emit: Callable[[RunEvent], None]
    needs_calibration: Callable[[Host, Sequence[str]], bool] = field(default=lambda _host, _devices: True, kw_only=True)
    lease: Lease | None = field(default=None, kw_only=True)
    idle_state: IdleState = field(default_factory=IdleState, kw_only=True)
    _inbox: Inbox = field(default_factory=Inbox, init=False)
    _wishes: RunWishes = field(default_factory=RunWishes, init=False)
    _has_begun: bool = field(default=False, init=False)
    _idle_wait: IdleWait | None = field(default=None, init=False)

    def run_anyway(self) -> None:
        """Start although others use the devices that it waits for, or the machine is not idle; returns immediately."""
        self._wishes.begins_anyway = True
        if (idle_wait := self._idle_wait) is not None:
            idle_wait.skip()

    @property
    def may_begin(self) -> bool:
        return self._wishes.stop_reason is None

    def stop(self, reason: str = "") -> None:
        """Ask the run to end; returns immediately. A reason, in one sentence, means that it was not the user."""
        self._wishes.stop_reason = reason
        self._inbox.put(StopRequested(reason))

    def run(self) -> None:
        """Execute the run; returns when it has ended.

        Raises:
            UserError: It cannot run at all, and was not started.
        """
        inventory, spec = self.host.inventory(), self.order.start.spec
        # The form checked it on the machine as it was then; the worker sees only its own GPUs.
        if (refusal := self.host.refusal(spec)) is not None:
            self._end_at_once(inventory, Outcome(name="refused", reason=refusal))
            return
        if (refused := self._fetch_packages()) is not None:
            self._end_at_once(inventory, refused)
            return

        def wait_for_stop(seconds: float) -> bool:
            time.sleep(seconds)
            return not self.may_begin

        with contextlib.ExitStack() as stack:
            if self.order.idle_wait_s is not None and self.host.remote_run is None:
                limits = IdleLimits.of_plan(self.order.idle_wait_s)
                self._idle_wait = stack.enter_context(contextlib.closing(IdleWait(self.host, limits, self.idle_state)))
            lease = self.lease or self.host.lease_for_run(
                spec,
                notify=self._notify,
                wait_for_stop=wait_for_stop,
                runs_anyway=lambda: self._wishes.begins_anyway,
                devices=self.order.devices,
            )
            if lease is None:
                reason = self._wishes.stop_reason or _STOPPED_WAITING
                self._end_at_once(inventory, Outcome(name="stopped", reason=reason))
                return
            if self.lease is None:
                stack.callback(lease.release)
            self._make_on_leased(lease)

    def _fetch_packages(self) -> Outcome | None:
        """Have uv provide the variant's packages on this machine; return an outcome if that fails."""
        variant, last = self.order.start.spec.variant, ""
        if not variant.get("packages") or self.host.remote_run is not None:
            return None

        def report(line: str) -> bool:
            nonlocal last
            if line and line != last:
                last = line
                self._notify(line)
            return self.may_begin

        try:
            fetch_packages(str(variant["packages"]), str(variant["interpreter"]), report)
        except CancelledError:
            return Outcome(
                name="stopped", reason=self._wishes.stop_reason or "Stopped by the user while packages were installed."
            )
        except UserError as error:
            return Outcome(name="refused", reason=str(error))
        return None

    def _notify(self, reason: str) -> None:
        self.emit(Waiting(self.host.now().t_ns, reason))

    def _make_on_leased(self, lease: Lease) -> None:
        host, order = self.host, self.order
        start = msgspec.structs.replace(
            order.start,
            gpu_uuids=tuple(device for device in lease.devices if device != CPU),
            calibrate=order.start.calibrate and self.needs_calibration(host, lease.devices),
        )
        if host.remote_run is not None:
            order = msgspec.structs.replace(order, start=start, devices=lease.devices)
            host.remote_run(order, self._wishes, self._pass)
            return
        self._begin(host.inventory(), start.gpu_uuids, self._wait_until_idle(lease))
        try:
            outcome, peak_bytes = self._make_here(start)
        except Exception as error:
            # Otherwise the run would stay unfinished while this program lives.
            reason = str(error) if isinstance(error, UserError) else bug_message(error)
            self._end(Outcome(name="failed", reason=reason))
            raise
        self._end(outcome, peak_bytes)

    def _wait_until_idle(self, lease: Lease) -> Mapping[str, str]:
        """Wait before the run if the order asks for it; return its environment's facts about that."""
        noted = ""

        def go_on(status: WaitStatus) -> bool:
            nonlocal noted
            limit = units.with_unit(status.limit_s, "s")
            reason = f"Waiting for an idle machine: {status.reason} ({limit} at most)."
            if reason != noted and status.waited_s > _QUIET_S:
                noted = reason
                self._notify(reason)
            return self.may_begin

        facts = self._idle_wait.wait(lease.devices, go_on) if self._idle_wait is not None else {}
        if noted:
            self._notify("")
        return facts

    def _make_here(self, start: Start) -> tuple[Outcome, int | None]:
        """Execute a started run with a worker of this machine; return its outcome and its allocator's peak."""
        host, inbox = self.host, self._inbox
        devices = run_devices(host.inventory(), start.gpu_uuids)
        gpus = [device for device in devices if device.kind == "gpu"]
        # A leased GPU may have been lost during a wait.
        if lost := [gpu.lost for gpu in gpus if gpu.lost is not None]:
            return Outcome(name="failed", reason=lost[0]), None
        recorder = TelemetryRecorder(host.telemetry, gpus, inbox)

        def emit(event: RunEvent) -> None:
            recorder.handle(event)
            self.emit(event)

        recorder.start()
        try:
            clock = host.now()
            try:
                worker = host.launcher.launch(start, inbox.post)
            except UserError as error:
                return Outcome(name="refused", reason=str(error)), None
            except OSError as error:
                return Outcome(name="failed", reason=f"No worker could be started: {error}."), None
            recorder.follow(worker.pid, computes=not is_script(start.spec.workload))
            supervisor = Supervisor(worker, inbox, self.order.timeouts, emit, clock, host.now, recorder.follow_inner)
            try:
                ending = supervisor.watch()
            except BaseException:
                # A bug of this program must not leave a worker behind.
                worker.kill()
                raise
            finally:
                inbox.close()
            outcome = form_outcome(ending, framework_of(start.spec.variant), of_script=is_script(start.spec.workload))
            outcome = with_memory_size(outcome, devices)
            try:
                recorder.request_final_energy()
                supervisor.drain(lambda: recorder.awaits_energy)
                if others := recorder.environment:
                    emit(EnvironmentInfo(environment=dict(others)))
            except UserError as error:
                outcome = Outcome(name="failed", reason=str(error), ended_by=ending.ended_by)
            return outcome, ending.finished.allocator_peak_bytes if ending.finished else None
        finally:
            recorder.stop()

    def _pass(self, event: RunEvent) -> None:
        """Forward an event of a run on another machine, which may end before it began."""
        if isinstance(event, RunStarted):
            self._has_begun = True
        if isinstance(event, RunEnded):
            if not self._has_begun:
                self._begin(self.host.inventory())
            event = msgspec.structs.replace(event, outcome=self._worded(event.outcome))
        self.emit(event)

    def _begin(
        self, inventory: Inventory, gpu_uuids: Sequence[str] = (), environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        devices = run_devices(inventory, gpu_uuids)
        used = ", ".join(f"{device.name} ({device.device})" for device in devices if device.kind == "gpu")
        now = self.host.now()
        self.emit(
            RunStarted(
                uid=self.order.uid,
                spec=self.order.start.spec,
                t_ns=now.t_ns,
                utc_ns=now.utc_ns,
                devices=devices,
                environment={
                    **self.host.environment(),
                    **({GPUS_USED_KEY: used} if used else {}),
                    **self.order.environment,
                    **environment,
                },
                purpose=self.order.purpose,
            )
        )

    def _end_at_once(self, inventory: Inventory, outcome: Outcome) -> None:
        self._begin(inventory)
        self._end(outcome)

    def _end(self, outcome: Outcome, peak_bytes: int | None = None) -> None:
        summary = Summary(allocator_peak_bytes=peak_bytes)
        self.emit(RunEnded(t_ns=self.host.now().t_ns, outcome=self._worded(outcome), summary=summary))

    def _worded(self, outcome: Outcome) -> Outcome:
        return with_host(with_file_name(outcome, self.order.start.spec.workload), self.host.name)
