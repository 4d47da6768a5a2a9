"""The host of a run: the machine's workers, device leases, telemetry, inventory and clock as one object."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from app.runs.environment import environment_info
from app.runs.jobs import Notify, RunJob, run_job
from app.runs.launcher import Launcher
from app.runs.leases import CPU, Lease, Leases, candidate_devices
from app.telemetry.feed import TelemetryFeed
from app.values.events import RunEvent
from app.values.samples import Inventory
from workloads.catalog import Machine, check
from workloads.protocol import TAG, Name, Nanoseconds, RunSpec, Start, Text, Texts


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """One moment on a host's monotonic clock (`t_ns`) and on our wall clock (`utc_ns`).

    The wall clock is this machine's for every host, so that a database's runs stay in order, whatever the hosts' clocks
    say.
    """

    t_ns: int
    utc_ns: int

    def utc_at(self, t_ns: int) -> int:
        """Return the wall clock at a time of the monotonic clock, in nanoseconds since 1970."""
        return self.utc_ns + t_ns - self.t_ns


def now_here() -> ClockAnchor:
    """Return the current time on this machine's clocks."""
    return ClockAnchor(time.monotonic_ns(), time.time_ns())


def calibrated_device(device: str, host: str) -> str:
    """Return the key of a device's calibration: GPUs have UUIDs, but every host has a processor called `cpu`.

    `host` is the user's name of the host; "" is this machine.
    """
    return f"{device} of {host}" if host and device == CPU else device


class WorkerTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker may take, in seconds.

    Attributes:
        hello_s: Until `Hello`. A standby worker may still import when it gets its order, and sends it afterwards.
        message_gap_s: Between two messages.
        closed_stdin_s: To end after its stdin was closed.
        terminated_s: To end after SIGTERM.
        finished_s: To end after its last message.
    """

    hello_s: float = 120.0
    message_gap_s: float = 300.0
    closed_stdin_s: float = 5.0
    terminated_s: float = 3.0
    finished_s: float = 5.0


@dataclass(slots=True)
class RunWishes:
    """Requests to a running run: any thread sets them, including a signal handler; the run's thread reads them.

    Attributes:
        stop_reason: Why it must end, in one sentence; "" if the user stops it, None while it may continue.
        begins_anyway: Whether to start although others use its devices, or the machine is not idle.
    """

    stop_reason: str | None = None
    begins_anyway: bool = False


class RunOrder(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field=TAG):
    """An order for a run on this machine or another.

    Attributes:
        start: The worker's order except for its devices, which are leased where the run takes place.
        uid: Its id in all databases.
        purpose: Its purpose, unless it runs for its own sake.
        environment: What is known of its environment before it starts, besides what the host knows.
        devices: The devices to choose from, the preferred one first; empty for all that it may use.
        idle_wait_s: The longest wait for another machine to be idle; None for no wait.
        utc_ns: The time of the order on the ordering machine's wall clock, so that all runs of a database stay in
            order.
        hz: Telemetry readings per second, on another machine.
        standby: Whether another machine should keep a worker ready for the next run.
    """

    start: Start
    uid: Name
    purpose: Text | None = None
    environment: dict[str, str] = {}
    devices: Texts = ()
    idle_wait_s: float | None = None
    timeouts: WorkerTimeouts = WorkerTimeouts()
    utc_ns: Nanoseconds = 0
    hz: float = 20.0
    standby: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that executes runs: this program's own, or a remote one (`app.hosts.remote`).

    Attributes:
        telemetry: Knows who else uses a GPU and how busy the machine is.
        launcher: Starts workers, keeps some on standby, and ends orphans that they leave.
        leases: One run per device; on another machine, among the runs that this one orders.
        run_job: Runs a small job in a process of the machine, as `app.runs.jobs.run_job` does.
        remote_run: Has another machine execute a run, and emits its events up to `RunEnded`; None on this machine.
        now: Returns the current time on its clocks. All times of a run are on its monotonic clock.
        describe: Returns what is known of a run's environment before its worker starts, from the inventory.
        name: The user's name for it; "" is this machine.

    Thread: any.
    """

    telemetry: TelemetryFeed
    launcher: Launcher = field(default_factory=Launcher)
    leases: Leases = field(default_factory=Leases)
    run_job: RunJob = run_job
    remote_run: Callable[[RunOrder, RunWishes, Callable[[RunEvent], None]], None] | None = None
    now: Callable[[], ClockAnchor] = now_here
    describe: Callable[[Inventory], dict[str, str]] = environment_info
    name: str = ""

    def inventory(self) -> Inventory:
        """Return the devices present now; waits until they are known.

        Raises:
            TelemetryError: The sampler does not answer.
        """
        return self.telemetry.wait_inventory()

    @property
    def machine(self) -> Machine:
        return self.inventory().machine

    def environment(self) -> dict[str, str]:
        """Return what is known of a run's environment before its worker starts."""
        return self.describe(self.inventory())

    def refusal(self, spec: RunSpec) -> str | None:
        """Return why this host cannot execute a run, in one sentence; None if it can."""
        return next((refusal.reason for refusal in check(spec, self.machine)), None)

    def lease_for_run(
        self,
        spec: RunSpec,
        *,
        notify: Notify,
        wait_for_stop: Callable[[float], bool],
        runs_anyway: Callable[[], bool] = lambda: False,
        devices: Sequence[str] = (),
    ) -> Lease | None:
        """Lease the devices of a run that this machine can execute, and wait until they are free.

        `notify` is called once with a sentence if the run has to wait. `wait_for_stop` sleeps that many seconds; it
        returns whether to stop waiting. `devices` are the devices to choose from, the preferred one first; empty for
        all that the run may use.

        Returns:
            The lease; None if the wait was given up.
        """
        usable = candidate_devices(spec, self.machine)
        candidates = [device for device in devices if device in usable] or usable
        count = int(spec.variant["gpus"]) or 1
        return self.leases.wait(
            candidates,
            count,
            on_wait=lambda: notify(describe_wait(self.leases.describe_holder(candidates))),
            wait_for_stop=wait_for_stop,
            runs_anyway=runs_anyway,
        )


def describe_wait(holder: str = "") -> str:
    """Return whom a run waits for; without a name it is another run, or the import for one."""
    return f"Waiting for {holder or 'another run, or the import for one,'} to free this device."
