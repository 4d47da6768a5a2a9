"""One run from its spec to its outcome: lease devices, start the worker, watch it, store and summarise what it did."""

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app import units
from app.analysis.comparability import throttled_environment
from app.analysis.summary import phases_with_energy, summarise
from app.crash import write_report
from app.environment_keys import CUSTOM_PATH_KEY, CUSTOM_SOURCE_KEY, GPUS_USED_KEY
from app.errors import DatabaseError, DatabaseLockedError, UserError, bug_message
from app.grants import Consent, interpreter_grant, refuse, require, source_grant
from app.log import run_number
from app.paths import weights_path
from app.records import (
    Outcome,
    Phase,
    RunEnded,
    RunStarted,
    StoredRun,
    Summary,
)
from app.runs.custom import stored_source
from app.runs.host import Host, calibrated_device, host_of
from app.runs.launcher import Worker
from app.runs.leases import CPU, Lease
from app.runs.outcome import WorkerExit, form_outcome, with_commands, with_file_name, with_memory_size
from app.runs.recording import TelemetryRecorder
from app.runs.sinks import FanOut, Sink, StepSink, StoreSink
from app.runs.supervisor import Inbox, StopRequested, Supervisor, WorkerTimeouts
from app.samples import HOST, Device, Inventory, Waiting
from app.storage.files import disk_space
from app.storage.owner import this_process
from app.storage.run_store import RunStore
from app.storage.store import Store
from workloads.protocol import PROTOCOL_VERSION, EnvironmentInfo, RunSpec, Source, Start

_log = logging.getLogger("variantscope.run")
_REPORTED_LINES = 100
_STOPPED_WAITING = "Stopped by the user while it waited for a free device."
_LOCK_TRY_S = 0.1
"""How long a batch waits for another program that writes: the worker is watched between two tries."""
_LOCK_WAIT_S = 60.0
"""How long the end of a run waits for a locked database."""


