"""A custom workload as a recipe: the user's Keras model, loss, data and optimizer, checked and prepared."""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from workloads.custom.evidence import name_frozen
from workloads.custom.function import UserFunction, batch_parts
from workloads.errors import CustomWorkloadError, describe_value
from workloads.protocol import RunSpec, Source, Variant
from workloads.tensorflow.optimizers import Adam, Optimizer
from workloads.tensorflow.recipe import Batch, Recipe, compile_function
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
    # No public member reaches layers within wrappers; Keras itself checks in this way whether a model can be compiled.
    return model._flatten_layers(include_self=False)  # type: ignore[no-any-return]  # noqa: SLF001


_NORMS = ("BatchNormalization", "GroupNormalization")


def _describe_layer(layer: Any) -> Layer:
    """Return a layer with its layout: its data format, or for a normalization of images the position of its axis.

    Flatten's data format only orders its outputs.
    """
    layer_type = type(layer).__name__
    layout = str(getattr(layer, "data_format", "") or "")
    axes = getattr(layer.input_spec, "ndim", None) or 0
    if layer_type in _NORMS and axes > 2:
        layout = "channels_last" if layer.axis in (-1, axes - 1) else "channels_first"
    return Layer(
        name=layer.name,
        kind=layer_type,
        layout="" if layer_type == "Flatten" else layout,
        recurrent=isinstance(layer, keras.layers.RNN),
    )


def _layer_names(layers: Sequence[Any]) -> str:
    return ", ".join(f"{layer.name} ({type(layer).__name__})" for layer in layers)


class KerasOptimizer:
    """The user's optimizer, copied for each replica from its configuration.

    Gradients arrive averaged; the user's own instance would sum them over replicas again. After an update the weights'
    constraints apply, as in Keras's own `apply`. If a step `may_skip` its update, weights and state are then restored.
    """

    def __init__(
        self, weights: Sequence[tf.Variable], create: Callable[[Sequence[tf.Variable]], "ReplicaOptimizer"]
    ) -> None:
        strategy = tf.distribute.get_strategy()
        weights_by_replica = zip(*map(strategy.experimental_local_results, weights), strict=True)
        # A strategy's scope belongs to one thread: what another thread creates and traces is the replica's alone.
        with ThreadPoolExecutor(1, thread_name_prefix="optimizer") as executor:
            self._replicas = list(executor.map(create, weights_by_replica))

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        replica = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        self._replicas[int(replica)].update(list(gradients), mask)


class ReplicaOptimizer:
    """The optimizer of one replica, with its update traced."""

    def __init__(
        self,
        prototype: keras.Optimizer,
        weights: Sequence[tf.Variable],
        constraints: Sequence[Callable[[tf.Tensor], Any] | None],
        *,
        may_skip: bool,
    ) -> None:
        self._weights = list(weights)
        self._constraints = constraints
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
            saved = [variable.read_value() for variable in state]
            self._optimizer.apply(gradients, self._weights)
            for weight, constraint in zip(self._weights, self._constraints, strict=True):
                if constraint is not None:
                    weight.assign(constraint(weight.read_value()))
            for variable, value in zip(state, saved, strict=True):
                variable.assign(tf.where(mask > 0, variable, value))


_LEARNING_RATE = 0.001
_MIN_KERAS = (3, 4)
"""The oldest Keras whose optimizers keep state for weights that Keras did not wrap."""


def custom_recipe(spec: RunSpec, source: Source | None) -> Recipe:
    """Return the recipe of a function of the user's file; raises `CustomWorkloadError` and whatever the file raises."""
    custom = _CustomRecipe(UserFunction(spec, source), spec.variant)
    return Recipe(
        model=custom.model,
        optimizer=custom.optimizer,
        batch=custom.batch,
        layers=custom.layers,
        answers=custom.answers,
        frozen=custom.frozen,
        casts_inputs=False,
    )


@dataclass(frozen=True, slots=True)
class _FunctionResult:
    """The checked result of the user's function, with its model compiled."""

    model: keras.Model
    batch: Callable[[int], Any]
    optimizer: keras.Optimizer | None


