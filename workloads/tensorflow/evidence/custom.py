"""The evidence of a custom Keras model: layouts, recurrent layers, and whether it trains, on what, and as a graph."""

from collections.abc import Iterable, Iterator, Sequence

from workloads.aspects import Observation
from workloads.custom.evidence import LAYOUTS, ONE_LAYOUT, Findings, listed, requested_layout, training_aspects
from workloads.evidence import Aspect
from workloads.operations import BIASES, Op, layers_of


def custom_layout(observation: Observation) -> Aspect | None:
    """Return the layout of every layer that has one, and of every operation on images.

    None if no layout was requested and none differs; if some do, it is unknown which one was meant.
    """
    requested = requested_layout(observation.variant)
    layers = [layer for layer in observation.layers if layer.layout]
    layer_layouts = [layer.layout for layer in layers]
    # Without a request most layers' layout; on a tie channels_first, which is never a default.
    usual = max(("channels_first", "channels_last"), key=layer_layouts.count)
    expected = LAYOUTS[requested.lower()] if requested else usual
    compiled = [op for op in observation.programs if op.is_spatial and not op.backward]
    operations = compiled or [op for op in observation.graph if op.is_spatial and not op.compiled]
    other_layers = [layer for layer in layers if layer.layout != expected]
    other_operations = [op for op in operations if LAYOUTS.get(op.layout.lower()) != expected]
    # Keras 3.15 adds a vector as long as the last axis along that axis: `add` in keras/src/backend/tensorflow/numpy.py.
    # Where TensorFlow fuses convolution and bias on the CPU, only the gradient does.
    names = [layer.name for layer in observation.layers if layer.layout == "channels_first" and "Conv" in layer.kind]
    biases = layers_of([op for op in observation.graph if op.type in BIASES and op.layout == "NHWC"], names)
    reasons = []
    if other_layers:
        others = listed([f"{layer.name} ({layer.kind})" for layer in other_layers])
        reasons.append(f"{len(other_layers)} of {len(layers)} layers are {other_layers[0].layout}: {others}.")
    if biases:
        reasons.append(
            f"Keras puts the bias of {listed(biases)} along the width: images are as wide there as they have channels."
        )
    if requested and other_operations and not reasons:
        reasons.append(_operations_reason(observation, operations, other_operations))
    reason = " ".join(reasons) or None
    if requested is None:
        return Aspect(name="layout", requested=ONE_LAYOUT, reason=reason) if reason else None
    if not layers and not operations:
        return Aspect(name="layout", requested=requested, reason="No layer or operation with a layout was seen.")
    layouts = {layer.layout for layer in layers} | {LAYOUTS.get(op.layout.lower(), op.layout) for op in operations}
    layouts |= {"channels_last"} if biases else set()
    return Aspect(
        name="layout", requested=requested, actual=" and ".join(sorted(layouts)) if reason else requested, reason=reason
    )


def _operations_reason(observation: Observation, operations: Sequence[Op], mismatches: Sequence[Op]) -> str:
    names = layers_of(mismatches, [layer.name for layer in observation.layers])
    where = f" ({listed(names)})" if names else ""
    cause = "Keras transposes there and back"
    if mismatches[0].compiled:
        cause = "XLA chooses the layout itself"
    elif observation.variant["layout_optimizer"]:
        cause = "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"
    return f"{len(mismatches)} of {len(operations)} operations on images ran in {mismatches[0].layout}{where}: {cause}."


_GRAPH = "as a graph"


def step_aspects(observation: Observation) -> Iterator[Aspect]:
    """Yield how steps ran, whether they trained, and on what: aspects that only custom workloads have."""
    findings = observation.findings
    if isinstance(findings, str):
        yield Aspect(name="execution", requested=_GRAPH, reason=findings)
    else:
        yield _execution(observation, findings)
    yield from training_aspects(findings, trains=observation.variant["mode"] == "train")


def _execution(observation: Observation, findings: Findings) -> Aspect:
    if count := findings.eager_steps:
        eager = f"{count} steps ran eagerly: Python started their operations one by one."
        return Aspect(name="execution", requested=_GRAPH, actual="eagerly", reason=eager)
    if not observation.products:
        return Aspect(name="execution", requested=_GRAPH, reason=observation.no_product_reason)
    ops = (*observation.graph, *observation.programs)
    recurrent = [layer.name for layer in observation.layers if layer.recurrent]
    branches = [op for op in ops if op.branch]
    loops = [op for op in ops if op.is_product and op.loop and not layers_of([op], recurrent)]
    layers = [layer.name for layer in observation.layers]
    where = [
        " of ".join(filter(None, (noun, listed(layers_of(group, layers)))))
        for noun, group in (("branches (tf.cond)", branches), ("loops", loops))
        if group
    ]
    if not where:
        return Aspect(name="execution", requested=_GRAPH, actual=_GRAPH)
    reason = f"Operations are in {' and in '.join(where)}: nothing shows how often a step computes them."
    return Aspect(name="execution", requested=_GRAPH, reason=reason)


def layer_notes(observation: Observation) -> Iterable[str]:
    recurrent = [layer.name for layer in observation.layers if layer.recurrent]
    ran = [op for op in (*observation.graph, *observation.programs) if op.kind == "rnn" or op.loop]
    through_cudnn = layers_of([op for op in ran if op.type.startswith("CudnnRNN")], recurrent)
    in_loops = [name for name in layers_of([op for op in ran if op.loop], recurrent) if name not in through_cudnn]
    if fallen_back := [
        f"{listed(names)} {how}" for names, how in ((through_cudnn, "through cuDNN"), (in_loops, "as a loop")) if names
    ]:
        yield f"Recurrent layers ran: {'; '.join(fallen_back)}."
