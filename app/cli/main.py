"""The command line: `python -m app COMMAND …`. Exit status 0 completed, 1 any other outcome, 2 wrong use."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource
from click.shell_completion import shell_complete

from app.cli.commands import ProgramGroup, UpperLayers, describe_wrong_use
from app.cli.options import DATABASE, DATABASE_HELP, SAMPLE_PERIOD
from app.cli.terminal import drop_output, plain_output, say
from app.errors import UserError
from app.log import LEVELS, configure
from app.paths import COMPLETE_VARIABLE, PROGRAM
from app.values.plain import one_line
from app.values.samples import SAMPLE_MS
from workloads.catalog import UsageError

_NONE = UpperLayers()
_MAX_USAGE_CHARS = 2_000


def _print_version(context: click.Context, _param: click.Parameter, is_requested: bool) -> None:
    if is_requested and not context.resilient_parsing:
        from app.paths import program_version  # here: no other command needs it

        print(f"VariantScope {program_version()}")
        context.exit()


@click.group(
    cls=ProgramGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which training variant is faster on this machine, by how much, at what energy?"
    " Without a command the window opens.",
)
@click.option("--db", "database", type=DATABASE, metavar="PATH", help=DATABASE_HELP)
@click.option(
    "--sample-ms",
    type=SAMPLE_PERIOD,
    metavar="N",
    default=SAMPLE_MS,
    help=f"Milliseconds between two telemetry readings (default {SAMPLE_MS:g}).",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    metavar="LEVEL",
    help=f"How much to log: {', '.join(LEVELS)} (default info).",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def program(context: click.Context, database: Path | None, sample_ms: float, log_level: str | None) -> int:
    """Start the log; open the window where no command is given, and return its exit status."""
    configure(log_level)
    if context.invoked_subcommand is not None:
        return 0
    open_window = context.ensure_object(UpperLayers).open_window
    if open_window is None:
        raise UsageError(f"A command is missing. `{PROGRAM} --help` shows how it is used.")
    is_given = context.get_parameter_source("sample_ms") is not ParameterSource.DEFAULT
    return open_window(database, sample_ms if is_given else None, None)


def main(words: Sequence[str], upper: UpperLayers = _NONE) -> int:
    """Execute the words and return the exit status; the user's errors are one sentence on stderr.

    A shell requests a completion by environment variables (click's documentation, Shell Completion).
    """
    # None if the program was started with it closed: https://docs.python.org/3/library/sys.html#sys.stdout
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(program, {"obj": upper}, "variantscope", COMPLETE_VARIABLE, instruction)
    with plain_output():
        return _answer(words, upper)


def _answer(words: Sequence[str], upper: UpperLayers) -> int:
    try:
        status = _run(words, upper)
        # Buffered output meets a closed pipe or a full disk here, where it can be reported, not at exit.
        sys.stdout.flush()
        return status
    except click.UsageError as error:
        print(one_line(describe_wrong_use(error), _MAX_USAGE_CHARS), file=sys.stderr)
        return 2
    except UsageError as error:
        say(str(error))
        return 2
    except UserError as error:  # a job's error may have its traceback in further lines
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output (head, less) has seen enough.
        drop_output(1)
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        drop_output(1)
        print(
            "The result cannot be written: the disk is full. Free some space; what is stored is kept.", file=sys.stderr
        )
        return 1


def _run(words: Sequence[str], upper: UpperLayers) -> int:
    """Parse the words and call the command, without `click.Command.main`, which would handle Ctrl-C itself."""
    try:
        with program.make_context(PROGRAM, list(words), obj=upper) as context:
            return int(program.invoke(context))
    except click.exceptions.Exit as end:
        return end.exit_code
