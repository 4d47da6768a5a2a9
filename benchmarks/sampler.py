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
from contextlib import ExitStack, contextmanager
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
_WARM_S = 5.0
_SECONDS = 8.0
_COST_SECONDS = 60.0
"""A whole minute beside GPUs: in ten seconds of it the sampler watches how often values are renewed."""
_SWITCH_S = 1.0
_SWITCHES = 36
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
    results = [] if has_gpus else _costs(_SECONDS, has_gpus=False)
    with training(seconds=2 * (_COST_SECONDS + _SWITCHES * _SWITCH_S)) as blocks:
        if has_gpus:
            results = _costs(_COST_SECONDS, has_gpus=True)
        return [*results, *_effect_on(blocks, has_gpus=has_gpus), _bytes_a_sample()]


def _costs(seconds: float, *, has_gpus: bool) -> list[Result]:
    """Measure what samplers take of a core, after their start, and the jitter of one; all in the same seconds."""
    commands = {
        "sampler, fast fields at 20 Hz": ((*_SAMPLER, "fast"), 1.0),
        "sampler, all fields at their default rates": (_SAMPLER, 1.5),
    }
    if has_gpus:  # the host alone is read five times a second at most
        commands["sampler, fast fields at 100 Hz"] = (*_SAMPLER[:-1], str(_HIGH_HZ), "fast"), 2.5
    has_nvitop = has_gpus and importlib.util.find_spec("nvitop") is not None
    with ExitStack() as stack:
        pids = [stack.enter_context(_process(command)).pid for command, _ in commands.values()]
        if has_nvitop:
            pids.append(stack.enter_context(_process((sys.executable, "-c", _NVITOP))).pid)
        times_ns = stack.enter_context(_sampled())
        time.sleep(_WARM_S)
        started_s, before_s, samples = time.monotonic(), [cpu_s(pid) for pid in pids], len(times_ns)
        time.sleep(seconds)
        elapsed_s = time.monotonic() - started_s
        core_pct = [
            100 * (cpu_s(pid) - cpu_before_s) / elapsed_s for pid, cpu_before_s in zip(pids, before_s, strict=True)
        ]
        jitter = _jitter(times_ns[samples:], has_gpus=has_gpus)
    results = [
        Result(name=name, value=value, unit="% of a core", limit=limit)
        for (name, (_, limit)), value in zip(commands.items(), core_pct, strict=False)
    ]
    if has_nvitop:
        name = "fast fields at 20 Hz against nvitop at 10 Hz"
        results.append(Result(name=name, value=core_pct[0], unit="% of a core", baseline=core_pct[-1], limit=1 / 15))
    return [*results, jitter]


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


def _jitter(times_ns: Sequence[int], *, has_gpus: bool) -> Result:
    """Return the 99th percentile of the deviation from the sampling period."""
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
