"""What becomes of files that are dropped on the window: said before they are dropped, from the first bytes of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.errors import UserError, read_error
from app.paths import PROGRAM
from app.recording import is_recording
from app.runs.experiment.presets import load_preset
from app.storage.files import database_application
from app.storage.migrations import APPLICATION_ID
from app.telemetry.trace import is_trace
from workloads.catalog import UsageError

DropKind = Literal["database", "trace", "workload", "preset"]

_TAKEN = "Supported: databases (.vscope, .db), traces (.vtrace, .jsonl), workloads (.py) and presets (.toml)."
_TABLES = (".csv", ".parquet", ".json")
_PEEK_BYTES = 4_096
_MAX_FILES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFile:
    """One file: what it is, None where it cannot be taken, and a sentence on what will happen, or why it cannot."""

    path: Path
    kind: DropKind | None
    text: str


def describe_files(paths: Sequence[Path], database: Path, *, busy: bool) -> tuple[DroppedFile, ...]:
    """Return what becomes of files.

    Args:
        paths: The files.
        database: The database of the window.
        busy: Whether something runs.
    """
    if len(paths) > _MAX_FILES:
        text = f"{len(paths)} files are too many at once: {_MAX_FILES} at most."
        return (DroppedFile(path=paths[0], kind=None, text=text),)
    found = [_describe(path, database, busy=busy) for path in paths]
    if sum(each.kind == "trace" for each in found) < 2:
        return tuple(found)
    only_one = "Only one trace can be replayed at a time."
    return tuple(
        DroppedFile(path=each.path, kind=None, text=only_one) if each.kind == "trace" else each for each in found
    )


def _describe(path: Path, database: Path, *, busy: bool) -> DroppedFile:
    try:
        kind, text = _look_into(path, database, busy=busy)
    except OSError as error:
        kind, text = None, str(read_error(path, error))
    except (UserError, UsageError) as error:
        kind, text = None, str(error)
    return DroppedFile(path=path, kind=kind, text=text)


def _look_into(path: Path, database: Path, *, busy: bool) -> tuple[DropKind | None, str]:
    if path.is_dir():
        return None, f"A folder cannot be taken. {_TAKEN}"
    if not path.is_file():
        return None, "There is no such file."
    if (application := database_application(path)) is not None:
        if application != APPLICATION_ID:
            return None, "This is another program's database."
        if path.samefile(database):
            return None, "This database is already open in this window."
        return _as_import("Adds its runs to History, and its unfinished experiments to the queue.", busy=busy)
    if is_recording(path):
        return _as_import("Adds its run to History.", busy=busy)
    match path.suffix.lower():
        case ".py":
            when = " when the current run has ended" if busy else ""
            return (
                "workload",
                f"Asks whether to run it{when}: that reads its workloads, and chooses the first one in the form.",
            )
        case ".toml":
            return "preset", f"Lists the experiment “{load_preset(str(path)).title}” among the prepared ones."
    if is_trace(path):
        if busy:
            return None, "A run is active. Replay this trace when it has ended."
        return "trace", "Replays its telemetry on Run."
    if _is_timeline(path):
        return None, "This is a timeline for Perfetto; open it at ui.perfetto.dev."
    if path.suffix.lower() in _TABLES:
        return None, f"Exported tables cannot be added. Export runs as a database: `{PROGRAM} export RUNS my.vscope`."
    return None, f"This is not a file of this program. {_TAKEN}"


def _as_import(text: str, *, busy: bool) -> tuple[DropKind | None, str]:
    if busy:
        return None, "A run is active, and an import would disturb it. Drop the file again when the run has ended."
    return "database", f"{text} Ctrl+Z undoes it."


def _is_timeline(path: Path) -> bool:
    """Return whether a file begins as the timelines that an export writes."""
    with path.open("rb") as file:
        return b'"traceEvents"' in file.read(_PEEK_BYTES)
