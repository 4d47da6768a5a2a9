"""`python -m app`: the window; with a command after it, the command line."""

import gc
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from app.paths import COMPLETE_VARIABLE, PROGRAM, checkout_root, ensure_home


def main(argv: Sequence[str] | None = None) -> int:
    """Open the window or run a command; returns the exit status, 130 where Ctrl-C ended it."""
    if argv is None:
        from app.crash import install_hooks

        ensure_home()
        install_hooks()
        os.environ["PYTHONSAFEPATH"] = "1"  # what is started from here imports nothing of the current folder
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130


def _main(words: list[str]) -> int:
    if importlib.util.find_spec("msgspec") is None:
        sys.stderr.write(_NOT_INSTALLED)
        return 1
    if sys.dont_write_bytecode:  # many containers forbid it, and every start would compile all modules again
        from workloads.machine import bytecode_folder

        sys.dont_write_bytecode, sys.pycache_prefix = False, sys.pycache_prefix or str(bytecode_folder())
    if not words and COMPLETE_VARIABLE not in os.environ:
        return _open_window(None)
    # Here, for the window does not wait for them.
    from app.cli.commands import UpperLayers
    from app.cli.main import main as command_line

    return command_line(words, UpperLayers(open_window=_open_window, has_display=_has_display()))


def _has_display() -> bool:
    named = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in named)


def _check_x11() -> None:
    """Raise `ImportError` if Qt would end the program: for X11 it needs a library that many systems lack."""
    platform = os.environ.get("QT_QPA_PLATFORM", "" if os.environ.get("WAYLAND_DISPLAY") else "xcb")
    if sys.platform == "linux" and platform == "xcb":
        import ctypes

        try:
            ctypes.CDLL("libxcb-cursor.so.0")
        except OSError as error:
            raise ImportError(str(error)) from error


def _qt_remedy(error: ImportError) -> str:
    if not isinstance(error, ModuleNotFoundError):
        command = "sudo apt-get install libgl1 libqt6gui6 libxcb-cursor0"
        return f"Install the libraries that it needs (on Debian and Ubuntu `{command}`)"
    installer = "python3 start.py" if checkout_root() else "pip install PySide6-Essentials pyqtgraph"
    return f"Install it with `{installer}`"


def _open_window(database: Path | None, sample_ms: float | None = None, opened: Path | None = None) -> int:
    """Open the window and return its exit status.

    Args:
        database: The file; where None, the one that the user chose in the window, else the usual one.
        sample_ms: Milliseconds between two telemetry readings; where None, what the user chose, else the usual.
        opened: A file whose runs the window asks to add.
    """
    if not _has_display():
        sys.stderr.write(_NO_DISPLAY)
        return 1
    from app.telemetry.feed import TelemetryFeed

    gc.disable()  # the window's own collector takes over; a sixth of the imports' time
    feed = TelemetryFeed()
    try:
        _check_x11()
        feed.start()  # its process starts while Qt is loaded
        from app.gui.app import main as window
    except ImportError as error:
        feed.close()
        if error.name is not None and error.name.split(".")[0] not in ("PySide6", "pyqtgraph", "shiboken6"):
            raise
        sys.stderr.write(_NO_QT.format(error=error, remedy=_qt_remedy(error)))
        return 1
    return window(database, feed, sample_ms=sample_ms, opened=opened)


_NOT_INSTALLED = (
    "This Python lacks what VariantScope needs: use `python3 start.py` with the same arguments, which sets it up, "
    "or the Python in .venv.\n"
    if checkout_root()
    else "Packages that VariantScope needs are missing here: install it again with its dependencies.\n"
)
_NO_DISPLAY = (
    f"There is no display here to open the window on: use a command, such as `{PROGRAM} experiment --preset quick` "
    f"(`{PROGRAM} --help` lists them), or set DISPLAY.\n"
)
_NO_QT = (
    "The window needs Qt, which cannot be loaded here ({error}). {remedy}, or use a command such as "
    f"`{PROGRAM} run`.\n"
)


if __name__ == "__main__":
    sys.exit(main())
