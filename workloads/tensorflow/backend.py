"""TensorFlow behind the interface of `workloads.backend`; imported when a method needs it, not with this module."""

import functools
import gc
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from workloads import catalog, cifar10
from workloads.calibration import calibrate
from workloads.errors import KnownError
from workloads.framework import FRAMEWORK, ONEDNN_KEY, recorded_variables
from workloads.job_protocol import ComputedGradients, ComputeGradients, OutputDifference
from workloads.libraries import check_gpu_count, import_modules, loaded_versions
from workloads.protocol import Calibration, RunSpec, Source, Variant
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.tensorflow import runtime
from workloads.training import Task
from workloads.weights import Array, SavedWeights

if TYPE_CHECKING:
    from workloads.tensorflow.evidence.collector import EvidenceCollector
    from workloads.tensorflow.recipe import Recipe

_OUT_OF_MEMORY_PATTERNS = (
    "RESOURCE_EXHAUSTED",
    "out of memory",
    "OOM when allocating",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "failed to allocate memory",
)
_LAYOUT_MESSAGE = (
    "TensorFlow on this processor has no kernels for images in this layout and precision; use NHWC (channels_last), "
    "precision=float32, or xla=true."
)
_LAYOUT_PATTERNS = (
    *("only supports NHWC", "only supports the NHWC", "only support NHWC", "NHWC tensor format"),
    "could not create a primitive",  # oneDNN's, for bfloat16 without the instructions
)

_NO_KERNEL_PATTERNS = ("support Op 'CudnnRNN", "Could not find device for node: {{node CudnnRNN")
_NO_KERNEL_MESSAGE = (
    "cuDNN's recurrent operations run on NVIDIA GPUs only, and this run is on the CPU: build the model of Keras layers "
    "there (use_cudnn='auto'), which take the same weights, or run it with gpus=1."
)
_CUDNN_PATTERNS = (
    "DNN library initialization failed",
    "DNN library is not found",
    "No DNN in stream executor",
    "VERSION_MISMATCH",
    "CuDNN library needs to have matching major version",
)
_CUDNN_MESSAGE = (
    "cuDNN could not be started, most often because TensorFlow was built for another version than was loaded: the log "
    "names both. Install the right one with `pip install 'tensorflow[and-cuda]>=2.21,<2.22'`, and remove others from "
    "LD_LIBRARY_PATH."
)


