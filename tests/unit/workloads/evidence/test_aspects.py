"""What ran, observed on the CPU and in made-up GPU traces: implementations, layouts, types, replicas, all-reduce."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.evidence_runs import collect_evidence, spec_of
from workloads.aspects import Observation, all_reduce, device, precision
from workloads.catalog import Machine, complete
from workloads.evidence import memory_limit
from workloads.network_evidence import fallback_reason, recurrent_implementation
from workloads.operations import Op
from workloads.protocol import DeviceTime, Kernel, RunSpec, Value
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.tensorflow.runtime import Replicas, replicas_on
from workloads.xla import XlaTrace

LOOPS = ("standard", *RECURRENT_LAYERS["lstm"].ladder)
ALIKE = (("standard", "gemm2"), ("fused", "pretransposed"))
"""Implementations whose graphs look the same, with more than one layer."""


@pytest.fixture
def float32() -> Any:
    """A process with TF32 off and float32 layers, as a worker sets it up."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)


@pytest.mark.parametrize(
    ("implementation", "mode"),
    [
        *((name, "train") for name in (*LOOPS, "block_fused", "block_cell")),
        ("standard", "inference"),
        ("wavefront", "inference"),
    ],
)
def test_every_implementation_is_told_by_its_graph(replica: Replicas, implementation: str, mode: str) -> None:
    evidence = collect_evidence(spec_of("lstm", implementation=implementation, mode=mode), replica)
    alike = next((names for names in ALIKE if implementation in names), ())
    seen = {"precision": "float32", "xla": "off", "device": "CPU", "replicas": "1"}
    reason = f"The executed graph looks the same for {' and '.join(alike)}." if alike else None
    assert evidence.actual == (seen if alike else {"implementation": implementation, **seen})
    assert evidence.unverified == ({"implementation": reason} if alike else {})
    assert (evidence.state, evidence.reason) == ("verified in part" if alike else "verified", reason)
    assert evidence.sources == ("graph",)


@pytest.mark.parametrize(
    ("requested", "really", "words"),
    [
        ("gemm2", "gemm8", "2 loops of 8 products per iteration"),
        ("gemm8", "standard", "2 loops of 2 products per iteration"),
        ("combined_input", "fused", "2 loops of 1 product and a compiled kernel per iteration"),
        ("wavefront", "fused", "2 loops of 1 product and a compiled kernel per iteration"),
        ("standard", "block_fused", "2 block-fused calls"),
        ("pretransposed", "transposed", "2 loops of 1 transposed product and a compiled kernel per iteration"),
        ("block_fused", "block_cell", "2 loops of 1 block cell per iteration"),
        ("block_fused", "standard", "2 loops of 2 products per iteration"),
        ("cudnn", "standard", "2 loops of 2 products per iteration"),
    ],
)
def test_a_wrong_label_is_found(replica: Replicas, requested: str, really: str, words: str) -> None:
    spec = spec_of("lstm", implementation=requested)
    evidence = collect_evidence(spec, replica, really={"implementation": really})
    assert evidence.match is False
    assert evidence.reason == f"What ran is not {requested}: it has {words}."
    assert evidence.requested["implementation"] == requested
    assert evidence.actual["implementation"] == really


@pytest.mark.parametrize("implementation", ["standard", "gemm_batched"])
def test_directions_dropout_and_padding_change_no_label(replica: Replicas, implementation: str) -> None:
    more: dict[str, Value] = {"dropout": 0.2, "recurrent_dropout": 0.1, "sequence_lengths": "left_padded"}
    evidence = collect_evidence(
        spec_of("lstm", implementation=implementation, bidirectional=True, layers=1, **more), replica
    )
    gates_apart = "The executed graph looks the same for standard and gemm8."
    assert evidence.unverified == ({"implementation": gates_apart} if implementation == "standard" else {})
    assert evidence.match is not False


