"""The evidence of a run in PyTorch, from the operations and kernels of a few steps after the measured part."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from workloads.aspects import FLOAT32_OR_TF32, TENSOR_CORE_THRESHOLD, judge_precision
from workloads.catalog import is_custom
from workloads.custom.evidence import (
    LAYOUTS,
    NOT_INSPECTED,
    ONE_LAYOUT,
    Findings,
    Inspector,
    listed,
    requested_layout,
    training_aspects,
)
from workloads.evidence import (
    Aspect,
    compared,
    exchange_note,
    guarded_trace,
    memory_limit,
    share_note,
    summarise,
    tensor_core_share,
    trace_steps,
)
from workloads.protocol import Evidence, RunSpec, Variant
from workloads.pytorch import ranks
from workloads.pytorch.ranks import DATA_PARALLEL, RankedStep, RankState
from workloads.pytorch.steps import Step, memory_limit_bytes
from workloads.pytorch.trace import Op, TorchTrace, read, write_trace
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.trace import monotonic_clock
from workloads.training import Layer, Task

_MOST_BREAKS = 3
_NO_TRACE = "Only a trace after the measured part shows what PyTorch ran."
_NO_PRODUCT = "No matrix product was seen in what ran."


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Inductor's work in this process: the graphs that it compiled, and the causes of graph breaks."""

    graphs: int
    breaks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A trace of steps as they were measured, the compiler's counts, and each rank's state afterwards.

    `layers` are a custom module's; `findings` are its task's, or why there are none; `memory_limits_bytes` is the most
    that the process may take of each GPU.
    """

    spec: RunSpec
    trace: TorchTrace
    compilation: Compilation
    states: tuple[RankState, ...] = ()
    layers: tuple[Layer, ...] = ()
    findings: Findings | str = NOT_INSPECTED
    memory_limits_bytes: tuple[int, ...] = ()

    @property
    def variant(self) -> Variant:
        return self.spec.variant

    @property
    def products(self) -> list[Op]:
        return [op for op in self.trace.ops if op.is_product]

    @property
    def unseen_reason(self) -> str:
        """Return one sentence on why no product was observed."""
        return _NO_PRODUCT if self.trace.steps else _NO_TRACE


def _aspect(
    observation: Observation, name: str, requested: str, actual: str | None, differs: str, note: str | None = None
) -> Aspect:
    return compared(name, requested, actual, differs, observation.unseen_reason, note)


def recurrent_implementation(observation: Observation) -> Aspect:
    """Return the implementation by cuDNN's calls: one per layer, one for all layers, or none in a loop of cells."""
    requested, layers = str(observation.variant["implementation"]), int(observation.variant["layers"])
    calls = _cudnn_calls(observation)
    actual = None
    if calls:
        by_cudnn = requested if requested != "standard" else "cudnn"
        actual = by_cudnn if layers == 1 else "cudnn_stack" if calls == 1 else "cudnn"
    elif observation.products:
        actual = "standard"
    text = f"{calls:g} cuDNN calls a step" if calls else "no cuDNN call"
    return _aspect(observation, "implementation", requested, actual, f"What ran is not {requested}: it has {text}.")


def image_implementation(observation: Observation) -> Aspect:
    """Return `native`, the only implementation of PyTorch's networks, if a convolution was observed."""
    actual = "native" if any(op.is_spatial for op in observation.trace.ops) else None
    return _aspect(observation, "implementation", str(observation.variant["implementation"]), actual, "")


def layout(observation: Observation) -> Aspect:
    """Return the memory format of the images that convolutions, batch norms and poolings received."""
    requested = str(observation.variant["layout"])
    layouts = Counter(op.layout for op in observation.trace.ops if op.is_spatial)
    differing = sum(count for name, count in layouts.items() if name != requested)
    differs = f"{differing} of {layouts.total()} operations on images got them in another layout than {requested}."
    transposes = sum(kernel.count for kernel in observation.trace.kernels if kernel.kind == "transpose")
    note = (
        f"Transposes: {transposes / observation.trace.steps:g} a step among the traced kernels." if transposes else None
    )
    return _aspect(observation, "layout", requested, " and ".join(sorted(layouts)) or None, differs, note)


def custom_layout(observation: Observation) -> Iterator[Aspect]:
    """Yield the layout of operations on images, if one was requested or they differ, with the layers that differ.

    Without a request, several layouts leave open which one was meant.
    """
    requested = requested_layout(observation.variant)
    layouts = Counter(LAYOUTS[op.layout.lower()] for op in observation.trace.ops if op.is_spatial)
    if requested is None and len(layouts) < 2:
        return
    expected = LAYOUTS[requested.lower()] if requested else layouts.most_common(1)[0][0]
    differing = layouts.total() - layouts[expected]
    layers = observation.findings.layers if isinstance(observation.findings, Findings) else ()
    names = [f"{layer.name} ({layer.kind})" for layer in layers if layer.layout not in ("", expected)]
    where = f": {listed(names)}" if names else ""
    reason = f"{differing} of {layouts.total()} operations on images got them in another layout than {expected}{where}."
    if requested is None:
        yield Aspect(name="layout", requested=ONE_LAYOUT, reason=reason)
    else:
        actual = (" and ".join(sorted(layouts)) if differing else requested) if layouts else None
        yield _aspect(observation, "layout", requested, actual, reason)


