"""The GRU as data: the table of its implementations with what each cannot do.

It is the GRU of cuDNN, and Keras's with `reset_after=True`: the reset gate multiplies the candidate's recurrent
product, not the output that goes into it as in Cho et al. 2014 (arXiv 1406.1078), so that one product serves all three
gates. Nothing here needs a framework; the code of each implementation is in `workloads.tensorflow.gru`.

TensorFlow has no block-fused GRU with this cell: its `GRUBlockCell` resets the output before the product.
"""

from dataclasses import dataclass
from typing import ClassVar

from workloads.recurrent import (
    CUDNN_STACK,
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
    Implementation(
        name="gemm2",
        label="2 GEMMs",
        help="All gates together: one input, one recurrent product per step.",
        pattern=lambda c: OpPattern(loops=c.parts, products=2 * c.unroll),
        unrolls=True,
    ),
    Implementation(
        name="gemm_batched",
        label="Batched GEMMs",
        help="Both products of a step side by side, as one batch.",
        pattern=lambda c: OpPattern(loops=c.parts, batched=c.unroll),
        unrolls=True,
    ),
    Implementation(
        name="fused",
        label="Fused gates",
        help="And all arithmetic of the gates in one compiled kernel.",
        pattern=lambda c: OpPattern(loops=c.parts, batched=c.unroll, kernel=True),
        unrolls=True,
    ),
    Implementation(
        name="combined_input",
        label="Combined inputs",
        help="And the input product of all steps made at once.",
        pattern=lambda c: OpPattern(loops=c.parts, products=c.unroll, kernel=True),
        unrolls=True,
        combines_inputs=True,
    ),
    WAVEFRONT,
)
"""Every implementation, in the order of the form; the rungs of the ladder in theirs."""
