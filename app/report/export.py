"""Export of runs as plain files, and the summary of an export or import as text and as a document."""

import contextlib
import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from app.errors import UserError
from app.paths import DATABASE_SUFFIXES, PROGRAM
from app.report.documents import run_document
from app.storage import retention
from app.storage.files import atomic_output
from app.storage.store import Store
from app.storage.transfer.flat_tables import FlatColumn, Row, open_flat_tables
from app.storage.transfer.import_export import Exported, Imported
from app.storage.transfer.progress import NO_PROGRESS, TransferProgress
from app.values import units
from app.values.plain import cell_text
from app.values.records import REFERENCE_TAG
from app.viewmodels.format.sentences import format_run_numbers
from app.viewmodels.history.labels import format_run_count

Format = Literal["csv", "json", "parquet"]
WriteRows = Callable[[Sequence[Row]], None]
"""Adds rows to a file."""

OpenTable = Callable[[Path, Sequence[FlatColumn]], AbstractContextManager[WriteRows]]
"""Opens a table file for writing."""

_SECOND_NS = 1_000_000_000


_CRLF = "\r\n"


class _Rows:
    """Ends each row of a `csv.writer` in LF only: with LF as line end it would not quote a text with a CR."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(f"{row.removesuffix(_CRLF)}\n")


@contextlib.contextmanager
def csv_file(path: Path, columns: Sequence[FlatColumn], *, raw_text: bool = False) -> Iterator[WriteRows]:
    """Open a CSV file (RFC 4180) with a header; lines end in LF, an empty cell is NULL, times are ISO 8601.

    With `raw_text` texts are not escaped, even those that a spreadsheet would compute.
    """
    converters = _converters(columns, {} if raw_text else {"text": cell_text})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(_Rows(file), lineterminator=_CRLF)
        writer.writerow([column.name for column in columns])
        yield lambda rows: writer.writerows(_formatted_row(row, converters) for row in rows)


@contextlib.contextmanager
def json_file(path: Path, columns: Sequence[FlatColumn]) -> Iterator[WriteRows]:
    """Open a JSON file: an object with `columns`, their names, and `data`, a list of rows (pandas: orient="split")."""
    converters, names = _converters(columns, {}), msgspec.json.encode([column.name for column in columns])
    with json_array(path, b'{"columns": ' + names + b', "data": ') as add:

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                add(_formatted_row(row, converters))

        yield write


@contextlib.contextmanager
def json_array(path: Path, beginning: bytes) -> Iterator[Callable[[object], None]]:
    """Open a file for a JSON object that ends with an array, and yield a function that adds items, one per line.

    `beginning` is the object up to the array.
    """
    encode, separator = msgspec.json.Encoder().encode, b"\n"
    with path.open("wb") as file:

        def add(item: object) -> None:
            nonlocal separator
            file.write(separator + encode(item))
            separator = b",\n"

        file.write(beginning + b"[")
        yield add
        file.write(b"\n]}\n")


@contextlib.contextmanager
def parquet_file(path: Path, columns: Sequence[FlatColumn]) -> Iterator[WriteRows]:
    """Open a Parquet file with 64-bit numbers, text, and times as UTC timestamps in nanoseconds.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UserError(
            "Parquet needs the package pyarrow, which is not installed: install VariantScope's extra parquet, or "
            "choose another format."
        ) from error
    types = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "utc": pa.timestamp("ns", tz="UTC")}
    schema = pa.schema([(column.name, types[column.kind]) for column in columns])

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:

        def write(rows: Sequence[Row]) -> None:
            column_values = zip(*rows, strict=True)
            arrays = [pa.array(values, type=field.type) for values, field in zip(column_values, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))

        yield write


TABLE_WRITERS: Mapping[Format, OpenTable] = {
    "csv": csv_file,
    "json": json_file,
    "parquet": parquet_file,
}
"""The function that opens a table file, by format."""


_Converters = Mapping[int, Callable[[Any], str]]


def _converters(columns: Sequence[FlatColumn], by_kind: Mapping[str, Callable[[Any], str]]) -> _Converters:
    functions = {"utc": utc_text, **by_kind}
    return {index: functions[column.kind] for index, column in enumerate(columns) if column.kind in functions}


def _formatted_row(row: Row, converters: _Converters) -> list[Any]:
    return [
        converters[index](value) if index in converters and value is not None else value
        for index, value in enumerate(row)
    ]


def utc_text(utc_ns: int) -> str:
    """Format nanoseconds since 1970 as ISO 8601 with all digits: `2026-03-01T14:05:09.120000000Z`."""
    second, nanoseconds = divmod(utc_ns, _SECOND_NS)
    return f"{_second_text(second)}.{nanoseconds:09d}Z"


@lru_cache(maxsize=1024)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


DOCUMENTS = "documents.json"


