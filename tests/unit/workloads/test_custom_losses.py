"""The losses of custom workloads are those of Keras's `fit`, in every precision; what is not supported is refused."""

from typing import Any

import numpy as np
import pytest

from tests.fakes.tensorflow import precision_of
from tests.unit.workloads.test_custom import reason_of, source, spec_of, this_process_as_before, trained
from workloads.custom.source import find_function, load_module
from workloads.protocol import RunSpec, Source
from workloads.tensorflow.runtime import Replicas

__all__ = ["this_process_as_before"]

GRID = """
    import keras
    import numpy as np
    from keras import layers as L

    def _two(**options):
        inputs = keras.Input((5,))
        inner = L.Dense(4, activation="relu")(inputs)
        return inputs, L.Dense(2, name="a")(inner), L.Dense(3, name="b")(inner)

    class OwnLoss(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return keras.ops.mean(keras.ops.abs(keras.ops.cast(y_pred, "float32") - y)) + sum(self.losses)

    class Doubled(L.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(keras.ops.square(x)))
            return 2 * x

    def _masked(kind):
        words = keras.Input((6,), dtype="int64")
        found = L.Embedding(9, 4, mask_zero=True)(words)
        if kind == "attention":
            found = L.MultiHeadAttention(2, 2)(found, found)
        return keras.Model(words, L.TimeDistributed(L.Dense(3))(found) if kind == "distributed" else L.Dense(3)(found))

    def grid(batch_size=4, kind="words", by="object", seed=1):
        loss = {
            "object": keras.losses.MeanSquaredError(), "name": "mean_squared_error",
            "config": keras.losses.MeanSquaredError.from_config({"reduction": "sum", "name": "mine"}),
            "function": lambda y, p: keras.ops.mean(keras.ops.square(y - p), axis=-1),
            "number": lambda y, p: keras.ops.mean(keras.ops.square(y - p)),
            "sum": keras.losses.MeanSquaredError(reduction="sum"),
            "each": keras.losses.MeanSquaredError(reduction=None),
        }.get(by)
        rng = np.random.default_rng(3)
        x, y = rng.normal(size=(batch_size, 5)), rng.normal(size=(batch_size, 2))
        both = {"a": y, "b": rng.normal(size=(batch_size, 3))}
        more = ()
        if kind in ("words", "attention", "distributed"):
            model = _masked(kind)
            x = rng.integers(1, 9, size=(batch_size, 6)) * (np.arange(6) < np.array([[2], [5], [0], [6]]))
            y = np.where((x > 0)[..., None], rng.normal(size=(batch_size, 6, 3)), 1e3)
        elif kind == "masking":
            x = np.where(np.arange(4)[None, :, None] < np.array([[[1]], [[2]], [[4]], [[3]]]), 1.0, -1.5)
            y = rng.normal(size=(batch_size, 4, 2))
            model = keras.Sequential([L.Input((4, 1)), L.Masking(-1.5), L.Dense(2)])
            more = (np.arange(16.0).reshape(4, 4),)
        elif kind in ("dict", "list"):
            inputs, a, b = _two()
            model = keras.Model(inputs, {"a": a, "b": b} if kind == "dict" else [a, b])
            y = both if kind == "dict" else list(both.values())
            if by == "each output":
                loss = {"a": "mae", "b": "mse"} if kind == "dict" else ["mae", "mse"]
            if by == "compiled":
                model.compile(optimizer="sgd", loss={"a": "mae", "b": "mse"}, loss_weights={"a": 0.5, "b": 3.0})
                more = ({"a": np.arange(4.0), "b": np.ones(4)},) if kind == "dict" else ()
        elif kind == "one of two":
            inputs, a, b = _two()
            model, loss, y = keras.Model(inputs, {"a": a}), "mse", {"a": y}
        elif kind == "added":
            inputs = keras.Input((5,))
            dense = L.Dense(2, kernel_regularizer="l2")
            model, y = keras.Model(inputs, Doubled()(dense(inputs))), None
        elif kind == "own":
            inputs, a, b = _two()
            model = OwnLoss(inputs, a)
        elif kind == "codes":
            wide = keras.initializers.RandomNormal(stddev=1.0)
            x = np.full((batch_size, 1), 257.0) + np.arange(batch_size)[:, None]
            model = keras.Sequential([keras.Input((1,)), L.Embedding(300, 2, wide), L.Flatten()])
            y = 0.01 * y
        else:
            frozen = L.Dense(4, trainable=False)
            norm = "unit_norm" if kind == "constrained" else None
            trained = L.Dense(3, kernel_constraint=norm, dtype=None if norm or kind == "frozen" else kind)
            model = keras.Sequential([keras.Input((5,)), frozen, trained, L.Dense(2)])
            more = (np.arange(4.0),)
        return model, loss, lambda step: (x, y, *more), None if model.compiled else "sgd"
"""
MASKED = ("words", "distributed", "attention", "masking")
CASES = [
    ("words", "object"), ("words", "name"), ("distributed", "object"), ("attention", "name"), ("masking", "object"),
    ("words", "config"), ("words", "function"), ("dict", "each output"),
    ("dict", "compiled"), ("dict", "name"), ("list", "each output"), ("list", "compiled"), ("list", "name"),
    ("one of two", "name"), ("added", "none"), ("own", "none"), ("codes", "name"), ("frozen", "object"),
    ("frozen", "each"), ("float64", "name"), ("float16", "name"), ("bfloat16", "name"),
]  # fmt: skip
ROUNDING = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}


