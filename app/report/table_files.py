"""Tables written to CSV, JSON and Parquet files in batches."""

import contextlib
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from app.errors import UserError
from app.plain import cell_text
from app.storage.transfer.flat_tables import FlatColumn, Row

Format = Literal["csv", "json", "parquet"]
WriteRows = Callable[[Sequence[Row]], None]
"""Add rows to a file."""

OpenTable = Callable[[Path, Sequence[FlatColumn]], AbstractContextManager[WriteRows]]
"""Open a table file for writing."""

_SECOND_NS = 1_000_000_000


_CRLF = "\r\n"


class _Rows:
    """Ends each row of a `csv.writer` in LF alone: with that as its line end it would not quote a text with a CR."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        """Write a row, which ends in CR and LF."""
        return self._file.write(f"{row.removesuffix(_CRLF)}\n")


@contextlib.contextmanager
def csv_file(path: Path, columns: Sequence[FlatColumn], *, raw_text: bool = False) -> Iterator[WriteRows]:
    """Open a CSV file (RFC 4180) with a header; lines end in LF, an empty cell is NULL, times are ISO 8601.

    Args:
        path: The file.
        columns: Its columns.
        raw_text: Whether to write texts as they are, also those that a spreadsheet would compute.
    """
    converters = _converters(columns, {} if raw_text else {"text": cell_text})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(_Rows(file), lineterminator=_CRLF)
        writer.writerow([column.name for column in columns])
        yield lambda rows: writer.writerows(_formatted_row(row, converters) for row in rows)


@contextlib.contextmanager
def json_file(path: Path, columns: Sequence[FlatColumn]) -> Iterator[WriteRows]:
    """Open a JSON file: an object with `columns`, their names, and `data`, a list of rows (pandas: orient="split")."""
    converters, encode = _converters(columns, {}), msgspec.json.Encoder().encode
    separator = b"\n"

    with path.open("wb") as file:

        def write(rows: Sequence[Row]) -> None:
            nonlocal separator
            for row in rows:
                file.write(separator + encode(_formatted_row(row, converters)))
                separator = b",\n"

        file.write(b'{"columns": ' + encode([column.name for column in columns]) + b', "data": [')
        yield write
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
            "Parquet needs the package pyarrow: install it with `pip install 'variantscope[parquet]'`,"
            " or choose --format csv."
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
    """Return what makes text of a column's values, by its index."""
    functions = {"utc": utc_text, **by_kind}
    return {index: functions[column.kind] for index, column in enumerate(columns) if column.kind in functions}


def _formatted_row(row: Row, converters: _Converters) -> list[Any]:
    return [
        converters[index](value) if index in converters and value is not None else value
        for index, value in enumerate(row)
    ]


def utc_text(utc_ns: int) -> str:
    """Format nanoseconds since 1970 as ISO 8601 with all digits: `2026-03-01T14:05:09.120000000Z`."""
    second, rest = divmod(utc_ns, _SECOND_NS)
    return f"{_second_text(second)}.{rest:09d}Z"


@lru_cache(maxsize=1024)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
