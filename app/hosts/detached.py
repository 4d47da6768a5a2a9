"""Detached runs on this host, each executed by a separate process in its folder.

`run --events-to FOLDER` executes the run whose order is on stdin, and writes its recording there. `hosts jobs`, `hosts
fetch` and `hosts stop` with `--events` list the folders, send a growing recording, and end a run. The process of a run
holds the lock of its folder, which any end releases. A file in the folder requests a stop, because a scheduler's node
shares only a disk with the host.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import msgspec

from app.errors import UserError, bug_message
from app.hosts.messages import CUT, TREE, DetachedRun, DetachedRuns, Drained, Refused, head_line
from app.hosts.serve import (
    WEIGHTS,
    Outbox,
    end_everything,
    make_run,
    ordered_host,
    pieces,
    serve,
    start_guard,
    with_tree,
)
from app.paths import program_version
from app.runs.experiment.idle_wait import IdleLimits, IdleWait
from app.runs.host import RunOrder
from app.runs.maker import RunMaker
from app.storage.owner import lock_or_close
from app.telemetry.feed import TelemetryFeed
from app.values.events import RunEnded, RunEvent
from app.values.fields import Sample, SlowSample
from app.values.samples import TelemetryGap, Waiting
from app.viewmodels.format.naming import short_name
from workloads.protocol import encode

MOST_RECORDING_BYTES = 2_000_000_000
"""Longer recordings get no more telemetry."""
DETACHED_DAYS = 30
"""A recording that nobody fetched is removed this long after its last line."""
_ORDER, _LINES, _LOCK, _STDERR, _STOP = "order.json", "events.jsonl", "lock", "stderr", "stop"
_UID = re.compile(r"[0-9a-f]{8,64}")
_REMOVED = "removed-"
"""The prefix of folders that are being removed."""
_READ_BYTES = 1 << 18
_LOOK_S = 0.1
_RESERVED_BYTES = 8_192
"""Freed for the last lines if the disk is full, so that the end can be recorded."""
_FULL = "The recording of this run is full, {size:.0f} GB: from here on telemetry is not kept."
_DISK = "The host's disk was full or failed ({reason}), so the run was ended there."
_TERMINATED = "The run was asked to end on its host (SIGTERM), as when that is shut down."
_UNGUARDED = "The process that guards this run was killed."


def detached_folder() -> Path:
    """Return the folder of all detached runs, in the user's state folder (XDG Base Directory Specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "variantscope" / "detached"


