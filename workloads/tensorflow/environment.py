"""Reports what TensorFlow runs on: versions, visible devices, environment variables, and libraries loaded so far."""

import ctypes
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from workloads.framework import FRAMEWORK, ONEDNN_KEY


def environment_info(variables: Mapping[str, str]) -> dict[str, str]:
    """Return versions, visible devices and those of the environment variables that change what TensorFlow does."""
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
    return {name: str(value) for name, value in versions.items() if value} | FRAMEWORK.variables(variables)


_MAPS = Path("/proc/self/maps")


def loaded_versions() -> dict[str, str]:
    """Return the versions of the CUDA runtime, cuDNN and NCCL loaded now (Linux), without those not loaded.

    TensorFlow loads them when it first needs them, so ask at the end of a run.
    """
    paths = {line.split()[-1] for line in _MAPS.read_text().splitlines()} if _MAPS.exists() else set()
    versions = {
        "cuda_loaded": _library_versions(paths, "libcudart", _cuda_version),
        "cudnn_loaded": _library_versions(paths, "libcudnn", _cudnn_version),
        "nccl_loaded": _library_versions(paths, "libnccl", _nccl_version),
    }
    return {name: version for name, version in versions.items() if version}


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
