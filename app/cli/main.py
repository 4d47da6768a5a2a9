"""The command line: `python -m app COMMAND …`. Exit status 0 completed, 1 any other outcome, 2 wrong use."""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from app.cli import compare, experiment, machine, run, stored
from app.cli.arguments import parser
from app.errors import UserError
from workloads.catalog import UsageError

Command = Callable[[Namespace], int]

COMMANDS: Mapping[str, Command] = {
    "run": run.run,
    "experiment": experiment.experiment,
    "list": stored.list_runs,
    "show": stored.show,
    "compare": compare.compare,
    "gpus": machine.gpus,
    "watch": machine.watch,
}


def main(words: Sequence[str], more: Mapping[str, Command]) -> int:
    """Does what the words say and returns the exit status; the user's errors are one sentence on stderr.

    `more` are commands of the layers above (`bench`).
    """
    chosen = parser().parse_args(words)
    try:
        return {**COMMANDS, **more}[chosen.command](chosen)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough; stdout must not be flushed again at exit.
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130
