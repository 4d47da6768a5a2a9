"""The spool of a host: the runs that were detached, each with a folder of its own; see `app.spool_protocol`.

    python -m app.agent.spool

follows orders from stdin until that closes. A run's keeper (`app.agent.keeper`) holds the lock of its folder for as
long as the run goes on; whatever ends the keeper releases it.
"""

import contextlib
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app.agent_protocol import AGENT_PROTOCOL, CUT, EndWorker, Refused
from app.spool_protocol import (
    SPOOL_DAYS,
    DetachRun,
    FollowSpool,
    ListSpools,
    RemoveSpool,
    Spool,
    SpoolDrained,
    Spooled,
    SpoolOrder,
    SpoolReport,
    SpoolsListed,
)
from app.storage.owner import boot_id, host_id, lock_or_close

LINES, ORDERS = "lines", "orders"
"""In a run's folder: the file of lines, and the named pipe of orders for its keeper."""
_LOCK, _STDERR = "lock", "stderr"
_UID = re.compile(r"[0-9a-f]{8,64}")
_READ_BYTES = 1 << 18
_LOOK_S = 0.05
_BLOCKED_S = 60
"""A reader that takes nothing for so long is gone: the network is cut."""
_BEGIN_S = 30.0
_DAY_S = 86_400


def spool_folder() -> Path:
    """Return the folder of the spool: the user's, for programs' states (XDG Base Directory Specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "variantscope" / "detached"


def lock_spool(folder: Path) -> int | None:
    """Return the open lock of a run's folder; None where its keeper has it."""
    return lock_or_close(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def read_spooled(folder: Path) -> Spooled:
    """Return what a run's file of lines begins with; raises `OSError` and `msgspec.DecodeError`."""
    with (folder / LINES).open("rb") as file:
        return msgspec.json.decode(file.readline(), type=Spooled)


def _goes_on(folder: Path) -> bool:
    try:
        lock = lock_spool(folder)
    except FileNotFoundError:
        return False  # whoever had the whole run first has removed it; what is open can be read to its end
    if lock is not None:
        os.close(lock)
    return lock is None


class _Orders:
    """The orders on stdin, as bytes that come when they come."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_closed = False

    def take(self, wait_s: float | None) -> list[bytes]:
        """Return the lines that came, after waiting so long at most for some; None waits for ever."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # a keeper that was started here and has ended
        if self.is_closed or not select.select([0], [], [], wait_s)[0]:
            return []
        data = os.read(0, _READ_BYTES)
        self.is_closed = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class _Spooler:
    """Follows the orders; says everything on stdout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._orders = _Orders()

    def serve(self) -> None:
        """Follow orders until stdin closes."""
        decoder: msgspec.json.Decoder[SpoolOrder] = msgspec.json.Decoder(SpoolOrder)
        while not self._orders.is_closed:
            for line in self._orders.take(None):
                try:
                    self._follow(decoder.decode(line))
                except (OSError, msgspec.DecodeError) as error:
                    self._refuse(f"The spool in {self._folder} cannot be used: {error}.")

    def _follow(self, order: SpoolOrder) -> None:
        match order:
            case DetachRun():
                self._detach(order)
            case ListSpools():
                self._say(SpoolsListed(tuple(self._spools())))
            case FollowSpool(uid=uid):
                if (folder := self._find(uid)) is not None:
                    self._play(folder)
            case RemoveSpool(uid=uid):
                self._remove(uid)
            case EndWorker():
                pass  # the run that it was for is over

    def _detach(self, run: DetachRun) -> None:
        """Start the keeper of a new run."""
        if not _UID.fullmatch(run.uid):
            self._refuse(f"{run.uid[:80]!r} is no id of a run.")
            return
        folder = self._folder / run.uid
        folder.mkdir(mode=0o700, parents=True)
        os.mkfifo(folder / ORDERS, 0o600)
        spooled = Spooled(
            run=run,
            protocol=AGENT_PROTOCOL,
            hostname=platform.node(),
            host_id=host_id(),
            boot_id=boot_id(),
            t_ns=time.monotonic_ns(),
        )
        (folder / LINES).write_bytes(msgspec.json.encode(spooled) + b"\n")
        size = (folder / LINES).stat().st_size
        with (folder / _STDERR).open("wb") as stderr:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "app.agent.keeper", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        # The agent's first line: from here on it goes on by itself.
        end_s = time.monotonic() + _BEGIN_S
        while (folder / LINES).stat().st_size == size:
            if keeper.poll() is not None or time.monotonic() > end_s:
                said = (folder / _STDERR).read_text(encoding="utf-8", errors="replace").strip().splitlines()
                keeper.kill()
                shutil.rmtree(folder)
                self._refuse(f"No agent could be started for the run: {said[-1] if said else 'it printed nothing'}.")
                return
            time.sleep(_LOOK_S)
        self._say(SpoolsListed((_spool(folder),)))

    def _spools(self) -> Iterator[Spool]:
        """Yield the runs, the oldest first; remove those that nobody wanted for too long."""
        found = []
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            with contextlib.suppress(OSError, msgspec.DecodeError):
                spool = _spool(folder)
                if not spool.goes_on and time.time_ns() - spool.changed_utc_ns > SPOOL_DAYS * _DAY_S * 1e9:
                    shutil.rmtree(folder)
                else:
                    found.append(spool)
        yield from sorted(found, key=lambda spool: spool.spooled.run.utc_ns)

    def _remove(self, uid: str) -> None:
        folder = self._folder / uid
        if not _UID.fullmatch(uid):
            self._refuse(f"{uid[:80]!r} is no id of a run.")
        elif folder.is_dir() and _goes_on(folder):
            self._refuse("The run goes on still; only one that is over can be removed.")
        else:
            with contextlib.suppress(FileNotFoundError):  # another may be removing it
                shutil.rmtree(folder)
            self._say(SpoolsListed(()))

    def _find(self, uid: str) -> Path | None:
        folder = self._folder / uid
        if _UID.fullmatch(uid) and (folder / LINES).is_file():
            return folder
        self._refuse("That run is not in the spool any more.")
        return None

    def _play(self, folder: Path) -> None:
        """Say the lines of a run until its keeper has ended, and pass on orders for its worker."""
        with (folder / LINES).open("rb", buffering=0) as file:
            is_last = False
            while not self._orders.is_closed:
                if data := file.read(_READ_BYTES):
                    _write(data)
                elif is_last:
                    if not _ends_whole(file.fileno()):
                        _write(CUT)
                    self._say(SpoolDrained(boot_id()))
                    return
                else:
                    is_last = not _goes_on(folder)
                for line in self._orders.take(0.0 if data or is_last else _LOOK_S):
                    _pass_on(line, folder / ORDERS)

    def _refuse(self, reason: str) -> None:
        self._say(Refused(number=0, kind="user error", reason=reason))

    @staticmethod
    def _say(report: SpoolReport) -> None:
        _write(msgspec.json.encode(report) + b"\n")


def _spool(folder: Path) -> Spool:
    found = (folder / LINES).stat()
    return Spool(
        spooled=read_spooled(folder),
        goes_on=_goes_on(folder),
        size_bytes=found.st_size,
        changed_utc_ns=found.st_mtime_ns,
    )


def _ends_whole(file: int) -> bool:
    return os.pread(file, 1, os.fstat(file).st_size - 1) == b"\n"


def _pass_on(line: bytes, pipe: Path) -> None:
    # ENXIO, ENOENT: the keeper is gone.
    with contextlib.suppress(OSError):
        file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(file, line + b"\n")
        finally:
            os.close(file)


def _write(data: bytes) -> None:
    """Write to stdout; where nobody takes it, this process ends."""
    view = memoryview(data)
    while view:
        signal.alarm(_BLOCKED_S)
        view = view[os.write(1, view) :]
    signal.alarm(0)


if __name__ == "__main__":
    os.umask(0o077)
    _Spooler(spool_folder()).serve()
