"""What a custom Keras model shows: layouts, recurrent layers, and whether it trains, on what, and as a graph."""

from collections.abc import Iterable, Iterator, Sequence

from workloads.custom.definitions import LAYOUT_PARAMETERS
from workloads.protocol import Variant
from workloads.tensorflow.evidence.aspects import Aspect, Findings, Observation
from workloads.tensorflow.evidence.graph import BIASES, Op, layers_of
from workloads.training import Layer

_LAYOUTS = {
    "channels_first": "channels_first",
    "channels_last": "channels_last",
    "nchw": "channels_first",
    "nhwc": "channels_last",
}
_ONE_LAYOUT = "the same in all layers"
_MAX_NAMED = 8


def requested_layout(variant: Variant) -> str | None:
    """Return the layout that a variant asks for; None if none of its parameters does."""
    values = (str(variant.get(name, "")) for name in LAYOUT_PARAMETERS)
    return next((value for value in values if value.lower() in _LAYOUTS), None)


def custom_layout(observation: Observation) -> Aspect | None:
    """Return the layout of every layer that has one, and of every operation on images.

    None where no layout was requested and nothing differs; where something does, nobody knows which was meant.
    """
    requested = requested_layout(observation.variant)
    layers = [layer for layer in observation.layers if layer.layout]
    wanted = _LAYOUTS[requested.lower()] if requested else _usual_layout(layers)
    compiled = [op for op in observation.programs if op.is_spatial and not op.backward]
    operations = compiled or [op for op in observation.graph if op.is_spatial and not op.compiled]
    other_layers = [layer for layer in layers if layer.layout != wanted]
    other_operations = [op for op in operations if _LAYOUTS.get(op.layout.lower()) != wanted]
    biases = _misplaced_biases(observation)
    reasons = []
    if other_layers:
        reasons.append(f"{len(other_layers)} of {len(layers)} layers are {_layout_names(other_layers)}.")
    if biases:
        reasons.append(
            f"Keras puts the bias of {_first(biases)} along the width: images are as wide there as they have channels."
        )
    if requested and other_operations and not reasons:
        reasons.append(_operations_reason(observation, operations, other_operations))
    reason = " ".join(reasons) or None
    if requested is None:
        return Aspect(name="layout", requested=_ONE_LAYOUT, reason=reason) if reason else None
    if not layers and not operations:
        return Aspect(name="layout", requested=requested, reason="No layer or operation with a layout was seen.")
    found = {layer.layout for layer in layers} | {_LAYOUTS.get(op.layout.lower(), op.layout) for op in operations}
    found |= {"channels_last"} if biases else set()
    return Aspect(
        name="layout", requested=requested, actual=" and ".join(sorted(found)) if reason else requested, reason=reason
    )


def _usual_layout(layers: Sequence[Layer]) -> str:
    """Return the layout of most layers; of equally many channels_first, which nobody has who did not ask for it."""
    layouts = [layer.layout for layer in layers]
    return max(("channels_first", "channels_last"), key=layouts.count)


def _misplaced_biases(observation: Observation) -> list[str]:
    """Return the channels_first convolutions whose bias, or its gradient, went along the last axis.

    Keras 3.15 takes a vector as long as the last axis for one along it: `add` in keras/src/backend/tensorflow/numpy.py.
    Where TensorFlow fuses convolution and bias on the CPU, only the gradient does.
    """
    names = [layer.name for layer in observation.layers if layer.layout == "channels_first" and "Conv" in layer.kind]
    return layers_of([op for op in observation.graph if op.type in BIASES and op.layout == "NHWC"], names)


def _operations_reason(observation: Observation, operations: Sequence[Op], other: Sequence[Op]) -> str:
    names = layers_of(other, [layer.name for layer in observation.layers])
    where = f" ({_first(names)})" if names else ""
    cause = "Keras transposes there and back"
    if other[0].compiled:
        cause = "XLA chooses the layout itself"
    elif observation.variant["layout_optimizer"]:
        cause = "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"
    return f"{len(other)} of {len(operations)} operations on images ran in {other[0].layout}{where}: {cause}."


