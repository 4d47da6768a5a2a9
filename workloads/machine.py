"""What a machine has, as far as variants depend on it, and its cache folder; the sampler reports it, rules read it."""

import os
from pathlib import Path

import msgspec

UUID_PREFIXES = ("GPU-", "MIG-")
"""The prefixes of UUIDs that CUDA_VISIBLE_DEVICES accepts."""
CACHE_VARIABLE = "VARIANTSCOPE_CACHE"
"""The environment variable that names the cache folder, whose content can be measured again."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML reports it. `compute_capability` is (major, minor)."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has, as far as variants depend on it. `platform` is `sys.platform`.

    `gpus` are the GPUs that runs may use, the preferred one first; `hidden_by` is the setting that hides other GPUs,
    such as `CUDA_VISIBLE_DEVICES=1`. `local` is false for a host: it has another disk, so it checks by itself which
    files it has. `frameworks` are those available to runs that name no Python, as in the parameter; None if unknown.
    `scheduled` is true for a cluster whose scheduler places each run: `gpus` are then those of one node.
    """

    gpus: tuple[Gpu, ...] = ()
    hidden_by: str = ""
    cpu_count: int = 1
    platform: str = "linux"
    local: bool = True
    scheduled: bool = False
    frameworks: tuple[str, ...] | None = None


def cache_folder() -> Path:
    """Return the cache folder: the variable's, else the user's.

    https://specifications.freedesktop.org/basedir-spec (XDG_CACHE_HOME; a relative path is to be ignored).
    """
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else Path.home() / ".cache") / "variantscope"  # noqa: PTH117


def bytecode_folder() -> Path:
    """Return the folder of the bytecode that this program's processes do not write next to its sources."""
    return cache_folder() / "bytecode"
