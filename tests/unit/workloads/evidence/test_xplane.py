"""Traces read: GPUs' from profiles built here by hand, the CPU's from the profiler itself."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.present import present
from workloads.evidence import guarded_trace
from workloads.protocol import (
    MOST_MESSAGE_BYTES,
    MOST_STEP_KERNELS,
    DeviceTime,
    Evidence,
    StepKernel,
    Stream,
    decode_message,
    encode,
)
from workloads.trace import step_timeline
from workloads.training import Task
from workloads.xla import XlaTrace, read_profile_bytes

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


def read_profile(profile: Any, steps: int = 1, *, gpu: bool = True, **more: Any) -> XlaTrace:
    from workloads.tensorflow.evidence.collector import read_xplane

    data, more = profile.SerializeToString(), {"to_monotonic": lambda utc_ns: utc_ns, **more}
    trace = read_xplane(data, steps, gpu=gpu, **more)
    assert read_profile_bytes(data, steps, gpu=gpu, **more) == trace, "without TensorFlow all is the same"
    return trace


def test_kernels_on_two_streams_are_busy_together_only_once() -> None:
    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    add_line(plane, "Stream #13(Compute)", [("gemm", 0, 100), ("gemm", 300, 400)], base_ns=1000)
    add_line(plane, "Stream #14(MemcpyH2D)", [("MemcpyH2D", 50, 150)], base_ns=1000)
    add_line(plane, "XLA Modules", [("module", 0, 5000)])
    trace = read_profile(profile, 2)
    assert (trace.steps, trace.devices, trace.span_ns, trace.busy_ns, trace.events) == (2, 1, 400, 250, 3)
    assert [(k.name, k.count, k.time_ns, k.kind) for k in trace.kernels] == [
        ("gemm", 2, 200, "gemm"),
        ("MemcpyH2D", 1, 100, "copy"),
    ]


def test_the_time_of_kernels_is_known_by_what_started_them() -> None:
    """CUPTI's events have TensorFlow's operation, of XLA's programs also the instruction."""
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
    trace = read_profile(profile)
    assert trace.op_times_ns == {"model/big/MatMul": 110, "fusion.3": 100}
    assert trace.kernels[-1].name == "splitK", "the one that took longest comes first"


def test_times_of_two_gpus_are_added() -> None:
    profile = space()
    for number, end_ns in ((0, 300), (1, 700)):
        plane = profile.planes.add(name=f"/device:GPU:{number}")
        add_line(plane, "Stream #7(Compute)", [("gemm", 0, 100), ("gemm", end_ns - 100, end_ns)])
    trace = read_profile(profile)
    assert (trace.devices, trace.span_ns, trace.busy_ns, trace.kernels[0].count) == (2, 1000, 400, 4)
    assert [(one.device, one.span_ns, one.busy_ns) for one in trace.times] == [("GPU:0", 300, 200), ("GPU:1", 700, 200)]


def test_communication_that_hides_behind_computing_is_told_from_what_does_not() -> None:
    profile = space()
    plane = profile.planes.add(name="/device:GPU:1")
    add_line(plane, "Stream #7(Compute)", [("gemm", 0, 100), ("Mul", 200, 230)])
    add_line(plane, "Stream #9(nccl)", [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 180)])
    trace = read_profile(profile)
    assert trace.times == (
        DeviceTime(device="GPU:1", span_ns=230, busy_ns=210, compute_ns=130, communication_ns=120, kernels=3),
    )


def add_ids(line: Any, ids: Sequence[int | None], stat: int = 1) -> None:
    """Give the events of a line correlation ids, the stat of this number."""
    for event, correlation_id in zip(line.events, ids, strict=True):
        if correlation_id is not None:
            event.stats.add(metadata_id=stat, uint64_value=correlation_id)


