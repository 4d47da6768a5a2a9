"""Custom models that do not do what they are said to: each is found, or said to be out of sight. On the CPU."""

import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests.evidence_runs import collect_evidence, spec_of
from workloads.catalog import CustomFile, Machine, fill_defaults
from workloads.custom.definitions import custom_workload
from workloads.custom.source import describe_file
from workloads.protocol import Evidence, Source, Value
from workloads.tensorflow.evidence.aspects import Observation
from workloads.tensorflow.evidence.custom import layer_notes
from workloads.tensorflow.evidence.graph import Op
from workloads.tensorflow.runtime import Replicas
from workloads.training import Layer

HEAD = """
    from typing import Literal
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    def data(batch_size, *shape):
        def batch(step):
            rng = np.random.default_rng(step)
            return rng.normal(size=(batch_size, *shape)).astype("float32"), rng.normal(size=(batch_size, 4))
        return batch
"""

IMAGES = """
    def mixed(batch_size=8, layout: Literal["channels_last", "channels_first"] = "channels_last", axis=-1):
        model = keras.Sequential([
            keras.Input((8, 8, 8)),
            layers.Conv2D(4, 3, padding="same", data_format="channels_last", name="conv"),
            layers.BatchNormalization(axis=axis, name="norm"),
            layers.MaxPooling2D(data_format=layout, name="pool"),
            layers.GlobalAveragePooling2D(data_format="channels_last", name="global_pool"),
            layers.Dense(4, name="head"),
        ])
        return model, "mse", data(batch_size, 8, 8, 8)
"""

TYPES = """
    def wide(batch_size=64, units=512, other: Literal["float32", "mixed_bfloat16"] = "float32"):
        model = keras.Sequential([
            keras.Input((16,)),
            *(layers.Dense(16, name=f"small{n}") for n in range(6)),
            layers.Dense(units, dtype=other, name="big1"),
            layers.Dense(units, dtype=other, name="big2"),
            layers.Dense(4, name="head"),
        ])
        return model, "mse", data(batch_size, 16)
"""

PYTHON = """
    class Called(layers.Layer):
        def call(self, x):
            return tf.ensure_shape(tf.py_function(lambda one: one @ tf.transpose(one) @ one, [x], x.dtype), x.shape)

    def called(batch_size=8):
        model = keras.Sequential([keras.Input((4,)), Called(), Called(), layers.Dense(4)])
        return model, "mse", data(batch_size, 4)
"""

RECURRENT = """
    def read(batch_size=4):
        model = keras.Sequential([
            keras.Input((5, 3)),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True, name="both")),
            layers.GRU(4, name="last"),
            layers.Dense(4),
        ])
        return model, "mse", data(batch_size, 5, 3)
"""


@pytest.fixture(autouse=True)
def this_process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file is read by processes that end soon after: here its module, its stdin and its types must not stay."""
    import keras

    policy = keras.config.dtype_policy()
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    yield
    keras.config.set_dtype_policy(policy)
    sys.modules.pop("own_workload", None)


def evidence_of(text: str, one: Replicas, *, steps: bool = False, **values: Value) -> Evidence:
    import keras

    source = Source(path="/mine/own.py", text=textwrap.dedent(HEAD) + textwrap.dedent(text))
    (described,) = describe_file(source, "").workloads
    workload = custom_workload(described, CustomFile(path=source.path, sha256=source.sha256))
    spec = fill_defaults(workload, {"gpus": 0, **values}, Machine(cpu_count=2))
    precision = spec.variant["precision"]
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else str(precision))
    return collect_evidence(spec, one, steps=steps, source=source)


def test_the_layers_of_another_layout_are_named(one: Replicas) -> None:
    forgotten = evidence_of(IMAGES, one, layout="channels_first", axis=1)
    assert (forgotten.state, forgotten.actual["layout"]) == ("mismatch", "NCHW and NHWC")
    assert forgotten.reason == ("2 of 4 layers are NHWC: conv (Conv2D), global_pool (GlobalAveragePooling2D).")
    alike = evidence_of(IMAGES, one)
    assert (alike.state, alike.actual["layout"]) == ("verified", "channels_last")


def test_where_no_layout_is_requested_layers_that_differ_are_a_note(one: Replicas) -> None:
    anonymous = IMAGES.replace("layout:", "order:").replace("data_format=layout", "data_format=order")
    found = evidence_of(anonymous, one, axis=1)
    assert "layout" not in found.requested
    assert found.notes == ("Layouts differ: 1 of 4 layers are NCHW: norm (BatchNormalization).",)


def test_a_type_is_weighed_by_its_time_and_not_by_its_number_of_products(one: Replicas) -> None:
    found = evidence_of(TYPES, one, steps=True, precision="bfloat16", units=2048)
    assert found.state == "mismatch"
    assert found.reason is not None
    assert "in float32, not in bfloat16." in found.reason
    assert evidence_of(TYPES, one, precision="bfloat16", other="mixed_bfloat16").state == "verified"


def test_without_a_trace_nobody_knows_which_type_did_the_work(one: Replicas) -> None:
    found = evidence_of(TYPES, one, precision="bfloat16")
    assert (found.state, list(found.unverified)) == ("verified in part", ["precision"])
    assert found.reason == "Products are in bfloat16 and float32, and no trace shows how long those of each took."


def test_work_in_python_is_out_of_sight(one: Replicas) -> None:
    found = evidence_of(PYTHON, one)
    assert (found.state, list(found.unverified)) == ("verified in part", ["precision"])
    assert found.reason == "2 operation(s) ran in Python (py_function), where nothing shows what they compute."


def test_recurrent_layers_say_how_they_ran(one: Replicas) -> None:
    found = evidence_of(RECURRENT, one)
    assert found.notes == ("Recurrent layers ran: backward_both, forward_both, last as a loop.",)
    graph = (
        Op(type="CudnnRNNV3", name="sequential/forward_both_1/CudnnRNNV3", device="GPU:0"),
        Op(
            type="MatMul", name="sequential/last_1/while/body/_3/MatMul", loop="sequential/last_1/while", device="GPU:0"
        ),
    )
    spec = spec_of("lstm")
    layers = tuple(Layer(name=name, kind="LSTM", recurrent=True) for name in ("forward_both", "last"))
    seen = Observation(spec=spec, graph=graph, layers=layers)
    assert list(layer_notes(seen)) == ["Recurrent layers ran: forward_both through cuDNN; last as a loop."]
