"""The frame of the command line: the table of commands, loaded on demand, and the parsing of parameters."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import augment_usage_errors
from click.shell_completion import CompletionItem

from app.paths import PROGRAM, RUNS_SUFFIX

OpenWindow = Callable[[Path | None, float | None, Path | None], int]
"""Opens the window: database, ms between readings, and a file to open."""

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run": {
        "run": ("app.cli.run:run", "Run one variant once and store it."),
        "experiment": ("app.cli.experiment:experiment", "Run variants in turn, several times; report which is faster."),
        "queue": ("app.cli.queue:queue", "Show unfinished experiments; run, move, pause or remove them."),
        "portability": ("app.cli.run:portability", "Try a run's saved weights in other implementations."),
    },
    "Compare": {
        "compare": ("app.cli.compare:compare", "Compare stored runs: which is faster, why, and what differs."),
        "check-equal": ("app.cli.run:check_equal", "Check that the variants of stored runs compute the same."),
    },
    "History": {
        "list": ("app.cli.library:list_runs", "List the stored runs, newest first."),
        "show": ("app.cli.show:show", "Show one stored run."),
        "note": ("app.cli.library:note", "Write a note on a run, or show it."),
        "tag": ("app.cli.library:tag", "Add tags to runs, or remove them."),
        "delete": ("app.cli.library:delete", "Move runs to the trash, or delete samples of old runs."),
        "restore": ("app.cli.library:restore", "Restore runs from the trash."),
        "export": ("app.cli.transfer:export", "Write runs to files: tables, a timeline, a database, a model."),
        "import": ("app.cli.transfer:import_database", "Add the runs of another database that this one lacks."),
        "reference": ("app.cli.transfer:reference", "List the H200 runs that come with the program, or add them."),
    },
    "Machine": {
        "hosts": ("app.cli.hosts:hosts", "Name machines reached over SSH, Slurm, Ray or Docker."),
        "gpus": ("app.cli.machine:gpus", "Show the GPUs and what they report; measure their peak."),
        "watch": ("app.cli.telemetry:watch", "Print live telemetry without a run."),
    },
}
"""Every command by section: its definition, as `module:name`, and its help."""

FORMER: Mapping[str, str] = {
    r"calibrate": r"gpus calibrate",
    r"diff": r"compare --diff",
    r"experiment(.*) --presets": r"list presets\1",
    r"list(.*) --experiments": r"list experiments\1",
    r"prune(.*) --older-than": r"delete\1 --samples-older-than",
    r"prune": r"delete",
    r"queue(.*) go-on": r"queue\1 run",
    r"reference(.*) --(add|remove)": r"reference \2\1",
    r"run(.*) --parameters": r"list parameters\1",
    r"scaling": r"compare --scaling",
}
"""Former commands, no longer in any help, and their replacements; each space separates two words."""

_OPEN_FILE = "app.cli.transfer:open_file"
"""What happens to a file given instead of a command."""
_TARGETS = {name: target for section in SECTIONS.values() for name, (target, _) in section.items()}
HELP = {name: text for section in SECTIONS.values() for name, (_, text) in section.items()}


@dataclass(frozen=True, slots=True)
class UpperLayers:
    """Functions of the layers above; None if they are absent."""

    open_window: OpenWindow | None = None
    has_display: bool = False


class ProgramGroup(click.Group):
    """All commands in sections, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if no command has that name."""
        if cmd_name not in HELP:
            return None
        return _load(_TARGETS[cmd_name])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word and the remaining words; raises `click.NoSuchCommand`."""
        args = _current_line(args)
        if args[0] not in HELP and (Path(args[0]).is_file() or args[0].endswith((RUNS_SUFFIX, ".py", ".toml"))):
            return args[0], _load(_OPEN_FILE), args
        if args[0] not in HELP and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=HELP, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and helps, a section under each title."""
        width = max(map(len, HELP))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, (_, text) in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options with that beginning, without importing a command."""
        named = [CompletionItem(name, help=text) for name, text in HELP.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


def _current_line(words: Sequence[str]) -> list[str]:
    end = words.index("--") if "--" in words else len(words)
    line = "\0".join(words[:end])
    for former, current in FORMER.items():
        pattern = f"^{former}(?=[ =]|$)".replace(" ", "\0")
        line = re.sub(pattern, current.replace(" ", "\0"), line, flags=re.DOTALL)
    return [*line.split("\0"), *words[end:]]


def _load(target: str) -> click.Command:
    module, _, name = target.partition(":")
    command = getattr(importlib.import_module(module), name)
    assert isinstance(command, click.Command)
    return command


EVERYTHING = "everything"
"""The key of a help's context that lists every option."""


class RareOption(click.Option):
    """A rarely needed option: `--help-all` lists it, and `--help` mentions that."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the name and the help; None in the short help."""
        return super().get_help_record(ctx) if EVERYTHING in ctx.meta else None


def _help_all(ctx: click.Context, _param: click.Parameter, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        ctx.meta[EVERYTHING] = True
        click.echo(ctx.get_help())
        ctx.exit()


COMMAND_ARGUMENTS = "words"
"""The parameter of commands that take another program's command after `--`."""


class ProgramCommand(click.Command):
    """A command with examples in its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.examples = examples
        if rare := [param for param in self.params if isinstance(param, RareOption)]:
            text = f"Show this message with {len(rare)} more options."
            flag = {"is_flag": True, "is_eager": True, "expose_value": False}
            self.params.append(click.Option(["--help-all"], **flag, callback=_help_all, help=text))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words after the command's name; when the shell completes an option's value, without that option."""
        if COMMAND_ARGUMENTS in {param.name for param in self.params} and "--" in args:
            begin = args.index("--")
            ctx.meta[COMMAND_ARGUMENTS], args = tuple(args[begin + 1 :]), args[:begin]
        args = self._with_settings(args)
        is_open = ctx.resilient_parsing and bool(args) and args[-1].startswith("-")
        with augment_usage_errors(ctx):  # otherwise an option without its value would count as one of the program
            return super().parse_args(ctx, args[:-1] if is_open else args)

    def _with_settings(self, args: Sequence[str]) -> list[str]:
        """Return the words with `-s batch_size=64` for `--batch-size 64` or `--batch-size=64`."""
        options = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        words, remaining = list[str](), list(args)
        parameters = parameter_names() if "-s" in options and any(word.startswith("--") for word in remaining) else ()
        while remaining:
            option, equals, value = remaining.pop(0).partition("=")
            name = option.removeprefix("--").replace("-", "_")
            if option.startswith("--") and option not in options and name in parameters and (equals or remaining):
                words += ["-s", f"{name}={value if equals else remaining.pop(0)}"]
            else:
                words.append(f"{option}{equals}{value}")
        return words

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, which must not be wrapped."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{PROGRAM} {example}\n")


def describe_wrong_use(error: click.UsageError) -> str:
    """Return in one line what is wrong, in click's words, and where to find help unless the sentence says all."""
    message = error.format_message()
    wrong = message if message.endswith((".", "?", "?)")) else f"{message}."
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        return wrong
    where = error.ctx.command_path if error.ctx is not None else PROGRAM
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument) and error.ctx is not None:
        arguments = [param for param in error.ctx.command.params if isinstance(param, click.Argument)]
        names = " ".join(argument.make_metavar(error.ctx) for argument in arguments)
        where_runs_are = f"; `{PROGRAM} list` shows the numbers of runs" if "RUN" in names else ""
        return f"{error.ctx.info_name} takes {names}{where_runs_are}."
    takes_settings = error.ctx is not None and any(param.name == "settings" for param in error.ctx.command.params)
    if takes_settings and (setting := _SETTING.search(wrong)) and setting[1] in parameter_names():
        wrong += f" Did you mean -s {setting[0]}?"
    return f"{wrong} `{where} --help` shows how it is used."


_SETTING = re.compile(r"(\w+)=[^\s()]+")


def parameter_names() -> set[str]:
    from workloads import catalog  # here: most commands are used correctly

    return {parameter.name for workload in catalog.WORKLOADS for parameter in workload.parameters}
