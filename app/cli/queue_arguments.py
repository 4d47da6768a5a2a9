"""The words of `queue`."""

import argparse
from collections.abc import Callable
from pathlib import Path

from app.cli.export_arguments import New

NOTIFY_HELP = "tell of the end: notify-send where that works, else the terminal's bell"
ACTIONS = ("list", "go-on", "move", "pause", "resume", "remove")


def add_queue(new: New, sampled: Callable[[argparse.ArgumentParser], None]) -> None:
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
    where = queue.add_mutually_exclusive_group()
    where.add_argument("--first", action="store_true", help="with move: before all others")
    where.add_argument("--before", type=int, metavar="ENTRY", help="with move: before this one (default: to the end)")
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
