"""The versions of CUDA's libraries that this process has loaded, whichever framework loaded them."""

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

_MAPS = Path("/proc/self/maps")


def loaded_versions() -> dict[str, str]:
    """Return the versions of the CUDA runtime, cuDNN and NCCL loaded now (Linux), without those not loaded.

    Frameworks load them when they first need them, so ask at the end of a run.
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
