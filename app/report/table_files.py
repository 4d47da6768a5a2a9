"""Tables written to CSV, JSON and Parquet files in batches."""

import contextlib
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.errors import UserError
from app.storage.transfer.flat_tables import FlatColumn, Row

Format = Literal["csv", "json", "parquet"]
WriteRows = Callable[[Sequence[Row]], None]
"""Add rows to a file."""

_SECOND_NS = 1_000_000_000


@contextlib.contextmanager
def csv_file(path: Path, columns: Sequence[FlatColumn]) -> Iterator[WriteRows]:
    """Open a CSV file (RFC 4180) with a header; lines end in LF, an empty cell is NULL, times are ISO 8601."""
    utc_columns = _utc_columns(columns)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        yield lambda rows: writer.writerows(_formatted_row(row, utc_columns) for row in rows)


@contextlib.contextmanager
def json_file(path: Path, columns: Sequence[FlatColumn]) -> Iterator[WriteRows]:
    """Open a JSON file: an object with `columns`, their names, and `data`, a list of rows (pandas: orient="split")."""
    utc_columns, encode = _utc_columns(columns), msgspec.json.Encoder().encode
    separator = b"\n"

    with path.open("wb") as file:

        def write(rows: Sequence[Row]) -> None:
            nonlocal separator
            for row in rows:
                file.write(separator + encode(_formatted_row(row, utc_columns)))
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


TABLE_WRITERS: Mapping[Format, Callable[[Path, Sequence[FlatColumn]], AbstractContextManager[WriteRows]]] = {
    "csv": csv_file,
    "json": json_file,
    "parquet": parquet_file,
}
"""The function that opens a table file, by format."""


def _utc_columns(columns: Sequence[FlatColumn]) -> frozenset[int]:
    return frozenset(index for index, column in enumerate(columns) if column.kind == "utc")


def _formatted_row(row: Row, utc_columns: frozenset[int]) -> list[Any]:
    """Return the row with its times as text."""
    return [utc_text(value) if index in utc_columns and value is not None else value for index, value in enumerate(row)]


def utc_text(utc_ns: int) -> str:
    """Format nanoseconds since 1970 as ISO 8601 with all digits: `2026-03-01T14:05:09.120000000Z`."""
    second, rest = divmod(utc_ns, _SECOND_NS)
    return f"{_second_text(second)}.{rest:09d}Z"


@lru_cache(maxsize=1024)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
