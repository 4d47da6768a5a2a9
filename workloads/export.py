"""A plain Keras model of saved weights, which loads and infers without this program and without a GPU."""

from collections.abc import Sequence
from pathlib import Path

import keras

from workloads.errors import RefusedError
from workloads.portability import compare
from workloads.protocol import Compared, Variant
from workloads.weights import SavedWeights


def export_model(saved: SavedWeights, paths: Sequence[Path]) -> Compared:
    """Write the model to each path, a .keras file or the folder of a SavedModel, once it answers as the trained one.

    Raises `RefusedError` where it does not, and `OSError`.
    """
    model = plain_model(saved.variant, saved.sequences.shape[1])
    model.set_weights(list(saved.weights.values()))
    found = compare(saved, model.predict_on_batch(saved.sequences))
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


def plain_model(variant: Variant, timesteps: int) -> keras.Model:
    """Input, LSTM layers, a dense layer of one unit: nothing but Keras's own layers, in float32.

    Keras may use cuDNN where there is a GPU and need not; for sequences that are padded at their start cuDNN cannot be
    used. Steps whose features are all zero are padding, where the run's sequences had any.
    """
    padding, layers = variant["sequence_lengths"], int(variant["layers"])
    use_cudnn = "auto" if padding != "left_padded" else False
    inputs = tensor = keras.Input((timesteps, int(variant["features"])), name="sequences")
    if padding != "fixed":
        tensor = keras.layers.Masking()(tensor)
    for depth in range(layers):
        forward, backward = (
            keras.layers.LSTM(
                int(variant["units"]),
                activation=str(variant["activation"]),
                return_sequences=depth < layers - 1,
                go_backwards=backwards,
                use_cudnn=use_cudnn,
            )
            for backwards in (False, True)
        )
        layer = keras.layers.Bidirectional(forward, backward_layer=backward) if variant["bidirectional"] else forward
        tensor = layer(tensor)
    return keras.Model(inputs, keras.layers.Dense(1)(tensor))