class TensorflowBackend:
    """TensorFlow in this process; see `Backend` for what each method promises."""

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set the GPUs that TensorFlow may see, their order, Keras's backend, oneDNN and how much is logged."""
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        FRAMEWORK.prepare_environment(gpu_uuids)

    def preimport(self) -> None:
        """Import TensorFlow and Keras for a run that is still unknown.

        No GPU is touched: CUDA reads which GPUs it may see when TensorFlow first looks for them, after the run's own
        `prepare_environment`. If that ever changed, TensorFlow would see no GPU, never another run's.
        """
        self.prepare_environment(())
        _import_libraries()

    def import_framework(self, gpu_uuids: Sequence[str], _memory_limit_gib: float = 0.0, /) -> dict[str, str]:
        """Import TensorFlow and Keras, check the GPUs that they see, and let memory grow as variants allow."""
        self.prepare_environment(gpu_uuids)
        set_by_import = _import_libraries()
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        cause = (
            "its CUDA libraries are missing or do not fit the driver; install them with "
            "`pip install 'tensorflow[and-cuda]>=2.21,<2.22'`"
        )
        check_gpu_count(FRAMEWORK, gpu_uuids, len(gpus), cause)
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        users = {name: value for name, value in os.environ.items() if name not in set_by_import}
        return environment_info(users)

    def build_task(self, spec: RunSpec, source: Source | None) -> Task:
        """Load stored data, configure TensorFlow, and build the model and its step."""
        from workloads.tensorflow.steps import build_task

        stored = cifar10.stored_data(spec.variant)
        replicas = runtime.configure(spec.variant)
        return build_task(_recipe(spec, source), spec.variant, replicas, stored)

    def make_collector(self, spec: RunSpec, task: Task) -> "EvidenceCollector":
        from workloads.tensorflow.evidence.collector import EvidenceCollector

        return EvidenceCollector(spec, task)

    def loaded_versions(self) -> dict[str, str]:
        return loaded_versions()

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")

        def matrices(size: int) -> Callable[[int], None]:
            with tf.device("GPU:0" if gpu_uuids else "CPU:0"):
                normal = (tf.random.stateless_normal([size, size], [seed, size]) for seed in (1, 2))
                left, right = (tf.cast(numbers, runtime.compute_dtype(precision)) for numbers in normal)

            def products(count: int) -> None:
                for _ in range(count):
                    tf.linalg.matmul(left, right)
                tf.test.experimental.sync_devices()

            return products

        return calibrate(matrices, gpu_uuids, precision, tf.errors.OpError)

    def infer(self, saved: SavedWeights, spec: RunSpec) -> Array:
        """Configure TensorFlow for the variant, load the weights into its model and compute its outputs."""
        from workloads.tensorflow.saving import load_weights, model_outputs

        replicas = runtime.configure(spec.variant)
        model = recipe_of(spec.workload)(spec.variant).model()
        load_weights(model, saved.weights.values())
        return model_outputs(model, saved.reference, spec.variant, replicas)

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Configure TensorFlow for the variant, and run its step with an optimizer that only records the gradients."""
        from workloads.tensorflow.gradients import compute_gradients

        replicas = runtime.configure(request.spec.variant)
        return compute_gradients(_recipe(request.spec, request.source), replicas, request)

    def export_model(self, saved: SavedWeights, paths: Sequence[Path]) -> OutputDifference:
        """Write a plain Keras model: a .keras file or the folder of a SavedModel."""
        from workloads.tensorflow.saving import export_model

        return export_model(saved, paths)

    def explain_error(self, error: Exception) -> KnownError | None:
        """Recognise a full device, a layout without kernels and an incompatible cuDNN, by type and message."""
        message = str(error)
        if type(error).__name__ == "ResourceExhaustedError" or _contains(message, _OUT_OF_MEMORY_PATTERNS):
            return KnownError(outcome="out_of_memory")
        if _contains(message, _LAYOUT_PATTERNS):
            return KnownError(outcome="refused", reason=_LAYOUT_MESSAGE)
        if _contains(message, _NO_KERNEL_PATTERNS):
            return KnownError(outcome="refused", reason=_NO_KERNEL_MESSAGE)
        return KnownError(outcome="failed", reason=_CUDNN_MESSAGE) if _contains(message, _CUDNN_PATTERNS) else None


def recipe_of(workload: str) -> "Callable[[Variant], Recipe]":
    from workloads.tensorflow.cnn import model as cnn
    from workloads.tensorflow.recurrent import model as recurrent

    return recurrent.recipe_of(workload) if workload in RECURRENT_LAYERS else cnn.recipe_of(workload)


def _recipe(spec: RunSpec, source: Source | None) -> "Recipe":
    if not catalog.is_custom(spec.workload):
        return recipe_of(spec.workload)(spec.variant)
    from workloads.tensorflow.custom import custom_recipe

    return custom_recipe(spec, source)


@functools.cache
def _import_libraries() -> frozenset[str]:
    """Import the libraries once; return the environment variables that this set, as scikit-learn does, not the user."""
    variables, modules = set(os.environ), cast("dict[str, ModuleType | None]", sys.modules)
    gc.disable()  # saves a tenth of the imports' time
    # TensorFlow Lite would import JAX, which takes a fifth of the imports' time, and fails if JAX is broken.
    modules.setdefault("jax", None)
    try:
        pip = f"`{sys.executable} -m pip install 'tensorflow>=2.21,<2.22'`"
        import_modules(FRAMEWORK, f"install it with {pip}, for NVIDIA GPUs 'tensorflow[and-cuda]'")
    finally:
        gc.enable()
        if modules["jax"] is None:
            del modules["jax"]  # a user's file may use it
    return frozenset(set(os.environ) - variables)


def environment_info(variables: Mapping[str, str]) -> dict[str, str]:
    """Return versions, visible devices and the environment variables that change what TensorFlow does."""
    import keras
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port

    build = tf.sysconfig.get_build_info()
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    versions = {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "cuda_built": build.get("cuda_version"),
        "cudnn_built": build.get("cudnn_version"),
        "tensorflow_devices": ", ".join(str(gpu.get("device_name", "GPU")) for gpu in gpus) or "CPU",
        ONEDNN_KEY: "on" if _pywrap_util_port.IsMklEnabled() else "off",
    }
    return {name: str(value) for name, value in versions.items() if value} | recorded_variables(variables)


def _contains(message: str, patterns: Sequence[str]) -> bool:
    return any(pattern in message for pattern in patterns)
