"""Data that the recurrent workloads share: sizes, weights, and implementations with their limits.

Nothing here needs a framework; `workloads.recurrent_layers` has the tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from workloads.protocol import Variant

DIRECTIONS = ("forward", "backward")
ADAM_RATE, ADAM_EPSILON, ADAM_BETAS = 0.003, 1e-7, (0.9, 0.999)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig:
    """The sizes of a stack, and how to compute it.

    Attributes:
        keras_name: Keras's name of the layer.
        gate_biases: Each gate's initial bias, in Keras's order of gates.
        bias_count: Biases of each gate: with 2, the input's and the recurrent product's.
        state_parts: Tensors that a step passes to the next.
        cudnn_gates: The gates in cuDNN's order, as positions in Keras's.
        units: Hidden units per layer and direction.
        features: Inputs per time step of the first layer.
        activation: The function of the cell's input and output.
        dropout: Share of each layer's inputs left out in training.
        recurrent_dropout: Share of each layer's own last outputs left out in training.
        unroll: Time steps in one iteration of a loop.
        input_steps: Time steps in each product of inputs computed before the loop; 0 means all.
        sequence_lengths: `fixed`, `right_padded` or `left_padded`.
        outputs: The outputs of the top layer that are read: `last` or `all`.
        seed: Seed of the initial weights.
    """

    keras_name: ClassVar[str]
    gate_biases: ClassVar[tuple[float, ...]]
    bias_count: ClassVar[int]
    state_parts: ClassVar[int]
    cudnn_gates: ClassVar[tuple[int, ...]]

    layers: int
    units: int
    features: int
    bidirectional: bool = False
    activation: str = "tanh"
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    unroll: int = 1
    input_steps: int = 0
    sequence_lengths: str = "fixed"
    outputs: str = "last"
    seed: int = 1

    @property
    def gates(self) -> int:
        return len(self.gate_biases)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        gates = self.gates * self.units
        return (gates,) if self.bias_count == 1 else (self.bias_count, gates)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def left_padded(self) -> bool:
        return self.sequence_lengths == "left_padded"

    @property
    def all_outputs(self) -> bool:
        return self.outputs == "all"

    @property
    def parts(self) -> int:
        return self.layers * self.directions

    def width(self, depth: int) -> int:
        """Return how many features the layer at a depth reads; at depth `layers`, what the head reads."""
        return self.units * self.directions if depth else self.features


def weight_shapes(config: RecurrentConfig) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape by its name, such as `layer0/forward/kernel`, in the order of a model's `weights`.

    `workloads.tensorflow.recurrent.loop` says what they hold.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    gates = config.gates * config.units
    for depth in range(config.layers):
        for direction in DIRECTIONS[: config.directions]:
            prefix = f"layer{depth}/{direction}"
            shapes[f"{prefix}/kernel"] = (config.width(depth), gates)
            shapes[f"{prefix}/recurrent_kernel"] = (config.units, gates)
            shapes[f"{prefix}/bias"] = config.bias_shape
    return {**shapes, "head/kernel": (config.width(config.layers), 1), "head/bias": (1,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPattern:
    """The operations of a forward pass through the layers; a loop is one over time.

    Attributes:
        cudnn: cuDNN calls.
        blocks: Block-fused calls.
        products: Matrix products per iteration of each loop.
        batched: Batched matrix products per iteration of each loop.
        cells: Block cells per iteration of each loop.
        transposed: Whether batched products read their first operand transposed.
        kernel: Whether an iteration calls code compiled by XLA.
        fully_compiled: Whether XLA compiled the loops themselves: it then changes their products, so only the existence
            of loops can be observed.
    """

    cudnn: int = 0
    blocks: int = 0
    loops: int = 0
    products: int = 0
    batched: int = 0
    cells: int = 0
    transposed: bool = False
    kernel: bool = False
    fully_compiled: bool = False

    @property
    def is_distinctive(self) -> bool:
        """Return whether it has an operation that distinguishes implementations."""
        return bool(self.cudnn or self.blocks or self.loops)

    def __str__(self) -> str:
        """Return a text such as `2 loops of 8 products per iteration`."""
        iteration = [
            _format_count(self.products + self.batched, "transposed product" if self.transposed else "product"),
            _format_count(self.cells, "block cell"),
            "a compiled kernel" if self.kernel else "",
        ]
        products = " and ".join(filter(None, iteration))
        content = f"of {products} per iteration" if products else "of another kind"
        counts = [_format_count(self.cudnn, "cuDNN call"), _format_count(self.blocks, "block-fused call")]
        counts += [f"{_format_count(self.loops, 'loop')} {content}" if self.loops else ""]
        return ", ".join(filter(None, counts)) or "no loop over time, cuDNN call or block-fused call"


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of an implementation: the other parameter, the variants concerned, and the reason, in one sentence."""

    parameter: str
    broken: Callable[[Variant], bool]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One way to compute the layers.

    Attributes:
        name: The value of the parameter `implementation`.
        label: Its name on the screen.
        help: One sentence on how it computes.
        pattern: Returns the operations of its executed graph for given sizes; None if it stands for another
            implementation.
        choices: The implementations among which it chooses by itself, the preferred one first.
        unrolls: Whether its loop over time is this program's own, as in the rungs of the ladder, so that `unroll`
            applies.
        drops_between_layers: Whether its dropout acts only between layers, on other values at each step. Others drop
            each layer's inputs, the same at all steps of a sequence.
        combines_inputs: Whether it computes the products of inputs before the loop, so that `input_steps` applies.
        limits: Combinations that it does not support.
    """

    name: str
    label: str
    help: str
    pattern: Callable[[RecurrentConfig], OpPattern] | None
    choices: tuple[str, ...] = ()
    unrolls: bool = False
    drops_between_layers: bool = False
    combines_inputs: bool = False
    activations: tuple[str, ...] = ("tanh",)
    limits: tuple[Limit, ...] = ()


def _left_padded(variant: Variant) -> bool:
    return variant["sequence_lengths"] == "left_padded"


def _keras_selects_cudnn(variant: Variant) -> bool:
    """Return whether Keras chooses cuDNN by itself: it checks everything but padding."""
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
        reason="XLA cannot compile cuDNN's layers; use xla=false or implementation=standard.",
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
        broken=lambda v: bool(v["dropout"]) and int(v["layers"]) == 1,
        reason="cuDNN's whole stack drops between layers only, and there is one; use layers=2 or more, dropout=0 or "
        "implementation=cudnn.",
    ),
)
_AUTO_LIMITS = (
    Limit(
        parameter="xla",
        broken=lambda v: _keras_selects_cudnn(v) and bool(v["xla"]),
        reason="Keras chooses cuDNN here, and XLA cannot compile its layers; use xla=false or implementation=standard.",
    ),
    Limit(
        parameter="sequence_lengths",
        broken=lambda v: _keras_selects_cudnn(v) and _left_padded(v),
        reason="Keras chooses cuDNN here, which takes padding at the end only, and fails at the first step; "
        "use sequence_lengths=right_padded or implementation=standard.",
    ),
)


def keras_implementations(config: type[RecurrentConfig]) -> tuple[Implementation, ...]:
    layer = config.keras_name
    return (
        Implementation(
            name="standard",
            label="Standard",
            help=f"Keras {layer} with use_cudnn=False: a loop over time steps.",
            # With recurrent dropout Keras computes each gate's products separately.
            pattern=lambda c: OpPattern(loops=c.parts, products=2 * c.gates if c.recurrent_dropout else 2),
            activations=("tanh", "relu"),
        ),
        Implementation(
            name="cudnn",
            label="cuDNN",
            help=f"Keras {layer} with use_cudnn=True: NVIDIA's fused kernels; GPU only.",
            pattern=lambda c: OpPattern(cudnn=c.parts),
            limits=_CUDNN_LIMITS,
        ),
        Implementation(
            name="auto",
            label="Auto",
            help=f"Keras {layer} with use_cudnn='auto': Keras decides, and falls back without a word.",
            pattern=None,
            choices=("cudnn", "standard"),
            activations=("tanh", "relu"),
            limits=_AUTO_LIMITS,
        ),
    )


CUDNN_STACK = Implementation(
    name="cudnn_stack",
    label="cuDNN stack",
    help="All layers in one cuDNN call; GPU only.",
    pattern=lambda _: OpPattern(cudnn=1),
    drops_between_layers=True,
    limits=_CUDNN_STACK_LIMITS,
)

GEMM2 = Implementation(
    name="gemm2",
    label="2 GEMMs",
    help="All gates together: one input, one recurrent product per step.",
    pattern=lambda c: OpPattern(loops=c.parts, products=2 * c.unroll),
    unrolls=True,
)

GEMM_BATCHED = Implementation(
    name="gemm_batched",
    label="Batched GEMMs",
    help="Both products of a step side by side, as one batch.",
    pattern=lambda c: OpPattern(loops=c.parts, batched=c.unroll),
    unrolls=True,
)

FUSED = Implementation(
    name="fused",
    label="Fused gates",
    help="And all arithmetic of the gates in one compiled kernel.",
    pattern=lambda c: OpPattern(loops=c.parts, batched=c.unroll, kernel=True),
    unrolls=True,
)

COMBINED_INPUT = Implementation(
    name="combined_input",
    label="Combined inputs",
    help="And the input products of all steps computed as one before the loop, or of input_steps at a time.",
    pattern=lambda c: OpPattern(loops=c.parts, products=c.unroll, kernel=True),
    unrolls=True,
    combines_inputs=True,
)

WAVEFRONT = Implementation(
    name="wavefront",
    label="Wavefront",
    help="And all layers at once, each one step behind the one below.",
    pattern=lambda c: OpPattern(loops=1, batched=c.unroll, kernel=True),
    unrolls=True,
    limits=(
        Limit(
            parameter="bidirectional",
            broken=lambda v: bool(v["bidirectional"]),
            reason="In a wavefront each layer follows the one below in time, so none can go backwards; "
            "use bidirectional=false or implementation=combined_input.",
        ),
    ),
)
