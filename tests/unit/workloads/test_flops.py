"""Operations by formula against TensorFlow's own count of its products and convolutions."""

from collections.abc import Callable
from typing import Any

import pytest

from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec, Value
from workloads.worker import flops_per_step


def spec_of(workload: str, **given: Value) -> RunSpec:
    return complete(workload, {"gpus": 0, "batch_size": 2, "mode": "inference", **given}, Machine(cpu_count=2))


def counted(forward: Callable[[Any], Any], *shape: int) -> int:
    """What TensorFlow counts for the products and convolutions of one call; it counts no loop's body, so unrolled."""
    import tensorflow as tf

    graph = tf.function(forward).get_concrete_function(tf.TensorSpec(shape)).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options = tf.compat.v1.profiler.ProfileOptionBuilder(options).with_empty_output().build()
    node, found = tf.compat.v1.profiler.profile(graph, cmd="op", options=options), 0
    while node.children:
        (node,) = node.children
        found += node.float_ops if node.name in ("MatMul", "Conv2D") else 0
    return found


@pytest.mark.parametrize(
    ("layers", "bidirectional", "outputs"), [(1, False, "last"), (3, False, "all"), (2, True, "last")]
)
@pytest.mark.parametrize("workload", ["lstm", "gru"])
def test_recurrent_layers_count_what_tensorflow_counts_of_keras_s(
    workload: str, layers: int, bidirectional: bool, outputs: str
) -> None:
    import keras

    layer = getattr(keras.layers, workload.upper())
    every = [outputs == "all" or depth < layers - 1 for depth in range(layers)]
    stack = [layer(5, unroll=True, use_cudnn=False, return_sequences=each) for each in every]
    if bidirectional:
        stack = [keras.layers.Bidirectional(layer) for layer in stack]
    model = keras.Sequential([keras.Input((3, 4), batch_size=2), *stack, keras.layers.Dense(1)])
    sizes: dict[str, Value] = {"units": 5, "timesteps": 3, "features": 4, "layers": layers}
    spec = spec_of(workload, **sizes, bidirectional=bidirectional, outputs=outputs)
    assert flops_per_step(spec) == counted(model, 2, 3, 4)


@pytest.mark.parametrize(
    ("workload", "sizes"),
    [
        ("cnn10", {"channels": 4}),
        ("cnn10", {"channels": 4, "pooling": "strided", "bias": True}),
        ("wrn28-10", {"depth": 16, "widen": 1}),
    ],
)
def test_the_cnns_count_what_tensorflow_counts(workload: str, sizes: dict[str, Value]) -> None:
    from workloads.tensorflow.cnn.model import build_cnn

    spec = spec_of(workload, layout="NHWC", **sizes)
    assert flops_per_step(spec) == counted(build_cnn(workload, spec.variant).outputs, 2, 32, 32, 3)


def test_the_wide_network_costs_about_ten_and_a_half_gflop_an_image() -> None:
    flops = flops_per_step(spec_of("wrn28-10", depth=28, widen=10, batch_size=1))
    assert flops == pytest.approx(10.5e9, rel=0.01)


def test_the_source_s_own_case_and_three_forward_passes_in_training() -> None:
    sizes: dict[str, Value] = {"units": 512, "features": 512, "timesteps": 100, "batch_size": 64}
    forward = flops_per_step(spec_of("lstm", **sizes))
    assert forward == 100 * 64 * 8 * 512 * 1024 + 64 * 1024, "eight products of 512 x 512 a step and sequence, the head"
    assert flops_per_step(spec_of("lstm", **sizes, mode="train")) == 3 * forward


def test_what_computes_nothing_has_no_count() -> None:
    assert flops_per_step(complete("dummy", {}, Machine())) is None
