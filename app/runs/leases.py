"""Leases of devices across processes: two runs never measure on the same GPU, or on the CPU, at the same time.

On Linux a lease is an abstract socket's name (https://man7.org/linux/man-pages/man7/unix.7.html): only one process of
the machine, of any user, can hold it, and there is no file that somebody could remove, replace or block. If
`VARIANTSCOPE_LOCK_DIR` names a folder, and on other systems, it is a lock (flock) on a small file in a folder. The
kernel releases both when the process ends in any way, so no lease outlives its owner.
"""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psutil

from app.errors import UserError
from app.storage.owner import lock_or_close
from workloads.catalog import Machine, find_gpu
from workloads.protocol import RunSpec

FOLDER_VARIABLE = "VARIANTSCOPE_LOCK_DIR"
"""The environment variable for a folder of lock files; programs with the same folder exclude each other."""

CPU = "cpu"
"""The device of runs without a GPU."""

_CPU_TURN = "cpu-turn"
"""The lease of whoever gets the CPU next."""

_RETRY_S = 0.2
_HOST_CHARS, _MAX_NAME_CHARS = 16, 80
"""The longest host and device names in a lock's name: a socket's has 107 bytes."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Neither follows links nor waits for the writer of a pipe."""

_log = logging.getLogger("variantscope.run")


def candidate_devices(spec: RunSpec, machine: Machine) -> list[str]:
    """Return the devices a run may lease: the GPUs it names, else all, by UUID; without GPUs the CPU."""
    if not int(spec.variant["gpus"]):
        return [CPU]
    names = [word.strip() for word in str(spec.variant["devices"]).split(",") if word.strip()]
    named = [gpu.uuid for word in names if (gpu := find_gpu(machine, word)) is not None]
    return named or [gpu.uuid for gpu in machine.gpus]


@dataclass(frozen=True, slots=True)
class Lease:
    """Devices that this process holds until `release`; empty if a run needs none. Thread: any."""

    devices: tuple[str, ...] = ()
    _give_back: Callable[[], None] = lambda: None

    def release(self) -> None:
        if self.devices:
            _log.info("released %s", ", ".join(self.devices))
        self._give_back()


