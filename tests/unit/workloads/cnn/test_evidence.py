"""Which implementation of an image network ran, in which layout, and which layers did not keep the one asked for."""

from dataclasses import replace
from typing import Any

import pytest

from tests.evidence_runs import collect_evidence, spec_of
from workloads.aspects import Observation
from workloads.network_evidence import image_layout
from workloads.operations import Op
from workloads.protocol import Kernel
from workloads.tensorflow.runtime import Replicas
from workloads.xla import XlaTrace


@pytest.mark.parametrize("workload", ["cnn10", "wrn28-10"])
@pytest.mark.parametrize(("layout", "mode"), [("NCHW", "train"), ("NHWC", "train"), ("NCHW", "inference")])
def test_native_layers_run_in_the_layout_asked_for(replica: Replicas, workload: str, layout: str, mode: str) -> None:
    evidence = collect_evidence(spec_of(workload, layout=layout, mode=mode), replica)
    assert (evidence.actual["layout"], evidence.actual["implementation"]) == (layout, "native")
    assert (evidence.match, evidence.reason, evidence.notes) == (True, None, ())


def test_maximum_pooling_and_biases_keep_the_layout(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("cnn10", layout="NCHW", pooling="max", bias=True), replica)
    assert (evidence.match, evidence.actual["layout"], evidence.notes) == (True, "NCHW", ())
    other = collect_evidence(
        spec_of("cnn10", layout="NHWC", pooling="max", bias=True), replica, really={"layout": "NCHW"}
    )
    assert (other.reason or "").startswith("48 of 48 operations on images ran in NCHW (block1/conv1,")


@pytest.mark.parametrize(("mode", "transposes", "words"), [("train", 8, "4 of 30"), ("inference", 4, "2 of 11")])
def test_kerass_pooling_is_named_as_what_transposes(replica: Replicas, mode: str, transposes: int, words: str) -> None:
    evidence = collect_evidence(spec_of("cnn10", implementation="keras", layout="NCHW", mode=mode), replica)
    assert (evidence.match, evidence.actual["layout"]) == (False, "NCHW and NHWC")
    assert evidence.actual["implementation"] == "keras"
    assert evidence.reason == (
        f"{words} operations on images ran in NHWC (block1/pool, block2/pool): "
        "Keras pools channels_last and transposes there and back."
    )
    assert evidence.notes == (f"Transposes: {transposes} in the executed graph (block1/pool, block2/pool).",)


@pytest.mark.parametrize(("workload", "layout"), [("cnn10", "NHWC"), ("wrn28-10", "NCHW")])
def test_keras_keeps_the_layout_where_nothing_is_transposed(replica: Replicas, workload: str, layout: str) -> None:
    evidence = collect_evidence(spec_of(workload, implementation="keras", layout=layout), replica)
    assert (evidence.actual["layout"], evidence.actual["implementation"]) == (layout, "keras")
    assert (evidence.match, evidence.notes) == (True, ())


@pytest.mark.parametrize(
    ("requested", "really", "words"),
    [("native", "keras", "batch norm as plain arithmetic"), ("keras", "native", "TensorFlow's fused batch norm")],
)
@pytest.mark.parametrize("xla", [False, True])
def test_another_implementation_is_found(replica: Replicas, requested: str, really: str, words: str, xla: bool) -> None:
    spec = spec_of("cnn10", implementation=requested, layout="NHWC", mode="inference", channels=2, xla=xla)
    evidence = collect_evidence(spec, replica, really={"implementation": really}, steps=xla)
    assert (evidence.match, evidence.actual["implementation"]) == (False, really)
    assert (evidence.reason or "").startswith(f"What ran is not {requested}: it has {words}.")


def test_another_layout_is_found_and_its_layers_named(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("cnn10", layout="NHWC"), replica, really={"layout": "NCHW"})
    assert (evidence.match, evidence.actual["layout"]) == (False, "NCHW")
    assert evidence.reason == (
        "48 of 48 operations on images ran in NCHW (block1/conv1, block1/norm1, block1/conv2, block1/norm2 …): "
        "the implementation did not keep the requested layout."
    )
    spec = spec_of("cnn10", layout="NHWC", layout_optimizer=True, mode="inference")
    assert "layout_optimizer=false" in (collect_evidence(spec, replica, really={"layout": "NCHW"}).reason or "")


def test_transposes_are_counted_and_their_layers_named() -> None:
    layout = layout_of_a_rewritten_graph()
    assert (layout.actual, layout.matches) == ("NCHW", False)
    assert layout.reason == (
        "1 of 1 operations on images ran in NCHW (block2/conv1): "
        "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false."
    )
    assert layout.note == "Transposes: 2 in the executed graph (block2/conv1), 3 a step among the traced kernels."


def layout_of_a_rewritten_graph() -> Any:
    """As TensorFlow's layout optimizer leaves it on a GPU, where it works."""
    name = "replica_1/block2/conv1/Conv2D"
    convolution = Op(type="Conv2D", name=name, device="GPU:0", dtype="float32", layout="NCHW")
    there = Op(type="Transpose", name=f"{name}-0-TransposeNHWCToNCHW-LayoutOptimizer", device="GPU:0")
    back = replace(there, name=f"{name}-0-0-TransposeNCHWToNHWC-LayoutOptimizer")
    inside = Kernel(name="void cudnn::ops::nchwToNhwcKernel<…>", kind="transpose", count=30, time_ns=5)
    spec = spec_of("cnn10", layout="NHWC", layout_optimizer=True)
    return image_layout(
        Observation(spec=spec, graph=(there, convolution, back), trace=XlaTrace(steps=10, kernels=(inside,)))
    )


def test_xlas_own_layout_is_seen(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("cnn10", layout="NCHW", xla=True, mode="inference"), replica, steps=True)
    assert (evidence.match, evidence.actual["layout"], evidence.actual["implementation"]) == (False, "NHWC", "native")
    assert evidence.reason == (
        "9 of 9 operations on images ran in NHWC (block1/conv1, block1/conv2, block1/conv3, block2/conv1 …): "
        "XLA chooses the layout itself."
    )
