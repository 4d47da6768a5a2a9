"""Traces read: GPUs' from profiles built here by hand, the CPU's from the profiler itself."""

from collections.abc import Sequence
from typing import Any

import pytest

Timed = tuple[str, int, int]
"""A name, and where it starts and ends, in nanoseconds."""


def space() -> Any:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    return xplane_pb2.XSpace()


def add_line(plane: Any, name: str, events: Sequence[Timed], base_ns: int = 0) -> None:
    line = plane.lines.add(name=name, timestamp_ns=base_ns)
    for event, start_ns, end_ns in events:
        number = next((key for key, known in plane.event_metadata.items() if known.name == event), None)
        if number is None:
            number = len(plane.event_metadata) + 1
            plane.event_metadata[number].name = event
        line.events.add(metadata_id=number, offset_ps=start_ns * 1000, duration_ps=(end_ns - start_ns) * 1000)


def test_kernels_on_two_streams_are_busy_together_only_once() -> None:
    from workloads.tensorflow.evidence.xplane import read

    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    add_line(plane, "Stream #13(Compute)", [("gemm", 0, 100), ("gemm", 300, 400)], base_ns=1000)
    add_line(plane, "Stream #14(MemcpyH2D)", [("MemcpyH2D", 50, 150)], base_ns=1000)
    add_line(plane, "XLA Modules", [("module", 0, 5000)])
    trace = read(profile.SerializeToString(), 2, gpu=True)
    assert (trace.steps, trace.devices, trace.span_ns, trace.busy_ns, trace.events) == (2, 1, 400, 250, 3)
    assert [(k.name, k.count, k.time_ns, k.kind) for k in trace.kernels] == [
        ("gemm", 2, 200, "gemm"),
        ("MemcpyH2D", 1, 100, "copy"),
    ]


def test_the_time_of_kernels_is_known_by_what_started_them() -> None:
    """CUPTI's events have TensorFlow's operation, of XLA's programs also the instruction."""
    from workloads.tensorflow.evidence.xplane import read

    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    for number, name in enumerate(("tf_op", "hlo_op", "model/big/MatMul:MatMul", "fusion.3"), 1):
        plane.stat_metadata[number].name = name
    add_line(plane, "Stream #13(Compute)", [("gemm", 0, 100), ("splitK", 100, 110), ("gemm_fusion", 200, 300)])
    first, second, fused = plane.lines[0].events
    first.stats.add(metadata_id=1, ref_value=3)
    second.stats.add(metadata_id=1, str_value="model/big/MatMul:MatMul")
    fused.stats.add(metadata_id=1, ref_value=3)
    fused.stats.add(metadata_id=2, ref_value=4)
    trace = read(profile.SerializeToString(), 1, gpu=True)
    assert trace.op_times_ns == {"model/big/MatMul": 110, "fusion.3": 100}


def test_times_of_two_gpus_are_added() -> None:
    from workloads.tensorflow.evidence.xplane import read

    profile = space()
    for number, end_ns in ((0, 300), (1, 700)):
        plane = profile.planes.add(name=f"/device:GPU:{number}")
        add_line(plane, "Stream #7(Compute)", [("gemm", 0, 100), ("gemm", end_ns - 100, end_ns)])
    trace = read(profile.SerializeToString(), 1, gpu=True)
    assert (trace.devices, trace.span_ns, trace.busy_ns, trace.kernels[0].count) == (2, 1000, 400, 4)
    assert [(one.device, one.span_ns, one.busy_ns) for one in trace.times] == [("GPU:0", 300, 200), ("GPU:1", 700, 200)]


def test_communication_that_hides_behind_computing_is_told_from_what_does_not() -> None:
    from workloads.protocol import DeviceTime
    from workloads.tensorflow.evidence.xplane import read

    profile = space()
    plane = profile.planes.add(name="/device:GPU:1")
    add_line(plane, "Stream #7(Compute)", [("gemm", 0, 100), ("Mul", 200, 230)])
    add_line(plane, "Stream #9(nccl)", [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 180)])
    trace = read(profile.SerializeToString(), 1, gpu=True)
    assert trace.times == (
        DeviceTime(device="GPU:1", span_ns=230, busy_ns=210, compute_ns=130, communication_ns=120, kernels=3),
    )


