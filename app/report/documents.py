"""Runs, machines, evidence and telemetry as JSON documents: what `--json` prints."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from app.analysis.equality import Equality, judge_check
from app.analysis.intervals import Estimate
from app.analysis.largest_batch import LargestBatch
from app.analysis.steps import busy_share, imbalance
from app.analysis.summary import epoch_seconds, epoch_testing_seconds, epoch_totals, epoch_waiting_pct, mfu
from app.analysis.why import Change, Part, find_cause
from app.metrics import METRICS, put_json
from app.report.charts.draw import draw_chart
from app.values import units
from app.values.fields import FIELDS, Sample, SlowSample, fields_of
from app.values.limits import IMPLAUSIBLE
from app.values.records import PortabilityResult, RunRow, SampleColumns, StoredRun, match_of, worst_state
from app.values.samples import HOST, Device, DeviceLost, FieldInfo, Inventory, Processes
from app.viewmodels.charts.palette import Palette
from app.viewmodels.compare.statements import Statement
from app.viewmodels.compare.why import CAVEAT, WhyView
from app.viewmodels.format import derived
from app.viewmodels.format.cells import TextTable, example_word
from app.viewmodels.history.evidence import unchecked_parameters
from app.viewmodels.history.run_diff import DeviceMeans, DiffRow, paired_means, run_diff
from app.viewmodels.run.form import describe_largest_batch
from workloads.catalog import has_parameter, own_variant
from workloads.protocol import EvidenceState, RunSpec


def epochs_document(run: StoredRun) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch.epoch,
            "seconds": epoch_seconds(epoch),
            "testing_seconds": epoch_testing_seconds(epoch),
            "steps": epoch.steps,
            "examples": epoch.examples,
            "loss": epoch.loss,
            "accuracy": epoch.accuracy,
            "waiting_pct": epoch_waiting_pct(epoch, run.row.summary),
        }
        for epoch in run.epochs
    ]


def evidence_document(run: StoredRun) -> dict[str, Any] | None:
    """Return a run's evidence; None without any.

    `busy_share` is the share of the measured step in which a kernel ran on a GPU. The times of `devices` cover the
    traced steps; `imbalance` is how much longer the slowest computes than the fastest, as a share.
    """
    if (evidence := run.evidence) is None:
        return None
    return {
        "asked": evidence.requested,
        "ran": evidence.actual,
        "unverified": evidence.unverified,
        "unchecked": unchecked_parameters(run.row.spec, evidence),
        "state": evidence.state,
        "match": evidence.match,
        "reason": evidence.reason,
        "sources": list(evidence.sources),
        "notes": list(evidence.notes),
        "steps": evidence.steps,
        "span_ns": evidence.span_ns,
        "busy_share": busy_share(run),
        "kernels": list(msgspec.to_builtins(evidence.kernels)),
        "devices": list(msgspec.to_builtins(evidence.devices)),
        "imbalance": imbalance(evidence.devices),
    }


def portability_document(checks: Sequence[PortabilityResult]) -> list[dict[str, Any]]:
    """Return the results of the run's weights elsewhere, one entry per trial."""
    return [{name: value for name, value in asdict(check).items() if name != "utc_ns"} for check in checks]


def equality_document(equality: Equality) -> dict[str, Any]:
    """Return the result of an equality check: its state, differences, and what rounding explains."""
    return {**asdict(equality), "state": equality.state.replace(" ", "_")}


def combined_state(rows: Sequence[RunRow]) -> EvidenceState | None:
    """Return what was verified for all runs of a variant; None if one has no evidence and none is a mismatch."""
    worst = worst_state(row.evidence_state for row in rows if row.evidence_state is not None)
    return worst if worst == "mismatch" or all(row.evidence_state for row in rows) else None


def verification_document(rows: Sequence[RunRow]) -> dict[str, Any]:
    """Return what was verified for some runs together, and whether all ran as requested."""
    state = combined_state(rows)
    return {"state": state, "match": match_of(state)}


def estimate_document(
    estimate: Estimate | None, value_key: str = "value", interval_key: str = "interval"
) -> dict[str, Any]:
    """Return a value with its interval, under these keys; both None without a value."""
    return {
        value_key: estimate.value if estimate else None,
        interval_key: list(estimate.interval) if estimate and estimate.interval else None,
    }