@pytest.mark.parametrize("host_plane", ["/host:CUPTI", "/host:CPU"])
def test_gaps_between_kernels_have_the_cause_of_the_kernel_that_ends_them(host_plane: str) -> None:
    """Launched too late, or in time: then within 5 µs, or later; a graph's kernels share a launch."""
    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    plane.stat_metadata[1].name = "correlation_id"
    add_line(plane, "Stream #7(Compute)", [("gemm", 1_000, 2_000), ("gemm", 9_001, 10_000), ("Mul", 14_999, 16_000)])
    add_line(
        plane, "Stream #9(Compute)", [("graph", 21_000, 22_000), ("graph", 23_000, 24_000), ("lost", 25_000, 26_000)]
    )
    add_ids(plane.lines[0], (11, 12, 13))
    add_ids(plane.lines[1], (14, 14, None))
    host = profile.planes.add(name=host_plane)
    host.stat_metadata[8].name = "correlation_id"
    calls = [("cuLaunchKernel", 900, 950), ("cuLaunchKernel", 2_001, 2_100), ("cuLaunchKernel", 10_000, 11_000)]
    add_line(host, "Host Threads/5", [*calls, ("cuGraphLaunch", 15_000, 17_000), ("MatMul:MatMul", 24_500, 24_900)])
    add_ids(host.lines[0], (11, 12, 13, 14, None), 8)
    (time,) = read_profile(profile).times
    assert (time.span_ns, time.busy_ns) == (25_000, 6_000)
    assert time.host_wait_ns == 7_001, "launched 1 ns after the last one's end; at its end is in time"
    assert time.kernel_wait_ns == 4_999 + 1_000, "5,000 ns are not between kernels, nor is what has no launch"


def test_without_launches_gaps_have_no_cause() -> None:
    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    plane.stat_metadata[1].name = "correlation_id"
    add_line(plane, "Stream #7(Compute)", [("gemm", 0, 100), ("gemm", 300, 400)])
    add_ids(plane.lines[0], (11, 12))
    (time,) = read_profile(profile).times
    assert (time.host_wait_ns, time.kernel_wait_ns) == (None, None)


def test_a_gpu_that_the_profiler_could_not_see_has_no_kernels_of_the_cpus() -> None:
    profile = space()
    add_line(profile.planes.add(name="/host:CPU"), "python", [("MatMul:MatMul", 0, 100)])
    profile.errors.append("CUPTI could not be loaded")
    trace = read_profile(profile)
    assert (trace.devices, trace.span_ns, trace.kernels) == (0, 0, ())
    assert trace.notes == ("The profiler says: CUPTI could not be loaded",)


def test_on_the_cpu_what_only_holds_operations_is_left_to_them() -> None:
    profile = space()
    events = [("a/Call:PartitionedCall", 0, 100), ("b/MatMul:_MklMatMul", 10, 40), ("c/MatMul_1:_MklMatMul", 40, 60)]
    others = [("EagerLocalExecute: __inference_step", 0, 500), ("ThreadpoolListener::Record", 20, 20)]
    plane = profile.planes.add(name="/host:CPU")
    add_line(plane, "tf_Compute", [*events, *others, ("ExecutorState::Process", 5, 95)])
    trace = read_profile(profile, gpu=False)
    assert [(k.name, k.count, k.time_ns) for k in trace.kernels] == [("_MklMatMul", 2, 50)]
    assert (trace.span_ns, trace.busy_ns) == (90, 90), "the executor works on what is too cheap to be traced"


