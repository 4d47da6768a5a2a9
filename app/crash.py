"""Crash reports: a file with versions and the end of the log, offered by the next window. Nothing is sent anywhere."""

import atexit
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from app.log import log_folder, log_tail, remove_oldest
from app.paths import open_private, program_version

_log = logging.getLogger("variantscope.run")

_TAIL_LINES = 200
_MAX_REPORTS = 20
_PACKAGES = ("PySide6", "pyqtgraph", "numpy", "scipy", "msgspec", "psutil", "sqlite-utils", "tensorflow")
_REPORTS = "crash-*.txt"
_FAULTS = "fault-*.txt"
"""Files in which `faulthandler` records a process killed by a signal; otherwise empty."""


def install_hooks() -> None:
    """Write a report for each unhandled exception, on any thread, then call the former hooks."""
    earlier, earlier_of_threads = sys.excepthook, threading.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt | SystemExit):
            write_report(f"{kind.__name__}: {error}", "".join(traceback.format_exception(kind, error, trace)))
        earlier(kind, error, trace)

    def report_of_thread(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_value is not None and not issubclass(failure.exc_type, SystemExit):
            lines = traceback.format_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
            write_report(f"{failure.exc_type.__name__}: {failure.exc_value}", "".join(lines))
        earlier_of_threads(failure)

    sys.excepthook = report
    threading.excepthook = report_of_thread


def watch_faults() -> None:
    """Have the stacks written to a file if a signal, such as a segmentation fault, kills this process."""
    import faulthandler

    path = log_folder() / f"fault-{_stamp()}.txt"
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        file = open(path, "w", encoding="utf-8", opener=open_private)  # noqa: SIM115
    except OSError:
        return
    faulthandler.enable(file)

    def stop() -> None:
        faulthandler.disable()
        file.close()
        if not path.stat().st_size:
            path.unlink()

    atexit.register(stop)


def write_report(title: str, details: str) -> Path | None:
    """Write a report and return its path; None if the folder cannot be written.

    The details are a traceback, or the end of a run's log.
    """
    _log.error("%s", title)
    sections = (title, _describe_versions(), details.rstrip(), f"End of the program's log:\n{log_tail(_TAIL_LINES)}")
    path = log_folder() / f"crash-{_stamp()}.txt"
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        remove_oldest(path.parent.glob(_REPORTS), _MAX_REPORTS - 1)
        with open(path, "w", encoding="utf-8", opener=open_private) as file:
            file.write("\n\n".join(sections) + "\n")
    except OSError as error:
        _log.warning("no crash report could be written: %s", error)
        return None
    return path


def new_reports() -> list[Path]:
    """Return the reports not yet dismissed, oldest first; remove traces of processes that ended normally."""
    import psutil

    folder = log_folder()
    faults = [path for path in sorted(folder.glob(_FAULTS)) if not psutil.pid_exists(int(path.stem.rpartition("-")[2]))]
    for path in faults:
        if not path.stat().st_size:
            path.unlink()
    return [*sorted(folder.glob(_REPORTS)), *(path for path in faults if path.exists())]


def dismiss_reports(reports: Sequence[Path]) -> None:
    """Keep the reports, but stop offering them."""
    for path in reports:
        path.rename(path.with_name(f"seen-{path.name}"))
    remove_oldest(log_folder().glob("seen-*.txt"), _MAX_REPORTS)


def _stamp() -> str:
    # Two crashes of one process within a second would have the same name without the nanoseconds.
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}-{os.getpid()}"


def _describe_versions() -> str:
    import platform

    versions = "\n".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name)))
    return (
        f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}\nVariantScope {program_version()}: {' '.join(sys.argv)}\n"
        f"Python {platform.python_version()} on {platform.platform()}\n{versions}"
    )


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
