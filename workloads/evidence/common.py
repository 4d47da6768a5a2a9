"""The aspects that every workload has: precision, XLA, device, replicas."""

from collections import Counter
from collections.abc import Sequence

from workloads.evidence.kernels import makes_products
from workloads.evidence.ops import core
from workloads.evidence.seen import Aspect, Seen
from workloads.protocol import Kernel

_USED = 0.01
"""The share of the products' time on tensor cores from which on these count as used."""


def precision(seen: Seen) -> Aspect:
    """The type that products were computed in; on a GPU, float32 and TF32 are told apart by the kernels."""
    asked = str(seen.variant["precision"])
    types = Counter(op.dtype for op in seen.computed if op.dtype)
    if not types:
        return Aspect(name="precision", asked=asked, reason=seen.blindness)
    ((dtype, count),) = types.most_common(1)
    share = tensor_share(seen.trace.kernels)
    ran = _float32_or_tf32(seen, share) if dtype == "float32" and seen.on_gpu else dtype
    if ran is None:
        reason = "Without kernels whose names tell it, float32 and TF32 products look the same."
        return Aspect(name="precision", asked=asked, reason=reason)
    note = f"{count} of {types.total()} products are in {dtype}." if len(types) > 1 else _share_words(share)
    differs = None if ran == asked else f"The products were computed in {ran}, not in {asked}."
    return Aspect(name="precision", asked=asked, ran=ran, reason=differs, note=note)


def _float32_or_tf32(seen: Seen, share: float | None) -> str | None:
    """By the kernels; where their names do not tell, by what XLA was asked of its products."""
    exact = {op.exact for op in core(seen.programs)}
    if share is None:
        return {True: "float32", False: "tf32"}.get(exact.pop()) if len(exact) == 1 else None  # type: ignore[arg-type]
    return "tf32" if share >= _USED else "float32"


def tensor_share(kernels: Sequence[Kernel]) -> float | None:
    """The share of the products' time on tensor cores; None where the names of kernels tell it of less than half."""
    products = [kernel for kernel in kernels if makes_products(kernel.name)]
    known = [kernel for kernel in products if kernel.tensor_cores is not None]
    known_ns = sum(kernel.time_ns for kernel in known)
    if not known_ns or 2 * known_ns < sum(kernel.time_ns for kernel in products):
        return None
    return sum(kernel.time_ns for kernel in known if kernel.tensor_cores) / known_ns


def _share_words(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.0f} % of the time in products was on tensor cores."


def xla(seen: Seen) -> Aspect:
    """Whether XLA compiled the products; a few point-wise kernels of an implementation's own do not count."""
    asked = "on" if seen.variant["xla"] else "off"
    if not seen.products:
        return Aspect(name="xla", asked=asked, reason=seen.blindness)
    compiled = sum(op.compiled for op in seen.products)
    ran = "on" if compiled == len(seen.products) else "partly" if compiled else "off"
    differs = None if ran == asked else f"XLA compiled {compiled} of the {len(seen.products)} products."
    return Aspect(name="xla", asked=asked, ran=ran, reason=differs)


def device(seen: Seen) -> Aspect:
    """Whether the products were computed on GPUs or on the CPU."""
    asked = "GPU" if seen.on_gpu else "CPU"
    kinds = Counter(op.device.partition(":")[0] for op in seen.products if op.device)
    if not kinds and seen.trace.devices:
        kinds[asked] = 1
    if not kinds:
        return Aspect(name="device", asked=asked, reason=seen.blindness)
    ran = " and ".join(sorted(kinds))
    reason = None if ran == asked else f"{kinds['CPU']} of the {kinds.total()} products ran on the CPU."
    return Aspect(name="device", asked=asked, ran=ran, reason=reason)


def replicas(seen: Seen) -> Aspect:
    """How many devices made the same products."""
    asked = str(max(1, int(seen.variant["gpus"])))
    ran = len({op.device for op in seen.products if op.device}) or seen.trace.devices
    if not ran:
        return Aspect(name="replicas", asked=asked, reason=seen.blindness)
    reason = None if str(ran) == asked else f"{ran} device(s) made the products, not {asked}."
    return Aspect(name="replicas", asked=asked, ran=str(ran), reason=reason)
