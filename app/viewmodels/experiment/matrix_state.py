"""Rows and state of the experiment form as values, and lists of parameter values as text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.viewmodels.experiment.preview import RefusedGroup
from app.viewmodels.format.naming import value_text
from app.viewmodels.run.form import Option
from workloads.catalog import Parameter, parse
from workloads.protocol import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far an experiment goes: repeats (None for the usual number), ± percent, seconds, runs side by side.

    With `again` stored runs do not count.
    """

    repeats: int | None = None
    until_pct: float | None = None
    budget_s: float | None = None
    side_by_side: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One parameter: values to tick (`options`), or else a list to type (`text`); `chosen` are those compared.

    `where_empty` stands in the list while nothing else does. `folded` ones are shown only when asked for. `problem` is
    what is wrong with the text.
    """

    name: str
    label: str
    help: str
    options: tuple[Option, ...]
    chosen: tuple[Value, ...]
    text: str = ""
    unit: str = ""
    placeholder: str = ""
    folded: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixState:
    """Everything the matrix shows; `problem` says why it cannot begin, "" where it can.

    `variants` are names of those that can run, `baseline` the index of the one all are held against. `side_by_side` is
    None on a machine where it is no choice.
    """

    workload: str
    rows: tuple[MatrixRow, ...]
    variants: tuple[str, ...]
    baseline: int
    combinations: int
    refused: tuple[RefusedGroup, ...]
    repeats: int
    min_repeats: int
    until_pct: float | None
    budget_s: float | None
    side_by_side: bool | None
    again: bool
    headline: str
    detail: str
    problem: str
    command: str


_NUMBERS = re.compile(r"[,;\s]+")


def parse_values(parameter: Parameter, text: str) -> tuple[Value, ...]:
    """The values in the order typed, each once; raises `UsageError` for one that the parameter cannot have."""
    return tuple(dict.fromkeys(parse(parameter, word) for word in _split_values(parameter, text)))


def format_values(parameter: Parameter, values: Sequence[Value]) -> str:
    """The values as they are typed here."""
    return _separator(parameter).join(map(value_text, values))


def format_cli_values(parameter: Parameter, values: Sequence[Value]) -> str:
    """The values as the command line takes them."""
    return _separator(parameter).strip().join(map(value_text, values))


def list_placeholder(parameter: Parameter) -> str:
    """What no value stands for, and how several are typed where no comma is between them."""
    several = "" if _separator(parameter) == ", " else "; several as 0; 1"
    return parameter.unset + several


def _split_values(parameter: Parameter, text: str) -> list[str]:
    if parameter.kind in ("integer", "number"):
        return [word for word in _NUMBERS.split(text) if word]
    # An empty word is a value too: this program's own Python, the first free GPUs.
    return [word.strip() for word in text.split(_separator(parameter).strip())]


def _separator(parameter: Parameter) -> str:
    """What stands between two values; `devices` is itself a list with commas."""
    return "; " if parameter.name == "devices" else ", "
