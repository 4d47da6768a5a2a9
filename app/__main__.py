"""`python -m app`: the window; with a command after it, the command line."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def main(argv: Sequence[str] | None = None) -> int:
    """Open the window or run a command; returns the exit status, 130 where Ctrl-C ended it."""
    if argv is None:
        from app.crash import install_hooks

        install_hooks()
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130


def _main(words: list[str]) -> int:
    if importlib.util.find_spec("msgspec") is None:
        sys.stderr.write(_NOT_INSTALLED)
        return 1
    if not words:
        return _open_window(None)
    # Here, for the window does not wait for them.
    from app.cli.commands import UpperLayers
    from app.cli.main import main as command_line

    return command_line(
        words, UpperLayers(open_window=_open_window, has_display=_has_display(), load_bench=_load_bench)
    )


def _load_bench() -> "click.Command":
    from app.bench.main import bench

    return bench


def _has_display() -> bool:
    named = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in named)


def _open_window(
    database: Path | None, sample_ms: float | None = None, replay: tuple[int | Path, float] | None = None
) -> int:
    """Open the window and return its exit status.

    Args:
        database: The file; the default one where None.
        sample_ms: Milliseconds between two telemetry readings; the usual where None.
        replay: A stored run or a trace to play in the window, and how many times as fast as it was.
    """
    if not _has_display():
        sys.stderr.write(_NO_DISPLAY)
        return 1
    try:
        from app.gui.app import main as window
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] not in ("PySide6", "pyqtgraph", "shiboken6"):
            raise
        sys.stderr.write(_NO_QT.format(error=error))
        return 1
    from app.paths import default_database
    from app.samples import SAMPLE_MS

    return window(database or default_database(), sample_ms=sample_ms or SAMPLE_MS, replay=replay)


_NOT_INSTALLED = (
    "This Python lacks what VariantScope needs: use `python3 start.py` with the same words, which sets it up, "
    "or the Python in .venv.\n"
)
_NO_DISPLAY = (
    "There is no display here to open the window on: use a command, such as `python -m app experiment --preset quick` "
    "(`python -m app --help` lists them), or set DISPLAY.\n"
)
_NO_QT = (
    "The window needs Qt, which cannot be loaded here ({error}). "
    "Install it with `pip install 'variantscope[gui]'`, or use a command such as `python -m app run`.\n"
)


if __name__ == "__main__":
    sys.exit(main())
