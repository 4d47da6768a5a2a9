"""Import a framework, check what it sees, and report the versions of the CUDA libraries that it has loaded."""

import ctypes
import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.errors import BROKEN_PACKAGE, RefusedError
from workloads.framework import Framework
from workloads.interpreter import MINIMUM_VERSIONS, install_command, is_older
from workloads.job_protocol import OutputDifference

if TYPE_CHECKING:
    from workloads.weights import SavedWeights


_MAPS = Path("/proc/self/maps")


def import_modules(framework: Framework, remedy: str = "") -> None:
    """Import a framework's modules; `remedy` is what to do without them, instead of the usual.

    Raises:
        RefusedError: One is missing, incompatible or too old.
    """
    try:
        modules = {name: importlib.import_module(name) for name in framework.modules}
    except BROKEN_PACKAGE as error:
        remedy = f"or {remedy or f'{install_command(framework.modules)}, or use framework=tensorflow'}"
        package = framework.distributions[0]
        # The worker brings uv's environment: nothing can be installed there.
        way = (
            f"add {package} to packages" if "VARIANTSCOPE_FOLDER" in os.environ else f"use packages={package}, {remedy}"
        )
        raise RefusedError(f"{framework.name} cannot be imported ({error}): {way}.") from error
    for name, module in modules.items():
        if is_older(version := module.__version__, name):
            raise RefusedError(f"{name} {version} is older than {MINIMUM_VERSIONS[name]}; {install_command([name])}.")


def check_gpu_count(framework: Framework, gpu_uuids: Sequence[str], seen: int, cause: str) -> None:
    """Raise `RefusedError` if a framework sees fewer GPUs than the run was given; `cause` says why, and what to do."""
    if seen < len(gpu_uuids):
        raise RefusedError(
            f"This run was given {len(gpu_uuids)} of the machine's GPUs, and {framework.name} sees {seen}: {cause}."
        )


class PartialBackend:
    """The parts of a backend that PyTorch and JAX share: environment, import, and refusals of what they lack."""

    framework: Framework

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        self.framework.prepare_environment(gpu_uuids)

    def preimport(self) -> None:
        """Import the framework for a run that is still unknown; neither looks for GPUs until asked for one."""
        self.prepare_environment(())
        import_modules(self.framework)

    def export_model(self, _saved: "SavedWeights", _paths: Sequence[Path], /) -> OutputDifference:
        """Refuse: plain models are Keras's."""
        raise self._refusal

    @property
    def _refusal(self) -> RefusedError:
        return RefusedError(f"{self.framework.name} cannot do this here yet; use framework=tensorflow.")


def loaded_versions() -> dict[str, str]:
    """Return the versions of the CUDA runtime, cuDNN and NCCL, as far as they are loaded (Linux).

    Frameworks load them on first use, so call it at the end of a run.
    """
    paths = {line.split()[-1] for line in _MAPS.read_text().splitlines()} if _MAPS.exists() else set()
    versions = {
        "cuda_loaded": _library_versions(paths, "libcudart", _cuda_version),
        "cudnn_loaded": _library_versions(paths, "libcudnn", _cudnn_version),
        "nccl_loaded": _library_versions(paths, "libnccl", _nccl_version),
    }
    return {name: version for name, version in versions.items() if version}


def _library_versions(paths: Iterable[str], stem: str, version_of: Callable[[ctypes.CDLL], str | None]) -> str:
    """Return the versions of every loaded library of that name, in path order: a process can hold two."""
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
