"""A custom workload as a recipe: the user's Keras model, loss, data and optimizer, checked and prepared."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from workloads.custom.definitions import SOURCE
from workloads.custom.source import find_function, load_module
from workloads.errors import CustomWorkloadError, describe_error, error_location, file_name, function_location
from workloads.protocol import RunSpec, Source
from workloads.tensorflow.optimizers import Adam, Optimizer
from workloads.tensorflow.recipe import Batch, Recipe, compile_function
from workloads.tensorflow.runtime import compute_dtype
from workloads.training import Layer


def prepare_for_xla(model: keras.Model, location: str) -> None:
    """Switch off cuDNN in layers that leave the choice to Keras (`use_cudnn="auto"`): XLA has none of its kernels.

    Keras's `fit` does the reverse: it leaves out XLA (keras.io/api/layers/recurrent_layers/lstm). Raises
    `CustomWorkloadError` that names the layers which say of themselves that they cannot be compiled.
    """
    layers = _flat_layers(model)
    auto_layers = [layer for layer in layers if getattr(layer, "use_cudnn", False) == "auto"]
    for layer in auto_layers:
        layer.use_cudnn = False
    if auto_layers:
        print(f"XLA compiles no cuDNN layers, so {_layer_names(auto_layers)} ran with use_cudnn=False.", flush=True)  # noqa: T201
    incompatible = [layer for layer in layers if not layer.supports_jit and layer not in auto_layers]
    if incompatible:
        raise CustomWorkloadError(
            f"{location}: XLA cannot compile {_layer_names(incompatible)}; choose xla=false or other layers."
        )


def _flat_layers(model: keras.Model) -> Sequence[Any]:
    # No public member reaches layers within wrappers; Keras asks in this way whether a model can be compiled.
    return model._flatten_layers(include_self=False)  # type: ignore[no-any-return]  # noqa: SLF001


_NORMS = ("BatchNormalization", "GroupNormalization")


def _describe_layer(layer: Any) -> Layer:
    """Return a layer with its layout: its data format, of a normalization of images the place of its axis.

    Flatten's data format is the order of its outputs only.
    """
    kind = type(layer).__name__
    layout = str(getattr(layer, "data_format", "") or "")
    axes = getattr(layer.input_spec, "ndim", None) or 0
    if kind in _NORMS and axes > 2:
        layout = "channels_last" if layer.axis in (-1, axes - 1) else "channels_first"
    return Layer(
        name=layer.name,
        kind=kind,
        layout="" if kind == "Flatten" else layout,
        recurrent=isinstance(layer, keras.layers.RNN),
    )


def _layer_names(layers: Sequence[Any]) -> str:
    return ", ".join(f"{layer.name} ({type(layer).__name__})" for layer in layers)


class KerasOptimizer:
    """The user's optimizer, one per replica, each made from its configuration.

    Gradients come in averaged; the given one would sum them over replicas once more. If a step `may_skip` its update,
    weights and state are restored then.
    """

    def __init__(self, prototype: keras.Optimizer, weights: Sequence[tf.Variable], *, may_skip: bool) -> None:
        strategy = tf.distribute.get_strategy()
        weights_by_replica = zip(*map(strategy.experimental_local_results, weights), strict=True)
        # A strategy's scope is one thread's: what is made and traced on another is of the replica alone.
        with ThreadPoolExecutor(1, thread_name_prefix="optimizer") as executor:
            self._replicas = list(
                executor.map(
                    lambda weights_of_replica: _ReplicaOptimizer(prototype, weights_of_replica, may_skip=may_skip),
                    weights_by_replica,
                )
            )

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Update each weight of the replica that calls by its gradient, or none."""
        replica = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        self._replicas[int(replica)].update(list(gradients), mask)


class _ReplicaOptimizer:
    """The optimizer of one replica, with its update traced."""

    def __init__(self, prototype: keras.Optimizer, weights: Sequence[tf.Variable], *, may_skip: bool) -> None:
        self._weights = list(weights)
        self._may_skip = may_skip
        with tf.device(self._weights[0].device):
            self._optimizer = type(prototype).from_config(prototype.get_config())
            self._optimizer.build(self._weights)
        specs = [tf.TensorSpec(weight.shape, weight.dtype) for weight in weights]
        self.update = compile_function(self._update, xla=False).get_concrete_function(
            specs, tf.TensorSpec((), tf.float32)
        )

    def _update(self, gradients: list[tf.Tensor], mask: tf.Tensor) -> None:
        state = [*self._weights, *(variable.value for variable in self._optimizer.variables)] if self._may_skip else []
        with tf.device(self._weights[0].device):
            before = [one.read_value() for one in state]
            self._optimizer.apply(gradients, self._weights)
            for one, old in zip(state, before, strict=True):
                one.assign(tf.where(mask > 0, one, old))