@pytest.mark.parametrize("implementation", ["gemm8", "wavefront"])
def test_several_steps_a_turn_change_no_label(replica: Replicas, implementation: str) -> None:
    evidence = collect_evidence(spec_of("lstm", implementation=implementation, unroll=3), replica)
    assert evidence.state == "verified"


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_what_keras_was_left_to_choose_is_named_with_the_reason(replica: Replicas, dropout: float) -> None:
    evidence = collect_evidence(spec_of("lstm", implementation="auto", recurrent_dropout=dropout), replica)
    assert (evidence.requested["implementation"], evidence.actual["implementation"]) == ("auto", "standard")
    assert evidence.state == "verified"
    assert evidence.reason == (
        "Keras was left to decide and did not use cuDNN: this run is on the CPU, and cuDNN needs an NVIDIA GPU."
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"recurrent_dropout": 0.1}, "no recurrent dropout"),
        ({"activation": "relu"}, "no activation but tanh"),
        ({"sequence_lengths": "left_padded"}, "padding at the end only"),
        ({"xla": True}, "XLA cannot compile"),
    ],
)
def test_keras_has_a_reason_on_a_gpu_too(given: dict[str, Value], words: str) -> None:
    spec = complete("lstm", {"gpus": 0, "implementation": "auto", **given}, Machine())
    assert words in fallback_reason({**spec.variant, "gpus": 1})


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_type_is_that_of_the_layers_not_of_the_head(replica: Replicas, precision: str) -> None:
    lstm = collect_evidence(spec_of("lstm", implementation="gemm2", precision=precision), replica)
    cnn = collect_evidence(spec_of("cnn10", layout="NHWC", precision=precision), replica)
    assert lstm.actual["precision"] == cnn.actual["precision"] == precision
    assert (lstm.state, cnn.state) == ("verified in part", "verified"), "gemm2 looks like standard"


def test_a_wrong_type_is_found(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("lstm", precision="bfloat16"), replica, really={"precision": "float32"})
    assert (evidence.match, evidence.actual["precision"]) == (False, "float32")
    assert evidence.reason == "The products were computed in float32, not in bfloat16."


def test_xlas_program_stands_for_the_graph_it_leaves_none_of(replica: Replicas, float32: None) -> None:
    evidence = collect_evidence(spec_of("lstm", implementation="standard", xla=True), replica, steps=True)
    assert evidence.actual == {"precision": "float32", "xla": "on", "device": "CPU", "replicas": "1"}
    assert (evidence.state, evidence.sources) == ("verified in part", ("trace", "hlo"))
    assert "XLA compiled the loop over time" in evidence.unverified["implementation"]
    assert evidence.steps >= 1
    assert 0 < evidence.busy_ns <= evidence.span_ns
    assert any(kernel.kind == "gemm" for kernel in evidence.kernels)


def test_xla_without_a_trace_is_not_known(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("lstm", implementation="standard", xla=True), replica)
    assert (evidence.match, evidence.actual, evidence.sources) == (None, {}, ())
    assert evidence.reason == (
        "XLA compiled the step as a whole, so only a trace after the measured part can show what ran."
    )


def test_xla_that_was_not_used_is_found(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("lstm", xla=True), replica, really={"xla": False})
    assert (evidence.match, evidence.actual["xla"]) == (False, "off")
    assert (evidence.reason or "").startswith("XLA compiled 0 of the ")


@pytest.mark.parametrize("xla", [False, True])
def test_two_replicas_are_seen_on_their_devices(pair: Replicas, xla: bool) -> None:
    evidence = collect_evidence(spec_of("lstm", implementation="gemm8", layers=1, xla=xla), pair)
    seen = {"precision": "float32", "xla": "on" if xla else "off", "device": "CPU", "replicas": "2"}
    assert evidence.actual == {"implementation": "gemm8", **seen}
    assert evidence.match is False, "one was asked for"
    assert evidence.reason == "2 device(s) computed the products, not 1."


def test_a_trace_of_the_cpu_is_part_of_the_evidence(replica: Replicas) -> None:
    evidence = collect_evidence(spec_of("cnn10", layout="NHWC"), replica, steps=True)
    assert (evidence.match, evidence.sources) == (True, ("graph", "trace"))
    times = [kernel.time_ns for kernel in evidence.kernels]
    assert times == sorted(times, reverse=True)
    convolutions = [kernel for kernel in evidence.kernels if kernel.kind == "convolution"]
    assert sum(kernel.count for kernel in convolutions) == (9 + 9 + 8) * evidence.steps
    assert any("on the CPU that take little time" in note for note in evidence.notes)


TENSOR = Kernel(name="nvjet_tst", kind="gemm", count=1, time_ns=99, tensor_cores=True)
CUDA = Kernel(name="ampere_sgemm", kind="gemm", count=1, time_ns=1, tensor_cores=False)
SILENT = Kernel(name="gemm_fusion_dot", kind="gemm", count=1, time_ns=1)
ONE_GPU = DeviceTime(device="GPU:0", span_ns=100, busy_ns=90, compute_ns=90, communication_ns=0, kernels=1)
PERSISTENT = Kernel(name="RNN_blockPersist_fp_LSTM", kind="rnn", count=1, time_ns=500)
GATES = Kernel(name="elemWiseRNNcell", kind="rnn", count=1, time_ns=500)


