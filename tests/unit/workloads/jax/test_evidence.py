"""What is said to have run in JAX did: from XLA's program and from a profile, without protobuf's classes."""

from collections.abc import Mapping

import pytest

from tests.unit.workloads.jax.test_jax import in_jax
from tests.unit.workloads.test_frameworks import assert_traced, collected, task_of
from workloads import xla
from workloads.jax import models, steps
from workloads.operations import Op
from workloads.protocol import RunSpec, Value
from workloads.xla import decode_protobuf, program_ops

Settings = Mapping[str, Value]
pytestmark = pytest.mark.usefixtures("restored_variables")


@pytest.mark.parametrize(
    ("workload", "settings", "note"),
    [
        ("lstm", {}, "XLA's program has 2 loops of 2 products per iteration."),
        ("gru", {"bidirectional": True, "unroll": 3}, "XLA's program has 4 loops of 6 products per iteration."),
        (
            "lstm",
            {"implementation": "combined_input", "unroll": 3},
            "XLA's program has 2 loops of 3 products per iteration.",
        ),
        ("gru", {"implementation": "combined_input"}, "XLA's program has 2 loops of 1 product per iteration."),
        ("cnn10", {"layout": "NHWC"}, ""),
        ("wrn28-10", {"layout": "NHWC", "mode": "inference"}, ""),
    ],
)
def test_what_ran_as_requested_is_verified(workload: str, settings: Settings, note: str) -> None:
    report = collected(in_jax(workload, **settings))
    assert (report.match, report.reason, report.unverified) == (True, None, {})
    assert report.actual == report.requested
    assert report.sources == ("trace", "hlo")
    assert note in (*report.notes, "")
    assert_traced(report, "convolution" if "layout" in settings else "gemm")
    assert not any(kernel.name.startswith("end: ") for kernel in report.kernels)


def test_without_a_trace_the_program_tells_what_it_can() -> None:
    report = collected(in_jax("cnn10", layout="NHWC"), traced=False)
    assert report.actual == {"implementation": "native", "layout": "NHWC", "precision": "float32"}
    assert set(report.unverified) == {"device", "replicas"}
    assert (report.match, report.sources) == (None, ("hlo",))
    assert "only a trace" in str(report.reason)


def test_a_program_that_cannot_be_read_costs_no_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(xla, "_number", lambda data, position: data[len(data)])
    report = collected(in_jax("lstm"), traced=False)
    assert (report.match, report.actual) == (None, {})
    assert "IndexError" in capsys.readouterr().err


def test_a_layout_that_xla_does_not_keep_is_told() -> None:
    """XLA's convolutions on the CPU are in NHWC."""
    report = collected(in_jax("cnn10", layout="NCHW"))
    assert (report.match, report.actual["layout"]) == (False, "NHWC")
    assert "block1/conv1" in str(report.reason)


def test_sixteen_bits_that_are_computed_in_float32_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(steps.DTYPES, "bfloat16", steps.DTYPES["float32"])
    report = collected(in_jax("lstm", precision="bfloat16"))
    assert (report.match, report.actual["precision"]) == (False, "float32")


def test_a_loop_that_stands_for_cudnn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    looped = models._looped_layer
    monkeypatch.setattr(
        models,
        "_cudnn_layer",
        lambda config, inputs, directions: looped(config, inputs, None, directions, (None, None), combined=False),
    )
    spec = in_jax("lstm")
    report = collected(RunSpec(workload="lstm", variant={**spec.variant, "implementation": "cudnn"}))
    assert (report.match, report.actual["implementation"]) == (False, "standard")
    assert report.reason == "What ran is not cudnn: it has 2 loops of 2 products per iteration."


def test_a_loop_that_makes_its_input_products_is_not_called_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    looped = models._looped_layer
    monkeypatch.setattr(models, "_looped_layer", lambda *layer, combined: looped(*layer, combined=False))
    evidence = collected(in_jax("lstm", implementation="combined_input"), traced=False)
    assert evidence.actual["implementation"] == "standard"
    assert evidence.reason == "What ran is not combined_input: it has 2 loops of 2 products per iteration."


def test_a_loop_of_one_iteration_tells_no_implementation() -> None:
    spec = in_jax("lstm")
    evidence = collected(in_jax("lstm", unroll=int(spec.variant["timesteps"])), traced=False)
    assert evidence.unverified["implementation"].startswith("XLA compiled the steps without a loop")


@pytest.mark.parametrize("workload", ["lstm", "gru"])
def test_one_unit_whose_recurrent_product_is_none_tells_no_implementation(workload: str) -> None:
    report = collected(in_jax(workload, units=1))
    assert report.match is None
    assert report.unverified["implementation"].startswith("XLA's program has ")
    assert "so it does not tell implementations apart" in report.unverified["implementation"]
    two_units = collected(in_jax(workload, units=2), traced=False)
    assert two_units.actual["implementation"] == "standard"


def test_two_devices_exchange_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)
    report = collected(in_jax("lstm"))
    exchanges = [kernel for kernel in report.kernels if kernel.kind == "communication"]
    assert sum(kernel.count for kernel in exchanges) >= 2 * report.steps


@pytest.mark.parametrize("workload", ["lstm", "cnn10"])
def test_a_program_is_read_as_protobuf_reads_it(workload: str) -> None:
    from tensorflow.compiler.xla.service import hlo_pb2

    task = task_of(in_jax(workload))
    task.fetch(task.step())
    assert isinstance(task.step, steps.Step)
    (module,) = task.step.program.runtime_executable().hlo_modules()
    data = module.as_serialized_hlo_module_proto()
    ops = program_ops(decode_protobuf(data))
    assert ops == program_ops(hlo_pb2.HloModuleProto.FromString(data))
    assert {op.backward for op in ops} == {True, False}


def test_calls_of_cudnn_in_a_program_are_products() -> None:
    from tensorflow.compiler.xla.service import hlo_pb2

    # A program for a GPU, by hand: XLA keeps the target of a call.
    module = hlo_pb2.HloModuleProto(entry_computation_id=1)
    computation = module.computations.add(id=1)
    operand = computation.instructions.add(id=1, name="x", opcode="parameter")
    operand.shape.element_type = 11
    call = computation.instructions.add(id=2, name="rnn", opcode="custom-call", custom_call_target="cudnn_rnn_ffi")
    call.operand_ids.append(1)
    (op,) = program_ops(decode_protobuf(module.SerializeToString()))
    assert op == Op(type="CudnnRNN", name="rnn", dtype="float32", compiled=True, exact=False, kernel="rnn")
