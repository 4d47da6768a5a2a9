"""What a machine has, as far as variants depend on it; the sampler says it, and rules ask for it."""

import msgspec

UUID_PREFIXES = ("GPU-", "MIG-")
"""How each UUID begins that CUDA_VISIBLE_DEVICES takes."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML reports it. `compute_capability` is (major, minor)."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has, as far as variants depend on it. `platform` is `sys.platform`.

    `gpus` are those that runs may use, the preferred one first; `hidden_by` is the environment variable that keeps them
    from others, as `CUDA_VISIBLE_DEVICES=1`.
    `local` is false for a host: this machine's disk is not its own, so it refuses by itself what it does not have.
    `frameworks` are those that runs had there which name no Python, by the value of the parameter; None if nobody
    asked.
    `scheduled` is true for a cluster whose scheduler places each run: `gpus` are then those of one node.
    """

    gpus: tuple[Gpu, ...] = ()
    hidden_by: str = ""
    cpu_count: int = 1
    platform: str = "linux"
    local: bool = True
    scheduled: bool = False
    frameworks: tuple[str, ...] | None = None
