"""TensorFlow's process-wide configuration: environment, import, devices, replicas, and the library versions in use."""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.errors import RefusedError
from workloads.interpreter import MINIMUM_VERSIONS, install_command, is_older
from workloads.protocol import Variant

if TYPE_CHECKING:
    import tensorflow as tf


_MAPS = Path("/proc/self/maps")


def loaded_versions() -> dict[str, str]:
    """Versions of the CUDA runtime, cuDNN and NCCL loaded now (Linux); those not loaded are left out.

    TensorFlow loads them when it first needs them, so ask at the end of a run.
    """
    paths = {line.split()[-1] for line in _MAPS.read_text().splitlines()} if _MAPS.exists() else set()
    found = {
        "cuda_loaded": _library_versions(paths, "libcudart", _cuda_version),
        "cudnn_loaded": _library_versions(paths, "libcudnn", _cudnn_version),
        "nccl_loaded": _library_versions(paths, "libnccl", _nccl_version),
    }
    return {name: version for name, version in found.items() if version}


def _library_versions(paths: Iterable[str], stem: str, version_of: Callable[[ctypes.CDLL], str | None]) -> str:
    """The versions of every library of that name, in the order of their paths: a process can hold two."""
    loaded = sorted(path for path in paths if Path(path).name.split(".so")[0] == stem)
    libraries = (ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW) for path in loaded)
    return ", ".join(dict.fromkeys(version for library in libraries if (version := version_of(library))))


def _cuda_version(library: ctypes.CDLL) -> str | None:
    """`cudaRuntimeGetVersion`: 1000 major + 10 minor."""
    version = ctypes.c_int()
    if library.cudaRuntimeGetVersion(ctypes.byref(version)) != 0:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _cudnn_version(library: ctypes.CDLL) -> str:
    """`cudnnGetVersion`: 10000 major + 100 minor + patch (from cuDNN 9)."""
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return _format_version(int(library.cudnnGetVersion()))


def _nccl_version(library: ctypes.CDLL) -> str | None:
    """`ncclGetVersion`: 10000 major + 100 minor + patch (from NCCL 2.9)."""
    version = ctypes.c_int()
    return _format_version(version.value) if library.ncclGetVersion(ctypes.byref(version)) == 0 else None


def _format_version(number: int) -> str:
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"


_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
_TF_FLAGS = (
    "AUTOTUNE",
    "CPP_",
    "CUDNN_",
    "DETERMINISTIC_",
    "DISABLE_",
    "ENABLE_",
    "FORCE_",
    "GPU_",
    "NUM_",
    "USE_",
    "XLA_",
)
_FLAGS = (*(f"TF_{word}" for word in _TF_FLAGS), "XLA_FLAGS", "NCCL_", "CUDA_", "OMP_", "KERAS_BACKEND")
"""Not all of `TF_`: Terraform keeps secrets under that prefix."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Who computes: a distribution strategy (TensorFlow's default one for a single device) and its devices in order."""

    strategy: "tf.distribute.Strategy"
    devices: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many replicas train together."""
        return len(self.devices)


def prepare_environment(gpu_uuids: Sequence[str]) -> None:
    """Set what TensorFlow reads at its import: the GPUs it may see (none is the CPU), their order, its chattiness."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_uuids) or "-1"
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")


def preimport_libraries() -> None:
    """Import TensorFlow and Keras for a run that is not known yet; raises `RefusedError` where they are missing.

    No GPU is touched: CUDA first reads which ones it may see when TensorFlow first looks for them, and that is after
    the run's own `prepare_environment`. Were it ever otherwise, TensorFlow would see none, never another run's.
    """
    prepare_environment(())
    _import_libraries()


def import_tensorflow(gpu_count: int) -> None:
    """Import TensorFlow and Keras; raises `RefusedError` where they are missing or see fewer GPUs than `gpu_count`."""
    _import_libraries()
    import tensorflow as tf

    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < gpu_count:
        raise RefusedError(
            f"TensorFlow sees {seen} of the {gpu_count} GPU(s) this run was given: its CUDA libraries are missing or "
            "do not fit the driver; install them with `pip install 'tensorflow[and-cuda]>=2.21,<2.22'`."
        )


