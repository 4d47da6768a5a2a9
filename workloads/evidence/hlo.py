"""XLA's optimised program: its matrix products and convolutions, in the same terms as those of TensorFlow's graph."""

from collections.abc import Iterator
from typing import Any

from tensorflow.compiler.xla import xla_data_pb2

from workloads.evidence.ops import Op, plain_type

_TYPES = {
    xla_data_pb2.F32: "float32",
    xla_data_pb2.F16: "float16",
    xla_data_pb2.BF16: "bfloat16",
}
_HIGHEST = xla_data_pb2.PrecisionConfig.HIGHEST
_LIBRARY = {"gemm": "MatMul", "matmul": "MatMul", "conv": "Conv2D"}
"""Words in the names of XLA's library calls, as `__cublas$gemm`, `__cublas$lt$matmul`, `__cudnn$convForward`."""


def operations(module: Any) -> tuple[Op, ...]:
    """The products and convolutions of a program (HloModuleProto), those in its fusions and loops too.

    After them TensorFlow's fused batch norms that it was made from: no more than their names is left of them.
    """
    computations = {computation.id: computation for computation in module.computations}
    sources = (one.metadata for computation in module.computations for one in computation.instructions)
    norms = sorted({(one.op_type, one.op_name) for one in sources if one.op_type.startswith("FusedBatchNorm")})
    return (
        *_walk(computations, module.entry_computation_id, ""),
        *(Op(type=plain_type(type_), name=name, compiled=True) for type_, name in norms),
    )


def _walk(computations: dict[int, Any], entry: int, loop: str) -> Iterator[Op]:
    instructions = {instruction.id: instruction for instruction in computations[entry].instructions}
    for instruction in instructions.values():
        inside = (instruction.metadata.op_name or instruction.name) if instruction.opcode == "while" else loop
        for called in instruction.called_computation_ids:
            yield from _walk(computations, called, inside)
        if type_ := _type(instruction):
            operand = instructions[instruction.operand_ids[0]]
            yield Op(
                type=type_,
                name=instruction.metadata.op_name or instruction.name,
                dtype=_TYPES.get(operand.shape.element_type, ""),
                layout=_layout(instruction, operand) if type_ == "Conv2D" else "",
                loop=loop,
                compiled=True,
                exact=_exact(instruction),
            )


def _type(instruction: Any) -> str | None:
    if instruction.opcode == "custom-call":
        target = instruction.custom_call_target.lower()
        return next((type_ for word, type_ in _LIBRARY.items() if word in target), None)
    return {"dot": "MatMul", "convolution": "Conv2D"}.get(instruction.opcode)


def _layout(convolution: Any, images: Any) -> str:
    """By where the channels lie in memory: XLA keeps the axes' order and chooses the layout, minor axis first."""
    channels = convolution.convolution_dimension_numbers.input_feature_dimension
    return "NHWC" if images.shape.layout.minor_to_major[0] == channels else "NCHW"


def _exact(instruction: Any) -> bool:
    """Whether its operands keep their precision: TensorFlow asks for the highest where TF32 is off."""
    asked = instruction.precision_config.operand_precision
    return any(one == _HIGHEST for one in asked) or b"HIGHEST" in instruction.backend_config
