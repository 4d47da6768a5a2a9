"""The LSTM as data: its sizes, its weights, and the table of its implementations with what each cannot do.

Nothing here needs a framework. Catalog, rules, evidence and tests read `IMPLEMENTATIONS`; the code of each is in
`workloads.tensorflow.lstm`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from workloads.protocol import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig:
    """The sizes of a stack, and how it is computed.

    Attributes:
        layers: Layers, one on top of the other.
        units: Hidden units per layer and direction.
        features: Inputs per time step of the first layer.
        bidirectional: Whether each layer reads in both directions.
        activation: The function of the cell's input and output.
        dropout: Share of each layer's inputs left out in training.
        recurrent_dropout: Share of each layer's own last outputs left out in training.
        unroll: Time steps that one iteration of a loop makes.
        seed: Seed of the initial weights.
    """

    layers: int
    units: int
    features: int
    bidirectional: bool = False
    activation: str = "tanh"
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    unroll: int = 1
    seed: int = 1

    @property
    def directions(self) -> int:
        """Return how many directions each layer reads a sequence in."""
        return 2 if self.bidirectional else 1

    def width(self, depth: int) -> int:
        """Return how many features the layer at a depth reads; at depth `layers`, what the head reads."""
        return self.units * self.directions if depth else self.features


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


GATES = 4
DIRECTIONS = ("forward", "backward")


def weight_shapes(config: LstmConfig) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape by its name, such as `layer0/forward/kernel`, in the order of a model's `weights`.

    `workloads.tensorflow.lstm.loop` says what they hold.
    """
    found: dict[str, tuple[int, ...]] = {}
    gates = GATES * config.units
    for depth in range(config.layers):
        for direction in DIRECTIONS[: config.directions]:
            prefix = f"layer{depth}/{direction}"
            found[f"{prefix}/kernel"] = (config.width(depth), gates)
            found[f"{prefix}/recurrent_kernel"] = (config.units, gates)
            found[f"{prefix}/bias"] = (gates,)
    return {**found, "head/kernel": (config.width(config.layers), 1), "head/bias": (1,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPattern:
    """The operations that a forward pass through the layers is made of.

    Attributes:
        cudnn: cuDNN calls.
        blocks: Block-fused calls.
        loops: Loops over time.
        products: Matrix products per iteration of each loop.
        batched: Batched matrix products per iteration of each loop.
        kernel: Whether an iteration calls code compiled by XLA.
        fully_compiled: Whether XLA compiled the loops themselves: their products are then as XLA left them, so only
            the existence of loops can be seen.
    """

    cudnn: int = 0
    blocks: int = 0
    loops: int = 0
    products: int = 0
    batched: int = 0
    kernel: bool = False
    fully_compiled: bool = False

    @property
    def is_distinctive(self) -> bool:
        """Return whether it has any of what every implementation's graph has one of."""
        return bool(self.cudnn or self.blocks or self.loops)

    def __str__(self) -> str:
        """Return it as text, such as `2 loops of 8 products per iteration`."""
        iteration = [_format_count(self.products + self.batched, "product"), "a compiled kernel" if self.kernel else ""]
        content = " and ".join(filter(None, iteration))
        kind = f"of {content} per iteration" if content else "of another kind"
        parts = [_format_count(self.cudnn, "cuDNN call"), _format_count(self.blocks, "block-fused call")]
        parts += [f"{_format_count(self.loops, 'loop')} {kind}" if self.loops else ""]
        return ", ".join(filter(None, parts)) or "no loop over time, cuDNN call or block-fused call"


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What an implementation cannot do: the other parameter, the variants it concerns, and why, in one sentence."""

    parameter: str
    broken: Callable[[Variant], bool]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One way to compute the LSTM.

    Attributes:
        name: The value of the parameter `implementation`.
        label: Its name on the screen.
        help: One sentence on how it computes.
        pattern: From the sizes to the operations that its executed graph has; None if it stands for another one.
        choices: The implementations that it takes one of by itself, the preferred one first.
        unrolls: Whether its loop over time is this program's own, so that `unroll` applies: the rungs of the ladder.
        activations: The activations it has.
        limits: What it cannot do.
    """

    name: str
    label: str
    help: str
    pattern: Callable[[LstmConfig], OpPattern] | None
    choices: tuple[str, ...] = ()
    unrolls: bool = False
    activations: tuple[str, ...] = ("tanh",)
    limits: tuple[Limit, ...] = ()


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


def _parts(config: LstmConfig) -> int:
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
