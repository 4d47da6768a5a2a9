"""What a process leaves behind when it ends: others that it started, which may hold its pipes open for hours."""

import contextlib
import os
import signal
import stat
from collections.abc import Collection
from pathlib import Path
from typing import IO

import psutil


def pipe_name(pipe: IO[bytes]) -> str:
    """The pipe, at either end, as Linux calls it in /proc/PID/fd (proc(5))."""
    return f"pipe:[{os.fstat(pipe.fileno()).st_ino}]"


def end_group(leader: int) -> None:
    """Kills a process that leads a group of its own, and all in that group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_writers(pipes: Collection[str]) -> list[int]:
    """Kills all that can write to these pipes, also those that left the group (Linux; elsewhere none is found)."""
    writers = [pid for pid in psutil.pids() if pid != os.getpid() and _writes_to(pid, pipes)]
    for pid in writers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return writers


def _writes_to(pid: int, pipes: Collection[str]) -> bool:
    # Another user's, or gone meanwhile; so may be any of its files.
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in pipes and link.lstat().st_mode & stat.S_IWUSR:
                    return True
    return False
