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
from app.runs.errands import ErrandCutOffError, ErrandError, Told, ask
from app.runs.leases import CPU, Leases, never_stopped
from app.storage.known_settings import OWN_WORKLOADS, own_source
from app.storage.settings import keep_in, kept_in
from workloads import catalog
from workloads.catalog import OwnFile, UsageError, Workload
from workloads.protocol import Describe, Described, OwnWorkload, RunSpec, Source

_MOST_BYTES = 500_000


def _untold(_words: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read: for so long at most, the import of TensorFlow included, and while no run is on the processor.

    `told` takes a sentence for the user; `stopped(seconds)` sleeps that long and says whether to give up.
    """

    limit_s: float = 60.0
    told: Told = _untold
    stopped: Callable[[float], bool] = never_stopped
    leases: Leases = field(default_factory=Leases)


class UnreadError(UserError):
    """A file of the user's that was not read as it is now, where none is to be read."""


class _Kept(msgspec.Struct, frozen=True):
    """A file's text, and those of its workloads that were described."""

    source: Source
    workloads: tuple[OwnWorkload, ...] = ()
    whole: bool = False


def named_file(word: str) -> tuple[Path, str] | None:
    """The file and the function that `path/to/file.py:name` names, no function in `file.py`; None for other words."""
    path, colon, name = word.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    return (Path(word), "") if word.endswith(".py") else None


def workload_called(word: str, database: Path, reading: Reading | None) -> Workload:
    """The program's workload of that name, or the user's in `file.py:name`.

    Raises `UsageError` and `UserError`, without a `reading` `UnreadError` where the file was not read before.
    """
    named = named_file(word)
    if named is None:
        return catalog.workload(word)
    found = own_workloads(*named, database, reading)
    if len(found) > 1:
        words = ", ".join(f"{named[0]}:{each.name.rpartition(':')[2]}" for each in found)
        raise UsageError(f"There are several workloads in {named[0]}; name one: {words}.")
    return found[0]


def own_workloads(path: Path, name: str, database: Path, reading: Reading | None) -> tuple[Workload, ...]:
    """The workload of that name in a file, all of them where `name` is empty; a text that is known is not read again.

    Raises `UsageError` where there is no such file, `UserError` for what is wrong in it, without a `reading`
    `UnreadError` for a text that is not known.
    """
    source = read_source(path)
    kept = _kept(database, source.sha256) or _Kept(source)
    known = [each for each in kept.workloads if each.name == name or (not name and kept.whole)]
    # The same text at another place is the same workload, with other data beside it.
    now = _Kept(source, kept.workloads, kept.whole)
    if not known:
        if reading is None:
            raise UnreadError(f"{path.name} has not been read yet.")
        known = [*_described(source, name, reading)]
        others = [each for each in kept.workloads if each.name not in {new.name for new in known}]
        now = _Kept(source, (*others, *known), whole=kept.whole or not name)
    if now != kept:
        keep_in(database, own_source(source.sha256), msgspec.json.encode(now).decode())
    file = OwnFile(path=source.path, sha256=source.sha256)
    return tuple(catalog.own_workload(each, file) for each in known)


def read_source(path: Path) -> Source:
    """A file's text; raises `UsageError` where it cannot be read."""
    place = path.expanduser().absolute()
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} has more than {_MOST_BYTES:,} bytes; keep data out of a workload's file.")
        return Source(path=str(place), text=place.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None


def source_of(spec: RunSpec, database: Path) -> Source | None:
    """The text that a variant of the user's own is of, as it was when its file was read; None for other workloads.

    Raises `UserError` where it was never read on this machine: what came with runs from others is not run by itself.
    """
    if not catalog.is_own(spec.workload):
        return None
    if (kept := _kept(database, str(spec.variant.get(catalog.SOURCE)))) is not None:
        return kept.source
    raise UserError(
        f"The file of {spec.workload} was never opened here as it was then: bring it here, or save what "
        "`python -m app show RUN --source` prints of a stored run; "
        f"read it, and run it once as `python -m app run path/to/{spec.workload}`."
    )


def is_changed(spec: RunSpec, database: Path) -> bool:
    """Whether a variant is of a user's file as it was when it was read, which is another text now."""
    try:
        source = source_of(spec, database)
        return source is not None and read_source(Path(source.path)).sha256 != source.sha256
    except (UserError, UsageError):  # never read here, or gone: no newer text is known
        return False


def chosen_before(database: Path) -> list[Path]:
    """The files whose workloads were chosen in a window on this database, as far as they are still there."""
    kept = kept_in(database, OWN_WORKLOADS)
    return [path for path in map(Path, kept or ()) if path.exists()]


def keep_chosen(database: Path, paths: Iterable[Path]) -> None:
    """Remembers these files for the next window on this database."""
    keep_in(database, OWN_WORKLOADS, [str(path) for path in paths])


def _kept(database: Path, sha256: str) -> _Kept | None:
    words = kept_in(database, own_source(sha256))
    return msgspec.json.decode(words, type=_Kept) if words else None


def _described(source: Source, name: str, reading: Reading) -> tuple[OwnWorkload, ...]:
    file = Path(source.path).name
    reading.told(f"Reading {file} …")
    waiting = f"Reading {file} waits for the run that uses the processor …"
    lease = reading.leases.wait([CPU], 1, told=lambda: reading.told(waiting), stopped=reading.stopped)
    if lease is None:
        raise UserError(f"{file} was not read.")
    try:
        return _asked(Describe(source=source, name=name), reading)
    finally:
        lease.release()


def _asked(errand: Describe, reading: Reading) -> tuple[OwnWorkload, ...]:
    file, end_s = Path(errand.source.path).name, time.monotonic() + reading.limit_s
    try:
        return ask(errand, Described, lambda: time.monotonic() > end_s or reading.stopped(0.0)).workloads
    except TimeoutError:
        raise UserError(
            f"{file} was not read within {reading.limit_s:.0f} s; "
            "what it computes when it is imported belongs into its functions."
        ) from None
    except ErrandCutOffError as error:
        raise UserError(f"{file} was not read to its end. {error}") from error
    except ErrandError as error:
        # The sentence names file and line; the traceback that may follow it is of this program.
        raise UserError(str(error).partition("\n")[0]) from error
