"""Runs as plain files for other programs: one a table, and as JSON also the documents that `show --json` prints."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.report.documents import run_document
from app.report.export_tables import FILES, Format
from app.storage import retention
from app.storage.store import Store
from app.storage.transfer import Exported
from app.storage.transfer_flat import FlatRuns, opened_tables
from app.storage.transfer_place import written_whole
from app.storage.transfer_watch import QUIET, Watch

DOCUMENTS = "documents.json"


def export_files(database: Path, runs: Sequence[int], folder: Path, format: Format, watch: Watch = QUIET) -> Exported:
    """Writes the runs into a new folder, which appears when it is complete.

    Raises `UserError` for a run that cannot be taken away or a place that cannot be written, `StoppedError`.
    """
    started_s = time.monotonic()
    with written_whole(folder) as part, opened_tables(database, runs, watch) as found:
        part.mkdir()
        _write_tables(found, part, format)
        if format == "json":
            _write_documents(database, runs, part / DOCUMENTS, watch)
    files = tuple(sorted(folder.iterdir()))
    return Exported(
        files=files,
        runs=len(runs),
        bytes=sum(file.stat().st_size for file in files),
        seconds=time.monotonic() - started_s,
    )


def _write_tables(found: FlatRuns, folder: Path, format: Format) -> None:
    for table in found.tables:
        with FILES[format](folder / f"{table.name}.{format}", table.columns) as write:
            for batch in found.batches(table):
                write(batch)


def _write_documents(database: Path, runs: Sequence[int], path: Path, watch: Watch) -> None:
    """One run at a time is in memory."""
    with Store.open(database) as store, path.open("wb") as file:
        file.write(b'{"runs": [')
        for place, run in enumerate(runs):
            watch.check()
            document = run_document(store.load(run), pruned_utc_ns=retention.pruned_utc_ns(database, run))
            file.write((b",\n" if place else b"\n") + msgspec.json.encode(document))
        file.write(b"\n]}\n")
