"""Made-up runs on one GPU and on several, whose steps are known: how long each part takes, and what is lost."""

from dataclasses import replace

import numpy as np

from app.values.records import SampleColumns, StoredRun
from tests.unit.viewmodels.stored import S, run_row, stored_run
from workloads.protocol import DeviceTime, Evidence, Kernel

STEPS = 4
_MS = 1_000_000


def run_of(
    run: int,
    *,
    gpus: int,
    batch: int,
    compute_ms: tuple[float, ...],
    communication_ms: float = 0.0,
    idle_ms: float = 0.0,
    kernels: int = 100,
    luck: float = 1.0,
    nvlink_bytes: float = 0.0,
    traced: bool = True,
    all_reduce: str = "nccl",
) -> StoredRun:
    """Return a run whose steps take as long as these parts on the slowest GPU; the others wait in communication.

    All is per step: `compute_ms` of each GPU, `kernels` and `nvlink_bytes` of one; `batch` is that of all. `luck` is a
    factor on the measured step, not on the traced one.
    """
    slowest = max(compute_ms)
    step_ms = (slowest + communication_ms + idle_ms) * luck
    times = tuple(
        DeviceTime(
            device=f"GPU:{number}",
            span_ns=int(STEPS * (slowest + communication_ms + idle_ms) * _MS),
            busy_ns=int(STEPS * (slowest + communication_ms) * _MS),
            compute_ns=int(STEPS * own_ms * _MS),
            communication_ns=int(STEPS * (slowest - own_ms + communication_ms) * _MS),
            kernels=STEPS * kernels,
        )
        for number, own_ms in enumerate(compute_ms)
    )
    evidence = _evidence(times, all_reduce) if traced else None
    row = run_row(
        run,
        workload="cnn10",
        throughput=1000 * batch / step_ms,
        gpu_names=("NVIDIA H200",) * gpus,
        found=evidence,
        gpus=gpus,
        batch_size=batch,
        all_reduce=all_reduce,
    )
    made = stored_run(row, evidence=evidence)
    sent = nvlink_bytes * 1000 / step_ms
    return replace(made, samples=tuple(_talking(columns, made.anchor_t_ns, sent) for columns in made.samples))


def exchanging(*devices: tuple[int, int, int]) -> Evidence:
    """Return evidence in which each GPU ran kernels, computed, and communicated for this many ms."""
    times = tuple(
        DeviceTime(
            device=f"GPU:{number}",
            span_ns=30 * _MS,
            busy_ns=busy_ms * _MS,
            compute_ns=compute_ms * _MS,
            communication_ns=communication_ms * _MS,
            kernels=100,
        )
        for number, (busy_ms, compute_ms, communication_ms) in enumerate(devices)
    )
    return _evidence(times, "nccl")


def _evidence(times: tuple[DeviceTime, ...], all_reduce: str) -> Evidence:
    """Return evidence of steps in which the GPUs took these times."""
    return Evidence(
        requested={"all_reduce": all_reduce},
        actual={"all_reduce": all_reduce},
        match=True,
        sources=("graph", "trace"),
        steps=STEPS,
        span_ns=sum(time.span_ns for time in times),
        busy_ns=sum(time.busy_ns for time in times),
        kernels=(
            Kernel(name="conv", kind="convolution", count=9, time_ns=sum(time.compute_ns for time in times)),
            Kernel(name="nccl", kind="communication", count=1, time_ns=sum(time.communication_ns for time in times)),
        ),
        devices=times,
    )


def _talking(columns: SampleColumns, anchor_ns: int, bytes_per_s: float) -> SampleColumns:
    """Return samples with NVLink traffic each second: 7 bytes/s before the measured part, which begins after 4 s."""
    t_ns = anchor_ns + np.arange(1, 13, dtype=np.int64) * S
    values = np.where(t_ns > anchor_ns + 4 * S, bytes_per_s, 7.0)
    return replace(columns, slow_t_ns=t_ns, slow={"nvlink_tx_bytes_per_s": values})


ONE = (
    run_of(1, gpus=1, batch=1024, compute_ms=(20.0,), idle_ms=1.0, luck=0.999),
    run_of(2, gpus=1, batch=1024, compute_ms=(20.0,), idle_ms=1.0, luck=1.001),
)
"""One GPU: 21 ms per step."""

IDEAL = tuple(
    run_of(n, gpus=2, batch=2048, compute_ms=(20.0, 20.0), communication_ms=0.2, idle_ms=1.0, luck=luck)
    for n, luck in ((3, 0.999), (4, 1.001))
)
TALKING = tuple(
    run_of(
        n, gpus=2, batch=2048, compute_ms=(20.0, 20.0), communication_ms=5.0, idle_ms=1.5, luck=luck, nvlink_bytes=4.5e6
    )
    for n, luck in ((5, 0.999), (6, 1.001))
)
LAUNCHING = tuple(
    run_of(n, gpus=2, batch=1024, compute_ms=(10.5, 10.5), communication_ms=0.5, idle_ms=9.0, kernels=900, luck=luck)
    for n, luck in ((7, 0.999), (8, 1.001))
)
LIMPING = tuple(
    run_of(n, gpus=2, batch=2048, compute_ms=(20.0, 26.0), communication_ms=0.5, idle_ms=1.0, luck=luck)
    for n, luck in ((9, 0.999), (10, 1.001))
)
STARVED = tuple(
    run_of(n, gpus=2, batch=1024, compute_ms=(15.0, 15.0), communication_ms=0.5, idle_ms=0.5, luck=luck)
    for n, luck in ((11, 0.999), (12, 1.001))
)
EVENLY = tuple(
    run_of(n, gpus=2, batch=2048, compute_ms=(21.5, 21.5), communication_ms=1.5, idle_ms=2.5, luck=luck)
    for n, luck in ((13, 0.999), (14, 1.001))
)
"""Two GPUs with a known loss: none, communication, launching, one slow GPU, small batches, no single part."""
