"""The workloads of a user's file, by the signatures and docstrings of its functions."""

import inspect
import re
from types import FunctionType
from typing import Any, Literal, get_args, get_origin

from workloads.errors import OwnWorkloadError
from workloads.own.blame import file_name, place_of_function, words_of
from workloads.own.loading import function_called, functions, load
from workloads.own.menu import taken_names
from workloads.protocol import Described, OwnKind, OwnParameter, OwnWorkload, Source, Value

_BATCH_SIZE = "batch_size"
_PROGRAMS = (_BATCH_SIZE, "seed")
"""What the program gives to a function that asks for it."""
_KINDS: dict[type, OwnKind] = {bool: "switch", int: "integer", float: "number", str: "text"}
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def describe(source: Source, name: str = "") -> Described:
    """The workload of that name, or every function of the file that has a `batch_size` with a default.

    Raises `OwnWorkloadError`, and whatever the file raises when it is read.
    """
    module = load(source)
    if name:
        return Described(workloads=(described(function_called(name, module, source)),))
    found = tuple(described(function) for function in functions(module) if _is_workload(function))
    if not found:
        raise OwnWorkloadError(
            f"{file_name(source)}: There is no workload in it, that is, no function with a "
            "parameter such as batch_size: int = 32."
        )
    return Described(workloads=found)


def described(function: FunctionType) -> OwnWorkload:
    """One function as a workload; raises `OwnWorkloadError`."""
    place, parameters = place_of_function(function), _parameters(function)
    if not _is_plain(function):
        raise OwnWorkloadError(
            f"{place}: {function.__name__} has async or yield in it; a workload is a plain function that returns "
            "(model, loss, batch)."
        )
    if not _is_workload(function):
        raise OwnWorkloadError(
            f"{place}: {function.__name__} needs a parameter such as batch_size: int = 32, "
            "how many examples its batch function gives."
        )
    size = parameters[_BATCH_SIZE].default
    if not _is_size(size):
        raise OwnWorkloadError(
            f"{place}: batch_size of {function.__name__} is {size!r}, and has to be a whole number from 1."
        )
    words = inspect.getdoc(function) or ""
    return OwnWorkload(
        name=function.__name__,
        help=words.partition("\n")[0],
        batch_size=size,
        parameters=tuple(_parameter(p, words, place) for p in parameters.values() if p.name not in _PROGRAMS),
    )


def _is_workload(function: FunctionType) -> bool:
    """Whether it means to be one; its `batch_size` need not be a number for that."""
    asked = _parameters(function).get(_BATCH_SIZE)
    return asked is not None and asked.default is not inspect.Parameter.empty


def _is_plain(function: FunctionType) -> bool:
    others = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return not any(is_other(function) for is_other in others)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _parameters(function: FunctionType) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function, eval_str=True).parameters)
    except Exception as error:
        raise OwnWorkloadError(f"{place_of_function(function)}: {words_of(error)}") from error


def _parameter(parameter: inspect.Parameter, docstring: str, place: str) -> OwnParameter:
    name, default = parameter.name, parameter.default
    if parameter.kind not in _BY_NAME:
        raise OwnWorkloadError(f"{place}: {parameter} cannot be set; name every parameter, each with its default.")
    if name in taken_names():
        raise OwnWorkloadError(f"{place}: {name} is what the program calls a setting of its own; choose another name.")
    if default is inspect.Parameter.empty:
        raise OwnWorkloadError(f"{place}: {name} needs a default, such as {name}: int = 64.")
    asked = type(default) if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    kind, choices = _kind(asked)
    if kind is None or not _fits(default, kind, choices):
        raise OwnWorkloadError(
            f"{place}: {parameter} is none that can be set; "
            "a parameter is an int, float, bool, str or a Literal of words, with a default of that type."
        )
    given: Value = float(default) if kind == "number" else default
    return OwnParameter(name=name, kind=kind, default=given, help=_help(name, docstring), choices=choices)


def _kind(asked: Any) -> tuple[OwnKind | None, tuple[str, ...]]:
    """The kind of parameter that an annotation stands for, with its choices; None for one that cannot be set."""
    if get_origin(asked) is not Literal:
        return _KINDS.get(asked), ()
    words = get_args(asked)
    return ("choice" if all(isinstance(word, str) for word in words) else None), words


def _fits(default: object, kind: OwnKind, choices: tuple[str, ...]) -> bool:
    if kind == "choice":
        return default in choices
    if kind == "number":
        return isinstance(default, int | float) and not isinstance(default, bool)
    return _KINDS.get(type(default)) == kind


def _help(name: str, docstring: str) -> str:
    """What a docstring says of a parameter, on a line of its own such as `units: Units of each layer`."""
    found = re.search(rf"^\s*{name}\s*(?:\([^)]*\))?:\s*(.+)$", docstring, re.MULTILINE)
    return found[1].strip() if found else ""
