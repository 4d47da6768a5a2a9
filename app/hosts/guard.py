"""The guard of the program on a host: the process that a launcher starts outlives the program, and ends what it leaves.

Workers end with their program: their stdin closes, and Linux kills them. But what they have started themselves lives on
where the program is killed, and so would the scratch folder. So the first process forks the program and does nothing
but wait for it. As a subreaper it becomes the parent of every orphan below it (prctl(2)), and kills them all. Where the
guard is killed, the program sees its end of a pipe close, and does the same.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import psutil

from app.grants import FILE_VARIABLE as GRANTS_VARIABLE

_PR_SET_CHILD_SUBREAPER = 36
_END_S = 10.0
"""A killed process that is still there after so long hangs in a driver: it ends when that lets go of it."""
_LOOK_S = 0.01


def start_guard() -> tuple[Path, int]:
    """Fork the program and guard it; return only in the program, before it has threads.

    Returns:
        The program's scratch folder, and the file that closes when the guard is gone.
    """
    # Ctrl-C in a terminal is for the program here, which closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scratch = Path(tempfile.mkdtemp(prefix="variantscope-host-"))
    # What is ordered was allowed where it is ordered: it is granted here for as long as this process lives.
    os.environ[GRANTS_VARIABLE] = str(scratch / "grants" / "grants.json")
    read_end, write_end = os.pipe()
    if program := os.fork():
        os.close(read_end)
        with contextlib.suppress(OSError):
            os.close(0)
        _become_subreaper()
        status = _wait_for(program)
        end_everything(scratch)
        os._exit(status)
    os.close(write_end)
    # A launcher may kill the group of the process that it started: that must not be both.
    os.setsid()
    return scratch, read_end


def _wait_for(program: int) -> int:
    """Wait for the program, and pass on what asks it to end; return the status to exit with, as shells make it."""

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        os.kill(program, signal.SIGTERM)

    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    for number in signals:
        signal.signal(number, pass_on)
    while (ended := os.waitpid(-1, 0))[0] != program:
        pass  # an orphan of a worker
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    exit_code = os.waitstatus_to_exitcode(ended[1])
    if exit_code < 0:
        print_error(f"The program on this host was ended by signal {-exit_code}.")
    return exit_code if exit_code >= 0 else 128 - exit_code


def end_everything(scratch: Path) -> None:
    """Kill every process below this one, and remove the scratch folder."""
    _become_subreaper()
    end_s = time.monotonic() + _END_S
    while left := psutil.Process().children(recursive=True):
        if time.monotonic() > end_s:
            numbers = ", ".join(str(process.pid) for process in left)
            print_error(f"What was started here does not end (process {numbers}): it may hang in a driver.")
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_LOOK_S)
    shutil.rmtree(scratch, ignore_errors=True)


def print_error(sentence: str) -> None:
    """Say a sentence on stderr, which the launcher brings to the user."""
    with contextlib.suppress(OSError):
        os.write(2, f"{sentence}\n".encode(errors="replace"))


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
