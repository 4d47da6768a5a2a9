"""A user's model made ready for XLA, which compiles the whole step or refuses it."""

from collections.abc import Sequence
from typing import Any

import keras

from workloads.errors import OwnWorkloadError


def prepare_for_xla(model: keras.Model, place: str) -> None:
    """Takes cuDNN from layers that leave the choice to Keras (`use_cudnn="auto"`), since XLA has none of its kernels.

    Keras's `fit` does the reverse: it leaves out XLA (keras.io/api/layers/recurrent_layers/lstm). Raises
    `OwnWorkloadError` that names the layers which say of themselves that they cannot be compiled.
    """
    # No public member reaches layers within wrappers; Keras asks in this way whether a model can be compiled.
    layers = model._flatten_layers(include_self=False)  # noqa: SLF001
    free = [layer for layer in layers if getattr(layer, "use_cudnn", False) == "auto"]
    for layer in free:
        layer.use_cudnn = False
    if free:
        print(f"XLA compiles no cuDNN layers, so {_names(free)} ran with use_cudnn=False.", flush=True)  # noqa: T201
    refusing = [layer for layer in layers if not layer.supports_jit and layer not in free]
    if refusing:
        raise OwnWorkloadError(f"{place}: XLA cannot compile {_names(refusing)}; choose xla=false or other layers.")


def _names(layers: Sequence[Any]) -> str:
    return ", ".join(f"{layer.name} ({type(layer).__name__})" for layer in layers)