_LEARNING_RATE = 0.001
_MIN_KERAS = (3, 4)
"""The oldest Keras whose optimizers have state for weights that Keras did not wrap itself."""


def custom_recipe(spec: RunSpec, source: Source) -> Recipe:
    """Return the recipe of a function of the user's file; raises `CustomWorkloadError` and whatever the file raises."""
    if spec.variant[SOURCE] != source.sha256:
        raise CustomWorkloadError(f"{file_name(source)}: The file is not the one this run is of.")
    function = find_function(spec.workload.rpartition(":")[2], load_module(source), source)
    custom = _CustomRecipe(function, spec, source)
    return Recipe(model=custom.model, optimizer=custom.optimizer, batch=custom.batch, layers=custom.layers)


@dataclass(frozen=True, slots=True)
class _FunctionResult:
    """The checked result of the user's function."""

    model: keras.Model
    loss: Callable[[Any, Any], Any]
    batch: Callable[[int], Any]
    optimizer: keras.Optimizer | None


class _CustomRecipe:
    """One call of the user's function, made together with the model, in the scope of the run's strategy."""

    def __init__(self, function: FunctionType, spec: RunSpec, source: Source) -> None:
        self._function = function
        self._variant = spec.variant
        self._source = source
        self._result: _FunctionResult | None = None
        self._shapes: list[tf.TensorShape] = []

    def model(self) -> "KerasModel":
        """Return the user's model with its weights, built with inputs if they are not made yet."""
        arguments = {name: self._variant[name] for name in inspect.signature(self._function).parameters}
        with self._attribute_errors():
            result = self._function(**arguments)
        location = function_location(self._function)
        self._result = _check_result(result, location)
        if not self._result.model.built:
            dtype = compute_dtype(str(self._variant["precision"]))
            inputs, _ = self.batch(0)
            self._result.model(tf.nest.map_structure(lambda one: _cast_floats(one[:1], dtype), inputs))
        if self._variant["xla"]:
            prepare_for_xla(self._result.model, location)
        return KerasModel(self._result.model, self._result.loss, self._attribute_errors)

    def layers(self) -> tuple[Layer, ...]:
        """Return the layers of the user's model."""
        assert self._result is not None, "the model is made first"
        return tuple(map(_describe_layer, _flat_layers(self._result.model)))

    def optimizer(self, weights: Sequence[tf.Variable]) -> Optimizer:
        """Return the user's optimizer of these weights, or Adam if there is none."""
        assert self._result is not None, "the model is made first"
        if self._result.optimizer is None:
            return Adam(weights, _LEARNING_RATE)
        with self._attribute_errors():
            return KerasOptimizer(self._result.optimizer, weights, may_skip=self._variant["precision"] == "float16")

    def batch(self, index: int) -> Batch:
        """Return one batch as tensors, after a check of its size."""
        assert self._result is not None, "the model is made first"
        with self._attribute_errors():
            values = self._result.batch(index)
            if not isinstance(values, tuple) or len(values) != 2:
                raise TypeError(f"batch gives inputs and targets, (x, y), not {type(values).__name__}")
            inputs, targets = tf.nest.map_structure(_to_tensor, values)
            self._check_batch(tf.nest.flatten((inputs, targets)), index)
        return inputs, tf.nest.map_structure(lambda one: _cast_floats(one, "float32"), targets)

    def _check_batch(self, tensors: Sequence[tf.Tensor], index: int) -> None:
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
            shapes_text = [", ".join(str(tuple(shape)) for shape in each) for each in (shapes, self._shapes)]
            raise ValueError(
                f"batch gives {shapes_text[0]} at step {index} and gave {shapes_text[1]} before; all must be alike"
            )

    @contextlib.contextmanager
    def _attribute_errors(self) -> Iterator[None]:
        """Attribute errors of Keras to the user's function that caused them."""
        try:
            yield
        except SystemExit as error:
            raise CustomWorkloadError(f"{error_location(error, self._source)}: the file ends the program.") from error
        except Exception as error:
            if ":" in error_location(error, self._source):
                raise
            raise CustomWorkloadError(f"{function_location(self._function)}: {describe_error(error)}") from error


