"""One run from its spec to its outcome: leases the devices, starts the worker, and is the only reader of its inbox."""

import queue
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.analysis.comparability import throttled_environment
from app.analysis.summary import phases_with_energy, summarise
from app.errors import DatabaseError, UserError, bug_message
from app.paths import weights_path
from app.records import (
    CUSTOM_PATH_KEY,
    CUSTOM_SOURCE_KEY,
    GPUS_USED_KEY,
    Outcome,
    Phase,
    RunEnded,
    RunEvent,
    RunStarted,
    Summary,
    Waiting,
)
from app.runs.custom import stored_source
from app.runs.environment import environment_info
from app.runs.experiment.concurrency import candidate_devices
from app.runs.launcher import Launcher, LocalLauncher, Worker
from app.runs.leases import CPU, Lease, Leases
from app.runs.outcome import WorkerExit, form_outcome, with_file_name, with_memory_size
from app.runs.recording import TelemetryRecorder
from app.runs.sinks import Sink, StepSink, StoreSink
from app.runs.supervisor import Inbox, InboxItem, StopRequested, Supervisor, WorkerTimeouts
from app.samples import HOST, Device, Inventory
from app.storage.files import disk_space
from app.storage.owner import this_process
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import check
from workloads.protocol import PROTOCOL_VERSION, RunSpec, Source, Start

