"""Imports a framework and checks what it sees, and reports the versions of CUDA's libraries that it has loaded."""

import ctypes
import functools
import hashlib
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from workloads.errors import BROKEN_PACKAGE, RefusedError
from workloads.framework import FRAMEWORK, Framework
from workloads.interpreter import (
    MINIMUM_VERSIONS,
    default_interpreter,
    find_python,
    install_command,
    installed_framework,
    is_older,
)
from workloads.job_protocol import OutputDifference

if TYPE_CHECKING:
    from workloads.weights import SavedWeights


TRY_PROCESSOR = ("workloads.jobs", "processor")
"""The words after Python and `entry.py` that try the processor."""
CACHE_VARIABLE = "VARIANTSCOPE_CACHE"
"""The environment variable that names the folder of what can be found out again."""

_ENTRY = Path(__file__).with_name("entry.py")
_CPUINFO = Path("/proc/cpuinfo")
_IDENTITY = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
"""How the lines of /proc/cpuinfo begin that say what a processor can do; the others change from moment to moment."""


class ProcessorSupport(msgspec.Struct, frozen=True, kw_only=True):
    """What one environment computes on one processor, without XLA.

    `framework` is the version that was tried; `image_layouts` are, by precision, those in which it trains on images.
    """

    framework: str
    onednn: bool
    image_layouts: Mapping[str, tuple[str, ...]]


def read_support(interpreter: str = "") -> ProcessorSupport | None:
    """Return what an environment computes here; None if it was not tried with this processor and these variables.

    `interpreter` is the environment's folder or its Python; empty is the one of runs that name none.
    """
    chosen = interpreter or default_interpreter()
    python = find_python(chosen) if chosen else Path(sys.prefix, "bin", "python")
    if python is None:
        return None
    try:
        support = msgspec.json.decode(_path(python.parents[1]).read_bytes(), type=ProcessorSupport)
    except (OSError, msgspec.MsgspecError):
        return None
    return support if installed_framework(chosen) in (support.framework, None) else None


def try_processor() -> None:
    """Find out what this Python's environment computes here, in its own process, and store it.

    Where its framework cannot be imported nothing is stored, and the run says why.
    """
    print(f"Trying once what {FRAMEWORK.name} computes on this processor …", file=sys.stderr, flush=True)  # noqa: T201
    subprocess.run([sys.executable, str(_ENTRY), *TRY_PROCESSOR], stdout=sys.stderr, check=False)


def store_support(support: ProcessorSupport) -> None:
    """Store what this Python's environment computes here; a folder that cannot be written only loses the answer."""
    path = _path(Path(sys.prefix))
    temporary_path = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary_path.write_bytes(msgspec.json.encode(support))
        temporary_path.replace(path)
    except OSError as error:
        print(f"{path} could not be written: {error.strerror}.", file=sys.stderr)  # noqa: T201


def _path(prefix: Path) -> Path:
    variables = {name: os.environ[name] for name in os.environ if name.startswith(("ONEDNN_", "DNNL_"))}
    variables |= {name: os.environ.get(name, value) for name, value in FRAMEWORK.default_variables.items()}
    identity = repr((os.path.realpath(prefix), processor_identity(), sorted(variables.items())))
    return cache_folder() / "processor" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def cache_folder() -> Path:
    """Return the folder of what can be found out again: the variable's, else the user's.

    https://specifications.freedesktop.org/basedir-spec (XDG_CACHE_HOME; a relative path is to be ignored).
    """
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else Path.home() / ".cache") / "variantscope"  # noqa: PTH117


@functools.cache
def processor_identity() -> str:
    """Return what names this processor and its instructions; it is the same as long as the process lives."""
    try:
        block = _CPUINFO.read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in block.splitlines() if line.startswith(_IDENTITY))


_MAPS = Path("/proc/self/maps")


def import_modules(framework: Framework, remedy: str = "") -> None:
    """Import a framework's modules; `remedy` is what to do without them, instead of the usual.

    Raises:
        RefusedError: One is missing, does not fit, or is too old.
    """
    try:
        modules = {name: importlib.import_module(name) for name in framework.modules}
    except BROKEN_PACKAGE as error:
        remedy = f"or {remedy or f'{install_command(framework.modules)}, or use framework=tensorflow'}"
        package = framework.distributions[0]
        # uv's environment goes with the worker: nothing can be installed there.
        way = (
            f"add {package} to packages" if "VARIANTSCOPE_FOLDER" in os.environ else f"use packages={package}, {remedy}"
        )
        raise RefusedError(f"{framework.name} cannot be imported ({error}): {way}.") from error
    for name, module in modules.items():
        if is_older(version := module.__version__, name):
            raise RefusedError(f"{name} {version} is older than {MINIMUM_VERSIONS[name]}; {install_command([name])}.")


def check_gpu_count(framework: Framework, gpu_uuids: Sequence[str], seen: int, cause: str) -> None:
    """Raise `RefusedError` if a framework sees fewer GPUs than a run was given; `cause` is why, and what to do."""
    if seen < len(gpu_uuids):
        raise RefusedError(
            f"This run was given {len(gpu_uuids)} of the machine's GPUs, and {framework.name} sees {seen}: {cause}."
        )


class PartialBackend:
    """What PyTorch and JAX have alike: environment and import, and what TensorFlow alone can do here so far."""

    framework: Framework

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set the GPUs that the framework may see, and their order."""
        self.framework.prepare_environment(gpu_uuids)

    def preimport(self) -> None:
        """Import the framework for a run that is not known yet; neither looks for GPUs before it is asked for one."""
        self.prepare_environment(())
        import_modules(self.framework)

    def processor_support(self) -> ProcessorSupport:
        """Refuse: these compute both layouts in every precision on every processor."""
        raise self._refusal

    def export_model(self, _saved: "SavedWeights", _paths: Sequence[Path], /) -> OutputDifference:
        """Refuse: a plain model is Keras's."""
        raise self._refusal

    @property
    def _refusal(self) -> RefusedError:
        return RefusedError(f"{self.framework.name} cannot do this here yet; use framework=tensorflow.")


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
