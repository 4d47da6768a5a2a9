"""The names and shapes of an LSTM's weights in the one layout that all implementations share, known without TensorFlow.

See `workloads.lstm.weights` for what they hold. The order is that of a model's `weights`.
"""

from workloads.lstm.config import LstmConfig

GATES = 4
DIRECTIONS = ("forward", "backward")


def shapes(config: LstmConfig) -> dict[str, tuple[int, ...]]:
    """Each weight's shape by its name, such as `layer0/forward/kernel`."""
    found: dict[str, tuple[int, ...]] = {}
    gates = GATES * config.units
    for depth in range(config.layers):
        for direction in DIRECTIONS[: config.directions]:
            where = f"layer{depth}/{direction}"
            found[f"{where}/kernel"] = (config.width(depth), gates)
            found[f"{where}/recurrent_kernel"] = (config.units, gates)
            found[f"{where}/bias"] = (gates,)
    return {**found, "head/kernel": (config.width(config.layers), 1), "head/bias": (1,)}
