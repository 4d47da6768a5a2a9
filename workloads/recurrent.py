"""What the recurrent workloads share as data: sizes, weights, and what an implementation is and cannot do.

Nothing here needs a framework; `workloads.lstm` has the tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from workloads.protocol import Variant

DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig:
    """The sizes of a stack, and how it is computed.

    Attributes:
        gate_biases: The bias that each gate starts with, in the order of the gates.
        state_parts: Tensors that a step hands on to the next.
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

    gate_biases: ClassVar[tuple[float, ...]]
    state_parts: ClassVar[int]

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
    def gates(self) -> int:
        """Return how many gates a cell has, the candidate among them."""
        return len(self.gate_biases)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Return the shape of one direction's bias."""
        return (self.gates * self.units,)

    @property
    def directions(self) -> int:
        """Return how many directions each layer reads a sequence in."""
        return 2 if self.bidirectional else 1

    def width(self, depth: int) -> int:
        """Return how many features the layer at a depth reads; at depth `layers`, what the head reads."""
        return self.units * self.directions if depth else self.features


def weight_shapes(config: RecurrentConfig) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape by its name, such as `layer0/forward/kernel`, in the order of a model's `weights`.

    `workloads.tensorflow.recurrent.loop` says what they hold.
    """
    found: dict[str, tuple[int, ...]] = {}
    gates = config.gates * config.units
    for depth in range(config.layers):
        for direction in DIRECTIONS[: config.directions]:
            prefix = f"layer{depth}/{direction}"
            found[f"{prefix}/kernel"] = (config.width(depth), gates)
            found[f"{prefix}/recurrent_kernel"] = (config.units, gates)
            found[f"{prefix}/bias"] = config.bias_shape
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
    """One way to compute the layers.

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
    pattern: Callable[[RecurrentConfig], OpPattern] | None
    choices: tuple[str, ...] = ()
    unrolls: bool = False
    activations: tuple[str, ...] = ("tanh",)
    limits: tuple[Limit, ...] = ()
