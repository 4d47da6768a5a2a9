"""A made-up run with every kind of value, for tests of storage and views."""

from app.storage.owner import Owner, this_process
from app.storage.store import Store
from app.values.events import Outcome, Summary
from app.values.fields import Sample
from app.values.records import EqualityCheck, PortabilityResult
from app.values.samples import HOST, Device, DeviceLost, LogLine
from workloads.catalog import with_defaults
from workloads.protocol import (
    Block,
    DeviceTime,
    Epoch,
    Evidence,
    Kernel,
    PhaseStarted,
    RunSpec,
    StepKernel,
    StepTimeline,
    Stream,
)

S = 1_000_000_000
UTC_NS = 1_760_000_000 * S
SPEC = with_defaults(
    RunSpec(
        workload="cnn10",
        variant={"layout": "NCHW", "gpus": 1, "batch_size": 1024, "precision": "tf32", "xla": True, "seconds": 2.5},
    )
)
GPU = Device(
    device="GPU-aaaa",
    kind="gpu",
    index=0,
    name="NVIDIA H200",
    memory_total_bytes=150_754_820_096,
    absent={"power_limit_mw": "not supported"},
)
HOST_DEVICE = Device(device=HOST, kind="host", index=-1, name="A processor")
PHASES = (PhaseStarted(phase="compile", t_ns=1 * S), PhaseStarted(phase="measure", t_ns=3 * S))
BLOCKS = (
    Block(phase="compile", first_step=0, steps=1, examples=8, start_ns=1 * S, end_ns=3 * S, loss=2.5),
    Block(phase="measure", first_step=1, steps=4, examples=32, start_ns=3 * S, end_ns=4 * S, loss=None),
    Block(phase="measure", first_step=5, steps=4, examples=32, start_ns=4 * S, end_ns=6 * S, allocator_bytes=77),
)
SAMPLES = (
    Sample(t_ns=3 * S, device=GPU.device, power_mw=688_123, load_pct=99.0, memory_bytes=4_000_000_000),
    Sample(t_ns=4 * S, device=GPU.device, power_mw=None, load_pct=0.0),
    Sample(t_ns=3 * S + 1, device=HOST, load_pct=12.5, worker_load_pct=100.0, worker_memory_bytes=1_000),
)
LOG = (LogLine(2 * S, "first line"), LogLine(2 * S, "zweite Zeile · 二"))
LOST = DeviceLost(t_ns=5 * S, device=GPU.device, reason="NVIDIA H200 stopped answering (GPU is lost).")
EVIDENCE = Evidence(
    requested={"layout": "NHWC", "xla": "off"},
    actual={"layout": "NCHW"},
    match=False,
    reason="TensorFlow's layout optimizer turned NHWC into NCHW.",
    sources=("graph", "trace"),
    notes=("XLA was not told.",),
    steps=3,
    span_ns=750_000,
    busy_ns=600_000,
    kernels=(
        Kernel(
            name="sm90_xmma_fprop_tf32f32",
            kind="convolution",
            count=27,
            time_ns=500_000,
            tensor_cores=True,
            occupancy_pct=12.5,
        ),
        Kernel(name="Relu_GPU_DT_FLOAT_DT_FLOAT_kernel", kind="pointwise", count=30, time_ns=100_000),
    ),
    devices=(
        DeviceTime(
            device="GPU:0",
            span_ns=750_000,
            busy_ns=600_000,
            compute_ns=590_000,
            communication_ns=10_000,
            kernels=57,
            host_wait_ns=100_000,
            kernel_wait_ns=30_000,
        ),
    ),
    timeline=StepTimeline(
        start_ns=5 * S,
        duration_ns=250_000,
        streams=(Stream(device="GPU:0", name="Stream #13(Compute)"), Stream(device="GPU:0", name="Stream #20(nccl)")),
        kernels=(StepKernel(0, 0, 0, 150_000), StepKernel(1, 1, 100_000, 20_000), StepKernel(0, 1, 200_000, 30_000)),
        left_out=2,
    ),
)
EPOCHS = tuple(
    Epoch(
        epoch=number,
        steps=4,
        examples=32,
        start_ns=(2 + number) * S,
        end_ns=(3 + number) * S - S // 10,
        tested_ns=(3 + number) * S,
        loss=2.0 / number,
        accuracy=accuracy,
    )
    for number, accuracy in ((1, 0.5), (2, 0.75), (3, 0.7))
)
PORTABILITY = PortabilityResult(
    utc_ns=UTC_NS + 9 * S,
    implementation="standard",
    device="cpu",
    device_name="A processor",
    precision="float32",
    max_difference=2.5e-7,
    max_output=0.98,
)
EQUALITY = EqualityCheck(
    utc_ns=UTC_NS + 1,
    baseline={**SPEC.variant, "layout": "NHWC"},
    loss_difference=2.5e-4,
    difference=0.125,
    tensor="block1/conv1/kernel",
)
SUMMARY = Summary(
    throughput=21.3,
    blocks=2,
    blocks_cut=1,
    measured_steps=8,
    measured_examples=64,
    measured_s=3.0,
    step_ms_p50=250.0,
    flops_per_step=6_000_000_000,
    peak_flops_per_s=8e10,
    ready_step_ms=180.0,
    waiting_pct=52.0,
    gpu_step_ms=0.2,
    occupancy_pct=12.5,
)
OUTCOME = Outcome(name="failed", reason="It failed.", detail="Traceback …", exit_code=0, ended_by="itself")
ENVIRONMENT = {"tensorflow": "2.21.0", "cpu": "A processor"}


def begin(store: Store, *, uid: str = "uid-1", owner: Owner | None = None, spec: RunSpec = SPEC) -> int:
    return store.begin(
        spec,
        uid=uid,
        owner=owner or this_process(),
        t_ns=S // 2,
        utc_ns=UTC_NS,
        devices=(GPU, HOST_DEVICE),
        environment=ENVIRONMENT,
    )


def keep(store: Store, *, uid: str = "uid-1", owner: Owner | None = None) -> int:
    """Store the whole made-up run; return its number."""
    run = begin(store, uid=uid, owner=owner)
    store.write(run, (*PHASES, *BLOCKS, *SAMPLES, LOG[0]))
    store.write(run, (LOG[1], LOST), first_log_line=1)
    store.write(run, (EVIDENCE, *EPOCHS))
    store.add_environment(run, {"keras": "3.15.1"})
    store.finish(run, outcome=OUTCOME, summary=SUMMARY, t_ns=6 * S, utc_ns=UTC_NS + 6 * S)
    store.add_checks(run, (PORTABILITY,))
    store.add_checks(run, (EQUALITY,))
    return run
