"""Short jobs besides runs, each in a fresh worker process: one request in, one result out."""

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from app.errors import UserError
from app.runs.launcher import ProcessSpec, end_writers, kill_process_group, pipe_name
from app.runs.leases import Leases, sleep_unstoppable
from app.runs.outcome import fatal_message
from workloads.job_protocol import ComputeGradients, JobFailed, JobRequest, JobResult, decode_job_result
from workloads.protocol import ProtocolError, encode

Kind = TypeVar("Kind", bound=JobResult)
Notify = Callable[[str], None]
"""Takes a sentence for the user while a job goes on."""

_JOB_COMMAND = (sys.executable, "-m", "workloads.jobs")
_LOOK_S = 0.2


class JobError(UserError):
    """A job failed: one sentence, with a traceback after it if the reason is unknown."""


class JobCrashedError(JobError):
    """The process of a job ended without a result."""


@contextmanager
def leased(leases: Leases, candidates: Sequence[str], notify: Notify) -> Iterator[str]:
    """Lease one of these devices, so that no run measures on it during the job.

    Args:
        leases: Leases of the machine.
        candidates: Devices to choose from, the preferred one first.
        notify: Gets a sentence if the job has to wait.
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

    Args:
        request: The job.
        result_type: Type of its result.
        is_overdue: Returns whether to end the job, called several times per second; None for no limit.

    Raises:
        JobError: The job failed.
        TimeoutError: It was overdue; its process is gone.
    """
    interpreter = request.spec.variant.get("interpreter", "") if isinstance(request, ComputeGradients) else ""
    with ProcessSpec.current(_JOB_COMMAND, str(interpreter)).start() as process:
        output, log_bytes = _communicate(process, encode(request), is_overdue)
    log = log_bytes.decode(errors="replace")
    try:
        result = decode_job_result(output)
    except ProtocolError:
        raise JobCrashedError(
            f"The process that did this ended with exit status {process.returncode}: {_last_log_line(log)}"
        ) from None
    if isinstance(result, JobFailed):
        traceback = log[log.find("Traceback") :] if "Traceback" in log else ""
        raise JobError("\n".join(filter(None, (result.reason, traceback))))
    assert isinstance(result, result_type), f"{result} answers {request}"
    return result


def _communicate(
    process: "subprocess.Popen[bytes]", request: bytes, is_overdue: Callable[[], bool] | None
) -> tuple[bytes, bytes]:
    """Return what a process writes to its two pipes until it ends; raises `TimeoutError` once it is overdue."""
    pipes = [pipe_name(pipe) for pipe in (process.stdout, process.stderr) if pipe is not None]
    unsent: bytes | None = request
    has_exited = False
    try:
        while True:
            try:
                return process.communicate(unsent, _LOOK_S)
            except subprocess.TimeoutExpired as late:
                unsent = None
                if has_exited:
                    return late.output or b"", late.stderr or b""
                has_exited = process.poll() is not None
                if has_exited:
                    # Orphans hold its pipes open.
                    _end_orphans(process.pid, pipes)
                elif is_overdue is not None and is_overdue():
                    raise TimeoutError from None
    finally:
        _end_orphans(process.pid, pipes)


def _end_orphans(leader: int, pipes: Collection[str]) -> None:
    kill_process_group(leader)
    end_writers(pipes)


def _last_log_line(log: str) -> str:
    """Return the text by which a library aborted, else the last line of the log."""
    lines = log.strip().splitlines() or ["it said nothing."]
    return next((message for line in lines if (message := fatal_message(line))), lines[-1])
