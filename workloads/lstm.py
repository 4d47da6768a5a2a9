"""The LSTM as data: the table of its implementations with what each cannot do.

Nothing here needs a framework. Catalog, rules, evidence and tests read `IMPLEMENTATIONS`; the code of each is in
`workloads.tensorflow.lstm`.
"""

from dataclasses import dataclass
from typing import ClassVar

from workloads.protocol import Variant
from workloads.recurrent import Implementation, Limit, OpPattern, RecurrentConfig

GATES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig(RecurrentConfig):
    """An LSTM; its gates are input, forget, cell, output, and it starts with an open forget gate."""

    gate_biases: ClassVar[tuple[float, ...]] = (0.0, 1.0, 0.0, 0.0)
    state_parts: ClassVar[int] = 2


def config_of(variant: Variant) -> LstmConfig:
    """Return the part of a variant that its implementation depends on."""
    return LstmConfig(
        layers=int(variant["layers"]),
        units=int(variant["units"]),
        features=int(variant["features"]),
        bidirectional=bool(variant["bidirectional"]),
        activation=str(variant["activation"]),
        dropout=float(variant["dropout"]),
        recurrent_dropout=float(variant["recurrent_dropout"]),
        unroll=int(variant["unroll"]),
        seed=int(variant["seed"]),
    )


def _left_padded(variant: Variant) -> bool:
    return variant["sequence_lengths"] == "left_padded"


def _keras_selects_cudnn(variant: Variant) -> bool:
    """Return whether Keras, left to decide, takes cuDNN: it looks at everything but padding."""
    usable = variant["activation"] == "tanh" and not variant["recurrent_dropout"]
    return int(variant["gpus"]) > 0 and usable


_CUDNN_LIMITS = (
    Limit(
        parameter="gpus",
        broken=lambda v: int(v["gpus"]) == 0,
        reason="cuDNN needs an NVIDIA GPU, and this run is on the CPU; choose implementation=standard.",
    ),
    Limit(
        parameter="xla",
        broken=lambda v: bool(v["xla"]),
        reason="XLA cannot compile the cuDNN LSTM; use xla=false or implementation=standard.",
    ),
    Limit(
        parameter="recurrent_dropout",
        broken=lambda v: bool(v["recurrent_dropout"]),
        reason="cuDNN has no recurrent dropout; use recurrent_dropout=0 or implementation=standard.",
    ),
    Limit(
        parameter="sequence_lengths",
        broken=_left_padded,
        reason="cuDNN takes padding at the end only; use sequence_lengths=right_padded or implementation=standard.",
    ),
)
_CUDNN_STACK_LIMITS = (
    *_CUDNN_LIMITS,
    Limit(
        parameter="dropout",
        broken=lambda v: bool(v["dropout"]),
        reason="Inside one cuDNN call no dropout mask can be kept over a sequence; use dropout=0 or "
        "implementation=cudnn.",
    ),
)
_AUTO_LIMITS = (
    Limit(
        parameter="xla",
        broken=lambda v: _keras_selects_cudnn(v) and bool(v["xla"]),
        reason="Keras chooses the cuDNN LSTM here, and XLA cannot compile it; use xla=false or "
        "implementation=standard.",
    ),
    Limit(
        parameter="sequence_lengths",
        broken=lambda v: _keras_selects_cudnn(v) and _left_padded(v),
        reason="Keras chooses cuDNN here, which takes padding at the end only, and fails at the first step; "
        "use sequence_lengths=right_padded or implementation=standard.",
    ),
)
_BLOCK_LIMITS = (
    Limit(
        parameter="xla",
        broken=lambda v: bool(v["xla"]),
        reason="XLA cannot compile the block-fused op; use xla=false or implementation=standard.",
    ),
    Limit(
        parameter="precision",
        broken=lambda v: v["precision"] == "bfloat16",
        reason="TensorFlow has the block-fused op in float32 and float16 only; use one of them or "
        "implementation=standard.",
    ),
    Limit(
        parameter="sequence_lengths",
        broken=lambda v: v["sequence_lengths"] != "fixed",
        reason="The block-fused op knows one length for all sequences; use sequence_lengths=fixed or "
        "implementation=standard.",
    ),
    Limit(
        parameter="recurrent_dropout",
        broken=lambda v: bool(v["recurrent_dropout"]),
        reason="The block-fused op has no recurrent dropout; use recurrent_dropout=0 or implementation=standard.",
    ),
)
_WAVEFRONT_LIMITS = (
    Limit(
        parameter="bidirectional",
        broken=lambda v: bool(v["bidirectional"]),
        reason="In a wavefront each layer follows the one below in time, so none can go backwards; "
        "use bidirectional=false or implementation=combined_input.",
    ),
)


