"""Every implementation of every network against an independent one in numpy and float64.

Outputs, loss and the gradient of every weight, of each that can run here, XLA off and on. Recurrent networks in one
layer, three, both directions, with padding, dropout, several time steps per iteration; image networks in both layouts,
with each pooling, with biases. Gradients are compared with central differences, of image networks along one random
direction for each weight.

    python -m tests.numerics                      all, half a minute an implementation and setting of XLA
    python -m tests.numerics gru combined_input   of one workload, of one implementation
    python -m tests.numerics --gpu cudnn          on a GPU
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tests import cnn_answers
from tests.lstm_answers import A_GPU, CPU, Answers, answers, batch_of, random_model, variant_of
from workloads.catalog import workload as find_workload
from workloads.protocol import Value, Variant
from workloads.recurrent import RecurrentConfig
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of

Array = NDArray[np.float64]
State = tuple[Array, ...]
CellFunction = Callable[[Array, Array, State, Array, Array, Array], State]
"""From inputs [batch, width], what is read of the output before, the state, kernel, recurrent kernel and bias to the
next state, the output first."""

GOAL = 1e-4
SMALL = {
    workload: {"batch_size": 4, "seed": cnn_answers.SEED, **sizes} for workload, sizes in cnn_answers.SIZES.items()
}
SIZES: dict[str, Value] = {"batch_size": 4, "timesteps": 5, "units": 4, "features": 3}
BOTH: dict[str, Value] = {"layers": 2, "bidirectional": True}
DROPOUT: dict[str, Value] = {"dropout": 0.5, "batch_size": 5, "layers": 2}
"""At most two layers, and sizes that tell a batch from a width, for `patterned_dropout`."""


NETWORKS: dict[str, dict[str, dict[str, Value]]] = {
    "cnn10": {
        "average": {},
        "max": {"pooling": "max"},
        "strided": {"pooling": "strided"},
        "biases": {"bias": True, "channels": 5},
    },
    "wrn28-10": {"10 layers": {}, "16 layers": {"depth": 16}, "biases": {"bias": True}},
}
LAYOUTS = ("NHWC", "NCHW")


def cases(workload: str) -> dict[str, Mapping[str, Value]]:
    """Return the columns of the table, by their titles."""
    if networks := NETWORKS.get(workload):
        return {f"{at} {title}": {"layout": at, **given} for title, given in networks.items() for at in LAYOUTS}
    read = {field.name for field in fields(RECURRENT_LAYERS[workload].config)}
    # Two iterations of three steps, and a rest.
    several_steps = {
        f"{each.name} 3": {each.name: 3, "layers": 2, "timesteps": 7}
        for each in find_workload(workload).parameters
        if each.kind == "integer" and each.same_result and each.name in read
    }
    return {
        "1 layer": {},
        "3 layers": {"layers": 3},
        "both ways": BOTH,
        "padded right": {"sequence_lengths": "right_padded"},
        "padded left": {"sequence_lengths": "left_padded"},
        "right, both": {"sequence_lengths": "right_padded", **BOTH},
        "left, both": {"sequence_lengths": "left_padded", **BOTH},
        "all outputs": {"outputs": "all", "layers": 3},
        "all, right, both": {"outputs": "all", "sequence_lengths": "right_padded", **BOTH},
        "all, left, both": {"outputs": "all", "sequence_lengths": "left_padded", **BOTH},
        "all, left": {"outputs": "all", "sequence_lengths": "left_padded", "layers": 2},
        "dropout": DROPOUT,
        "dropout, right, both": {**DROPOUT, **BOTH, "sequence_lengths": "right_padded"},
        "recurrent dropout": {**DROPOUT, "recurrent_dropout": 0.25},
        **several_steps,
    }


def mask_of(batch: int, width: int, rate: float) -> Array:
    """Return what stands in place of a random mask, [batch, width]: a third is 0, the rest dropout's factor."""
    left_out = (np.arange(batch)[:, None] + np.arange(width)) % 3 == 0
    return np.where(left_out & (rate > 0), 0, 1 / (1 - rate))


@contextmanager
def patterned_dropout(batch: int) -> Iterator[None]:
    """Let TensorFlow's dropout, and Keras's with it, multiply by `mask_of`, wherever batch and width are."""
    import tensorflow as tf

    def drop(x: Any, rate: float, noise_shape: Any = None, **_: object) -> Any:
        """Drop; in a graph Keras gives the shape as a tensor."""
        shape = x.shape if noise_shape is None else tf.get_static_value(tf.convert_to_tensor(noise_shape))
        shape = [int(size) for size in shape]
        first, second = (size for size in shape if size > 2)
        mask = mask_of(batch, first + second - batch, rate)
        laid = mask if first == batch else mask.T
        return x * tf.constant(laid.reshape([size if size > 2 else 1 for size in shape]), x.dtype)

    with mock.patch.object(tf.nn, "dropout", drop), mock.patch.object(tf.nn.experimental, "stateless_dropout", drop):
        yield


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def _lstm_cell(inputs: Array, read: Array, state: State, kernel: Array, recurrent: Array, bias: Array) -> State:
    _, cell = state
    i, f, g, o = np.split(inputs @ kernel + read @ recurrent + bias[..., None, :], 4, axis=-1)
    cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(cell), cell


