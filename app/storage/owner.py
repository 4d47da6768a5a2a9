"""Identifies this machine, its boot, and the process that owns a run or queue entry, safely despite reused ids."""

import contextlib
import fcntl
import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import sqlite3  # not at run time: a host's Python, which only identifies itself, may lack it

_PROC = Path("/proc")
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_HOST_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its id, its start (seconds since boot on Linux, else since the epoch) and its boot."""

    pid: int
    started_s: float
    boot_id: str

    def is_alive(self) -> bool:
        """Return whether exactly this process still runs on this machine, in the same boot."""
        if self.boot_id != boot_id():
            return False
        started_s = _started_s(self.pid)
        return started_s is not None and abs(started_s - self.started_s) < 0.5


def this_process() -> Owner:
    pid = os.getpid()
    started_s = _started_s(pid)
    assert started_s is not None, "this very process runs"
    return Owner(pid, started_s, boot_id())


def lock_or_close(file: int) -> int | None:
    """Lock an open file while it is open, and return it; if another process has the lock, close it and return None.

    Raises:
        OSError: The file system cannot lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def unfinished_runs(connection: "sqlite3.Connection") -> list[tuple[int, Owner]]:
    """Return the runs without an outcome, with the process that owns each."""
    cursor = connection.execute("SELECT run, owner_pid, owner_started_s, owner_boot_id FROM runs WHERE outcome IS NULL")
    return [(run, Owner(pid, started_s, boot)) for run, pid, started_s, boot in cursor]


def boot_id() -> str:
    """Return the id of the machine's current boot: the kernel's, else the boot time."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"booted-{psutil.boot_time():.0f}"


def host_id() -> str:
    """Return a hash of this machine's id, the same at every start; without an id, of its name.

    The id itself must not leave the machine: https://www.freedesktop.org/software/systemd/man/machine-id.html
    """
    for path in _MACHINE_IDS:
        with contextlib.suppress(OSError):
            if machine_id := path.read_text(encoding="ascii").strip():
                break
    else:
        machine_id = platform.node()
    return hashlib.sha256(f"variantscope\0{machine_id}".encode()).hexdigest()[:_HOST_ID_DIGITS]


def _started_s(pid: int) -> float | None:
    """Return when a process started; None if it does not exist or is a zombie.

    On Linux this is field 22 of /proc/PID/stat (proc(5)), which, unlike psutil's time, does not move with the clock.
    """
    try:
        after_name = (
            (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        return None if after_name[0] == "Z" else int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return None if (_PROC / "self").exists() else _started_s_from_psutil(pid)
    except ProcessLookupError:
        return None


def _started_s_from_psutil(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
