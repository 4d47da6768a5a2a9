"""The built-in workloads as functions of JAX: recurrent stacks and image networks, with the weights of every framework.

Weights are float32 lists in the order and layouts of `workloads.seeding`. A function casts them to the type of its
inputs, and computes one device's share of a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import rnn
from jax.experimental.layout import Layout, with_layout_constraint

from workloads import cnn, recurrent
from workloads.cnn import NORM_EPSILON, NORM_MOMENTUM, Conv, Dense, GlobalPool, Norm, Pool, Relu, net_of
from workloads.protocol import Variant
from workloads.recurrent import RecurrentConfig
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of
from workloads.seeding import Weight, image_weights, recurrent_weights

Arrays = Sequence[Any]
Key = Any


def exact(variant: Variant) -> lax.Precision | None:
    """Return the precision that keeps products of float32 in float32; None lets XLA use TF32."""
    return None if variant["precision"] == "tf32" else lax.Precision.HIGHEST


class Passed(NamedTuple):
    """The outputs of a forward pass in float32, and the running statistics after it."""

    outputs: Any
    statistics: Arrays


class RecurrentModel:
    """A stack of recurrent layers and a dense head in float32, on the last output or on all.

    `standard` is `lax.scan` over the time steps, `combined_input` a scan with as few products in its loop as possible,
    `cudnn` one call of cuDNN per layer.
    """

    def __init__(self, workload: str, variant: Variant) -> None:
        config = self._config = config_of(workload, variant)
        self._implementation = variant["implementation"]
        self._exact = exact(variant)
        self.names = list(recurrent.weight_shapes(config))
        self.weights: list[Weight] = recurrent_weights(config)
        self.statistics: list[Weight] = []

    def forward(self, weights: Arrays, statistics: Arrays, inputs: Any, key: Key | None) -> Passed:
        """Return the outputs: [batch, 1], or for all steps [batch, timesteps, 1] with 0 at padding.

        Inputs are sequences, or (sequences, lengths [batch]). With a key it is a training pass, with dropout.
        """
        config, valid = self._config, self._valid(inputs)
        outputs = (inputs if valid is None else inputs[0]).swapaxes(0, 1)  # time first, as a scan requires
        weights_left = iter(weights)
        for depth in range(config.layers):
            cast_weights = (weight.astype(outputs.dtype) for weight in weights_left)
            directions = [list(islice(cast_weights, 3)) for _ in range(config.directions)]
            keys = [None if key is None else jax.random.fold_in(key, 3 * depth + number) for number in range(3)]
            outputs = _dropped(outputs, (1, *outputs.shape[1:]), config.dropout, keys[0])
            with jax.named_scope(f"layer{depth}"):
                if self._implementation == "cudnn":
                    outputs = _cudnn_layer(config, outputs, directions)
                else:
                    combined = self._implementation == "combined_input"
                    outputs = _looped_layer(config, outputs, valid, directions, keys[1:], combined=combined)
        if not config.all_outputs:
            ends = [outputs[-1, :, : config.units]] + ([outputs[0, :, config.units :]] if config.bidirectional else [])
            outputs = jnp.concatenate(ends, -1)
        kernel, bias = weights_left
        answers = jnp.matmul(outputs.astype(jnp.float32), kernel, precision=self._exact) + bias
        if config.all_outputs:
            answers = (answers if valid is None else answers * valid[..., None]).swapaxes(0, 1)
        return Passed(answers, statistics)

    def loss(self, answers: Any, inputs: Any, targets: Any) -> Any:
        """Return the mean squared error; for all outputs, each sequence's mean over its true steps, averaged."""
        valid, errors = self._valid(inputs), (answers - targets) ** 2
        if valid is None or not self._config.all_outputs:
            return errors.mean()
        valid = valid.T
        return ((errors * valid[..., None]).sum(1) / valid.sum(1, keepdims=True)).mean()

    def _valid(self, inputs: Any) -> Any | None:
        """Return which steps of sequences are not padding, [timesteps, batch]; None without padding."""
        if not isinstance(inputs, tuple):
            return None
        sequences, lengths = inputs
        timesteps = sequences.shape[1]
        positions = jnp.arange(timesteps)[:, None]
        return positions >= timesteps - lengths if self._config.left_padded else positions < lengths


def _dropped(values: Any, shape: Sequence[int], share: float, key: Key | None) -> Any:
    """Return values with a share of them zeroed by a mask of that shape; unchanged without a share or a key."""
    if not share or key is None:
        return values
    return values * (jax.random.bernoulli(key, 1 - share, shape) / (1 - share)).astype(values.dtype)


def _looped_layer(
    config: RecurrentConfig,
    inputs: Any,
    valid: Any | None,
    directions: Sequence[Arrays],
    keys: Sequence[Key | None],
    *,
    combined: bool,
) -> Any:
    outputs = []
    for number, (weights, key) in enumerate(zip(directions, keys, strict=False)):
        with jax.named_scope(recurrent.DIRECTIONS[number]):  # evidence counts loops by name
            outputs.append(_loop(config, inputs, valid, weights, key, backwards=bool(number), combined=combined))
    return jnp.concatenate(outputs, -1)


