"""The GRU as data: the table of its implementations with what each cannot do.

It is the GRU of cuDNN, and Keras's with `reset_after=True`: the reset gate multiplies the candidate's recurrent
product, not the output that goes into it as in Cho et al. 2014 (arXiv 1406.1078), so that one product serves all three
gates. Nothing here needs a framework; the code of each implementation is in `workloads.tensorflow.gru`.

TensorFlow has no block-fused GRU with this cell: its `GRUBlockCell` resets the output before the product.
"""

from dataclasses import dataclass
from typing import ClassVar

from workloads.recurrent import (
    COMBINED_INPUT,
    CUDNN_STACK,
    FUSED,
    GEMM2,
    GEMM_BATCHED,
    WAVEFRONT,
    Implementation,
    OpPattern,
    RecurrentConfig,
    keras_implementations,
)

GATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GruConfig(RecurrentConfig):
    """A GRU; its gates are update, reset, candidate, with one bias for the input and one for the recurrent product."""

    keras_name: ClassVar[str] = "GRU"
    gate_biases: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0)
    bias_count: ClassVar[int] = 2
    state_parts: ClassVar[int] = 1
    cudnn_gates: ClassVar[tuple[int, ...]] = (1, 0, 2)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *keras_implementations(GruConfig),
    CUDNN_STACK,
    Implementation(
        name="gemm6",
        label="6 separate GEMMs",
        help="The ladder's start: six matrix products per step, single ops.",
        pattern=lambda c: OpPattern(loops=c.parts, products=6 * c.unroll),
        unrolls=True,
    ),
    GEMM2,
    GEMM_BATCHED,
    FUSED,
    COMBINED_INPUT,
    WAVEFRONT,
)
"""Every implementation, in the order of the form; the rungs of the ladder in theirs."""
