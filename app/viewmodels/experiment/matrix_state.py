"""Rows and state of the experiment form as values, and lists of parameter values as text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.units import sentence
from app.viewmodels.experiment.preview import RefusedGroup
from app.viewmodels.format.naming import value_text
from app.viewmodels.run.form import Option
from workloads.catalog import Parameter, UsageError, parse
from workloads.protocol import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The limits the user has chosen.

    Attributes:
        repeats: Runs per variant, None for the default.
        until_pct: Target precision, ± percent.
        budget_s: Time limit of one sitting.
        side_by_side: Use different GPUs concurrently.
        again: Count no stored runs.
        reuse: Count stored runs however old they are; `again` has precedence.
    """

    repeats: int | None = None
    until_pct: float | None = None
    budget_s: float | None = None
    side_by_side: bool = False
    again: bool = False
    reuse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One parameter in the matrix.

    Attributes:
        name: Its name.
        label: Its label.
        help: Its tooltip.
        options: Values to tick; empty where they are typed.
        chosen: The values that are compared.
        text: The values as typed.
        unit: Unit of typed values.
        placeholder: Shown while nothing is typed.
        folded: Shown on demand only.
        problem: What is wrong with the text.
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
    """Everything the matrix shows.

    `problem` says why the experiment cannot begin, "" if it can. `variants` are the names of those that can run,
    `baseline` an index of them. `side_by_side` is None on a machine where it makes no difference.
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
    reuse: bool
    headline: str
    detail: str
    problem: str
    command: str


_NUMBERS = re.compile(r"[,;\s]+")
_NUMBERS_WITH_COMMAS = re.compile(r"(?:[;\s]|,(?!\d))+")
"""Leaves `0,5`, which may be one number or two, whole: as such it is refused."""


def parse_values(parameter: Parameter, text: str) -> tuple[Value, ...]:
    """Return the values in the order typed, each once; raises `UsageError` for an invalid one."""
    return tuple(dict.fromkeys(parse(parameter, word) for word in _split_values(parameter, text)))


def describe_invalid(parameter: Parameter, text: str, *, typing: bool = False) -> str:
    """Return a sentence for each invalid value; "" where all are valid.

    While `typing` the last value is not judged.
    """
    words = _split_typed(parameter, text)
    ends_word = text.endswith((_separator(parameter).strip(), " "))
    sentences = []
    for word in words[:-1] if typing and not ends_word else words:
        try:
            parse(parameter, word)
        except UsageError as error:
            sentences.append(sentence(str(error).replace(parameter.name, parameter.label, 1)))
    return " ".join(dict.fromkeys(sentences))


def format_values(parameter: Parameter, values: Sequence[Value]) -> str:
    """Return the values as they are typed here."""
    return _separator(parameter).join(map(value_text, values))


def format_cli_values(parameter: Parameter, values: Sequence[Value]) -> str:
    """Return the values as the command line takes them."""
    return _separator(parameter).strip().join(map(value_text, values))


def list_placeholder(parameter: Parameter) -> str:
    """Return what no value means, and how to type several where commas do not separate them."""
    several = "" if _separator(parameter) == ", " else "; several as 0; 1"
    return parameter.unset + several


def _split_typed(parameter: Parameter, text: str) -> list[str]:
    """Return the values of the window's list; on the command line a comma always separates."""
    if parameter.kind == "number" and "." not in text:
        return [word for word in _NUMBERS_WITH_COMMAS.split(text) if word]
    return _split_values(parameter, text)


def _split_values(parameter: Parameter, text: str) -> list[str]:
    if parameter.kind in ("integer", "number"):
        return [word for word in _NUMBERS.split(text) if word]
    # An empty word is a value too: this program's own Python, the first free GPUs.
    return [word.strip() for word in text.split(_separator(parameter).strip())]


def _separator(parameter: Parameter) -> str:
    """Return what separates two values; `devices` is itself a list with commas."""
    return "; " if parameter.name == "devices" else ", "
