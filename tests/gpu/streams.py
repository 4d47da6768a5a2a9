"""Independent products on several streams of one GPU: what TensorFlow and XLA can do of it, and what it brings.

The ladder's third rung runs a step's two products at the same time. Each candidate makes both products of 25 steps,
[64, 512] x [512, 2048], none of which depends on another, in a process of its own:

    python -m tests.gpu.streams

prints milliseconds per 25 steps without a profiler, on how many streams its products ran in a traced call, and the
share of the products' time in which two of them ran at once. On a machine without a GPU it runs on the CPU, which has
no streams.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workloads.kernels import classify

STEPS, BATCH, UNITS = 25, 64, 512
CALLS = 100
COMPILE_S, MEASURE_S = 110.0, 20.0
READY = "ready"
_APART = "--xla_gpu_dot_merger_threshold_mb=0"
"""By default XLA merges products that read the same matrix, all those of a run here, into one."""
_NO_GRAPHS = f"{_APART} --xla_gpu_enable_command_buffer="
_GRAPHS = (
    f"{_APART} --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT --xla_gpu_graph_min_graph_size=1 "
    "--xla_enable_command_buffers_during_profiling=true --xla_gpu_command_buffer_scheduling_mode="
)
"""While it is traced XLA launches kernels one by one in place of graphs, if not told otherwise."""
CANDIDATES: dict[str, str] = {
    "one stream": "",
    "one batched product": "",
    "two logical devices": "",
    "XLA": _NO_GRAPHS,
    "XLA, asynchronous dots": f"{_NO_GRAPHS} --xla_gpu_async_dot=true",
    "XLA, CUDA graphs": f"{_GRAPHS}SERIALIZE",
    "XLA, concurrent CUDA graphs": f"{_GRAPHS}CONCURRENT",
}
"""By name the flags that XLA reads. All compile at once; when all have, one after the other is timed and traced."""


def _products(candidate: str, devices: list[str]) -> Callable[[], Any]:
    """Return the function that makes the products of all steps, and returns their sum."""
    import tensorflow as tf

    first, second = devices[0], devices[-1]
    with tf.device(first):
        inputs = tf.random.normal([STEPS, BATCH, UNITS])
        kernels = tf.random.normal([2, UNITS, 4 * UNITS]) / UNITS**0.5
    with tf.device(second):
        states, recurrent = tf.identity(inputs), tf.identity(kernels[1])

    def run() -> Any:
        sums = []
        for step in range(STEPS):
            if candidate == "one batched product":
                sums.append(tf.reduce_sum(tf.stack([inputs[step], states[step]]) @ kernels, 0))
                continue
            with tf.device(first):
                product = inputs[step] @ kernels[0]
            with tf.device(second):
                two = states[step] @ recurrent
            with tf.device(first):
                sums.append(product + two)
        with tf.device(first):
            return tf.add_n(sums)

    function: Callable[[], Any] = tf.function(run, jit_compile=candidate.startswith("XLA"), autograph=False)
    return function


def _spans(profile: bytes, *, gpu: bool) -> Iterator[tuple[int, int, str]]:
    """Yield beginning, end and stream of each product in a profile, in picoseconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    planes = xplane_pb2.XSpace.FromString(profile).planes
    for plane in (plane for plane in planes if plane.name.startswith("/device:GPU" if gpu else "/host:CPU")):
        for line in plane.lines:
            if gpu and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                if classify(plane.event_metadata[event.metadata_id].name) == "gemm":
                    start_ps = 1000 * line.timestamp_ns + event.offset_ps
                    yield start_ps, start_ps + event.duration_ps, line.name or str(line.id)


def _overlap(spans: list[tuple[int, int, str]]) -> float:
    """Return the share of the products' time in which more than one ran."""
    turns = sorted([(start, 1) for start, _, _ in spans] + [(end, -1) for _, end, _ in spans])
    running, last_at, busy, overlap = 0, 0, 0, 0
    for at, change in turns:
        busy += (at - last_at) * (running > 0)
        overlap += (at - last_at) * (running > 1)
        running, last_at = running + change, at
    return overlap / busy if busy else 0.0


def _measure(candidate: str) -> str:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    device = gpus[0] if gpus else tf.config.list_physical_devices("CPU")[0]
    if candidate == "two logical devices":
        limit = 4096 if gpus else None
        tf.config.set_logical_device_configuration(
            device, [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for _ in range(2)]
        )
    run = _products(candidate, [logical.name for logical in tf.config.list_logical_devices(device.device_type)])
    float(tf.reduce_sum(run()))
    print(READY, flush=True)
    if not sys.stdin.readline():
        sys.exit("Whoever asked has gone.")
    return _time_and_trace(run, gpu=bool(gpus))


def _time_and_trace(run: Callable[[], Any], *, gpu: bool) -> str:
    import tensorflow as tf

    start_s = time.monotonic()
    for _ in range(CALLS):
        result = run()
    float(tf.reduce_sum(result))
    each_ms = 1000 * (time.monotonic() - start_s) / CALLS
    with TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        float(tf.reduce_sum(run()))
        tf.profiler.experimental.stop()
        (file,) = Path(folder).rglob("*.xplane.pb")
        spans = list(_spans(file.read_bytes(), gpu=gpu))
    streams = len({line for _, _, line in spans})
    return f"{each_ms:8.3f} ms {len(spans):5} products {streams:3} streams {100 * _overlap(spans):6.1f} % at once"


def main() -> None:
    """Measure each candidate in a process of its own, or the one that is named."""
    if sys.argv[1:]:
        print(_measure(sys.argv[1]))
        return
    with ThreadPoolExecutor(len(CANDIDATES)) as compiling:
        processes = [_start(candidate, flags) for candidate, flags in CANDIDATES.items()]
        printed = list(compiling.map(_until_ready, processes))
    for candidate, process, lines in zip(CANDIDATES, processes, printed, strict=True):
        print(f"{candidate:30}{_result(process, lines)}", flush=True)


def _start(candidate: str, flags: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "XLA_FLAGS": flags,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.streams", candidate],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _until_ready(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that a candidate prints before it is ready; end it where that takes too long."""
    lines: list[str] = []
    assert process.stdout
    with _ended_after(COMPILE_S, process):
        for line in process.stdout:
            if line.strip() == READY:
                break
            lines.append(line)
    return lines


def _result(process: subprocess.Popen[str], lines: list[str]) -> str:
    """Let a candidate that is ready measure; return its figures, or what became of it."""
    with _ended_after(MEASURE_S, process):
        lines += process.communicate("\n")[0].splitlines()
    if process.returncode == -signal.SIGKILL:
        return f"not ready within {COMPILE_S:.0f} s, or not measured within {MEASURE_S:.0f} s"
    return lines[-1].strip() if lines else "no output"


@contextmanager
def _ended_after(limit_s: float, process: subprocess.Popen[str]) -> Iterator[None]:
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    yield
    timer.cancel()


if __name__ == "__main__":
    main()