def largest_batch_document(spec: RunSpec, search: LargestBatch) -> dict[str, Any]:
    """Return the answer and every trial of a search for the largest batch; `variant` is the first one tried."""
    return {
        "workload": spec.workload,
        "variant": own_variant(spec),
        "largest_batch": search.fits,
        "smallest_that_does_not_fit": search.fails,
        "step": search.step,
        "ending": search.ending,
        "reason": search.reason,
        "text": describe_largest_batch(search),
        "tries": [asdict(attempt) for attempt in search.tries],
    }


TelemetryMessage = Sample | SlowSample | Processes | DeviceLost


def telemetry_line(message: TelemetryMessage, *, utc: str) -> dict[str, Any]:
    """Return one message with its wall-clock time; all except samples name their `kind`."""
    fields = msgspec.to_builtins(message)
    kind = fields.pop("type")
    head = {"t_ns": fields.pop("t_ns"), "utc": utc, "source": "live", "device": fields.pop("device")}
    return {**head, **fields} if kind == "sample" else {**head, "kind": kind, **fields}


def device_lines(inventory: Inventory, *, t_ns: int, utc: str) -> list[dict[str, Any]]:
    return [
        {
            "t_ns": t_ns,
            "utc": utc,
            "source": "live",
            "device": device.device,
            "kind": "device",
            "index": device.index,
            "name": device.name,
            "memory_total_bytes": device.memory_total_bytes,
            "absent": device.absent,
            "lost": device.lost,
            **({"cpu_count": inventory.machine.cpu_count} if device.device == HOST else {}),
        }
        for device in inventory.devices
    ]


def run_document(run: StoredRun, *, pruned_utc_ns: int | None = None) -> dict[str, Any]:
    """Return the `run` document of one stored run: every metric at its path, and everything else stored.

    `pruned_utc_ns` is when its samples were deleted, if they were.
    """
    row, summary, totals = run.row, run.row.summary, epoch_totals(run.epochs)
    losses = {loss.device: loss for loss in derived.device_losses(run)}
    document: dict[str, Any] = {
        **_run_head(row),
        "exit_code": row.outcome.exit_code if row.outcome else None,
        "ended_by": row.outcome.ended_by if row.outcome else None,
        "phases": [
            {
                "phase": phase.name,
                "start_s": (phase.start_ns - run.anchor_t_ns) / 1e9,
                "seconds": phase.seconds,
                "energy_mj": phase.energy_mj,
                "energy_error_mj": phase.energy_error_mj,
                "mean_power_mw": phase.mean_power_mw,
            }
            for phase in run.phases
        ],
        "throughput": {
            "value": summary.throughput,
            "unit": units.rate_unit(example_word(row.spec, row.summary)),
            "blocks": [float(value) for value in run.blocks.throughput[run.blocks.measured]],
        },
        "training": totals and totals._asdict(),
        "epochs": epochs_document(run),
        "flops": {"utilisation": mfu(summary)},
        "energy": {"source": summary.energy_source},
        "memory": {
            "device_total_bytes": derived.memory_total_bytes(run),
            "note": derived.memory_note(run) or None,
        },
        "telemetry": {"pruned_utc": None if pruned_utc_ns is None else iso_utc(pruned_utc_ns)},
        "evidence": evidence_document(run),
        "portability": portability_document(run.portability),
        "equality": [
            {
                "baseline": own_variant(RunSpec(workload=row.spec.workload, variant=check.baseline)),
                **equality_document(judge_check(check, row.spec)),
            }
            for check in run.equality
        ],
        "environment": dict(run.environment),
        "devices": [_device_means(columns, losses.get(columns.device.device)) for columns in run.samples],
    }
    for metric in METRICS:
        put_json(document, metric, metric.value(run))
    return document


def _device_means(columns: SampleColumns, loss: derived.DeviceLoss | None) -> dict[str, Any]:
    gauges = {name: values for name, values in columns.slow.items() if FIELDS[name].kind != "counter"}
    return {
        **msgspec.to_builtins(columns.device),
        "lost": loss and {"t_s": loss.lost_s, "reason": loss.reason, "answered_s": loss.answered_s},
        "samples": int(columns.t_ns.size),
        "slow_samples": int(columns.slow_t_ns.size),
        "mean": {
            name: float(np.nanmean(values))
            for name, values in {**columns.fields, **gauges}.items()
            if not np.isnan(values).all()
        },
    }


