"""Made-up traced runs whose steps are known: the time of each kernel, and how long they kept a GPU busy."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from app.values.records import StoredRun
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.kernels import classify, on_tensor_cores
from workloads.protocol import DeviceTime, Evidence, Kernel, RunSpec, Value

STEPS = 5
_MS = 1_000_000

POOL = "void cudnn::pooling_bw_kernel_avg<float, float, cudnn::averpooling_func<float, true>, 2, false>(int)"
CONV = "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_kernel__5x_cudnn"
SLOW_GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_execute_kernel__5x_cublas"
TRANSPOSE = "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<float, 256, 32, 32, false>(float const*)"
XLA_KERNEL, INDUCTOR_KERNEL = "loop_add_multiply_fusion", "triton_per_fused__native_batch_norm_0"
"""Kernels of an H200: pooling, a convolution, GEMM without tensor cores, a transpose; what XLA and Inductor merged."""


def traced_run(
    run: int,
    step_ms: float,
    kernels: Mapping[str, float],
    *,
    overlap_ms: float = 0.0,
    gpus: int = 1,
    batch: int = 100,
    waits: tuple[float, float] | None = None,
    **variant: Value,
) -> StoredRun:
    """Return a measured run of `cnn10` with a trace.

    `kernels` are the milliseconds of each per step and GPU, of which `overlap_ms` were at the same time as another;
    `waits` the shares of the traced gaps in which a GPU waits for the host, and between kernels, None without launches.
    """
    devices = max(gpus, 1)
    busy_ns = round((sum(kernels.values()) - overlap_ms) * STEPS * _MS)
    found = Evidence(
        requested={},
        actual={},
        match=True,
        sources=("trace",),
        steps=STEPS,
        span_ns=2 * busy_ns * devices,
        busy_ns=busy_ns * devices,
        kernels=tuple(
            Kernel(
                name=name,
                kind=classify(name),
                count=STEPS,
                time_ns=round(time_ms * STEPS * devices * _MS),
                tensor_cores=on_tensor_cores(name),
            )
            for name, time_ms in kernels.items()
        ),
        devices=tuple(
            DeviceTime(
                device=f"GPU:{number}",
                span_ns=2 * busy_ns,
                busy_ns=busy_ns,
                compute_ns=busy_ns,
                communication_ns=0,
                kernels=STEPS * len(kernels),
                host_wait_ns=round(waits[0] * busy_ns) if waits else None,
                kernel_wait_ns=round(waits[1] * busy_ns) if waits else None,
            )
            for number in range(devices)
        ),
    )
    row = run_row(run, workload="cnn10", throughput=1000 * batch / step_ms, found=found)
    settings: dict[str, Value] = {"precision": "tf32", **variant, "gpus": gpus, "batch_size": batch}
    spec = RunSpec(workload="cnn10", variant={**row.spec.variant, **settings})
    return stored_run(replace(row, spec=spec), evidence=found)


def with_clock(run: StoredRun, clock_mhz: float) -> StoredRun:
    """Return the run with samples of an H200 at this clock."""
    (*_, gpu) = stored_run(run_row(1, gpus=1)).samples
    clocks = np.full(gpu.t_ns.size, clock_mhz)
    return replace(run, samples=(replace(gpu, fields={**gpu.fields, "sm_clock_mhz": clocks}),))