class RecordingFile:
    """The recording of a run on this machine. Thread: the run's."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._bytes = 0
        self._is_full = False
        self._write(head_line(program_version()))

    def handle(self, event: RunEvent) -> None:
        """Write an event; raises `UserError` if the disk is full. A very long file gets no more samples."""
        if isinstance(event, Sample | SlowSample) and self._bytes > MOST_RECORDING_BYTES:
            if self._is_full:
                return
            self._is_full = True
            event = TelemetryGap(t_ns=event.t_ns, reason=_FULL.format(size=MOST_RECORDING_BYTES / 1e9))
        try:
            self._write(encode(event))
        except OSError as error:
            # The line is incomplete, and what follows needs space.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, max(0, os.fstat(self._file).st_size - _RESERVED_BYTES))
                self._write(CUT)
            raise UserError(_DISK.format(reason=error.strerror)) from None

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._file, view) :]
        self._bytes += len(line)


def make_detached(folder: Path) -> int:
    """Execute the run whose order is on stdin, and write its recording into its folder; return the exit status.

    Raises:
        UserError: Stdin contains no order of this version.
    """
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True)
    if _lock(folder) is None:
        raise UserError(f"The run of {folder} is already running.")
    try:
        order = msgspec.json.decode(sys.stdin.buffer.readline(), type=RunOrder)
    except msgspec.DecodeError as error:
        raise UserError(f"--events-to reads an order of this version from stdin ({error}).") from None
    scratch, guard = start_guard()
    status = _make(order, folder, guard)
    end_everything(scratch)
    os._exit(status)


def _make(order: RunOrder, folder: Path, guard: int) -> int:
    feed = TelemetryFeed(order.hz)
    host = ordered_host(order, feed)
    recording = RecordingFile(folder / _LINES)
    try:
        with contextlib.closing(IdleWait(host, IdleLimits.of_plan(order.idle_wait_s))) as idle_wait:
            waits = idle_wait if order.idle_wait_s is not None else None
            order = with_tree(order, folder / TREE)
            maker = make_run(order, host, recording.handle, folder / WEIGHTS, waits)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, lambda *_: maker.stop(_TERMINATED))
            threading.Thread(target=_watch, args=(folder / _STOP, guard, maker), daemon=True).start()
            feed.start()
            maker.run()
    except Exception as error:  # noqa: BLE001 - the edge of the process: whoever fetches the run is told
        if not isinstance(error, UserError):
            traceback.print_exc()
        reason = str(error) if isinstance(error, UserError) else bug_message(error)
        recording.handle(Waiting(host.now().t_ns, reason))
        return 1
    finally:
        feed.close()
    return 0


def _watch(stop: Path, guard: int, maker: RunMaker) -> None:
    """Stop the run where a file asks for it, or the guard is gone."""
    poll = select.poll()
    poll.register(guard, 0)
    while not poll.poll(1_000):
        if stop.exists():
            maker.stop()
            return
    maker.stop(_UNGUARDED)


def _lock(folder: Path) -> int | None:
    """Return the open lock of a run's folder; None if the run's process has it."""
    return lock_or_close(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _goes_on(folder: Path) -> bool:
    try:
        lock = _lock(folder)
    except FileNotFoundError:
        return False  # another reader of the whole run has removed it; the open file can be read to its end
    if lock is not None:
        os.close(lock)
    return lock is None


def list_runs() -> DetachedRuns:
    """Return the runs, oldest first; remove those that nobody fetched for too long."""
    root, runs = detached_folder(), list[DetachedRun]()
    for folder in root.iterdir() if root.is_dir() else ():
        if folder.name.startswith(_REMOVED):
            shutil.rmtree(folder, ignore_errors=True)  # by a process that was then killed
            continue
        with contextlib.suppress(OSError, msgspec.DecodeError):  # from another version, or being removed
            order = msgspec.json.decode((folder / _ORDER).read_bytes(), type=RunOrder)
            lines = folder / _LINES
            status = (lines if lines.exists() else folder / _ORDER).stat()
            goes_on = _goes_on(folder)
            if not goes_on and time.time() - status.st_mtime > DETACHED_DAYS * 86_400:
                remove_run(folder)
                continue
            spec = order.start.spec
            stderr = (folder / _STDERR).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            runs.append(
                DetachedRun(
                    uid=order.uid,
                    workload=spec.workload,
                    variant=short_name(spec),
                    detached_utc_ns=order.utc_ns,
                    goes_on=goes_on,
                    size_bytes=lines.stat().st_size if lines.exists() else 0,
                    problem="" if lines.exists() or goes_on else (stderr or ["not begun"])[-1][:500],
                )
            )
    return DetachedRuns(tuple(sorted(runs, key=lambda run: run.detached_utc_ns)))


def say_run(folder: Path, outbox: Outbox) -> None:
    """Send the lines of a run until its process has ended, its weights before the last line."""
    try:
        file = (folder / _LINES).open("rb", buffering=0)
    except FileNotFoundError:
        reason = "The run has not begun; it waits for its scheduler, or could not be started."
        outbox.say(Refused(kind="user error", reason=reason))
        return
    with file:
        file.readline()  # its head; this process's head was already sent
        unfinished, is_last = b"", False
        while True:
            if data := file.read(_READ_BYTES):
                *lines, unfinished = (unfinished + data).split(b"\n")
                for line in lines:
                    if line.startswith(_ENDED) and (folder / WEIGHTS).is_file():
                        for piece in pieces(folder / WEIGHTS, WEIGHTS):
                            outbox.say(piece)
                    if not line.endswith(CUT[:-1]):
                        outbox.pass_on(line + b"\n")
            elif is_last:
                break
            else:
                is_last = not _goes_on(folder)
                time.sleep(0.0 if is_last else _LOOK_S)
    outbox.say(Drained())


_ENDED = f'{{"type":"{RunEnded.__struct_config__.tag}"'.encode()


def remove_run(folder: Path) -> None:
    """Remove a run's folder, even if another process opens its lock, which could recreate the file meanwhile."""
    removed = folder.with_name(f"{_REMOVED}{folder.name}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):  # another process may be removing it
        folder.rename(removed)
        shutil.rmtree(removed)


def serve_detached(action: str, uid: str) -> int:
    """Execute `hosts jobs`, `fetch` or `stop` with `--events` on this host; return the exit status."""

    def work(outbox: Outbox, stored: threading.Event) -> None:
        if action == "jobs":
            outbox.say(list_runs())
            return
        folder = detached_folder() / uid
        if not (_UID.fullmatch(uid) and folder.is_dir()):
            outbox.say(Refused(kind="user error", reason="That run is no longer on the host."))
            return
        if action == "stop":
            # The run's process ends it as if its user had; the recording says how it ended.
            (folder / _STOP).touch()
            outbox.say(Drained())
            return
        say_run(folder, outbox)
        stored.wait()
        remove_run(folder)

    return serve(work=work)
