"""Where in a user's own file an error comes from."""

import re
import traceback
from pathlib import PurePath
from types import FunctionType

from workloads.protocol import Source

_PAINT = re.compile(r"\x1b\[[0-9;]*m|\{\{[^{}]*\}\} ")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_WHERE = re.compile(
    r'\s*(Exception encountered when calling |Graph execution error:|Detected at node |<stack traces |File ")'
)
"""Lines in which Keras and TensorFlow say where something went wrong, before what did."""
_LONGEST_WORDS = 300


def file_name(source: Source) -> str:
    """The file as its user calls it, without its folder."""
    return PurePath(source.path).name


def place_of(error: BaseException, source: Source) -> str:
    """The file's name and the line that the error passed last, `mlp.py:12`; the name alone where it passed none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source.path]
    # What fails when a graph runs has the lines that made the graph in its message alone.
    lines += [int(line) for path, line in _FRAME.findall(str(error)) if path == source.path]
    if isinstance(error, SyntaxError) and error.filename == source.path and error.lineno is not None:
        lines.append(error.lineno)
    return ":".join([file_name(source), *map(str, lines[-1:])])


def place_of_function(function: FunctionType) -> str:
    """The file's name and the line at which a function begins."""
    return f"{PurePath(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"


def words_of(error: BaseException) -> str:
    """The error's kind, and the first line of its message that says what is wrong, not where; shortened if long."""
    # Of a syntax error its own words alone: file and line are told before them.
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line.strip() for line in _PAINT.sub("", words).splitlines() if line.strip()]
    said = next((line for line in lines if not _WHERE.match(line)), "".join(lines[:1]))
    if len(said) > _LONGEST_WORDS:
        said = f"{said[:_LONGEST_WORDS]} …"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
