"""An LSTM variant's sizes, and the names and shapes of its weights; needs no TensorFlow.

See `workloads.tensorflow.lstm.stack` for what they hold. The order is that of a model's `weights`.
"""

from dataclasses import dataclass

from workloads.protocol import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig:
    """The sizes of a stack, and how it is computed.

    `dropout` and `recurrent_dropout` are the shares of each layer's inputs and own outputs left out in training,
    `unroll` how many time steps one turn of a loop makes.
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
        """How many ways each layer reads a sequence."""
        return 2 if self.bidirectional else 1

    def width(self, depth: int) -> int:
        """How many features the layer at that depth reads; at depth `layers` it is what the head reads."""
        return self.units * self.directions if depth else self.features


def config_of(variant: Variant) -> LstmConfig:
    """The part of a variant that its implementation depends on."""
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
    """Each weight's shape by its name, such as `layer0/forward/kernel`."""
    found: dict[str, tuple[int, ...]] = {}
    gates = GATES * config.units
    for depth in range(config.layers):
        for direction in DIRECTIONS[: config.directions]:
            prefix = f"layer{depth}/{direction}"
            found[f"{prefix}/kernel"] = (config.width(depth), gates)
            found[f"{prefix}/recurrent_kernel"] = (config.units, gates)
            found[f"{prefix}/bias"] = (gates,)
    return {**found, "head/kernel": (config.width(config.layers), 1), "head/bias": (1,)}
