"""Checks that this program could have written the runs of a source file: ranges, choices, texts and JSON.

The private database itself checks types, references and uniqueness: its tables are STRICT.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec

from app.errors import DatabaseError, UserError
from app.storage.library import checked_note, checked_tag
from app.storage.transfer.copying import TRANSFERRED, Column, columns
from app.values.environment_keys import CUSTOM_TEXT_KEYS, wrong_numbers
from app.values.plan import HostWord, Repeats, Variants
from app.values.samples import FieldInfo
from workloads import catalog
from workloads.kernels import KernelClass
from workloads.protocol import EvidenceState, PhaseName, RunSpec, TimedPhase, Variant

_MAX_INTEGER = 2**61
"""The sum of two of these does not overflow; in nanoseconds it is 73 years, of one clock or since 1970."""
_MAX_REAL = 1e39
"""Above the largest float32, to which a loss may grow."""
_MIN_REAL = 1e-39
"""A nonzero number nearer to zero is not a measurement, and dividing by it may give infinity."""

_SIGNED = {
    "temperature_c",
    "memory_temperature_c",
    "device_index",
    "exit_code",
    "loss",
    "loss_first",
    "loss_last",
}
_ABOVE_ZERO = {
    ("runs", "throughput"),
    ("runs", "peak_flops_per_s"),
    ("blocks", "steps"),
    ("blocks", "examples"),
    ("epochs", "steps"),
    ("epochs", "examples"),
}
"""Values that the program divides by."""

_INVALID = {
    ("runs", "uid"): "length(uid) NOT BETWEEN 1 AND 64 OR uid GLOB '*[^0-9A-Za-z_-]*'",
    ("queue", "uid"): "length(uid) NOT BETWEEN 1 AND 64 OR uid GLOB '*[^0-9A-Za-z_-]*'",
    ("experiments", "uid"): "length(uid) NOT BETWEEN 1 AND 64 OR uid GLOB '*[^0-9A-Za-z_-]*'",
    ("phases", "end_ns"): "end_ns < start_ns",
    ("blocks", "end_ns"): "end_ns <= start_ns",
    ("epochs", "end_ns"): "end_ns <= start_ns",
    ("epochs", "tested_ns"): "tested_ns < end_ns",
    ("epochs", "accuracy"): "accuracy > 1",
    ("device_times", "host_wait_ns"): "host_wait_ns + ifnull(kernel_wait_ns, 0) > span_ns - busy_ns",
    ("kernels", "occupancy_pct"): "occupancy_pct > 100",
    ("runs", "occupancy_pct"): "occupancy_pct > 100",
    ("step_kernels", "stream"): "(run, stream) NOT IN (SELECT run, stream FROM step_streams)",
    ("step_kernels", "rank"): "(run, rank) NOT IN (SELECT run, rank FROM kernels)",
}
"""SQL that is true for an impossible value; a uid names files, so it must not contain path characters."""

_ENUMERATIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("phases", "phase"): get_args(PhaseName),
    ("blocks", "phase"): get_args(TimedPhase),
    ("kernels", "kind"): get_args(KernelClass),
    ("evidence", "state"): get_args(EvidenceState),
}


class _PlannedTransfer(msgspec.Struct):
    spec: RunSpec


class _PlannedExperiment(msgspec.Struct):
    """The part of a queue entry's plan that determines what would run."""

    variants: Variants
    repeats: Repeats
    carried: tuple[_PlannedTransfer, ...] = ()
    host: HostWord = ""


_JSON: Mapping[tuple[str, str], Any] = {
    ("runs", "variant"): Variant,
    ("runs", "environment"): dict[str, str],
    ("devices", "absent"): dict[str, str],
    ("devices", "fields"): dict[str, FieldInfo],
    ("devices", "implausible"): dict[str, Annotated[int, msgspec.Meta(gt=0, le=_MAX_INTEGER)]],
    ("evidence", "asked"): dict[str, str],
    ("evidence", "ran"): dict[str, str],
    ("evidence", "unverified"): dict[str, str],
    ("evidence", "sources"): tuple[str, ...],
    ("evidence", "notes"): tuple[str, ...],
    ("equality", "baseline"): Variant,
    ("experiments", "plan"): dict[str, Any],
    ("queue", "plan"): _PlannedExperiment,
}

_FREE_TEXT = {("runs", "detail"), ("runs", "note"), ("log_lines", "text")}
"""Texts that may be long and contain anything but NUL, like those of `CUSTOM_TEXT_KEYS`: logs and tracebacks."""
_MAX_TEXT_LENGTH = 50_000
"""Longest name or sentence; the names of kernels are the longest."""
_CONTROL = "\x01-\x08\x0b-\x1f\x7f-\x9f"
"""Characters that could control a terminal, as a range of GLOB and `re`; line ends and tabs are allowed."""
_CONTROL_PATTERN = re.compile(f"[{_CONTROL}]")
_JSON_CHECK = re.compile(r"json_valid\((\w+)\)")
_MAX_JSON_DEPTH = 20


def check_values(staged: sqlite3.Connection, file: Path) -> None:
    """Raise a `DatabaseError` that names the first value that this program would not have written."""
    for table, column, value in _faults(staged):
        value_text = repr(value)
        raise DatabaseError(
            f"{file} holds what VariantScope does not write ({table}.{column} is"
            f" {value_text if len(value_text) < 60 else value_text[:60] + ' …'}); nothing was imported."
        )


Fault = tuple[str, str, Any]
"""Table, column and the wrong value."""


