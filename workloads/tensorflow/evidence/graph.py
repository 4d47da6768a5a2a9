"""The operations of TensorFlow's graphs that ran, which TensorFlow hands out when it makes them executable."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.python.eager import context

from workloads.operations import BIASES, CLUSTER, Op, plain_type

_TYPES = {types_pb2.DT_FLOAT: "float32", types_pb2.DT_HALF: "float16", types_pb2.DT_BFLOAT16: "bfloat16"}
_LOOP_BODY = "/body/"
_INLINED_BRANCH = re.compile(r"/(then|else|branch\d+)/_\d+/")
_BRANCH_ROLES = ("then_branch", "else_branch", "branches")
_PASSING = ("Identity", "Switch", "SwitchN", "Merge")
"""Operations of a branch, or around one, that compute nothing."""
_ADDITIONS = ("AddN", "AddV2", "Add")


def start_collecting() -> None:
    """Have TensorFlow record the graph of every function that is first called from now on.

    It hands out a graph only when it makes a function's executable, and none for a step that XLA compiles as a whole.
    Later steps are not affected.
    """
    context.ensure_initialized()
    context.enable_graph_collection()


def collected_ops() -> tuple[Op, ...]:
    """Return the relevant operations of the graphs recorded so far, and stop recording."""
    functions = context.export_run_metadata().function_graphs
    context.disable_graph_collection()
    return operations(graph for function in functions for graph in function.partition_graphs)


def operations(graphs: Iterable[Any]) -> tuple[Op, ...]:
    """Return the relevant operations of partition graphs (GraphDef), including called and compiled functions."""
    return tuple(
        op
        for graph in graphs
        for op in _walk(graph.node, {f.signature.name: f.node_def for f in graph.library.function}, _Scope())
    )


@dataclass(frozen=True, slots=True)
class _Scope:
    """The surrounding call of nodes: the prefix of their names, and what they inherit from it."""

    prefix: str = ""
    device: str = ""
    loop: str = ""
    branch: bool = False
    compiled: bool = False


def _walk(nodes: Iterable[Any], functions: dict[str, Any], scope: _Scope) -> Iterator[Op]:
    nodes = list(nodes)
    received = {node.name for node in nodes if _receives_from_peer(node)}
    for node in nodes:
        if node.op in _ADDITIONS and not received.isdisjoint({name.partition(":")[0] for name in node.input}):
            yield replace(_operation(node, scope, "AddN"), received=True)
        cluster = node.op.startswith(("Xla", "_Xla")) or (
            "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b
        )
        if not (cluster or functions or _is_relevant(node.op) or _INLINED_BRANCH.search(node.name)):
            continue
        op = _operation(node, scope, CLUSTER if cluster else plain_type(node.op))
        if cluster or _is_relevant(node.op) or (op.branch and op.dtype and op.type not in _PASSING):
            yield op
        for role, value in node.attr.items() if functions else ():
            for called in (value.func, *value.list.func):
                if called.name in functions:
                    inner_scope = _Scope(
                        prefix=f"{op.name}/",
                        device=op.device,
                        loop=op.name if role == "body" else op.loop,
                        branch=op.branch or role in _BRANCH_ROLES,
                        compiled=scope.compiled or cluster,
                    )
                    yield from _walk(functions[called.name], functions, inner_scope)


@cache
def _is_relevant(type_: str) -> bool:
    op = Op(type=plain_type(type_), name="", layout="?")
    return (
        op.is_product or op.is_spatial or op.in_python or op.type in BIASES or op.kind in ("transpose", "communication")
    )


def _receives_from_peer(node: Any) -> bool:
    """Return whether a node receives another device's result; constants come from the host."""
    if node.op != "_Recv":
        return False
    sender, receiver = node.attr["send_device"].s, node.attr["recv_device"].s
    return bool(sender != receiver and _device_kind(sender) == _device_kind(receiver))


def _device_kind(device: bytes) -> bytes:
    return device.rpartition(b"device:")[2].partition(b":")[0]


def _operation(node: Any, scope: _Scope, type_: str) -> Op:
    """Return the operation of a node; names such as `lstm/while/body/_12/…` reveal inlined loops."""
    name = scope.prefix + node.name
    inlined = node.name.split(_LOOP_BODY, 1)[0] if f"{_LOOP_BODY}_" in node.name else ""
    return Op(
        type=type_,
        name=name,
        device=node.device.rpartition("device:")[2] or scope.device,
        dtype=_TYPES.get(node.attr["T"].type, "") if "T" in node.attr else "",
        layout=node.attr["data_format"].s.decode() if "data_format" in node.attr else "",
        loop=scope.prefix + inlined if inlined else scope.loop,
        branch=scope.branch or _INLINED_BRANCH.search(node.name) is not None,
        compiled=scope.compiled,
        transposed="adj_x" in node.attr and node.attr["adj_x"].b,
        fused=tuple(word.decode() for word in node.attr["fused_ops"].list.s) if "fused_ops" in node.attr else (),
    )
