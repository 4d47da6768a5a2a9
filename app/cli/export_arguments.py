"""The words of `export`, `import` and `reference`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from app.report.export_tables import Format

TRACE = "trace"
"""The format that is one timeline and no tables."""

New = Callable[[str, str], argparse.ArgumentParser]
"""Makes a command of a name and a help text."""


def add_transfers(new: New) -> None:
    """Adds these commands."""
    export = new("export", "take runs away: as tables, a timeline, a small database, or a Keras model")
    export.add_argument("runs", type=int, nargs="*", metavar="RUN", help="their numbers in `list`")
    export.add_argument(
        "--queue",
        action="store_true",
        help="with -o FILE.db: the experiments that are not finished with their runs, to go on elsewhere",
    )
    export.add_argument(
        "--format",
        choices=(*get_args(Format), TRACE),
        help="tables in this format, a file each, in a folder; or trace: one timeline that ui.perfetto.dev opens",
    )
    export.add_argument(
        "-o",
        dest="output",
        type=Path,
        metavar="PATH",
        help="the folder to make (default: runs-NUMBERS), FILE.json for a timeline (runs-NUMBERS.trace.json),"
        " or FILE.db for a database that `import` reads",
    )
    export.add_argument(
        "--model",
        type=Path,
        action="append",
        metavar="PATH",
        help="a Keras model of one run's saved weights: a file that ends in .keras, or a folder for a SavedModel;"
        " may be repeated",
    )
    export.add_argument(
        "--weights", type=Path, metavar="PATH", help="with --model: its weights file, where it was moved"
    )
    command = new("import", "add the runs of another database that are not here yet")
    command.add_argument("file", type=Path, metavar="FILE.db", help="a database of this program, from any machine")
    reference = new("reference", "show the runs on real GPUs that come with the program, or put them beside yours")
    which = reference.add_mutually_exclusive_group()
    which.add_argument("--add", action="store_true", help="add copies of them to the database, tagged reference")
    which.add_argument("--remove", action="store_true", help="delete these copies from the database again")
