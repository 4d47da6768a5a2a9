"""Runs, machines and samples as JSON documents: what `--json` prints."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from app.records import Device, Floats, Inventory, RunRow, Sample, StoredRun
from app.report.comparison import example_of
from app.viewmodels import units


def run_document(run: StoredRun) -> dict[str, Any]:
    """The `run` document of one stored run."""
    row, summary = run.row, run.row.summary
    return {
        "run": row.run,
        "uid": row.uid,
        "started_utc": iso_utc(row.started_utc_ns),
        "workload": row.spec.workload,
        "variant": row.spec.variant,
        "outcome": row.outcome.name if row.outcome else None,
        "reason": row.outcome.reason if row.outcome else None,
        "exit_code": row.outcome.exit_code if row.outcome else None,
        "ended_by": row.outcome.ended_by if row.outcome else None,
        "phases": [_phase(phase.name, phase.start_ns, phase.end_ns, run.anchor_t_ns) for phase in run.phases],
        "throughput": {
            "value": summary.throughput,
            "unit": units.rate_unit(example_of(row)),
            "blocks": [float(value) for value in run.blocks.throughput[run.blocks.measured]],
        },
        "step_ms": {"p50": summary.step_ms_p50, "p95": summary.step_ms_p95, "p99": summary.step_ms_p99},
        "measured": {
            "steps": summary.measured_steps,
            "examples": summary.measured_examples,
            "seconds": summary.measured_s,
        },
        "loss": {"first": summary.loss_first, "last": summary.loss_last},
        "power": {"mean_mw": summary.mean_power_mw},
        "energy": {"mj_per_example": summary.energy_mj_per_example, "source": summary.energy_source},
        "memory": {
            "device_peak_bytes": summary.device_peak_bytes,
            "allocator_peak_bytes": summary.allocator_peak_bytes,
        },
        "evidence": None,
        "environment": dict(run.environment),
        "devices": [
            {**msgspec.to_builtins(columns.device), "samples": int(columns.t_ns.size), "mean": _means(columns.fields)}
            for columns in run.samples
        ],
    }


def _phase(name: str, start_ns: int, end_ns: int | None, zero_ns: int) -> dict[str, Any]:
    seconds = None if end_ns is None else (end_ns - start_ns) / 1e9
    return {"phase": name, "start_s": (start_ns - zero_ns) / 1e9, "seconds": seconds}


def _means(fields: Mapping[str, Floats]) -> dict[str, float]:
    """The mean of every field the device gave, over the whole run."""
    return {name: float(np.nanmean(values)) for name, values in fields.items() if not np.isnan(values).all()}


def list_document(rows: Sequence[RunRow]) -> dict[str, Any]:
    """The `list` document."""
    return {
        "runs": [
            {
                "run": row.run,
                "started_utc": iso_utc(row.started_utc_ns),
                "workload": row.spec.workload,
                "variant": row.spec.variant,
                "outcome": row.outcome.name if row.outcome else None,
                "reason": row.outcome.reason if row.outcome else None,
                "throughput": {"value": row.summary.throughput, "unit": units.rate_unit(example_of(row))},
                "match": None,
            }
            for row in rows
        ]
    }


def gpus_document(inventory: Inventory, first: Mapping[str, Sample]) -> dict[str, Any]:
    """The `gpus` document: every GPU with one reading of each field, what it lacks and why, and the host."""
    devices = [_device(device, first) for device in inventory.devices]
    return {
        "driver": inventory.driver,
        "cuda_driver": inventory.cuda_driver,
        "no_gpu_reason": inventory.no_gpu_reason,
        "gpus": [device for device in devices if device["kind"] == "gpu"],
        "host": next(device for device in devices if device["kind"] == "host"),
    }


FIELD_UNITS = {
    "power_mw": "mW",
    "load_pct": "%",
    "memory_bytes": "bytes",
    "temperature_c": "°C",
    "sm_clock_mhz": "MHz",
    "power_limit_mw": "mW",
}


def _device(device: Device, first: Mapping[str, Sample]) -> dict[str, Any]:
    sample = first.get(device.device)
    fields = {}
    for name, unit in FIELD_UNITS.items():
        value = getattr(sample, name) if sample else None
        reason = device.absent.get(name)
        fields[name] = {
            "supported": reason is None and value is not None,
            "value": value,
            "reason": reason,
            "unit": unit,
        }
    return {
        "index": device.index,
        "uuid": device.device,
        "name": device.name,
        "kind": device.kind,
        "memory_total_bytes": device.memory_total_bytes,
        "fields": fields,
    }


def watch_document(sample: Sample, *, utc: str, source: str) -> dict[str, Any]:
    """One line of `watch --json`: a sample with its wall-clock time."""
    fields = msgspec.to_builtins(sample)
    fields.pop("type")
    return {"t_ns": fields.pop("t_ns"), "utc": utc, "source": source, **fields}


def iso_utc(utc_ns: int) -> str:
    """A moment given in nanoseconds since 1970, as ISO 8601 with milliseconds: `2026-03-01T14:05:09.120Z`."""
    return datetime.fromtimestamp(utc_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
