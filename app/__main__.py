"""`python -m app`: the window; with a word after it, the command line."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Open the window or hand a command on; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--db", nargs="?", type=Path)
    given, rest = parser.parse_known_args(words)
    if rest or (words and given.db is None):
        from app.cli.main import main as command_line

        return command_line(words, {"bench": _bench})
    return _window(given.db)


def _bench(chosen: argparse.Namespace) -> int:
    from app.bench.main import bench

    return bench(chosen)


def _window(database: Path | None) -> int:
    from app.storage.location import default_database

    try:
        from app.gui.application import main as window
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] not in ("PySide6", "pyqtgraph", "shiboken6"):
            raise
        sys.stderr.write(_NO_QT.format(error=error))
        return 1
    return window(database or default_database())


_NO_QT = (
    "The window needs Qt, which cannot be loaded here ({error}). "
    "Install it with `pip install 'variantscope[gui]'`, or use a command such as `python -m app run`.\n"
)


if __name__ == "__main__":
    sys.exit(main())
