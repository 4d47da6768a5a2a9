"""The floating-point operations of one step by formula: those of its matrix products and convolutions.

A multiply-add is two operations. Every implementation of a variant counts the same, whatever it really executes, so
that rates compare. As in the sources, nothing is counted that is done value by value (gates, biases, batch norm, ReLU,
pooling, loss, the optimizer's update); time steps that a sequence's length leaves out are counted like the others.
A training step counts as three forward passes: each product has two gradients of its own size, one with respect to its
inputs and one with respect to its weights.

Sources: for recurrent layers, Appleyard, Kocisky and Blunsom 2016, "Optimizing Performance of Recurrent Neural Networks
on GPUs" (arXiv 1604.01946); for counting model operations, not executed ones, and for the factor of three, Chowdhery et
al. 2022, "PaLM" (arXiv 2204.02311), appendix B.
"""

from collections.abc import Callable

from workloads.cnn import Conv, Dense, flatten, net_of
from workloads.protocol import RunSpec
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of

_TRAINING = 3


def flops_per_step(spec: RunSpec) -> int | None:
    """Return the operations of one step over all replicas; None for a workload without a formula, as a custom one."""
    forward_flops = _FORWARD_FLOPS.get(spec.workload)
    if forward_flops is None:
        return None
    forward = int(spec.variant["batch_size"]) * forward_flops(spec)
    return _TRAINING * forward if spec.variant["mode"] == "train" else forward


def recurrent_forward(spec: RunSpec) -> int:
    """Return the operations of one sequence's forward pass: 2 · GU · (F + U) per layer, direction and step, plus head.

    The head reads the last output, or all. G are the gates of a cell, U the units, F what goes into the layer: the
    features, above the first layer the units of all directions.
    """
    config = config_of(spec.workload, spec.variant)
    products = sum(config.width(depth) + config.units for depth in range(config.layers))
    step_flops = config.directions * 2 * config.gates * config.units * products
    timesteps = int(spec.variant["timesteps"])
    return timesteps * step_flops + (timesteps if config.all_outputs else 1) * 2 * config.width(config.layers)


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
    **dict.fromkeys(RECURRENT_LAYERS, recurrent_forward),
    "cnn10": cnn_forward,
    "wrn28-10": cnn_forward,
}
"""Operations of one example's forward pass, by workload."""
