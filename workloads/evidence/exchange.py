"""How gradients really went from GPU to GPU."""

from workloads.evidence.seen import Aspect, Seen


def all_reduce(seen: Seen) -> Aspect:
    """NCCL by its kernels; copies by the devices that add what they were sent."""
    asked = str(seen.variant["all_reduce"])
    ran = _ran(seen)
    if ran is None:
        unknown = "How gradients were exchanged is not known: TensorFlow's graph does not say, and no trace shows it."
        return Aspect(name="all_reduce", asked=asked, reason=unknown)
    differs = None if ran == asked else f"Gradients were exchanged by {_WORDS[ran]}."
    return Aspect(name="all_reduce", asked=asked, ran=ran, reason=differs, note=_kernels(seen))


_WORDS = {
    "nccl": "NCCL",
    "hierarchical": "copies, added on several devices",
    "one_device": "copies, added on one device",
    "ring": "TensorFlow's own ring, without NCCL",
    "none": "nobody: each device trained alone",
}


def _ran(seen: Seen) -> str | None:
    if any("nccl" in kernel.name.lower() for kernel in seen.trace.kernels):
        return "nccl"
    adding = {op.device for op in seen.graph if op.received}
    if adding:
        return "one_device" if len(adding) == 1 else "hierarchical"
    if not seen.graph:
        return None
    if not any(op.kind == "communication" for op in seen.graph):
        return "none"
    return "ring" if seen.trace.kernels else None


def _kernels(seen: Seen) -> str | None:
    """How many exchanges a step and device has."""
    trace = seen.trace
    count = sum(kernel.count for kernel in trace.kernels if kernel.kind == "communication")
    if not (count and trace.devices):
        return None
    each = count / trace.steps / trace.devices
    return f"Kernels or copies that exchange gradients: {each:.4g} a step on each device."
