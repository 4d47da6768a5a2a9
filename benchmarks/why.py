"""Benchmark `why`: explain the difference of two runs whose traces have 50,000 kernels each, none of them in both.

Baseline: reading the two runs from the database, where each kernel is classified by its name.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from app.storage.owner import this_process
from app.storage.store import Store
from app.values.events import Outcome, Summary
from app.values.records import StoredRun
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.compare.why import why_views
from benchmarks.harness import Result
from workloads.catalog import with_defaults
from workloads.kernels import classify
from workloads.protocol import DeviceTime, Evidence, Kernel, RunSpec

KERNELS = 50_000
_REPEATS = 5
_LIMIT_MS = 200.0
_STEPS = 10
_STEP_MS = 400.0
_NAMES = (
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4_{n}>(T1::Params)",
    "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_g1_{n}_kernel__5x_cudnn",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, {n}, true, 1>(float, float, cudnnTensorStruct)",
    "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<float, {n}, 32, 32, false>(float const*, float*)",
    "loop_add_multiply_fusion_{n}",
)


def measure(kernels: int = KERNELS) -> Sequence[Result]:
    """Measure why two runs differ whose traces have so many kernels each, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "bench.db"
        with Store.open(database) as store:
            numbers = [_store_run(store, side, kernels) for side in range(2)]
        times = [_timed_ms(database, numbers) for _ in range(_REPEATS)]
    reading, explaining = (statistics.median(each) for each in zip(*times, strict=True))
    name = f"why two runs of {kernels:,} kernels differ"
    return [
        Result(name=name, value=explaining, unit="ms", limit=_LIMIT_MS),
        Result(name=f"{name}, against reading them", value=explaining, unit="ms", baseline=reading),
    ]


def _timed_ms(database: Path, numbers: Sequence[int]) -> tuple[float, float]:
    """Return the time of reading the runs, and of explaining their difference."""
    start = time.perf_counter()
    with Store.open(database) as store:
        runs = [store.load(number) for number in numbers]
    read = time.perf_counter()
    explain(runs)
    return 1e3 * (read - start), 1e3 * (time.perf_counter() - read)


def explain(runs: Sequence[StoredRun]) -> str:
    """Return why the second run differs from the first."""
    (view,) = why_views(runs, compute_verdict([run.row for run in runs], runs[0].row.run))
    return view.sentence


def _store_run(store: Store, side: int, kernels: int) -> int:
    spec = with_defaults(RunSpec(workload="cnn10", variant={"gpus": 1, "layout": ("NHWC", "NCHW")[side]}))
    batch = int(spec.variant["batch_size"])
    start_ns = time.monotonic_ns()
    number = store.begin(
        spec, uid=f"why-{side}", owner=this_process(), t_ns=start_ns, utc_ns=time.time_ns(), devices=[], environment={}
    )
    store.write(number, [_trace(side, kernels)])
    summary = Summary(throughput=1000 * batch / (_STEP_MS + side), blocks=10)
    store.finish(number, outcome=Outcome(name="completed"), summary=summary, t_ns=start_ns + 1, utc_ns=time.time_ns())
    return number


def _trace(side: int, kernels: int) -> Evidence:
    names = [_NAMES[n % len(_NAMES)].format(n=2 * n + side) for n in range(kernels)]
    times_ns = [_STEPS * (1_000 + n % 977) for n in range(kernels)]
    busy_ns = sum(times_ns)
    device = DeviceTime(
        device="GPU:0", span_ns=2 * busy_ns, busy_ns=busy_ns, compute_ns=busy_ns, communication_ns=0, kernels=kernels
    )
    return Evidence(
        requested={},
        actual={},
        match=True,
        sources=("trace",),
        steps=_STEPS,
        span_ns=2 * busy_ns,
        busy_ns=busy_ns,
        kernels=tuple(
            Kernel(name=name, kind=classify(name), count=_STEPS, time_ns=time_ns)
            for name, time_ns in zip(names, times_ns, strict=True)
        ),
        devices=(device,),
    )
