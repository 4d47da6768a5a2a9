"""The operations that ran, described alike for TensorFlow's graphs and XLA's programs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workloads.kernels import PRODUCTS, KernelClass, classify

CLUSTER = "XlaCluster"
"""The type of a call into compiled code, whatever the name of the call."""

BIASES = ("BiasAdd", "BiasAddGrad")

_TYPE_PREFIX = re.compile(r"^_?(Mkl)?(Native)?(Fused)?(?=[A-Z])")
_SPATIAL = re.compile(r"Conv2D|BatchNorm|Pool")
_PYTHON_CALLS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""tf.numpy_function, stateless or not, and tf.py_function: tensorflow/core/ops/script_ops.cc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation. `type` is TensorFlow's name without the additions of oneDNN and the graph optimizer.

    `device` is such as `GPU:0` ("" in XLA's program); `dtype` the type that it computes in, such as `bfloat16`;
    `layout` its images' axes, `NCHW` or `NHWC`; `loop` the loop whose body contains it, "" outside loops; `branch`: in
    a function that `tf.cond` or `tf.switch_case` may run; `compiled`: inside an XLA cluster; `exact`: its float32
    operands may not be rounded to TF32 (None if the program does not say); `transposed`: its first operand is read
    transposed; `received`: one of its operands comes from another device; `kernel`: its name in a trace, if that
    differs.
    """

    type: str
    name: str
    device: str = ""
    dtype: str = ""
    layout: str = ""
    loop: str = ""
    branch: bool = False
    compiled: bool = False
    exact: bool | None = None
    fused: tuple[str, ...] = ()
    transposed: bool = False
    received: bool = False
    kernel: str = ""

    @property
    def in_python(self) -> bool:
        """Return whether it calls back into Python, where its computation cannot be observed."""
        return self.type in _PYTHON_CALLS

    @property
    def kind(self) -> KernelClass:
        return classify(self.type)

    @property
    def is_product(self) -> bool:
        """Return whether it is, or contains, the matrix products or convolutions that do the main work."""
        return self.kind in PRODUCTS

    @property
    def is_spatial(self) -> bool:
        """Return whether it works on images, so that their layout matters."""
        return bool(self.layout) and _SPATIAL.search(self.type) is not None

    @property
    def backward(self) -> bool:
        """Return whether it belongs to the gradients: on the tape, in a gradient's loop, or a gradient itself."""
        of_tape = "gradient_tape" in self.name or "transpose(jvp" in self.name  # TensorFlow's and JAX's
        return of_tape or self.loop.endswith("_grad") or "Grad" in self.type or "Back" in self.type


def plain_type(name: str) -> str:
    """Return an operation's plain type: `BatchNormEx` for `_MklNativeFusedBatchNormEx`, `MatMul` for `_FusedMatMul`."""
    return _TYPE_PREFIX.sub("", name)


def main_products(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return the products that the workload measures: those of the recurrence, else the convolutions, else all.

    A dense head computes in another type, separately: it reveals nothing about the layers before it.
    """
    products = [op for op in ops if op.is_product]
    recurrent = [op for op in products if op.kind == "rnn" or op.loop]
    convolutions = [op for op in products if op.kind == "convolution"]
    return tuple(recurrent or convolutions or products)


def layers_of(ops: Iterable[Op], names: Iterable[str]) -> list[str]:
    """Return the layers of some operations, in the order of `names`.

    An operation's name contains its layer's: `gradient_tape/block1/pool/AvgPool2D/AvgPoolGrad`, or `jvp(block1/pool)`.
    """
    paths = [f"/{op.name}/" for op in ops]
    return [name for name in names if any(re.search(rf"[/(]{re.escape(name)}(_\d+)?[/)]", path) for path in paths)]


def ops_by_device(ops: Iterable[Op]) -> dict[str, tuple[Op, ...]]:
    ops_by_name: dict[str, list[Op]] = {}
    for op in ops:
        ops_by_name.setdefault(op.device, []).append(op)
    return {device: tuple(group) for device, group in ops_by_name.items()}