@pytest.mark.parametrize(
    ("requested", "kernels", "ran", "match"),
    [
        ("tf32", (TENSOR, CUDA), "tf32", True),
        ("tf32", (CUDA,), "float32", False),
        ("float32", (CUDA,), "float32", True),
        ("float32", (TENSOR, CUDA), "tf32", False),
        ("tf32", (TENSOR, GATES), "tf32", True),
        ("tf32", (PERSISTENT, CUDA), None, None),
        ("float32", (SILENT,), None, None),
        ("tf32", (), None, None),
    ],
)
def test_on_a_gpu_kernels_tell_tf32_from_float32(
    requested: str, kernels: tuple[Kernel, ...], ran: str | None, match: bool | None
) -> None:
    aspect = precision(seen_on_gpu(requested, kernels=kernels))
    assert (aspect.actual, aspect.matches) == (ran, match)


@pytest.mark.parametrize(("exact", "ran"), [(True, "float32"), (False, "tf32")])
def test_where_no_kernels_name_tells_xlas_program_does(exact: bool, ran: str) -> None:
    dot = Op(type="MatMul", name="dot", dtype="float32", loop="while", compiled=True, exact=exact)
    seen = seen_on_gpu("float32", kernels=(SILENT,))
    aspect = precision(replace(seen, graph=(), trace=replace(seen.trace, programs=(dot,))))
    assert (aspect.actual, aspect.matches) == (ran, exact)


def seen_on_gpu(requested: str, kernels: tuple[Kernel, ...]) -> Any:
    spec = spec_of("lstm")
    product = Op(type="MatMul", name="lstm/while/MatMul", device="GPU:0", dtype="float32", loop="lstm/while")
    return Observation(
        spec=RunSpec(workload="lstm", variant={**spec.variant, "gpus": 1, "precision": requested}),
        graph=(product,),
        trace=XlaTrace(steps=1, times=(ONE_GPU,), kernels=kernels),
    )


@pytest.mark.parametrize(
    ("times", "ran", "state", "reason"),
    [
        ({"small": 39, "big": 61}, "float32 and bfloat16", False, "61 % of the time in products was in float32"),
        ({"small": 80, "big": 20}, "bfloat16 and float32", False, "20 % of the time in products was in float32"),
        ({"small": 1, "big": 99}, "float32", False, "The products were computed in float32, not in bfloat16."),
        ({"small": 99, "big": 1}, "bfloat16", True, None),
        ({}, None, None, "Products are in bfloat16 and float32, and no trace shows how long"),
    ],
)
def test_a_type_counts_by_its_time(
    times: dict[str, int], ran: str | None, state: bool | None, reason: str | None
) -> None:
    seen = seen_on_gpu("bfloat16", (CUDA,))
    small = replace(seen.graph[0], name="small", dtype="bfloat16")
    graph = (small, replace(small, name="big", dtype="float32"))
    aspect = precision(replace(seen, graph=graph, trace=replace(seen.trace, op_times_ns=times)))
    assert (aspect.actual, aspect.matches) == (ran, state)
    assert (aspect.reason or "").startswith(reason or "")
    assert (aspect.reason is None) is (reason is None)


def test_where_no_product_was_seen_the_device_has_a_reason() -> None:
    seen = Observation(spec=spec_of("lstm"))
    assert (device(seen).actual, device(seen).reason) == (None, seen.no_product_reason)


def test_products_that_fell_back_to_the_cpu_are_found() -> None:
    seen = seen_on_gpu("float32", ())
    aspect = device(replace(seen, graph=(*seen.graph, replace(seen.graph[0], device="CPU:0"))))
    assert (aspect.actual, aspect.matches) == ("CPU and GPU", False)
    assert aspect.reason == "1 of the 2 products ran on the CPU."


@pytest.mark.parametrize(("gpus", "word"), [(1, "libcupti"), (0, "on the CPU")])
def test_a_profiler_that_saw_no_kernel_says_why(gpus: int, word: str) -> None:
    from workloads.tensorflow.evidence.collector import evidence_of

    seen = replace(seen_on_gpu("tf32", ()), trace=XlaTrace(steps=3))
    spec = RunSpec(workload=seen.spec.workload, variant={**seen.variant, "gpus": gpus})
    evidence = evidence_of(replace(seen, spec=spec))
    assert (evidence.sources, evidence.match is True) == (("graph",), False)
    (note,) = evidence.notes
    assert word in note