class _CustomRecipe:
    """One call of the user's function, made while the model is created, in the scope of the run's strategy."""

    def __init__(self, function: UserFunction, variant: Variant) -> None:
        self._function = function
        self._variant = variant
        self._result: _FunctionResult | None = None

    @property
    def _made(self) -> _FunctionResult:
        assert self._result is not None, "the model is made first"
        return self._result

    def model(self) -> "KerasModel":
        """Return the user's model with its weights, built from inputs if they do not exist yet."""
        location = self._function.location
        with self._function.attribute_errors():
            name = "Keras model; a workload of PyTorch imports torch in its own file"
            model, loss, batch, optimizer_choice = self._function.call(keras.Model, name)
            optimizer = _own_optimizer(optimizer_choice, model, location)
            _compile(model, loss, location)
        # Each replica has its own optimizer; Keras would create the state of another.
        model.optimizer = None
        self._result = _FunctionResult(model, batch, optimizer)
        if self._variant["mode"] == "train":
            self._build_loss(model, location)
        elif not model.built:
            self._build(model, self.batch(0))
        if self._variant["xla"]:
            prepare_for_xla(model, location)
        return KerasModel(model, self._function)

    def _build_loss(self, model: keras.Model, location: str) -> None:
        """Let Keras create the loss's state, as `fit` does before a first step; refuse what cannot be trained."""
        if not _is_keras_own(model.train_step):
            raise CustomWorkloadError(
                f"{self._function.locate(model.train_step)}: a model's own train_step cannot be measured, because the "
                f"program runs the steps; write a compute_loss instead."
            )
        batch = self.batch(0)
        self._build(model, batch)
        if not model.trainable_variables:
            raise CustomWorkloadError(
                f"{location}: the model has no trainable weights; choose mode=inference, or make a layer trainable."
            )
        size = int(self._variant["batch_size"]) // tf.distribute.get_strategy().num_replicas_in_sync
        inputs, (targets, weights) = tf.nest.map_structure(lambda tensor: tensor[:size], batch)
        if model.loss is not None and _is_keras_own(model.compute_loss) and _none_if_empty(targets) is None:
            raise CustomWorkloadError(
                f"{self._function.locate(self._made.batch)}: batch returns no targets, which the loss needs; give "
                "(x, y), or None instead of the loss if the model adds its own (add_loss)."
            )
        with self._function.attribute_errors():
            # No public member does it, and the variables of metrics cannot be created within a step.
            model._symbolic_build(data_batch=(inputs, _none_if_empty(targets), _none_if_empty(weights)))  # noqa: SLF001

    def _build(self, model: keras.Model, batch: Batch) -> None:
        if not model.built:
            with self._function.attribute_errors():
                model(tf.nest.map_structure(lambda tensor: tensor[:1], batch[0]))

    def layers(self) -> tuple[Layer, ...]:
        return tuple(map(_describe_layer, _flat_layers(self._made.model)))

    def answers(self, inputs: Any) -> Sequence[Sequence[tf.Tensor]]:
        """Return each output of the user's model in the mode of the run, then in another that reveals more.

        In inference mode dropout does not make outputs differ, but running statistics of a few steps can make them
        equal.
        """
        model, trains = self._made.model, self._variant["mode"] == "train"
        modes = [True, False] if trains and not model.non_trainable_weights else [trains]
        return [tf.nest.flatten(model(inputs, training=training)) for training in modes]

    def frozen(self) -> str:
        """Return what `Inspection.frozen` does; batch-norm statistics, which nothing trains, do not count."""
        layers = (self._made.model, *_flat_layers(self._made.model))
        # No public member distinguishes a frozen weight from an untrainable one.
        weights = {id(weight): weight for layer in layers for weight in layer._trainable_variables}  # noqa: SLF001
        return name_frozen((int(np.prod(weight.shape)), weight.trainable) for weight in weights.values())

    def optimizer(self, weights: Sequence[tf.Variable]) -> Optimizer:
        """Return the user's optimizer for these weights, or Adam without one."""
        optimizer = self._made.optimizer
        constraints = [variable.constraint for variable in self._made.model.trainable_variables]
        if optimizer is None and not any(constraints) and all(weight.dtype == tf.float32 for weight in weights):
            return Adam(weights, _LEARNING_RATE)
        with self._function.attribute_errors():
            optimizer = optimizer or _check_optimizer(keras.optimizers.Adam(_LEARNING_RATE), self._function.location)
            may_skip = self._variant["precision"] == "float16"
            create = functools.partial(ReplicaOptimizer, optimizer, constraints=constraints, may_skip=may_skip)
            return KerasOptimizer(weights, create)

    def batch(self, index: int) -> Batch:
        """Return inputs, and targets with sample weights, `()` for missing ones, after a check of their sizes."""
        with self._function.attribute_errors():
            inputs, *more = batch_parts(self._made.batch(index), "(x, y)", "(x, y, sample_weight)")
            targets, weights = [() if part is None else part for part in (*more, None)[:2]]
            batch = tf.nest.map_structure(_to_tensor, (inputs, (targets, weights)))
            self._function.check_batch(tf.nest.flatten(batch), index)
        return batch[0], batch[1]


