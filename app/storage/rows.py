"""Converts records to rows of the database, and rows to records."""

import json
import logging
import math
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar, cast, get_args

import msgspec
import numpy as np

from app.values.environment_keys import PLANNED_KEY
from app.values.events import Outcome, Summary
from app.values.plain import plain_text, without_nul
from app.values.records import BlockColumns, EqualityCheck, Phase, PortabilityResult, RunRow
from app.values.samples import Device, FieldInfo
from workloads.catalog import with_defaults, wrong_values
from workloads.kernels import classify, on_tensor_cores
from workloads.protocol import (
    DeviceTime,
    Epoch,
    Evidence,
    Kernel,
    OutcomeName,
    PhaseName,
    RunSpec,
    StepTimeline,
    Stream,
    Variant,
)

Row = tuple[Any, ...]
Record = TypeVar("Record")
Json = TypeVar("Json")

_log = logging.getLogger("variantscope.storage")

SUMMARY_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Summary))
OUTCOME_COLUMNS = ("outcome", "reason", "detail", "exit_code", "ended_by")
DEVICE_COLUMNS = ("device", "kind", "device_index", "name", "memory_total_bytes", "absent", "fields", "implausible")
PHASE_COLUMNS = ("phase", "start_ns", "end_ns", "energy_mj", "energy_error_mj")
BLOCK_COLUMNS = ("first_step", "phase", "steps", "examples", "start_ns", "end_ns", "loss", "allocator_bytes")
READ_BLOCK_COLUMNS = BLOCK_COLUMNS[:-1]
"""The columns of a block that comparisons and curves need."""
EPOCH_COLUMNS = Epoch.__struct_fields__
KERNEL_COLUMNS = Kernel.__struct_fields__
READ_KERNEL_COLUMNS = ("name", "count", "time_ns", "occupancy_pct")
"""The columns read of a kernel: its class follows from its name, as the program classifies it today."""
DEVICE_TIME_COLUMNS = DeviceTime.__struct_fields__
STREAM_COLUMNS = Stream.__struct_fields__
STEP_KERNEL_COLUMNS = ("stream", "rank", "offset_ns", "duration_ns")
"""The values of a `StepKernel`: only here the time since the step's start differs in name from a clock time."""
EVIDENCE_COLUMNS = (
    *("asked", "ran", "unverified", "state", "match", "reason", "sources", "notes", "steps", "span_ns", "busy_ns"),
)
EVIDENCE_LIST_COLUMNS = ("state", "reason")
"""Columns of a run's evidence in its list row; all NULL without evidence."""
_EVIDENCE_JSON: Mapping[str, Any] = {
    **dict.fromkeys(("asked", "ran", "unverified"), dict[str, str]),
    **dict.fromkeys(("sources", "notes"), tuple[str, ...]),
}
_EVIDENCE_ATTRIBUTES = {"asked": "requested", "ran": "actual"}
PORTABILITY_COLUMNS = tuple(field.name for field in fields(PortabilityResult))
EQUALITY_COLUMNS = tuple(field.name for field in fields(EqualityCheck))
CALIBRATION_COLUMNS = ("device", "precision", "size", "flops_per_s")
RUN_COLUMNS = (
    "run",
    "uid",
    "started_utc_ns",
    "ended_utc_ns",
    "workload",
    "variant",
    *OUTCOME_COLUMNS,
    *SUMMARY_COLUMNS,
    "purpose",
    "note",
    "deleted_utc_ns",
    "host",
    "framework",
)
_AS_STORED = ("run", "uid", "started_utc_ns", "ended_utc_ns", "purpose", "note", "deleted_utc_ns", "framework")
PLANNED_SQL = f"json_extract(runs.environment, '$.{PLANNED_KEY}')"
"""What a run's experiment planned, which lists show from its environment."""


def values(item: object, columns: Sequence[str]) -> Row:
    """Return a record's values in the order of these columns, which are the names of its attributes."""
    return tuple(getattr(item, name) for name in columns)


