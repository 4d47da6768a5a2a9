"""Loads a user's file as a module, and describes its workloads by the signatures and docstrings of its functions."""

import inspect
import io
import linecache
import math
import re
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args, get_origin

import msgspec

from workloads.custom.definitions import reserved_names
from workloads.errors import CustomWorkloadError, describe_error, error_location, file_name, function_location
from workloads.framework import FRAMEWORKS, framework_of_file, imported_frameworks
from workloads.job_protocol import CustomParameter, CustomParameterKind, CustomWorkload, FileDescription
from workloads.protocol import Source, Value, plain

_MODULE = "own_workload"


def load_module(source: Source) -> ModuleType:
    """Run the file's text as a module; raises whatever it raises, and `CustomWorkloadError` if it ends the program."""
    module = ModuleType(_MODULE)
    module.__file__ = source.path
    sys.modules[_MODULE] = module
    # Tracebacks then show the lines that ran, not those that the file has by now.
    linecache.cache[source.path] = (len(source.text), None, source.text.splitlines(keepends=True), source.path)
    # The worker's stdin is its control channel: a file that reads it would take the order to stop.
    sys.stdin = io.StringIO()
    try:
        exec(compile(source.text, source.path, "exec"), module.__dict__)  # noqa: S102 - the user chose this file
    except SystemExit as error:
        raise CustomWorkloadError(
            f"{error_location(error, source)}: the file ends the program when it is read."
        ) from error
    return module


def public_functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the public functions that the file itself defines, in its order."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == _MODULE and not name.startswith("_"):
            yield value


def find_function(name: str, module: ModuleType, source: Source) -> FunctionType:
    """Return a function of the file.

    Raises:
        CustomWorkloadError: There is none of that name; the message names those there are.
    """
    functions = {function.__name__: function for function in public_functions(module)}
    if name not in functions:
        available = f"It has {', '.join(functions)}." if functions else "It defines none."
        raise CustomWorkloadError(f"{file_name(source.path)}: There is no function {name} in it. {available}")
    return functions[name]


_BATCH_SIZE = "batch_size"
_PROGRAM_PARAMETERS = (_BATCH_SIZE, "seed")
"""Parameters that the program passes to a function that has them."""
_KIND_BY_TYPE: dict[type, CustomParameterKind] = {bool: "switch", int: "integer", float: "number", str: "text"}
_MOST_HELP_CHARS = 1_000
_MOST_TEXT_CHARS = 4_000
_MOST_BATCH_SIZE = 10**12
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def describe_file(source: Source, name: str = "") -> FileDescription:
    """Describe the workload of that name, or every function of the file that has a `batch_size` with a default.

    Raises `CustomWorkloadError`, and whatever the file raises when it is read.
    """
    imported = imported_frameworks(source.text)
    if len(imported) > 1:
        (earlier, _), (later, line), *_ = ((FRAMEWORKS[key].name, line) for key, line in imported.items())
        raise CustomWorkloadError(
            f"{file_name(source.path)}:{line}: the file imports {later} beside {earlier}; keep the workloads of each "
            "in a file of its own."
        )
    if "jax" in imported:
        raise CustomWorkloadError(
            f"{file_name(source.path)}:{imported['jax']}: custom workloads cannot be in JAX so far; write the file in "
            "Keras or PyTorch."
        )
    module = load_module(source)
    functions = [find_function(name, module, source)] if name else filter(_is_workload, public_functions(module))
    framework = framework_of_file(source.text)
    descriptions = map(describe_function, functions)
    workloads = tuple(msgspec.structs.replace(description, framework=framework) for description in descriptions)
    if not workloads:
        raise CustomWorkloadError(
            f"{file_name(source.path)}: No workload found: define a function with a parameter such as batch_size=32."
        )
    return FileDescription(workloads=workloads)