class Leases:
    """The leases of one machine. Another one's are leased among this machine's runs, and there among all its users'.

    Thread: any.
    """

    def __init__(self, folder: Path | None = None, *, host_id: str = "", schedules: bool = False) -> None:
        """Use this folder of lock files; None for that of the environment, or what all users of the machine share.

        `host_id` is another machine's. If it `schedules`, a run leases nothing: its node is still unknown.
        """
        named = os.environ.get(FOLDER_VARIABLE)
        self._folder = folder or (Path(named) if named else None)
        self._prefix = f"{host_id[:_HOST_CHARS]}:" if host_id else ""
        self._schedules = schedules

    def take(self, candidates: Sequence[str], count: int) -> Lease | None:
        """Lease the first `count` free devices; candidates are in order of preference.

        Returns:
            The lease; None, with nothing held, if fewer are free.

        Raises:
            UserError: A lock file is unusable.
        """
        if self._schedules:
            return Lease()
        acquired: dict[str, int] = {}
        try:
            for device in candidates:
                if len(acquired) == count:
                    break
                file = self._lock(device)
                if file is not None:
                    acquired[device] = file
        except UserError:
            _unlock(acquired.values())
            raise
        if len(acquired) < count:
            _unlock(acquired.values())
            return None
        _log.info("leased %s", ", ".join(acquired))
        return Lease(tuple(acquired), partial(_unlock, tuple(acquired.values())))

    def wait(
        self,
        candidates: Sequence[str],
        count: int,
        *,
        on_wait: Callable[[], None],
        wait_for_stop: Callable[[float], bool],
        runs_anyway: Callable[[], bool] = lambda: False,
    ) -> Lease | None:
        """Lease devices, and wait until enough are free, or the user lets the run share them.

        The first to wait for the CPU gets it first: an experiment frees it only for moments.

        Candidates are in order of preference. `on_wait` is called once if they are not free immediately.
        `wait_for_stop` sleeps that many seconds; it returns whether to stop waiting. `runs_anyway` returns whether to
        use the devices although others do.

        Returns:
            The lease, which holds nothing if devices are shared; None if the wait was given up.

        Raises:
            UserError: As `take` does.
        """
        turn = None if list(candidates) == [CPU] else Lease()
        waits = False
        try:
            while True:
                turn = turn or self.take([_CPU_TURN], 1)
                lease = self.take(candidates, count) if turn else None
                if lease is not None:
                    return lease
                if not waits:
                    waits = True
                    _log.info("waiting for %d of %s", count, ", ".join(candidates))
                    on_wait()
                if runs_anyway():
                    _log.warning("shares %d of %s", count, ", ".join(candidates))
                    return Lease(tuple(candidates[:count]))
                if wait_for_stop(_RETRY_S):
                    return None
        finally:
            if turn is not None:
                turn.release()

    def describe_holder(self, devices: Sequence[str]) -> str:
        """Look for the process that holds the name of a device; only root sees those of other users."""
        if self._folder is not None or sys.platform != "linux":
            return ""
        names = {f"@{self._lock_name(device)}" for device in devices}
        with contextlib.suppress(psutil.Error, OSError):
            sockets = (socket for socket in psutil.net_connections("unix") if str(socket.laddr) in names)
            for pid in (socket.pid for socket in sockets if socket.pid):
                if pid == os.getpid():
                    return "another run of this program"
                process = psutil.Process(pid)
                since = time.strftime("%H:%M", time.localtime(process.create_time()))
                return f"{process.username()}'s process {pid}, started at {since},"
        return ""

    def _lock(self, device: str) -> int | None:
        name = self._lock_name(device)
        lock_name = device
        try:
            if self._folder is None and sys.platform == "linux":
                return _bind(name)
            path = (self._folder or _user_folder()) / f"{name}.lock"
            lock_name = str(path)
            return _lock_file(path)
        except OSError as error:
            raise UserError(
                f"{lock_name} cannot be locked ({error.strerror}); delete it if it is not a lock file, or name a folder"
                f" that you can write to in {FOLDER_VARIABLE}."
            ) from error

    def _lock_name(self, device: str) -> str:
        return f"variantscope-{quote(f'{self._prefix}{device}', safe='')[:_MAX_NAME_CHARS]}"


def _bind(name: str) -> int | None:
    """Return an open socket with this abstract name; None if another process has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(f"\0{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        return claim.detach()


def _user_folder() -> Path:
    import platformdirs  # here: few systems need it

    folder = platformdirs.user_runtime_path("variantscope")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _lock_file(path: Path) -> int | None:
    """Return an open, locked file, created if missing; None if another process has locked it.

    In the user's own folder nobody else can open it. In a shared folder others can, but cannot change it: a lock needs
    no write permission.
    """
    status = path.parent.stat()
    is_private = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return lock_or_close(_open_regular(path, 0o600 if is_private else 0o644))


def _open_regular(path: Path, mode: int) -> int:
    """Open a file that is no link, pipe or folder; create a missing one with this mode, whatever the umask."""
    try:
        # Not with O_CREAT: Linux forbids that for another user's file in a folder like /tmp (fs.protected_regular).
        file = os.open(path, _OPEN)
    except FileNotFoundError:
        try:
            file = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:  # another program was faster
            file = os.open(path, _OPEN)
        else:
            os.fchmod(file, mode)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a file")
    return file


def _unlock(files: Iterable[int]) -> None:
    for file in files:
        # A child that another thread is starting has a copy of the file until its exec: a close alone does not unlock.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def sleep_unstoppable(seconds: float) -> bool:
    """Sleep, and return False: for a wait that ends only when its devices are free."""
    time.sleep(seconds)
    return False
