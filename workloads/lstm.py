"""The LSTM as data: the table of its implementations with what each cannot do.

Nothing here needs a framework. Catalog, rules, evidence and tests read `IMPLEMENTATIONS`; the code of each is in
`workloads.tensorflow.lstm`.
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
    Limit,
    OpPattern,
    RecurrentConfig,
    keras_implementations,
)

GATES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig(RecurrentConfig):
    """An LSTM; its gates are input, forget, cell, output, and it starts with an open forget gate."""

    keras_name: ClassVar[str] = "LSTM"
    gate_biases: ClassVar[tuple[float, ...]] = (0.0, 1.0, 0.0, 0.0)
    bias_count: ClassVar[int] = 1
    state_parts: ClassVar[int] = 2
    cudnn_gates: ClassVar[tuple[int, ...]] = (0, 1, 2, 3)


_BLOCK_LIMITS = (
    Limit(
        parameter="xla",
        broken=lambda v: bool(v["xla"]),
        reason="XLA cannot compile TensorFlow's block LSTM; use xla=false or implementation=standard.",
    ),
    Limit(
        parameter="precision",
        broken=lambda v: v["precision"] == "bfloat16",
        reason="TensorFlow has its block LSTM in float32 and float16 only; use one of them or implementation=standard.",
    ),
)
_BLOCK_FUSED_LIMITS = (
    *_BLOCK_LIMITS,
    Limit(
        parameter="recurrent_dropout",
        broken=lambda v: bool(v["recurrent_dropout"]),
        reason="The block-fused op has no recurrent dropout; use recurrent_dropout=0 or implementation=standard.",
    ),
)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *keras_implementations(LstmConfig),
    Implementation(
        name="block_fused",
        label="Block-fused",
        help="One BlockLSTMV2 op per layer and direction; GPU and CPU.",
        pattern=lambda c: OpPattern(blocks=c.parts),
        limits=_BLOCK_FUSED_LIMITS,
    ),
    Implementation(
        name="block_cell",
        label="Block cell",
        help="One LSTMBlockCell op per step, in a loop over time: cuDNN's compatible cell on its own; GPU and CPU.",
        pattern=lambda c: OpPattern(loops=c.parts, cells=1),
        limits=_BLOCK_LIMITS,
    ),
    CUDNN_STACK,
    Implementation(
        name="gemm8",
        label="8 separate GEMMs",
        help="The ladder's start: eight matrix products per step, single ops.",
        pattern=lambda c: OpPattern(loops=c.parts, products=8 * c.unroll),
        unrolls=True,
    ),
    GEMM2,
    GEMM_BATCHED,
    FUSED,
    Implementation(
        name="transposed",
        label="Transposed",
        help="And sums and state transposed, so that gates are contiguous: each product reads the weights transposed.",
        pattern=lambda c: OpPattern(loops=c.parts, batched=c.unroll, transposed=True, kernel=True),
        unrolls=True,
    ),
    Implementation(
        name="pretransposed",
        label="Pre-transposed",
        help="And the weights transposed once before the loop.",
        pattern=lambda c: OpPattern(loops=c.parts, batched=c.unroll, kernel=True),
        unrolls=True,
    ),
    COMBINED_INPUT,
    WAVEFRONT,
)
"""Every implementation, in the order of the form; the rungs of the ladder in theirs."""