def test_one_step_of_several_is_from_their_middle_with_all_streams() -> None:
    """A step lasts until the next one's first kernel; the copy of the next step's data runs in it, too."""
    profile = space()
    task = profile.planes.add(name="Task Environment")
    task.stat_metadata[1].name = "profile_start_time"
    task.stats.add(metadata_id=1, uint64_value=1_000_000)
    plane = profile.planes.add(name="/device:GPU:0")
    compute = [
        (name, at + 1000 * step, at + 1000 * step + 100)
        for step in range(3)
        for name, at in (("gemm", 0), ("Mul", 300))
    ]
    add_line(plane, "Stream #14(MemcpyH2D)", [("MemcpyH2D", 150, 190), ("MemcpyH2D", 1150, 1190)], base_ns=500)
    add_line(plane, "Stream #13(Compute)", [*compute, ("MemcpyD2H", 2900, 2910)], base_ns=500)
    trace = read_profile(profile, 3, to_monotonic=lambda utc_ns: utc_ns + 7)
    timeline = present(step_timeline(trace.step, trace.kernels))
    assert (timeline.start_ns, timeline.duration_ns, timeline.left_out) == (1_001_507, 1000, 0)
    assert timeline.streams == (
        Stream(device="GPU:0", name="Stream #13(Compute)"),
        Stream(device="GPU:0", name="Stream #14(MemcpyH2D)"),
    )
    names = [kernel.name for kernel in trace.kernels]
    assert timeline.kernels == (
        StepKernel(0, names.index("gemm"), 0, 100),
        StepKernel(1, names.index("MemcpyH2D"), 150, 40),
        StepKernel(0, names.index("Mul"), 300, 100),
    )
    assert step_timeline(trace.step, trace.kernels[:2]).left_out == 1, "a kernel whose name did not fit"  # type: ignore[union-attr]
    plane.lines[1].events[5].metadata_id = plane.lines[1].events[4].metadata_id
    assert read_profile(profile, 3).step is None, "the steps ran other kernels: none to cut out"


def test_a_long_step_is_cut_to_what_a_message_takes() -> None:
    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    count = MOST_STEP_KERNELS + 5
    add_line(plane, "Stream #13(Compute)", [(f"gemm{n % 40}", 3_000 * n, 3_000 * n + 2_345) for n in range(count)])
    trace = read_profile(profile)
    timeline = present(step_timeline(trace.step, trace.kernels))
    assert (len(timeline.kernels), timeline.left_out) == (MOST_STEP_KERNELS, 5)
    assert timeline.duration_ns == 3_000 * (count - 1) + 2_345
    evidence = Evidence(requested={}, actual={}, match=None, kernels=trace.kernels, timeline=timeline)
    line = encode(evidence)
    assert len(line) < MOST_MESSAGE_BYTES / 8
    assert decode_message(line) == evidence


def test_occupancy_is_what_a_kernel_can_fill_of_its_gpu() -> None:
    """Of an H200's 132 multiprocessors with 2,048 threads: 256 blocks of 128 threads fill 12.1 % of them."""
    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    launches = (
        "grid:256,1,1 block:128,1,1 occ_pct:50",
        "grid:9000,4,1 block:128,1,1 occ_pct:37.5",
        "grid:1,1,1 block:1,1,1 occ_pct:0",
    )
    numbers = ("core_count", "compute_cap_major", "compute_cap_minor", "kernel_details")
    for number, name in enumerate(
        (*numbers, *(f"regs:32 static_shared:0 dynamic_shared:0 {one}" for one in launches)), 1
    ):
        plane.stat_metadata[number].name = name
    for number, value in ((1, 132), (2, 9), (3, 0)):
        plane.stats.add(metadata_id=number, uint64_value=value)
    add_line(
        plane, "Stream #13(Compute)", [("gemm", 0, 100), ("gemm", 200, 500), ("Mul", 600, 700), ("MemcpyD2D", 700, 800)]
    )
    for event, number in zip(plane.lines[0].events, (5, 6, 7), strict=False):
        event.stats.add(metadata_id=4, ref_value=number)
    pct = {kernel.name: kernel.occupancy_pct for kernel in read_profile(profile).kernels}
    assert pct["gemm"] == pytest.approx((100 * 12.121 + 300 * 37.5) / 400, rel=1e-3)
    assert (pct["Mul"], pct["MemcpyD2D"]) == (None, None), "not known, and nothing that a kernel could fill"


