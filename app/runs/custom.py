"""Workloads of the user's own: their file is read by a process of its own, and its text kept in the database.

What is kept is found by the text's SHA-256, so that a run of a variant always gets the text that the variant names,
whatever became of the file.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from app.errors import UserError
from app.runs.jobs import JobCrashedError, JobError, Notify, run_job
from app.runs.leases import CPU, Leases, sleep_unstoppable
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import CUSTOM_WORKLOADS, custom_source
from workloads import catalog
from workloads.catalog import CustomFile, UsageError, Workload
from workloads.protocol import CustomWorkload, DescribeFile, FileDescription, RunSpec, Source

_MOST_BYTES = 500_000


def _discard(_sentence: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a file is read: for so long at most, the framework's import included, and while no run is on the processor.

    `told` takes a sentence for the user; `stopped(seconds)` sleeps that long and says whether to give up.
    """

    limit_s: float = 60.0
    notify: Notify = _discard
    wait_for_stop: Callable[[float], bool] = sleep_unstoppable
    leases: Leases = field(default_factory=Leases)


class UnreadFileError(UserError):
    """A file of the user's that was not read as it is now, where none is to be read."""


class _StoredFile(msgspec.Struct, frozen=True):
    """A file's text, and those of its workloads that were described."""

    source: Source
    workloads: tuple[CustomWorkload, ...] = ()
    whole: bool = False


def parse_workload_path(word: str) -> tuple[Path, str] | None:
    """The file and the function that `path/to/file.py:name` names, no function in `file.py`; None for other words."""
    path, colon, name = word.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    return (Path(word), "") if word.endswith(".py") else None


def resolve_workload(word: str, database: Path, options: ReadOptions | None) -> Workload:
    """The program's workload of that name, or the user's in `file.py:name`.

    Raises `UsageError` and `UserError`, without a `reading` `UnreadError` where the file was not read before.
    """
    parsed = parse_workload_path(word)
    if parsed is None:
        return catalog.workload(word)
    found = load_custom_workloads(*parsed, database, options)
    if len(found) > 1:
        choices = ", ".join(f"{parsed[0]}:{each.name.rpartition(':')[2]}" for each in found)
        raise UsageError(f"There are several workloads in {parsed[0]}; name one: {choices}.")
    return found[0]


def load_custom_workloads(path: Path, name: str, database: Path, options: ReadOptions | None) -> tuple[Workload, ...]:
    """The workload of that name in a file, all of them where `name` is empty; a text that is known is not read again.

    Raises `UsageError` where there is no such file, `UserError` for what is wrong in it, without a `reading`
    `UnreadError` for a text that is not known.
    """
    source = read_source(path)
    stored = _load_stored(database, source.sha256) or _StoredFile(source)
    known = [each for each in stored.workloads if each.name == name or (not name and stored.whole)]
    # The same text at another place is the same workload, with other data beside it.
    updated = _StoredFile(source, stored.workloads, stored.whole)
    if not known:
        if options is None:
            raise UnreadFileError(f"{path.name} has not been read yet.")
        known = [*_describe(source, name, options)]
        others = [each for each in stored.workloads if each.name not in {new.name for new in known}]
        updated = _StoredFile(source, (*others, *known), whole=stored.whole or not name)
    if updated != stored:
        save_setting(database, custom_source(source.sha256), msgspec.json.encode(updated).decode())
    file = CustomFile(path=source.path, sha256=source.sha256)
    return tuple(catalog.custom_workload(each, file) for each in known)


def read_source(path: Path) -> Source:
    """A file's text; raises `UsageError` where it cannot be read."""
    absolute = path.expanduser().absolute()
    try:
        if absolute.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} has more than {_MOST_BYTES:,} bytes; keep data out of a workload's file.")
        return Source(path=str(absolute), text=absolute.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None


def stored_source(spec: RunSpec, database: Path) -> Source | None:
    """The text that a variant of the user's own is of, as it was when its file was read; None for other workloads.

    Raises `UserError` where it was never read on this machine: what came with runs from others is not run by itself.
    """
    if not catalog.is_custom(spec.workload):
        return None
    if (stored := _load_stored(database, str(spec.variant.get(catalog.SOURCE)))) is not None:
        return stored.source
    raise UserError(
        f"The file of {spec.workload} was never opened here as it was then: bring it here, or save what "
        "`python -m app show RUN --source` prints of a stored run; "
        f"read it, and run it once as `python -m app run path/to/{spec.workload}`."
    )


def is_source_changed(spec: RunSpec, database: Path) -> bool:
    """Whether a variant is of a user's file as it was when it was read, which is another text now."""
    try:
        source = stored_source(spec, database)
        return source is not None and read_source(Path(source.path)).sha256 != source.sha256
    except (UserError, UsageError):  # never read here, or gone: no newer text is known
        return False


def recent_files(database: Path) -> list[Path]:
    """The files whose workloads were chosen in a window on this database, as far as they are still there."""
    stored = load_setting(database, CUSTOM_WORKLOADS)
    return [path for path in map(Path, stored or ()) if path.exists()]


def save_recent_files(database: Path, paths: Iterable[Path]) -> None:
    """Remembers these files for the next window on this database."""
    save_setting(database, CUSTOM_WORKLOADS, [str(path) for path in paths])


def _load_stored(database: Path, sha256: str) -> _StoredFile | None:
    document = load_setting(database, custom_source(sha256))
    return msgspec.json.decode(document, type=_StoredFile) if document else None


def _describe(source: Source, name: str, options: ReadOptions) -> tuple[CustomWorkload, ...]:
    file = Path(source.path).name
    options.notify(f"Reading {file} …")
    wait_message = f"Reading {file} waits for the run that uses the processor …"
    lease = options.leases.wait(
        [CPU], 1, on_wait=lambda: options.notify(wait_message), wait_for_stop=options.wait_for_stop
    )
    if lease is None:
        raise UserError(f"{file} was not read.")
    try:
        return _run_describe_job(DescribeFile(source=source, name=name), options)
    finally:
        lease.release()


def _run_describe_job(request: DescribeFile, options: ReadOptions) -> tuple[CustomWorkload, ...]:
    file, end_s = Path(request.source.path).name, time.monotonic() + options.limit_s
    try:
        return run_job(
            request, FileDescription, lambda: time.monotonic() > end_s or options.wait_for_stop(0.0)
        ).workloads
    except TimeoutError:
        raise UserError(
            f"{file} was not read within {options.limit_s:.0f} s; "
            "what it computes when it is imported belongs into its functions."
        ) from None
    except JobCrashedError as error:
        raise UserError(f"{file} was not read to its end. {error}") from error
    except JobError as error:
        # The sentence names file and line; the traceback that may follow it is of this program.
        raise UserError(str(error).partition("\n")[0]) from error
