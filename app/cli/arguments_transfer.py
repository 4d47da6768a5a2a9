"""The arguments of `export`, `import`, `reference` and `queue`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from app.report.table_files import Format

TRACE = "trace"
"""The format that is one timeline and no tables."""

NewCommand = Callable[[str, str], argparse.ArgumentParser]
"""Makes a command of a name and a help text."""


def add_transfers(new: NewCommand) -> None:
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
    action = reference.add_mutually_exclusive_group()
    action.add_argument("--add", action="store_true", help="add copies of them to the database, tagged reference")
    action.add_argument("--remove", action="store_true", help="delete these copies from the database again")


NOTIFY_HELP = "tell of the end: notify-send where that works, else the terminal's bell"
ACTIONS = ("list", "go-on", "move", "pause", "resume", "remove")


def add_queue(new: NewCommand, sampled: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds the command; `sampled` gives a command the options of telemetry."""
    queue = new("queue", "show the experiments that are not finished, go on with them, reorder, pause or remove them")
    queue.add_argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        default="list",
        metavar="ACTION",
        help=f"{', '.join(ACTIONS)} (default: list)",
    )
    queue.add_argument("entries", type=int, nargs="*", metavar="ENTRY", help="their numbers in the list")
    position = queue.add_mutually_exclusive_group()
    position.add_argument("--first", action="store_true", help="with move: before all others")
    position.add_argument(
        "--before", type=int, metavar="ENTRY", help="with move: before this one (default: to the end)"
    )
    queue.add_argument(
        "--no-standby",
        dest="standby",
        action="store_false",
        help="with go-on: never import TensorFlow ahead for the next run",
    )
    queue.add_argument("--notify", action="store_true", help=f"with go-on: {NOTIFY_HELP}")
    queue.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="with go-on: write a report too, .html or .md; where not exactly one ENTRY is named, a file for each, its"
        " number before the ending (FILE-3.html)",
    )
    sampled(queue)