def layer_notes(observation: Observation) -> Iterator[str]:
    """Yield how often a custom module's recurrent layers called cuDNN, and which modules were in another mode."""
    if names := [layer.name for layer in observation.layers if layer.recurrent]:
        calls = _cudnn_calls(observation)
        yield f"Recurrent layers ({listed(names)}): {f'{calls:g} cuDNN calls a step' if calls else 'no cuDNN call'}."
    trains = observation.variant["mode"] == "train"
    layers = observation.findings.layers if isinstance(observation.findings, Findings) else ()
    others = {layer.name: layer.kind for layer in layers if layer.training is (not trains)}
    if others:
        outermost = {name: kind for name, kind in others.items() if not name or name.rpartition(".")[0] not in others}
        where = "evaluation mode in a run that trains" if trains else "training mode in a run of inference"
        modules = listed([f"{name or 'the model'} ({kind})" for name, kind in outermost.items()])
        yield f"Modules in {where} ({len(others)} of {len(layers)}): {modules}."


def _cudnn_calls(observation: Observation) -> float:
    return sum(op.name == "aten::_cudnn_rnn" for op in observation.trace.ops) / max(1, observation.trace.op_steps)


def precision(observation: Observation) -> Aspect:
    """Return the types that took most of the products' time; on a GPU the kernels distinguish float32 from TF32."""
    requested = str(observation.variant["precision"])
    times = Counter[str]()
    for op in observation.products:
        times[op.dtype] += op.time_ns
    share = tensor_core_share(observation.trace.kernels) if observation.variant["gpus"] else 0.0
    total = times.total()
    if not total or ("float32" in times and share is None):
        reason = FLOAT32_OR_TF32 if total else observation.unseen_reason
        return Aspect(name="precision", requested=requested, reason=reason)
    single = "tf32" if share and share >= TENSOR_CORE_THRESHOLD else "float32"
    shares = {single if dtype == "float32" else dtype: time_ns / total for dtype, time_ns in times.items()}
    return judge_precision(requested, shares, share_note(share) if observation.variant["gpus"] else None)


def compilation(observation: Observation) -> Aspect:
    """Return whether Inductor compiled the whole forward and backward pass, and what ran outside its graphs."""
    requested = "on" if observation.variant["compile"] else "off"
    compiled, products = observation.compilation, observation.products
    outside = sum(not op.compiled for op in products)
    actual = "off" if not compiled.graphs else "partly" if compiled.breaks or outside else "on"
    differs = f"Graphs that Inductor compiled: {compiled.graphs}."
    if compiled.graphs and outside:
        differs += f" Outside of them ran {outside} of {len(products)} products."
    if compiled.breaks:
        differs += f" It left them: {'; '.join(compiled.breaks[:_MOST_BREAKS])}."
    return _aspect(observation, "compile", requested, actual, differs)


def cuda_graph(observation: Observation) -> Aspect:
    requested = "on" if observation.variant["cuda_graph"] else "off"
    trace = observation.trace
    actual = None if not trace.steps else "on" if trace.graph_launches >= trace.steps else "off"
    differs = f"{trace.graph_launches} CUDA graphs were launched in {trace.steps} steps."
    return _aspect(observation, "cuda_graph", requested, actual, differs)


def device(observation: Observation) -> Aspect:
    requested = "GPU" if observation.variant["gpus"] else "CPU"
    types = {times.device.partition(":")[0] for times in observation.trace.times}
    return _aspect(observation, "device", requested, " and ".join(sorted(types)) or None, "It ran on another device.")


def replicas(observation: Observation) -> Aspect:
    """Return how many devices computed their own part of the batch."""
    requested = str(ranks.replica_count(observation.variant))
    devices, batch_parts = observation.trace.devices, len({state.batch for state in observation.states})
    count = min(devices, batch_parts) if batch_parts else devices
    differs = f"It ran on {devices} devices"
    differs += f", which computed {batch_parts} different parts of a batch." if batch_parts else "."
    return _aspect(observation, "replicas", requested, str(count) if count else None, differs)


