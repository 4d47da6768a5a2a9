"""Several values of a parameter as the user types them: `128, 256, 512`."""

import re
from collections.abc import Sequence

from app.viewmodels.naming import value_text
from workloads.catalog import Parameter, parse
from workloads.protocol import Value

_NUMBERS = re.compile(r"[,;\s]+")


def parse_values(parameter: Parameter, text: str) -> tuple[Value, ...]:
    """The values in the order typed, each once; raises `UsageError` for one that the parameter cannot have."""
    return tuple(dict.fromkeys(parse(parameter, word) for word in _words(parameter, text)))


def values_text(parameter: Parameter, values: Sequence[Value]) -> str:
    """The values as they are typed here."""
    return _between(parameter).join(map(value_text, values))


def written(parameter: Parameter, values: Sequence[Value]) -> str:
    """The values as the command line takes them."""
    return _between(parameter).strip().join(map(value_text, values))


def where_empty(parameter: Parameter) -> str:
    """What no value stands for, and how several are typed where no comma is between them."""
    several = "" if _between(parameter) == ", " else "; several as 0; 1"
    return parameter.unset + several


def _words(parameter: Parameter, text: str) -> list[str]:
    if parameter.kind in ("integer", "number"):
        return [word for word in _NUMBERS.split(text) if word]
    # An empty word is a value too: this program's own Python, the first free GPUs.
    return [word.strip() for word in text.split(_between(parameter).strip())]


def _between(parameter: Parameter) -> str:
    """What stands between two values; `devices` is itself a list with commas."""
    return "; " if parameter.name == "devices" else ", "