def record(kind: Callable[..., Record], columns: Sequence[str], row: Sequence[Any]) -> Record:
    """Return the record of a row; its columns have the names of the record's attributes."""
    return kind(**dict(zip(columns, row, strict=True)))


def insert(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Iterable[Row], statement: str = "INSERT"
) -> None:
    """Insert rows into a table, in the caller's transaction. `statement` precedes INTO, such as `INSERT OR IGNORE`."""
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"{statement} INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def run_row(
    row: Sequence[Any],
    gpu_names: tuple[str, ...],
    gpus: tuple[str, ...],
    tags: tuple[str, ...] = (),
    experiments: tuple[int, ...] = (),
) -> RunRow:
    """Return the list row of one run.

    Its spec is complete: parameters newer than the run have their defaults.

    The row is the run's `RUN_COLUMNS`, `PLANNED_SQL`, and then its evidence's `EVIDENCE_LIST_COLUMNS`. `gpus` are
    UUIDs.
    """
    *run_values, planned, state, reason = row
    values = dict(zip(RUN_COLUMNS, run_values, strict=True))
    return RunRow(
        **{name: values[name] for name in _AS_STORED},
        spec=_spec(values["workload"], values["variant"]),
        outcome=_outcome(*(values[name] for name in OUTCOME_COLUMNS)) if values["outcome"] is not None else None,
        summary=_summary(values),
        gpu_names=gpu_names,
        evidence_state=state,
        evidence_reason=reason,
        planned=planned if isinstance(planned, str) else None,
        tags=tags,
        experiments=experiments,
        host=host if isinstance(host := values["host"], str) else None,
        gpus=gpus,
    )


@lru_cache(maxsize=4_096)
def _spec(workload: str, variant: str) -> RunSpec:
    """Return a variant; its runs share the object, because an experiment may hold a thousand runs in memory.

    A variant with an impossible value becomes an unknown workload without values.
    """
    values = _decoded(variant, Variant)
    if not values or wrong_values(workload, values):
        return RunSpec(workload=f"{workload} (damaged)", variant={})
    return with_defaults(RunSpec(workload=workload, variant=values))


def _decoded(text: str, kind: type[Json]) -> Json:
    """Return the content of a JSON column; empty, with a line in the log, if another program wrote invalid content.

    Imports refuse such values, but an opened database may hold any.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        _log.warning("a stored value is damaged (%s) and counts as absent: %.200r", error, text)
        return kind()


_shared = lru_cache(maxsize=128)(_decoded)


@lru_cache(maxsize=32)
def environment(text: str) -> Mapping[str, str]:
    """Return a run's environment; runs share equal environments, or else equal strings."""
    return {sys.intern(name): sys.intern(value) for name, value in _decoded(text, dict[str, str]).items()}


INFINITE = frozenset((math.inf, -math.inf))
"""Values that only a damaged database holds."""


def _summary(values: Mapping[str, Any]) -> Summary:
    figures = {name: None if values[name] in INFINITE else values[name] for name in SUMMARY_COLUMNS}
    return record(Summary, SUMMARY_COLUMNS, [*figures.values()])


@lru_cache(maxsize=32)
def gpu_set(uuids: tuple[str, ...]) -> frozenset[str]:
    """Return the GPUs of a run; runs on the same ones share the object."""
    return frozenset(uuids)


def equality_values(check: EqualityCheck) -> Row:
    return tuple(json.dumps(value) if isinstance(value, dict) else value for value in values(check, EQUALITY_COLUMNS))


def equality_check(row: Sequence[Any]) -> EqualityCheck:
    values = dict(zip(EQUALITY_COLUMNS, row, strict=True))
    return EqualityCheck(**{**values, "baseline": _decoded(values["baseline"], Variant)})


def evidence_values(evidence: Evidence) -> Row:
    values = {name: getattr(evidence, _EVIDENCE_ATTRIBUTES.get(name, name)) for name in EVIDENCE_COLUMNS}
    return tuple(json.dumps(value) if name in _EVIDENCE_JSON else value for name, value in values.items())


