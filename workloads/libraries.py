"""Which NVIDIA libraries a process has loaded, and their versions as the libraries themselves say."""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

_MAPS = Path("/proc/self/maps")


def loaded_versions() -> dict[str, str]:
    """Versions of the CUDA runtime, cuDNN and NCCL loaded now (Linux); those not loaded are left out.

    TensorFlow loads them when it first needs them, so ask at the end of a run.
    """
    paths = {line.split()[-1] for line in _MAPS.read_text().splitlines()} if _MAPS.exists() else set()
    by_stem = {Path(path).name.split(".so")[0]: path for path in paths if ".so" in path}
    found = {
        "cuda_loaded": _cuda(by_stem),
        "cudnn_loaded": _cudnn(by_stem),
        "nccl_loaded": _nccl(by_stem),
    }
    return {name: version for name, version in found.items() if version}


def _open(by_stem: Mapping[str, str], stem: str) -> ctypes.CDLL | None:
    return ctypes.CDLL(by_stem[stem], mode=os.RTLD_NOLOAD | os.RTLD_NOW) if stem in by_stem else None


def _cuda(by_stem: Mapping[str, str]) -> str | None:
    """`cudaRuntimeGetVersion`: 1000 major + 10 minor."""
    library, version = _open(by_stem, "libcudart"), ctypes.c_int()
    if library is None or library.cudaRuntimeGetVersion(ctypes.byref(version)) != 0:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _cudnn(by_stem: Mapping[str, str]) -> str | None:
    """`cudnnGetVersion`: 10000 major + 100 minor + patch (from cuDNN 9)."""
    library = _open(by_stem, "libcudnn")
    if library is None:
        return None
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return _dotted(int(library.cudnnGetVersion()))


def _nccl(by_stem: Mapping[str, str]) -> str | None:
    """`ncclGetVersion`: 10000 major + 100 minor + patch (from NCCL 2.9)."""
    library, version = _open(by_stem, "libnccl"), ctypes.c_int()
    if library is None or library.ncclGetVersion(ctypes.byref(version)) != 0:
        return None
    return _dotted(version.value)


def _dotted(number: int) -> str:
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
