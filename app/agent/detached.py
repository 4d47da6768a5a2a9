"""The spool of a host: runs that go on without the program, each made by its own process; see `app.spool_protocol`.

    python -m app.agent.detached           follows the program's orders from stdin until that closes
    python -m app.agent.detached FOLDER    makes the run of a folder and writes its recording there

Whoever makes a run holds the lock of its folder for as long as the run goes on; whatever ends it releases the lock.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app.agent.guard import end_everything, start_guard
from app.agent_protocol import FILE_PIECE_BYTES, FilePart, Refused
from app.errors import UserError, bug_message
from app.events import RunEvent
from app.fields import Sample, SlowSample
from app.grants import order_grants, require, typed
from app.recording import CUT, head_line
from app.runs.environment import host_info, inventory_info
from app.runs.host import ClockAnchor, Host, WorkerTimeouts
from app.runs.maker import RunMaker
from app.samples import TelemetryGap, Waiting
from app.spool_protocol import (
    MOST_SPOOL_BYTES,
    SPOOL_DAYS,
    DetachRun,
    FollowSpool,
    ListSpools,
    RemoveSpool,
    Spool,
    SpoolDrained,
    SpoolOrder,
    SpoolReport,
    SpoolsListed,
    StopSpool,
)
from app.storage.owner import boot_id, lock_or_close
from app.telemetry.feed import TelemetryFeed
from workloads.protocol import encode

_ORDER, _BOOT, _LINES, _PID, _LOCK, _STDERR, _WEIGHTS = (
    "order.json",
    "boot",
    "recording.jsonl",
    "pid",
    "lock",
    "stderr",
    "weights.npz",
)
"""The files in a run's folder."""
_UID = re.compile(r"[0-9a-f]{8,64}")
_REMOVED = "removed-"
"""Begins the name of a folder that is being removed."""
_READ_BYTES = 1 << 18
_LOOK_S = 0.05
_BLOCKED_S = 60
"""A reader that takes nothing for so long is gone: the network is cut."""
_BEGIN_S = 30.0
_DAY_S = 86_400
_RESERVED_BYTES = 8_192
"""Given up of the last lines where the disk is full, so that the end can be written down."""

_FULL = "The spool of this run is full, {size:.0f} GB: from here on telemetry is not kept."
_DISK = "The disk of the host had no room for the lines of this run, or failed ({reason}), so it was ended there."
_TERMINATED = "The run was asked to end on its host (SIGTERM), as when that is shut down."
_UNGUARDED = "The guard of this run, the process that it was started as, was killed."


