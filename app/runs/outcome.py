"""Form a run's outcome from the worker's last message, its exit code, and what the program did to it."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.values import units
from app.values.events import Outcome
from app.values.samples import Device
from workloads.catalog import FRAMEWORK, Framework, is_custom
from workloads.protocol import Finished, WorkerOutcome, sentence

BROKEN_PYTHON = "The Python of this run is none that can make runs, or is broken:"
"""Begins the reason where the process never said hello."""

EndMethod = Literal["itself", "closed stdin", "terminated", "killed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """What is known when the worker's process is gone.

    Attributes:
        finished: Its last message; None if it ended without.
        exit_code: Its exit status; a negative one is the signal that ended it.
        started: It said hello.
        fault: Why the program ended the worker: no progress, a broken protocol, a full disk.
        gpu_lost: A sentence about a GPU that stopped answering during the run.
        fatal_message: Text of the log's fatal line.
        ended_by: The last step that was needed to end it.
    """

    finished: Finished | None
    exit_code: int
    started: bool
    stop_requested: bool
    fault: str | None
    gpu_lost: str | None
    fatal_message: str | None = None
    ended_by: EndMethod


def form_outcome(ending: WorkerExit, framework: Framework = FRAMEWORK) -> Outcome:
    """Return the outcome: by the fault that the program found, else the worker's last message, else its exit code.

    A run that said it completed is completed, however its process ended then; a bad end is its reason.
    """
    outcome = _derive_outcome(ending, framework)
    if ending.gpu_lost is not None and outcome.name in ("failed", "crashed"):
        return replace(outcome, reason=f"{ending.gpu_lost} {outcome.reason or ''}".strip())
    return outcome


def with_memory_size(outcome: Outcome, devices: Sequence[Device]) -> Outcome:
    """Return the outcome; an `out_of_memory` names the memory of the smallest GPU, else of the machine."""
    if outcome.name != "out_of_memory":
        return outcome
    gpus = [device for device in devices if device.kind == "gpu"]
    sizes = [device.memory_total_bytes for device in gpus or devices if device.memory_total_bytes]
    if not sizes:
        return outcome
    name = gpus[0].name if gpus else "This machine"
    return replace(outcome, reason=f"{outcome.reason or ''} {name} has {units.byte_size(min(sizes))}.".strip())


def with_file_name(outcome: Outcome, workload: str) -> Outcome:
    """Return the outcome; a crash of a custom workload names its file, whose code may have ended the worker."""
    if outcome.name != "crashed" or not is_custom(workload):
        return outcome
    return replace(outcome, reason=f"{workload.partition(':')[0]}: {outcome.reason}")


def with_host(outcome: Outcome, host: str) -> Outcome:
    """Return the outcome, whose reason names the host: what refuses a run there calls it this machine, as "" is."""
    reason = (outcome.reason or "").replace("on this machine", f"on {host}" if host else "on this machine")
    return replace(outcome, reason=sentence(reason) or None)


def _derive_outcome(ending: WorkerExit, framework: Framework) -> Outcome:
    finished = ending.finished
    if ending.fault is not None:
        return _outcome(ending, "failed", ending.fault)
    if finished is not None:
        return Outcome(
            name=finished.outcome,
            reason=finished.reason or _reason_of(finished.outcome, ending),
            detail=finished.traceback,
            exit_code=ending.exit_code,
            ended_by=ending.ended_by,
        )
    if ending.stop_requested:
        return _outcome(ending, "stopped", "Stopped by the user.")
    return _outcome(ending, "crashed", _crash_reason(ending, framework))


def _reason_of(name: WorkerOutcome, ending: WorkerExit) -> str | None:
    """Return the reason where the worker gave none: what is measured counts, also if its process then breaks."""
    if name == "stopped":
        return "Stopped by the user."
    if ending.exit_code == 0 or ending.ended_by != "itself":
        return None
    end = f"exit status {ending.exit_code}" if ending.exit_code > 0 else _signal_name(-ending.exit_code)
    return f"All was measured; after that its process ended with {end}, see its log."


def _outcome(ending: WorkerExit, name: Literal["failed", "stopped", "crashed"], reason: str) -> Outcome:
    return Outcome(name=name, reason=reason, exit_code=ending.exit_code, ended_by=ending.ended_by)


def _crash_reason(ending: WorkerExit, framework: Framework) -> str:
    exit_code = ending.exit_code
    if ending.fatal_message is not None:
        return f"{framework.name} gave up: {ending.fatal_message}"
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
    """Return the name of a signal, or its number if it has none (the real-time signals)."""
    names = {member.value: member.name for member in signal.Signals}
    return names.get(number, f"signal {number}")