@pytest.mark.parametrize(
    ("capability", "threads"),
    [((7, 0), 2048), ((7, 5), 1024), ((8, 0), 2048), ((8, 6), 1536), ((8, 7), 1536), ((8, 9), 1536), ((9, 0), 2048),
     ((10, 0), 2048), ((12, 0), 1536), ((12, 1), 1536)],
)  # fmt: skip
def test_a_multiprocessor_holds_the_threads_of_its_generation(capability: tuple[int, int], threads: int) -> None:
    profile = space()
    plane = profile.planes.add(name="/device:GPU:0")
    numbers = {"core_count": 2, "compute_cap_major": capability[0], "compute_cap_minor": capability[1]}
    for number, (name, value) in enumerate(numbers.items(), 1):
        plane.stat_metadata[number].name = name
        plane.stats.add(metadata_id=number, uint64_value=value)
    plane.stat_metadata[4].name = "kernel_details"
    add_line(plane, "Stream #13(Compute)", [("Mul", 0, 100)])
    plane.lines[0].events[0].stats.add(metadata_id=4, str_value="grid:4,1,1 block:128,1,1 occ_pct:100")
    (kernel,) = read_profile(profile).kernels
    assert kernel.occupancy_pct == pytest.approx(100 * 4 * 128 / (2 * threads))


@pytest.mark.parametrize("jit", [False, True])
def test_a_real_trace_of_the_cpu_adds_up(jit: bool) -> None:
    import tensorflow as tf

    from workloads.tensorflow.evidence.collector import trace_task

    begin_ns = time.monotonic_ns()
    matrix = tf.random.stateless_normal([300, 300], [1, 1])

    def step() -> tf.Tensor:
        return tf.reduce_sum(tf.sigmoid(matrix @ matrix) @ matrix)

    task = Task(step=tf.function(step, jit_compile=jit), fetch=float, examples=1)
    task.fetch(task.step())
    trace = trace_task(task, gpu=False)
    products = [kernel for kernel in trace.kernels if kernel.kind == "gemm"]
    assert 1 < trace.steps <= 10
    # XLA may compute one of the two within a fusion whose name does not say so.
    assert sum(kernel.count for kernel in products) >= (1 if jit else 2) * trace.steps
    assert 0 < trace.busy_ns <= trace.span_ns
    assert 0 < sum(kernel.time_ns for kernel in trace.kernels) <= trace.span_ns * 64, "no machine here has more threads"
    assert [op.type for op in trace.programs] == (["MatMul"] * 2 if jit else [])
    assert all(op.compiled and op.dtype == "float32" for op in trace.programs)
    timeline = present(step_timeline(trace.step, trace.kernels))
    assert begin_ns < timeline.start_ns < time.monotonic_ns(), "on the clock of the worker's messages"
    ran = [trace.kernels[one.rank] for one in timeline.kernels]
    assert sum(kernel.kind == "gemm" for kernel in ran) >= (1 if jit else 2), "one step, on threads"
    assert all(0 <= one.start_ns <= one.start_ns + one.duration_ns <= timeline.duration_ns for one in timeline.kernels)
    assert {stream.device for stream in timeline.streams} == {"CPU"}
    assert (timeline.left_out, trace.kernels[0].occupancy_pct) == (0, None)


def test_a_profiler_in_use_is_a_note_and_leaves_the_other_alone(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import tensorflow as tf

    from workloads.tensorflow.evidence.collector import trace_task

    task = Task(step=lambda: 1, fetch=float, examples=1)
    tf.profiler.experimental.start(str(tmp_path))
    try:
        trace = guarded_trace(lambda: trace_task(task, gpu=False), XlaTrace)
    finally:
        tf.profiler.experimental.stop()
    assert trace.notes == ("The profiler could not be used: Another profiler is running.",)
    assert (trace.steps, trace.kernels) == (0, ())
    assert "AlreadyExistsError" in capsys.readouterr().err


def test_a_profiler_that_hangs_is_left_behind() -> None:
    answered = threading.Event()

    def hang() -> XlaTrace:
        answered.wait(30)
        return XlaTrace()

    trace = guarded_trace(hang, XlaTrace, timeout_s=0.05)
    answered.set()
    assert trace.notes == ("The profiler did not answer within 0 s.",)
