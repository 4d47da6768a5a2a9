"""Records traces with `torch.profiler` and reads them: kernels, times, operations with types and formats.

The trace is in the Trace Event Format of Chrome, as `export_chrome_trace` writes it; times are microseconds.
"""

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from workloads.trace import Event, Line, Trace, device_time, rank_kernels, traced_step
from workloads.training import do_nothing

_GPU_EVENTS = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_LAUNCHES = frozenset(("cuda_runtime", "cuda_driver"))
_GRAPH_LAUNCH = "cudaGraphLaunch"
_GRAPH_CALL = "## Call CompiledFxGraph"
_TYPES = {
    "float": "float32",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "double": "float64",
    "c10::complex<float>": "complex64",
}
"""Types of numbers by the profiler's names, which are those of C++; others keep these."""
_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        *("convolution", "mm", "addmm", "bmm", "baddbmm", "_cudnn_rnn", "mkldnn_rnn_layer"),
        *("convolution_backward", "_cudnn_rnn_backward"),
        *(
            f"_scaled_dot_product_{kind}{backward}"
            for kind in ("cudnn_attention", "efficient_attention", "flash_attention", "flash_attention_for_cpu")
            for backward in ("", "_backward")
        ),
    )
)
_SPATIAL = frozenset(
    f"aten::{name}" for name in ("convolution", "batch_norm", "max_pool2d", "avg_pool2d", "convolution_backward")
)


