"""Evidence of a command: its probe's counts, and the trace of a few steps.

Nothing is requested of a user's script, so evidence only reports what ran.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from workloads.evidence import Aspect, exchange_note, guarded_trace, share_note, summarise, tensor_core_share
from workloads.protocol import CHOICE, Count, Evidence, Nanoseconds, Sentence, Text, TextByName, Texts, Variant
from workloads.pytorch.trace import TorchTrace, read
from workloads.trace import Trace, monotonic_clock
from workloads.xla import XlaTrace, read_profile_bytes

_SMALL_SHARE = 0.05
"""Types with a smaller share of the products' time are not named."""
_TENSOR_CORES = 0.01
_LEAST_SHARE = 0.0005
"""What takes a smaller share of the time would be 0.0 %."""
_OPTIMIZERS = (
    ("fused", re.compile(r"_fused_(adam|sgd|adagrad)|Fused(Adam|SGD|Lamb)|fused_adam", re.IGNORECASE)),
    # Clipping and weight averaging use other operations on several tensors.
    ("foreach", re.compile(r"_foreach_(addcdiv|addcmul|add)_|multi_tensor_apply.*(PointwiseOp|BinaryOp)")),
    ("single-tensor", re.compile(r"addcdiv|addcmul|aten::(lerp|add)_")),
)
"""How an optimizer updates its weights, by the kernels or operations of a step; the first match counts."""


class Ending(msgspec.Struct, kw_only=True):
    """The last message of a script's probe.

    Attributes:
        kind: Whether the measurement is complete, the script ended early, or the pattern of its optimizers' calls
            changed.
        all_steps: Steps from the first block to the last, including those between blocks.
        lost_ns: The time between blocks, by reason.
        waited_ns: The time in measured blocks that the script waited for its loader.
        examples: Examples of the measured blocks; 0 if unknown.
        gpus: GPUs on which the process computed; each rank has its own.
        outside: Modules of the user's folder that were not imported from the frozen tree.
    """

    kind: Literal["done", "ended", "changed"]
    how: Sentence
    steps: Count
    measured_steps: Count
    measured_ns: Nanoseconds
    all_steps: Count
    all_ns: Nanoseconds
    lost_ns: dict[str, float]
    waited_ns: Nanoseconds
    examples: Count
    skipped: Count
    gpus: Count
    ranks: Count
    outside: Texts
    graphs: Count
    graph_breaks: Count
    environment: TextByName
    traced_steps: Count = 0
    trace_error: Text = ""


def script_evidence(variant: Variant, ending: Ending, path: Path, begin_ns: int, *, others: int) -> Evidence:
    """Return the evidence of a script that ran steps since `begin_ns`, with its trace if the file exists."""
    gpu = bool(ending.gpus)

    def read_file() -> Trace:
        steps, to_monotonic = ending.traced_steps, monotonic_clock(begin_ns)
        if path.exists():
            return read([path.read_bytes()], steps, gpu=gpu, to_monotonic=to_monotonic)
        (profile,) = path.parent.rglob("*.xplane.pb")
        return read_profile_bytes(profile.read_bytes(), steps, gpu=gpu, to_monotonic=to_monotonic)

    trace = guarded_trace(read_file, Trace) if ending.traced_steps else Trace()
    aspects = [
        *(Aspect(name=name, requested=CHOICE, actual=actual) for name, actual in _seen(ending, trace, gpu=gpu)),
        Aspect(name="arguments", requested="", reason="Only the script knows what they request; this shows what ran."),
    ]
    share = tensor_core_share(trace.kernels)
    notes = [*_notes(ending), exchange_note(trace), share_note(share) if gpu else None, *trace.notes]
    if others:
        notes.append(f"The figures are of one process alone; {others} more of the command trained, too.")
    if ending.trace_error:
        notes.append(f"The profiler could not be used: {ending.trace_error.rstrip('.')}.")
    elif not ending.traced_steps and variant["evidence"] == "trace":
        notes.append("The script ended before a trace, so its kernels are not known.")
    return summarise(aspects, trace, ("trace",) if trace.kernels else (), tuple(filter(None, notes)))


def _seen(ending: Ending, trace: Trace, *, gpu: bool) -> Iterator[tuple[str, str]]:
    yield "device", "GPU" if gpu else "CPU"
    if ending.ranks > 1:
        yield "ranks", f"{ending.ranks} ranks"
    if precision := _precision(_product_times(trace), tensor_core_share(trace.kernels) if gpu else 0.0):
        yield "precision", precision
    if isinstance(trace, XlaTrace):
        yield "xla", "on" if trace.is_compiled else "off"
    if not isinstance(trace, TorchTrace):
        return
    products = [op for op in trace.ops if op.is_product]
    outside = sum(not op.compiled for op in products)
    yield "compile", "off" if not ending.graphs else "partly" if ending.graph_breaks or outside else "on"
    if gpu:
        yield "cuda_graph", "on" if trace.graph_launches >= trace.steps else "off"
    names = {kernel.name for kernel in trace.kernels}
    if optimizer := next((name for name, pattern in _OPTIMIZERS if any(map(pattern.search, names))), ""):
        yield "optimizer", f"{optimizer} optimizer"


def _product_times(trace: Trace) -> Counter[str]:
    """Return the time of products by their type, as far as it is known: not outside of XLA's programs."""
    times = Counter[str]()
    if isinstance(trace, TorchTrace):
        for op in trace.ops:
            times[op.dtype] += op.time_ns if op.is_product and op.dtype else 0
    elif isinstance(trace, XlaTrace):
        for name, dtype in {(op.kernel or op.name, op.dtype) for op in trace.programs if op.dtype}:
            times[dtype] += trace.op_times_ns.get(name, 0)
    return times


def _precision(times: Counter[str], share: float | None) -> str:
    """Return the types of products, longest time first; "" if none were observed. `share` is that of tensor cores."""
    single = "float32 or tf32" if share is None else "tf32" if share >= _TENSOR_CORES else "float32"
    large = [name for name, time_ns in times.most_common() if time_ns > _SMALL_SHARE * times.total()]
    return " and ".join(single if name == "float32" else name for name in large)


def _notes(ending: Ending) -> Iterator[str]:
    yield f"A step is {ending.how}; {ending.steps:,} were seen."
    if ending.measured_steps and ending.all_steps:
        step_ms, all_ms = ending.measured_ns / 1e6 / ending.measured_steps, ending.all_ns / 1e6 / ending.all_steps
        times_ns = {"measured steps": ending.measured_ns, **ending.lost_ns}
        times_ns["steps not measured"] = ending.all_ns - sum(times_ns.values())
        parts = ", ".join(
            f"{name} {100 * time_ns / ending.all_ns:.1f} %"
            for name, time_ns in sorted(times_ns.items(), key=lambda pair: -pair[1])
            if time_ns >= _LEAST_SHARE * ending.all_ns
        )
        yield f"A step took {step_ms:.4g} ms; with everything between, {all_ms:.4g} ms a step. Of all time: {parts}."
        if ending.waited_ns:
            share = 100 * ending.waited_ns / ending.measured_ns
            yield f"The script waited for its loader in {share:.1f} % of the steps' time."
    if not ending.examples:
        yield "Each step counts as one example, for want of a number (--examples; in the window, Examples per step)."
    if ending.skipped:
        yield f"A GradScaler skipped {ending.skipped:,} updates, whose steps count like others."
    if ending.outside:
        yield f"Loaded from the folder itself and not from the frozen tree: {', '.join(ending.outside[:3])}."
