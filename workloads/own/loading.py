"""A user's own file as a module of this process: only ever a worker's, or that of an errand."""

import inspect
import io
import linecache
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType

from workloads.errors import OwnWorkloadError
from workloads.own.blame import file_name, place_of
from workloads.protocol import Source

_MODULE = "own_workload"


def load(source: Source) -> ModuleType:
    """The file's text, run as a module; raises whatever it raises, and `OwnWorkloadError` where it ends the program."""
    module = ModuleType(_MODULE)
    module.__file__ = source.path
    sys.modules[_MODULE] = module
    # Tracebacks then show the lines that ran, not those that the file has by now.
    linecache.cache[source.path] = (len(source.text), None, source.text.splitlines(keepends=True), source.path)
    # Nobody answers there: the worker's own stdin is how it is asked to stop.
    sys.stdin = io.StringIO()
    try:
        exec(compile(source.text, source.path, "exec"), module.__dict__)  # noqa: S102 - the user chose this file
    except SystemExit as error:
        raise OwnWorkloadError(f"{place_of(error, source)}: the file ends the program when it is read.") from error
    return module


def functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions that the file itself defines and does not keep private, in its order."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == _MODULE and not name.startswith("_"):
            yield value


def function_called(name: str, module: ModuleType, source: Source) -> FunctionType:
    """The file's function of that name; raises `OwnWorkloadError` naming those there are."""
    found = {function.__name__: function for function in functions(module)}
    if name not in found:
        there = f"It has {', '.join(found)}." if found else "It defines none."
        raise OwnWorkloadError(f"{file_name(source)}: There is no function {name} in it. {there}")
    return found[name]
