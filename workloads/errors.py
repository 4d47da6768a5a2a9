"""How a run can fail: the exceptions, where in a user's file an error occurred, and the outcome to report."""

import re
import time
import traceback
from dataclasses import dataclass
from pathlib import PurePath
from types import FunctionType

from workloads.framework import FRAMEWORK
from workloads.protocol import Finished, Source, Variant, WorkerOutcome


class RefusedError(Exception):
    """The variant cannot run here; the message says what would."""


class OutOfMemoryError(Exception):
    """A device or the host has not enough memory."""


class TrainingError(Exception):
    """Training itself went wrong (a loss that is not finite), with nothing wrong in the program."""


class CustomWorkloadError(Exception):
    """A user's file breaks the interface of custom workloads; the message begins with the file and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """What an error of the framework means: the outcome, and one sentence with what to do, None for a generic one."""

    outcome: WorkerOutcome
    reason: str | None = None


_COLOURS_AND_LABELS = re.compile(r"\x1b\[[0-9;]*m|\{\{[^{}]*\}\} ")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_CONTEXT_LINE = re.compile(
    r'\s*(Exception encountered when calling |Graph execution error:|Detected at node |<stack traces |File ")'
)
"""Lines in which libraries say where something went wrong, before the line that says what did."""
_MAX_MESSAGE_LENGTH = 300


def file_name(source: Source) -> str:
    """Return the file's name without its folder."""
    return PurePath(source.path).name


def error_location(error: BaseException, source: Source) -> str:
    """Return the file's name and the last line of it that the error passed, `mlp.py:12`; the name alone if none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source.path]
    # What fails when a graph runs has the lines that made the graph in its message alone.
    lines += [int(line) for path, line in _FRAME.findall(str(error)) if path == source.path]
    if isinstance(error, SyntaxError) and error.filename == source.path and error.lineno is not None:
        lines.append(error.lineno)
    return ":".join([file_name(source), *map(str, lines[-1:])])


def function_location(function: FunctionType) -> str:
    """Return the file's name and the line at which a function begins."""
    return f"{PurePath(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"


def describe_error(error: BaseException) -> str:
    """Return the error's kind and the first line of its message that says what is wrong, not where; shortened."""
    # A syntax error without its file and line: they are reported before it.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line.strip() for line in _COLOURS_AND_LABELS.sub("", message).splitlines() if line.strip()]
    text = next((line for line in lines if not _CONTEXT_LINE.match(line)), "".join(lines[:1]))
    if len(text) > _MAX_MESSAGE_LENGTH:
        text = f"{text[:_MAX_MESSAGE_LENGTH]} …"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def outcome_of(
    error: Exception,
    variant: Variant,
    peak_bytes: int | None,
    source: Source | None = None,
    known: KnownError | None = None,
) -> Finished:
    """Return how a run ends that raised an error.

    Args:
        error: The error.
        variant: The run's variant, for the message of a device without memory.
        peak_bytes: The allocator's peak, None if unknown.
        source: The file of a custom workload: errors in it are reported with file and line.
        known: The backend's explanation of the error.
    """
    now_ns = time.monotonic_ns()
    if isinstance(error, RefusedError):
        return Finished(outcome="refused", t_ns=now_ns, reason=str(error))
    if isinstance(error, TrainingError):
        reason = f"{file_name(source)}: {error}" if source else str(error)
        return Finished(outcome="failed", t_ns=now_ns, reason=reason, allocator_peak_bytes=peak_bytes)
    if isinstance(error, OutOfMemoryError | MemoryError) or (known and known.outcome == "out_of_memory"):
        reason = _out_of_memory_message(variant, peak_bytes)
        return Finished(outcome="out_of_memory", t_ns=now_ns, reason=reason, allocator_peak_bytes=peak_bytes)
    if known and known.outcome == "refused":
        return Finished(outcome="refused", t_ns=now_ns, reason=known.reason)
    return Finished(
        outcome="failed",
        t_ns=now_ns,
        reason=known.reason if known else _failure_message(error, source),
        traceback="".join(traceback.format_exception(error)),
        allocator_peak_bytes=peak_bytes,
    )


def _out_of_memory_message(variant: Variant, peak_bytes: int | None) -> str:
    peak = f" ({FRAMEWORK.name} held {peak_bytes / 2**30:.1f} GiB at most)" if peak_bytes else ""
    return f"Memory ran out at batch_size={variant.get('batch_size')}{peak}; try a smaller batch size."


def _failure_message(error: Exception, source: Source | None) -> str:
    if isinstance(error, CustomWorkloadError):
        return str(error)
    return f"{error_location(error, source)}: {describe_error(error)}" if source else describe_error(error)
