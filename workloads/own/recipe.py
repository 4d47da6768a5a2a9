"""A user's own workload as a recipe: its Keras model, its loss, its batches and, where it gives one, its optimizer."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from workloads.errors import OwnWorkloadError
from workloads.optimizers import Adam, Optimizer
from workloads.own.blame import file_name, place_of, place_of_function, words_of
from workloads.own.compilable import prepare_for_xla
from workloads.own.loading import function_called, load
from workloads.own.menu import SOURCE
from workloads.own.optimizer import KerasOptimizer
from workloads.protocol import RunSpec, Source
from workloads.recipe import Batch, Recipe
from workloads.runtime import compute_dtype

_RATE = 0.001
_OLDEST_KERAS = (3, 4)
"""Older ones give an optimizer no state for weights that Keras did not wrap itself."""


def recipe(spec: RunSpec, source: Source) -> Recipe:
    """The recipe of a function of the user's file; raises `OwnWorkloadError` and whatever the file raises."""
    if spec.variant[SOURCE] != source.sha256:
        raise OwnWorkloadError(f"{file_name(source)}: The file is not the one this run is of.")
    function = function_called(spec.workload.rpartition(":")[2], load(source), source)
    own = _Own(function, spec, source)
    return Recipe(model=own.model, optimizer=own.optimizer, batch=own.batch)


@dataclass(frozen=True, slots=True)
class _Made:
    """What the user's function gave."""

    model: keras.Model
    loss: Callable[[Any, Any], Any]
    batch: Callable[[int], Any]
    optimizer: keras.Optimizer | None


class _Own:
    """One call of the user's function, made when the model is: under the strategy of the run."""

    def __init__(self, function: FunctionType, spec: RunSpec, source: Source) -> None:
        self._function = function
        self._variant = spec.variant
        self._source = source
        self._made: _Made | None = None
        self._shapes: list[tf.TensorShape] = []

    def model(self) -> "KerasModel":
        """The user's model with its weights, whether they made them at once or wait for inputs."""
        arguments = {name: self._variant[name] for name in inspect.signature(self._function).parameters}
        with self._blaming():
            given = self._function(**arguments)
        place = place_of_function(self._function)
        self._made = _checked(given, place)
        if not self._made.model.built:
            dtype = compute_dtype(str(self._variant["precision"]))
            inputs, _ = self.batch(0)
            self._made.model(tf.nest.map_structure(lambda one: _cast(one[:1], dtype), inputs))
        if self._variant["xla"]:
            prepare_for_xla(self._made.model, place)
        return KerasModel(self._made.model, self._made.loss, self._blaming)

    def optimizer(self, weights: Sequence[tf.Variable]) -> Optimizer:
        """The user's on these weights, or Adam where they gave none."""
        assert self._made is not None, "the model is made first"
        if self._made.optimizer is None:
            return Adam(weights, _RATE)
        with self._blaming():
            return KerasOptimizer(self._made.optimizer, weights, may_skip=self._variant["precision"] == "float16")

    def batch(self, index: int) -> Batch:
        """One batch as tensors, its size looked at."""
        assert self._made is not None, "the model is made first"
        with self._blaming():
            given = self._made.batch(index)
            if not isinstance(given, tuple) or len(given) != 2:
                raise TypeError(f"batch gives inputs and targets, (x, y), not {type(given).__name__}")
            inputs, targets = tf.nest.map_structure(_tensor, given)
            self._check(tf.nest.flatten((inputs, targets)), index)
        return inputs, tf.nest.map_structure(lambda one: _cast(one, "float32"), targets)

    def _check(self, tensors: Sequence[tf.Tensor], index: int) -> None:
        size = int(self._variant["batch_size"])
        for one in tensors:
            if one.shape.rank == 0:
                raise TypeError("batch gives single values; make arrays of its lists, by numpy.array(...)")
            if one.shape[0] != size:
                raise ValueError(f"batch gives an array of shape {tuple(one.shape)} where batch_size is {size}")
            if not (one.dtype.is_floating or one.dtype.is_integer or one.dtype.is_bool):
                raise TypeError(f"batch gives {one.dtype.name} values, and a model takes numbers")
        shapes = [one.shape for one in tensors]
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            words = [", ".join(str(tuple(shape)) for shape in each) for each in (shapes, self._shapes)]
            raise ValueError(f"batch gives {words[0]} at step {index} and gave {words[1]} before; all must be alike")

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """What Keras finds wrong with what it was given is told of the function that gave it."""
        try:
            yield
        except SystemExit as error:
            raise OwnWorkloadError(f"{place_of(error, self._source)}: the file ends the program.") from error
        except Exception as error:
            if ":" in place_of(error, self._source):
                raise
            raise OwnWorkloadError(f"{place_of_function(self._function)}: {words_of(error)}") from error


