"""Saves trained recurrent layers: weights with outputs to a few sequences, and a plain Keras model of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads import weights
from workloads.errors import RefusedError
from workloads.job_protocol import OutputDifference
from workloads.protocol import RunSpec, Variant
from workloads.recurrent_layers import config_of
from workloads.tensorflow.recipe import Model, compile_function
from workloads.tensorflow.runtime import Replicas, compute_dtype
from workloads.tensorflow.synthetic import adding_problem
from workloads.weights import SavedWeights, compare_outputs


def export_model(saved: SavedWeights, paths: Sequence[Path]) -> OutputDifference:
    """Write the model to each path, a .keras file or the folder of a SavedModel, once its outputs are as trained.

    Raises:
        RefusedError: The outputs differ; nothing is written.
        OSError: A path cannot be written.
    """
    model = plain_model(saved.spec, saved.sequences.shape[1])
    model.set_weights(list(saved.weights.values()))
    found = compare_outputs(saved, model.predict_on_batch(saved.sequences))
    if found.max_difference > found.tolerance:
        raise RefusedError(
            f"The Keras model's answers differ from the trained model's by up to {found.max_difference:.2g}, more than "
            f"rounding explains ({found.tolerance:.2g}); nothing was written. The weights were changed since they were "
            "saved, or this Keras computes otherwise."
        )
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".keras":
            model.save(path)
        else:
            model.export(path)
    return found


def plain_model(spec: RunSpec, timesteps: int) -> keras.Model:
    """Return input, recurrent layers and a dense layer of one unit, all Keras's own, in float32.

    Keras may use cuDNN on a GPU, except for sequences that are padded at their start, which cuDNN cannot read. Steps
    whose features are all zero are padding if the run's sequences had any.
    """
    variant, config = spec.variant, config_of(spec.workload, spec.variant)
    make_layer, layers = getattr(keras.layers, config.keras_name), config.layers
    use_cudnn = False if config.left_padded else "auto"
    inputs = tensor = keras.Input((timesteps, int(variant["features"])), name="sequences")
    if config.sequence_lengths != "fixed":
        tensor = keras.layers.Masking()(tensor)
    for depth in range(layers):
        forward, backward = (
            make_layer(
                int(variant["units"]),
                activation=str(variant["activation"]),
                return_sequences=config.all_outputs or depth < layers - 1,
                go_backwards=backwards,
                use_cudnn=use_cudnn,
            )
            for backwards in (False, True)
        )
        layer = keras.layers.Bidirectional(forward, backward_layer=backward) if variant["bidirectional"] else forward
        tensor = layer(tensor)
    return keras.Model(inputs, keras.layers.Dense(1)(tensor))


_REFERENCE_BATCH = 1_000_000
"""The number of a batch that no run comes to."""

_REFERENCE_EXAMPLES = 8
_MAX_REFERENCE_BYTES = 16 * 2**20


def save_weights(model: Model, spec: RunSpec, replicas: Replicas, path: Path) -> None:
    """Write a model's weights and its outputs to a few sequences; raises `OSError`.

    The sequences are stored too: the same seed gives other ones on another kind of device.

    Args:
        model: The trained model.
        spec: Its workload and variant.
        replicas: The replicas that trained it.
        path: The file to write.
    """
    sequences, lengths = _reference_inputs(spec.variant)
    saved = SavedWeights(
        spec=spec,
        weights=dict(zip(model.weight_names, (weight.numpy() for weight in model.weights), strict=True)),
        sequences=sequences,
        lengths=lengths,
        outputs=model_outputs(model, sequences, lengths, spec.variant, replicas),
    )
    weights.write(saved, path)


def _reference_inputs(variant: Variant) -> tuple[weights.Array, NDArray[np.int64] | None]:
    """Return a few sequences of the run's problem, and their lengths if those differ."""
    timesteps, features = int(variant["timesteps"]), int(variant["features"])
    count = max(1, min(_REFERENCE_EXAMPLES, _MAX_REFERENCE_BYTES // (4 * timesteps * features)))
    padding = str(variant["sequence_lengths"])
    with tf.device("CPU:0"):
        inputs, _ = adding_problem(int(variant["seed"]), _REFERENCE_BATCH, count, timesteps, features, padding)
    sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
    return sequences.numpy(), None if lengths is None else lengths.numpy()


def model_outputs(model: Model, sequences: Any, lengths: Any, variant: Variant, replicas: Replicas) -> weights.Array:
    """Return a model's outputs in inference, in its variant's precision.

    Args:
        model: The model.
        sequences: [examples, timesteps, features].
        lengths: Their true steps, [examples]; None if all are.
        variant: The model's variant.
        replicas: The first one's device computes.
    """
    with tf.device(replicas.devices[0]):
        inputs = tf.cast(tf.constant(sequences), compute_dtype(str(variant["precision"])))
        forward = compile_function(model.outputs, xla=bool(variant["xla"]))
        return forward(inputs if lengths is None else (inputs, tf.constant(lengths))).numpy()  # type: ignore[no-any-return]