def evidence(
    row: Sequence[Any],
    kernels: Iterable[Sequence[Any]],
    device_times: Iterable[Sequence[Any]] = (),
    timeline: StepTimeline | None = None,
) -> Evidence:
    """Return the evidence of a run, whose row is `EVIDENCE_COLUMNS`.

    Kernels are rows of `READ_KERNEL_COLUMNS`, device times of `DEVICE_TIME_COLUMNS`.
    """
    pairs = zip(EVIDENCE_COLUMNS, row, strict=True)
    values = {name: _decoded(value, _EVIDENCE_JSON[name]) if name in _EVIDENCE_JSON else value for name, value in pairs}
    stored = values["match"]
    return Evidence(
        requested=values["asked"],
        actual=values["ran"],
        match=None if stored is None else bool(stored),
        **{name: values[name] for name in ("unverified", "reason", "sources", "notes", "steps", "span_ns", "busy_ns")},
        kernels=tuple(map(_kernel, kernels)),
        devices=tuple(record(DeviceTime, DEVICE_TIME_COLUMNS, time) for time in device_times),
        timeline=timeline,
    )


def _kernel(row: Sequence[Any]) -> Kernel:
    values = dict(zip(READ_KERNEL_COLUMNS, row, strict=True))
    values["name"] = sys.intern(values["name"])  # many runs have the same kernels, whose names have a hundred letters
    return Kernel(**values, kind=classify(values["name"]), tensor_cores=on_tensor_cores(values["name"]))


@lru_cache(maxsize=256)
def _outcome(name: Any, *others: Any) -> Outcome:
    if name not in get_args(OutcomeName):
        return Outcome(name="crashed", reason="Its stored outcome is damaged.")
    return Outcome(name=name, **dict(zip(OUTCOME_COLUMNS[1:], others, strict=True)))


def outcome_values(outcome: Outcome) -> Row:
    """Return the outcome as its `OUTCOME_COLUMNS`, with the worker's texts cleaned so that imports accept them."""
    reason = outcome.reason and plain_text(outcome.reason)
    detail = outcome.detail and without_nul(outcome.detail)
    return (outcome.name, reason, detail, outcome.exit_code, outcome.ended_by)


def device_values(device: Device) -> Row:
    return (
        device.device,
        device.kind,
        device.index,
        device.name,
        device.memory_total_bytes,
        json.dumps(device.absent),
        encode_fields(device.fields),
        json.dumps(device.implausible),
    )


def encode_fields(fields: Mapping[str, FieldInfo]) -> str:
    """Return the JSON of a device's fields: unit, period and cost by name."""
    return msgspec.json.encode(fields).decode()


def device(row: Sequence[Any]) -> Device:
    """Return the device of a row of `DEVICE_COLUMNS`; the runs of one session share its collections."""
    *values, absent, fields_json, implausible = row
    return Device(
        **dict(zip(("device", "kind", "index", "name", "memory_total_bytes"), values, strict=True)),
        absent=_shared(absent, dict[str, str]),
        fields=_shared(fields_json, dict[str, FieldInfo]),
        implausible=_decoded(implausible, dict[str, int]),
    )


def phase(row: Sequence[Any]) -> Phase:
    return Phase(cast(PhaseName, row[0]), *row[1:])


_BLOCK = np.dtype([(name, np.float64 if name == "loss" else np.int64) for name in READ_BLOCK_COLUMNS])


def block_columns(rows: Iterable[Sequence[Any]]) -> BlockColumns:
    """Return blocks as arrays, from rows of `READ_BLOCK_COLUMNS` in time order."""
    # Row by row: as Python numbers, a day's blocks would take 100 MB.
    table = np.fromiter(map(_block_numbers, rows), _BLOCK)
    columns = {name: np.ascontiguousarray(table[name]) for name in READ_BLOCK_COLUMNS}
    return BlockColumns(measured=columns.pop("phase").astype(np.bool_), **columns)


def _block_numbers(row: Sequence[Any]) -> Row:
    *first, loss = row
    first[1] = first[1] == "measure"
    return (*first, math.nan if loss is None or loss in INFINITE else loss)
