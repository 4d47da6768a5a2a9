"""The image networks: the same answers in every layout and from every implementation, and the sizes of the sources."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.cnn_answers import answers, numpy_answers, variant_of, with_slopes
from tests.numerics import GOAL, worst_error
from workloads import cnn
from workloads.catalog import Machine, complete
from workloads.protocol import Value
from workloads.seeding import synthetic_images
from workloads.tensorflow.cnn.layers import MakeLayer

pytestmark = pytest.mark.usefixtures("unoptimized")


NETWORKS: dict[str, tuple[str, dict[str, Value], Sequence[dict[str, Value]]]] = {
    "average": ("cnn10", {"pooling": "average", "bias": True, "channels": 3},
                [{"implementation": "keras"}, {"layout": "NHWC", "xla": True}]),
    "max": ("cnn10", {"pooling": "max", "bias": True, "channels": 3},
            [{"layout": "NHWC"}, {"implementation": "keras"}, {"xla": True}]),
    "strided": ("cnn10", {"pooling": "strided", "channels": 4},
                [{"layout": "NHWC"}, {"implementation": "keras"}, {"layout": "NHWC", "implementation": "keras"}]),
    "wide": ("wrn28-10", {"bias": True}, [{"layout": "NHWC"}, {"layout": "NHWC", "implementation": "keras"}]),
}  # fmt: skip
"""By name a workload with settings, and what else must answer likewise."""


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_agrees_with_numpy_and_finite_differences(name: str) -> None:
    """Loss, a slope of each weight, and logits with the statistics of one step."""
    workload, given, others = NETWORKS[name]
    found = answers(workload, variant_of(workload, **given))
    expected = numpy_answers(workload, variant_of(workload, **given))
    assert worst_error(with_slopes(found), expected) < GOAL
    for other in others:
        answers(workload, variant_of(workload, **given, **other)).agree(found, GOAL)


def test_keras_adds_a_bias_along_the_width_of_images_that_are_as_wide_as_they_have_channels() -> None:
    """A rule refuses such variants: once Keras mends it, the rule can go."""
    from workloads.tensorflow.cnn.layers import keras_layer

    for channels in (4, 5):
        spec = cnn.Conv(name="conv", channels_in=1, channels=channels, side=4, bias=True)
        layer = keras_layer(spec, [np.zeros([3, 3, 1, channels]), np.arange(channels)], "NCHW")
        answer = np.asarray(layer(np.zeros([1, 1, 4, 4], np.float32), True))[0]
        assert list(answer[:, 0, 0] if channels == 5 else answer[0, 0]) == list(range(channels))


def test_poolings_have_the_same_weights_and_a_bias_for_each_channel() -> None:
    """And differ in what they answer. The article's network has 1,344 biases."""

    def shapes(**more: Value) -> list[tuple[int, ...]]:
        net = cnn.net_of("cnn10", variant_of("cnn10", channels=64, **more))
        return [shape for layer in cnn.flatten(net) for shape in cnn.weight_shapes(layer)]

    assert sum(map(math.prod, shapes())) == 1_923_914
    assert sum(map(math.prod, shapes(bias=True))) == 1_923_914 + 1_344
    assert shapes(pooling="strided") == shapes(pooling="max") == shapes()
    wide = [cnn.net_of("wrn28-10", variant_of("wrn28-10", bias=bias)) for bias in (False, True)]
    assert [sum(name.endswith("conv1/bias") for name in cnn.weight_names(net)) for net in wide] == [0, 3]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_xla_pools_without_windows_forwards_and_backwards(layout: str) -> None:
    import tensorflow as tf

    from workloads.tensorflow.cnn import layers
    from workloads.tensorflow.recipe import compile_function

    images = tf.random.stateless_normal([2, 4, 6, 8], [1, 2])

    def gradient_of(make: MakeLayer) -> tuple[np.ndarray[Any, Any], str]:
        """What the layer's gradient is, and the program that computes it."""
        pool = make(cnn.Pool(name="pool"), [], layout)

        def gradient(images: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(images)
                total = tf.reduce_sum(tf.square(pool(images, True)))
            return tape.gradient(total, images)

        function = compile_function(gradient)
        return function(images).numpy(), function.experimental_get_compiler_ir(images)(stage="hlo")

    windowed, its_program = gradient_of(layers.native_layer)
    plain, program = gradient_of(layers.native_xla_layer)
    np.testing.assert_allclose(plain, windowed, atol=1e-6)
    assert "reduce-window" in its_program
    assert "reduce-window" not in program


@pytest.mark.parametrize("implementation", ["native", "keras"])
def test_inference_uses_the_running_statistics_and_leaves_them_alone(implementation: str) -> None:
    from workloads.tensorflow.cnn.model import build_cnn
    from workloads.tensorflow.recipe import compile_function

    model = build_cnn("cnn10", variant_of("cnn10", implementation=implementation, layout="NHWC"))
    images, classes = synthetic_images(3, 0, 4, "NHWC")
    before, again = (compile_function(model.outputs, xla=False)(images).numpy() for _ in range(2))
    np.testing.assert_array_equal(before, again)
    compile_function(model.loss, xla=False)(images, classes)
    assert np.abs(compile_function(model.outputs, xla=False)(images).numpy() - before).max() > 1e-3


@pytest.mark.parametrize("xla", [False, True])
def test_running_statistics_are_kerass(xla: bool) -> None:
    import keras
    import tensorflow as tf

    from workloads.tensorflow.cnn.layers import BatchNorm
    from workloads.tensorflow.recipe import compile_function

    norm = BatchNorm([tf.ones([5]), tf.zeros([5])], "NHWC")
    reference = keras.layers.BatchNormalization()
    for number in range(2):
        images = 2.0 + tf.random.stateless_normal([2, 4, 4, 5], [1, number])
        reference(images, training=True)
        compile_function(norm.__call__, xla=xla)(images, True)
    np.testing.assert_allclose(norm.mean.numpy(), reference.moving_mean.numpy(), atol=1e-6)
    np.testing.assert_allclose(norm.variance.numpy(), reference.moving_variance.numpy(), rtol=1e-5)


@pytest.mark.parametrize("implementation", ["native", "keras"])
def test_the_wide_network_has_the_articles_size_by_default(implementation: str) -> None:
    from workloads.tensorflow.cnn.model import build_cnn

    sizes: dict[str, Value] = {"depth": 28, "widen": 10}
    model = build_cnn("wrn28-10", variant_of("wrn28-10", **sizes, implementation=implementation))
    assert sum(int(np.prod(weight.shape)) for weight in model.weights) == 36_479_194
    defaults = complete("wrn28-10", {"gpus": 1}, Machine()).variant
    assert {name: defaults[name] for name in sizes} == sizes


def test_a_wide_block_ends_in_a_sum_and_halves_the_images_at_the_start_of_a_group() -> None:
    net = cnn.wide_resnet(16, 2)
    sums = [part for part in net if isinstance(part, cnn.Sum)]
    assert [len(part.shortcut) for part in sums] == [1, 0] * 3
    convolutions = [layer for layer in cnn.flatten(net) if isinstance(layer, cnn.Conv)]
    assert len(convolutions) == 16, (
        "the depth counts the convolutions but not the dense head, for each shortcut's block"
    )
    assert [layer.name for layer in convolutions if layer.stride == 2] == [
        f"group{group}/block1/{name}" for group in (2, 3) for name in ("conv1", "shortcut")
    ]


def test_one_seed_is_one_set_of_weights_and_another_is_another() -> None:
    from workloads.tensorflow.cnn.model import build_cnn

    first, same, other = (
        [weight.numpy() for weight in build_cnn("cnn10", variant_of("cnn10", **more)).weights]
        for more in ({}, {"implementation": "keras", "layout": "NHWC"}, {"seed": 5})
    )
    for mine, theirs in zip(first, same, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(first[0], other[0])


def test_images_are_the_same_in_both_layouts() -> None:
    first, classes = synthetic_images(1, 2, 3, "NCHW")
    last, same = synthetic_images(1, 2, 3, "NHWC")
    assert first.shape == (3, 3, 32, 32)
    np.testing.assert_array_equal(np.transpose(first, [0, 2, 3, 1]), last)
    np.testing.assert_array_equal(classes, same)