def spool_folder() -> Path:
    """Return the folder of the spool: the user's, for programs' states (XDG Base Directory Specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "variantscope" / "detached"


def _lock_spool(folder: Path) -> int | None:
    """Return the open lock of a run's folder; None where its maker has it."""
    return lock_or_close(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _goes_on(folder: Path) -> bool:
    try:
        lock = _lock_spool(folder)
    except FileNotFoundError:
        return False  # whoever had the whole run first has removed it; what is open can be read to its end
    if lock is not None:
        os.close(lock)
    return lock is None


def _read_order(folder: Path) -> DetachRun:
    return msgspec.json.decode((folder / _ORDER).read_bytes(), type=DetachRun)


class _RecordingFile:
    """The recording of a run that is made here.

    Thread: the run's.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self._file = os.open(folder / _LINES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._bytes = 0
        self._is_full = False
        self._write(head_line(version))

    def handle(self, event: RunEvent) -> None:
        """Write an event; raises `UserError` where the disk is full. A file that is very long gets no more samples."""
        if isinstance(event, Sample | SlowSample) and self._bytes > MOST_SPOOL_BYTES:
            if self._is_full:
                return
            self._is_full = True
            event = TelemetryGap(t_ns=event.t_ns, reason=_FULL.format(size=MOST_SPOOL_BYTES / 1e9))
        try:
            self._write(encode(event))
        except OSError as error:
            # The line was written in part, and what follows needs room.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, max(0, os.fstat(self._file).st_size - _RESERVED_BYTES))
                self._write(CUT)
            raise UserError(_DISK.format(reason=error.strerror)) from None

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._file, view) :]
        self._bytes += len(line)


def make_run(folder: Path, guard: int) -> None:
    """Make the run of a folder, which has its order; the file `guard` closes when the guard is gone."""
    run = _read_order(folder)
    start_ns = time.monotonic_ns()

    def now() -> ClockAnchor:
        t_ns = time.monotonic_ns()
        return ClockAnchor(t_ns, run.utc_ns + t_ns - start_ns)

    def emit(event: RunEvent) -> None:
        recording.handle(event)

    start, feed = run.start, TelemetryFeed(run.hz)
    require(order_grants(start), typed)
    if start.weights_path is not None:
        start = msgspec.structs.replace(start, weights_path=str(folder / _WEIGHTS))
    timeouts = WorkerTimeouts(hello_s=run.hello_s, message_gap_s=run.message_gap_s)
    maker = RunMaker(
        start,
        Host(telemetry=feed, now=now, describe=lambda inventory: inventory_info(inventory) | host_info()),
        emit,
        uid=run.uid,
        environment=run.environment,
        timeouts=timeouts,
    )
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda *_: maker.stop())
    signal.signal(signal.SIGTERM, lambda *_: maker.stop(_TERMINATED))
    threading.Thread(target=_watch_guard, args=(guard, maker), name="guard", daemon=True).start()
    recording = _RecordingFile(folder, run.version)  # who waits for the run to begin may stop it from here on
    feed.start()
    try:
        maker.run()
    except Exception as error:  # noqa: BLE001 - the edge of the process: whoever fetches the run is told
        if not isinstance(error, UserError):
            traceback.print_exc()
        recording.handle(Waiting(now().t_ns, str(error) if isinstance(error, UserError) else bug_message(error)))
    finally:
        feed.close()


def _watch_guard(guard: int, maker: RunMaker) -> None:
    poll = select.poll()
    poll.register(guard, 0)
    poll.poll()
    maker.stop(_UNGUARDED)


class _Orders:
    """The orders on stdin, as bytes that come when they come."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_closed = False

    def take(self, wait_s: float | None) -> list[bytes]:
        """Return the lines that came, after waiting so long at most for some; None waits for ever."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # a run that was started here and has ended
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
        self._decoder: msgspec.json.Decoder[SpoolOrder] = msgspec.json.Decoder(SpoolOrder)

    def serve(self) -> None:
        """Follow orders until stdin closes."""
        while not self._orders.is_closed:
            for line in self._orders.take(None):
                try:
                    self._follow(self._decoder.decode(line))
                except (OSError, msgspec.DecodeError) as error:
                    self._refuse(f"The spool in {self._folder} cannot be used: {error}.")

    def _follow(self, order: SpoolOrder) -> None:
        match order:
            case DetachRun():
                self._detach(order)
            case ListSpools():
                self._say(self._list())
            case FollowSpool(uid=uid):
                if (folder := self._find(uid)) is not None:
                    self._play(folder)
            case StopSpool(uid=uid):
                self._stop(uid)
            case RemoveSpool(uid=uid):
                self._remove(uid)

    def _detach(self, run: DetachRun) -> None:
        """Start a new run in a process of its own."""
        if not _UID.fullmatch(run.uid):
            self._refuse(f"{run.uid[:80]!r} is no id of a run.")
            return
        folder = self._folder / run.uid
        folder.mkdir(mode=0o700, parents=True)
        (folder / _ORDER).write_bytes(msgspec.json.encode(run))
        (folder / _BOOT).write_text(boot_id())
        with (folder / _STDERR).open("wb") as stderr:
            maker = subprocess.Popen(
                [sys.executable, "-m", "app.agent.detached", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        # Its first line: from here on it goes on by itself.
        end_s = time.monotonic() + _BEGIN_S
        while not (folder / _LINES).exists():
            if maker.poll() is not None or time.monotonic() > end_s:
                lines = (folder / _STDERR).read_text(encoding="utf-8", errors="replace").strip().splitlines()
                maker.kill()
                shutil.rmtree(folder)
                self._refuse(f"The run could not be started: {lines[-1] if lines else 'its process printed nothing'}.")
                return
            time.sleep(_LOOK_S)
        self._say(SpoolsListed((_spool(folder),)))

    def _list(self) -> SpoolsListed:
        """Return the runs, the oldest first; remove those that nobody wanted for too long."""
        spools, unreadable = [], 0
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name.startswith(_REMOVED):
                shutil.rmtree(folder, ignore_errors=True)  # by a process that was killed meanwhile
                continue
            try:
                spool = _spool(folder)
            except (OSError, msgspec.DecodeError):
                unreadable += folder.is_dir()
                continue
            if not spool.goes_on and time.time_ns() - spool.changed_utc_ns > SPOOL_DAYS * _DAY_S * 1e9:
                _remove_folder(folder)
            else:
                spools.append(spool)
        return SpoolsListed(tuple(sorted(spools, key=lambda spool: spool.run.utc_ns)), unreadable)

    def _stop(self, uid: str) -> None:
        folder = self._folder / uid
        if _UID.fullmatch(uid) and folder.is_dir() and _goes_on(folder):
            with contextlib.suppress(OSError, ValueError):  # it has just ended, or has only just begun
                os.kill(int((folder / _PID).read_text()), signal.SIGINT)

    def _remove(self, uid: str) -> None:
        folder = self._folder / uid
        if not _UID.fullmatch(uid):
            self._refuse(f"{uid[:80]!r} is no id of a run.")
        elif folder.is_dir() and _goes_on(folder):
            self._refuse("The run goes on still; only one that is over can be removed.")
        else:
            _remove_folder(folder)
            self._say(SpoolsListed(()))

    def _find(self, uid: str) -> Path | None:
        folder = self._folder / uid
        if _UID.fullmatch(uid) and (folder / _LINES).is_file():
            return folder
        self._refuse("That run is not in the spool any more.")
        return None

    def _play(self, folder: Path) -> None:
        """Say the lines of a run until its maker has ended, then its weights."""
        with (folder / _LINES).open("rb", buffering=0) as file:
            is_last = False
            while not self._orders.is_closed:
                if data := file.read(_READ_BYTES):
                    _write(data)
                elif is_last:
                    break
                else:
                    is_last = not _goes_on(folder)
                for line in self._orders.take(0.0 if data or is_last else _LOOK_S):
                    self._follow(self._decoder.decode(line))
            else:
                return
            _write(CUT)  # ends a last line that was not finished; alone, it says nothing
        for piece in _pieces(folder / _WEIGHTS):
            self._say(piece)
        self._say(SpoolDrained(boot_id()))

    def _refuse(self, reason: str) -> None:
        self._say(Refused(number=0, kind="user error", reason=reason))

    @staticmethod
    def _say(report: SpoolReport | FilePart) -> None:
        _write(msgspec.json.encode(report) + b"\n")


def _remove_folder(folder: Path) -> None:
    """Remove a run's folder, whose lock another process may be opening: that would make the file anew in between."""
    removed = folder.with_name(f"{_REMOVED}{folder.name}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):  # another may be removing it
        folder.rename(removed)
        shutil.rmtree(removed)


def _spool(folder: Path) -> Spool:
    status = (folder / _LINES).stat()
    return Spool(
        run=_read_order(folder),
        boot_id=(folder / _BOOT).read_text(),
        goes_on=_goes_on(folder),
        size_bytes=status.st_size,
        changed_utc_ns=status.st_mtime_ns,
    )


def _pieces(path: Path) -> Iterator[FilePart]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while data := file.read(FILE_PIECE_BYTES):
            yield FilePart(number=0, data=data, size=size)


def _write(data: bytes) -> None:
    """Write to stdout; where nobody takes it, this process ends."""
    view = memoryview(data)
    while view:
        signal.alarm(_BLOCKED_S)
        view = view[os.write(1, view) :]
    signal.alarm(0)


def _main(folder: Path) -> int:
    if _lock_spool(folder) is None:
        return 1
    scratch, guard = start_guard()
    (folder / _PID).write_text(str(os.getpid()))
    make_run(folder, guard)
    end_everything(scratch)
    return 0


if __name__ == "__main__":
    os.umask(0o077)
    if len(sys.argv) > 1:
        os._exit(_main(Path(sys.argv[1])))
    _Spooler(spool_folder()).serve()