def _parts(config: RecurrentConfig) -> int:
    """Return how many directions there are in all layers together."""
    return config.layers * config.directions


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="standard",
        label="Standard",
        help="Keras LSTM with use_cudnn=False: a loop over time steps.",
        # With recurrent dropout Keras makes each gate's products apart.
        pattern=lambda c: OpPattern(loops=_parts(c), products=8 if c.recurrent_dropout else 2),
        activations=("tanh", "relu"),
    ),
    Implementation(
        name="cudnn",
        label="cuDNN",
        help="Keras LSTM with use_cudnn=True: NVIDIA's fused kernels; GPU only.",
        pattern=lambda c: OpPattern(cudnn=_parts(c)),
        limits=_CUDNN_LIMITS,
    ),
    Implementation(
        name="auto",
        label="Auto",
        help="Keras LSTM with use_cudnn='auto': Keras decides, and falls back without a word.",
        pattern=None,
        choices=("cudnn", "standard"),
        activations=("tanh", "relu"),
        limits=_AUTO_LIMITS,
    ),
    Implementation(
        name="block_fused",
        label="Block-fused",
        help="One BlockLSTMV2 op per layer and direction; GPU and CPU.",
        pattern=lambda c: OpPattern(blocks=_parts(c)),
        limits=_BLOCK_LIMITS,
    ),
    Implementation(
        name="cudnn_stack",
        label="cuDNN, whole stack",
        help="All layers in one cuDNN call; GPU only.",
        pattern=lambda _: OpPattern(cudnn=1),
        limits=_CUDNN_STACK_LIMITS,
    ),
    Implementation(
        name="gemm8",
        label="8 separate GEMMs",
        help="The ladder's start: eight matrix products per step, single ops.",
        pattern=lambda c: OpPattern(loops=_parts(c), products=8 * c.unroll),
        unrolls=True,
    ),
    Implementation(
        name="gemm2",
        label="2 GEMMs",
        help="All gates together: one input, one recurrent product per step.",
        pattern=lambda c: OpPattern(loops=_parts(c), products=2 * c.unroll),
        unrolls=True,
    ),
    Implementation(
        name="gemm_batched",
        label="Batched GEMMs",
        help="Both products of a step side by side, as one batch.",
        pattern=lambda c: OpPattern(loops=_parts(c), batched=c.unroll),
        unrolls=True,
    ),
    Implementation(
        name="fused",
        label="Fused gates",
        help="And all arithmetic of the gates in one compiled kernel.",
        pattern=lambda c: OpPattern(loops=_parts(c), batched=c.unroll, kernel=True),
        unrolls=True,
    ),
    Implementation(
        name="pretransposed",
        label="Pre-transposed",
        help="And the weights transposed once before the loop.",
        pattern=lambda c: OpPattern(loops=_parts(c), batched=c.unroll, kernel=True),
        unrolls=True,
    ),
    Implementation(
        name="combined_input",
        label="Combined inputs",
        help="And the input product of all steps made at once.",
        pattern=lambda c: OpPattern(loops=_parts(c), products=c.unroll, kernel=True),
        unrolls=True,
    ),
    Implementation(
        name="wavefront",
        label="Wavefront",
        help="And all layers at once, each one step behind the one below.",
        pattern=lambda c: OpPattern(loops=1, batched=c.unroll, kernel=True),
        unrolls=True,
        limits=_WAVEFRONT_LIMITS,
    ),
)
"""Every implementation, in the order of the form; the rungs of the ladder in theirs."""

LADDER = tuple(each.name for each in IMPLEMENTATIONS if each.unrolls)
"""The rungs of Appleyard, Kocisky and Blunsom 2016, from the first to the last; each adds to the one before."""


def find_implementation(name: str) -> Implementation:
    """Return the implementation of that name."""
    return next(each for each in IMPLEMENTATIONS if each.name == name)