def _faults(staged: sqlite3.Connection) -> Iterator[Fault]:
    for table in TRANSFERRED:
        yield from _number_faults(staged, table.name)
        yield from _text_faults(staged, table.name)
        yield from _json_faults(staged, table.name)
    for (name, column), condition in _INVALID.items():
        yield from _first_fault(staged, name, column, condition)
    for (name, column), allowed in _ENUMERATIONS.items():
        placeholders = ", ".join("?" * len(allowed))
        yield from _first_fault(staged, name, column, f"{column} NOT IN ({placeholders})", *allowed)
    yield from _variant_faults(staged)
    yield from _environment_faults(staged)
    yield from _annotation_faults(staged)


def _first_fault(staged: sqlite3.Connection, table: str, column: str, condition: str, *values: Any) -> Iterator[Fault]:
    row = staged.execute(f"SELECT {column} FROM {table} WHERE {condition} LIMIT 1", values).fetchone()
    if row is not None:
        yield table, column, row[0]


def _number_faults(staged: sqlite3.Connection, table: str) -> Iterator[Fault]:
    """Check the table in one pass; search column by column only if that finds something."""
    conditions = {
        column.name: _out_of_range(column, above_zero=(table, column.name) in _ABOVE_ZERO)
        for column in columns(staged, table)
        if column.type in ("INTEGER", "REAL") and not column.generated
    }
    if staged.execute(f"SELECT 1 FROM {table} WHERE {' OR '.join(conditions.values())} LIMIT 1").fetchone():
        for name, condition in conditions.items():
            yield from _first_fault(staged, table, name, condition)


def _out_of_range(column: Column, *, above_zero: bool) -> str:
    """Return SQL that is true for a number that this program does not write, such as infinity."""
    highest = _MAX_INTEGER if column.type == "INTEGER" else _MAX_REAL
    if column.name in _SIGNED:
        return f"{column.name} NOT BETWEEN -{highest!r} AND {highest!r}"
    lowest = 1 if column.type == "INTEGER" else _MIN_REAL
    outside = f"{column.name} NOT BETWEEN {lowest!r} AND {highest!r}"
    return outside if above_zero else f"({outside} AND {column.name} <> 0)"


def _text_faults(staged: sqlite3.Connection, table: str) -> Iterator[Fault]:
    """Check every text; a NUL is searched in the bytes, because `length` and GLOB end at the first one."""
    is_json = _json_columns(staged, table)
    for column in columns(staged, table):
        if column.type == "TEXT" and not column.generated:
            name = column.name
            yield from _first_fault(staged, table, name, f"instr(CAST({name} AS BLOB), x'00')")
            if (table, name) not in _FREE_TEXT and name not in is_json:
                condition = f"length({name}) > ? OR {name} GLOB ?"
                yield from _first_fault(staged, table, name, condition, _MAX_TEXT_LENGTH, f"*[{_CONTROL}]*")


def _json_columns(staged: sqlite3.Connection, table: str) -> list[str]:
    (sql,) = staged.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return _JSON_CHECK.findall(sql)


def _json_faults(staged: sqlite3.Connection, table: str) -> Iterator[Fault]:
    for column in _json_columns(staged, table):
        decoder = msgspec.json.Decoder(_JSON[table, column])
        for (text,) in staged.execute(f"SELECT DISTINCT {column} FROM {table}"):
            try:
                decoder.decode(text)
                is_plain = _is_plain(msgspec.json.decode(text))
            except (msgspec.MsgspecError, RecursionError):
                is_plain = False
            if not is_plain:
                yield table, column, text


def _is_plain(value: object, depth: int = 0, *, free: bool = False) -> bool:
    """Return whether decoded JSON is nested no deeper than ours, and its strings have no control characters.

    `depth` is the current nesting; a `free` string may be long and contain anything but NUL.
    """
    if isinstance(value, str):
        return "\0" not in value and (free or (len(value) <= _MAX_TEXT_LENGTH and not _CONTROL_PATTERN.search(value)))
    if not isinstance(value, dict | list):
        return True
    pairs = value.items() if isinstance(value, dict) else ((None, element) for element in value)
    return depth < _MAX_JSON_DEPTH and all(
        _is_plain(key) and _is_plain(element, depth + 1, free=key in CUSTOM_TEXT_KEYS) for key, element in pairs
    )


def _variant_faults(staged: sqlite3.Connection) -> Iterator[Fault]:
    for table, column, workload, variant in _specs(staged):
        for name in catalog.wrong_values(workload, variant):
            yield table, column, f"{name}={variant[name]}"


def _environment_faults(staged: sqlite3.Connection) -> Iterator[Fault]:
    for (text,) in staged.execute("SELECT DISTINCT environment FROM runs"):
        environment = msgspec.json.decode(text)
        for key in wrong_numbers(environment):
            yield "runs", "environment", f"{key}={environment[key]}"


def _specs(staged: sqlite3.Connection) -> Iterator[tuple[str, str, str, Variant]]:
    for workload, text in staged.execute("SELECT DISTINCT workload, variant FROM runs"):
        yield "runs", "variant", workload, msgspec.json.decode(text)
    compared = "SELECT DISTINCT workload, baseline FROM equality JOIN runs USING (run)"
    for workload, text in staged.execute(compared):
        yield "equality", "baseline", workload, msgspec.json.decode(text)
    for (text,) in staged.execute("SELECT plan FROM queue"):
        plan = msgspec.json.decode(text, type=_PlannedExperiment)
        for spec in (*plan.variants, *(transfer.spec for transfer in plan.carried)):
            yield "queue", "plan", spec.workload, spec.variant


def _annotation_faults(staged: sqlite3.Connection) -> Iterator[Fault]:
    for table, column, checked in (("runs", "note", checked_note), ("tags", "tag", checked_tag)):
        for (text,) in staged.execute(f"SELECT DISTINCT {column} FROM {table}"):
            try:
                checked(text)
            except UserError:
                yield table, column, text
