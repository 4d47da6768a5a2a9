"""Types of values, arguments and options shared by several commands."""

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from app.cli.commands import HELP, ProgramCommand, RareOption
from app.errors import UserError
from app.paths import PROGRAM, default_database
from app.values.plain import one_line
from app.values.samples import SAMPLE_MS
from workloads import catalog

_MAX_RUNS = 50
"""The number of newest runs to offer."""


def complete_workloads(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the program's workloads, and files once a path is begun."""
    named = _matching(((workload.name, "") for workload in catalog.WORKLOADS if not workload.hidden), incomplete)
    return named or [CompletionItem(incomplete, type="file")]


def complete_settings(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer `name=` for the workload's parameters, then the values; further ones after commas."""
    typed = context.params.get("workload")
    workload = next((workload for workload in catalog.WORKLOADS if workload.name == typed), None)
    if workload is None:
        return []
    name, equals, typed = incomplete.partition("=")
    if not equals:
        return _matching(((f"{parameter.name}=", parameter.label) for parameter in workload.parameters), incomplete)
    begun, comma, _ = typed.rpartition(",")
    values = [value for parameter in workload.parameters if parameter.name == name for value in _values(parameter)]
    unused = (value for value in values if value not in begun.split(","))
    return _matching(((f"{name}={begun}{comma}{value}", "") for value in unused), incomplete)


def _values(parameter: catalog.Parameter) -> list[str]:
    if parameter.kind == "switch":
        return ["false", "true"]
    return [choice.value for choice in parameter.choices] or [f"{parameter.default}"]


def complete_runs(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the newest runs of the database; none without a database."""
    database = context.params.get("database") or default_database()
    if not database.exists():
        return []
    # Here, so that other completions do not wait for the database's modules.
    from app.queries import RunQuery
    from app.storage.store import Store
    from app.viewmodels.format.naming import short_name

    try:
        with Store.open(database) as store:
            rows = store.library.run_rows(store.library.find(RunQuery())[:_MAX_RUNS])
    except UserError:
        return []
    return _matching(((str(row.run), short_name(row.spec)) for row in rows), incomplete)


def complete_presets(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the program's presets, and files once a path is begun."""
    from app.runs.experiment.presets import preset_names  # here, as above

    return _matching(((name, "") for name in preset_names()), incomplete) or [CompletionItem(incomplete, type="file")]


def complete_hosts(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from app.hosts.book import read_hosts  # here, as above

    try:
        return _matching(((entry.name, entry.address) for entry in read_hosts()), incomplete)
    except UserError:
        return []


def _matching(offers: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value, help=text) for value, text in offers if value.startswith(incomplete)]


Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DATABASE_HELP = "The database (default: profiles.db of this checkout)."


class _FilePath(click.Path):
    """A path, possibly of a missing file; an impossible path is refused here, before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = super().convert(value, param, ctx)
        try:
            path.exists()
        except OSError as error:
            path_text = one_line(str(path))
            self.fail(f"{path_text} cannot be used ({error.strerror})", param, ctx)
        return path


class _DatabasePath(_FilePath):
    """A database, which may be new, but only in an existing folder, because a mistyped path would create folders."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Path = super().convert(value, param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{one_line(str(path.parent))} is not a folder", param, ctx)
        return path


FILE = _FilePath(path_type=Path)
DATABASE = _DatabasePath(path_type=Path)

_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


class Parsed(click.ParamType[Any]):
    """A value that a function parses from a word; its `ValueError` explains why a word is invalid."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.name = read.__name__
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a word; a default, which is not a word, unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Verb(click.Choice[str]):
    """The action of a command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the verb; an unknown word is answered with similar ones."""
        if value in self.choices:
            return str(value)
        like = difflib.get_close_matches(value, self.choices)
        verbs = f"Did you mean {' or '.join(like)}?" if like else f"There are: {', '.join(self.choices)}."
        raise click.UsageError(f"There is no {value!r} of {ctx.info_name if ctx else ''}. {verbs}", ctx)


class Count(click.IntRange):
    """A whole number within limits."""

    name = "whole number"


class Number(click.FloatRange):
    """A number within limits, with an optional unit."""

    name = "number"

    def __init__(self, least: float, most: float, unit: str = "", *, is_open: bool = False) -> None:
        super().__init__(least, most, min_open=is_open, max_open=is_open)
        self._unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; click would accept NaN as within any limits."""
        word: Any = value.removesuffix(self._unit) if isinstance(value, str) else value
        number: float = super().convert(word, param, ctx)
        return self.fail("nan is not a number", param, ctx) if math.isnan(number) else number


class _RunNumber(click.ParamType[int]):
    """The number of a stored run; `last` is the newest one's."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; a value that is not a word, unchanged."""
        if value != "last" or ctx is None:
            try:
                return int(value)
            except ValueError:
                self.fail(f"{value!r} is not the number of a run; `{PROGRAM} list` shows them", param, ctx)
        from app.cli.services import open_store  # with the database's modules, which few words need
        from app.queries import RunQuery

        with open_store(ctx.params.get("database")) as store:
            runs = store.library.find(RunQuery())
        return runs[0] if runs else self.fail("there is no stored run yet", param, ctx)


def run_numbers(context: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers in words, which may contain commas and ranges; `3-6` are four."""
    numbers: list[int] = []
    for part in (part for word in words for part in word.split(",")):
        first, last = (ends["first"], ends["last"]) if (ends := _RANGE.fullmatch(part)) else (part, part)
        least, most = (RUN_NUMBER.convert(end, param, context) for end in (first, last))
        if most - least >= _MAX_RANGE:
            raise click.UsageError(f"{part} are more than {_MAX_RANGE:,} runs.", context)
        numbers += range(least, most + 1)
    return tuple(numbers)


_RANGE = re.compile(r"(?P<first>\d+)-(?P<last>\d+|last)")
_MAX_RANGE = 10_000


def read_time_s(word: str) -> float:
    """Return seconds from `8m`, `90s`, `1h30m` or a bare number of seconds; raises `ValueError` for anything else."""
    match = _TIME.fullmatch(word)
    if match is None or not word:
        raise ValueError(f"{word!r} is not a time such as 8m, 90s or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds


RUN_NUMBER = _RunNumber()
COUNT = Count(min=1)
TIME = Parsed(read_time_s)
SAMPLE_PERIOD = Number(10, 1000)


def command(name: str, *examples: str, uses_database: bool = True) -> Callable[[Callable[..., int]], ProgramCommand]:
    """Register a function as a command of the table, with `--db` and `--json`.

    Args:
        name: Its name in the table; the help of one that is not there is the function's docstring.
        examples: Words after the program's name that its help shows.
        uses_database: Whether the function gets `database`; every command takes `--db`.
    """

    def make(function: Callable[..., int]) -> ProgramCommand:
        command = click.command(name, cls=ProgramCommand, help=HELP.get(name, function.__doc__), examples=examples)
        return command(_database_option(used=uses_database)(_json_option(function)))

    return make


def _of_program(name: str) -> Callable[[], Any]:
    """Return a function for the value of an option given before the command, None without one."""
    return lambda: click.get_current_context().find_root().params.get(name)


def _database_option(*, used: bool) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--db",
        "database",
        is_eager=True,  # first, because it determines the last run
        type=DATABASE,
        metavar="PATH",
        default=_of_program("database"),
        expose_value=used,
        help=DATABASE_HELP,
    )


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")

sampling_option = click.option(
    "--sample-ms",
    cls=RareOption,
    type=SAMPLE_PERIOD,
    metavar="N",
    default=_of_program("sample_ms"),
    help=f"Milliseconds between two telemetry readings (default {SAMPLE_MS:g}).",
)


def _one_host(_context: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> str:
    """Return the word, "" without one; raises `click.UsageError`."""
    if len(words) > 1:
        raise click.UsageError("--on names one host: give it once.")
    return words[0] if words else ""


on_option = click.option(
    "--on",
    multiple=True,
    metavar="HOST",
    callback=_one_host,
    shell_complete=complete_hosts,
    help="On this host: a name of `hosts list`, or an address such as ssh://me@gpu1 (default: this machine).",
)
no_standby_option = click.option(
    "--no-standby", cls=RareOption, is_flag=True, help="Do not import a framework ahead of the next run."
)
parallel_option = click.option(
    "--parallel",
    cls=RareOption,
    type=Count(min=0),
    is_flag=False,
    flag_value=0,
    metavar="[N]",
    help="Up to N runs in parallel, each on its own GPUs (without N: as many as there are GPUs).",
)
no_gate_option = click.option(
    "--no-gate", cls=RareOption, is_flag=True, help="Do not wait for cool, unused GPUs or a quiet host."
)
again_option = click.option("--again", cls=RareOption, is_flag=True, help="Repeat every run; ignore stored runs.")
notify_option = click.option(
    "--notify",
    cls=RareOption,
    is_flag=True,
    help="Announce the end by notify-send if that works, else by the terminal's bell.",
)
report_option = click.option(
    "--report", type=FILE, metavar="FILE", help="Write a report with charts too: .html or .md."
)
KNOWN_WORKLOADS = ", ".join(workload.name for workload in catalog.WORKLOADS if not workload.hidden)
workload_argument = click.argument(
    "workload",
    required=False,
    metavar="[WORKLOAD]",
    shell_complete=complete_workloads,
    help=f"{KNOWN_WORKLOADS}, or path/to/file.py:name for a custom workload.",
)
run_argument = click.argument(
    "run", type=RUN_NUMBER, metavar="RUN", shell_complete=complete_runs, help="Its number in `list`, or last."
)


def settings_option(metavar: str, help: str) -> Callable[[Decorated], Decorated]:
    return click.option("-s", "settings", multiple=True, metavar=metavar, shell_complete=complete_settings, help=help)


def runs_argument(*, required: bool) -> Callable[[Decorated], Decorated]:
    return click.argument(
        "runs",
        callback=run_numbers,
        nargs=-1,
        required=required,
        metavar="RUN..." if required else "[RUN]...",
        shell_complete=complete_runs,
        help="Their numbers in `list`, or last.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """The stored runs that a command is about, and their order."""

    search: str = ""
    workload: str = ""
    outcome: str = ""
    tag: str = ""
    experiment: str | None = None
    deleted: bool = False
    sort: str = "started"
    reverse: bool = False

    @property
    def is_search(self) -> bool:
        return any((self.search, self.workload, self.outcome, self.tag, self.experiment))


def option_group(
    name: str, group: type[Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that adds options; the function gets their values as one argument, a dataclass.

    Further options of the function whose names are fields of the dataclass also belong to it.
    """

    def add(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def with_group(**values: Any) -> int:
            own = {field.name: values.pop(field.name) for field in fields(group) if field.name in values}
            return function(**values, **{name: group(**own)})

        return functools.reduce(lambda decorated, option: option(decorated), reversed(options), with_group)

    return add


filter_options = option_group(
    "run_filter",
    RunFilter,
    click.option("--search", default="", metavar="TEXT", help="Words in notes, tags, parameters, outcome or GPUs."),
    click.option(
        "--workload", default="", metavar="NAME", help="Only this workload.", shell_complete=complete_workloads
    ),
    click.option("--outcome", default="", metavar="NAME", help="Only this outcome, or running."),
    click.option("--tag", default="", metavar="TAG", help="Only runs with this tag."),
    click.option("--experiment", metavar="N|NAME", help="Only runs of this experiment."),
)


def given_parameters(context: click.Context) -> frozenset[str]:
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def option_name(parameter: str) -> str:
    """Return a parameter as the user writes it: `--no-gate`, `-s`, or the name of an argument."""
    others = {"workload": "WORKLOAD", "settings": "-s", "markup": "--format"}
    return others.get(parameter, f"--{parameter.replace('_', '-')}")
