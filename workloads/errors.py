"""How a run can fail: the exceptions, where in a user's file an error occurred, and the outcome to report."""

import re
import time
import traceback
from pathlib import PurePath
from types import FunctionType

from workloads.protocol import Finished, Source, Variant


class RefusedError(Exception):
    """The variant cannot run here."""


class OutOfMemoryError(Exception):
    """A device or the host has not enough memory."""


class TrainingError(Exception):
    """Training itself went wrong (a loss that is not finite), with nothing wrong in the program."""


class CustomWorkloadError(Exception):
    """A user's own file is not as its interface has it; the message begins with the file and the line."""


_COLOURS_AND_LABELS = re.compile(r"\x1b\[[0-9;]*m|\{\{[^{}]*\}\} ")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_CONTEXT_LINE = re.compile(
    r'\s*(Exception encountered when calling |Graph execution error:|Detected at node |<stack traces |File ")'
)
"""Lines in which Keras and TensorFlow say where something went wrong, before what did."""
_MAX_MESSAGE_LENGTH = 300


def file_name(source: Source) -> str:
    """The file as its user calls it, without its folder."""
    return PurePath(source.path).name


def error_location(error: BaseException, source: Source) -> str:
    """The file's name and the line that the error passed last, `mlp.py:12`; the name alone where it passed none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source.path]
    # What fails when a graph runs has the lines that made the graph in its message alone.
    lines += [int(line) for path, line in _FRAME.findall(str(error)) if path == source.path]
    if isinstance(error, SyntaxError) and error.filename == source.path and error.lineno is not None:
        lines.append(error.lineno)
    return ":".join([file_name(source), *map(str, lines[-1:])])


def function_location(function: FunctionType) -> str:
    """The file's name and the line at which a function begins."""
    return f"{PurePath(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"


def describe_error(error: BaseException) -> str:
    """The error's kind, and the first line of its message that says what is wrong, not where; shortened if long."""
    # Of a syntax error its own words alone: file and line are told before them.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line.strip() for line in _COLOURS_AND_LABELS.sub("", message).splitlines() if line.strip()]
    text = next((line for line in lines if not _CONTEXT_LINE.match(line)), "".join(lines[:1]))
    if len(text) > _MAX_MESSAGE_LENGTH:
        text = f"{text[:_MAX_MESSAGE_LENGTH]} …"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_OUT_OF_MEMORY_PATTERNS = (
    "RESOURCE_EXHAUSTED",
    "out of memory",
    "OOM when allocating",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "failed to allocate memory",
)
_LAYOUT_PATTERNS = ("only supports NHWC", "only supports the NHWC", "only support NHWC", "NHWC tensor format")

_CUDNN_PATTERNS = (
    "DNN library initialization failed",
    "DNN library is not found",
    "No DNN in stream executor",
    "VERSION_MISMATCH",
    "CuDNN library needs to have matching major version",
)
_CUDNN_MESSAGE = (
    "cuDNN could not be started, most often because another version of it was loaded than TensorFlow was built for: "
    "the log names both. Install the right one with `pip install 'tensorflow[and-cuda]>=2.21,<2.22'`, and take other "
    "ones out of LD_LIBRARY_PATH."
)


def outcome_of(error: Exception, variant: Variant, peak_bytes: int | None, source: Source | None = None) -> Finished:
    """How a run ends that raised this; `peak_bytes` is the allocator's peak, if known.

    What goes wrong in a user's own `source` is told with its file and line.
    """
    now_ns = time.monotonic_ns()
    if isinstance(error, RefusedError):
        return Finished(outcome="refused", t_ns=now_ns, reason=str(error))
    if isinstance(error, TrainingError):
        reason = f"{file_name(source)}: {error}" if source else str(error)
        return Finished(outcome="failed", t_ns=now_ns, reason=reason, allocator_peak_bytes=peak_bytes)
    if _is_out_of_memory(error):
        reason = _out_of_memory_message(variant, peak_bytes)
        return Finished(outcome="out_of_memory", t_ns=now_ns, reason=reason, allocator_peak_bytes=peak_bytes)
    if any(pattern in str(error) for pattern in _LAYOUT_PATTERNS):
        reason = "TensorFlow on this processor has no NCHW kernels for this variant; use layout=NHWC, or xla=true."
        return Finished(outcome="refused", t_ns=now_ns, reason=reason)
    return Finished(
        outcome="failed",
        t_ns=now_ns,
        reason=_CUDNN_MESSAGE
        if any(words in str(error) for words in _CUDNN_PATTERNS)
        else _failure_message(error, source),
        traceback="".join(traceback.format_exception(error)),
        allocator_peak_bytes=peak_bytes,
    )


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, OutOfMemoryError | MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return True
    return any(pattern in str(error) for pattern in _OUT_OF_MEMORY_PATTERNS)


def _out_of_memory_message(variant: Variant, peak_bytes: int | None) -> str:
    peak = f" (TensorFlow held {peak_bytes / 2**30:.1f} GiB at most)" if peak_bytes else ""
    return f"Memory ran out at batch_size={variant.get('batch_size')}{peak}; try a smaller batch size."


def _failure_message(error: Exception, source: Source | None) -> str:
    if isinstance(error, CustomWorkloadError):
        return str(error)
    return f"{error_location(error, source)}: {describe_error(error)}" if source else describe_error(error)
