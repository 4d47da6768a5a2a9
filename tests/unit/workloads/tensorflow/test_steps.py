"""One training step, on one replica and on two, with and without XLA and loss scaling."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.fakes.tensorflow import build, precision_of, train_recipe
from workloads import seeding
from workloads.catalog import Machine, complete
from workloads.errors import RefusedError
from workloads.image_training import Schedule
from workloads.protocol import RunSpec, Value, Variant
from workloads.tensorflow import runtime
from workloads.tensorflow.backend import recipe_of
from workloads.tensorflow.runtime import Replicas, replicas_on

SIZES: dict[str, dict[str, Value]] = {
    "lstm": {"units": 8, "timesteps": 6, "features": 4},
    "cnn10": {"channels": 4},
    "wrn28-10": {"depth": 10, "widen": 1},
}


def small(workload: str, **given: Value) -> Variant:
    """A variant that takes milliseconds."""
    return complete(workload, {"gpus": 0, "batch_size": 8, **SIZES[workload], **given}, Machine(cpu_count=2)).variant


UNOPTIMIZED = pytest.mark.usefixtures("unoptimized")


def trained(workload: str, variant: Variant, replicas: Replicas, steps: int, **changes: Any) -> tuple[Any, list[float]]:
    """The model after some steps, with a changed recipe, and each step's loss."""
    return train_recipe(recipe_of(workload)(variant), variant, replicas, steps, int(variant["seed"]), **changes)


def weights_of(model: Any) -> list[np.ndarray[Any, Any]]:
    return [weight.numpy() for weight in model.weights]


