"""Recognises which implementation of recurrent layers ran from the operations that each device executed."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from workloads.aspects import Observation
from workloads.cnn import flatten, net_of
from workloads.evidence import Aspect, compared
from workloads.operations import CLUSTER, Op, layers_of, main_products, ops_by_device
from workloads.protocol import CHOICE, RunSpec, Variant
from workloads.recurrent import OpPattern
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of


def observed_pattern(ops: Sequence[Op], *, fully_compiled: bool = False) -> OpPattern:
    """Return the pattern of one device's operations; loops of several kinds count as none."""
    forward = [op for op in ops if not op.backward]
    loops = {op.loop for op in forward if op.loop and op.is_product}
    iterations = {_iteration_pattern([op for op in forward if op.loop == loop]) for loop in loops}
    return replace(
        iterations.pop() if len(iterations) == 1 else OpPattern(),
        cudnn=sum(op.type.startswith("CudnnRNN") for op in forward),
        blocks=sum(op.type.startswith("BlockLSTM") for op in forward),
        loops=len(loops),
        fully_compiled=fully_compiled,
    )


def _iteration_pattern(ops: Sequence[Op]) -> OpPattern:
    products = [op for op in ops if op.kind == "gemm"]
    batched = [op for op in products if op.type.startswith("Batch")]
    return OpPattern(
        products=len(products) - len(batched),
        batched=len(batched),
        transposed=any(op.transposed for op in batched),
        cells=sum(op.type == "LSTMBlockCell" for op in ops),
        kernel=any(op.type == CLUSTER for op in ops),
    )


def matching_implementations(pattern: OpPattern, spec: RunSpec) -> tuple[str, ...]:
    config, layer = config_of(spec.workload, spec.variant), RECURRENT_LAYERS[spec.workload]
    expected = {
        implementation.name: implementation.pattern(config)
        for implementation in layer.implementations
        if implementation.pattern is not None
    }
    if pattern.fully_compiled:
        looped = bool(pattern.loops) and not pattern.cudnn and not pattern.blocks
        return tuple(name for name, pattern_ in expected.items() if pattern_.loops and looped)
    return tuple(name for name, expected_pattern in expected.items() if expected_pattern == pattern)


def recurrent_implementation(observation: Observation) -> Aspect:
    """Return the implementation whose pattern the first step had, if exactly one has this pattern.

    `auto` uses Keras's own layer, so only Keras's implementations come into question.
    """
    requested = str(observation.variant["implementation"])
    groups = ops_by_device(observation.programs if observation.fully_compiled else observation.graph).values()
    patterns = {
        observed_pattern(ops, fully_compiled=observation.fully_compiled) for ops in groups if main_products(ops)
    }
    if not patterns:
        return Aspect(name="implementation", requested=requested, reason=observation.no_product_reason)
    if blank := next((pattern for pattern in patterns if not pattern.is_distinctive), None):
        return Aspect(name="implementation", requested=requested, reason=blank_reason(blank))
    names = matching_implementations(next(iter(patterns)), observation.spec) if len(patterns) == 1 else ()
    actual_patterns = ", on another device ".join(sorted(map(str, patterns)))
    if requested == CHOICE:
        chosen = next(
            (name for name in RECURRENT_LAYERS[observation.spec.workload].find(requested).choices if name in names),
            None,
        )
        reason = fallback_reason(observation.variant) if chosen != "cudnn" else None
        return Aspect(name="implementation", requested=requested, actual=chosen or actual_patterns, reason=reason)
    if requested in names:
        reason = _ambiguity_reason(names, fully_compiled=observation.fully_compiled)
        actual = None if reason else requested
        return Aspect(name="implementation", requested=requested, actual=actual, reason=reason)
    differs = f"What ran is not {requested}: it has {actual_patterns}."
    return Aspect(
        name="implementation", requested=requested, actual=names[0] if names else actual_patterns, reason=differs
    )


def blank_reason(pattern: OpPattern) -> str:
    """Return why a pattern does not reveal what ran: it lacks loops and fused calls, or the loop's products."""
    if pattern.fully_compiled and not pattern.loops:
        return "XLA compiled the steps without a loop, so its program does not tell implementations apart."
    program = "XLA's program" if pattern.fully_compiled else "The executed graph"
    return f"{program} has {pattern}, so it does not tell implementations apart."