@dataclass(frozen=True, slots=True)
class Op:
    """An operation that the host started: a product, or one on images.

    `dtype` is its first tensor's, `layout` that of its first tensor with the four axes of images, `time_ns` its time on
    the device. `compiled`: a graph of Inductor started it.
    """

    name: str
    dtype: str = ""
    layout: str = ""
    time_ns: int = 0
    compiled: bool = False

    @property
    def is_product(self) -> bool:
        """Return whether it computes matrix products or convolutions, including those of gradients."""
        return self.name in _PRODUCTS

    @property
    def is_spatial(self) -> bool:
        return self.name in _SPATIAL and bool(self.layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTrace(Trace):
    """A trace with the operations that one device's hosts started in `op_steps` steps, and launches of CUDA graphs."""

    ops: tuple[Op, ...] = ()
    op_steps: int = 0
    graph_launches: int = 0


def write_trace(
    step: Callable[[], Any], steps: int, path: Path, *, gpu: bool, ready: Callable[[], None] = do_nothing
) -> float:
    """Write the trace of some steps to a file; return the seconds per step under the profiler.

    `ready` is called before the first step, once the profiler has started.
    """
    import torch  # here: the reader of a script's trace may lack PyTorch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities, record_shapes=True) as profiler:
        ready()
        start_s = time.monotonic()
        for _ in range(steps):
            step()
        if gpu:
            torch.cuda.synchronize()
        step_s = (time.monotonic() - start_s) / steps
    profiler.export_chrome_trace(str(path))
    return step_s


def read(
    traces: Sequence[bytes], steps: int, *, gpu: bool, to_monotonic: Callable[[int], int] = lambda utc_ns: utc_ns
) -> TorchTrace:
    """Return the trace of some steps on the GPUs, or on the CPU, from each process's trace.

    `to_monotonic` converts nanoseconds since 1970.
    """
    documents = [msgspec.json.decode(data, type=_Document) for data in traces]
    base_ns = documents[0].baseTimeNanoseconds
    kernels: list[Event] = []
    host: list[_TraceEvent] = []
    ops: list[Op] = []
    graph_launches = 0
    for rank, document in enumerate(documents):
        complete = list(document.complete(base_ns))
        operations = [event for event in complete if event.cat == "cpu_op"]
        kernels += (
            _gpu_events(complete) if gpu else _cpu_events(operations, f"CPU:{rank}" if len(documents) > 1 else "CPU")
        )
        host += operations
        graphs = [e for e in complete if e.cat != "gpu_user_annotation" and e.name.startswith(_GRAPH_CALL)]
        graphs.sort(key=lambda event: event.ts)
        ops += _ops(operations, _LaunchedTime(complete) if gpu else None, graphs)
        graph_launches += sum(event.name == _GRAPH_LAUNCH for event in complete if event.cat in _LAUNCHES)
    devices: dict[str, list[Event]] = {}
    for kernel in kernels:
        devices.setdefault(kernel.line.device, []).append(kernel)
    # On the CPU a step's operations run on any thread: only a step traced alone can be separated from others.
    step = traced_step(kernels, steps, lambda ps: to_monotonic(base_ns + ps // 1000)) if gpu or steps == 1 else None
    return TorchTrace(
        steps=steps,
        kernels=rank_kernels(kernels, None if gpu else Counter(event.name for event in host)),
        times=tuple(device_time(device, events, len(events)) for device, events in sorted(devices.items())),
        events=len(kernels),
        step=step,
        op_steps=steps * max(1, len(devices)),
        ops=tuple(ops),
        graph_launches=graph_launches,
    )


class _TraceEvent(msgspec.Struct, gc=False, eq=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Mapping[str, Any] = {}

    @property
    def end(self) -> float:
        return self.ts + self.dur


class _Document(msgspec.Struct):
    traceEvents: list[_TraceEvent]  # noqa: N815 - the format's own
    baseTimeNanoseconds: int = 0  # noqa: N815

    def complete(self, base_ns: int) -> Iterator[_TraceEvent]:
        """Yield the events with a duration, on the clock of a trace with this base."""
        for event in self.traceEvents:
            if event.ph == "X":
                event.ts += (self.baseTimeNanoseconds - base_ns) / 1000
                yield event


def _gpu_events(events: Sequence[_TraceEvent]) -> Iterator[Event]:
    launches = {event.args.get("correlation"): event.ts for event in events if event.cat in _LAUNCHES}
    for event in events:
        if event.cat in _GPU_EVENTS:
            launch = launches.get(event.args.get("correlation"))
            occupancy_pct = event.args.get("est. achieved occupancy %")
            stream = event.args.get("stream", 0)
            yield Event(
                event.name,
                round(event.ts * 1e6),
                round(event.end * 1e6),
                Line(f"GPU:{event.args.get('device', 0)}", f"Stream #{stream}", int(stream)),
                "",
                float(occupancy_pct) if occupancy_pct else None,
                None if launch is None else round(launch * 1e6),
            )


def _cpu_events(host: Iterable[_TraceEvent], device: str) -> Iterator[Event]:
    """Yield what operations did themselves: an operation may start others in the middle."""
    for event, (start, end) in _own_times(host):
        line = Line(device, f"thread {event.tid}", int(event.tid) if isinstance(event.tid, int) else 0)
        yield Event(
            event.name.removeprefix("autograd::engine::evaluate_function: "), round(start * 1e6), round(end * 1e6), line
        )


def _own_times(events: Iterable[_TraceEvent]) -> Iterator[tuple[_TraceEvent, tuple[float, float]]]:
    """Yield each event with the parts of its time outside the events that it started, thread by thread."""
    threads: dict[int | str, list[_TraceEvent]] = {}
    for event in events:
        if event.dur > 0:
            threads.setdefault(event.tid, []).append(event)
    for thread in threads.values():
        begins = [(event.ts, 1, -event.dur, event) for event in thread]
        ends = [(event.end, 0, event.dur, event) for event in thread]
        running: list[_TraceEvent] = []
        reached = 0.0
        for time_us, is_begin, _, event in sorted((*begins, *ends), key=lambda edge: edge[:3]):
            if running and time_us > reached:
                yield running[-1], (reached, time_us)
            reached = time_us
            if is_begin:
                running.append(event)
            elif event in running:
                running.remove(event)


class _LaunchedTime:
    """The time of the GPU work that a host thread launched between two moments."""

    def __init__(self, events: Sequence[_TraceEvent]) -> None:
        durations = Counter[object]()
        for event in events:
            if event.cat in _GPU_EVENTS:
                durations[event.args.get("correlation")] += round(event.dur * 1000)
        self._threads: dict[int | str, tuple[list[float], list[int]]] = {}
        for event in sorted((event for event in events if event.cat in _LAUNCHES), key=lambda event: event.ts):
            moments, totals = self._threads.setdefault(event.tid, ([], [0]))
            moments.append(event.ts)
            totals.append(totals[-1] + durations[event.args.get("correlation")])

    def during_ns(self, event: _TraceEvent) -> int:
        moments, totals = self._threads.get(event.tid, ([], [0]))
        return totals[bisect.bisect_left(moments, event.end)] - totals[bisect.bisect_left(moments, event.ts)]


def _ops(host: Iterable[_TraceEvent], launched: _LaunchedTime | None, graphs: Sequence[_TraceEvent]) -> Iterator[Op]:
    """Yield the products and the operations on images; `launched` is the GPUs' time, None on the CPU."""
    for event in _innermost(host):
        if event.name in _PRODUCTS or event.name in _SPATIAL:
            types, dims, strides = (event.args.get(key, ()) for key in ("Input type", "Input Dims", "Input Strides"))
            names = [*filter(lambda name: isinstance(name, str), types), ""]
            dtype = next((_TYPES[name] for name in names if name in _TYPES), names[0])
            layout = next(
                (layout_of(*tensor) for tensor in zip(dims, strides, strict=False) if _is_of_images(*tensor)), ""
            )
            time_ns = round(event.dur * 1000) if launched is None else launched.during_ns(event)
            number = bisect.bisect_right(graphs, event.ts, key=lambda graph: graph.ts) - 1
            yield Op(event.name, dtype, layout, time_ns, compiled=number >= 0 and event.ts < graphs[number].end)


def _innermost(events: Iterable[_TraceEvent]) -> Iterator[_TraceEvent]:
    latest: dict[tuple[int | str, str], _TraceEvent] = {}
    for event in sorted(events, key=lambda event: (event.ts, -event.dur)):
        outer = latest.get((event.tid, event.name))
        if outer is not None and event.end > outer.end:
            yield outer
        latest[event.tid, event.name] = event
    yield from latest.values()


def _is_of_images(dims: Sequence[Any], strides: Sequence[Any]) -> bool:
    return len(dims) == len(strides) == 4 and all(isinstance(number, int) for number in (*dims, *strides))


def layout_of(dims: Sequence[int], strides: Sequence[int]) -> str:
    """Return the layout of images by the axis with stride 1; "" if both layouts fit."""
    _, channels, height, width = dims
    if channels == 1 or height * width == 1:
        return ""
    return "NHWC" if strides[1] == 1 else "NCHW"