def test_a_gpu_that_the_profiler_could_not_see_has_no_kernels_of_the_cpus() -> None:
    from workloads.tensorflow.evidence.xplane import read

    profile = space()
    add_line(profile.planes.add(name="/host:CPU"), "python", [("MatMul:MatMul", 0, 100)])
    profile.errors.append("CUPTI could not be loaded")
    trace = read(profile.SerializeToString(), 1, gpu=True)
    assert (trace.devices, trace.span_ns, trace.kernels) == (0, 0, ())
    assert trace.notes == ("The profiler says: CUPTI could not be loaded",)


def test_on_the_cpu_what_only_holds_operations_is_left_to_them() -> None:
    from workloads.tensorflow.evidence.xplane import read

    profile = space()
    events = [("a/Call:PartitionedCall", 0, 100), ("b/MatMul:_MklMatMul", 10, 40), ("c/MatMul_1:_MklMatMul", 40, 60)]
    others = [("EagerLocalExecute: __inference_step", 0, 500), ("ThreadpoolListener::Record", 20, 20)]
    plane = profile.planes.add(name="/host:CPU")
    add_line(plane, "tf_Compute", [*events, *others, ("ExecutorState::Process", 5, 95)])
    trace = read(profile.SerializeToString(), 1, gpu=False)
    assert [(k.name, k.count, k.time_ns) for k in trace.kernels] == [("_MklMatMul", 2, 50)]
    assert (trace.span_ns, trace.busy_ns) == (90, 90), "the executor works on what is too cheap to be traced"


@pytest.mark.parametrize("jit", [False, True])
def test_a_real_trace_of_the_cpu_adds_up(jit: bool) -> None:
    import tensorflow as tf

    from workloads.tensorflow.evidence.collector import trace_steps
    from workloads.training import Task

    matrix = tf.random.stateless_normal([300, 300], [1, 1])

    def step() -> tf.Tensor:
        return tf.reduce_sum(tf.sigmoid(matrix @ matrix) @ matrix)

    task = Task(step=tf.function(step, jit_compile=jit), fetch=float, examples=1)
    task.fetch(task.step())
    trace = trace_steps(task, gpu=False)
    products = [kernel for kernel in trace.kernels if kernel.kind == "gemm"]
    assert 1 < trace.steps <= 10
    # XLA may compute one of the two within a fusion whose name does not say so.
    assert sum(kernel.count for kernel in products) >= (1 if jit else 2) * trace.steps
    assert 0 < trace.busy_ns <= trace.span_ns
    assert 0 < sum(kernel.time_ns for kernel in trace.kernels) <= trace.span_ns * 64, "no machine here has more threads"
    assert [op.type for op in trace.programs] == (["MatMul"] * 2 if jit else [])
    assert all(op.compiled and op.dtype == "float32" for op in trace.programs)


def test_a_profiler_in_use_is_a_note_and_leaves_the_other_alone(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import tensorflow as tf

    from workloads.tensorflow.evidence.collector import run_guarded, trace_steps
    from workloads.training import Task

    task = Task(step=lambda: 1, fetch=float, examples=1)
    tf.profiler.experimental.start(str(tmp_path))
    try:
        trace = run_guarded(lambda: trace_steps(task, gpu=False))
    finally:
        tf.profiler.experimental.stop()
    assert trace.notes == ("The profiler could not be used: Another profiler is running.",)
    assert (trace.steps, trace.kernels) == (0, ())
    assert "AlreadyExistsError" in capsys.readouterr().err


def test_a_profiler_that_hangs_is_left_behind() -> None:
    import threading

    from workloads.tensorflow.evidence.collector import run_guarded
    from workloads.tensorflow.evidence.xplane import Trace

    answered = threading.Event()

    def hang() -> Trace:
        answered.wait(30)
        return Trace()

    trace = run_guarded(hang, timeout_s=0.05)
    answered.set()
    assert trace.notes == ("The profiler did not answer within 0 s.",)


def test_a_traces_table_can_be_printed(tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    from workloads.tensorflow.evidence.__main__ import main

    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    add_line(plane, "Stream #13(Compute)", [("ampere_sgemm_128x64_tn", 0, 2500)])
    file = tmp_path / "host.xplane.pb"
    file.write_bytes(profile.SerializeToString())
    monkeypatch.setattr("sys.argv", ["evidence", str(file)])
    main()
    first, second = capsys.readouterr().out.splitlines()
    assert first == "1 device(s), span 2.5 us, busy 2.5 us"
    assert second.split() == ["2.5", "1", "gemm", "cuda", "ampere_sgemm_128x64_tn"]