def _no_other_host(word: str) -> Host:
    raise UserError(f"Runs on {word} cannot be made from here.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What every run needs: where it is stored, where it happens, and how long its worker may take.

    `open_host` reaches another host by the word that the user calls it by; it may take a while, and raises `UserError`.
    `consent` is asked, on the thread that starts something, for what was never allowed here.
    """

    database: Path
    host: Host
    open_host: Callable[[str], Host] = _no_other_host
    consent: Consent = refuse
    timeouts: WorkerTimeouts = field(default_factory=WorkerTimeouts)

    def on(self, word: str) -> "RunServices":
        """Return the services of another host; "" is the one of these. Raises `UserError` if it cannot be reached."""
        return replace(self, host=self.open_host(word)) if word else self

    def admit(self, specs: Iterable[RunSpec], consent: Consent | None = None) -> None:
        """Let variants pass the gate of `app.grants`, all by one question; every start passes it first.

        What the host refuses is not asked for, nor what is only played.

        Args:
            specs: The variants.
            consent: In place of the services' own, where the user typed them.

        Raises:
            UserError: One of them names a Python or a text that is not allowed.
        """
        possible = [] if self.host.is_played else [spec for spec in specs if self.host.refusal(spec) is None]
        pythons = filter(
            None, (interpreter_grant(spec.variant.get("interpreter", ""), self.host.name) for spec in possible)
        )
        texts = map(source_grant, filter(None, (stored_source(spec, self.database) for spec in possible)))
        require((*pythons, *texts), consent or self.consent)


class RunSession:
    """One execution of one variant in one fresh worker.

    Thread: `run` blocks its thread, once; `stop` any. Sinks are called on the thread of `run`.
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
        uid: str = "",
    ) -> None:
        """Prepare a run.

        Args:
            spec: What to run, complete.
            services: Where it is stored and where it happens.
            sinks: Get every event, in order.
            purpose: What it is made for, if not for its own sake.
            environment: What is known of its environment before it starts; stored with it.
            lease: Its devices, which the caller releases; None to lease them here.
            uid: Its id in all databases; "" for a new one.
        """
        self._spec = spec
        self._purpose = purpose
        self._environment = environment or {}
        self._external_lease = lease
        self._services = services
        self._host = services.host
        self._listeners = FanOut(sinks)
        self._inbox = Inbox()
        # A flag and an inbox whose `put` may interrupt itself: `stop` is called by handlers of signals, too.
        self._stop_requested = False
        self._uid = uid or uuid.uuid4().hex
        self._step = StepSink()
        self._source: Source | None = None
        self._is_over = False
        self._began = self._host.now()  # durations are of the monotonic clock: the other may be set meanwhile
        self.number: int | None = None
        self.stored: StoredRun | None = None
        """The run as it is stored, once it has ended; None if its end could not be stored."""
        self._storage_error: DatabaseError | None = None

    def stop(self) -> None:
        """Ask the run to end; returns at once."""
        self._stop_requested = True
        self._inbox.put(StopRequested())

    def run(self) -> Outcome:
        """Make the run and return its outcome, stored by then.

        Raises:
            UserError: It cannot be made, for want of disk space, say, or could not be stored whole in the database.
                That says nothing about the variant.
        """
        if refusal := disk_space(self._services.database).refusal:
            raise UserError(refusal)
        numbered = run_number.set(None)
        try:
            outcome = self._run()
        finally:
            run_number.reset(numbered)
        if self._storage_error is not None:
            raise self._storage_error
        return outcome

    def _run(self) -> Outcome:
        inventory = self._host.inventory()
        self._services.admit([self._spec])
        self._source = stored_source(self._spec, self._services.database)
        with RunStore.open(self._services.database) as store:
            # The form checked it on the machine as it was then; the worker knows only its own GPUs.
            if (refusal := self._host.refusal(self._spec)) is not None:
                self._begin(store, inventory, ())
                return self._end_unstarted(store, Outcome(name="refused", reason=refusal))
            lease = self._external_lease or self._host.lease_for_run(
                self._spec, notify=self._notify, wait_for_stop=self._wait_for_stop
            )
            if lease is None:
                self._begin(store, inventory, ())
                return self._end_unstarted(store, Outcome(name="stopped", reason=_STOPPED_WAITING))
            try:
                return self._execute_on(host_of(lease, self._host), store, lease)
            finally:
                if self._external_lease is None:
                    lease.release()

    def _execute_on(self, host: Host, store: RunStore, lease: Lease) -> Outcome:
        """Make the run on the host of its lease; if that is one of several and lost by now, that is its outcome."""
        try:
            inventory = host.inventory()
        except UserError as error:
            if host is self._host:
                raise
            self._begin(store, self._host.inventory(), ())
            return self._end_unstarted(store, Outcome(name="crashed", reason=str(error)))
        self._host = host
        return self._execute(store, inventory, lease)

    def _notify(self, reason: str) -> None:
        self._listeners.handle(Waiting(self._host.now().t_ns, reason))

    def _wait_for_stop(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self._stop_requested

    def _execute(self, store: RunStore, inventory: Inventory, lease: Lease) -> Outcome:
        gpu_uuids = tuple(device for device in lease.devices if device != CPU)
        store_sink = StoreSink(store, self._begin(store, inventory, gpu_uuids), self._host.telemetry.now_ns)
        store.wait_at_most(_LOCK_TRY_S)
        gpus = [device for device in inventory.devices if device.device in gpu_uuids]
        # What was leased may have been lost during a wait.
        if lost := [gpu.lost for gpu in gpus if gpu.lost is not None]:
            return self._end_unstarted(store, Outcome(name="failed", reason=lost[0]))
        recorder = TelemetryRecorder(self._host.telemetry, gpus, self._inbox)
        sinks = FanOut((recorder, self._step, self._listeners, store_sink))
        recorder.start()
        try:
            clock = self._host.now()
            try:
                path = weights_path(self._services.database, self._uid).absolute()
                order = start_order(store, self._spec, lease.devices, self._host, self._source, path)
                worker = self._host.launcher.launch(order, self._inbox.post)
            except (OSError, UserError) as error:
                return self._end_unstarted(store, _without_worker(error, self._host.name))
            recorder.follow(worker.pid)
            supervisor = Supervisor(worker, self._inbox, self._services.timeouts, sinks.handle, clock, self._host.now)
            ending = _watch(supervisor, worker, self._inbox)

            def drain() -> None:
                recorder.request_final_energy()
                supervisor.drain(lambda: recorder.awaits_energy)
                if others := recorder.environment:
                    sinks.handle(EnvironmentInfo(environment=dict(others)))

            return self._finish(store, store_sink, ending, lease.devices, drain)
        except Exception as error:
            # Otherwise the run would be unfinished as long as this program lives.
            if not self._is_over:
                reason = str(error) if isinstance(error, UserError) else bug_message(error)
                self._end_unstarted(store, Outcome(name="failed", reason=reason))
            raise
        finally:
            recorder.stop()

    def _begin(self, store: Store, inventory: Inventory, gpu_uuids: Sequence[str]) -> int:
        devices = tuple(device for device in inventory.devices if device.device in (HOST, *gpu_uuids))
        now = self._began = self._host.now()
        run = store.begin(
            self._spec,
            uid=self._uid,
            owner=this_process(),
            t_ns=now.t_ns,
            utc_ns=now.utc_ns,
            devices=devices,
            environment={
                **self._host.environment(),
                **_used_info(devices, self._source),
                **self._environment,
            },
            purpose=self._purpose,
        )
        self.number = run
        run_number.set(run)
        _log.info("starts: %s %s", self._spec.workload, self._spec.variant)
        self._listeners.handle(RunStarted(run=run, spec=self._spec, t_ns=now.t_ns, utc_ns=now.utc_ns, devices=devices))
        return run

    def _finish(
        self,
        store: RunStore,
        sink: StoreSink,
        ending: WorkerExit,
        devices: Sequence[str],
        drain: Callable[[], None],
    ) -> Outcome:
        outcome = with_commands(with_file_name(form_outcome(ending), self._spec.workload), self._host.name)
        try:
            drain()
            sink.end_log()
            end_s: float | None = None
            while True:
                try:
                    sink.flush()
                    outcome, summary = self._conclude(store, outcome, ending, devices)
                    break
                except DatabaseLockedError:
                    end_s = _wait_for_lock(store, self._run_number(), end_s, self._notify)
        except DatabaseError as error:
            outcome, summary = Outcome(name="failed", reason=str(error), ended_by=ending.ended_by), Summary()
            self._storage_error = error
            # Where this fails too, the run is marked as crashed once this program is gone.
            store.use_reserve()
            with contextlib.suppress(DatabaseError):
                self._store_end(store, outcome, summary)
        self._emit_end(outcome, summary)
        self._storage_error = store.rescue_error or self._storage_error or sink.failure
        return outcome

    def _conclude(
        self, store: RunStore, outcome: Outcome, ending: WorkerExit, devices: Sequence[str]
    ) -> tuple[Outcome, Summary]:
        """Compute what follows from all that was measured, and store it; return outcome and metrics."""
        run = self._run_number()
        stored = store.load(run)
        store.add_environment(run, throttled_environment(stored))
        outcome = with_memory_size(outcome, [columns.device for columns in stored.samples])
        if store.rescue is not None:
            outcome = replace(outcome, reason=f"{outcome.reason or ''} {store.rescue}".strip())
        summary = summarise(
            stored,
            allocator_peak_bytes=ending.finished.allocator_peak_bytes if ending.finished else None,
            flops_per_step=self._step.flops,
            peak_flops_per_s=_peak_flops_per_s(store, self._spec, devices, self._host),
            ready_step_ms=self._step.ready_ms,
        )
        self._store_end(store, outcome, summary, phases_with_energy(stored))
        self.stored = store.with_end(stored)
        if outcome.name == "crashed":
            lines = "\n".join(line.text for line in stored.log[-_REPORTED_LINES:])
            write_report(f"Run {run} crashed: {outcome.reason}", f"End of the run's log:\n{lines}")
        return outcome, summary

    def _end_unstarted(self, store: Store, outcome: Outcome) -> Outcome:
        """End a run that never had a worker, or not to its end."""
        self._store_end(store, outcome, Summary())
        self.stored = store.load(self._run_number())
        self._emit_end(outcome, Summary())
        return outcome

    def _emit_end(self, outcome: Outcome, summary: Summary) -> None:
        _log.info("ended: %s, %s examples/s. %s", outcome.name, summary.throughput, outcome.reason or "")
        t_ns = self._host.now().t_ns
        self._listeners.handle(RunEnded(run=self._run_number(), t_ns=t_ns, outcome=outcome, summary=summary))

    def _store_end(self, store: Store, outcome: Outcome, summary: Summary, phases: Sequence[Phase] = ()) -> None:
        self._is_over = True
        t_ns = self._host.now().t_ns
        utc_ns = self._began.utc_at(t_ns)
        store.finish(self._run_number(), outcome=outcome, summary=summary, t_ns=t_ns, utc_ns=utc_ns, phases=phases)

    def _run_number(self) -> int:
        if self.number is None:
            raise RuntimeError("the run has not begun")
        return self.number


def _without_worker(error: OSError | UserError, host: str) -> Outcome:
    """Return the outcome of a run whose worker could not be started."""
    if isinstance(error, UserError) and type(error) is not UserError:
        return Outcome(name="crashed", reason=str(error))  # as a link that is lost
    if isinstance(error, UserError):
        return with_commands(Outcome(name="refused", reason=str(error)), host)
    return Outcome(name="failed", reason=f"No worker could be started: {error}.")


def _wait_for_lock(store: RunStore, run: int, end_s: float | None, notify: Callable[[str], None]) -> float:
    """Return until when a run waits for its database; move it to a rescue file when that time is over.

    Args:
        store: Its store, which met a lock.
        run: Its number.
        end_s: Until when it waits; None at the first lock.
        notify: Gets a sentence when it begins to wait.
    """
    if end_s is None:
        wait = f"close it: the run waits {units.with_unit(_LOCK_WAIT_S, 's')} at most to be stored."
        notify(f"{store.path} is locked by another program; {wait}")
        return time.monotonic() + _LOCK_WAIT_S
    if time.monotonic() > end_s:
        store.move_to_rescue_file(run, f"{store.path} stayed locked by another program")
    return end_s


def _watch(supervisor: Supervisor, worker: Worker, inbox: Inbox) -> WorkerExit:
    try:
        return supervisor.watch()
    except BaseException:
        # A bug of ours must not leave a worker behind.
        worker.kill()
        raise
    finally:
        inbox.close()


def start_order(
    store: Store, spec: RunSpec, devices: Sequence[str], host: Host, source: Source | None, weights: Path
) -> Start:
    """Return a worker's order.

    Args:
        store: Knows which devices were calibrated.
        spec: What to run.
        devices: What it runs on.
        host: The host of these.
        source: The file of a custom workload.
        weights: Where its weights are saved, if they are to be.
    """
    variant = spec.variant
    # A device is calibrated by the program's own libraries, and a processor with all its threads, or not at all.
    uses_defaults = not variant["cpu_threads"] and not variant.get("interpreter")
    may_calibrate = variant.get("evidence", "off") != "off" and uses_defaults
    return Start(
        protocol=PROTOCOL_VERSION,
        spec=spec,
        gpu_uuids=tuple(device for device in devices if device != CPU),
        weights_path=str(weights) if variant.get("save_weights", False) else None,
        calibrate=may_calibrate and _peak_flops_per_s(store, spec, devices, host) is None,
        source=source,
    )


def _peak_flops_per_s(store: Store, spec: RunSpec, devices: Sequence[str], host: Host) -> float | None:
    """Return the calibrated rate of these devices together, taken to be alike; None if none was calibrated."""
    named = (calibrated_device(device, host.name) for device in devices)
    found = (store.calibration(device, str(spec.variant["precision"])) for device in named)
    rate = next((calibration.flops_per_s for calibration in found if calibration is not None), None)
    return None if rate is None else rate * len(devices)


def _used_info(devices: Sequence[Device], source: Source | None) -> dict[str, str]:
    """Return the GPUs and the custom workload's file of a run, for its environment."""
    used = ", ".join(f"{device.name} ({device.device})" for device in devices if device.kind == "gpu")
    file = {CUSTOM_PATH_KEY: source.path, CUSTOM_SOURCE_KEY: source.text} if source else {}
    return {**({GPUS_USED_KEY: used} if used else {}), **file}
