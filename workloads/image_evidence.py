"""Recognises which implementation of an image network ran, in which layout, and which layers used another one."""

from collections import Counter
from collections.abc import Iterable, Sequence

from workloads.aspects import Observation
from workloads.cnn import flatten, net_of
from workloads.evidence import Aspect, compared
from workloads.operations import Op, layers_of

_MAX_LAYERS_SHOWN = 4


def image_layout(observation: Observation) -> Aspect:
    """Return the layout of every convolution, batch norm and pooling; in XLA's program that of the convolutions."""
    requested = str(observation.variant["layout"])
    ops = _xla_convolutions(observation) or [op for op in observation.graph if op.is_spatial and not op.compiled]
    layouts = Counter(op.layout for op in ops)
    mismatches, differs = [op for op in ops if op.layout != requested], ""
    if mismatches:
        differs = f"{_mismatch_message(observation, mismatches, len(ops))}: {_mismatch_cause(observation, mismatches)}."
    actual, note = " and ".join(sorted(layouts)) or None, _transposes_note(observation)
    return compared("layout", requested, actual, differs, observation.no_product_reason, note)


def _xla_convolutions(observation: Observation) -> list[Op]:
    """Return XLA's forward convolutions; it writes gradients as convolutions with other axes."""
    return [op for op in observation.programs if op.is_spatial and not op.backward]


def _mismatch_message(observation: Observation, ops: Sequence[Op], total: int) -> str:
    return f"{len(ops)} of {total} operations on images ran in {ops[0].layout}{_layer_names(observation, ops)}"


def _layer_names(observation: Observation, ops: Iterable[Op]) -> str:
    """Return the layers that operations belong to, in the network's order and in brackets; "" if none is known."""
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


def _transposes_note(observation: Observation) -> str | None:
    """Return a note on the transposes in the graph, and on those that libraries made, as the trace has them."""
    graph = [op for op in observation.graph if op.kind == "transpose" and not op.compiled]
    traced = sum(kernel.count for kernel in observation.trace.kernels if kernel.kind == "transpose")
    counts = [f"{len(graph)} in the executed graph{_layer_names(observation, graph)}"] if graph else []
    counts += [f"{traced / observation.trace.steps:g} a step among the traced kernels"] if traced else []
    return f"Transposes: {', '.join(counts)}." if counts else None


_NORMS = {
    "native": "TensorFlow's fused batch norm",
    "keras": "batch norm as plain arithmetic",
}


def cnn_implementation(observation: Observation) -> Aspect:
    """Return the implementation by its batch norm: `native` has TensorFlow's fused one, which Keras 3 never uses."""
    requested = str(observation.variant["implementation"])
    ops = observation.programs if observation.fully_compiled else observation.graph
    norm = "native" if any(_is_norm(op) for op in ops) else "keras"
    actual = norm if any(op.is_product for op in ops) else None
    differs = f"What ran is not {requested}: it has {_NORMS[norm]}."
    return compared("implementation", requested, actual, differs, observation.no_product_reason)


def _is_norm(op: Op) -> bool:
    """Return whether an op is a norm; in inference on the CPU it may be fused into the convolution before it."""
    return "BatchNorm" in op.type or "FusedBatchNorm" in op.fused