def fit(given: Source, spec: RunSpec) -> tuple[float, Any]:
    """The first loss as Keras's own training step tells it, which `fit` makes too, and the model after that step."""
    import keras

    keras.utils.set_random_seed(1)
    function = find_function("grid", load_module(given), given)
    names = ("kind", "by", "batch_size", "seed")
    model, loss, batch, optimizer = function(**{name: spec.variant[name] for name in names})
    if not model.compiled:
        model.compile(optimizer, loss)
    model.run_eagerly = True
    x, y, *weights = batch(0)
    logs = model.train_on_batch(x, y, sample_weight=weights[0] if weights else None, return_dict=True)
    return float(logs["loss"]), model


def loss_of(given: Source, spec: RunSpec) -> float:
    import keras

    from workloads.tensorflow.custom import custom_recipe

    keras.utils.set_random_seed(1)
    recipe = custom_recipe(spec, given)
    return float(np.mean(recipe.model().loss(*recipe.batch(0))))


@pytest.mark.parametrize(("kind", "by"), CASES)
def test_a_loss_is_that_of_keras_in_every_precision(kind: str, by: str) -> None:
    given = source(GRID)
    specs = {name: spec_of(given, "grid", kind=kind, by=by, precision=name) for name in ROUNDING}
    expected, _ = fit(given, specs["float32"])
    for precision, rounding in ROUNDING.items():
        if precision == "float16" and kind not in MASKED:
            continue
        if precision == "bfloat16" and kind in ("dict", "list", "one of two") and by != "compiled":
            continue
        least = ROUNDING.get(kind, 0.0)
        with precision_of(precision):
            loss = loss_of(given, specs[precision])
            assert loss == pytest.approx(expected, rel=max(rounding, least))
            if precision == "bfloat16" and kind in MASKED:
                assert loss == pytest.approx(fit(given, specs[precision])[0], rel=max(1e-5, least))


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize(
    ("kind", "by", "xla"),
    [
        ("words", "object", False),
        ("words", "object", True),
        ("dict", "compiled", False),
        ("dict", "compiled", True),
        ("frozen", "each", False),
        ("float64", "name", False),
        ("constrained", "name", False),
    ],
)
def test_a_step_is_that_of_keras(replica: Replicas, kind: str, by: str, xla: bool) -> None:
    given = source(GRID)
    spec = spec_of(given, "grid", kind=kind, by=by, xla=xla)
    ours, losses = trained(given, spec, replica, 1, batches=1)
    expected, theirs = fit(given, spec)
    assert losses[0] == pytest.approx(expected, rel=1e-5)
    for a, b in zip(ours.weights, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("dict", "compiled"),
        ("frozen", "sum"),
        ("dict", "number"),
        ("float64", "name"),
        ("constrained", "name"),
        ("added", "none"),
    ],
)
def test_two_replicas_make_the_step_of_one(replica: Replicas, pair: Replicas, kind: str, by: str) -> None:
    given = source(GRID)
    spec = spec_of(given, "grid", kind=kind, by=by)
    single, losses_of_one = trained(given, spec, replica, 1, batches=1)
    double, losses_of_two = trained(given, spec, pair, 1, batches=1)
    assert losses_of_two == pytest.approx(losses_of_one, rel=1e-5)
    for a, b in zip(single.weights, double.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
def test_weights_of_any_type_are_trained_by_adam_and_with_a_scaled_loss(replica: Replicas, kind: str) -> None:
    given = source(GRID.replace('else "sgd"', "else None"))
    with precision_of("float16"):
        spec = spec_of(given, "grid", kind=kind, by="name", precision="float16")
        _, losses = trained(given, spec, replica, 12, batches=1)
    # In bfloat16 Keras's Adam changes nothing: the 0.999 of its average is 1 there.
    assert losses[-1] < losses[0] or (kind == "bfloat16" and losses[-1] == losses[0])


@pytest.mark.usefixtures("unoptimized")
def test_constraints_hold_with_the_default_optimizer_and_in_float16(replica: Replicas) -> None:
    given = source(GRID.replace('else "sgd"', "else None"))
    for precision in ("float32", "float16"):
        with precision_of(precision):
            spec = spec_of(given, "grid", kind="constrained", by="name", precision=precision)
            model, _ = trained(given, spec, replica, 2, batches=1)
        kernel = next(weight for weight in model.weights if weight.shape == (4, 3))
        np.testing.assert_allclose(np.linalg.norm(kernel.numpy(), axis=0), 1.0, rtol=1e-5)


@pytest.mark.usefixtures("unoptimized")
def test_codes_of_words_in_floating_point_are_not_rounded_to_the_precision(replica: Replicas) -> None:
    given = source(GRID)
    spec = spec_of(given, "grid", kind="codes", by="name", precision="bfloat16")
    with precision_of("bfloat16"):
        _, losses = trained(given, spec, replica, 1, batches=1)
    assert losses[0] == pytest.approx(fit(given, spec)[0], rel=ROUNDING["bfloat16"])


SMALL = """
    import keras
    import numpy as np
    import tensorflow as tf

    class Mine(keras.Model):
        pass

    def small(batch_size=4):
        inputs = keras.Input((3,))
        outputs = keras.layers.Dense(1)(inputs)
        model = Mine(inputs, outputs)
        x, y = np.ones((batch_size, 3)), np.ones((batch_size, 1))
        return model, "mse", lambda step: (x, y)
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "pass",
            "def train_step(self, data): ...",
            (
                "mine.py:7: a model's own train_step cannot be measured, because the program runs the steps; write a "
                "compute_loss instead."
            ),
        ),
        (
            "return model",
            "model.trainable = False; return model",
            "mine.py:9: the model has no trainable weights; choose mode=inference, or make a layer trainable.",
        ),
        (
            "return model",
            'model.compile(loss="mae"); return model',
            "mine.py:9: the model is compiled with another loss; give None instead of the second.",
        ),
        (
            "(x, y)",
            "(x, y, y, y)",
            "mine.py:9: TypeError: batch returns a tuple of 4, and should give (x, y) or (x, y, sample_weight)",
        ),
        (
            "(x, y)",
            "(tf.ragged.constant([[1], [2, 3], [4], [5]]), y)",
            "mine.py:9: TypeError: batch returns a RaggedTensor; convert it to an array of one shape with .to_tensor()",
        ),
        (
            "(x, y)",
            "(tf.sparse.from_dense(x), y)",
            (
                "mine.py:9: TypeError: batch returns a SparseTensor; convert it to an array of one shape "
                "with tf.sparse.to_dense(...)"
            ),
        ),
        (
            "(x, y)",
            "(x, [y, None])",
            (
                "mine.py:9: TypeError: batch returns None among its arrays; targets and sample weights can be None "
                "as a whole only"
            ),
        ),
        (
            "(x, y)",
            "(x, None)",
            (
                "mine.py:14: batch returns no targets, which the loss needs; give (x, y), or None instead of the loss "
                "if the model adds its own (add_loss)."
            ),
        ),
        ('"mse"', '["mse", "msee"]', "mine.py:9: 'msee' is not a loss that Keras knows."),
        ('"mse"', "None", "mine.py:9: ValueError: No loss to compute. Provide a `loss` argument in `compile()`."),
    ],
)
def test_what_is_not_supported_is_refused_in_one_sentence(replica: Replicas, old: str, new: str, sentence: str) -> None:
    given = source(SMALL.replace(old, new))
    assert reason_of(given, lambda: trained(given, spec_of(given, "small"), replica, 1)) == sentence


def test_a_model_without_trainable_weights_can_be_measured_in_inference(replica: Replicas) -> None:
    given = source(SMALL.replace("return model", "model.trainable = False; return model"))
    model, outputs = trained(given, spec_of(given, "small", mode="inference"), replica, 1, batches=1)
    assert not model.weights
    assert np.isfinite(outputs).all()


def test_a_compiled_model_keeps_its_optimizer(replica: Replicas) -> None:
    compiled = "model.compile(keras.optimizers.SGD(0.0)); return model"
    given = source(SMALL.replace("return model", compiled))
    _, losses = trained(given, spec_of(given, "small"), replica, 3, batches=1)
    assert losses[0] == losses[2]