def cudnn_calls(count: int) -> tuple[Any, ...]:
    forward = [
        Op(type="CudnnRNNV3", name=f"lstm_{n}/CudnnRNNV3", device="GPU:0", dtype="float32") for n in range(count)
    ]
    return (*forward, *(replace(op, type="CudnnRNNBackpropV3") for op in forward))


@pytest.mark.parametrize(
    ("requested", "layers", "calls", "ran"),
    [
        ("cudnn", 4, 4, "cudnn"),
        ("auto", 4, 4, "cudnn"),
        ("cudnn_stack", 4, 1, "cudnn_stack"),
        ("auto", 1, 1, "cudnn"),
        ("cudnn_stack", 1, 1, None),
        ("cudnn", 1, 1, None),
        ("cudnn", 4, 1, "cudnn_stack"),
        ("cudnn_stack", 4, 4, "cudnn"),
    ],
)
def test_cudnn_layer_by_layer_and_the_stack_in_one_call(
    requested: str, layers: int, calls: int, ran: str | None
) -> None:
    spec = spec_of("lstm", implementation=requested, layers=layers)
    aspect = recurrent_implementation(Observation(spec=spec, graph=cudnn_calls(calls)))
    assert aspect.actual == ran
    assert aspect.matches is (None if ran is None else ran == requested or requested == "auto")


def products_of(*loops: str, xla: bool = False, device: str = "GPU:0") -> tuple[Op, ...]:
    """A product in each of these loops, "" for one outside of any, in a graph or a program."""
    return tuple(
        Op(
            type="MatMul",
            name=f"{loop}/dot_{n}",
            loop=loop,
            device="" if xla else device,
            dtype="float32",
            compiled=xla,
        )
        for n, loop in enumerate(loops)
    )


@pytest.mark.parametrize(
    ("limits_gib", "actual", "matches"),
    [
        ((10,), "10 GiB", True),
        ((10, 10), "10 GiB", True),
        ((10, 130.5), "10 GiB and 130.5 GiB", False),
        ((), None, None),
    ],
)
def test_a_memory_limit_is_what_the_allocators_of_the_gpus_say(
    limits_gib: tuple[float, ...], actual: str | None, matches: bool | None
) -> None:
    variant = spec_of("lstm", framework="pytorch").variant
    bytes_each = tuple(int(limit * 2**30) for limit in limits_gib)
    assert list(memory_limit(variant, bytes_each)) == [], "none was asked for"
    (aspect,) = memory_limit({**variant, "gpus": 1, "memory_limit": 10.0}, bytes_each)
    assert (aspect.requested, aspect.actual, aspect.matches) == ("10 GiB", actual, matches)
    assert (aspect.reason is None) == (matches is True)
    assert (aspect.reason or "PyTorch").startswith("PyTorch")


XLA_BLANK = "XLA compiled the steps without a loop, so its program does not tell implementations apart."
GRAPH_BLANK = (
    "The executed graph has no loop over time, cuDNN call or block-fused call, so it does not tell implementations "
    "apart."
)


@pytest.mark.parametrize("requested", ["auto", *LOOPS])
@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("xla", [True, False])
def test_without_a_loop_the_implementation_is_not_known(requested: str, on_gpu: bool, xla: bool) -> None:
    from workloads.tensorflow.evidence.collector import evidence_of

    spec = spec_of("lstm", implementation=requested, xla=xla, precision="float32")
    spec = RunSpec(workload="lstm", variant={**spec.variant, "gpus": int(on_gpu)})
    device = "GPU:0" if on_gpu else "CPU:0"
    ops = products_of("", "", xla=xla, device=device)
    times = (msgspec.structs.replace(ONE_GPU, device=device),)
    trace = XlaTrace(steps=1, times=times, kernels=(CUDA,), programs=ops if xla else ())
    evidence = evidence_of(Observation(spec=spec, graph=() if xla else ops, trace=trace))
    reason = XLA_BLANK if xla else GRAPH_BLANK
    assert (evidence.state, evidence.reason) == ("verified in part", reason)
    assert evidence.unverified == {"implementation": reason}
    assert evidence.actual["xla"] == ("on" if xla else "off")


