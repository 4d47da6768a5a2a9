"""Configures TensorFlow for one variant, once per process: threads, memory, precision and the replicas that compute."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.errors import RefusedError
from workloads.protocol import Variant

if TYPE_CHECKING:
    import tensorflow as tf


_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclass(frozen=True, slots=True)
class Replicas:
    """The devices that compute, in order, and their distribution strategy (the default one for a single device)."""

    strategy: "tf.distribute.Strategy"
    devices: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.devices)


def configure(variant: Variant) -> Replicas:
    """Apply a variant's settings to TensorFlow, before its first operation, and return the replicas that compute."""
    import keras
    import tensorflow as tf

    threads = int(variant["cpu_threads"])
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    _set_memory(tf.config.list_physical_devices("GPU"), variant)
    tf.config.experimental.enable_tensor_float_32_execution(variant["precision"] == "tf32")
    tf.config.optimizer.set_experimental_options({"layout_optimizer": bool(variant["layout_optimizer"])})
    keras.config.set_dtype_policy(_POLICIES[str(variant["precision"])])
    keras.utils.set_random_seed(int(variant["seed"]))
    gpu_count = int(variant["gpus"])
    # On several GPUs a step ends on the host when gradients are exchanged, so the next one can be prepared meanwhile.
    tf.config.experimental.set_synchronous_execution(gpu_count < 2)
    return replicas_on([f"GPU:{index}" for index in range(gpu_count)] or ["CPU:0"], str(variant["all_reduce"]))


def _set_memory(gpus: "Sequence[tf.config.PhysicalDevice]", variant: Variant) -> None:
    """Set how TensorFlow takes the memory of these GPUs, and its limit on each."""
    import tensorflow as tf

    growth, limit_gib = bool(variant["memory_growth"]), float(variant["memory_limit"])
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, growth)
        if limit_gib:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=int(limit_gib * 1024))
            tf.config.set_logical_device_configuration(gpu, [limit])
    if limit_gib and growth:
        # With logical devices TensorFlow ignores the growth set above, and heeds only this variable.
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"


def gpu_limits_bytes() -> list[int]:
    """Return the most memory that TensorFlow's allocator may hold on each GPU, as the devices report it."""
    from tensorflow.python.client import pywrap_tf_session as session
    from tensorflow.python.eager.context import context
    from tensorflow.python.pywrap_tfe import TFE_ContextListDevices

    context().ensure_initialized()
    devices = TFE_ContextListDevices(context()._handle)  # noqa: SLF001 - tf.config tells no limit
    numbers = range(session.TF_DeviceListCount(devices))
    gpus = [number for number in numbers if session.TF_DeviceListType(devices, number) == "GPU"]
    return [session.TF_DeviceListMemoryBytes(devices, number) for number in gpus]


def replicas_on(devices: Sequence[str], all_reduce: str | None = None) -> Replicas:
    """Return replicas on these devices of TensorFlow, mirrored if there are several.

    They exchange gradients by `all_reduce`: nccl, hierarchical, one_device; None for TensorFlow's own choice.

    Raises:
        RefusedError: nccl on devices that are not GPUs.
    """
    import tensorflow as tf

    if len(devices) < 2:
        return Replicas(tf.distribute.get_strategy(), tuple(devices))
    strategy = tf.distribute.MirroredStrategy(list(devices), cross_device_ops=_cross_device_ops(all_reduce, devices))
    return Replicas(strategy, tuple(devices))


def _cross_device_ops(all_reduce: str | None, devices: Sequence[str]) -> "tf.distribute.CrossDeviceOps | None":
    """Return how to exchange gradients; None leaves it to TensorFlow's collectives, which use NCCL on GPUs."""
    import tensorflow as tf

    if all_reduce == "nccl" and not all(device.startswith("GPU") for device in devices):
        raise RefusedError("NCCL is between NVIDIA GPUs only; use all_reduce=hierarchical or all_reduce=one_device.")
    if all_reduce == "hierarchical":
        # One part of the buffer for each device, so that all devices add, and links are used in both directions.
        return tf.distribute.HierarchicalCopyAllReduce(num_packs=len(devices))
    return tf.distribute.ReductionToOneDevice() if all_reduce == "one_device" else None


def compute_dtype(precision: str) -> str:
    """Return the type in which products are computed; with TF32 tensors stay float32."""
    return "float32" if precision == "tf32" else precision


def allocator_bytes(replicas: Replicas, key: str) -> int | None:
    """Return the bytes the first device's allocator holds (`current`) or held at most (`peak`); None on the CPU."""
    import tensorflow as tf

    device = replicas.devices[0]
    return int(tf.config.experimental.get_memory_info(device)[key]) if device.startswith("GPU") else None
