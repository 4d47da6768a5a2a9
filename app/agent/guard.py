"""The agent's guard: the process that was started, the parent of the agent proper, outlives it and ends what it leaves.

Workers end with their agent: their stdin closes, and Linux kills them. But what they have started themselves lives on
where the agent is killed, and so would the scratch folder. So the first process forks the agent and does nothing but
wait for it. As a subreaper it becomes the parent of every orphan below it (prctl(2)), and kills them all. If the guard
is killed, the agent sees its end of a pipe close and does the same. What is nobody's child then has their scratch
folder in its environment. If both are killed at once, the next agent of this user ends what they left: their folder
is there, but no longer locked.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import psutil

from app.grants import FILE_VARIABLE as GRANTS_VARIABLE
from app.storage.owner import boot_id, lock_or_close

_PR_SET_CHILD_SUBREAPER = 36
_FOLDER_VARIABLE = "VARIANTSCOPE_AGENT_FOLDER"
_END_S = 10.0
"""A killed process that is still there after so long hangs in a driver: it ends when that lets go of it."""
_LOOK_S = 0.01
_NEW_S = 5.0


def start_guard() -> tuple[Path, int]:
    """Fork the agent and guard it; return only in the agent.

    Returns:
        The agent's scratch folder, and the file that closes when the guard is gone.
    """
    # Ctrl-C in a terminal is for the program, which closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Of this boot: a folder for temporary files may be shared by machines.
    prefix = f"variantscope-agent-{boot_id()[:8]}-"
    end_abandoned(Path(tempfile.gettempdir()), prefix)
    scratch = Path(tempfile.mkdtemp(prefix=prefix))
    with contextlib.suppress(OSError):  # no locks there: then nobody else takes it for left over
        # Held by guard and agent, for they share the open file; by nothing that they start.
        _lock(scratch)
    os.environ[_FOLDER_VARIABLE] = str(scratch)
    # What the program orders was allowed there: it is granted here for as long as the agent lives.
    os.environ[GRANTS_VARIABLE] = str(scratch / "grants" / "grants.json")  # in a folder that nobody has locked
    read_end, write_end = os.pipe()
    if agent := os.fork():
        os.close(read_end)
        with contextlib.suppress(OSError):
            os.close(0)
        _become_subreaper()
        status = _wait_for(agent)
        end_everything(scratch)
        os._exit(status)
    os.close(write_end)
    # A carrier may kill the group of the process that it started: that must not be both.
    os.setsid()
    return scratch, read_end


def _wait_for(agent: int) -> int:
    """Wait for the agent, and pass on what asks it to end; return the status to exit with, as shells make it."""

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        os.kill(agent, signal.SIGTERM)

    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    for number in signals:
        signal.signal(number, pass_on)
    while (ended := os.waitpid(-1, 0))[0] != agent:
        pass  # an orphan of a worker
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    exit_code = os.waitstatus_to_exitcode(ended[1])
    if exit_code < 0:
        print_error(f"The agent was ended by signal {-exit_code}.")
    return exit_code if exit_code >= 0 else 128 - exit_code


def end_everything(scratch: Path) -> None:
    """Kill every process that comes from the agent, and remove its scratch folder."""
    _become_subreaper()
    _end(lambda: psutil.Process().children(recursive=True) or _orphans(scratch))
    shutil.rmtree(scratch, ignore_errors=True)


def _end(left: Callable[[], Sequence[psutil.Process]]) -> None:
    """Kill what is left until nothing is, and say what hangs."""
    end_s = time.monotonic() + _END_S
    while processes := left():
        if time.monotonic() > end_s:
            numbers = ", ".join(str(process.pid) for process in processes)
            print_error(f"What this agent started does not end (process {numbers}): it may hang in a driver.")
            return
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_LOOK_S)


def _orphans(scratch: Path) -> list[psutil.Process]:
    """Return the processes that an agent or others below it have started, whoever is their parent now."""
    orphans = []
    # Guard and agent have set the variable only after they were started.
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_FOLDER_VARIABLE) == str(scratch):
                orphans.append(process)
    return orphans


def end_abandoned(folder: Path, prefix: str, new_s: float = _NEW_S) -> None:
    """End what agents of this user left that are gone like their guards.

    A scratch folder that changed within `new_s` is left alone: it may have been made just now, and not be locked yet.
    """
    for scratch in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # gone by now, or another user's
            status = scratch.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if is_ours and time.time() - status.st_ctime > new_s and (file := _lock(scratch)) is not None:
                _end(partial(_orphans, scratch))
                shutil.rmtree(scratch, ignore_errors=True)
                os.close(file)


def _lock(scratch: Path) -> int | None:
    """Return a scratch folder, open and locked; None where another process has locked it. Raises `OSError`."""
    return lock_or_close(os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))


def print_error(sentence: str) -> None:
    """Say a sentence on stderr, which the carrier brings to the user."""
    with contextlib.suppress(OSError):
        os.write(2, f"{sentence}\n".encode(errors="replace"))


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
