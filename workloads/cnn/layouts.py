"""In which layout a CNN's images really were, operation by operation."""

from collections import Counter
from collections.abc import Sequence

from workloads.evidence.ops import Op
from workloads.evidence.seen import Aspect, Seen

_SHOWN = 4


def layout(seen: Seen) -> Aspect:
    """The layout of every convolution, batch norm and pooling; of XLA's program, that of the convolutions."""
    asked = str(seen.variant["layout"])
    ops = _compiled(seen) or [op for op in seen.graph if op.is_spatial and not op.compiled]
    found = Counter(op.layout for op in ops)
    if not found:
        return Aspect(name="layout", asked=asked, reason=seen.blindness)
    other = [op for op in ops if op.layout != asked]
    differs = f"{_words(other, len(ops))}: {_cause(seen)}." if other else None
    return Aspect(name="layout", asked=asked, ran=" and ".join(sorted(found)), reason=differs, note=_transposes(seen))


def _compiled(seen: Seen) -> list[Op]:
    """XLA's forward convolutions; it writes gradients as convolutions with other axes."""
    return [op for op in seen.programs if op.is_spatial and not op.backward]


def _words(other: Sequence[Op], total: int) -> str:
    names = sorted({op.name.rpartition("/")[2] for op in other if not op.backward})
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    where = f" ({shown})" if names else ""
    return f"{len(other)} of {total} operations on images ran in {other[0].layout}{where}"


def _cause(seen: Seen) -> str:
    if _compiled(seen):
        return "XLA chooses the layout itself"
    if seen.variant["layout_optimizer"]:
        return "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"
    return "the implementation did not keep what was asked"


def _transposes(seen: Seen) -> str | None:
    """Those in the graph, and those that libraries made on their own, as the trace has them."""
    in_graph = sum(op.kind == "transpose" and not op.compiled for op in seen.graph)
    ran = sum(kernel.count for kernel in seen.trace.kernels if kernel.kind == "transpose")
    words = [f"{in_graph} in the executed graph"] if in_graph else []
    words += [f"{ran / seen.trace.steps:g} a step among the traced kernels"] if ran else []
    return f"Transposes: {', '.join(words)}." if words else None