def _import_libraries() -> None:
    try:
        import keras
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"TensorFlow cannot be imported ({error}); install it with "
            f"`{sys.executable} -m pip install 'tensorflow>=2.21,<2.22'`, or with 'tensorflow[and-cuda]' in its place "
            "for NVIDIA GPUs."
        ) from error
    for name, version in (("tensorflow", tf.__version__), ("keras", keras.__version__)):
        if is_older(version, name):
            raise RefusedError(f"{name} {version} is older than {MINIMUM_VERSIONS[name]}; {install_command([name])}.")


def configure(variant: Variant) -> Replicas:
    """Apply a variant's settings to TensorFlow, before its first operation, and choose who computes."""
    import keras
    import tensorflow as tf

    threads = int(variant["cpu_threads"])
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, bool(variant["memory_growth"]))
    tf.config.experimental.enable_tensor_float_32_execution(variant["precision"] == "tf32")
    tf.config.optimizer.set_experimental_options({"layout_optimizer": bool(variant["layout_optimizer"])})
    keras.config.set_dtype_policy(_POLICIES[str(variant["precision"])])
    keras.utils.set_random_seed(int(variant["seed"]))
    gpu_count = int(variant["gpus"])
    # A step on several GPUs ends on the host when gradients are exchanged, so the next one is prepared meanwhile.
    tf.config.experimental.set_synchronous_execution(gpu_count < 2)
    return replicas_on([f"GPU:{index}" for index in range(gpu_count)] or ["CPU:0"], str(variant["all_reduce"]))


def replicas_on(devices: Sequence[str], all_reduce: str | None = None) -> Replicas:
    """Replicas on these devices, mirrored where there is more than one.

    `all_reduce` is how they exchange gradients: nccl, hierarchical, one_device, or None for what TensorFlow has on such
    devices. Raises `RefusedError` for nccl on others than GPUs.
    """
    import tensorflow as tf

    if len(devices) < 2:
        return Replicas(tf.distribute.get_strategy(), tuple(devices))
    strategy = tf.distribute.MirroredStrategy(list(devices), cross_device_ops=_cross_device_ops(all_reduce, devices))
    return Replicas(strategy, tuple(devices))


def _cross_device_ops(all_reduce: str | None, devices: Sequence[str]) -> "tf.distribute.CrossDeviceOps | None":
    """What TensorFlow is given to exchange gradients with; None leaves its collectives, which use NCCL on GPUs."""
    import tensorflow as tf

    if all_reduce == "nccl" and not all(device.startswith("GPU") for device in devices):
        raise RefusedError("NCCL is between NVIDIA GPUs only; use all_reduce=hierarchical or all_reduce=one_device.")
    if all_reduce == "hierarchical":
        # A part of the buffer for each device, so that all of them add, and links are used in both directions.
        return tf.distribute.HierarchicalCopyAllReduce(num_packs=len(devices))
    return tf.distribute.ReductionToOneDevice() if all_reduce == "one_device" else None


def compute_dtype(precision: str) -> str:
    """The type products are computed in; TF32 keeps its tensors in float32."""
    return "float32" if precision == "tf32" else precision


def environment_info() -> dict[str, str]:
    """Versions, visible devices and the environment variables that change what TensorFlow does."""
    import keras
    import numpy as np
    import tensorflow as tf

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
    }
    flags = {f"env {name}": value for name, value in sorted(os.environ.items()) if name.startswith(_FLAGS)}
    return {name: str(value) for name, value in versions.items() if value} | flags


def allocator_bytes(replicas: Replicas, key: str) -> int | None:
    """Bytes TensorFlow's allocator holds (`current`) or held at most (`peak`) on the first device; None on the CPU."""
    import tensorflow as tf

    device = replicas.devices[0]
    return int(tf.config.experimental.get_memory_info(device)[key]) if device.startswith("GPU") else None
