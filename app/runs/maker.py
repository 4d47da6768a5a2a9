"""Make one run on a host: lease devices, start the worker, watch it, and emit what happens as events; no database."""

import time
from collections.abc import Callable, Mapping, Sequence

from app.environment_keys import GPUS_USED_KEY
from app.errors import UserError, bug_message
from app.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.runs.host import Host, host_of
from app.runs.launcher import Worker
from app.runs.leases import Lease
from app.runs.outcome import WorkerExit, form_outcome, with_commands, with_file_name, with_memory_size
from app.runs.recording import TelemetryRecorder
from app.runs.supervisor import Inbox, StopRequested, Supervisor, WorkerTimeouts
from app.samples import HOST, Device, Inventory, Waiting
from workloads.protocol import EnvironmentInfo, RunSpec, Start

_STOPPED_WAITING = "Stopped by the user while it waited for a free device."


class RunMaker:
    """One execution of one variant in one fresh worker, from `RunStarted` to `RunEnded`.

    Thread: `run` blocks its thread, once, and emits on it; `stop` any.
    """

    def __init__(
        self,
        spec: RunSpec,
        host: Host,
        emit: Callable[[RunEvent], None],
        order: Callable[[Host, Sequence[str]], Start],
        *,
        uid: str,
        purpose: str | None = None,
        environment: Mapping[str, str] | None = None,
        lease: Lease | None = None,
        timeouts: WorkerTimeouts | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            spec: What to run, complete.
            host: Where it happens.
            emit: Gets every event, in order. A `UserError` of it, such as a full disk, ends the run.
            order: Returns the worker's order for the devices that were leased, and the host that has them.
            uid: Its id in all databases.
            purpose: What it is made for, if not for its own sake.
            environment: What is known of its environment before it starts, besides what the host knows.
            lease: Its devices, which the caller releases; None to lease them here.
            timeouts: How long its worker may take.
        """
        self._spec = spec
        self._host = host
        self._emit = emit
        self._order = order
        self._uid = uid
        self._purpose = purpose
        self._environment = environment or {}
        self._external_lease = lease
        self._timeouts = timeouts or WorkerTimeouts()
        self._inbox = Inbox()
        # A flag and an inbox whose `put` may interrupt itself: `stop` is called by handlers of signals, too.
        self._stop_requested = False
        self._is_over = False

    def stop(self, reason: str = "") -> None:
        """Ask the run to end; returns at once. With a reason, in one sentence, it is not the user who does."""
        self._stop_requested = True
        self._inbox.put(StopRequested(reason))

    def run(self) -> None:
        """Make the run; returns when it has ended.

        Raises:
            UserError: It cannot be made at all, and has not begun.
        """
        inventory = self._host.inventory()
        # The form checked it on the machine as it was then; the worker knows only its own GPUs.
        if (refusal := self._host.refusal(self._spec)) is not None:
            self._begin(inventory)
            self._end(Outcome(name="refused", reason=refusal))
            return
        lease = self._external_lease or self._host.lease_for_run(
            self._spec, notify=self._notify, wait_for_stop=self._wait_for_stop
        )
        if lease is None:
            self._begin(inventory)
            self._end(Outcome(name="stopped", reason=_STOPPED_WAITING))
            return
        try:
            self._make_on(host_of(lease, self._host), lease)
        finally:
            if self._external_lease is None:
                lease.release()

    def _notify(self, reason: str) -> None:
        self._emit(Waiting(self._host.now().t_ns, reason))

    def _wait_for_stop(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self._stop_requested

    def _make_on(self, host: Host, lease: Lease) -> None:
        """Make the run on the host of its lease; if that is one of several and lost by now, that is its outcome."""
        try:
            inventory = host.inventory()
        except UserError as error:
            if host is self._host:
                raise
            self._begin(self._host.inventory())
            self._end(Outcome(name="crashed", reason=str(error)))
            return
        self._host = host
        start = self._order(host, lease.devices)
        gpus = [device for device in inventory.devices if device.device in start.gpu_uuids]
        self._begin(inventory, start.gpu_uuids)
        try:
            # What was leased may have been lost during a wait.
            if lost := [gpu.lost for gpu in gpus if gpu.lost is not None]:
                self._end(Outcome(name="failed", reason=lost[0]))
            else:
                self._make(start, gpus)
        except Exception as error:
            # Otherwise the run would be unfinished as long as this program lives.
            if not self._is_over:
                reason = str(error) if isinstance(error, UserError) else bug_message(error)
                self._end(Outcome(name="failed", reason=reason))
            raise

    def _make(self, start: Start, gpus: Sequence[Device]) -> None:
        recorder = TelemetryRecorder(self._host.telemetry, gpus, self._inbox)

        def emit(event: RunEvent) -> None:
            recorder.handle(event)
            self._emit(event)

        recorder.start()
        try:
            clock = self._host.now()
            try:
                worker = self._host.launcher.launch(start, self._inbox.post)
            except (OSError, UserError) as error:
                self._end(_without_worker(error, self._host.name))
                return
            recorder.follow(worker.pid)
            supervisor = Supervisor(worker, self._inbox, self._timeouts, emit, clock, self._host.now)
            ending = _watch(supervisor, worker, self._inbox)
            outcome = with_commands(with_file_name(form_outcome(ending), self._spec.workload), self._host.name)
            outcome = with_memory_size(outcome, self._devices)
            try:
                recorder.request_final_energy()
                supervisor.drain(lambda: recorder.awaits_energy)
                if others := recorder.environment:
                    emit(EnvironmentInfo(environment=dict(others)))
            except UserError as error:
                outcome = Outcome(name="failed", reason=str(error), ended_by=ending.ended_by)
            self._end(outcome, ending)
        finally:
            recorder.stop()

    def _begin(self, inventory: Inventory, gpu_uuids: Sequence[str] = ()) -> None:
        self._devices = tuple(device for device in inventory.devices if device.device in (HOST, *gpu_uuids))
        used = ", ".join(f"{device.name} ({device.device})" for device in self._devices if device.kind == "gpu")
        now = self._host.now()
        self._emit(
            RunStarted(
                uid=self._uid,
                spec=self._spec,
                t_ns=now.t_ns,
                utc_ns=now.utc_ns,
                devices=self._devices,
                environment={
                    **self._host.environment(),
                    **({GPUS_USED_KEY: used} if used else {}),
                    **self._environment,
                },
                purpose=self._purpose,
            )
        )

    def _end(self, outcome: Outcome, ending: WorkerExit | None = None) -> None:
        self._is_over = True
        peak_bytes = ending.finished.allocator_peak_bytes if ending and ending.finished else None
        summary = Summary(allocator_peak_bytes=peak_bytes)
        self._emit(RunEnded(t_ns=self._host.now().t_ns, outcome=outcome, summary=summary))


def _without_worker(error: OSError | UserError, host: str) -> Outcome:
    """Return the outcome of a run whose worker could not be started."""
    if isinstance(error, UserError) and type(error) is not UserError:
        return Outcome(name="crashed", reason=str(error))  # as a link that is lost
    if isinstance(error, UserError):
        return with_commands(Outcome(name="refused", reason=str(error)), host)
    return Outcome(name="failed", reason=f"No worker could be started: {error}.")


def _watch(supervisor: Supervisor, worker: Worker, inbox: Inbox) -> WorkerExit:
    try:
        return supervisor.watch()
    except BaseException:
        # A bug of ours must not leave a worker behind.
        worker.kill()
        raise
    finally:
        inbox.close()
