"""What a trained LSTM answers to sequences it has not seen, and the file that keeps both beside its weights."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads import weights
from workloads.compiled import compiled
from workloads.data import adding_problem
from workloads.lstm.config import config_of
from workloads.lstm.layout import shapes
from workloads.protocol import Variant
from workloads.recipe import Model
from workloads.runtime import Replicas, compute_dtype
from workloads.weights import SavedWeights

_UNSEEN = 1_000_000
"""The number of a batch that no run comes to."""

_EXAMPLES = 8
_MOST_BYTES = 16 * 2**20


def save(model: Model, variant: Variant, replicas: Replicas, path: Path) -> None:
    """Write a model's weights and its answers to a few sequences; raises `OSError`.

    The sequences are stored too: the same seed gives other ones on another kind of device.
    """
    sequences, lengths = _unseen(variant)
    saved = SavedWeights(
        variant=variant,
        weights=dict(zip(shapes(config_of(variant)), (weight.numpy() for weight in model.weights), strict=True)),
        sequences=sequences,
        lengths=lengths,
        outputs=answers(model, sequences, lengths, variant, replicas),
    )
    weights.write(saved, path)


def _unseen(variant: Variant) -> tuple[weights.Array, NDArray[np.int64] | None]:
    """A few sequences of the run's problem, and their lengths where those differ."""
    timesteps, features = int(variant["timesteps"]), int(variant["features"])
    count = max(1, min(_EXAMPLES, _MOST_BYTES // (4 * timesteps * features)))
    padding = str(variant["sequence_lengths"])
    with tf.device("CPU:0"):
        inputs, _ = adding_problem(int(variant["seed"]), _UNSEEN, count, timesteps, features, padding)
    sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
    return sequences.numpy(), None if lengths is None else lengths.numpy()


def answers(model: Model, sequences: Any, lengths: Any, variant: Variant, replicas: Replicas) -> weights.Array:
    """A model's outputs [examples, 1] in inference, computed on its first device in its variant's precision."""
    with tf.device(replicas.devices[0]):
        inputs = tf.cast(tf.constant(sequences), compute_dtype(str(variant["precision"])))
        forward = compiled(model.outputs, xla=bool(variant["xla"]))
        return forward(inputs if lengths is None else (inputs, tf.constant(lengths))).numpy()  # type: ignore[no-any-return]
