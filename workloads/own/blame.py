"""Where in a user's own file an error comes from."""

import traceback
from pathlib import PurePath
from types import FunctionType

from workloads.protocol import Source


def file_name(source: Source) -> str:
    """The file as its user calls it, without its folder."""
    return PurePath(source.path).name


def place_of(error: BaseException, source: Source) -> str:
    """The file's name and the line that the error passed last, `mlp.py:12`; the name alone where it passed none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source.path]
    if isinstance(error, SyntaxError) and error.filename == source.path and error.lineno is not None:
        lines.append(error.lineno)
    return ":".join([file_name(source), *map(str, lines[-1:])])


def place_of_function(function: FunctionType) -> str:
    """The file's name and the line at which a function begins."""
    return f"{PurePath(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"
