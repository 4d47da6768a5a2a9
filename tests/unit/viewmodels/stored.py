"""Stored runs made up for tests of the screens that show them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.storage.owner import this_process
from app.storage.store import Store
from app.values.environment_keys import SOURCES_KEY
from app.values.events import Outcome, Summary
from app.values.fields import FAST_FIELDS, Sample
from app.values.records import BlockColumns, EqualityCheck, Phase, PortabilityResult, RunRow, SampleColumns, StoredRun
from app.values.samples import HOST, Device, LogLine
from workloads.catalog import with_defaults
from workloads.protocol import Block, Evidence, OutcomeName, PhaseStarted, RunSpec, Value

S = 1_000_000_000
UTC_NS = 1_760_000_000 * S
LSTM: dict[str, Value] = {
    "implementation": "standard",
    "layers": 1,
    "units": 64,
    "gpus": 0,
    "batch_size": 32,
    "precision": "float32",
    "xla": False,
}
CNN: dict[str, Value] = {"layout": "NCHW", "gpus": 1, "batch_size": 1024, "precision": "float32", "xla": False}
GPUS = tuple(
    Device(device=f"GPU-{i}", kind="gpu", index=i, name="NVIDIA H200", memory_total_bytes=141 * 2**30) for i in range(2)
)


def run_row(
    run: int,
    *,
    workload: str = "lstm",
    outcome: OutcomeName | None = "completed",
    reason: str | None = None,
    throughput: float | None = 1000.0,
    energy_mj: float | None = None,
    gpu_names: tuple[str, ...] = (),
    seconds: float = 12.5,
    found: Evidence | None = None,
    gflops: float | None = None,
    **variant: Value,
) -> RunRow:
    return RunRow(
        run=run,
        uid=f"uid-{run}",
        started_utc_ns=UTC_NS + run * 60 * S,
        ended_utc_ns=None if outcome is None else UTC_NS + run * 60 * S + int(seconds * S),
        spec=with_defaults(RunSpec(workload=workload, variant={**(LSTM if workload == "lstm" else CNN), **variant})),
        outcome=None if outcome is None else Outcome(name=outcome, reason=reason),
        summary=Summary(
            throughput=throughput,
            blocks=40 if throughput else 0,
            step_ms_p50=32.0 if throughput else None,
            energy_mj_per_example=energy_mj,
            mean_power_mw=688_000 if energy_mj else None,
            measured_s=10.0 if throughput else None,
            measured_steps=400 if throughput else 0,
            flops_per_step=None if gflops is None else int(gflops * 1e9 * 10.0 / 400),
            peak_flops_per_s=None if gflops is None else 4e14,
        ),
        gpu_names=gpu_names,
        evidence_state=found.state if found else None,
        evidence_reason=found.reason if found else None,
    )


def with_settings(row: RunRow, settings: Mapping[str, Value]) -> RunRow:
    return replace(row, spec=RunSpec(workload=row.spec.workload, variant={**row.spec.variant, **settings}))


def stored_run(
    row: RunRow,
    *,
    measured: bool = True,
    begin_s: float = 100.0,
    environment: dict[str, str] | None = None,
    evidence: Evidence | None = None,
    portability: tuple[PortabilityResult, ...] = (),
    equality: tuple[EqualityCheck, ...] = (),
) -> StoredRun:
    """A run of 12 s whose `measure` begins 4 s after its start, sampled ten times a second."""
    anchor = int(begin_s * S)
    t_ns = anchor + np.arange(120, dtype=np.int64) * S // 10
    gpus = GPUS[: int(row.spec.variant["gpus"])]
    host = Device(device=HOST, kind="host", index=-1, name="Test CPU")
    phases = [Phase("import", anchor, anchor + 2 * S), Phase("compile", anchor + 2 * S, anchor + 4 * S)]
    if measured:
        phases.append(Phase("measure", anchor + 4 * S, anchor + 12 * S))
    return StoredRun(
        row=row,
        anchor_t_ns=anchor,
        anchor_utc_ns=row.started_utc_ns,
        phases=tuple(phases),
        blocks=_blocks(anchor, 40 if measured else 0),
        samples=tuple(_samples(device, t_ns) for device in (host, *gpus)),
        environment={SOURCES_KEY: "0123456789ab"} | (environment or {}),
        evidence=evidence,
        portability=portability,
        equality=equality,
        log=(LogLine(anchor + S, "loading"), LogLine(anchor + 2 * S, "cuDNN version 91002")),
    )


def _blocks(anchor: int, count: int) -> BlockColumns:
    start_ns = anchor + 4 * S + np.arange(count, dtype=np.int64) * S // 5
    return BlockColumns(
        first_step=np.arange(count, dtype=np.int64) * 10,
        steps=np.full(count, 10, dtype=np.int64),
        examples=np.full(count, 320, dtype=np.int64),
        start_ns=start_ns,
        end_ns=start_ns + S // 5,
        loss=np.exp(-np.arange(count) / 10.0),
        measured=np.ones(count, dtype=np.bool_),
    )


def _samples(device: Device, t_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> SampleColumns:
    absent = np.full(len(t_ns), np.nan)
    on_gpu = device.kind == "gpu"
    full = np.full(len(t_ns), 1.0)
    return SampleColumns(
        device=device,
        t_ns=t_ns,
        fields={
            **dict.fromkeys(FAST_FIELDS, absent),
            "sm_clock_mhz": full * 1980 if on_gpu else absent,
            "temperature_c": full * 61 if on_gpu else absent,
            "power_mw": full * 600_000 if on_gpu else absent,
            "load_pct": full * 90,
            "memory_bytes": full * 4 * 2**30,
            "worker_memory_bytes": absent if on_gpu else full * 2**30,
            "worker_load_pct": absent if on_gpu else full * 150,
        },
    )


def stopped_after_one_reading(number: int) -> StoredRun:
    """A run that was stopped before it measured, its host read a single time."""
    run = stored_run(run_row(number, outcome="stopped", throughput=None), measured=False)
    (host,) = run.samples
    once = {name: values[:1] for name, values in host.fields.items()}
    return replace(run, samples=(replace(host, t_ns=host.t_ns[:1], fields=once),))


def keep(store: Store, run: StoredRun) -> int:
    """Write a made-up run into a real database, as a session would, and return its number there."""
    row = run.row
    number = store.begin(
        row.spec,
        uid=row.uid,
        owner=this_process(),
        t_ns=run.anchor_t_ns,
        utc_ns=row.started_utc_ns,
        devices=[columns.device for columns in run.samples],
        environment=run.environment,
    )
    store.write(number, [PhaseStarted(phase=phase.name, t_ns=phase.start_ns) for phase in run.phases])
    store.write(number, [*_events_of_blocks(run.blocks), *run.log, *([run.evidence] if run.evidence else [])])
    store.add_checks(number, run.portability)
    store.add_checks(number, run.equality)
    for columns in run.samples:
        store.write(number, _events_of_samples(columns))
    if row.outcome is not None and row.ended_utc_ns is not None:
        end_ns = run.anchor_t_ns + row.ended_utc_ns - row.started_utc_ns
        store.finish(number, outcome=row.outcome, summary=row.summary, t_ns=end_ns, utc_ns=row.ended_utc_ns)
    return number


def keep_all(path: Path, runs: Iterable[StoredRun]) -> list[int]:
    with Store.open(path) as store:
        return [keep(store, run) for run in runs]


def _events_of_blocks(blocks: BlockColumns) -> list[Block]:
    return [
        Block(
            phase="measure" if blocks.measured[n] else "warmup",
            first_step=int(blocks.first_step[n]),
            steps=int(blocks.steps[n]),
            examples=int(blocks.examples[n]),
            start_ns=int(blocks.start_ns[n]),
            end_ns=int(blocks.end_ns[n]),
            loss=float(blocks.loss[n]),
        )
        for n in range(len(blocks.steps))
    ]


def _events_of_samples(columns: SampleColumns) -> list[Sample]:
    power_mw, load_pct, memory_bytes = (columns.fields[name] for name in ("power_mw", "load_pct", "memory_bytes"))
    own_bytes, own_pct = columns.fields["worker_memory_bytes"], columns.fields["worker_load_pct"]
    clock_mhz, temperature_c = columns.fields["sm_clock_mhz"], columns.fields["temperature_c"]
    return [
        Sample(
            t_ns=int(t_ns),
            device=columns.device.device,
            power_mw=None if np.isnan(power_mw[n]) else int(power_mw[n]),
            load_pct=float(load_pct[n]),
            memory_bytes=int(memory_bytes[n]),
            worker_memory_bytes=None if np.isnan(own_bytes[n]) else int(own_bytes[n]),
            worker_load_pct=None if np.isnan(own_pct[n]) else float(own_pct[n]),
            sm_clock_mhz=None if np.isnan(clock_mhz[n]) else int(clock_mhz[n]),
            temperature_c=None if np.isnan(temperature_c[n]) else int(temperature_c[n]),
        )
        for n, t_ns in enumerate(columns.t_ns)
    ]