_GRAPH, _TRAINED, _DIFFERENT = "as a graph", "all weights trained", "different examples"
_FEW = 1 / 8
"""The largest share of different examples or outputs of a batch that is told: types of 16 bits make some alike."""


def step_aspects(observation: Observation) -> Iterator[Aspect]:
    """Yield how steps ran, whether they trained, and on what: aspects of custom workloads, whose code is anyone's."""
    findings, trains = observation.findings, observation.variant["mode"] == "train"
    if isinstance(findings, str):
        names = {"execution": _GRAPH, "training": _TRAINED if trains else "", "examples": _DIFFERENT}
        yield from (Aspect(name=name, requested=value, reason=findings) for name, value in names.items() if value)
        return
    yield _execution(observation, findings)
    if trains:
        yield _training(findings)
    if not isinstance(findings.distinct, tuple) or findings.distinct[0] > 1:
        yield _examples(findings)


def _execution(observation: Observation, findings: Findings) -> Aspect:
    """Return whether all steps ran as the graph that was seen, and all of it in each of them."""
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
        " of ".join(filter(None, (what, _first(layers_of(group, layers)))))
        for what, group in (("branches (tf.cond)", branches), ("loops", loops))
        if group
    ]
    if not where:
        return Aspect(name="execution", requested=_GRAPH, actual=_GRAPH)
    reason = f"Operations are in {' and in '.join(where)}: nothing shows how often a step computes them."
    return Aspect(name="execution", requested=_GRAPH, reason=reason)


def _training(findings: Findings) -> Aspect:
    """Return whether steps changed all weights, by gradients, and the loss."""
    count, without_gradient = len(findings.weights), findings.without_gradient
    unchanged = [name for name in findings.unchanged if name not in without_gradient]
    reasons = [
        f"{what} {f'{len(names)} of the {count} weights: {_first(names)}' if len(names) < count else 'any weight'}."
        for what, names in (("The loss does not depend on", without_gradient), ("The steps did not change", unchanged))
        if names
    ]
    trained = len(without_gradient) + len(unchanged) < count
    if trained and len(findings.losses) > 1 and len(set(findings.losses)) == 1:
        reasons.append(f"The loss was {findings.losses[0]:.6g} in the first step and in the last.")
    actual = (None if reasons else _TRAINED) if trained else "no weight trained"
    return Aspect(name="training", requested=_TRAINED, actual=actual, reason=" ".join(reasons) or None)


def _examples(findings: Findings) -> Aspect:
    """Return whether a batch has different examples, and the model different outputs for them."""
    if isinstance(findings.distinct, str):
        return Aspect(name="examples", requested=_DIFFERENT, reason=findings.distinct)
    examples, different, outputs = findings.distinct
    reason = None
    if different <= max(1, _FEW * examples):
        reason = f"Different examples in a batch of {examples}: {different}."
    elif outputs <= max(1, _FEW * different):
        reason = f"Different outputs for {different} different examples: {outputs}."
    return Aspect(name="examples", requested=_DIFFERENT, actual=None if reason else _DIFFERENT, reason=reason)


def layer_notes(observation: Observation) -> Iterable[str]:
    """Yield how recurrent layers ran."""
    recurrent = [layer.name for layer in observation.layers if layer.recurrent]
    ran = [op for op in (*observation.graph, *observation.programs) if op.kind == "rnn" or op.loop]
    through_cudnn = layers_of([op for op in ran if op.type.startswith("CudnnRNN")], recurrent)
    in_loops = [name for name in layers_of([op for op in ran if op.loop], recurrent) if name not in through_cudnn]
    if found := [
        f"{_first(names)} {how}" for names, how in ((through_cudnn, "through cuDNN"), (in_loops, "as a loop")) if names
    ]:
        yield f"Recurrent layers ran: {'; '.join(found)}."


def _layout_names(layers: Sequence[Layer]) -> str:
    """`channels_last: pool (GlobalAveragePooling2D), norm (BatchNormalization)`."""
    return f"{layers[0].layout}: {_first([f'{layer.name} ({layer.kind})' for layer in layers])}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (" …" if len(names) > _MAX_NAMED else "")
