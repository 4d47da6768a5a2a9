"""The same training step written by hand, with nothing of the program: what the program's runs are held against.

    python -m tests.gpu.bare_cnn MODEL BATCH PRECISION[,PRECISION] LAYOUT[,LAYOUT]

MODEL is cnn10 or wrn28-10. One `tf.function` of TensorFlow's own operations in the layout given: fused batch norm that
moves its statistics, dynamic loss scaling in float16, momentum. The layout optimizer is off. One JSON line a case;
milliseconds a step are the median of five timings.
"""

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.gpu.timing import median_ms

DTYPES = {"float32": tf.float32, "tf32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}


class Net:
    """The variables of a network in order of use, and its forward pass as plain functions."""

    def __init__(self, layout: str, dtype: tf.DType) -> None:
        self.layout, self.dtype = layout, dtype
        self.weights: list[tf.Variable] = []
        self.statistics: list[tuple[tf.Variable, tf.Variable]] = []

    def weight(self, shape: tuple[int, ...], scale: float) -> tf.Variable:
        self.weights.append(tf.Variable(scale * tf.random.normal(shape)))
        return self.weights[-1]

    def conv(self, width_in: int, width: int, size: int = 3, stride: int = 1) -> Callable[[Any], Any]:
        kernel = self.weight((size, size, width_in, width), (2 / (size * size * width_in)) ** 0.5)
        return lambda x: tf.nn.conv2d(x, tf.cast(kernel, self.dtype), stride, "SAME", data_format=self.layout)

    def norm_relu(self, channels: int) -> Callable[[Any], Any]:
        scale, offset = self.weight((channels,), 0.0), self.weight((channels,), 0.0)
        scale.assign_add(tf.ones(channels))
        mean = tf.Variable(tf.zeros(channels), trainable=False)
        variance = tf.Variable(tf.ones(channels), trainable=False)

        def call(x: Any) -> Any:
            normed = tf.raw_ops.FusedBatchNormV3(
                x=x, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=1e-3,
                exponential_avg_factor=0.01, data_format=self.layout, is_training=True,
            )  # fmt: skip
            mean.assign(normed.batch_mean)
            variance.assign(normed.batch_variance)
            return tf.nn.relu(normed.y)

        return call

    def head(self, channels: int) -> Callable[[Any], Any]:
        kernel, bias = self.weight((channels, 10), channels**-0.5), self.weight((10,), 0.0)
        axes = [2, 3] if self.layout == "NCHW" else [1, 2]
        return lambda x: tf.matmul(tf.cast(tf.reduce_mean(x, axes), tf.float32), kernel) + bias


def cnn10(net: Net) -> Callable[[Any], Any]:
    layers: list[Callable[[Any], Any]] = []
    for width_in, width in ((3, 64), (64, 128), (128, 256)):
        for number in range(3):
            layers += [net.conv(width if number else width_in, width), net.norm_relu(width)]
        if width < 256:
            layers.append(lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME", data_format=net.layout))
    return chain([*layers, net.head(256)])


def wide_resnet(net: Net) -> Callable[[Any], Any]:
    layers, width_in = [net.conv(3, 16)], 16
    for group, width in enumerate((160, 320, 640)):
        for number in range(4):
            layers.append(block(net, width_in, width, 2 if group and not number else 1))
            width_in = width
    return chain([*layers, net.norm_relu(640), net.head(640)])


def block(net: Net, width_in: int, width: int, stride: int) -> Callable[[Any], Any]:
    first, into = net.norm_relu(width_in), net.conv(width_in, width, 3, stride)
    second, out = net.norm_relu(width), net.conv(width, width)
    shortcut = net.conv(width_in, width, 1, stride) if width_in != width else None

    def call(x: Any) -> Any:
        normed = first(x)
        return out(second(into(normed))) + (shortcut(normed) if shortcut else x)

    return call


def chain(layers: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return call


def training_step(net: Net, forward: Callable[[Any], Any], images: Any, classes: Any, *, scaled: bool) -> Any:
    sums = [tf.Variable(tf.zeros_like(weight)) for weight in net.weights]
    loss_scale, good = tf.Variable(2.0**15, trainable=False), tf.Variable(0.0, trainable=False)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, forward(images)))
            larger = loss * loss_scale if scaled else loss
        gradients = tape.gradient(larger, net.weights)
        keep = tf.constant(1.0)
        if scaled:
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
            keep = tf.cast(finite, tf.float32)
            gradients = [tf.math.multiply_no_nan(gradient, keep / loss_scale) for gradient in gradients]
            good.assign(tf.where(finite, good + 1.0, 0.0))
            loss_scale.assign(tf.where(finite, tf.where(good >= 2000.0, loss_scale * 2.0, loss_scale), loss_scale / 2))
        for weight, total, gradient in zip(net.weights, sums, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=total.handle, lr=0.05 * keep, grad=gradient, momentum=1.0 - 0.1 * keep
            )
        return loss

    return tf.function(step)


def case(model: str, batch: int, precision: str, layout: str) -> dict[str, Any]:
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    net = Net(layout, DTYPES[precision])
    forward = {"cnn10": cnn10, "wrn28-10": wide_resnet}[model](net)
    shape = (batch, 3, 32, 32) if layout == "NCHW" else (batch, 32, 32, 3)
    images, classes = tf.cast(tf.random.normal(shape), net.dtype), tf.random.uniform((batch,), 0, 10, tf.int32)
    step = training_step(net, forward, images, classes, scaled=precision == "float16")
    ms = median_ms(step, tf.test.experimental.sync_devices, warmup_steps=10, burst=5)
    return {"ms": ms, "examples_per_s": 1e3 * batch / ms}


def main() -> None:
    model, batch, precisions, layouts = sys.argv[1:]
    tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    for precision, layout in itertools.product(precisions.split(","), layouts.split(",")):
        settings = {"model": model, "batch_size": int(batch), "precision": precision, "layout": layout}
        print(json.dumps({**settings, **case(model, int(batch), precision, layout)}), flush=True)


if __name__ == "__main__":
    main()