def _ambiguity_reason(names: Sequence[str], *, fully_compiled: bool) -> str | None:
    if fully_compiled:
        return "XLA compiled the loop over time as it saw fit: its program does not tell one such loop from another."
    return f"The executed graph looks the same for {' and '.join(names)}." if len(names) > 1 else None


_FALLBACK_REASONS: tuple[tuple[Callable[[Variant], bool], str], ...] = (
    (lambda v: int(v["gpus"]) == 0, "this run is on the CPU, and cuDNN needs an NVIDIA GPU"),
    (lambda v: bool(v["xla"]), "XLA cannot compile cuDNN's layers"),
    (lambda v: float(v.get("recurrent_dropout", 0.0)) > 0, "cuDNN has no recurrent dropout"),
    (lambda v: v.get("activation", "tanh") != "tanh", "cuDNN has no activation but tanh"),
    (lambda v: v.get("sequence_lengths") == "left_padded", "cuDNN takes padding at the end only"),
)
"""Why Keras does not use cuDNN, in the order of its layer's checks (keras/src/layers/rnn, backend/tensorflow/rnn.py).
"""


def fallback_reason(variant: Variant) -> str:
    why = next((reason for applies, reason in _FALLBACK_REASONS if applies(variant)), "it gave no reason")
    return f"Keras was left to decide and did not use cuDNN: {why}."


_MAX_LAYERS_SHOWN = 4


def image_layout(observation: Observation) -> Aspect:
    """Return the layout of every convolution, batch norm and pooling; in XLA's program only of the convolutions."""
    requested = str(observation.variant["layout"])
    ops = _xla_convolutions(observation) or [op for op in observation.graph if op.is_spatial and not op.compiled]
    layouts = Counter(op.layout for op in ops)
    mismatches, differs = [op for op in ops if op.layout != requested], ""
    if mismatches:
        where = f"{mismatches[0].layout}{_layer_names(observation, mismatches)}"
        cause = _mismatch_cause(observation, mismatches)
        differs = f"{len(mismatches)} of {len(ops)} operations on images ran in {where}: {cause}."
    graph = [op for op in observation.graph if op.kind == "transpose" and not op.compiled]
    traced = sum(kernel.count for kernel in observation.trace.kernels if kernel.kind == "transpose")
    counts = [f"{len(graph)} in the executed graph{_layer_names(observation, graph)}"] if graph else []
    counts += [f"{traced / observation.trace.steps:g} a step among the traced kernels"] if traced else []
    actual, note = " and ".join(sorted(layouts)) or None, (f"Transposes: {', '.join(counts)}." if counts else None)
    return compared("layout", requested, actual, differs, observation.no_product_reason, note)


def _xla_convolutions(observation: Observation) -> list[Op]:
    """Return XLA's forward convolutions; XLA writes gradients as convolutions with other axes."""
    return [op for op in observation.programs if op.is_spatial and not op.backward]


def _layer_names(observation: Observation, ops: Iterable[Op]) -> str:
    """Return the layers of some operations, in brackets and in the network's order; "" if none is known."""
    names = layers_of(ops, [layer.name for layer in flatten(net_of(observation.spec.workload, observation.variant))])
    listed = ", ".join(names[:_MAX_LAYERS_SHOWN]) + (" …" if len(names) > _MAX_LAYERS_SHOWN else "")
    return f" ({listed})" if names else ""


def _mismatch_cause(observation: Observation, ops: Sequence[Op]) -> str:
    if _xla_convolutions(observation):
        return "XLA chooses the layout itself"
    if observation.variant["implementation"] == "keras" and all("Pool" in op.type for op in ops):
        return "Keras pools channels_last and transposes there and back"
    if observation.variant["layout_optimizer"]:
        return "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"
    return "the implementation did not keep the requested layout"


_NORMS = {
    "native": "TensorFlow's fused batch norm",
    "keras": "batch norm as plain arithmetic",
}


def cnn_implementation(observation: Observation) -> Aspect:
    """Return the implementation by its batch norm: `native` uses TensorFlow's fused one, which Keras 3 never does."""
    requested = str(observation.variant["implementation"])
    ops = observation.programs if observation.fully_compiled else observation.graph
    norm = "native" if any("BatchNorm" in op.type or "FusedBatchNorm" in op.fused for op in ops) else "keras"
    actual = norm if any(op.is_product for op in ops) else None
    differs = f"What ran is not {requested}: it has {_NORMS[norm]}."
    return compared("implementation", requested, actual, differs, observation.no_product_reason)
