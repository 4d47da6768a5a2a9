"""Benchmark `sampler`: measure the cost of telemetry, its jitter, and the size of a stored sample.

Baseline on a machine with GPUs: nvitop, if it is installed, taking snapshots of the same GPUs at 10 Hz in a process of
its own. Throughput is compared within one training process, with the sampler switched on and off in turn.
"""

import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from app.analysis import intervals
from app.paths import python_environment
from app.storage.owner import this_process
from app.storage.retention import size_bytes
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.telemetry.sampler import take_inventory
from app.values.fields import Sample
from app.values.samples import Device
from benchmarks.harness import Blocks, Result, cpu_s, training
from workloads import catalog

_HZ = 20.0
_HIGH_HZ = 100.0
_SAMPLER = (sys.executable, "-m", "app.telemetry.sampler", str(_HZ))
_WARM_S = 2.0
_SECONDS = 8.0
_COST_SECONDS = 20.0
"""Beside GPUs: in the first 10 s after its start, and in 10 s of each minute, the sampler watches renewals."""
_SWITCH_S = 1.0
_SWITCHES = 28
_STORED = 100_000

_NVITOP = """
import time
from nvitop import Device
devices = Device.all()
next_s = time.monotonic()
while True:
    for device in devices:
        device.as_snapshot()
    next_s = max(next_s + 0.1, time.monotonic())
    time.sleep(max(0.0, next_s - time.monotonic()))
"""


def measure() -> Sequence[Result]:
    """Measure the sampler's CPU time and jitter, its effect on training, and bytes per stored sample."""
    has_gpus = bool(take_inventory().machine.gpus)
    # With GPUs all beside one training; without, training would compete for the same CPU.
    results = [] if has_gpus else [*_costs(_SECONDS, has_gpus=False), _jitter(has_gpus=False)]
    with training(seconds=5 * (_COST_SECONDS + _SWITCHES * _SWITCH_S)) as blocks:
        if has_gpus:
            results = [*_costs(_COST_SECONDS, has_gpus=True), _jitter(has_gpus=True)]
        return [*results, *_effect_on(blocks, has_gpus=has_gpus), _bytes_a_sample()]


def _costs(seconds: float, *, has_gpus: bool) -> list[Result]:
    """Measure what samplers take of a core, each alone: clients of one driver wait for each other."""
    core = "% of a core"
    fast, everything = _core_pct((*_SAMPLER, "fast"), seconds), _core_pct(_SAMPLER, seconds)
    results = [
        Result(name="sampler, fast fields at 20 Hz", value=fast, unit=core, limit=1.0),
        Result(name="sampler, all fields at their default rates", value=everything, unit=core, limit=1.5),
    ]
    if has_gpus:  # the host alone is read five times a second at most
        high = _core_pct((*_SAMPLER[:-1], str(_HIGH_HZ), "fast"), _SECONDS)
        results.append(Result(name="sampler, fast fields at 100 Hz", value=high, unit=core, limit=2.5))
    if has_gpus and importlib.util.find_spec("nvitop") is not None:
        nvitop = _core_pct((sys.executable, "-c", _NVITOP), _SECONDS)
        name = "fast fields at 20 Hz against nvitop at 10 Hz"
        results.append(Result(name=name, value=fast, unit=core, baseline=nvitop, limit=1 / 15))
    return results


def _core_pct(command: Sequence[str], seconds: float) -> float:
    """Measure the CPU time of a process as a percentage of one core, after its start."""
    with _process(command) as process:
        time.sleep(_WARM_S)
        started_s, before_s = time.monotonic(), cpu_s(process.pid)
        time.sleep(seconds)
        return 100 * (cpu_s(process.pid) - before_s) / (time.monotonic() - started_s)


@contextmanager
def _process(command: Sequence[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a process, which would end when its stdin closes, for the body."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=python_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _jitter(*, has_gpus: bool) -> Result:
    """Measure the 99th percentile of the deviation from the sampling period."""
    with _sampled() as times_ns:
        time.sleep(_SECONDS)
    between_ms = np.diff(np.array(times_ns)) / 1e6
    expected_ms = 1e3 / _HZ if has_gpus else float(np.median(between_ms))
    p99 = float(np.percentile(np.abs(between_ms - expected_ms), 99))
    return Result(name="jitter p99", value=p99, unit="ms", limit=1.0 if has_gpus else 5.0)


@contextmanager
def _sampled() -> Iterator[list[int]]:
    """Collect the times of the first device's samples during the body."""
    feed, times_ns = TelemetryFeed(_HZ), list[int]()
    feed.start()
    first = feed.wait_inventory().devices[0].device

    def note(message: SamplerMessage) -> None:
        if isinstance(message, Sample) and message.device == first:
            times_ns.append(message.t_ns)

    unsubscribe = feed.subscribe(note)
    try:
        yield times_ns
    finally:
        unsubscribe()
        feed.close()


def _effect_on(blocks: Blocks, *, has_gpus: bool) -> Sequence[Result]:
    """Measure throughput with the sampler on over throughput with it off, in turn within one training process."""
    on, off = list[float](), list[float]()
    with _process(_SAMPLER) as sampler:
        time.sleep(_WARM_S)
        for switch in range(_SWITCHES):
            # On, off, off, on: drift affects both alike.
            figures, order = (on, signal.SIGCONT) if switch % 4 in (0, 3) else (off, signal.SIGSTOP)
            sampler.send_signal(order)
            started_ns = time.monotonic_ns()
            time.sleep(_SWITCH_S)
            figures.append(blocks.throughput(started_ns, time.monotonic_ns()))
    effect = intervals.ratio(on, off)
    if effect is None or effect.low is None or effect.high is None:
        raise RuntimeError("the benchmark's training measured nothing")
    worst = max(abs(effect.low - 1), abs(effect.high - 1))
    # Training on the CPU is too noisy for so narrow a limit.
    limit = 0.2 if has_gpus else None
    return [
        Result(name="throughput, sampler on against off", value=effect.value, unit="ratio"),
        Result(name="its 95 % interval is within", value=100 * worst, unit="% of 1", limit=limit),
    ]


def _bytes_a_sample() -> Result:
    """Measure how much a closed database grows per GPU sample with all fast fields."""
    gpu = Device(device="GPU-bench", kind="gpu", index=0, name="made up for its size")
    spec = catalog.complete("dummy", {}, catalog.Machine())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        with Store.open(path) as store:
            run = store.begin(spec, uid="bench", owner=this_process(), t_ns=0, utc_ns=0, devices=[gpu], environment={})
        before = size_bytes(path)
        begin_ns, step_ns = time.monotonic_ns(), int(1e9 / _HZ)
        with Store.open(path) as store:
            for first in range(0, _STORED, 1000):
                store.write(run, [_sample(gpu, begin_ns + n * step_ns, n) for n in range(first, first + 1000)])
        size = (size_bytes(path) - before) / _STORED
    return Result(name="a stored sample of fast fields", value=size, unit="bytes", limit=60.0)


def _sample(gpu: Device, t_ns: int, n: int) -> Sample:
    """Return a sample with values as wide as an H200's under load."""
    return Sample(
        t_ns=t_ns,
        device=gpu.device,
        power_mw=600_000 + n % 90_000,
        power_average_mw=600_000 + n % 70_000,
        load_pct=90 + n % 10,
        memory_load_pct=30 + n % 40,
        memory_bytes=15_000_000_000 + n,
        temperature_c=50 + n % 20,
        sm_clock_mhz=1_900 + n % 80,
        memory_clock_mhz=3_201,
        throttle_reasons=n % 5,
        power_limit_mw=700_000,
    )