def _loop(
    config: RecurrentConfig,
    inputs: Any,
    valid: Any | None,
    weights: Arrays,
    key: Key | None,
    *,
    backwards: bool,
    combined: bool,
) -> Any:
    """Return the outputs [timesteps, batch, units] of one direction in the order of time; padding changes no state.

    `combined` moves each product that depends on no other step out of the loop, and computes it for all steps together.
    """
    kernel, recurrent_kernel, bias = weights
    input_bias, recurrent_bias = bias if config.bias_count > 1 else (bias, None)
    zeros = jnp.zeros((inputs.shape[1], config.units), inputs.dtype)
    mask = _dropped(jnp.ones_like(zeros), zeros.shape, config.recurrent_dropout, key)
    step = _lstm_step if config.keras_name == "LSTM" else _gru_step

    def enter(features: Any) -> Any:
        return features @ kernel + input_bias

    def read(outputs: Any) -> Any:
        return outputs * mask if config.recurrent_dropout else outputs

    def scan(inputs: Any, recurrent_kernel: Any, biases: Any | None) -> Any:
        def cell(state: Arrays, step_inputs: tuple[Any, Any | None, Any | None]) -> tuple[Arrays, Any]:
            features, step_bias, step_valid = step_inputs
            product = read(state[0]) @ recurrent_kernel
            next_state = step(
                config,
                features if combined else enter(features),
                product if step_bias is None else product + step_bias,
                state,
            )
            if step_valid is not None:
                next_state = tuple(
                    jnp.where(step_valid[:, None], *pair) for pair in zip(next_state, state, strict=True)
                )
            return next_state, next_state[0]

        state, steps = (zeros,) * config.state_parts, (inputs, biases, valid)
        return lax.scan(cell, state, steps, reverse=backwards, unroll=config.unroll)[1]

    def lagged(outputs: Any) -> Any:
        return read(jnp.concatenate([outputs[1:], zeros[None]] if backwards else [zeros[None], outputs[:-1]]))

    biases = None
    if recurrent_bias is not None:
        biases = jnp.broadcast_to(recurrent_bias, (*inputs.shape[:2], *recurrent_bias.shape))
    if combined:
        return _with_combined_gradient(scan, lagged)(enter(inputs), recurrent_kernel, biases)
    return scan(inputs, recurrent_kernel, biases)


def _with_combined_gradient(scan: Callable[..., Any], lagged: Callable[[Any], Any]) -> Any:
    """Return the scan with the recurrent kernel's gradient as one product after its loop, not a sum over the steps.

    It is the product of `lagged`'s result and the gradients of the recurrent products. These equal the gradients of
    what each step adds to its product: the biases, or without biases the input products.
    """

    def forward(sums: Any, recurrent_kernel: Any, biases: Any | None) -> tuple[Any, tuple[Callable[..., Any], Any]]:
        outputs, pull_back = jax.vjp(lambda sums, biases: scan(sums, recurrent_kernel, biases), sums, biases)
        return outputs, (pull_back, outputs)

    def backward(saved: tuple[Callable[..., Any], Any], slopes: Any) -> tuple[Any, Any, Any | None]:
        pull_back, outputs = saved
        of_sums, of_biases = pull_back(slopes)
        of_products = of_sums if of_biases is None else of_biases
        return of_sums, jnp.einsum("tbu,tbg->ug", lagged(outputs), of_products), of_biases

    combined_scan = jax.custom_vjp(scan)
    combined_scan.defvjp(forward, backward)
    return combined_scan


def _activation(config: RecurrentConfig, values: Any) -> Any:
    return jax.nn.relu(values) if config.activation == "relu" else jnp.tanh(values)


def _lstm_step(config: RecurrentConfig, entering: Any, repeated: Any, state: Arrays) -> tuple[Any, ...]:
    """Return output and memory from the products of the input and of the last output."""
    enter, forget, candidate, leave = jnp.split(entering + repeated, config.gates, -1)
    memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * _activation(config, candidate)
    return jax.nn.sigmoid(leave) * _activation(config, memory), memory


def _gru_step(config: RecurrentConfig, entering: Any, repeated: Any, state: Arrays) -> tuple[Any, ...]:
    entering, repeated = (jnp.split(product, config.gates, -1) for product in (entering, repeated))
    update, reset = (jax.nn.sigmoid(jnp.add(*pair)) for pair in zip(entering[:2], repeated[:2], strict=True))
    return (update * state[0] + (1 - update) * _activation(config, entering[2] + reset * repeated[2]),)


