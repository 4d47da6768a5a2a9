"""The agent: follows the program's orders on this host with the classes that make runs on the program's own machine."""

import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import psutil

from app.agent.processes import AgentRun, AgentTelemetry, Outbox, Scratch
from app.agent_protocol import (
    CancelJob,
    ChangeRate,
    DescribeHost,
    HostDescribed,
    HostInspected,
    InspectedFramework,
    InspectHost,
    JobDone,
    KeepStandby,
    Leased,
    Order,
    Ping,
    Pong,
    ReadFile,
    Refused,
    ReleaseLease,
    RemoveFile,
    Report,
    StartJob,
    StartRun,
    StartTelemetry,
    StopRun,
    StopTelemetry,
    TakeLease,
    Took,
    WriteFile,
)
from app.errors import bug_message
from app.grants import order_grants, require, typed
from app.runs.environment import host_info
from app.runs.host import Host
from app.runs.jobs import ERROR_KINDS, run_job
from app.runs.leases import Lease, Leases
from app.runs.standby import StandbyLauncher
from workloads.catalog import FRAMEWORKS, Framework, default_interpreter, find_python, installed_framework
from workloads.job_protocol import JobResult


class Agent:
    """Everything that the program has on this host, by the numbers of its orders.

    What may take a while has a thread of its own: a ping is answered at once.

    Thread: the one that reads orders.
    """

    def __init__(self, scratch: Path, outbox: Outbox) -> None:
        self._outbox = outbox
        self._telemetry = AgentTelemetry(outbox)
        self._scratch = Scratch(scratch)
        self._leases = Leases()
        self._launcher = StandbyLauncher(self._leases, lambda: self._wants_standby)
        self._host = Host(telemetry=self._telemetry.feed, launcher=self._launcher, leases=self._leases)
        # One of its own: reads wait until the program has taken what was read before.
        self._reads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="files")
        # One reference, read by the launcher's thread: no lock is needed.
        self._wants_standby = False
        self._held: dict[int, Lease] = {}
        # Other threads remove what is over, each by one operation: no lock is needed.
        self._runs: dict[int, AgentRun] = {}
        self._jobs: dict[int, threading.Event] = {}

    def follow(self, order: Order) -> None:
        """Follow an order; what it refers to may be gone by now."""
        match order:
            case Ping(number=number):
                self._outbox.answer(Pong(number=number, t_ns=time.monotonic_ns(), utc_ns=time.time_ns()))
            case StartTelemetry(hz=hz):
                self._telemetry.start(hz)
            case StopTelemetry():
                self._telemetry.stop()
            case ChangeRate(hz=hz):
                self._telemetry.feed.set_rate(hz)
            case StartRun(number=number):
                self._answer(number, lambda: self._start_run(order))
            case StopRun(run=number, reason=reason):
                if (run := self._runs.get(number)) is not None:
                    run.local.stop(reason)
            case Took(run=number, events=events):
                if (run := self._runs.get(number)) is not None:
                    run.take(events)
            case TakeLease(number=number):
                self._answer(number, lambda: self._lease(order))
            case ReleaseLease(lease=number):
                if number in self._held:
                    self._held.pop(number).release()
            case KeepStandby(wanted=keep):
                self._wants_standby = keep
                self._launcher.prepare()
            case StartJob() | CancelJob():
                self._follow_job(order)
            case DescribeHost(number=number):
                describe = partial(self._answer, number, lambda: HostDescribed(number=number, environment=host_info()))
                threading.Thread(target=describe, name="host", daemon=True).start()
            case InspectHost(number=number):
                inspect = partial(self._answer, number, lambda: _inspect(order))
                threading.Thread(target=inspect, name="inspect", daemon=True).start()
            case ReadFile() | WriteFile() | RemoveFile():
                self._follow_file(order)

    def close(self) -> None:
        """End the sampler, which would otherwise be started again where it is killed; say nothing from now on."""
        self._outbox.end()
        self._telemetry.feed.close()

    def _start_run(self, order: StartRun) -> None:
        self._telemetry.feed.start()
        run = self._runs[order.number] = AgentRun(order, self._host, self._outbox, self._scratch)

        def make() -> None:
            try:
                run.local.run()
            finally:
                del self._runs[order.number]

        # On Linux a worker dies with the thread that started it: this one lasts as long.
        threading.Thread(target=partial(self._answer, order.number, make), name="run", daemon=True).start()

    def _lease(self, order: TakeLease) -> Report:
        lease = self._leases.take(order.devices, order.count)
        if lease is None:
            return Leased(number=order.number, devices=None)
        self._held[order.number] = lease
        return Leased(number=order.number, devices=lease.devices)

    def _follow_job(self, order: StartJob | CancelJob) -> None:
        if isinstance(order, CancelJob):
            if (job := self._jobs.get(order.job)) is not None:
                job.set()
            return
        cancelled = self._jobs[order.number] = threading.Event()
        make = partial(self._answer, order.number, lambda: self._run_job(order, cancelled))
        threading.Thread(target=make, name="job", daemon=True).start()

    def _run_job(self, order: StartJob, cancelled: threading.Event) -> Report:
        try:
            # The program knows which result it waits for.
            require(order_grants(order.request), typed)
            any_result = cast(type[JobResult], JobResult)
            result = run_job(self._scratch.with_paths(order.request), any_result, cancelled.is_set)
            return JobDone(number=order.number, result=result)
        finally:
            self._jobs.pop(order.number, None)

    def _follow_file(self, order: ReadFile | WriteFile | RemoveFile) -> None:
        number = order.number
        match order:
            case ReadFile():
                self._reads.submit(self._answer, number, lambda: self._scratch.read(order), say=self._outbox.say)
            case WriteFile():
                self._answer(number, lambda: self._scratch.write(order))
            case RemoveFile(name=name):
                self._answer(number, lambda: self._scratch.remove(name))

    def _answer(
        self, number: int, work: Callable[[], Report | None], say: Callable[[Report], None] | None = None
    ) -> None:
        """Do what was ordered and say what it returns, or why it could not be done.

        `work` returns None where it was said already, or nothing is; without `say` it is said at once.
        """
        try:
            report = work()
        except Exception as error:  # noqa: BLE001 - the edge of the process: the program is told, also of a bug
            kind = next(kind for kind, error_type in ERROR_KINDS.items() if isinstance(error, error_type))
            if kind == "bug":
                traceback.print_exc()
            reason = bug_message(error) if kind == "bug" else str(error)
            report = Refused(number=number, kind=kind, reason=reason)
        if report is not None:
            (say or self._outbox.answer)(report)


def _inspect(order: InspectHost) -> HostInspected:
    """Look at what a check of this host shows."""
    return HostInspected(
        number=order.number,
        user=psutil.Process().username(),
        home=str(Path.home()),
        home_free_bytes=shutil.disk_usage(Path.home()).free,
        frameworks=tuple(_inspect_framework(key, framework) for key, framework in FRAMEWORKS.items()),
    )


def _inspect_framework(name: str, framework: Framework) -> InspectedFramework:
    interpreter = default_interpreter()
    return InspectedFramework(
        name=name,
        interpreter=str(find_python(interpreter) or interpreter or sys.executable),
        version=installed_framework(interpreter, framework),
    )
