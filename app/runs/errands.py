"""Small jobs beside runs, each in a fresh process with TensorFlow: one errand goes down, one answer comes up."""

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from app.errors import UserError
from app.runs.launcher import Birth
from app.runs.leases import Leases, never_stopped
from app.runs.leftovers import end_group, end_writers, pipe_name
from app.runs.outcome import fatal_words
from workloads.protocol import Answer, Declined, Errand, ProtocolError, decode_answer, encode

Kind = TypeVar("Kind", bound=Answer)
Told = Callable[[str], None]
"""Takes a sentence for the user while an errand goes on."""

_ERRANDS = (sys.executable, "-m", "workloads.errands")
_LOOK_S = 0.2


class ErrandError(UserError):
    """An errand could not be done: one sentence, and a traceback after it where the reason is not known."""


class ErrandCutOffError(ErrandError):
    """The errand's process ended without an answer."""


@contextmanager
def leased(leases: Leases, candidates: Sequence[str], told: Told) -> Iterator[str]:
    """One of these devices, held so that no run measures on it meanwhile."""
    waiting = "A run uses this device; waiting until it is free."
    lease = leases.wait(candidates, 1, told=lambda: told(waiting), stopped=never_stopped)
    assert lease is not None, "only an exception ends the waiting"
    try:
        yield lease.devices[0]
    finally:
        lease.release()


def ask(errand: Errand, kind: type[Kind], over: Callable[[], bool] | None = None) -> Kind:
    """The answer of a fresh process, which is of that kind; raises `ErrandError`.

    Raises `TimeoutError` once it is `over`, the process is gone then.
    """
    with Birth.now(_ERRANDS).start() as process:
        said, noise = _communicated(process, encode(errand), over)
    log = noise.decode(errors="replace")
    try:
        answer = decode_answer(said)
    except ProtocolError:
        raise ErrandCutOffError(
            f"The process that did this ended with exit status {process.returncode}: {_last_words(log)}"
        ) from None
    if isinstance(answer, Declined):
        traceback = log[log.find("Traceback") :] if "Traceback" in log else ""
        raise ErrandError("\n".join(filter(None, (answer.reason, traceback))))
    assert isinstance(answer, kind), f"{answer} answers {errand}"
    return answer


def _communicated(
    process: "subprocess.Popen[bytes]", told: bytes, over: Callable[[], bool] | None
) -> tuple[bytes, bytes]:
    """What a process says on its two pipes until it ends, asking now and then whether it is over."""
    pipes = [pipe_name(pipe) for pipe in (process.stdout, process.stderr) if pipe is not None]
    left: bytes | None = told
    gone = False
    try:
        while True:
            try:
                return process.communicate(left, _LOOK_S)
            except subprocess.TimeoutExpired as late:
                left = None
                if gone:
                    return late.output or b"", late.stderr or b""
                gone = process.poll() is not None
                if gone:
                    # What it left behind holds its pipes open.
                    _end_leftovers(process.pid, pipes)
                elif over is not None and over():
                    raise TimeoutError from None
    finally:
        _end_leftovers(process.pid, pipes)


def _end_leftovers(leader: int, pipes: Collection[str]) -> None:
    end_group(leader)
    end_writers(pipes)


def _last_words(log: str) -> str:
    """What a library that gave up says in the log, else its last line."""
    lines = log.strip().splitlines() or ["it said nothing."]
    return next((words for line in lines if (words := fatal_words(line))), lines[-1])
