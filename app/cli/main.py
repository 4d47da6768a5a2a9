"""The command line: `python -m app COMMAND …`. Exit status 0 completed, 1 any other outcome, 2 wrong use."""

import errno
import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.cli import compare, experiment, library, machine, queue, run, show, transfer
from app.cli.arguments import parse
from app.errors import UserError
from workloads.catalog import UsageError

Command = Callable[[Namespace], int]

COMMANDS: Mapping[str, Command] = {
    "run": run.run,
    "experiment": experiment.experiment,
    "queue": queue.queue,
    "list": library.list_runs,
    "show": show.show,
    "note": library.note,
    "tag": library.tag,
    "delete": library.delete,
    "restore": library.restore,
    "compare": compare.compare,
    "scaling": compare.scaling,
    "gpus": machine.gpus,
    "watch": machine.watch,
    "replay": machine.replay,
    "prune": library.prune_runs,
    "portability": run.portability,
    "export": transfer.export,
    "import": transfer.import_database,
    "reference": transfer.reference,
    "calibrate": machine.calibrate_devices,
}


def main(words: Sequence[str], more: Mapping[str, Command]) -> int:
    """Does what the words say and returns the exit status; the user's errors are one sentence on stderr.

    `more` are commands of the layers above (`bench`, and `replay` where it has a window).
    """
    _prepare_output()
    chosen = parse(words)
    try:
        status = {**COMMANDS, **more}[chosen.command](chosen)
        # What is still buffered meets a closed pipe or a full disk here, where it can be said, not at exit.
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough.
        _drop_output()
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print(
            "The result cannot be written: the disk is full. Free some space; what is stored is kept.", file=sys.stderr
        )
        return 1


def _prepare_output() -> None:
    """Lets what is said go nowhere where nobody listens, and say `?` for what the listener's encoding has no sign for.

    A stream is None where the program was started with it closed (https://docs.python.org/3/library/sys.html#sys.stdout).
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Sends what stdout still holds nowhere: its flush at exit would fail again, in a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
