"""What a custom Keras model shows: the layout of each layer and of what ran, and which recurrent layers used cuDNN."""

from collections.abc import Iterable, Sequence

from workloads.protocol import Variant
from workloads.tensorflow.evidence.aspects import Aspect, Observation
from workloads.tensorflow.evidence.graph import Op, layers_of
from workloads.training import Layer

_PARAMETERS = ("layout", "data_format")
"""Names of a user's parameter that asks for a layout."""
_LAYOUTS = {
    "channels_first": "channels_first",
    "channels_last": "channels_last",
    "nchw": "channels_first",
    "nhwc": "channels_last",
}
_MAX_NAMED = 8


def requested_layout(variant: Variant) -> str | None:
    """Return the layout that a variant asks for; None if none of its parameters does."""
    values = (str(variant.get(name, "")) for name in _PARAMETERS)
    return next((value for value in values if value.lower() in _LAYOUTS), None)


def custom_layout(observation: Observation) -> Aspect:
    """Return the layout of every layer that has one, and of every operation on images."""
    requested = requested_layout(observation.variant)
    assert requested is not None, "only asked where there is one"
    wanted = _LAYOUTS[requested.lower()]
    layers = [layer for layer in observation.layers if layer.layout]
    compiled = [op for op in observation.programs if op.is_spatial and not op.backward]
    operations = compiled or [op for op in observation.graph if op.is_spatial and not op.compiled]
    other_layers = [layer for layer in layers if layer.layout != wanted]
    other_operations = [op for op in operations if _LAYOUTS.get(op.layout.lower()) != wanted]
    if not layers and not operations:
        return Aspect(name="layout", requested=requested, reason="No layer or operation with a layout was seen.")
    if other_layers:
        reason = f"{len(other_layers)} of {len(layers)} layers are {_layout_names(other_layers)}."
    elif other_operations:
        reason = _operations_reason(observation, operations, other_operations)
    else:
        return Aspect(name="layout", requested=requested, actual=requested)
    found = {layer.layout for layer in layers} | {_LAYOUTS.get(op.layout.lower(), op.layout) for op in operations}
    return Aspect(name="layout", requested=requested, actual=" and ".join(sorted(found)), reason=reason)


def _operations_reason(observation: Observation, operations: Sequence[Op], other: Sequence[Op]) -> str:
    names = layers_of(other, [layer.name for layer in observation.layers])
    where = f" ({_first(names)})" if names else ""
    cause = "Keras transposes there and back"
    if other[0].compiled:
        cause = "XLA chooses the layout itself"
    elif observation.variant["layout_optimizer"]:
        cause = "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"
    return f"{len(other)} of {len(operations)} operations on images ran in {other[0].layout}{where}: {cause}."


def layer_notes(observation: Observation) -> Iterable[str]:
    """Yield layers whose layout is not that of the others where none was requested, and how recurrent layers ran."""
    layouts = [layer.layout for layer in observation.layers if layer.layout]
    if len(set(layouts)) > 1 and requested_layout(observation.variant) is None:
        rare = min(set(layouts), key=layouts.count)
        others = [layer for layer in observation.layers if layer.layout == rare]
        yield f"Layouts differ: {len(others)} of {len(layouts)} layers are {_layout_names(others)}."
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
