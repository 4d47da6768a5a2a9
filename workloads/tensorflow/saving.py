"""Saves trained models: weights with outputs for a few inputs, and plain Keras models with them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from workloads import cnn, weights
from workloads.cifar10 import ImageData
from workloads.errors import RefusedError
from workloads.job_protocol import OutputDifference
from workloads.protocol import RunSpec, Variant
from workloads.recurrent_layers import config_of
from workloads.tensorflow.cnn.layers import create_keras_layer
from workloads.tensorflow.recipe import Model, compile_function
from workloads.tensorflow.runtime import Replicas, compute_dtype
from workloads.weights import Reference, SavedWeights, WeightsKeeper, compare_outputs


def export_model(saved: SavedWeights, paths: Sequence[Path]) -> OutputDifference:
    """Write the model to each path, a .keras file or a SavedModel folder, if its outputs equal the trained model's.

    Raises:
        RefusedError: The outputs differ; nothing is written.
        OSError: A path cannot be written.
    """
    if saved.reference.scaling is None:
        model = plain_model(saved.spec, saved.reference.inputs.shape[1])
        model.set_weights(list(saved.weights.values()))
    else:
        model = plain_image_model(saved, *saved.reference.scaling)
    difference = compare_outputs(saved, model.predict_on_batch(saved.reference.inputs))
    if difference.max_difference > difference.tolerance:
        raise RefusedError(
            f"The Keras model's answers differ from the trained model's by up to {difference.max_difference:.2g}, more "
            f"than rounding explains ({difference.tolerance:.2g}); nothing was written. The weights were changed since "
            "they were saved, or this Keras computes otherwise."
        )
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".keras":
            model.save(path)
        else:
            model.export(path)
    return difference


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


def plain_image_model(saved: SavedWeights, mean: weights.Array, deviation: weights.Array) -> keras.Model:
    """Return scaling and the network's layers, all Keras's own, channels last, in float32, with their weights.

    The model's inputs are images before scaling, as in the reference: it subtracts each colour's mean, then divides by
    the deviation.
    """
    inputs = keras.Input(saved.reference.inputs.shape[1:], name="images")
    scaled = keras.layers.Rescaling((1 / deviation).tolist(), (-mean / deviation).tolist())(inputs)
    layers: dict[str, keras.Layer] = {}

    def apply(layer: cnn.Layer, images: Any) -> Any:
        layers[layer.name] = create_keras_layer(layer, "NHWC")
        return layers[layer.name](images)

    net = cnn.net_of(saved.spec.workload, saved.spec.variant)
    outputs = cnn.evaluate(net, scaled, apply, lambda body, shortcut: keras.layers.Add()([body, shortcut]))
    model = keras.Model(inputs, outputs)
    for name, layer in layers.items():
        layer.set_weights([value for key, value in saved.weights.items() if key.rpartition("/")[0] == name])
    return model


def make_keeper(model: Model, replicas: Replicas, stored: ImageData | None) -> WeightsKeeper:
    """Return a keeper of a model's weights; running statistics are averaged over the replicas."""

    def outputs(spec: RunSpec, values: Sequence[weights.Array], reference: Reference) -> weights.Array:
        load_weights(model, values)
        return model_outputs(model, reference, spec.variant, replicas)

    return WeightsKeeper(lambda: (variable.read_value() for variable in saved_variables(model)), outputs, stored)


def saved_variables(model: Model) -> list[tf.Variable]:
    """Return the variables to save of a model: its weights, then any running statistics."""
    return [*model.weights, *getattr(model, "statistics", ())]


def load_weights(model: Model, values: Iterable[weights.Array]) -> None:
    """Assign saved values to a model, in the order of `saved_variables`."""
    for variable, value in zip(saved_variables(model), values, strict=True):
        variable.assign(value)


def model_outputs(model: Model, reference: Reference, variant: Variant, replicas: Replicas) -> weights.Array:
    """Return a model's outputs in inference, in its variant's precision, on the first replica's device.

    The inputs are those of the reference; images are scaled and laid out first.
    """
    with tf.device(replicas.devices[0]):
        inputs = tf.cast(tf.constant(reference.model_inputs(variant)), compute_dtype(str(variant["precision"])))
        forward = compile_function(model.outputs, xla=bool(variant["xla"]))
        lengths = reference.lengths
        return forward(inputs if lengths is None else (inputs, tf.constant(lengths))).numpy()  # type: ignore[no-any-return]
