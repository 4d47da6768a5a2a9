"""The words of `queue`."""

import argparse
from collections.abc import Callable

from app.cli.export_arguments import New

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
    sampled(queue)