def _gru_cell(inputs: Array, read: Array, state: State, kernel: Array, recurrent: Array, bias: Array) -> State:
    (output,) = state
    from_input = np.split(inputs @ kernel + bias[..., :1, :], 3, axis=-1)
    from_output = np.split(read @ recurrent + bias[..., 1:, :], 3, axis=-1)
    update, reset = (_sigmoid(from_input[gate] + from_output[gate]) for gate in (0, 1))
    return (update * output + (1 - update) * np.tanh(from_input[2] + reset * from_output[2]),)


CELLS: Mapping[str, tuple[CellFunction, int]] = {"lstm": (_lstm_cell, 2), "gru": (_gru_cell, 1)}
"""By workload the cell, and the parts of its state."""


def layer_outputs(
    workload: str,
    weights: list[Array],
    inputs: Array,
    valid: NDArray[np.bool_],
    *,
    backwards: bool,
    rates: tuple[float, float] = (0.0, 0.0),
) -> Array:
    """Return all outputs of one direction of one layer, [batch, timesteps, units].

    Args:
        workload: Its cell.
        weights: Kernel, recurrent kernel and bias; of one, many values may come at once, on an axis before its own.
        inputs: [batch, timesteps, width], or likewise.
        valid: Which steps are no padding, [batch, timesteps]; padding leaves the state as it is.
        backwards: Whether the last step comes first.
        rates: Dropout of the inputs, and of the outputs that the recurrent product reads.
    """
    cell, parts = CELLS[workload]
    batch, steps = valid.shape
    of_inputs, of_outputs = (
        mask_of(batch, width, rate) for width, rate in zip((inputs.shape[-1], weights[1].shape[-2]), rates, strict=True)
    )
    state: State = (np.zeros((batch, weights[1].shape[-2])),) * parts
    outputs = []
    direction = -1 if backwards else 1
    for time in range(steps)[::direction]:
        after = cell(inputs[..., time, :] * of_inputs, state[0] * of_outputs, state, *weights)
        state = tuple(np.where(valid[:, time, None], new, old) for new, old in zip(after, state, strict=True))
        outputs.append(state[0])
    return np.stack(np.broadcast_arrays(*outputs[::direction]), axis=-2)


def model_outputs(
    workload: str,
    config: RecurrentConfig,
    weights: list[Array],
    inputs: Array,
    valid: NDArray[np.bool_],
    *,
    training: bool = False,
) -> Array:
    """Return the outputs of the whole model, [batch, 1], or of all steps [batch, timesteps, 1], 0 at padding.

    Args:
        workload: Its cell.
        config: Its sizes.
        weights: All weights, the head's last; of one, many values may come at once.
        inputs: Sequences [batch, timesteps, features].
        valid: Which steps are no padding, [batch, timesteps].
        training: Whether dropout applies.
    """
    rates = (config.dropout, config.recurrent_dropout) if training else (0.0, 0.0)
    for part in range(0, 3 * config.parts, 3 * config.directions):
        found = [
            layer_outputs(workload, weights[at : at + 3], inputs, valid, backwards=at > part, rates=rates)
            for at in range(part, part + 3 * config.directions, 3)
        ]
        inputs = np.concatenate(np.broadcast_arrays(*found), axis=-1)
    kernel, bias = weights[-2], weights[-1][..., None, :]
    if config.all_outputs:
        return np.where(valid[..., None], inputs @ kernel[..., None, :, :] + bias[..., None, :], 0)
    ends = [outputs[..., -number, :] for number, outputs in zip((1, 0), found, strict=False)]
    return np.concatenate(np.broadcast_arrays(*ends), axis=-1) @ kernel + bias


