"""The detached runs on this host: a folder for each, with the files that are its program's stdin and stdout.

The program has the lock of the recording that it writes, which any end releases. A stop is one more order in its stdin,
because a scheduler's node shares only a disk with the host.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app.errors import UserError
from app.hosts.messages import CUT, DetachedRun, Stop
from app.runs.host import RunOrder
from app.storage.owner import lock_or_close
from app.viewmodels.format.naming import short_name
from workloads.protocol import encode

DETACHED_DAYS = 30
"""A recording that nobody fetched is removed this long after its last line."""
ORDERS, RECORDING, STDERR = "orders.jsonl", "events.jsonl", "stderr"
_UID = re.compile(r"[0-9a-f]{8,64}")
_RUN_ORDER = b'{"type":"run"'
"""The beginning of the order after the pieces of its files."""
_READ_BYTES = 1 << 18
_LOOK_S = 0.1


def detached_folder() -> Path:
    """Return the folder of all detached runs, in the user's state folder (XDG Base Directory Specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "variantscope" / "detached"


def _folder(uid: str) -> Path:
    """Return the folder of a run; raises `UserError`."""
    folder = detached_folder() / uid
    if not (_UID.fullmatch(uid) and folder.is_dir()):
        raise UserError("That run is no longer on the host.")
    return folder


def _goes_on(recording: Path) -> bool:
    try:
        lock = lock_or_close(os.open(recording, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return False  # not begun, or another reader of the whole run has removed it
    if lock is not None:
        os.close(lock)
    return lock is None


def list_runs() -> list[DetachedRun]:
    """Return the runs, oldest first; remove those that nobody fetched for too long."""
    root, runs = detached_folder(), list[DetachedRun]()
    for folder in root.iterdir() if root.is_dir() else ():
        recording, orders = folder / RECORDING, folder / ORDERS
        with contextlib.suppress(OSError, msgspec.DecodeError):  # from another version, or being removed
            goes_on = _goes_on(recording)
            size_bytes = recording.stat().st_size if recording.exists() else 0
            changed_s = (recording if size_bytes else folder).stat().st_mtime
            if not goes_on and time.time() - changed_s > DETACHED_DAYS * 86_400:
                shutil.rmtree(folder)
                continue
            with orders.open("rb") as lines:
                order_line = next((line for line in lines if line.startswith(_RUN_ORDER)), b"")
            order = msgspec.json.decode(order_line, type=RunOrder)
            spec = order.start.spec
            stderr = (folder / STDERR).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            runs.append(
                DetachedRun(
                    uid=order.uid,
                    workload=spec.workload,
                    variant=short_name(spec),
                    detached_utc_ns=order.utc_ns,
                    goes_on=goes_on,
                    size_bytes=size_bytes,
                    problem="" if size_bytes or goes_on else (stderr or ["not begun"])[-1][:500],
                )
            )
    return sorted(runs, key=lambda run: run.detached_utc_ns)


def stop_run(uid: str) -> None:
    """Ask a run to end as if its user had; the recording says how it ended. Raises `UserError`."""
    with (_folder(uid) / ORDERS).open("ab") as orders:
        orders.write(encode(Stop()))


def read_run(uid: str) -> Iterator[bytes]:
    """Yield the lines of a run until its process has ended; raises `UserError`."""
    recording = _folder(uid) / RECORDING
    if not (recording.exists() and recording.stat().st_size):
        raise UserError("The run has not begun; it waits for its scheduler, or could not be started.")
    with recording.open("rb", buffering=0) as file:
        unfinished, is_last = b"", False
        while True:
            if data := file.read(_READ_BYTES):
                *lines, unfinished = (unfinished + data).split(b"\n")
                yield from (line + b"\n" for line in lines if not line.endswith(CUT[:-1]))
            elif is_last:
                return
            else:
                is_last = not _goes_on(recording)
                time.sleep(0.0 if is_last else _LOOK_S)


def remove_run(uid: str) -> None:
    """Remove a run's files, unless another process has done so, or is doing it."""
    with contextlib.suppress(UserError):
        shutil.rmtree(_folder(uid), ignore_errors=True)