@UNOPTIMIZED
@pytest.mark.parametrize(
    ("given", "copied_by"),
    [
        ({"xla": False}, None),
        ({"xla": True}, None),
        ({"implementation": "wavefront", "layers": 2, "sequence_lengths": "left_padded"}, None),
        ({"implementation": "block_fused"}, None),
        ({"implementation": "gemm2"}, "hierarchical"),
        ({"implementation": "gemm2"}, "one_device"),
    ],
)
def test_two_replicas_make_the_step_of_one(
    replica: Replicas, pair: Replicas, given: dict[str, Value], copied_by: str | None
) -> None:
    variant = small("lstm", **given)
    single, losses_of_one = trained("lstm", variant, replica, 3)
    both = replicas_on(["CPU:0", "CPU:1"], copied_by) if copied_by else pair
    double, losses_of_two = trained("lstm", variant, both, 3)
    assert losses_of_two == pytest.approx(losses_of_one, rel=1e-5)
    for a, b in zip(weights_of(single), weights_of(double), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_targets_and_weights_count_for_the_memory_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    from workloads.tensorflow.recipe import Recipe
    from workloads.tensorflow.steps import _replica_batches

    monkeypatch.setattr(seeding, "_MAX_BATCHES", 64)
    monkeypatch.setattr(seeding, "_MAX_BYTES", 4_000)
    batch = tf.zeros([1, 1]), (tf.zeros([1, 100]), tf.zeros([1, 149]))
    recipe = Recipe(model=None, optimizer=None, batch=lambda index: batch)  # type: ignore[arg-type] # batches alone
    inputs, _ = _replica_batches(recipe, None, 1, 0)
    assert inputs.shape == [4, 1, 1]


def test_nccl_is_refused_where_it_cannot_be(replica: Replicas) -> None:
    with pytest.raises(RefusedError, match="NVIDIA GPUs only; use all_reduce=hierarchical"):
        replicas_on(["CPU:0", "CPU:1"], "nccl")


def operations(workload: str, replicas: Replicas, **given: Value) -> list[Any]:
    """Every operation of a step, on all devices."""
    from tensorflow.python.eager import context

    task = build(RunSpec(workload=workload, variant=small(workload, **given)), replicas)
    context.enable_graph_collection()
    task.fetch(task.step())
    functions = context.export_run_metadata().function_graphs
    context.disable_graph_collection()
    return [node for function in functions for graph in function.partition_graphs for node in graph.node]


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_replicas_send_gradients_and_nothing_else(pair: Replicas, mode: str) -> None:
    ops = operations("cnn10", replicas_on(["CPU:0", "CPU:1"], "hierarchical"), mode=mode)
    sent = [node.attr["tensor_name"].s.decode() for node in ops if node.op == "_Send"]
    if mode == "inference":
        assert not sent
    else:
        assert len(sent) == 4
        assert all("split" in name or "AddN" in name for name in sent), sent


@pytest.mark.parametrize(("workload", "xla"), [("cnn10", False), ("lstm", True)])
def test_a_step_of_two_replicas_exchanges_one_buffer(pair: Replicas, workload: str, xla: bool) -> None:
    kinds = [node.op for node in operations(workload, pair, xla=xla)]
    assert sum("CollectiveReduce" in kind for kind in kinds) == pair.count
    updates = sum(kind.startswith("ResourceApply") for kind in kinds)
    assert updates == (0 if xla else 2 * pair.count), "matrices at once, and vectors; XLA has the update too"


@UNOPTIMIZED
@pytest.mark.parametrize(
    ("workload", "given"),
    [
        ("cnn10", {"precision": "float16", "layout": "NHWC", "weight_decay": 0.01, "schedule": "cosine", "steps": 9}),
        ("cnn10", {"precision": "bfloat16", "layout": "NHWC"}),
        ("lstm", {}),
    ],
)
def test_joined_weights_are_updated_to_the_same_bits(pair: Replicas, workload: str, given: dict[str, Value]) -> None:
    variant = small(workload, **given)
    with precision_of(variant["precision"]):
        joined, losses = trained(workload, variant, pair, 4)
        apart, losses_apart = trained(workload, variant, pair, 4, elementwise=False)
    assert losses == losses_apart
    for weight, other in zip(joined.weights, apart.weights, strict=True):
        for mine in weight.values:
            np.testing.assert_array_equal(mine.numpy(), other.values[0].numpy())


@pytest.mark.parametrize("kind", ["momentum", "adam"])
@pytest.mark.parametrize("shapes", [[(3,)], [(5, 3)], [(3,), (2, 5), (1,), (3, 1, 7), ()]])
def test_joined_weights_of_any_shape_skip_the_same_steps(kind: str, shapes: list[tuple[int, ...]]) -> None:
    import tensorflow as tf

    from workloads.tensorflow.optimizers import Adam, LossScale, Momentum, Optimizer
    from workloads.tensorflow.steps import JoinedOptimizer, join

    def optimizer(weights: Sequence[Any]) -> Optimizer:
        return Adam(weights) if kind == "adam" else Momentum(weights, Schedule(kind="cosine", peak=0.2, steps=9), 0.1)

    random = np.random.default_rng(1)
    starts, *gradients = ([random.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(5))
    gradients[2][-1] = np.full_like(gradients[2][-1], np.nan)
    mine, theirs = ([tf.Variable(start) for start in starts] for _ in range(2))
    joined, apart = LossScale(JoinedOptimizer(mine, optimizer)), LossScale(optimizer(theirs))
    for given in gradients:
        joined.apply([join([tf.constant(gradient) for gradient in given])], tf.constant(1.0))
        apart.apply([tf.constant(gradient) for gradient in given], tf.constant(1.0))
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert not any(np.array_equal(a.numpy(), start) for a, start in zip(mine, starts, strict=True))


@UNOPTIMIZED
def test_replicas_with_batch_normalization_stay_equal(pair: Replicas) -> None:
    model, losses = trained("wrn28-10", small("wrn28-10", implementation="keras"), pair, 4)
    for weight in model.weights:
        first, second = (part.numpy() for part in weight.values)
        np.testing.assert_array_equal(first, second)
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(
    ("workload", "given"),
    [
        ("lstm", {}),
        ("cnn10", {}),
        ("cnn10", {"implementation": "keras"}),
        ("cnn10", {"precision": "float16", "layout": "NHWC"}),
        ("wrn28-10", {}),
    ],
)
def test_loss_falls(replica: Replicas, workload: str, given: dict[str, Value]) -> None:
    _, losses = trained(workload, small(workload, **given), replica, 30)
    assert np.mean(losses[-5:]) < 0.7 * losses[0]


@UNOPTIMIZED
def test_inference_leaves_the_weights_alone(replica: Replicas) -> None:
    model, outputs = trained("cnn10", small("cnn10", mode="inference"), replica, 2)
    fresh, _ = trained("cnn10", small("cnn10", mode="inference"), replica, 0)
    assert outputs[0] != outputs[1], "each step takes the next batch"
    for a, b in zip(weights_of(model), weights_of(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


def test_loss_scale_skips_what_is_not_finite_and_halves() -> None:
    import tensorflow as tf

    from workloads.tensorflow.optimizers import LossScale, Momentum

    weight = tf.Variable([1.0])
    scale = LossScale(Momentum([weight], rate=0.5), initial=8.0)
    step = tf.function(scale.apply)
    once = tf.constant(1.0)
    step([tf.constant([np.inf])], once)
    assert weight.numpy() == [1.0]
    assert float(scale.scaled(tf.constant(1.0))) == 4.0
    step([tf.constant([4.0])], once)
    assert weight.numpy() == [0.5]


def test_adam_moves_as_kerass_does() -> None:
    import keras
    import tensorflow as tf

    from workloads.tensorflow.optimizers import Adam

    ours, theirs = tf.Variable([1.0, -2.0]), keras.Variable([1.0, -2.0])
    adam, reference = Adam([ours], 0.01), keras.optimizers.Adam(0.01)
    reference.build([theirs])
    step = tf.function(adam.apply)
    for gradient in ([0.5, -1.0], [0.1, 2.0], [-3.0, 0.0]):
        step([tf.constant(gradient)], tf.constant(1.0))
        reference.apply([tf.constant(gradient)], [theirs])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4)


def test_a_skipped_step_leaves_no_trace_in_adam() -> None:
    import tensorflow as tf

    from workloads.tensorflow.optimizers import Adam, LossScale

    weights = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    scaled, plain = LossScale(Adam([weights[0]]), initial=4.0), Adam([weights[1]])
    once = tf.constant(1.0)
    scaled.apply([tf.constant([4.0, 8.0])], once)
    scaled.apply([tf.constant([np.nan, 1.0])], once)
    scaled.apply([tf.constant([-2.0, 6.0])], once)
    plain.apply([tf.constant([1.0, 2.0])], once)
    plain.apply([tf.constant([-1.0, 3.0])], once)
    np.testing.assert_allclose(weights[0].numpy(), weights[1].numpy(), rtol=1e-6)


@UNOPTIMIZED
def test_float16_replicas_stay_equal(pair: Replicas) -> None:
    with precision_of("float16"):
        model, losses = trained("lstm", small("lstm", precision="float16", xla=True), pair, 20)
    assert losses[-1] < losses[0]
    for weight in model.weights:
        first, second = (part.numpy() for part in weight.values)
        np.testing.assert_array_equal(first, second)


@pytest.fixture
def run_ahead() -> Iterator[None]:
    """TensorFlow does what it is told in a queue, as it is configured for several GPUs."""
    from tensorflow.python.eager import context, executor

    queue = executor.new_executor(enable_async=True)
    with context.executor_scope(queue):
        yield
        queue.clear_error()


@pytest.mark.parametrize("gpus", [1, 2])
def test_only_several_gpus_are_told_their_steps_ahead(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    import tensorflow as tf

    calls: list[bool] = []
    made: list[Sequence[str]] = []
    monkeypatch.setattr(runtime, "replicas_on", lambda devices, all_reduce: made.append(devices))
    monkeypatch.setattr(tf.config.experimental, "set_synchronous_execution", calls.append)
    for name in ("optimizer.set_experimental_options", "experimental.enable_tensor_float_32_execution"):
        monkeypatch.setattr(f"tensorflow.config.{name}", lambda value: None)
    runtime.configure(small("cnn10") | {"gpus": gpus, "all_reduce": "nccl"})
    assert made == [[f"GPU:{index}" for index in range(gpus)]]
    assert calls == [gpus == 1]


@UNOPTIMIZED
def test_steps_told_ahead_are_the_same_steps(pair: Replicas, run_ahead: None) -> None:
    variant = small("lstm")
    ahead, losses_ahead = trained("lstm", variant, pair, 3)
    with_one, losses = trained("lstm", variant, replicas_on(["CPU:0"]), 3)
    assert losses_ahead == pytest.approx(losses, rel=1e-5)
    for a, b in zip(weights_of(ahead), weights_of(with_one), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_a_step_told_ahead_that_fails_says_so_when_it_is_waited_for(pair: Replicas, run_ahead: None) -> None:
    import tensorflow as tf

    from workloads.tensorflow.recipe import Batch, Recipe
    from workloads.tensorflow.steps import build_task

    variant = small("cnn10")
    recipe = recipe_of("cnn10")(variant)

    def no_such_class(index: int) -> Batch:
        inputs, targets = recipe.batch(index)
        return inputs, tf.ones_like(targets) * 10

    task = build_task(Recipe(model=recipe.model, optimizer=recipe.optimizer, batch=no_such_class), variant, pair)
    with pytest.raises(tf.errors.InvalidArgumentError, match="label value of 10"):
        task.fetch(task.step())