def reference(workload: str, variant: Variant) -> Answers:
    """Return what a variant with random weights must answer; gradients by central differences."""
    if workload in NETWORKS:
        return cnn_answers.numpy_answers(workload, variant)
    config, made = config_of(workload, variant), random_model(variant, workload)
    batch, targets = batch_of(variant)
    sequences, lengths = (part.numpy() for part in batch) if isinstance(batch, tuple) else (batch.numpy(), None)
    steps = np.arange(sequences.shape[1])[None]
    if lengths is None:
        valid = np.ones(sequences.shape[:2], bool)
    elif variant["sequence_lengths"] == "left_padded":
        valid = steps >= steps.size - lengths[:, None]
    else:
        valid = steps < lengths[:, None]
    weights = [weight.numpy().astype(np.float64) for weight in made.weights]

    def outputs(weights: list[Array], *, training: bool = False) -> Array:
        return model_outputs(workload, config, weights, sequences.astype(np.float64), valid, training=training)

    def loss(weights: list[Array]) -> Array:
        errors = (outputs(weights, training=True) - targets.numpy()) ** 2
        if config.all_outputs:
            errors = np.where(valid[..., None], errors, 0).sum(-2) / valid.sum(1, keepdims=True)
        return np.asarray(errors.mean((-2, -1)))

    return Answers(outputs(weights), float(loss(weights)), _differences(loss, weights))


def error_of(variant: Variant, workload: str, expected: Answers, *, traced: bool = True) -> float:
    """Return the worst error of a variant's answers; what they drop is `mask_of`'s."""
    if workload in NETWORKS:
        return worst_error(cnn_answers.with_slopes(cnn_answers.answers(workload, variant)), expected)
    with patterned_dropout(int(variant["batch_size"])):
        return worst_error(answers(variant, workload, traced=traced), expected)


def _differences(loss: Callable[[list[Array]], Array], weights: list[Array], step: float = 1e-5) -> list[Array]:
    """Return the gradient of every weight by central differences, those of all elements of a weight at once."""
    gradients = []
    for number, weight in enumerate(weights):
        change = step * np.eye(weight.size).reshape(-1, *weight.shape)
        above, below = (loss([*weights[:number], weight + sign * change, *weights[number + 1 :]]) for sign in (1, -1))
        gradients.append(((above - below) / (2 * step)).reshape(weight.shape))
    return gradients


def worst_error(found: Answers, expected: Answers) -> float:
    """Return the largest difference of a tensor as a share of its largest number: of outputs, loss and gradients."""
    pairs = [
        (found.outputs, expected.outputs),
        (np.array(found.loss), np.array(expected.loss)),
        *zip(found.gradients, expected.gradients, strict=True),
    ]
    return max(float(np.abs(mine - theirs).max() / np.abs(theirs).max()) for mine, theirs in pairs)


@dataclass(frozen=True)
class Row:
    """An implementation with XLA on or off, and what it is compared in."""

    workload: str
    implementation: str
    xla: bool

    def variant(self, given: Mapping[str, Value], *, gpu: bool) -> Variant | None:
        """Return the variant, or None where it cannot run, or cuDNN draws what is dropped."""
        if self.implementation == "cudnn_stack" and "dropout" in given:
            return None
        settings = {
            **SMALL.get(self.workload, SIZES),
            **given,
            "implementation": self.implementation,
            "xla": self.xla,
            "gpus": int(gpu),
        }
        return variant_of(A_GPU if gpu else CPU, self.workload, **settings)


def rows(names: list[str]) -> Iterator[Row]:
    """Yield every row of the named workloads and implementations; no name is all."""
    for workload in (*RECURRENT_LAYERS, *NETWORKS):
        (choices,) = (each.choices for each in find_workload(workload).parameters if each.name == "implementation")
        for each in choices:
            if all(name in (workload, each.value) for name in names):
                yield from (Row(workload, each.value, xla) for xla in (False, True))


def _print_table(names: list[str], *, gpu: bool) -> int:
    expected: dict[tuple[str, str], Answers] = {}
    errors: list[float] = []
    for row in rows(names):
        print(f"{row.workload:4} {row.implementation:15} {'XLA' if row.xla else '   '}", end="", flush=True)
        for title, given in cases(row.workload).items():
            variant = row.variant(given, gpu=gpu)
            if variant is None:
                continue
            key = (row.workload, title)
            if key not in expected:
                expected[key] = reference(row.workload, variant)
            errors.append(error_of(variant, row.workload, expected[key]))
            print(f"  {title} {errors[-1]:.1e}", end="", flush=True)
        print()
    print(f"{len(errors)} combinations, the worst relative error {max(errors, default=0.0):.1e}, at most {GOAL:.0e}")
    return 0 if errors and max(errors) <= GOAL else 1


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.numerics", description=__doc__)
    parser.add_argument("names", nargs="*", help="workloads and implementations; none is all")
    parser.add_argument("--gpu", action="store_true", help="compute on the first GPU, not on the CPU")
    given = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)  # others measure on the card, too
    return _print_table(given.names, gpu=given.gpu)


if __name__ == "__main__":
    sys.exit(_main())
