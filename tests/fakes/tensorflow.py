"""TensorFlow on the CPU, in this process or in one of its own, and what tests of the other frameworks ask of it.

`import tensorflow, triton` ends in a segmentation fault (TensorFlow 2.21, Triton 3.7), and PyTorch's optimizers import
Triton where it is installed: so a process of tests has TensorFlow or PyTorch, never both.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from workloads import seeding
from workloads.cifar10 import ImageData, stored_data
from workloads.job_protocol import ComputedGradients, ComputeGradients, JobRequest, JobResult
from workloads.protocol import Message, RunSpec, Value, Variant
from workloads.tensorflow.backend import TensorflowBackend, recipe_of
from workloads.tensorflow.runtime import Replicas, replicas_on
from workloads.training import Loop, Task, plan_of

if TYPE_CHECKING:
    from workloads.tensorflow.recipe import Recipe

Given = ParamSpec("Given")
Result = TypeVar("Result")
Array = np.ndarray[Any, Any]
FEW_BATCHES = 4
"""64 take a quarter of the time of a test of a few steps."""


def set_up_tensorflow() -> None:
    """Set up TensorFlow in this process before its first operation: two logical CPU devices, one thread."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    TensorflowBackend().prepare_environment(())
    import tensorflow as tf

    # These models are tiny, and the other half of the tests needs the other core.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def _set_up_unoptimized() -> None:
    set_up_tensorflow()
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    seeding._MAX_BATCHES = FEW_BATCHES


class TensorflowProcess:
    """A process that has TensorFlow, and computes with graphs as they were traced."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def call(self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self._pool.submit(function, *args, **kwargs).result()


@contextmanager
def tensorflow_process() -> Iterator[TensorflowProcess]:
    with ProcessPoolExecutor(1, get_context("spawn"), _set_up_unoptimized) as pool:
        pool.submit(os.getpid).result()  # it has started: no test left it behind
        yield TensorflowProcess(pool)


@contextmanager
def precision_of(precision: Value) -> Iterator[None]:
    """Keras's policy as a run of that precision sets it."""
    import keras

    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")


def build(spec: RunSpec, replicas: Replicas, stored: ImageData | None = None) -> Task:
    from workloads.tensorflow.steps import build_task

    return build_task(recipe_of(spec.workload)(spec.variant), spec.variant, replicas, stored)


def _replicas(count: int) -> Replicas:
    return replicas_on([f"CPU:{number}" for number in range(count)])


def compute_gradients(spec: RunSpec, path: Path) -> ComputedGradients:
    from workloads.tensorflow import gradients

    request = ComputeGradients(spec=spec, path=str(path))
    return gradients.compute_gradients(recipe_of(spec.workload)(spec.variant), _replicas(1), request)


def first_losses(spec: RunSpec, steps: int, replicas: int = 1) -> list[float]:
    """Train a spec for a few steps, and return their losses."""
    task = build(spec, _replicas(replicas))
    return [task.fetch(task.step()) for _ in range(steps)]


def train(spec: RunSpec, task: Task) -> tuple[list[float], list[Any]]:
    """Train the task of a spec to its end, in any framework; return the loss of each step, and all messages."""
    losses: list[float] = []
    messages: list[Message] = []

    def step() -> Any:
        result = task.step()
        losses.append(task.fetch(result))
        return result

    assert Loop(replace(task, step=step), plan_of(spec.variant), messages.append, lambda: False).run()
    return losses, messages


def train_on_stored_images(spec: RunSpec, replicas: int = 1) -> tuple[list[float], list[Any]]:
    """Train a spec to its end; return the loss of each step, and all messages."""
    return train(spec, build(spec, _replicas(replicas), stored_data(spec.variant)))


def outputs_after_a_batch(spec: RunSpec) -> tuple[Array, Array, Array]:
    """Return the images and classes of the first batch of an image workload, and its outputs in inference after it."""
    from workloads.tensorflow.cnn.model import build_cnn

    net = build_cnn(spec.workload, spec.variant)
    images, classes = recipe_of(spec.workload)(spec.variant).batch(0)
    net.loss(images, classes)
    return np.asarray(images), np.asarray(classes), net.outputs(images).numpy()


def resnet_50(images: Array) -> tuple[dict[str, list[Array]], Array]:
    """Return the weights of Keras's ResNet-50 by layer, and its outputs in inference for images in NHWC."""
    import keras

    net = keras.applications.ResNet50(
        weights=None, input_shape=images.shape[1:], classes=10, classifier_activation=None, name="resnet50"
    )
    return {layer.name: layer.get_weights() for layer in net.layers}, np.asarray(net(images, training=False))


def perform(request: JobRequest) -> JobResult:
    from workloads import jobs

    return jobs.perform(request)


def train_recipe(
    recipe: "Recipe", variant: Variant, replicas: Replicas, steps: int, seed: int = 1, **changes: Any
) -> tuple[Any, list[float]]:
    """Train a recipe, with these changes, so many steps; return its model, and each step's loss."""
    import keras

    from workloads.tensorflow.recipe import Model
    from workloads.tensorflow.steps import build_task

    keras.utils.set_random_seed(seed)
    models: list[Model] = []

    def keep() -> Model:
        models.append(recipe.model())
        return models[0]

    task = build_task(replace(recipe, model=keep, **changes), variant, replicas)
    return models[0], [task.fetch(task.step()) for _ in range(steps)]
