"""The image networks on a real GPU, in every variant: `pytest -m gpu tests/gpu/test_cnn.py`."""

import functools

import numpy as np
import pytest

from tests.cnn_answers import SIZES, answers, variant_of
from tests.evidence_runs import collect_evidence, spec_of
from tests.fakes.tensorflow import build, precision_of
from tests.lstm_answers import Answers
from workloads.protocol import Evidence, RunSpec, Value
from workloads.tensorflow.runtime import replicas_on

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("float32_on_the_gpu")]


@functools.cache
def reference(workload: str, **more: Value) -> Answers:
    """TensorFlow's own operations on channels first, without XLA."""
    return answers(workload, variant_of(workload, gpus=1, implementation="native", layout="NCHW", **more))


@pytest.mark.parametrize("workload", SIZES)
@pytest.mark.parametrize("implementation", ["native", "keras"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("xla", [False, True])
def test_layouts_implementations_and_xla_agree(workload: str, implementation: str, layout: str, xla: bool) -> None:
    variant = variant_of(workload, gpus=1, implementation=implementation, layout=layout, xla=xla)
    answers(workload, variant).agree(reference(workload), 1e-4)


@pytest.mark.parametrize("pooling", ["max", "strided"])
@pytest.mark.parametrize("implementation", ["native", "keras"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("xla", [False, True])
def test_every_pooling_agrees_with_biases(pooling: str, implementation: str, layout: str, xla: bool) -> None:
    how: dict[str, Value] = {"implementation": implementation, "layout": layout, "xla": xla}
    # With 4 channels there are images of 8 channels that are 8 wide, where Keras misplaces a bias: they are refused.
    network: dict[str, Value] = {"pooling": pooling, "bias": True, "channels": 5}
    answers("cnn10", variant_of("cnn10", gpus=1, **network, **how)).agree(reference("cnn10", **network), 1e-4)


@pytest.mark.parametrize("implementation", ["native", "keras"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("xla", [False, True])
def test_every_precision_learns(implementation: str, layout: str, precision: str, xla: bool) -> None:
    given: dict[str, Value] = {"precision": precision, "xla": xla, "batch_size": 64, "channels": 8}
    variant = variant_of("cnn10", gpus=1, implementation=implementation, layout=layout, **given)
    with precision_of(precision):
        task = build(RunSpec(workload="cnn10", variant=variant), replicas_on(["GPU:0"]))
        losses = [task.fetch(task.step()) for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.5 * losses[0]


def seen(workload: str, **given: Value) -> Evidence:
    """The graph that a step of this variant has on the GPU."""
    return collect_evidence(spec_of(workload, gpus=1, **given), replicas_on(["GPU:0"]))


@pytest.mark.parametrize("workload", SIZES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_native_layers_run_in_the_layout_asked_for(workload: str, layout: str, mode: str) -> None:
    evidence = seen(workload, layout=layout, mode=mode)
    assert (evidence.actual["layout"], evidence.actual["implementation"], evidence.notes) == (layout, "native", ())


def test_kerass_pooling_transposes_on_a_gpu_too() -> None:
    evidence = seen("cnn10", implementation="keras", layout="NCHW")
    assert (evidence.match, evidence.actual["layout"]) == (False, "NCHW and NHWC")
    assert "(block1/pool, block2/pool)" in (evidence.reason or "")


def test_the_layout_optimizer_is_found_out() -> None:
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"layout_optimizer": True})
    try:
        evidence = seen("cnn10", layout="NHWC", layout_optimizer=True)
    finally:
        tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
    assert (evidence.match, evidence.actual["layout"]) == (False, "NCHW")
    assert "use layout_optimizer=false" in (evidence.reason or "")
