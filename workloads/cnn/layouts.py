"""In which layout a network's images really were, and which layers are responsible where it was another one."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from workloads.cnn.nets import leaves, net_of
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
    differs = f"{_words(seen, other, len(ops))}: {_cause(seen, other)}." if other else None
    return Aspect(name="layout", asked=asked, ran=" and ".join(sorted(found)), reason=differs, note=_transposes(seen))


def _compiled(seen: Seen) -> list[Op]:
    """XLA's forward convolutions; it writes gradients as convolutions with other axes."""
    return [op for op in seen.programs if op.is_spatial and not op.backward]


def _words(seen: Seen, other: Sequence[Op], total: int) -> str:
    return f"{len(other)} of {total} operations on images ran in {other[0].layout}{_layers(seen, other)}"


def _layers(seen: Seen, ops: Iterable[Op]) -> str:
    """The layers that operations belong to, in the network's order and in brackets; "" where none is known.

    An operation's name has its layer's in it: `gradient_tape/block1/pool/AvgPool2D/AvgPoolGrad`.
    """
    paths = [f"/{op.name}/" for op in ops]
    known = [layer.name for layer in leaves(net_of(seen.spec.workload, seen.variant))]
    names = [name for name in known if any(re.search(rf"/{name}(_\d+)?/", path) for path in paths)]
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    return f" ({shown})" if names else ""


def _cause(seen: Seen, other: Sequence[Op]) -> str:
    if _compiled(seen):
        return "XLA chooses the layout itself"
    if seen.variant["implementation"] == "keras" and all("Pool" in op.type for op in other):
        return "Keras pools channels_last and transposes there and back"
    if seen.variant["layout_optimizer"]:
        return "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"
    return "the implementation did not keep what was asked"


def _transposes(seen: Seen) -> str | None:
    """Those in the graph, and those that libraries made on their own, as the trace has them."""
    graph = [op for op in seen.graph if op.kind == "transpose" and not op.compiled]
    ran = sum(kernel.count for kernel in seen.trace.kernels if kernel.kind == "transpose")
    words = [f"{len(graph)} in the executed graph{_layers(seen, graph)}"] if graph else []
    words += [f"{ran / seen.trace.steps:g} a step among the traced kernels"] if ran else []
    return f"Transposes: {', '.join(words)}." if words else None
