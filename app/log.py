"""The program's log: one rotating file per program process, in the user's state folder.

Modules log to `variantscope.<area>` of the standard `logging`: run, worker, telemetry, storage, gui, queue. The sampler
appends to its program's file; a worker's stderr goes to its run's log, and here at level debug.
"""

import logging
import os
import sys
import time
from collections.abc import Iterable
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path
from typing import Final, cast

from app.paths import open_private
from app.values.plain import plain_text

LEVELS: Final = ("debug", "info", "warning", "error")
FOLDER_VARIABLE: Final = "VARIANTSCOPE_LOG_DIR"
"""The environment variable that names another folder."""
LEVEL_VARIABLE: Final = "VARIANTSCOPE_LOG_LEVEL"

_FILE_VARIABLE: Final = "VARIANTSCOPE_LOG_FILE"
_DEFAULT_LEVEL = "info"
_MAX_BYTES = 2_000_000
_ROTATED_FILES = 2
_MAX_FILES = 20
_PROGRAM = "variantscope"

run_number: ContextVar[int | None] = ContextVar("run_number", default=None)
"""The run of a thread, whose number is in each line that the thread logs."""


def configure(level: str | None = None) -> None:
    """Start the log of this process; later calls only change its level.

    The file is created with the first line. Old files are removed, except for the newest. The level is one of `LEVELS`;
    None means that of the environment variable, or info.
    """
    logger = logging.getLogger(_PROGRAM)
    chosen = level or os.environ.get(LEVEL_VARIABLE, "").lower()
    if chosen in LEVELS:
        logger.setLevel(chosen.upper())
    if log_file() is not None:
        return
    from logging.handlers import RotatingFileHandler  # here: slow to import, and the window's first paint must not wait

    if chosen not in LEVELS:
        logger.setLevel(_DEFAULT_LEVEL.upper())
    folder = log_folder()
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        remove_oldest(folder.glob("*.log*"), _MAX_FILES)
    except OSError:
        # The program also works without a log, as in a read-only folder.
        logger.addHandler(logging.NullHandler())
        return
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    _add_handler(RotatingFileHandler, path, maxBytes=_MAX_BYTES, backupCount=_ROTATED_FILES)


def configure_child() -> None:
    """Append to the log of the program that started this process, if it has one."""
    path = os.environ.get(_FILE_VARIABLE)
    if not path:
        return
    from logging.handlers import WatchedFileHandler  # follows the program when it starts a new file

    logging.getLogger(_PROGRAM).setLevel(os.environ.get(LEVEL_VARIABLE, _DEFAULT_LEVEL).upper())
    _add_handler(WatchedFileHandler, Path(path))


def child_environment() -> dict[str, str]:
    """Return what a child's environment needs for `configure_child`; empty without a log."""
    path = log_file()
    if path is None:
        return {}
    level = logging.getLevelName(logging.getLogger(_PROGRAM).getEffectiveLevel()).lower()
    return {_FILE_VARIABLE: str(path), LEVEL_VARIABLE: level}


def log_folder() -> Path:
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    import platformdirs  # here: the window's first paint does not need it

    return platformdirs.user_state_path(_PROGRAM)


def log_file() -> Path | None:
    """Return this process's log, which need not exist yet; None without one."""
    handlers = logging.getLogger(_PROGRAM).handlers
    return next((Path(handler.baseFilename) for handler in handlers if isinstance(handler, logging.FileHandler)), None)


def log_tail(lines: int) -> str:
    """Return the last lines of this process's log; "" without one."""
    path = log_file()
    if path is None or not path.exists():
        return ""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def remove_oldest(files: Iterable[Path], count: int) -> None:
    """Remove all but the `count` newest files, by their names; raises `OSError`."""
    newest_first = sorted(files, key=lambda path: path.name, reverse=True)
    for path in newest_first[count:]:
        path.unlink(missing_ok=True)


def _open_log(handler: logging.FileHandler) -> TextIOWrapper:
    """Open a handler's file so that only its user can read it, because it names runs, devices and paths."""
    file = open(handler.baseFilename, handler.mode, encoding=handler.encoding, opener=open_private)  # noqa: SIM115
    return cast(TextIOWrapper, file)


def _drop_line(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Report a faulty line, but ignore one that cannot be written: the program also works without a log."""
    if not isinstance(sys.exc_info()[1], OSError):
        logging.Handler.handleError(handler, record)


def _add_handler(kind: type[logging.FileHandler], path: Path, **options: int) -> None:
    """Add a handler of this class, with a private file that is created with the first line."""
    private = type("PrivateFile", (kind,), {"_open": _open_log, "handleError": _drop_line})
    handler: logging.FileHandler = private(path, encoding="utf-8", delay=True, **options)
    handler.addFilter(_add_run_number)
    formatter = _PlainFormatter(
        "%(asctime)s.%(msecs)03d %(levelname)-7s %(process)d %(name)s:%(run)s %(message)s", "%Y-%m-%d %H:%M:%S"
    )
    handler.setFormatter(formatter)
    logging.getLogger(_PROGRAM).addHandler(handler)


class _PlainFormatter(logging.Formatter):
    """Prevents names of devices and workers from controlling the terminal on which the log is read."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_text(super().format(record))


def _add_run_number(record: logging.LogRecord) -> bool:
    number = run_number.get()
    record.run = "" if number is None else f" run {number}:"
    return True
