"""Custom workloads: a separate process reads the user's file, and the database stores its text.

Texts are looked up by `Source.sha256`. A run always gets the text that its variant names, whatever became of the file;
modules that the text imports are read from disk, and the run fails if they have changed.
"""

import contextlib
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from app.errors import UserError
from app.grants import Consent, refuse, require, source_grant, typed
from app.paths import PROGRAM, expand_home, read_file
from app.runs.jobs import JobCrashedError, JobError, Notify, run_job
from app.runs.leases import CPU, Leases, sleep_unstoppable
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import CUSTOM_WORKLOADS, custom_source
from app.values import units
from workloads import catalog
from workloads.catalog import CustomFile, UsageError, Workload
from workloads.job_protocol import CustomWorkload, DescribeFile, FileDescription
from workloads.protocol import RunSpec, Source, UserModule

_MOST_BYTES = 500_000


def _discard(_sentence: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a file, while no run uses the processor.

    Attributes:
        limit_s: Most seconds it may take, including the framework's import.
        notify: Takes a sentence for the user.
        wait_for_stop: Sleeps that many seconds; returns whether to give up.
        consent: Returns whether a text that was never allowed may be read: reading it runs it.
    """

    limit_s: float = 60.0
    notify: Notify = _discard
    wait_for_stop: Callable[[float], bool] = sleep_unstoppable
    leases: Leases = field(default_factory=Leases)
    consent: Consent = refuse


class UnreadFileError(UserError):
    """A file's present text was never read, and the caller wants no file read."""


class _StoredFile(msgspec.Struct, frozen=True):
    """A file's text and its described workloads; `whole` if these are all.

    Versions that did not look for user modules stored none, without `has_modules`.
    """

    source: Source
    workloads: tuple[CustomWorkload, ...] = ()
    whole: bool = False
    has_modules: bool = False


def parse_workload_path(word: str) -> tuple[Path, str] | None:
    """Return file and function of `path/to/file.py:name` ("" as the function of `file.py`); None for other words."""
    path, colon, name = word.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    return (Path(word), "") if word.endswith(".py") else None


def resolve_workload(word: str, database: Path, options: ReadOptions | None) -> Workload:
    """Return the program's workload of that name, or the custom one of `file.py:name`.

    The database stores texts of files. Without options, no new text is read.

    Raises:
        UsageError: There is no such workload or file.
        UserError: The file has an error, or its text is not allowed to run.
        UnreadFileError: The text was never read, and `options` is None.
    """
    parsed = parse_workload_path(word)
    if parsed is None:
        return catalog.workload(word)
    workloads = load_custom_workloads(*parsed, database, options)
    if len(workloads) > 1:
        choices = ", ".join(f"{parsed[0]}:{workload.name.rpartition(':')[2]}" for workload in workloads)
        raise UsageError(f"There are several workloads in {parsed[0]}; name one: {choices}.")
    return workloads[0]


def load_custom_workloads(path: Path, name: str, database: Path, options: ReadOptions | None) -> tuple[Workload, ...]:
    """Return custom workloads of a file; a text that the database stores is not read again.

    `name` is the workload's function; "" for all of the file. Without options, no text is read.

    Raises:
        UsageError: There is no such file.
        UserError: The file has an error, or its text is not allowed to run.
        UnreadFileError: The text was never read, and `options` is None.
    """
    text = read_source(path)
    words = (text.path, text.text, str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()
    stored = _load_stored(database, key) or _load_stored(database, text.sha256)
    if stored is None or not stored.has_modules:
        stored = _StoredFile(text)
    source = replace(text, modules=_as_now(stored.source.modules))
    if source.modules != stored.source.modules:
        stored = _StoredFile(source)
    is_whole = not name and stored.whole
    definitions = [definition for definition in stored.workloads if definition.name == name or is_whole]
    if not definitions and (refusal := catalog.refusal_of_text(source.path, source.text)):
        raise UserError(refusal)
    if options is not None:
        require([source_grant(source)], options.consent)
    # The same code at another path is the same workload, with other data beside it.
    updated = replace(stored, source=source)
    if not definitions:
        if options is None:
            raise UnreadFileError(f"{path.name} has not been read yet.")
        described = _describe(source, name, options)
        definitions = [*described.workloads]
        if described.source != source:
            source, stored = described.source, _StoredFile(text)
            require([source_grant(source)], typed)  # allowing the file has already run what it imports
        names = {definition.name for definition in definitions}
        other_workloads = [workload for workload in stored.workloads if workload.name not in names]
        updated = _StoredFile(source, (*other_workloads, *definitions), stored.whole or not name, has_modules=True)
    if updated != stored:
        document = msgspec.json.encode(updated).decode()
        for identity in (source.sha256, key):
            save_setting(database, custom_source(identity), document)
    file = CustomFile(path=source.path, sha256=source.sha256, modules=tuple(module.path for module in source.modules))
    return tuple(catalog.custom_workload(definition, file) for definition in definitions)


def _as_now(modules: Iterable[UserModule]) -> tuple[UserModule, ...]:
    return tuple(UserModule.read(module.name, module.path) for module in modules)


def read_source(path: Path) -> Source:
    """Return a file's text and path; raises `UsageError` if it cannot be read."""
    absolute = expand_home(path).absolute()
    try:
        text = read_file(absolute, _MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
    return Source(path=str(absolute), text=io.StringIO(text, newline=None).read())


def stored_source(spec: RunSpec, database: Path) -> Source | None:
    """Return the source text of a variant of a custom workload; None for other workloads.

    Raises:
        UserError: The database lacks the text: imports do not contain it.
    """
    if not catalog.is_custom(spec.workload) and not catalog.is_script(spec.workload):
        return None
    sha256 = str(spec.variant.get(catalog.SOURCE))
    if (stored := _load_stored(database, sha256)) is not None and stored.source.sha256 == sha256:
        return stored.source
    if catalog.is_script(spec.workload):
        raise UserError(f"The code of {spec.workload} was never frozen here in that version; start its command again.")
    raise UserError(
        f"The file of {spec.workload} was never opened here in that version: bring it here, or save what "
        f"`{PROGRAM} show RUN --source` prints of a stored run; "
        f"read it, and run it once as `{PROGRAM} run path/to/{spec.workload}`."
    )


def save_source(database: Path, source: Source) -> None:
    """Store a command with its tree, for the variants that name it."""
    document = msgspec.json.encode(_StoredFile(source, has_modules=True)).decode()
    save_setting(database, custom_source(source.sha256), document)


def lacks_source(specs: Iterable[RunSpec], database: Path) -> bool:
    """Return whether one of these variants cannot run because its source text is missing."""
    try:
        for spec in {spec.variant.get(catalog.SOURCE): spec for spec in specs}.values():
            stored_source(spec, database)
    except UserError:
        return True
    return False


def describe_change(spec: RunSpec, database: Path) -> str:
    """Return what a change of a custom variant's file or modules means for its runs; "" without a change."""
    try:
        source = stored_source(spec, database)
        if source is None or read_source(Path(source.path)) == replace(source, modules=()):
            text_change = ""
        else:
            text_change = "uses the workload's file as it was when queued; the file has changed since."
    except (UserError, UsageError):  # never read here, or deleted: no newer text is known
        return ""
    changed = set(source.modules).difference(_as_now(source.modules)) if source else ()
    paths = ", ".join(sorted(module.path for module in changed))
    return f"cannot run, because {paths} has changed since: put it back, or queue it again." if paths else text_change


def recent_files(database: Path) -> list[Path]:
    """Return the files that windows on this database opened last and that still exist."""
    stored = load_setting(database, CUSTOM_WORKLOADS)
    return [path for path in map(Path, stored or ()) if path.exists()]


def save_recent_files(database: Path, paths: Iterable[Path]) -> None:
    save_setting(database, CUSTOM_WORKLOADS, [str(path) for path in paths])


def _load_stored(database: Path, sha256: str) -> _StoredFile | None:
    document = load_setting(database, custom_source(sha256))
    try:
        return msgspec.json.decode(document, type=_StoredFile) if document else None
    except msgspec.MsgspecError:  # another program wrote it: treat it as missing
        return None


def _describe(source: Source, name: str, options: ReadOptions) -> FileDescription:
    file, request = Path(source.path).name, DescribeFile(source=source, name=name)
    options.notify(f"Reading {file} …")
    wait_message = f"{file} will be read when the run on the CPU ends …"
    lease = options.leases.wait(
        [CPU], 1, on_wait=lambda: options.notify(wait_message), wait_for_stop=options.wait_for_stop
    )
    if lease is None:
        raise UserError(f"{file} was not read.")
    end_s = time.monotonic() + options.limit_s
    try:
        described = run_job(request, FileDescription, lambda: time.monotonic() > end_s or options.wait_for_stop(0.0))
    except TimeoutError:
        raise UserError(
            f"{file} was not read within {units.with_unit(options.limit_s, 's')}; "
            "move what it computes on import into its functions."
        ) from None
    except JobCrashedError as error:
        raise UserError(f"{file} was not read to its end. {error}") from error
    except JobError as error:
        # The sentence names file and line; any traceback after it is this program's.
        raise UserError(str(error).partition("\n")[0]) from error
    finally:
        lease.release()
    for sentence in described.left_out:
        options.notify(f"{sentence} It is left out.")
    return described


def modules_text(source: Source) -> str:
    """Return the Python of a source's modules, each below a line that names it, up to a limit."""
    text = ""
    for module in source.modules:
        text += f"\n# {module.name} is {module.path}, SHA-256 {module.sha256}\n"
        with contextlib.suppress(UsageError):  # an extension, or inside an archive
            code = read_source(Path(module.path)).text
            text += code if len(text) + len(code) <= _MOST_BYTES else ""
    return text