def all_reduce(observation: Observation) -> Aspect:
    """Return how gradients were exchanged, by its kernels and by whether the ranks have the same weights afterwards."""
    requested, trace = str(observation.variant["all_reduce"]), observation.trace
    exchanges = [kernel.name for kernel in trace.kernels if kernel.kind == "communication"]
    differs = "Gradients were exchanged otherwise."
    if len({state.weights for state in observation.states}) > 1:
        actual, differs = "none", "The weights of the ranks differ: each trained alone."
    elif any("AllReduce" in name for name in exchanges):
        actual = "nccl"
    elif any(name.startswith("c10d::") for name in exchanges):
        actual = "gloo"
    else:
        actual = DATA_PARALLEL if exchanges else "none"
    note = exchange_note(trace)
    return _aspect(observation, "all_reduce", requested, actual if trace.steps else None, differs, note)


_ASPECTS: tuple[Callable[[Observation], Aspect], ...] = (precision, compilation, device, replicas)


def aspects(observation: Observation) -> Iterator[Aspect]:
    if is_custom(observation.spec.workload):
        yield from training_aspects(observation.findings, trains=observation.variant["mode"] == "train")
        yield from custom_layout(observation)
    elif observation.spec.workload in RECURRENT_LAYERS:
        yield recurrent_implementation(observation)
    else:
        yield image_implementation(observation)
        yield layout(observation)
    for aspect_of in _ASPECTS:
        yield aspect_of(observation)
    if observation.variant["gpus"]:
        yield cuda_graph(observation)
    yield from memory_limit(observation.variant, observation.memory_limits_bytes)
    if ranks.replica_count(observation.variant) > 1 and observation.variant["mode"] == "train":
        yield all_reduce(observation)


def profile_steps(step: Callable[[], Any], steps: int, *, gpu: bool) -> tuple[TorchTrace, float]:
    """Return the trace of some steps on all ranks, and the seconds that one of them took under the profiler."""
    with TemporaryDirectory(prefix="variantscope-") as name:
        begin_ns, folder = time.monotonic_ns(), Path(name)
        if isinstance(step, RankedStep):
            step_s = step.trace(steps, folder)
        else:
            step_s = write_trace(step, steps, folder / "trace.json", gpu=gpu)
        to_monotonic = monotonic_clock(begin_ns)
        traces = [file.read_bytes() for file in sorted(folder.iterdir())]
        return read(traces, steps, gpu=gpu, to_monotonic=to_monotonic), step_s


def _guarded(step: Callable[[], Any], work: Callable[[], TorchTrace], *, gpu: bool) -> TorchTrace:
    """Run `work` in its own thread, after one step there, and return its trace.

    PyTorch stores cuDNN's algorithms by thread: the first step of another thread times them all again.
    """

    def traced() -> TorchTrace:
        if gpu:
            step()
            torch.cuda.synchronize()
        return work()

    return guarded_trace(traced, TorchTrace)


class EvidenceCollector(Inspector):
    """Collects a run's evidence from steps after the measured part, at no cost to that part."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self._task = task
        self._trace = TorchTrace()
        self._began = False
        self._memory_limits_bytes: tuple[int, ...] = ()

    def first_step_done(self) -> None:
        """Record that something ran, and how much GPU memory it may take."""
        self._began = True
        if self._spec.variant["memory_limit"]:
            self._memory_limits_bytes = tuple(map(memory_limit_bytes, ranks.gpus_of(self._spec.variant)))
        self.record_loss()

    def trace(self) -> None:
        """Run a few more steps under the profiler; for a captured step, also trace the captured operations."""
        self.record_loss()
        gpu, step = bool(self._spec.variant["gpus"]), self._task.step
        self._trace = _guarded(step, lambda: trace_steps(partial(profile_steps, step, gpu=gpu)), gpu=gpu)
        if self._trace.steps and self._spec.variant["cuda_graph"] and isinstance(step, Step):
            captured = _guarded(step.captured, lambda: profile_steps(step.captured, 1, gpu=gpu)[0], gpu=gpu)
            notes = (*self._trace.notes, *captured.notes)
            self._trace = replace(self._trace, ops=captured.ops, op_steps=captured.op_steps, notes=notes)

    def evidence(self) -> Evidence | None:
        """Return the evidence so far, or None before the first step."""
        if not self._began:
            return None
        states = self._task.step.states if isinstance(self._task.step, RankedStep) else ()
        counters = torch._dynamo.utils.counters  # noqa: SLF001 - no other place counts
        reasons = (*counters["graph_break"], *counters["unimplemented"])
        breaks = tuple(dict.fromkeys(str(reason).partition("\n")[0].rstrip(".") for reason in reasons))
        observation = Observation(
            spec=self._spec,
            trace=self._trace,
            compilation=Compilation(graphs=int(counters["stats"]["unique_graphs"]), breaks=breaks),
            states=states,
            memory_limits_bytes=tuple(state.memory_limit_bytes for state in states) or self._memory_limits_bytes,
            layers=self._task.layers,
            findings=self.findings,
        )
        sources = ("trace",) if self._trace.kernels else ()
        notes = (*layer_notes(observation), *self._trace.notes)
        return summarise(aspects(observation), self._trace, sources, notes)
