"""Events of one made-up run, as a session and the telemetry feed would send them."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.fields import Sample
from app.values.samples import HOST, Device, Inventory
from workloads.catalog import Gpu, Machine, complete
from workloads.protocol import Block, PhaseName, PhaseStarted, Progress

GIB = 2**30
GPUS = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(2))
HOST_DEVICE = Device(device=HOST, kind="host", index=-1, name="CPU", memory_total_bytes=64 * GIB)
DEVICES = (
    Device(device="GPU-0", kind="gpu", index=0, name="NVIDIA H200", memory_total_bytes=140 * GIB),
    Device(
        device="GPU-1",
        kind="gpu",
        index=1,
        name="NVIDIA H200",
        memory_total_bytes=140 * GIB,
        absent={"temperature_c": "This card has no sensor."},
    ),
    HOST_DEVICE,
)
GPU_INVENTORY = Inventory(machine=Machine(gpus=GPUS, cpu_count=16), devices=DEVICES, driver="580.65.06")
CPU_INVENTORY = Inventory(
    machine=Machine(cpu_count=2), devices=(HOST_DEVICE,), no_gpu_reason="no NVIDIA driver is installed"
)
PHASES: tuple[tuple[PhaseName, float], ...] = (
    ("import", 0.1),
    ("build", 2.0),
    ("compile", 3.0),
    ("warmup", 5.0),
    ("measure", 6.0),
)


class Model(Protocol):
    def handle(self, event: RunEvent | Inventory) -> None: ...


def handle_all(model: Model, events: Sequence[RunEvent | Inventory]) -> None:
    for event in events:
        model.handle(event)


def ns(seconds: float) -> int:
    return int((1000 + seconds) * 1e9)


def samples(start: float, end: float, gpus: int = 2) -> Iterator[Sample]:
    for tick in range(round(start * 10), round(end * 10)):
        t_ns = ns(tick / 10)
        for n in range(gpus):
            yield Sample(
                t_ns=t_ns,
                device=f"GPU-{n}",
                power_mw=600_000 + 1000 * n,
                load_pct=97.0,
                memory_bytes=4 * GIB,
                sm_clock_mhz=1980,
                temperature_c=None if n else 55,
                power_limit_mw=700_000,
            )
        yield Sample(
            t_ns=t_ns,
            device=HOST,
            load_pct=40.0,
            memory_bytes=9 * GIB,
            worker_load_pct=100.0,
            worker_memory_bytes=2 * GIB,
        )


def started(inventory: Inventory) -> RunStarted:
    spec = complete("cnn10", {"gpus": len(inventory.machine.gpus), "batch_size": 1024}, inventory.machine)
    return RunStarted(run=7, spec=spec, t_ns=ns(0), utc_ns=0, devices=inventory.devices)


def training(until: float = 16.0) -> Iterator[RunEvent]:
    """Phases, then a block a quarter of a second: 250 images each, so 1,000 images/s."""
    yield from (PhaseStarted(phase=phase, t_ns=ns(t)) for phase, t in PHASES)
    for n in range(round((until - 6) * 4)):
        begin = 6 + n / 4
        yield Block(
            phase="measure",
            first_step=n,
            steps=1,
            examples=250,
            start_ns=ns(begin),
            end_ns=ns(begin + 0.25),
            loss=2.0 / (n + 1),
            allocator_bytes=3 * GIB,
        )
    yield Progress(phase="measure", fraction=0.5, t_ns=ns(until))


def ended(outcome: Outcome, throughput: float | None = 1000.0, at: float = 16.5) -> RunEnded:
    return RunEnded(run=7, t_ns=ns(at), outcome=outcome, summary=Summary(throughput=throughput, step_ms_p50=250.0))