def _run_head(row: RunRow) -> dict[str, Any]:
    return {
        "run": row.run,
        "uid": row.uid,
        "started_utc": iso_utc(row.started_utc_ns),
        "workload": row.spec.workload,
        "variant": own_variant(row.spec),
        "purpose": row.purpose,
        "host": row.host,
        "note": row.note,
        "tags": list(row.tags),
        "experiments": list(row.experiments),
        "deleted_utc": None if row.deleted_utc_ns is None else iso_utc(row.deleted_utc_ns),
        "outcome": row.outcome.name if row.outcome else None,
        "reason": row.outcome.reason if row.outcome else None,
    }


def list_document(rows: Sequence[RunRow]) -> dict[str, Any]:
    return {"runs": [listed_document(row) for row in rows]}


def listed_document(row: RunRow) -> dict[str, Any]:
    document = {
        **_run_head(row),
        "throughput": {"value": None, "unit": units.rate_unit(example_word(row.spec, row.summary))},
        **verification_document([row]),
    }
    for metric in METRICS:
        if metric.list_column:
            put_json(document, metric, metric.row_value(row))
    return document


Readings = Mapping[str, Mapping[str, float]]
"""The newest value of each field, by device."""


def gpus_document(
    inventory: Inventory, readings: Readings, processes: Mapping[str, Processes] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the `gpus` document: each GPU with a reading of each field, what it lacks and why, and the host."""
    devices = [_device(device, readings.get(device.device, {})) for device in inventory.devices]
    for device in devices:
        if (users := processes.get(device["uuid"])) is not None:
            device["processes"] = None if users.reason is not None else msgspec.to_builtins(users.processes)
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
        "lost": device.lost,
        "memory_total_bytes": device.memory_total_bytes,
        "fields": {field.name: _field(device, field.name, values.get(field.name)) for field in fields_of(device.kind)},
    }


def _field(device: Device, name: str, value: float | None) -> dict[str, Any]:
    """Return a field; it is supported if the device reported it when it was probed, or reports it now."""
    info, reason = device.fields.get(name, FieldInfo(unit=FIELDS[name].unit)), device.absent.get(name)
    return {
        "supported": reason in (None, IMPLAUSIBLE) and (name in device.fields or value is not None),
        "value": value,
        "reason": reason,
        **msgspec.to_builtins(info),
    }


def iso_utc(utc_ns: int) -> str:
    """Return a time in nanoseconds since 1970 as ISO 8601 with milliseconds: `2026-03-01T14:05:09.120Z`."""
    return datetime.fromtimestamp(utc_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def statements_document(statements: Iterable[Statement]) -> list[dict[str, Any]]:
    """Return statements with their sentences as `text`."""
    return [{"text": one.sentence, **msgspec.json.decode(msgspec.json.encode(one))} for one in statements]


def why_document(views: Sequence[WhyView]) -> list[dict[str, Any]]:
    """Return an entry per variant except the baseline: its step, the step's parts, and what-ifs; times are in ms.

    `examples` is the number to which times refer, None for one step. A part lists the kernels that changed most, with
    full names; `more_kernels` sums up the others; the idle part lists its causes. `cause` is an
    `app.analysis.why.Cause` that explains most of the difference. If the reason is unknown, `text` says so, and `parts`
    is empty.
    """
    return [_entry(view) for view in views]


def _entry(view: WhyView) -> dict[str, Any]:
    difference = view.difference
    return {
        "label": view.name,
        "runs": list(view.runs),
        "text": view.sentence,
        "statements": statements_document(view.statements),
        "notes": statements_document(view.notes),
        "examples": difference.examples if difference else None,
        "step": _change(difference.step) if difference else None,
        "cause": asdict(cause) if difference and (cause := find_cause(difference)) else None,
        "parts": [_part(part) for part in difference.parts] if difference else [],
        "what_if": statements_document(view.gains),
    }


def _change(change: Change) -> dict[str, Any]:
    difference = estimate_document(change.difference, "difference_ms", "interval_ms")
    return {"baseline_ms": change.baseline_ms, "ms": change.other_ms, **difference}


def _part(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind,
        **_change(part.change),
        "kernels": [
            {
                "name": kernel.kernel.name,
                "tensor_cores": kernel.kernel.tensor_cores,
                **_change(kernel.change),
            }
            for kernel in part.kernels
        ],
        "causes": [{"kind": cause.cause, **_change(cause.change)} for cause in part.causes],
        "more_kernels": {"count": part.more, "difference_ms": part.more_ms},
    }


def why_sections(views: Sequence[WhyView], palette: Palette) -> list[dict[str, Any]]:
    """Return the templates' values for each variant, drawn in these colours; `kernels` has the parts with kernels."""
    return [
        {
            "title": f"{view.name} against {view.baseline}",
            "text": view.sentence,
            "notes": [note.sentence for note in view.notes],
            "drawing": draw_chart(view.chart, palette) if view.chart else None,
            "parts": _table(view, kernels=False),
            "kernels": _table(view, kernels=True),
            "gains": [gain.sentence for gain in view.gains],
            "caveat": CAVEAT,
        }
        for view in views
    ]


def _table(view: WhyView, *, kernels: bool) -> TextTable:
    """Return only the parts, or also the kernels of each."""
    rows = tuple(
        ((f"– {row.label}" if row.is_detail else row.label), *row.cells)
        for row in view.rows
        if kernels or row.kind != "kernel"
    )
    return TextTable(head=("", *view.head), rows=rows, numeric=frozenset(range(1, len(view.head) + 1)))


_ABSENT = object()
_INDENT = "\N{NO-BREAK SPACE}" * 4
"""Precedes a kernel listed below its class."""


def diff_table(rows: Sequence[DiffRow], labels: tuple[str, str], indent: str = _INDENT) -> TextTable:
    """Return values of both runs, named by these labels, with changes if any; kernels are indented."""
    changes = any(row.change for row in rows)
    texts = [(f"{indent * row.kernel}{row.name}", row.first, row.second, row.change) for row in rows]
    return TextTable(
        head=("", *labels, *(["Change"] if changes else [])),
        rows=tuple(texts) if changes else tuple(row[:3] for row in texts),
        numeric=frozenset({1, 2, 3}) if changes else frozenset(),
    )


def diff_document(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return the `diff` document of two runs: for each different value, the first run's and the second's.

    `kernels` has the parts of a step as in the `why` of a comparison with the first run as baseline; `samples` has
    means over `measure`, one entry per device; `log` has the lines that only one run has.
    """
    runs = (first, second)
    differences = run_diff(first, second, None)
    specs = [run.row.spec for run in runs]
    parameters = (
        {
            name: value
            for name, value in spec.variant.items()
            if all(has_parameter(run_spec, name) for run_spec in specs)
        }
        for spec in specs
    )
    return {
        "runs": [_head(run.row) for run in runs],
        "parameters": _pairs(*parameters),
        "metrics": _metrics(*runs),
        "environment": _pairs(*(run.environment for run in runs)),
        "evidence": _pairs(*(run.evidence.actual if run.evidence else {} for run in runs)),
        "kernels": why_document([differences.why])[0],
        "samples": [_means(*pair) for pair in paired_means(*runs)],
        **{
            text.key: {side: [c.text for c in text.changes if c.side == side] for side in ("first", "second")}
            for text in differences.texts
        },
    }


def _head(row: RunRow) -> dict[str, Any]:
    return {
        "run": row.run,
        "uid": row.uid,
        "workload": row.spec.workload,
        "outcome": row.outcome.name if row.outcome else None,
        "host": row.host,
        "gpus": list(row.gpu_names),
    }


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values that differ, by name; None if a run lacks one."""
    names = dict.fromkeys((*first, *second))
    differing = (name for name in names if first.get(name, _ABSENT) != second.get(name, _ABSENT))
    return {name: [first.get(name), second.get(name)] for name in differing}


def _metrics(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for metric in METRICS:
        values = [metric.value(first), metric.value(second)]
        if values != [None, None]:
            put_json(document, metric, values)
    return document


def _means(first: DeviceMeans | None, second: DeviceMeans | None) -> dict[str, Any]:
    sides = (first, second)
    means = [side[1] if side else {} for side in sides]
    return {
        "devices": [side[0].device if side else None for side in sides],
        "mean": {name: [side.get(name) for side in means] for name in dict.fromkeys(name for m in means for name in m)},
    }
