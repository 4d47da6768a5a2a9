"""Short jobs besides runs, each in a fresh worker process: one request in, one result out."""

import queue
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from app.environments.packages import fetch_packages
from app.errors import UserError
from app.runs.launcher import BrokenMessage, Exited, LocalWorker, ProcessSpec, fatal_message, granted_python
from app.runs.leases import Leases, sleep_unstoppable
from app.values.samples import LogLine
from workloads.job_protocol import JobFailed, JobRequest, JobResult, decode_job_result

Kind = TypeVar("Kind", bound=JobResult)
Notify = Callable[[str], None]
"""Takes a sentence for the user while a job continues."""

_JOB_COMMAND = (sys.executable, "-m", "workloads.jobs")
_LOOK_S = 0.2
_LOG_LINES = 1_000
_JobEvent = JobResult | LogLine | BrokenMessage | Exited


class RunJob(Protocol):
    """Runs a job in a process of a host: `run_job`, or its equivalent on another machine."""

    def __call__(
        self, request: JobRequest, result_type: type[Kind], is_overdue: Callable[[], bool] | None = None, /
    ) -> Kind:
        """Run the job and return its result; see `run_job`."""


class JobError(UserError):
    """A job failed: one sentence, with a traceback after it if the reason is unknown."""


class JobCrashedError(JobError):
    """The process of a job ended without a result."""


@contextmanager
def leased(leases: Leases, candidates: Sequence[str], notify: Notify) -> Iterator[str]:
    """Lease one of these devices, so that no run measures on it during the job.

    The first is preferred. `notify` gets a sentence if the job has to wait.
    """
    waiting = "A run uses this device; waiting until it is free."
    lease = leases.wait(candidates, 1, on_wait=lambda: notify(waiting), wait_for_stop=sleep_unstoppable)
    assert lease is not None, "only an exception ends the waiting"
    try:
        yield lease.devices[0]
    finally:
        lease.release()


def run_job(request: JobRequest, result_type: type[Kind], is_overdue: Callable[[], bool] | None = None) -> Kind:
    """Run a job in a new process and return its result.

    `is_overdue` returns whether to end the job, called several times per second; None for no limit.

    Raises:
        JobError: The job failed.
        UserError: It needs a Python, packages or a text that are not granted, or unavailable packages.
        TimeoutError: It was overdue; its process has ended.
    """
    python = granted_python(request)
    if python.packages:
        fetch_packages(python.packages, python.interpreter, lambda _: is_overdue is None or not is_overdue())
    events: queue.SimpleQueue[_JobEvent] = queue.SimpleQueue()
    spec = ProcessSpec.current(_JOB_COMMAND, python)
    worker = LocalWorker(spec.start(), events.put, decode_job_result)
    worker.listen()
    worker.send(request)
    try:
        output = _listen(events, is_overdue)
    except BaseException:
        worker.kill()
        _listen(events, None)
        raise
    result = output.result
    if result is None:
        lines = [line for line in output.log if line.strip()] or ["it printed nothing."]
        last = next((message for line in lines if (message := fatal_message(line))), lines[-1])
        raise JobCrashedError(f"The process that did this ended with exit status {output.exit_code}: {last}")
    if isinstance(result, BrokenMessage):
        raise JobCrashedError(f"The process that did this broke the protocol: {result.reason}")
    if isinstance(result, JobFailed):
        log = "\n".join(output.log)
        traceback = log[log.find("Traceback") :] if "Traceback" in log else ""
        raise JobError("\n".join(filter(None, (result.reason, traceback))))
    if not isinstance(result, result_type):
        raise JobCrashedError("The process that did this broke the protocol: it answered something else.")
    return result


@dataclass(slots=True)
class _JobOutput:
    """The output of a job's process: its first result, and the last lines of its log."""

    result: JobResult | BrokenMessage | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))
    exit_code: int | None = 0


def _listen(events: "queue.SimpleQueue[_JobEvent]", is_overdue: Callable[[], bool] | None) -> _JobOutput:
    """Return a process's output until it ends; raises `TimeoutError` once it is overdue."""
    output = _JobOutput()
    while True:
        try:
            event = events.get(timeout=_LOOK_S)
        except queue.Empty:
            event = None
        match event:
            case Exited(exit_code=exit_code):
                output.exit_code = exit_code
                return output
            case LogLine(text=text):
                output.log.append(text)
            case None:
                pass
            case _:
                output.result = output.result or event
        if is_overdue is not None and is_overdue():
            raise TimeoutError