def export_files(
    database: Path,
    runs: Sequence[int],
    folder: Path,
    format: Format,
    watch: TransferProgress = NO_PROGRESS,
    *,
    raw_text: bool = False,
) -> Exported:
    """Write the runs into a new folder, which appears when it is complete.

    Raises:
        UserError: A run cannot be exported, or the folder cannot be written.
        StoppedError: The export was stopped.
    """
    started_s = time.monotonic()
    with atomic_output(folder) as part, open_flat_tables(database, runs, watch) as flat_tables:
        part.mkdir()
        open_table = partial(csv_file, raw_text=True) if raw_text else TABLE_WRITERS[format]
        for table in flat_tables.tables:
            with open_table(part / f"{table.name}.{format}", table.columns) as write:
                for batch in flat_tables.batches(table):
                    write(batch)
        if format == "json":
            # Write the runs' documents, with one run at a time in memory.
            with Store.open(database) as store, json_array(part / DOCUMENTS, b'{"runs": ') as add:
                for run in runs:
                    watch.check()
                    add(run_document(store.load(run), pruned_utc_ns=retention.pruned_utc_ns(database, run)))
    files = tuple(sorted(folder.iterdir()))
    return Exported(
        files=files,
        runs=len(runs),
        bytes=sum(file.stat().st_size for file in files),
        seconds=time.monotonic() - started_s,
    )


_SOURCES = ", and the whole text of your own workloads' files"
"""What a timeline lacks."""
_NAMED = 8
"""The most runs that a sentence lists."""


def export_document(exported: Exported) -> dict[str, Any]:
    return {
        "runs": exported.runs,
        "files": [str(path) for path in exported.files],
        "bytes": exported.bytes,
        "seconds": exported.seconds,
        "weights": [str(path) for path in exported.weights],
        "queue": exported.entries,
    }


def import_document(imported: Imported) -> dict[str, Any]:
    """Return the `import` document.

    `imported` and `already` are numbers in this database, the others numbers in the imported file.
    """
    return {
        "imported": list(imported.runs),
        "already": [{**asdict(run), "differs": list(run.differs)} for run in imported.already],
        "unfinished": list(imported.unfinished),
        "in_trash": list(imported.in_trash),
        "queue": list(imported.entries),
        "complete": list(imported.complete),
        "seconds": imported.seconds,
    }


def describe_export(exported: Exported, target: Path) -> list[str]:
    """Describe the exported files, what in them may identify the user or the machine, and what is left out."""
    files = "" if exported.files == (target,) else f"{len(exported.files)} files in "
    queued = f" and {_count_unfinished(exported.entries)}" if exported.entries else ""
    size = units.byte_size(exported.bytes)
    sentences = [f"Wrote {format_run_count(exported.runs)}{queued} to {files}{target}, {size}."]
    sources = "" if exported.files == (target,) and target.suffix not in DATABASE_SUFFIXES else _SOURCES
    sentences.append(f"It holds paths, environment variables, log lines, notes and names of hosts{sources}.")
    if exported.weights:
        sentences.append(
            "Saved weights are not part of it; to export them too, copy "
            f"{', '.join(map(str, exported.weights[:_NAMED]))}{' …' if len(exported.weights) > _NAMED else ''}"
        )
    return sentences


def describe_import(imported: Imported) -> list[str]:
    return list(_import_sentences(imported))


def describe_reference_added(runs: Sequence[int]) -> str:
    """Describe the result of adding the reference runs; the database in which they were measured already has them."""
    if not runs:
        return "No reference run was added: all of them are already here as your own runs."
    numbers = f"{units.plural('run', len(runs))} as {format_run_numbers(runs)}"
    return f"Added {len(runs)} reference {numbers}, tagged {REFERENCE_TAG}."


def describe_reference_removed(runs: Sequence[int]) -> str:
    return (
        f"Removed {len(runs)} reference {units.plural('run', len(runs))}." if runs else "No reference runs were here."
    )


def _import_sentences(imported: Imported) -> Iterator[str]:
    if imported.entries:
        numbers = " ".join(map(str, imported.entries))
        yield f"{_count_unfinished(len(imported.entries))} joined the queue: `{PROGRAM} queue run {numbers}` continues."
    if imported.complete:
        experiments = f"{len(imported.complete):,} {units.plural('experiment', len(imported.complete))}"
        yield f"Completed by these runs and removed from the queue: {experiments}."
    if imported.runs:
        yield f"Imported {format_run_count(len(imported.runs))} as {format_run_numbers(imported.runs)}."
    elif not imported.entries:
        yield "Nothing was imported: the file has no new runs."
    if imported.already:
        was = "it was" if len(imported.already) == 1 else "they were"
        yield f"Here already, and left as {was}: {format_run_numbers([run.run for run in imported.already])}."
    for name, difference in (("note", "another note"), ("tags", "other tags")):
        if differ := [run.run for run in imported.already if name in run.differs]:
            yield f"The file has {difference} for {format_run_numbers(differ)}; what is here stays."
    if deleted := [run.run for run in imported.already if run.in_trash]:
        more = ["…"] if len(deleted) > _NAMED else []
        numbers, them = " ".join([*map(str, deleted[:_NAMED]), *more]), "it" if len(deleted) == 1 else "them"
        yield f"In the trash here: {format_run_numbers(deleted)}; `{PROGRAM} restore {numbers}` restores {them}."
    if imported.unfinished:
        yield f"Left out, not ended there: {format_run_numbers(imported.unfinished)} of the file."
    if imported.in_trash:
        yield f"Left out, in the trash there: {format_run_numbers(imported.in_trash)} of the file."


def _count_unfinished(entries: int) -> str:
    return f"{entries:,} unfinished {units.plural('experiment', entries)}"
