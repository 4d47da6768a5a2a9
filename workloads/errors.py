"""How a run can fail: the exceptions, where in a user's file an error occurred, and the outcome to report."""

import re
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import FunctionType

from workloads.framework import FRAMEWORKS, framework_of
from workloads.interpreter import install_command
from workloads.protocol import MOST_TRACEBACK_CHARS, STYLES, Finished, Source, Variant, WorkerOutcome, plain, sentence


class RefusedError(Exception):
    """The variant cannot run here; the message says what would."""


BROKEN_PACKAGE = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)
"""What an import raises if parts of the package are missing or incompatible: libraries, NumPy, protobuf."""


class OutOfMemoryError(Exception):
    """A device or the host has not enough memory."""


class TrainingError(Exception):
    """Training itself failed (a loss that is not finite), though the program works."""


class CustomWorkloadError(Exception):
    """A user's file breaks the interface of custom workloads; the message begins with the file and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """An explained framework error: the outcome, and one sentence with what to do, or None for a generic one."""

    outcome: WorkerOutcome
    reason: str | None = None


_STYLES_AND_LABELS = re.compile(rf"{STYLES.pattern}|\{{\{{[^{{}}]*\}}\}} ")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_OF_A_REPLICA = re.compile(r"\ACaught \w+ in replica .*?^[\w.]+: ", re.DOTALL | re.MULTILINE)
"""What `DataParallel` puts before an error of one of its threads: the replica and that thread's traceback."""
_CONTEXT_LINE = re.compile(
    r'\s*(Exception encountered when calling |Graph execution error:|Detected at node |<stack traces |File ")'
)
"""Lines in which libraries say where something went wrong; the line that says what went wrong comes later."""
_MAX_MESSAGE_LENGTH, _MAX_WORD_LENGTH = 300, 60


def file_name(path: str) -> str:
    """Return the file's name without its folder, as one line."""
    return " ".join(PurePath(path).name.splitlines())


def error_location(error: BaseException, source: Source) -> str:
    """Return the file's name and the last line of it that the error passed, `mlp.py:12`; the name alone if none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source.path]
    # An error in a running graph names the lines that created the graph only in its message.
    lines += [int(line) for path, line in _FRAME.findall(str(error)) if path == source.path]
    if isinstance(error, SyntaxError) and error.filename == source.path and error.lineno is not None:
        lines.append(error.lineno)
    return ":".join([file_name(source.path), *map(str, lines[-1:])])


def function_location(function: FunctionType) -> str:
    """Return the file's name and the line at which a function begins."""
    return f"{file_name(function.__code__.co_filename)}:{function.__code__.co_firstlineno}"


def describe_value(value: object) -> str:
    """Return a user's value for a sentence: a word or number as it is, anything else by its type."""
    if isinstance(value, str | int | float) and len(text := repr(value)) <= _MAX_WORD_LENGTH:
        return text
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def describe_error(error: BaseException) -> str:
    """Return the error's kind and the first line of its message that says what is wrong, not where; shortened."""
    # A syntax error without its file and line: the sentence already begins with them.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    message = _STYLES_AND_LABELS.sub("", _OF_A_REPLICA.sub("", message))
    if isinstance(error, StopIteration):
        message = message or "an iterator has no more values"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = next((line for line in lines if not _CONTEXT_LINE.match(line)), "".join(lines[:1]))
    if len(text) > _MAX_MESSAGE_LENGTH:
        text = f"{text[:_MAX_MESSAGE_LENGTH]} …"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def outcome_of(
    error: Exception,
    variant: Variant,
    peak_bytes: int | None,
    source: Source | None = None,
    cause: KnownError | None = None,
) -> Finished:
    """Return how a run that raised an error ends.

    `peak_bytes` is the allocator's peak, None if unknown. Errors in the source of a custom workload are reported with
    file and line. `cause` is the backend's explanation of the error.
    """
    source_name = f"{file_name(source.path)}: " if source else ""
    if isinstance(error, RefusedError):
        return _finished("refused", str(error), None)
    if isinstance(error, TrainingError):
        return _finished("failed", f"{source_name}{error}", peak_bytes)
    if isinstance(error, OutOfMemoryError | MemoryError) or (cause and cause.outcome == "out_of_memory"):
        return _finished("out_of_memory", _out_of_memory_message(variant, peak_bytes, source_name), peak_bytes)
    if cause and cause.outcome == "refused":
        where = f"{error_location(error, source)}: " if source else ""
        return _finished("refused", f"{where}{cause.reason}", None)
    reason = cause.reason if cause else _failure_message(error, source)
    return _finished("failed", reason, peak_bytes, "".join(traceback.format_exception(error)))


def _finished(
    outcome: WorkerOutcome, reason: str | None, peak_bytes: int | None, traceback_text: str | None = None
) -> Finished:
    """Return the worker's last message, its texts cut to what a message takes: the end of a traceback says most."""
    return Finished(
        outcome=outcome,
        t_ns=time.monotonic_ns(),
        reason=reason and sentence(reason),
        traceback=traceback_text and plain(traceback_text[-MOST_TRACEBACK_CHARS:]),
        allocator_peak_bytes=peak_bytes,
    )


def _out_of_memory_message(variant: Variant, peak_bytes: int | None, source_name: str) -> str:
    peak = f" ({framework_of(variant).name} held {peak_bytes / 2**30:.1f} GiB at most)" if peak_bytes else ""
    if "batch_size" in variant:
        limit_gib = float(variant.get("memory_limit", 0))
        under = f" under a memory limit of {limit_gib:g} GiB" if limit_gib else ""
        return f"Memory ran out at batch size {variant['batch_size']}{under}{peak}; try a smaller batch size."
    if source_name:
        return f"{source_name}memory ran out while the file was read; move what needs it into its functions."
    return f"Memory ran out{peak}; other programs may hold it."


def _failure_message(error: Exception, source: Source | None) -> str:
    if isinstance(error, CustomWorkloadError):
        return str(error)
    if source is None:
        return describe_error(error)
    if "triton" in str(error).lower() and sys.modules.get("triton", error) is None:
        where = f"{error_location(error, source)}: Triton after TensorFlow would end the process, so it is not imported"
        return f"{where}; keep what needs it in a file that imports torch and no TensorFlow."
    return f"{error_location(error, source)}: {describe_error(error)}{_missing_module_remedy(error, source)}"


def _missing_module_remedy(error: Exception, source: Source) -> str:
    """Return the end of a sentence: what to do if the user's file imports a module that this Python lacks."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.partition(".")[0] in sys.modules:
        return ""
    module = error.name.partition(".")[0]
    if framework := next((framework for framework in FRAMEWORKS.values() if module in framework.modules), None):
        return f": {install_command(framework.modules)}."
    path = Path(source.path).parent / module
    if path.is_dir() or path.with_suffix(".py").is_file():
        return (
            ", which is next to the file, where Python does not look: write "
            "`import sys; sys.path.insert(0, __file__.rpartition('/')[0])` above the import."
        )
    return f": install the package that has it for {sys.executable}."
