"""Recognises files that are dropped on the window by their first bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.errors import UserError, read_error
from app.runs.experiment.presets import load_preset
from app.storage.files import database_application
from app.storage.migrations import APPLICATION_ID
from workloads.catalog import UsageError, refusal_of_text

DropKind = Literal["database", "workload", "script", "preset"]

_TAKEN = "Supported: databases (.vscope, .db), workloads and scripts (.py) and presets (.toml)."
_TABLES = (".csv", ".parquet", ".json")
_MAX_FILES = 6
_PEEK_BYTES = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFile:
    """One file: its kind, or None and why it cannot be accepted."""

    path: Path
    kind: DropKind | None
    refusal: str = ""


def sort_files(paths: Sequence[Path], database: Path, *, busy: bool) -> tuple[DroppedFile, ...]:
    """Return the kind of each file, for a window with this database; `busy` is whether something runs."""
    if len(paths) > _MAX_FILES:
        refusal = f"{len(paths)} files are too many: {_MAX_FILES} at most."
        return (DroppedFile(path=paths[0], kind=None, refusal=refusal),)
    return tuple(_sort(path, database, busy=busy) for path in paths)


def _sort(path: Path, database: Path, *, busy: bool) -> DroppedFile:
    try:
        return DroppedFile(path=path, kind=_kind(path, database, busy=busy))
    except OSError as error:
        refusal = str(read_error(path, error))
    except (UserError, UsageError) as error:
        refusal = str(error)
    return DroppedFile(path=path, kind=None, refusal=refusal)


def _kind(path: Path, database: Path, *, busy: bool) -> DropKind:
    """Return the kind of a file; raises `UserError` for one that cannot be accepted."""
    if path.is_dir():
        raise UserError(f"A folder cannot be taken. {_TAKEN}")
    if not path.is_file():
        raise UserError("There is no such file.")
    if (application := database_application(path)) is not None:
        if application != APPLICATION_ID:
            raise UserError("This is another program's database.")
        if path.samefile(database):
            raise UserError("This database is already open in this window.")
        if busy:
            raise UserError(
                "A run is active, and an import would disturb it. Drop the file again when the run has ended."
            )
        return "database"
    if path.suffix.lower() == ".py":
        text = path.read_text(encoding="utf-8", errors="replace")
        return "script" if refusal_of_text(str(path), text) else "workload"
    if path.suffix.lower() == ".toml":
        load_preset(str(path))
        return "preset"
    with path.open("rb") as file:
        if b'"traceEvents"' in file.read(_PEEK_BYTES):
            raise UserError("This is a timeline for Perfetto; open it at ui.perfetto.dev.")
    if path.suffix.lower() in _TABLES:
        raise UserError("Exported tables cannot be added: export the runs to a .vscope file.")
    raise UserError(f"This is not a file of this program. {_TAKEN}")
