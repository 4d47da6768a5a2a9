"""Leases of devices across processes: two runs never measure on the same GPU, or on the CPU, at the same time.

A lease is a lock (flock) on a small file in the temporary folder. The kernel releases it when its process ends, however
that ends, so no lease outlives its owner.
"""

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workloads.catalog import Machine, find_gpu
from workloads.protocol import RunSpec

CPU = "cpu"
"""The device that runs without a GPU lease."""

_RETRY_S = 0.2

_log = logging.getLogger("variantscope.run")


def candidate_devices(spec: RunSpec, machine: Machine) -> list[str]:
    """Return the devices a run may lease: the GPUs it names, else all, by UUID; the CPU if it needs no GPU."""
    if not int(spec.variant["gpus"]):
        return [CPU]
    names = [word.strip() for word in str(spec.variant["devices"]).split(",") if word.strip()]
    named = [gpu.uuid for word in names if (gpu := find_gpu(machine, word)) is not None]
    return named or [gpu.uuid for gpu in machine.gpus]


@dataclass(frozen=True, slots=True)
class Lease:
    """Devices that this process holds until `release`; empty for a run that needs none.

    Thread: any.
    """

    devices: tuple[str, ...] = ()
    _files: tuple[int, ...] = ()

    def release(self) -> None:
        """Give the devices back."""
        if self.devices:
            _log.info("released %s", ", ".join(self.devices))
        _unlock(self._files)


class Leases:
    """The leases of one machine.

    Thread: any.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Take the folder of the lock files; None for the system's temporary folder, which all programs share."""
        self._folder = folder or Path(tempfile.gettempdir())

    def take(self, candidates: Sequence[str], count: int) -> Lease | None:
        """Lease the first `count` free devices.

        Args:
            candidates: Devices to choose from, the preferred one first.
            count: How many are needed.

        Returns:
            The lease; None, with nothing held, if fewer are free.
        """
        acquired: dict[str, int] = {}
        for device in candidates:
            if len(acquired) == count:
                break
            file = self._lock(device)
            if file is not None:
                acquired[device] = file
        if len(acquired) < count:
            _unlock(acquired.values())
            return None
        _log.info("leased %s", ", ".join(acquired))
        return Lease(tuple(acquired), tuple(acquired.values()))

    def wait(
        self,
        candidates: Sequence[str],
        count: int,
        *,
        on_wait: Callable[[], None],
        wait_for_stop: Callable[[float], bool],
    ) -> Lease | None:
        """Lease devices, and wait until enough are free.

        Args:
            candidates: Devices to choose from, the preferred one first.
            count: How many are needed.
            on_wait: Called once if they are not free at once.
            wait_for_stop: Sleeps so many seconds; returns whether to wait no longer.

        Returns:
            The lease; None if the wait was given up.
        """
        lease = self.take(candidates, count)
        if lease is None:
            _log.info("waiting for %d of %s", count, ", ".join(candidates))
            on_wait()
        while lease is None and not wait_for_stop(_RETRY_S):
            lease = self.take(candidates, count)
        return lease

    def _lock(self, device: str) -> int | None:
        path = self._folder / f"variantscope-{device}.lock"
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.fchmod(file, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file


def _unlock(files: Iterable[int]) -> None:
    for file in files:
        # A child that another thread is starting has a copy of the file until its exec: a close alone does not unlock.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def sleep_unstoppable(seconds: float) -> bool:
    """Sleep, and return False: a wait with it ends only when its devices are free."""
    time.sleep(seconds)
    return False
