"""What the framework computes on this machine's processor: tried once for each environment, and stored.

Kernels for images in NCHW come from oneDNN alone, which has them for some processors and precisions. No list of
processors stays right, so `python -m workloads.jobs processor` tries them, in a few seconds, most of them the import of
the framework. Installs do that; else the first worker does whose variant depends on it.
"""

import functools
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from workloads.framework import FRAMEWORK
from workloads.interpreter import default_interpreter, find_python, installed_framework

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
    """Find out what this Python's environment computes here, in a process of its own, and store it.

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
    """Return the file of an environment, by its folder, the processor and the variables that the answer depends on."""
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
