"""How a run ended, formed from the worker's last message, its exit code and what the program did to it."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.records import Outcome
from app.samples import Device
from workloads.catalog import FRAMEWORK, is_custom
from workloads.protocol import Finished

_FATAL = re.compile(r"F\d{4} .*?\] (.+)")
_MAX_REASON_CHARS = 300
BROKEN_PYTHON = "The Python of this run is none that can make runs, or is broken:"
"""What is said of a process that never said hello."""

EndMethod = Literal["itself", "closed stdin", "terminated", "killed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """What is known when the worker's process is gone.

    `began`: it said hello; `stop_asked`: the user asked; `fault`: why the program itself ended the worker (no progress,
    broken protocol, a full disk); `lost`: the GPU that stopped answering meanwhile, as a sentence; `last_words`: the
    fatal line of the log, if it has one; `ended_by`: the last rung of the ladder that was needed.
    """

    finished: Finished | None
    exit_code: int
    started: bool
    stop_requested: bool
    fault: str | None
    gpu_lost: str | None
    fatal_message: str | None = None
    ended_by: EndMethod


def form_outcome(ending: WorkerExit) -> Outcome:
    """The outcome: a fault of the program's finding first, then the worker's own word, then its exit code."""
    outcome = _derive_outcome(ending)
    if ending.gpu_lost is not None and outcome.name in ("failed", "crashed"):
        return replace(outcome, reason=f"{ending.gpu_lost} {outcome.reason or ''}".strip())
    return outcome


def with_memory_size(outcome: Outcome, devices: Sequence[Device]) -> Outcome:
    """An `out_of_memory` that says how much memory there is: on its smallest GPU, else in the machine."""
    if outcome.name != "out_of_memory":
        return outcome
    gpus = [device for device in devices if device.kind == "gpu"]
    sizes = [device.memory_total_bytes for device in gpus or devices if device.memory_total_bytes]
    if not sizes:
        return outcome
    name = gpus[0].name if gpus else "This machine"
    return replace(outcome, reason=f"{outcome.reason or ''} {name} has {min(sizes) / 2**30:.1f} GiB.".strip())


def with_file_name(outcome: Outcome, workload: str) -> Outcome:
    """A crash that names the user's own file, where the run was of one: what is in it may have ended the worker."""
    if outcome.name != "crashed" or not is_custom(workload):
        return outcome
    return replace(outcome, reason=f"{workload.partition(':')[0]}: {outcome.reason}")


def _derive_outcome(ending: WorkerExit) -> Outcome:
    finished = ending.finished
    if ending.fault is not None:
        return _outcome(ending, "failed", ending.fault)
    if finished is not None:
        return Outcome(
            name=finished.outcome,
            reason=finished.reason or ("Stopped by the user." if finished.outcome == "stopped" else None),
            detail=finished.traceback,
            exit_code=ending.exit_code,
            ended_by=ending.ended_by,
        )
    if ending.stop_requested:
        return _outcome(ending, "stopped", "Stopped by the user.")
    return _outcome(ending, "crashed", _crash_reason(ending))


def _outcome(ending: WorkerExit, name: Literal["failed", "stopped", "crashed"], reason: str) -> Outcome:
    return Outcome(name=name, reason=reason, exit_code=ending.exit_code, ended_by=ending.ended_by)


def fatal_message(line: str) -> str | None:
    """What a log line says if it is the last word of a library that gives up (Abseil's `F0000 … file.cc:1] words`)."""
    found = _FATAL.match(line)
    return found.group(1)[:_MAX_REASON_CHARS] if found else None


def _crash_reason(ending: WorkerExit) -> str:
    exit_code = ending.exit_code
    if ending.fatal_message is not None:
        return f"{FRAMEWORK.name} gave up: {ending.fatal_message}"
    if exit_code == -signal.SIGKILL:
        return "The worker was killed (SIGKILL), often for want of memory in the machine; its log has the last lines."
    if exit_code < 0:
        return f"The worker died of {_signal_name(-exit_code)}; its log has the last lines."
    if not ending.started:
        return (
            f"{BROKEN_PYTHON} it ended with exit status {exit_code} before the run began; its log has the last lines."
        )
    return f"The worker ended with exit status {exit_code} without saying how the run went; its log has the last lines."


def _signal_name(number: int) -> str:
    """Its name, or its number where it has none (the real-time signals)."""
    known = {known.value: known.name for known in signal.Signals}
    return known.get(number, f"signal {number}")