def _cudnn_layer(config: RecurrentConfig, inputs: Any, directions: Sequence[Arrays]) -> Any:
    """Return the outputs of one LSTM layer, [timesteps, batch, directions * units].

    cuDNN reads all matrices transposed, followed by the biases, of which each direction has a second one that Keras
    lacks.
    """
    timesteps, batch, features = inputs.shape
    matrices = [matrix.T for kernel, recurrent_kernel, _ in directions for matrix in (kernel, recurrent_kernel)]
    biases = [values for *_, bias in directions for values in (bias, jnp.zeros_like(bias))]
    zeros = jnp.zeros((config.directions, batch, config.units), inputs.dtype)
    flat_weights = jnp.concatenate([values.ravel() for values in (*matrices, *biases)])
    outputs, _, _ = rnn.lstm(
        _row_major(inputs.swapaxes(0, 1)), zeros, zeros, flat_weights,
        jnp.full([batch], timesteps, jnp.int32), features, config.units, 1, 0.0, config.bidirectional,
    )  # fmt: skip
    return _row_major(outputs).swapaxes(0, 1)


def _row_major(values: Any) -> Any:
    """Return values whose memory order, and whose gradients', is that of their axes.

    JAX's calls of cuDNN specify no layout: XLA passes gradients with the steps first, but cuDNN reads them batch first.
    """
    return with_layout_constraint(values, Layout(tuple(range(values.ndim))))


class ImageModel:
    """An image network of `workloads.cnn` on images in the layout of the variant."""

    def __init__(self, workload: str, variant: Variant) -> None:
        self._net = net_of(workload, variant)
        self._layout = str(variant["layout"])
        self._exact = exact(variant)
        self.names = cnn.weight_names(self._net)
        self.weights: list[Weight] = []
        self.statistics: list[Weight] = []
        for layer, values in image_weights(self._net, int(variant["seed"])):
            self.weights += values
            if isinstance(layer, Norm):
                self.statistics += [np.zeros(layer.channels, np.float32), np.ones(layer.channels, np.float32)]

    def forward(self, weights: Arrays, statistics: Arrays, images: Any, key: Key | None) -> Passed:
        """Return the logits [batch, 10]. With a key it is a training pass, in which norms use the batch's moments."""
        training, weights_left, running = key is not None, iter(weights), iter(statistics)
        updated: list[Any] = []

        def apply(layer: cnn.Layer, images: Any) -> Any:
            with jax.named_scope(layer.name):  # evidence identifies layers by name
                if not isinstance(layer, Norm):
                    return self._layer(layer, images, weights_left)
                images, *moments = self._norm(images, weights_left, running, training=training)
                updated.extend(moments)
                return images

        return Passed(cnn.evaluate(self._net, images, apply), updated)

    def loss(self, logits: Any, _inputs: Any, classes: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), classes[:, None], 1).mean()

    def _layer(self, layer: cnn.Layer, images: Any, weights: Iterator[Any]) -> Any:
        match layer:
            case Conv():
                return self._convolution(layer, images, weights)
            case Relu():
                return jax.nn.relu(images)
            case Pool():
                return self._pool(layer, images)
            case GlobalPool():
                return images.mean(self._axes("HW"))
            case Dense():
                return jnp.matmul(images.astype(jnp.float32), next(weights), precision=self._exact) + next(weights)
        raise AssertionError(layer)

    def _axes(self, letters: str) -> tuple[int, ...]:
        return tuple(self._layout.index(letter) for letter in letters)

    def _by_channel(self, values: Any) -> Any:
        return jnp.expand_dims(values, self._axes("NHW"))

    def _convolution(self, layer: Conv, images: Any, weights: Iterator[Any]) -> Any:
        numbers, strides = (self._layout, "HWIO", self._layout), (layer.stride,) * 2
        kernel = next(weights).astype(images.dtype)
        images = lax.conv_general_dilated(images, kernel, strides, "SAME", dimension_numbers=numbers)
        return images + self._by_channel(next(weights).astype(images.dtype)) if layer.bias else images

    def _pool(self, layer: Pool, images: Any) -> Any:
        window = tuple(2 if letter in "HW" else 1 for letter in self._layout)
        if layer.method == "max":
            return lax.reduce_window(images, -jnp.inf, lax.max, window, window, "VALID")
        return lax.reduce_window(images, 0.0, lax.add, window, window, "VALID") / 4

    def _norm(
        self, images: Any, weights: Iterator[Any], running: Iterator[Any], *, training: bool
    ) -> tuple[Any, Any, Any]:
        """Return images of mean 0 and variance 1, scaled and shifted, and the running mean and biased variance."""
        scale, offset, mean, variance = next(weights), next(weights), next(running), next(running)
        values = images.astype(jnp.float32)
        statistics = mean, variance
        if training:
            axes = self._axes("NHW")
            mean = values.mean(axes)
            variance = jnp.maximum((values**2).mean(axes) - mean**2, 0.0)  # both sums in one pass over the images
            statistics = _moved(statistics[0], mean), _moved(statistics[1], variance)
        factor = scale * lax.rsqrt(variance + NORM_EPSILON)
        normal = (values - self._by_channel(mean)) * self._by_channel(factor) + self._by_channel(offset)
        return normal.astype(images.dtype), *statistics


def _moved(average: Any, value: Any) -> Any:
    return NORM_MOMENTUM * average + (1 - NORM_MOMENTUM) * value


Model = RecurrentModel | ImageModel


def build_model(workload: str, variant: Variant) -> Model:
    return (RecurrentModel if workload in RECURRENT_LAYERS else ImageModel)(workload, variant)