class KerasModel:
    """A Keras model and a loss over what it answers."""

    def __init__(
        self,
        model: keras.Model,
        loss: Callable[[Any, Any], Any],
        blaming: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._model = model
        self._loss = loss
        self._blaming = blaming

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables, in the model's order."""
        return [variable.value for variable in self._model.trainable_variables]

    def loss(self, inputs: Any, targets: Any) -> tf.Tensor:
        """The mean of the user's loss, with what the model's own regularizers add."""
        with self._blaming():
            answers = _in_float32(self._model(inputs, training=True))
            value = tf.reduce_mean(tf.cast(self._loss(targets, answers), tf.float32))
            return value + sum(tf.cast(tf.reduce_sum(more), tf.float32) for more in self._model.losses)

    def outputs(self, inputs: Any) -> tf.Tensor:
        """The answers; of a model with several, the mean of each."""
        with self._blaming():
            answers = _in_float32(self._model(inputs, training=False))
        several = tf.nest.flatten(answers)
        return several[0] if len(several) == 1 else tf.stack([tf.reduce_mean(one) for one in several])


def _checked(given: Any, place: str) -> _Made:
    if not isinstance(given, tuple) or len(given) not in (3, 4):
        raise OwnWorkloadError(
            f"{place}: the function gives {type(given).__name__}, and should give (model, loss, batch), "
            "or (model, loss, batch, optimizer)."
        )
    model, loss, batch, *more = given
    if not isinstance(model, keras.Model):
        raise OwnWorkloadError(
            f"{place}: the first of what the function gives is {type(model).__name__}, no Keras model."
        )
    if not callable(batch):
        raise OwnWorkloadError(f"{place}: the third of what the function gives is no function batch(step).")
    try:
        known = keras.losses.get(loss)
    except (TypeError, ValueError) as error:
        raise OwnWorkloadError(f"{place}: {loss!r} is no loss that Keras knows.") from error
    if isinstance(known, keras.losses.Loss):
        # Reduced by Keras itself, it would be divided by the replicas in newer versions; the mean is taken here.
        known.reduction = "none"
    if known is None:
        raise OwnWorkloadError(f"{place}: the second of what the function gives is no loss.")
    return _Made(model, known, batch, _optimizer(more[0], place) if more else None)


def _optimizer(given: Any, place: str) -> keras.Optimizer:
    if tuple(map(int, keras.__version__.split(".")[:2])) < _OLDEST_KERAS:
        needed = ".".join(map(str, _OLDEST_KERAS))
        raise OwnWorkloadError(f"{place}: an optimizer needs Keras {needed} or newer; this is {keras.__version__}.")
    try:
        known = keras.optimizers.get(given)
    except (TypeError, ValueError) as error:
        raise OwnWorkloadError(f"{place}: {given!r} is no optimizer that Keras knows.") from error
    if isinstance(known, keras.optimizers.LossScaleOptimizer) or known.loss_scale_factor is not None:
        raise OwnWorkloadError(f"{place}: with float16 the program scales the loss; give an optimizer that does not.")
    return known


def _tensor(given: Any) -> tf.Tensor:
    """TensorFlow would keep 32-bit whole numbers in host memory, to be copied at every step."""
    one = tf.convert_to_tensor(given)
    return tf.cast(one, tf.int64) if one.dtype == tf.int32 else one


def _cast(one: tf.Tensor, dtype: str) -> tf.Tensor:
    return tf.cast(one, dtype) if one.dtype.is_floating else one


def _in_float32(answers: Any) -> Any:
    return tf.nest.map_structure(lambda one: _cast(one, "float32"), answers)