_WAITING = "Another run, or the import for one, uses this device; this run starts when it is free."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What every run needs from its program."""

    database: Path
    feed: TelemetryFeed
    launcher: Launcher = field(default_factory=LocalLauncher)
    leases: Leases = field(default_factory=Leases)
    timeouts: WorkerTimeouts = field(default_factory=WorkerTimeouts)


class RunSession:
    """One execution of one variant in one fresh worker. `run` blocks its thread; `stop` may come from any other.

    `facts` are known of the run before it begins, and stored with its environment. A `lease` is its owner's to release.
    """

    def __init__(
        self,
        spec: RunSpec,
        services: RunServices,
        sinks: Sequence[Sink] = (),
        *,
        purpose: str | None = None,
        environment: Mapping[str, str] | None = None,
        lease: Lease | None = None,
    ) -> None:
        self._spec = spec
        self._purpose = purpose
        self._environment = environment or {}
        self._external_lease = lease
        self._services = services
        self._sinks = tuple(sinks)
        self._inbox: Inbox = queue.SimpleQueue()
        self._uid = uuid.uuid4().hex
        self._step = StepSink()
        self._source: Source | None = None
        self._is_over = False
        self.number: int | None = None

    def stop(self) -> None:
        """Asks the run to end; returns at once."""
        self._inbox.put(StopRequested())

    def run(self) -> Outcome:
        """Runs to the end and returns the outcome, stored by then. Raises `UserError` where that cannot be done.

        So it is without room on the disk: that says nothing of the variant, and would be stored as an answer.
        """
        if refusal := disk_space(self._services.database).refusal:
            raise UserError(refusal)
        inventory = self._services.feed.wait_inventory()
        self._source = stored_source(self._spec, self._services.database)
        with Store.open(self._services.database) as store:
            if refusals := check(self._spec, inventory.machine):
                self._begin(store, inventory, ())
                return self._end_unstarted(store, Outcome(name="refused", reason=refusals[0].reason))
            lease = self._external_lease or self._lease()
            if lease is None:
                reason = "Stopped by the user while it waited for a free device."
                self._begin(store, inventory, ())
                return self._end_unstarted(store, Outcome(name="stopped", reason=reason))
            try:
                return self._execute(store, inventory, lease)
            finally:
                if self._external_lease is None:
                    lease.release()

    def _lease(self) -> Lease | None:
        return lease_devices(self._spec, self._services, notify=self._emit_waiting, wait_for_stop=self._wait_for_stop)

    def _emit_waiting(self, reason: str) -> None:
        self._emit(Waiting(time.monotonic_ns(), reason))

    def _wait_for_stop(self, seconds: float) -> bool:
        try:
            return isinstance(self._inbox.get(timeout=seconds), StopRequested)
        except queue.Empty:
            return False

    def _execute(self, store: Store, inventory: Inventory, lease: Lease) -> Outcome:
        gpu_uuids = tuple(device for device in lease.devices if device != CPU)
        run = self._begin(store, inventory, gpu_uuids)
        store_sink = StoreSink(store, run)
        gpus = [device for device in inventory.devices if device.device in gpu_uuids]
        recorder = TelemetryRecorder(self._services.feed, gpus, self._inbox)
        emit = _FanOut((recorder, self._step, *self._sinks, store_sink))
        recorder.start()
        try:
            try:
                worker = self._services.launcher.launch(self._start_message(store, lease), self._post)
            except OSError as error:
                return self._end_unstarted(
                    store, Outcome(name="failed", reason=f"No worker could be started: {error}.")
                )
            recorder.follow(worker.pid)
            ending = self._watch(worker, emit)
            return self._finish(store, store_sink, ending, lease.devices, lambda: recorder.drain(emit))
        except Exception as error:
            # Nobody else would end it before this program does.
            if not self._is_over:
                reason = str(error) if isinstance(error, UserError) else bug_message(error)
                self._end_unstarted(store, Outcome(name="failed", reason=reason))
            raise
        finally:
            recorder.stop()

    def _start_message(self, store: Store, lease: Lease) -> Start:
        """What the worker is to do: the run, its weights kept where asked, a calibration where there is none yet."""
        variant = self._spec.variant
        saves = bool(variant.get("save_weights", False))
        # A device is calibrated by the program's own libraries, and a processor with all its threads, or not at all.
        uses_defaults = not variant["cpu_threads"] and not variant.get("interpreter")
        may_calibrate = variant.get("evidence", "off") != "off" and uses_defaults
        return Start(
            protocol=PROTOCOL_VERSION,
            spec=self._spec,
            gpu_uuids=tuple(device for device in lease.devices if device != CPU),
            weights_path=str(weights_path(self._services.database, self._uid).absolute()) if saves else None,
            calibrate=may_calibrate and _peak_flops_per_s(store, self._spec, lease.devices) is None,
            source=self._source,
        )

    def _begin(self, store: Store, inventory: Inventory, gpu_uuids: Sequence[str]) -> int:
        devices = tuple(device for device in inventory.devices if device.device in (HOST, *gpu_uuids))
        t_ns, utc_ns = time.monotonic_ns(), time.time_ns()
        run = store.begin(
            self._spec,
            uid=self._uid,
            owner=this_process(),
            t_ns=t_ns,
            utc_ns=utc_ns,
            devices=devices,
            environment={
                **environment_info(inventory),
                **_gpus_used_info(devices),
                **_custom_source_info(self._source),
                **self._environment,
            },
            purpose=self._purpose,
        )
        self.number = run
        self._emit(RunStarted(run=run, spec=self._spec, t_ns=t_ns, utc_ns=utc_ns, devices=devices))
        return run

    def _finish(
        self,
        store: Store,
        store_sink: StoreSink,
        ending: WorkerExit,
        devices: Sequence[str],
        drain: Callable[[], None],
    ) -> Outcome:
        run, outcome = self._run_number(), with_file_name(form_outcome(ending), self._spec.workload)
        peak = ending.finished.allocator_peak_bytes if ending.finished else None
        try:
            drain()
            store_sink.flush()
            stored = store.load(run)
            store.add_environment(run, throttled_environment(stored))
            outcome = with_memory_size(outcome, [columns.device for columns in stored.samples])
            summary = summarise(
                stored,
                allocator_peak_bytes=peak,
                flops_per_step=self._step.flops,
                peak_flops_per_s=_peak_flops_per_s(store, self._spec, devices),
                ready_step_ms=self._step.ready_ms,
            )
            self._store_end(store, outcome, summary, phases_with_energy(stored))
        except DatabaseError as error:
            # What is stored stays; at the next start the run is found without its owner and becomes crashed.
            outcome, summary = Outcome(name="failed", reason=str(error), ended_by=ending.ended_by), Summary()
        self._emit(RunEnded(run=run, t_ns=time.monotonic_ns(), outcome=outcome, summary=summary))
        return outcome

    def _end_unstarted(self, store: Store, outcome: Outcome) -> Outcome:
        """Ends a run that never had a worker, or not to its end."""
        self._store_end(store, outcome, Summary())
        self._emit(RunEnded(run=self._run_number(), t_ns=time.monotonic_ns(), outcome=outcome, summary=Summary()))
        return outcome

    def _store_end(self, store: Store, outcome: Outcome, summary: Summary, phases: Sequence[Phase] = ()) -> None:
        self._is_over = True
        t_ns, utc_ns = time.monotonic_ns(), time.time_ns()
        store.finish(self._run_number(), outcome=outcome, summary=summary, t_ns=t_ns, utc_ns=utc_ns, phases=phases)

    def _run_number(self) -> int:
        if self.number is None:
            raise RuntimeError("the run has not begun")
        return self.number

    def _post(self, item: InboxItem) -> None:
        self._inbox.put(item)

    def _watch(self, worker: Worker, emit: "_FanOut") -> WorkerExit:
        try:
            return Supervisor(worker, self._inbox, self._services.timeouts, emit).watch()
        except BaseException:
            # A bug of ours must not leave a worker behind.
            worker.kill()
            raise

    def _emit(self, event: RunEvent) -> None:
        _FanOut(self._sinks)(event)


@dataclass(frozen=True, slots=True)
class _FanOut:
    sinks: tuple[Sink, ...]

    def __call__(self, event: RunEvent) -> None:
        for sink in self.sinks:
            sink.handle(event)


def _peak_flops_per_s(store: Store, spec: RunSpec, devices: Sequence[str]) -> float | None:
    """The calibrated rate of these devices together, taken to be alike; None where none of them was calibrated."""
    found = (store.calibration(device, str(spec.variant["precision"])) for device in devices)
    rate = next((calibration.flops_per_s for calibration in found if calibration is not None), None)
    return None if rate is None else rate * len(devices)


def lease_devices(
    spec: RunSpec,
    services: RunServices,
    *,
    notify: Callable[[str], None],
    wait_for_stop: Callable[[float], bool],
    devices: Sequence[str] = (),
) -> Lease | None:
    """The devices a run needs, once they are free; `told` why it waits if it does. See `Leases.wait` for `stopped`.

    Of those free the first of `devices`, or of all it may have. None of them where the run is refused here: a GPU that
    was lost meanwhile would be waited for in vain.
    """
    machine, count = services.feed.wait_inventory().machine, int(spec.variant["gpus"])
    if check(spec, machine):
        return Lease()
    wanted = devices or candidate_devices(spec, machine)
    return services.leases.wait(wanted, count or 1, on_wait=lambda: notify(_WAITING), wait_for_stop=wait_for_stop)


def _custom_source_info(source: Source | None) -> dict[str, str]:
    return {CUSTOM_PATH_KEY: source.path, CUSTOM_SOURCE_KEY: source.text} if source else {}


def _gpus_used_info(devices: Sequence[Device]) -> dict[str, str]:
    used = ", ".join(f"{device.name} ({device.device})" for device in devices if device.kind == "gpu")
    return {GPUS_USED_KEY: used} if used else {}
