"""The floating-point operations of one step by formula: those of its matrix products and convolutions.

A multiply-add is two operations. Every implementation of a variant counts the same, whatever it really executes, so
that rates compare. As in the sources, nothing is counted that is done value by value (gates, biases, batch norm, ReLU,
pooling, loss, the optimizer's update); time steps that a sequence's length leaves out are counted like the others.
A training step counts as three forward passes: each product has two gradients of its own size, one with respect to its
inputs and one with respect to its weights.

Sources: for the LSTM, Appleyard, Kocisky and Blunsom 2016, "Optimizing Performance of Recurrent Neural Networks on
GPUs" (arXiv 1604.01946); for counting model operations, not executed ones, and for the factor of three, Chowdhery et
al. 2022, "PaLM" (arXiv 2204.02311), appendix B.
"""

from collections.abc import Callable

from workloads.cnn import Conv, Dense, flatten, net_of
from workloads.lstm import GATES
from workloads.protocol import RunSpec, Variant

_TRAINING = 3


def flops_per_step(spec: RunSpec) -> int | None:
    """Return the operations of one step over all replicas; None for a workload without a formula, as a custom one."""
    forward_flops = _FORWARD_FLOPS.get(spec.workload)
    if forward_flops is None:
        return None
    forward = int(spec.variant["batch_size"]) * forward_flops(spec)
    return _TRAINING * forward if spec.variant["mode"] == "train" else forward


def lstm_forward(variant: Variant) -> int:
    """Return the operations of one sequence's forward pass: 2 · 4U · (F + U) per layer, direction and step, plus head.

    U are the units, F what goes into the layer: the features, above the first layer the units of all directions.
    """
    units, directions = int(variant["units"]), 2 if variant["bidirectional"] else 1
    inputs = [int(variant["features"])] + [units * directions] * (int(variant["layers"]) - 1)
    step_flops = sum(directions * 2 * GATES * units * (width + units) for width in inputs)
    return int(variant["timesteps"]) * step_flops + 2 * units * directions


def cnn_forward(spec: RunSpec) -> int:
    """Return the operations of one image's forward pass: 2 · K² · C_in · C_out · side² per convolution, plus head."""
    total = 0
    for layer in flatten(net_of(spec.workload, spec.variant)):
        if isinstance(layer, Conv):
            total += 2 * layer.kernel**2 * layer.channels_in * layer.channels * layer.side**2
        if isinstance(layer, Dense):
            total += 2 * layer.channels_in * layer.channels
    return total


_FORWARD_FLOPS: dict[str, Callable[[RunSpec], int]] = {
    "lstm": lambda spec: lstm_forward(spec.variant),
    "cnn10": cnn_forward,
    "wrn28-10": cnn_forward,
}
"""Operations of one example's forward pass, by workload."""