@pytest.mark.parametrize(
    ("graph", "shown"),
    [
        (products_of("a", "a", "b"), "2 loops of another kind"),
        (
            (*products_of("a"), *products_of("a", "a", device="GPU:1")),
            "1 loop of 1 product per iteration, on another device 1 loop of 2 products per iteration",
        ),
        ((*products_of("a"), *products_of("", device="GPU:1")), None),
    ],
)
def test_no_sentence_ends_in_an_empty_list(graph: tuple[Op, ...], shown: str | None) -> None:
    aspect = recurrent_implementation(Observation(spec=spec_of("lstm", implementation="combined_input"), graph=graph))
    reason = f"What ran is not combined_input: it has {shown}." if shown else GRAPH_BLANK
    assert (aspect.actual, aspect.reason) == (shown, reason)


def test_xla_leaves_no_loop_of_a_single_iteration(replica: Replicas, float32: None) -> None:
    spec = spec_of("lstm", implementation="combined_input", xla=True, unroll=4, layers=1, mode="inference")
    evidence = collect_evidence(spec, replica, steps=True)
    assert (evidence.state, evidence.unverified) == ("verified in part", {"implementation": XLA_BLANK})


def test_on_a_gpu_the_badge_says_why_keras_fell_back_from_cudnn() -> None:
    from workloads.tensorflow.evidence.collector import evidence_of

    spec = spec_of("lstm", implementation="auto", recurrent_dropout=0.2, layers=1)
    loop = "lstm/while"
    products = tuple(
        Op(type="MatMul", name=f"{loop}/body/MatMul_{number}", loop=loop, device="GPU:0", dtype="float32")
        for number in range(8)
    )
    seen = Observation(
        spec=RunSpec(workload="lstm", variant={**spec.variant, "gpus": 1}),
        graph=products,
        trace=XlaTrace(steps=1, times=(ONE_GPU,), kernels=(CUDA,)),
    )
    evidence = evidence_of(seen)
    assert (evidence.state, evidence.actual["implementation"]) == ("verified", "standard")
    assert evidence.reason == ("Keras was left to decide and did not use cuDNN: cuDNN has no recurrent dropout.")


NCCL = Kernel(name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)", kind="communication", count=4, time_ns=9)
GEMM = Kernel(name="nvjet_tst", kind="gemm", count=8, time_ns=90)
COLLECTIVE = Op(type="CollectiveReduceV2", name="CollectiveReduceV2", device="GPU:0")


def two_gpus(requested: str = "nccl", **more: str) -> RunSpec:
    return spec_of("cnn10", gpus=2, all_reduce=requested, **more)


@pytest.mark.parametrize("requested", ["hierarchical", "one_device"])
def test_copies_are_told_by_who_adds(replica: Replicas, requested: str) -> None:
    pair = replicas_on(["CPU:0", "CPU:1"], requested)
    evidence = collect_evidence(two_gpus(requested), pair)
    assert (evidence.requested["all_reduce"], evidence.actual["all_reduce"]) == (requested, requested)
    other = collect_evidence(two_gpus("nccl"), pair, really={"all_reduce": requested})
    assert other.match is False
    assert "Gradients were exchanged by copies, added on" in (other.reason or "")


def test_a_collective_says_what_it_used_only_in_a_trace(pair: Replicas) -> None:
    evidence = collect_evidence(two_gpus(), pair)
    assert "all_reduce" not in evidence.actual
    assert "all_reduce" in evidence.requested


def test_one_device_and_inference_exchange_nothing(replica: Replicas) -> None:
    assert "all_reduce" not in collect_evidence(spec_of("cnn10"), replica).requested
    assert "all_reduce" not in collect_evidence(two_gpus(mode="inference"), replica).requested


@pytest.mark.parametrize(
    ("graph", "kernels", "ran", "fits"),
    [
        ((COLLECTIVE,), (NCCL, GEMM), "nccl", True),
        ((COLLECTIVE,), (GEMM,), "ring", False),
        ((COLLECTIVE,), (), None, None),
        ((Op(type="Conv2D", name="Conv2D", device="GPU:0"),), (GEMM,), "none", False),
        ((), (GEMM,), None, None),
    ],
)
def test_nccl_is_told_by_its_kernels(
    graph: tuple[Op, ...], kernels: tuple[Kernel, ...], ran: str | None, fits: bool | None
) -> None:
    times = (ONE_GPU, msgspec.structs.replace(ONE_GPU, device="GPU:1"))
    aspect = all_reduce(
        Observation(spec=two_gpus(), graph=graph, trace=XlaTrace(steps=2, times=times, kernels=kernels))
    )
    assert (aspect.actual, aspect.matches) == (ran, fits)
    if NCCL in kernels:
        assert aspect.note == "Kernels or copies that exchange gradients: 1 per step on each device."