class KerasModel:
    """A Keras model and a loss over its outputs."""

    def __init__(
        self,
        model: keras.Model,
        loss: Callable[[Any, Any], Any],
        attribute_errors: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._model = model
        self._loss = loss
        self._attribute_errors = attribute_errors

    @property
    def weight_names(self) -> Sequence[str]:
        """Return the paths of the trained variables."""
        return [variable.path for variable in self._model.trainable_variables]

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables, in the model's order."""
        return [variable.value for variable in self._model.trainable_variables]

    def loss(self, inputs: Any, targets: Any) -> tf.Tensor:
        """Return the mean of the user's loss plus the losses of the model's regularizers."""
        with self._attribute_errors():
            answers = _to_float32(self._model(inputs, training=True))
            value = tf.reduce_mean(tf.cast(self._loss(targets, answers), tf.float32))
            return value + sum(tf.cast(tf.reduce_sum(more), tf.float32) for more in self._model.losses)

    def outputs(self, inputs: Any) -> tf.Tensor:
        """Return the outputs; of a model with several, the mean of each."""
        with self._attribute_errors():
            answers = _to_float32(self._model(inputs, training=False))
        several = tf.nest.flatten(answers)
        return several[0] if len(several) == 1 else tf.stack([tf.reduce_mean(one) for one in several])


def _check_result(result: Any, location: str) -> _FunctionResult:
    if not isinstance(result, tuple) or len(result) not in (3, 4):
        raise CustomWorkloadError(
            f"{location}: the function gives {type(result).__name__}, and should give (model, loss, batch), "
            "or (model, loss, batch, optimizer)."
        )
    model, loss, batch, *more = result
    if not isinstance(model, keras.Model):
        raise CustomWorkloadError(
            f"{location}: the first of what the function gives is {type(model).__name__}, no Keras model."
        )
    if not callable(batch):
        raise CustomWorkloadError(f"{location}: the third of what the function gives is no function batch(step).")
    try:
        known = keras.losses.get(loss)
    except (TypeError, ValueError) as error:
        raise CustomWorkloadError(f"{location}: {loss!r} is no loss that Keras knows.") from error
    if isinstance(known, keras.losses.Loss):
        # Reduced by Keras itself, it would be divided by the replicas in newer versions; the mean is taken here.
        known.reduction = "none"
    if known is None:
        raise CustomWorkloadError(f"{location}: the second of what the function gives is no loss.")
    return _FunctionResult(model, known, batch, _check_optimizer(more[0], location) if more else None)


def _check_optimizer(optimizer: Any, location: str) -> keras.Optimizer:
    if tuple(map(int, keras.__version__.split(".")[:2])) < _MIN_KERAS:
        needed = ".".join(map(str, _MIN_KERAS))
        raise CustomWorkloadError(
            f"{location}: an optimizer needs Keras {needed} or newer; this is {keras.__version__}."
        )
    try:
        known = keras.optimizers.get(optimizer)
    except (TypeError, ValueError) as error:
        raise CustomWorkloadError(f"{location}: {optimizer!r} is no optimizer that Keras knows.") from error
    if isinstance(known, keras.optimizers.LossScaleOptimizer) or known.loss_scale_factor is not None:
        raise CustomWorkloadError(
            f"{location}: with float16 the program scales the loss; give an optimizer that does not."
        )
    return known


def _to_tensor(value: Any) -> tf.Tensor:
    """Return the value as a tensor; int32 becomes int64, as TensorFlow would copy it from host memory at every step."""
    tensor = tf.convert_to_tensor(value)
    return tf.cast(tensor, tf.int64) if tensor.dtype == tf.int32 else tensor


def _cast_floats(tensor: tf.Tensor, dtype: str) -> tf.Tensor:
    return tf.cast(tensor, dtype) if tensor.dtype.is_floating else tensor


def _to_float32(answers: Any) -> Any:
    return tf.nest.map_structure(lambda one: _cast_floats(one, "float32"), answers)
