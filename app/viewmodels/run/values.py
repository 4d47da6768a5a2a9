"""Values of a parameter as text: one, several, or a range of them, as the form and the command line take them."""

import math
import re
from collections.abc import Iterator, Sequence

from app.units import sentence
from app.viewmodels.format.naming import value_text
from workloads.catalog import MAX_VARIANTS, Parameter, UsageError, parse
from workloads.protocol import Value

_SEPARATORS = re.compile(r"[,;\s]+")
_SEPARATORS_OF_DECIMALS = re.compile(r"(?:[;\s]|,(?!\d))+")
"""Leaves `0,5`, which may be one number or two, whole: as such it is refused."""
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})\s*\.\.\s*(?P<last>{_NUMBER})(?:\s*(?P<sign>[x×*+])\s*(?P<step>{_NUMBER}))?")
"""`8..128`, with `x2` in multiples and with `+8` in steps; a range without either doubles."""

_LIKE_A_RANGE = re.compile(r"\.\.|\d-\d")
_NO_RANGE = "{} is no range: write 8..128 x2 or 8..32 +8."


def parse_values(parameter: Parameter, text: str) -> tuple[Value, ...]:
    """Return the values in the order typed, each once; raises `UsageError` for an invalid one."""
    return tuple(dict.fromkeys(value for word in _split(parameter, text) for value in _parse(parameter, word)))


def describe_invalid(parameter: Parameter, text: str) -> str:
    """Return a sentence for each invalid value that was typed in the window; "" where all are valid."""
    sentences = []
    has_decimals = parameter.kind == "number" and "." not in text
    for word in _split(parameter, text, _SEPARATORS_OF_DECIMALS if has_decimals else _SEPARATORS):
        try:
            _parse(parameter, word)
        except UsageError as error:
            sentences.append(sentence(str(error).replace(parameter.name, parameter.label, 1)))
    return " ".join(dict.fromkeys(sentences))


def format_value(parameter: Parameter, value: Value) -> str:
    """Return a value as it is shown and typed in the window."""
    if parameter.unset and value == parameter.minimum:
        return parameter.unset
    return value_text(value)


def format_values(parameter: Parameter, values: Sequence[Value]) -> str:
    """Return the values as they are typed in the window."""
    return f"{_separator(parameter)} ".join(format_value(parameter, value) for value in values)


def format_cli_values(parameter: Parameter, values: Sequence[Value]) -> str:
    """Return the values as the command line takes them."""
    return _separator(parameter).join(map(value_text, values))


def _parse(parameter: Parameter, word: str) -> Sequence[Value]:
    """Return the value of a word, or those of a range; raises `UsageError`."""
    if parameter.kind not in ("integer", "number"):
        return (parse(parameter, word),)
    if parameter.unset and word == parameter.unset and parameter.minimum is not None:
        return (parse(parameter, f"{parameter.minimum:g}"),)
    found = _RANGE.fullmatch(word)
    if found is None and _LIKE_A_RANGE.search(word):
        raise UsageError(_NO_RANGE.format(word))
    if found is None:
        return (parse(parameter, word),)
    first, last = (float(parse(parameter, found[end])) for end in ("first", "last"))
    values = list(_range(first, last, found["sign"] or "x", float(found["step"] or 2), word))
    return [parse(parameter, f"{value:.10g}") for value in values]


def _range(first: float, last: float, sign: str, step: float, word: str) -> Iterator[float]:
    if last < first or (sign == "+" and step <= 0) or (sign != "+" and (step <= 1 or first <= 0)):
        raise UsageError(_NO_RANGE.format(word))
    for count in range(MAX_VARIANTS + 1):
        value = first + count * step if sign == "+" else first * step**count
        if value > last and not math.isclose(value, last):
            return
        yield value


def _split(parameter: Parameter, text: str, separators: re.Pattern[str] = _SEPARATORS) -> list[str]:
    if parameter.kind not in ("integer", "number"):
        # An empty word is a value too: this program's own Python, the first free GPUs.
        return [word.strip() for word in text.split(_separator(parameter))]
    if parameter.unset and text.strip() == parameter.unset:
        return [parameter.unset]
    ranges = [found[0] for found in _RANGE.finditer(text)]
    blanked = _RANGE.sub("\0", text)
    return [ranges.pop(0) if word == "\0" else word for word in separators.split(blanked) if word]


def _separator(parameter: Parameter) -> str:
    """Return what separates two values; `devices` is itself a list with commas."""
    return ";" if parameter.name == "devices" else ","
