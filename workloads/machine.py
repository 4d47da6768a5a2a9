"""What a machine has, as far as variants depend on it; the sampler reports it, and rules read it."""

import msgspec

UUID_PREFIXES = ("GPU-", "MIG-")
"""The prefixes of UUIDs that CUDA_VISIBLE_DEVICES accepts."""


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
