"""The host of a run: the machine's workers, device leases, telemetry, inventory and clock as one object."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.runs.environment import environment_info
from app.runs.jobs import Notify, run_job
from app.runs.launcher import Launcher, LocalLauncher
from app.runs.leases import Lease, Leases, candidate_devices
from app.samples import Inventory
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine
from workloads.job_protocol import JobRequest, JobResult
from workloads.protocol import RunSpec

Kind = TypeVar("Kind", bound=JobResult)

_RUN_WAITS = "Another run, or the import for one, uses this device; this run starts when it is free."


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """One moment on both clocks of a host: `t_ns` of its monotonic clock, `utc_ns` of its wall clock."""

    t_ns: int
    utc_ns: int

    def utc_at(self, t_ns: int) -> int:
        """Return the wall clock at a time of the monotonic clock, in nanoseconds since 1970."""
        return self.utc_ns + t_ns - self.t_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that runs are made on. Only this program's own machine can be one today.

    `telemetry` knows who else uses a GPU and how busy the machine is. `launcher` starts workers, keeps some on standby,
    and ends the orphans that they leave. All times of a run are of the host's monotonic clock.

    Thread: any.
    """

    telemetry: TelemetryFeed
    launcher: Launcher = field(default_factory=LocalLauncher)
    leases: Leases = field(default_factory=Leases)

    def inventory(self) -> Inventory:
        """Return the devices that are there now; waits until they are known.

        Raises:
            TelemetryError: The sampler does not answer.
        """
        return self.telemetry.wait_inventory()

    @property
    def machine(self) -> Machine:
        """What the rules of the catalog are checked against."""
        return self.inventory().machine

    def environment(self) -> dict[str, str]:
        """Return what is known of a run's environment before its worker starts."""
        return environment_info(self.inventory())

    def now(self) -> ClockAnchor:
        """Return this moment on the host's clocks."""
        return ClockAnchor(time.monotonic_ns(), time.time_ns())

    def lease_for_run(
        self,
        spec: RunSpec,
        *,
        notify: Notify,
        wait_for_stop: Callable[[float], bool],
        devices: Sequence[str] = (),
    ) -> Lease | None:
        """Lease the devices of a run, and wait until they are free.

        Args:
            spec: The run; this machine can make it.
            notify: Called once with a sentence if the run has to wait.
            wait_for_stop: Sleeps so many seconds; returns whether to wait no longer.
            devices: The devices to choose from, the preferred one first; empty for all that the run may use.

        Returns:
            The lease; None if the wait was given up.
        """
        usable = candidate_devices(spec, self.machine)
        wanted = [device for device in devices if device in usable] or usable
        count = int(spec.variant["gpus"]) or 1
        return self.leases.wait(wanted, count, on_wait=lambda: notify(_RUN_WAITS), wait_for_stop=wait_for_stop)

    def run_job(
        self, request: JobRequest, result_type: type[Kind], is_overdue: Callable[[], bool] | None = None
    ) -> Kind:
        """Run a job in a process of this host, as `app.runs.jobs.run_job` does."""
        return run_job(request, result_type, is_overdue)