def describe_function(function: FunctionType) -> CustomWorkload:
    """Describe one function as a workload; raises `CustomWorkloadError`."""
    location, parameters = function_location(function), _parameters(function)
    if not _is_plain(function):
        raise CustomWorkloadError(
            f"{location}: {function.__name__} has async or yield in it; a workload is a plain function that returns "
            "(model, loss, batch)."
        )
    if not _is_workload(function):
        raise CustomWorkloadError(
            f"{location}: {function.__name__} needs a parameter such as batch_size: int = 32, "
            "how many examples its batch function gives."
        )
    size = parameters[_BATCH_SIZE].default
    if not _is_valid_batch_size(size):
        raise CustomWorkloadError(
            f"{location}: batch_size of {function.__name__} is {size!r}, and has to be a whole number from 1."
        )
    docstring = inspect.getdoc(function) or ""
    return CustomWorkload(
        name=function.__name__,
        help=plain(docstring.partition("\n")[0][:_MOST_HELP_CHARS]),
        batch_size=size,
        parameters=tuple(
            _describe_parameter(p, docstring, location)
            for p in parameters.values()
            if p.name not in _PROGRAM_PARAMETERS
        ),
    )


def _is_workload(function: FunctionType) -> bool:
    """Return whether a function is meant as a workload; its `batch_size` need not be a number for that."""
    parameter = _parameters(function).get(_BATCH_SIZE)
    return parameter is not None and parameter.default is not inspect.Parameter.empty


def _is_plain(function: FunctionType) -> bool:
    checks = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return not any(check(function) for check in checks)


def _is_valid_batch_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_BATCH_SIZE


def _parameters(function: FunctionType) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function, eval_str=True).parameters)
    except Exception as error:
        raise CustomWorkloadError(f"{function_location(function)}: {describe_error(error)}") from error


def _describe_parameter(parameter: inspect.Parameter, docstring: str, location: str) -> CustomParameter:
    name, default = parameter.name, parameter.default
    if parameter.kind not in _KEYWORD_KINDS:
        raise CustomWorkloadError(
            f"{location}: {parameter} cannot be set; name every parameter, each with its default."
        )
    if name in reserved_names():
        raise CustomWorkloadError(
            f"{location}: {name} is what the program calls a setting of its own; choose another name."
        )
    if default is inspect.Parameter.empty:
        raise CustomWorkloadError(f"{location}: {name} needs a default, such as {name}: int = 64.")
    if isinstance(default, int) and not -(2**63) <= default < 2**63:
        raise CustomWorkloadError(f"{location}: the default of {name} is a number of more than 64 bits.")
    annotation = type(default) if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    kind, choices = _parameter_kind(annotation)
    if kind is None or not _is_valid_default(default, kind, choices):
        raise CustomWorkloadError(
            f"{location}: {parameter} is none that can be set; "
            "a parameter is an int, float, bool, str or a Literal of words, with a default of that type."
        )
    for text in (word for word in (default, *choices) if isinstance(word, str)):
        if len(text) > _MOST_TEXT_CHARS or plain(text) != text:
            raise CustomWorkloadError(
                f"{location}: a text of {name} has more than {_MOST_TEXT_CHARS:,} characters, or control characters."
            )
    value: Value = float(default) if kind == "number" else default
    return CustomParameter(name=name, kind=kind, default=value, help=_parameter_help(name, docstring), choices=choices)


def _parameter_kind(annotation: Any) -> tuple[CustomParameterKind | None, tuple[str, ...]]:
    """Return the kind of parameter that an annotation stands for, with its choices; None if it cannot be set."""
    if get_origin(annotation) is not Literal:
        return _KIND_BY_TYPE.get(annotation), ()
    values = get_args(annotation)
    return ("choice" if all(isinstance(word, str) for word in values) else None), values


def _is_valid_default(default: object, kind: CustomParameterKind, choices: tuple[str, ...]) -> bool:
    if kind == "choice":
        return default in choices
    if kind == "number":
        return isinstance(default, int | float) and not isinstance(default, bool) and math.isfinite(default)
    return _KIND_BY_TYPE.get(type(default)) == kind


def _parameter_help(name: str, docstring: str) -> str:
    """Return what a docstring says of a parameter, on a line of its own such as `units: Units of each layer`."""
    match = re.search(rf"^\s*{name}\s*(?:\([^)]*\))?:\s*(.+)$", docstring, re.MULTILINE)
    return plain(match[1].strip()[:_MOST_HELP_CHARS]) if match else ""
