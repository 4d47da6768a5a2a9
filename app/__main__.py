"""`python -m app`: the window; with a word after it, the command line."""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Open the window or hand a command on; returns the exit status, 130 where Ctrl-C ended it."""
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130


def _main(arguments: list[str]) -> int:
    if importlib.util.find_spec("msgspec") is None:
        sys.stderr.write(_NOT_INSTALLED)
        return 1
    if arguments[:1] == ["--db"] and len(arguments) > 2:
        arguments = [*arguments[2:], *arguments[:2]]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--db", nargs="?", type=Path)
    parser.add_argument("--sample-ms", nargs="?")
    given, rest = parser.parse_known_args(arguments)
    if rest or (arguments and given.db is None and given.sample_ms is None):
        from app.cli.main import main as command_line

        return command_line(arguments, {"bench": _bench, "replay": _replay})
    return _window(given.db, _sample_ms(given.sample_ms))


def _bench(chosen: argparse.Namespace) -> int:
    from app.bench.main import bench

    return bench(chosen)


def _replay(chosen: argparse.Namespace) -> int:
    """In the window where there is a display, else as lines."""
    if chosen.json or not _has_display():
        from app.cli.machine import replay

        return replay(chosen)
    return _window(chosen.db, _sample_ms(None), (chosen.recording, chosen.speed))


def _has_display() -> bool:
    named = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in named)


def _sample_ms(word: str | None) -> float:
    from app.cli.arguments import SAMPLE_MS, sample_ms

    try:
        return SAMPLE_MS if word is None else sample_ms(word)
    except (ValueError, argparse.ArgumentTypeError):
        sys.stderr.write(f"--sample-ms must be from 10 to 1000 milliseconds, not {word!r}.\n")
        sys.exit(2)


def _window(database: Path | None, sample_ms: float, replay: tuple[int | Path, float] | None = None) -> int:
    """The window; `replay` is a stored run or a trace to play in it, and how fast."""
    from app.paths import default_database

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
    return window(database or default_database(), sample_ms=sample_ms, replay=replay)


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