class KerasModel:
    """A compiled Keras model."""

    def __init__(self, model: keras.Model, function: UserFunction) -> None:
        self._model = model
        self._attribute_errors = function.attribute_errors

    @property
    def weight_names(self) -> Sequence[str]:
        return [variable.path for variable in self._model.trainable_variables]

    @property
    def weights(self) -> Sequence[tf.Variable]:
        return [variable.value for variable in self._model.trainable_variables]

    def loss(self, inputs: Any, targets: Any) -> tf.Tensor:
        with self._attribute_errors():
            labels, weights = map(_none_if_empty, targets)
            answers = self._model(inputs, training=True)
            # As `train_step` calls it: the user's `compute_loss` need not have `training`.
            loss = self._model._compute_loss(  # noqa: SLF001
                x=inputs, y=labels, y_pred=answers, sample_weight=weights, training=True
            )
            # Keras sums the replicas' gradients, and divides its means by the number of replicas; here gradients are
            # averaged.
            share = keras.losses.MeanAbsoluteError()([[1.0]], [[0.0]])
            return tf.cast(loss, tf.float32) / tf.cast(share, tf.float32)

    def outputs(self, inputs: Any) -> tf.Tensor:
        with self._attribute_errors():
            answers = self._model(inputs, training=False)
        several = [tf.cast(answer, tf.float32) for answer in tf.nest.flatten(answers)]
        return several[0] if len(several) == 1 else tf.stack([tf.reduce_mean(answer) for answer in several])


def _compile(model: keras.Model, loss: Any, location: str) -> None:
    """Give the model the loss by Keras's `compile`; a model already compiled with a loss keeps it."""
    if isinstance(loss, dict) and "class_name" in loss:
        loss = keras.losses.get(loss)
    for output_loss in tf.nest.flatten(loss):
        try:
            output_loss in (None, "ce", "crossentropy") or keras.losses.get(output_loss)
        except (TypeError, ValueError) as error:
            raise CustomWorkloadError(
                f"{location}: {describe_value(output_loss)} is not a loss that Keras knows."
            ) from error
    if loss is not None and model.compiled and model.loss not in (None, loss):
        raise CustomWorkloadError(
            f"{location}: the model is compiled with another loss; give None instead of the second."
        )
    if not model.compiled or (loss is not None and model.loss is None):
        model.compile(optimizer=None, loss=tf.nest.map_structure(_per_example, loss))
    if aggregate := getattr(model, "_aggregate_additional_loss", None):
        # Keras sums the losses of `add_loss` in their layers' precision, and cannot add that to a float32 loss.
        model._aggregate_additional_loss = lambda added: aggregate(keras.ops.cast(added, keras.config.floatx()))  # noqa: SLF001


def _per_example(loss: Any) -> Any:
    """Return a function that turns one number into one per example: Keras divides only averages among replicas."""
    if not isinstance(loss, FunctionType) or tf.distribute.get_strategy().num_replicas_in_sync < 2:
        return loss

    @functools.wraps(loss)
    def shared(targets: Any, outputs: Any) -> Any:
        value = tf.convert_to_tensor(loss(targets, outputs))
        return (
            tf.broadcast_to(value, tf.shape(outputs)[: max(1, len(outputs.shape) - 1)])
            if value.shape.rank == 0
            else value
        )

    return shared


def _own_optimizer(choice: Any, model: keras.Model, location: str) -> keras.Optimizer | None:
    """Return the function's optimizer, else that of a compiled model, else None."""
    if choice is None and model.compiled:
        # With float16 Keras's `compile` scales the loss, as the program already does.
        choice = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return None if choice is None else _check_optimizer(choice, location)


def _is_keras_own(method: Any) -> bool:
    return str(getattr(method, "__module__", "")).startswith("keras.")


def _check_optimizer(optimizer: Any, location: str) -> keras.Optimizer:
    if tuple(map(int, keras.__version__.split(".")[:2])) < _MIN_KERAS:
        needed = ".".join(map(str, _MIN_KERAS))
        raise CustomWorkloadError(
            f"{location}: an optimizer needs Keras {needed} or newer; this is {keras.__version__}."
        )
    try:
        resolved = keras.optimizers.get(optimizer)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{describe_value(optimizer)} is not an optimizer that Keras knows"
        raise CustomWorkloadError(f"{location}: {what}; give one, such as keras.optimizers.SGD(0.1).") from error
    if isinstance(resolved, keras.optimizers.LossScaleOptimizer) or resolved.loss_scale_factor is not None:
        raise CustomWorkloadError(
            f"{location}: with float16 the program scales the loss; give an optimizer that does not."
        )
    return resolved


def _to_tensor(value: Any) -> tf.Tensor:
    """Return the value as a tensor; int32 becomes int64, as TensorFlow would copy it from host memory at every step.

    As in Keras's `fit`, floating-point numbers become its `floatx`, from which the layers cast.
    """
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        cure = ".to_tensor()" if isinstance(value, tf.RaggedTensor) else "tf.sparse.to_dense(...)"
        raise TypeError(f"batch returns a {type(value).__name__}; convert it to an array of one shape with {cure}")
    if value is None:
        raise TypeError("batch returns None among its arrays; targets and sample weights can be None as a whole only")
    tensor = tf.convert_to_tensor(value)
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f"batch returns {tensor.dtype.name} values, and a model takes numbers")
    if tensor.dtype.is_floating:
        return tf.cast(tensor, keras.config.floatx())
    return tf.cast(tensor, tf.int64) if tensor.dtype == tf.int32 else tensor


def _none_if_empty(values: Any) -> Any:
    return values if tf.nest.flatten(values) else None
