"""The GRU against an independent one: outputs, loss, gradients, cuDNN's parameters, evidence, saved weights."""

import functools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.evidence_runs import collect_evidence, spec_of
from tests.lstm_answers import CPU, Answers, answers, random_model, variant_of
from tests.numerics import BOTH, GOAL, Array, layer_outputs, reference, worst_error
from tests.present import present
from workloads import weights
from workloads.protocol import RunSpec, Value, Variant
from workloads.recurrent import RecurrentConfig
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of
from workloads.tensorflow.runtime import Replicas
from workloads.weights import WeightsError

GRU = RECURRENT_LAYERS["gru"]
SIZES: dict[str, Value] = {"gpus": 0, "batch_size": 3, "timesteps": 4, "units": 2, "features": 3}


def variant(workload: str = "gru", /, **given: Value) -> Variant:
    return present(variant_of(CPU, workload, **{**SIZES, **given}))


@functools.cache
def expected(workload: str, padding: str) -> Answers:
    """With padding at the end, of all outputs."""
    return reference(workload, both_ways(workload, padding))


def both_ways(workload: str, padding: str, **given: Value) -> Variant:
    outputs = "all" if padding == "right_padded" else "last"
    return variant(workload, sequence_lengths=padding, outputs=outputs, **BOTH, **given)


@pytest.mark.parametrize(
    ("workload", "name", "padding"),
    [
        ("lstm", "standard", "left_padded"),
        ("gru", "standard", "right_padded"),
        *(("gru", name, "left_padded") for name in ("standard", *GRU.ladder) if name != "wavefront"),
    ],
)
def test_it_computes_what_an_independent_one_does(workload: str, name: str, padding: str) -> None:
    given = both_ways(workload, padding, implementation=name)
    assert worst_error(answers(given, workload, traced=False), expected(workload, padding)) < GOAL


def test_compiled_with_several_steps_per_iteration_too(unoptimized: None) -> None:
    given = variant(implementation="combined_input", xla=True, unroll=3)
    assert worst_error(answers(given, "gru"), reference("gru", given)) < GOAL


def test_a_wavefront_over_padded_layers_too() -> None:
    given = variant(implementation="wavefront", layers=2, sequence_lengths="left_padded")
    assert worst_error(answers(given, "gru", traced=False), reference("gru", given)) < GOAL


def test_an_error_shows() -> None:
    """The comparison notices a bias on the wrong side of the reset gate."""
    right = expected("gru", "left_padded")
    gradients = [gradient.copy() for gradient in right.gradients]
    gradients[2] = gradients[2][::-1]
    assert worst_error(Answers(right.outputs, right.loss, gradients), right) > GOAL


CUDNN_GATES = {"lstm": [0, 1, 2, 3], "gru": [1, 0, 2]}
"""The place of each of Keras's gates among cuDNN's: input, forget, cell, output; reset, update, candidate."""


def cudnn_outputs(config: RecurrentConfig, sequence: Array, valid: NDArray[np.bool_], buffer: Array) -> Array:
    """Return the last outputs of each direction, from parameters that lie as cudnnGetRNNWeightParams describes.

    First, direction by direction and layer by layer, the input's matrix of each gate, then the recurrent ones, each
    [units, width]; then likewise the biases.
    """
    workload, units, numbers = config.keras_name.lower(), config.units, iter(buffer)

    def take(*shape: int) -> Array:
        """Read the parts of all gates, and put them side by side in Keras's order."""
        parts = [np.array([next(numbers) for _ in range(math.prod(shape))]).reshape(shape) for _ in range(config.gates)]
        return np.concatenate([parts[place].T for place in CUDNN_GATES[workload]], axis=-1)

    widths = [config.width(depth) for depth in range(config.layers) for _ in range(config.directions)]
    matrices = [(take(units, width), take(units, units)) for width in widths]
    biases = [np.stack([take(units), take(units)]) for _ in widths]
    assert next(numbers, None) is None, "all of the buffer is read"
    for first in range(0, config.parts, config.directions):
        parts = [[*matrices[at], biases[at] if workload == "gru" else biases[at].sum(0)] for at in range(config.parts)]
        outputs = [
            layer_outputs(workload, parts[at], sequence, valid, backwards=at > first)
            for at in range(first, first + config.directions)
        ]
        sequence = np.concatenate(outputs, axis=2)
    return np.stack([each[:, -number] for number, each in zip((1, 0), outputs, strict=False)])


@pytest.mark.parametrize("workload", ["lstm", "gru"])
def test_cudnn_reads_each_gate_where_it_expects_it(workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of cuDNN stands a function that reads its buffer, once TensorFlow has checked the call's shapes."""
    import tensorflow as tf

    given = variant(workload, **BOTH, sequence_lengths="right_padded")
    made = random_model({**given, "implementation": "cudnn_stack"}, workload)
    lengths, call = np.array([4, 2, 3], np.int32), tf.raw_ops.CudnnRNNV3
    inputs = (tf.random.stateless_normal([3, 4, 3], [1, 1]), tf.constant(lengths))

    def from_buffer(**arguments: Any) -> SimpleNamespace:
        shapes = tf.function(lambda: call(**arguments)).get_concrete_function().structured_outputs
        np.testing.assert_array_equal(arguments["sequence_lengths"], lengths)
        sequence, valid = arguments["input"].numpy().transpose(1, 0, 2), np.arange(4) < lengths[:, None]
        last = cudnn_outputs(config_of(workload, given), sequence, valid, arguments["params"].numpy())
        assert (arguments["rnn_mode"], tuple(shapes.output_h.shape)) == (workload, (4, 3, 2))
        return SimpleNamespace(output_h=tf.constant(np.concatenate([0 * last, last]), tf.float32))

    monkeypatch.setattr(tf.raw_ops, "CudnnRNNV3", from_buffer)
    np.testing.assert_allclose(made.outputs(inputs), random_model(given, workload).outputs(inputs), atol=1e-5)


def test_evidence_tells_what_ran(replica: Replicas) -> None:
    requested = spec_of("gru", implementation="combined_input")
    evidence = collect_evidence(requested, replica, really={"implementation": "gemm6"})
    assert (evidence.actual["implementation"], evidence.match) == ("gemm6", False)


def test_saved_weights_become_a_plain_keras_model(replica: Replicas, tmp_path: Path) -> None:
    from workloads.tensorflow.saving import export_model, make_keeper

    given = variant(implementation="combined_input", sequence_lengths="right_padded", **BOTH)
    spec = RunSpec(workload="gru", variant=given)
    make_keeper(random_model(given, "gru"), replica, None).save(spec, tmp_path / "run.npz")
    saved = weights.read(tmp_path / "run.npz", spec)
    assert np.abs(saved.outputs).max() > 0.1
    assert export_model(saved, []).max_difference < 1e-5
    with pytest.raises(WeightsError, match="is variantscope gru weights, and the run is one of lstm"):
        weights.read(tmp_path / "run.npz", RunSpec(workload="lstm", variant=given))
