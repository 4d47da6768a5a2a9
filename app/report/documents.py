"""Runs, machines and samples as JSON documents: what `--json` prints."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from app.records import Floats, Phase, RunRow, StoredRun
from app.report.epochs import data_document, epochs_document, training_document
from app.report.evidence import evidence_document, flops_document, portability_document
from app.samples import Device, FieldFacts, Inventory
from app.telemetry.field_units import field_unit
from app.viewmodels import run_facts, units
from app.viewmodels.cells import example_word
from app.viewmodels.fields import fields_of
from app.viewmodels.run_facts import PhaseEnergy

_COUNTERS = ("energy_mj", "throttled_power_ns", "throttled_thermal_ns", "throttled_brake_ns", "sampler_cpu_s")
"""Slow fields that count up: their mean says nothing."""


def run_document(run: StoredRun, *, pruned_utc_ns: int | None = None) -> dict[str, Any]:
    """The `run` document of one stored run; `pruned_utc_ns` is when its samples were deleted, if they were."""
    row, summary = run.row, run.row.summary
    return {
        **_head(row),
        "exit_code": row.outcome.exit_code if row.outcome else None,
        "ended_by": row.outcome.ended_by if row.outcome else None,
        "phases": [
            _phase(phase, energy, run.anchor_t_ns)
            for phase, energy in zip(run.phases, run_facts.phase_energies(run), strict=True)
        ],
        "throughput": {
            "value": summary.throughput,
            "unit": units.rate_unit(example_word(row.spec)),
            "blocks": [float(value) for value in run.blocks.throughput[run.blocks.measured]],
            "blocks_cut": summary.blocks_cut,
        },
        "step_ms": {"p50": summary.step_ms_p50, "p95": summary.step_ms_p95, "p99": summary.step_ms_p99},
        "measured": {
            "steps": summary.measured_steps,
            "examples": summary.measured_examples,
            "seconds": summary.measured_s,
        },
        "loss": {"first": summary.loss_first, "last": summary.loss_last},
        "data": data_document(run),
        "training": training_document(run),
        "epochs": epochs_document(run),
        "power": {"mean_mw": summary.mean_power_mw},
        "flops": flops_document(summary),
        **_telemetry(run, pruned_utc_ns),
        "evidence": evidence_document(run.evidence),
        "portability": portability_document(run.portability),
        "environment": dict(run.environment),
        "devices": [
            {
                **msgspec.to_builtins(columns.device),
                "samples": int(columns.t_ns.size),
                "slow_samples": int(columns.slow_t_ns.size),
                "mean": {**_means(columns.fields), **_means(_gauges(columns.slow))},
            }
            for columns in run.samples
        ],
    }


def _telemetry(run: StoredRun, pruned_utc_ns: int | None) -> dict[str, Any]:
    """What telemetry says of the run, and of itself."""
    summary = run.row.summary
    return {
        "energy": {
            "mj_per_example": summary.energy_mj_per_example,
            "mj_per_step": run_facts.energy_mj_per_step(summary),
            "source": summary.energy_source,
            "error_pct": summary.energy_error_pct,
        },
        "memory": {
            "device_peak_bytes": summary.device_peak_bytes,
            "allocator_peak_bytes": summary.allocator_peak_bytes,
            "device_total_bytes": run_facts.memory_total_bytes(run),
            "note": run_facts.memory_note(run) or None,
        },
        "telemetry": {
            "sample_hz": summary.sample_hz,
            "jitter_ms": {"p50": summary.sample_jitter_ms_p50, "p99": summary.sample_jitter_ms_p99},
            "missed": summary.samples_missed,
            "sampler_cpu_pct": summary.sampler_cpu_pct,
            "pruned_utc": None if pruned_utc_ns is None else iso_utc(pruned_utc_ns),
        },
    }


def _phase(phase: Phase, energy: PhaseEnergy, zero_ns: int) -> dict[str, Any]:
    return {
        "phase": phase.name,
        "start_s": (phase.start_ns - zero_ns) / 1e9,
        "seconds": energy.seconds,
        "energy_mj": energy.energy_mj,
        "energy_error_mj": energy.error_mj,
        "mean_power_mw": energy.power_mw,
    }


def _gauges(slow: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name: values for name, values in slow.items() if name not in _COUNTERS}


def _means(fields: Mapping[str, Floats]) -> dict[str, float]:
    """The mean of every field the device gave, over the whole run."""
    return {name: float(np.nanmean(values)) for name, values in fields.items() if not np.isnan(values).all()}


def _head(row: RunRow) -> dict[str, Any]:
    """What a run is, and how it ended."""
    return {
        "run": row.run,
        "uid": row.uid,
        "started_utc": iso_utc(row.started_utc_ns),
        "workload": row.spec.workload,
        "variant": row.spec.variant,
        "purpose": row.purpose,
        **library_document(row),
        "outcome": row.outcome.name if row.outcome else None,
        "reason": row.outcome.reason if row.outcome else None,
    }


def list_document(rows: Sequence[RunRow]) -> dict[str, Any]:
    """The `list` document."""
    return {
        "runs": [
            {
                **_head(row),
                "throughput": {"value": row.summary.throughput, "unit": units.rate_unit(example_word(row.spec))},
                "match": row.match,
            }
            for row in rows
        ]
    }


def library_document(row: RunRow) -> dict[str, Any]:
    """What the user keeps on a run, the experiments it belongs to, and when it went into the trash."""
    return {
        "note": row.note,
        "tags": list(row.tags),
        "experiments": list(row.experiments),
        "deleted_utc": None if row.deleted_utc_ns is None else iso_utc(row.deleted_utc_ns),
    }


Readings = Mapping[str, Mapping[str, float]]
"""The newest value of each field, by device."""


def gpus_document(inventory: Inventory, readings: Readings) -> dict[str, Any]:
    """The `gpus` document: every GPU with one reading of each field, what it lacks and why, and the host."""
    devices = [_device(device, readings.get(device.device, {})) for device in inventory.devices]
    return {
        "driver": inventory.driver,
        "cuda_driver": inventory.cuda_driver,
        "no_gpu_reason": inventory.no_gpu_reason,
        "gpus": [device for device in devices if device["kind"] == "gpu"],
        "host": next(device for device in devices if device["kind"] == "host"),
    }


def _device(device: Device, values: Mapping[str, float]) -> dict[str, Any]:
    return {
        "index": device.index,
        "uuid": device.device,
        "name": device.name,
        "kind": device.kind,
        "memory_total_bytes": device.memory_total_bytes,
        "fields": {name: _field(device, name, values.get(name)) for name in fields_of(device.device)},
    }


def _field(device: Device, name: str, value: float | None) -> dict[str, Any]:
    """A field is supported where the device gave it when it was probed, or gives it now."""
    facts, reason = device.fields.get(name, FieldFacts(unit=field_unit(name))), device.absent.get(name)
    return {
        "supported": reason is None and (name in device.fields or value is not None),
        "value": value,
        "reason": reason,
        "unit": facts.unit,
        "period_ms": facts.period_ms,
        "cost_us": facts.cost_us,
    }


def iso_utc(utc_ns: int) -> str:
    """A moment given in nanoseconds since 1970, as ISO 8601 with milliseconds: `2026-03-01T14:05:09.120Z`."""
    return datetime.fromtimestamp(utc_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
