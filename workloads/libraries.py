"""Import a framework, check what it sees, and report the versions of the CUDA libraries that it has loaded."""

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
from workloads.machine import cache_folder

if TYPE_CHECKING:
    from workloads.weights import SavedWeights


TRY_PROCESSOR = ("workloads.jobs", "processor")
"""The arguments after Python and `entry.py` that try the processor."""

_ENTRY = Path(__file__).with_name("entry.py")
_CPUINFO = Path("/proc/cpuinfo")
_IDENTITY = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
"""How the lines of /proc/cpuinfo that describe the processor's abilities begin; the others change all the time."""


class ProcessorSupport(msgspec.Struct, frozen=True, kw_only=True):
    """What one environment can compute on one processor, without XLA.

    `framework` is the version tried; `image_layouts` are, by precision, the layouts in which it trains on images.
    """

    framework: str
    onednn: bool
    image_layouts: Mapping[str, tuple[str, ...]]


def read_support(interpreter: str = "") -> ProcessorSupport | None:
    """Return what an environment can compute here; None if not tried with this processor and these variables.

    `interpreter` is the environment's folder or its Python; empty means that of runs that name none.
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
    """Try in a separate process what this Python's environment can compute here, and store it.

    If its framework cannot be imported, nothing is stored, and the run says why.
    """
    print(f"Trying once what {FRAMEWORK.name} computes on this processor …", file=sys.stderr, flush=True)  # noqa: T201
    subprocess.run([sys.executable, str(_ENTRY), *TRY_PROCESSOR], stdout=sys.stderr, check=False)


def store_support(support: ProcessorSupport) -> None:
    """Store what this Python's environment can compute here; in an unwritable folder the answer is lost."""
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


@functools.cache
def processor_identity() -> str:
    """Return a hash of this processor and its instructions, constant for the life of the process."""
    try:
        block = _CPUINFO.read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in block.splitlines() if line.startswith(_IDENTITY))


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

    def processor_support(self) -> ProcessorSupport:
        """Refuse: no trial is needed, as both frameworks compute both layouts in every precision on every processor."""
        raise self._refusal

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
