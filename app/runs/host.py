"""The host of a run: the machine's workers, device leases, telemetry, inventory and clock as one object."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.paths import ROOT, program_version
from app.runs.jobs import Notify, run_job
from app.runs.launcher import Launcher, LocalLauncher
from app.runs.leases import Lease, Leases, candidate_devices
from app.samples import HOST, Inventory
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine
from workloads.protocol import JobRequest, JobResult, RunSpec

Kind = TypeVar("Kind", bound=JobResult)

_RUN_WAITS = "Another run, or the import for one, uses this device; this run starts when it is free."

_GIT_S = 5.0


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
        wanted = devices or candidate_devices(spec, self.machine)
        count = int(spec.variant["gpus"]) or 1
        return self.leases.wait(wanted, count, on_wait=lambda: notify(_RUN_WAITS), wait_for_stop=wait_for_stop)

    def run_job(self, request: JobRequest, result_type: type[Kind]) -> Kind:
        """Run a job in a process of this host; raises `JobError`."""
        return run_job(request, result_type)


def environment_info(inventory: Inventory) -> dict[str, str]:
    """Return what the program knows of a run's environment, by key; the worker adds what only the framework knows."""
    host = next(device for device in inventory.devices if device.device == HOST)
    info = {
        "driver": inventory.driver,
        "cuda_driver": inventory.cuda_driver,
        "gpus_present": ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in inventory.machine.gpus),
        "cpu": host.name,
        "cpu_count": str(inventory.machine.cpu_count),
        "memory_total_bytes": str(host.memory_total_bytes),
        "os": _os_name(),
        "kernel": platform.release(),
        "program_version": program_version(),
        "git_commit": _git_commit(),
    }
    return {key: value for key, value in info.items() if value}


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)


def _git_commit() -> str | None:
    """Return the checkout's commit, with `+changes` if tracked files differ; None outside a checkout or without git."""
    if not (ROOT / ".git").exists():
        return None
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
