"""The kinds of recurrent layers by workload: each one's sizes and its implementations.

Nothing here needs a framework. Catalog, rules, evidence, weights and tests loop over `RECURRENT_LAYERS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from workloads.protocol import Variant
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

GRU_GATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GruConfig(RecurrentConfig):
    """A GRU: gates update, reset and candidate, each with a bias for the input and one for the recurrent product.

    It is cuDNN's GRU, and Keras's with `reset_after=True`: the reset gate multiplies the candidate's recurrent product
    instead of its input, as in Cho et al. 2014 (arXiv 1406.1078), so that one product serves all three gates.
    TensorFlow has no block-fused GRU with this cell: its `GRUBlockCell` resets the output first.
    """

    keras_name: ClassVar[str] = "GRU"
    gate_biases: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0)
    bias_count: ClassVar[int] = 2
    state_parts: ClassVar[int] = 1
    cudnn_gates: ClassVar[tuple[int, ...]] = (1, 0, 2)


GRU_IMPLEMENTATIONS: tuple[Implementation, ...] = (
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
"""Every implementation in the form's order, which is the ladder's for its rungs."""


LSTM_GATES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig(RecurrentConfig):
    """An LSTM: gates input, forget, cell and output; the forget gate starts open."""

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


LSTM_IMPLEMENTATIONS: tuple[Implementation, ...] = (
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
"""Every implementation in the form's order, which is the ladder's for its rungs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer:
    """One kind of recurrent layer: the sizes of a stack of them, and every implementation.

    Implementations are in the form's order, which is the ladder's for its rungs.
    """

    config: type[RecurrentConfig]
    implementations: tuple[Implementation, ...]

    @property
    def ladder(self) -> tuple[str, ...]:
        """Return the rungs of the optimisation ladder, from the first to the last; each adds to the one before."""
        return tuple(implementation.name for implementation in self.implementations if implementation.unrolls)

    def find(self, name: str) -> Implementation:
        return next(implementation for implementation in self.implementations if implementation.name == name)


RECURRENT_LAYERS: Mapping[str, RecurrentLayer] = {
    "lstm": RecurrentLayer(config=LstmConfig, implementations=LSTM_IMPLEMENTATIONS),
    "gru": RecurrentLayer(config=GruConfig, implementations=GRU_IMPLEMENTATIONS),
}
"""By the name of the workload."""


def config_of(workload: str, variant: Variant) -> RecurrentConfig:
    """Return the part of a variant that its implementation depends on.

    Parameters that a variant lacks are at their defaults: it, or its saved weights, are older than the parameter.
    """
    config = RECURRENT_LAYERS[workload].config
    values = {field.name: variant[field.name] for field in fields(config) if field.name in variant}
    return config(**values)  # type: ignore[arg-type] # the catalog has checked every value's type
