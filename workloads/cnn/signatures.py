"""How the implementations of the image networks can be told apart by the operations that ran."""

from workloads.evidence.ops import Op
from workloads.evidence.seen import Aspect, Seen

_NORMS = {
    "native": "TensorFlow's fused batch norm",
    "keras": "batch norm as plain arithmetic",
}


def implementation(seen: Seen) -> Aspect:
    """By the batch norm: `native` has TensorFlow's fused operation for it, Keras 3 never uses that."""
    asked = str(seen.variant["implementation"])
    ops = seen.programs if seen.opaque else seen.graph
    if not any(op.is_product for op in ops):
        return Aspect(name="implementation", asked=asked, reason=seen.blindness)
    ran = "native" if any(_is_norm(op) for op in ops) else "keras"
    differs = None if ran == asked else f"What ran is not {asked}: it has {_NORMS[ran]}."
    return Aspect(name="implementation", asked=asked, ran=ran, reason=differs)


def _is_norm(op: Op) -> bool:
    """On the CPU, in inference, the optimizer fuses a norm into the convolution before it."""
    return "BatchNorm" in op.type or "FusedBatchNorm" in op.fused
