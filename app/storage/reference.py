"""The bundled reference runs, measured on real GPUs: describes their files, adds and removes them.

The files are only read, unpacked into a temporary folder. The normal import copies their runs into a database under new
numbers, so that all code that searches, displays and compares runs works for them; docs/internals/decisions says why no
database is attached.
"""

import contextlib
import functools
import gzip
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.paths import RESOURCES
from app.queries import RunQuery
from app.storage.store import Store
from app.storage.transfer.import_export import import_runs
from app.storage.transfer.progress import NO_PROGRESS, TransferProgress
from app.values.records import REFERENCE_TAG
from app.values.samples import HOST
from workloads.catalog import FRAMEWORKS

FOLDER = RESOURCES / "reference"
_FILES = "*.db.gz"
"""Gzipped databases, a quarter of their size; unpacking all takes a sixth of a second."""

_VERSIONS = ("driver", *(framework.version_key for framework in FRAMEWORKS.values()), "keras", "cudnn_loaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFile:
    """The contents of one file: uids and start times of its runs, their GPUs, and versions by environment key."""

    path: Path
    uids: tuple[str, ...]
    first_utc_ns: int
    last_utc_ns: int
    gpu_names: tuple[str, ...]
    versions: dict[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """Return its file's name without suffixes."""
        return self.path.name.partition(".")[0]


def reference_files() -> list[ReferenceFile]:
    """Describe the bundled files, sorted by name."""
    return [_describe_file(path) for path in sorted(FOLDER.glob(_FILES))]


def reference_runs(store: Store, folder: Path = FOLDER) -> list[int]:
    """Return the numbers of the copies of reference runs in this database, without those in the trash."""
    return _find_copies(store, folder, deleted=False)


def add_reference(database: Path, progress: TransferProgress = NO_PROGRESS, folder: Path = FOLDER) -> list[int]:
    """Add a folder's reference runs to a database, each file completely or not at all; restore copies from the trash.

    Existing runs, as in the database they were measured with, do not change.

    `progress` gets the completed share, and may stop it.

    Returns:
        The numbers of the reference runs in the database.

    Raises:
        DatabaseError: A file or the database cannot be used, as in `import_runs`.
        StoppedError: `progress` stopped it.
    """
    paths = sorted(folder.glob(_FILES))
    for index, path in enumerate(paths):
        with unpacked(path) as source:
            import_runs(database, source, progress.part(index, len(paths)))
    with Store.open(database) as store:
        store.library.restore(_find_copies(store, folder, deleted=True))
        return reference_runs(store, folder)


def remove_reference(database: Path) -> list[int]:
    """Permanently delete the copies of the reference runs and return their numbers.

    Copies without the tag stay: they were measured here, or the user removed the tag to keep them.
    """
    with Store.open(database) as store:
        here = reference_runs(store)
        store.library.delete(here)
        store.library.purge(_find_copies(store, FOLDER, deleted=True))
    return here


def _find_copies(store: Store, folder: Path, *, deleted: bool) -> list[int]:
    tagged = set(store.library.find(RunQuery(tag=REFERENCE_TAG, deleted=deleted)))
    uids = [uid for path in sorted(folder.glob(_FILES)) for uid in _file_uids(path)]
    return [run for run in store.library.runs_with_uids(uids, deleted=deleted) if run in tagged]


@functools.cache
def _file_uids(path: Path) -> tuple[str, ...]:
    with _opened(path) as connection:
        return tuple(uid for (uid,) in connection.execute("SELECT uid FROM runs ORDER BY run"))


def _describe_file(path: Path) -> ReferenceFile:
    with _opened(path) as connection:
        first, last = connection.execute("SELECT min(started_utc_ns), max(started_utc_ns) FROM runs").fetchone()
        found_names = connection.execute("SELECT DISTINCT name FROM devices WHERE device <> ? ORDER BY name", (HOST,))
        names = tuple(name for (name,) in found_names)
        rows = connection.execute("SELECT DISTINCT environment FROM runs").fetchall()
    environments = [msgspec.json.decode(text, type=dict[str, str]) for (text,) in rows]
    versions = {key: tuple(sorted({values[key] for values in environments if key in values})) for key in _VERSIONS}
    return ReferenceFile(
        path=path,
        uids=_file_uids(path),
        first_utc_ns=first,
        last_utc_ns=last,
        gpu_names=names,
        versions={key: values for key, values in versions.items() if values},
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with unpacked(path) as source, contextlib.closing(sqlite3.connect(source)) as connection:
        yield connection


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a file into a temporary folder, and yield the database in it."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / path.stem
        with gzip.open(path) as packed, database.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield database
