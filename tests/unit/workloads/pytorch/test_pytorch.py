"""PyTorch computes what TensorFlow does, and its evidence says what really ran."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evidence_runs import spec_of
from tests.fakes import tensorflow as in_tensorflow
from tests.fakes.tensorflow import TensorflowProcess
from tests.present import present
from tests.unit.workloads.test_frameworks import (
    CASES,
    assert_traced,
    collected,
    computed,
    difference,
    difference_to_tensorflow,
    task_of,
)
from workloads.catalog import Gpu, Machine, check
from workloads.protocol import RunSpec, Value
from workloads.pytorch.backend import PytorchBackend

Settings = Mapping[str, Value]
pytestmark = pytest.mark.usefixtures("restored_variables")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """These models are tiny, and other tests need the other core."""
    import torch

    torch.set_num_threads(1)


def in_pytorch(workload: str, **settings: Value) -> RunSpec:
    return spec_of(workload, framework="pytorch", **settings)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [*CASES, ("lstm", {"outputs": "all"}), ("lstm", {"activation": "relu"}), ("gru", {"bidirectional": True})],
)
def test_loss_gradients_and_outputs_of_a_seed_are_tensorflow_s(
    tensorflow: TensorflowProcess, workload: str, settings: Settings, tmp_path: Path
) -> None:
    spec, reference = in_pytorch(workload, **settings), spec_of(workload, **settings)
    assert difference_to_tensorflow(spec, reference, tensorflow, tmp_path) < 3e-5


def test_parts_of_a_batch_have_its_gradients_on_average(tmp_path: Path) -> None:
    computed(in_pytorch("gru"), tmp_path / "whole.npz")
    computed(in_pytorch("gru"), tmp_path / "parts.npz", parts=2)
    assert difference(tmp_path / "parts.npz", tmp_path / "whole.npz") < 1e-5


def test_running_statistics_are_keras_s(tensorflow: TensorflowProcess) -> None:
    """PyTorch keeps the unbiased variance; in inference it is the one that Keras keeps."""
    import torch

    from workloads.pytorch.models import ImageModel

    spec = spec_of("cnn10", layout="NHWC")
    batch, classes, outputs = tensorflow.call(in_tensorflow.outputs_after_a_batch, spec)
    net, images = ImageModel("cnn10", spec.variant), torch.from_numpy(batch).permute(0, 3, 1, 2)
    net.train()
    net.loss(images, torch.from_numpy(classes))
    net.eval()
    with torch.no_grad():
        np.testing.assert_allclose(net(images).numpy(), outputs, atol=1e-4)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {}),
        ("cnn10", {"layout": "NHWC"}),
        # Large enough that other programs, which interrupt the last layer in float32, make it no larger part.
        ("cnn10", {"layout": "NCHW", "precision": "bfloat16", "channels": 16}),
    ],
)
def test_what_ran_as_requested_is_verified(workload: str, settings: Settings) -> None:
    spec = in_pytorch(workload, **settings)
    evidence = collected(spec, task_of(spec))
    assert (evidence.match, evidence.reason, evidence.unverified) == (True, None, {})
    assert evidence.actual == evidence.requested
    assert evidence.actual["precision"] == spec.variant["precision"]
    assert_traced(evidence, "convolution" if "layout" in settings else "gemm")


def _loses_channels_last(model: Any) -> None:
    import torch

    model._convert = model._layer
    model._layer = lambda layer, images: model._convert(layer, images.contiguous(memory_format=torch.contiguous_format))


def _leaves_autocast(model: Any) -> None:
    import torch

    with_autocast = model.loss

    def loss(inputs: Any, targets: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return with_autocast(inputs.float(), targets)

    model.loss = loss


@pytest.mark.parametrize(
    ("settings", "spoil", "aspect", "actual"),
    [
        ({"layout": "NHWC"}, _loses_channels_last, "layout", "NCHW"),
        ({"layout": "NHWC", "precision": "bfloat16"}, _leaves_autocast, "precision", "float32"),
    ],
)
def test_what_ran_otherwise_is_caught(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, spoil: Callable[[Any], None], aspect: str, actual: str
) -> None:
    from workloads.pytorch import models, steps

    build = models.build_model

    def spoilt(*arguments: Any) -> Any:
        model = build(*arguments)
        spoil(model)
        return model

    monkeypatch.setattr(steps, "build_model", spoilt)
    spec = in_pytorch("cnn10", **settings)
    evidence = collected(spec, task_of(spec))
    assert evidence.match is False
    assert evidence.actual[aspect] == actual
    assert [name for name in evidence.actual if evidence.actual[name] != evidence.requested[name]] == [aspect]


def test_an_lstm_that_falls_back_from_cudnn_is_caught() -> None:
    """On the CPU there is no cuDNN: what runs is what GPUs compute with `torch.backends.cudnn.enabled=False`."""
    spec = in_pytorch("lstm", implementation="cudnn")
    evidence = collected(spec, task_of(spec))
    assert (evidence.match, evidence.actual["implementation"]) == (False, "standard")
    assert evidence.reason == "What ran is not cudnn: it has no cuDNN call."


def test_without_a_trace_nothing_is_claimed() -> None:
    spec = in_pytorch("lstm")
    task = task_of(spec)
    collector = PytorchBackend().make_collector(spec, task)
    collector.first_step_done()
    evidence = present(collector.evidence())
    assert (evidence.match, evidence.actual) == (None, {"compile": "off"})


def _event(name: str, cat: str, ts: float, dur: float, **arguments: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": arguments}


def test_kernels_belong_to_the_operation_that_launched_them_and_wait_for_the_host() -> None:
    """Two steps of a convolution on a GPU, each one launch, by hand."""
    from workloads.pytorch.trace import read

    images = {
        "Input type": ["c10::BFloat16"], "Input Dims": [[2, 3, 8, 8]], "Input Strides": [[192, 1, 24, 3]],
    }  # fmt: skip
    events = []
    for step, start in enumerate((0.0, 100.0)):
        events += [
            _event("aten::convolution", "cpu_op", start, 50.0, **images),
            _event("cudaLaunchKernel", "cuda_runtime", start + 10, 5.0, correlation=step),
            _event("sm80_xmma_fprop_bf16", "kernel", start + 20, 40.0, device=0, stream=7, correlation=step),
        ]
    data = json.dumps({"traceEvents": events, "baseTimeNanoseconds": 5}).encode()
    trace = read([data], 2, gpu=True)
    assert [(kernel.name, kernel.kind, kernel.count, kernel.time_ns) for kernel in trace.kernels] == [
        ("sm80_xmma_fprop_bf16", "convolution", 2, 80_000)
    ]
    assert [(op.dtype, op.layout, op.time_ns) for op in trace.ops] == [("bfloat16", "NHWC", 40_000)] * 2
    (times,) = trace.times
    assert (times.device, times.span_ns, times.busy_ns, times.host_wait_ns) == ("GPU:0", 140_000, 80_000, 60_000)
    assert trace.graph_launches == 0
    assert present(trace.step).start_ns == 20_005
    captured = json.dumps({"traceEvents": [_event("cudaGraphLaunch", "cuda_runtime", 1, 1)]}).encode()
    assert read([captured], 1, gpu=True).graph_launches == 1


def test_an_operation_that_autocast_casts_for_and_calls_again_counts_once(tmp_path: Path) -> None:
    import torch

    from workloads.pytorch.trace import read, write_trace

    left, right = torch.ones(8, 8), torch.ones(8, 8)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            torch.mm(left, right)
            torch.mm(right, left)

    write_trace(step, 1, tmp_path / "trace.json", gpu=False)
    trace = read([(tmp_path / "trace.json").read_bytes()], 1, gpu=False)
    assert [(op.name, op.dtype) for op in trace.ops] == [("aten::mm", "bfloat16")] * 2


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_autocast_chooses_no_type_of_its_own_for_cudnn_s_layers(precision: str) -> None:
    """On GPUs it casts their inputs to float16 where it casts those of others to bfloat16."""
    import torch

    from workloads.pytorch.models import build_model

    model = build_model("lstm", in_pytorch("lstm", implementation="cudnn_stack", precision=precision).variant)
    calls = []
    model.layers[0].register_forward_pre_hook(
        lambda _, inputs: calls.append((inputs[0].dtype, torch.is_autocast_enabled("cpu")))
    )
    with torch.autocast("cpu", getattr(torch, precision), enabled=precision != "float32"):
        model.loss(torch.rand(2, 6, 4), torch.rand(2, 1)).backward()
    assert calls == [(getattr(torch, precision), False)]
    assert {view.parameters[0].grad.dtype for view in model.views} == {torch.float32}


def test_the_traces_of_two_processes_are_one_of_two_gpus() -> None:
    """Both count their launches from 1, each from a moment of its own; what exchanges gradients is told as such."""
    from workloads.pytorch.trace import read

    exchange = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

    def trace(gpu: int, base_ns: int, late_us: float) -> bytes:
        events = [
            _event("aten::mm", "cpu_op", late_us, 50.0, **{"Input type": ["float"]}),
            _event("cudaLaunchKernel", "cuda_runtime", late_us + 10, 5.0, correlation=1),
            _event("sm80_gemm", "kernel", late_us + 20, 40.0, device=gpu, stream=7, correlation=1),
            _event("cudaLaunchKernel", "cuda_runtime", late_us + 55, 5.0, correlation=2),
            _event(exchange, "kernel", late_us + 50, 30.0, device=gpu, stream=20, correlation=2),
        ]
        return json.dumps({"traceEvents": events, "baseTimeNanoseconds": base_ns}).encode()

    joint = read([trace(0, 5_000, 0.0), trace(1, 2_000, 8.0)], 1, gpu=True)
    assert [(kernel.name, kernel.kind, kernel.count) for kernel in joint.kernels] == [
        ("sm80_gemm", "gemm", 2), (exchange, "communication", 2),
    ]  # fmt: skip
    assert [(times.device, times.busy_ns, times.compute_ns, times.communication_ns) for times in joint.times] == [
        ("GPU:0", 60_000, 40_000, 30_000), ("GPU:1", 60_000, 40_000, 30_000),
    ]  # fmt: skip
    assert joint.step is not None
    assert (joint.step.start_ns, len(joint.step.events)) == (25_000, 4)
    assert joint.step.end_ps - joint.step.start_ps == 65_000_000, "the second begins 5 microseconds later"
    assert [(op.dtype, op.time_ns) for op in joint.ops] == [("float32", 40_000)] * 2


@pytest.mark.parametrize(
    ("workload", "settings", "parameter"),
    [
        ("lstm", {"framework": "tensorflow", "compile": True}, "compile"),
        ("lstm", {"framework": "tensorflow", "cuda_graph": True}, "cuda_graph"),
        ("lstm", {"framework": "pytorch", "cuda_graph": True}, "cuda_graph"),
        ("lstm", {"framework": "pytorch", "xla": True}, "xla"),
        ("lstm", {"framework": "pytorch", "implementation": "gemm2"}, "implementation"),
        (
            "gru",
            {"framework": "pytorch", "gpus": 1, "implementation": "cudnn", "sequence_lengths": "right_padded"},
            "sequence_lengths",
        ),
        ("cnn10", {"framework": "pytorch", "implementation": "keras"}, "implementation"),
        ("cnn10", {"framework": "pytorch", "layout_optimizer": True}, "layout_optimizer"),
        ("cnn10", {"framework": "pytorch", "all_reduce": "data_parallel"}, "all_reduce"),
        ("cnn10", {"framework": "pytorch", "gpus": 2, "all_reduce": "one_device"}, "all_reduce"),
        ("cnn10", {"framework": "tensorflow", "gpus": 2, "all_reduce": "data_parallel"}, "all_reduce"),
        ("cnn10", {"framework": "pytorch", "gpus": 2, "all_reduce": "data_parallel", "compile": True}, "compile"),
        ("cnn10", {"framework": "pytorch", "gpus": 2, "cuda_graph": True}, "cuda_graph"),
        ("cnn10", {"framework": "pytorch", "gpus": 1, "cuda_graph": True, "data": "stand_in", "epochs": 1}, "epochs"),
    ],
)
def test_what_a_framework_lacks_is_refused_before_the_run(workload: str, settings: Settings, parameter: str) -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(2))
    refusals = check(spec_of(workload, **settings), Machine(gpus=gpus, cpu_count=8))
    assert [parameter in refusal.parameters for refusal in refusals] == [True], refusals


def test_two_gpus_run_by_either_exchange() -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(2))
    for settings in ({"compile": True}, {"all_reduce": "data_parallel", "memory_limit": 2.0}):
        assert check(in_pytorch("cnn10", gpus=2, **settings), Machine(gpus=gpus, cpu_count=8)) == ()


@pytest.mark.parametrize(("warmup_steps", "refused"), [(1, True), (2, False)])
def test_a_step_is_captured_before_the_measured_part(warmup_steps: int, refused: bool) -> None:
    spec = in_pytorch("lstm", gpus=1, implementation="cudnn", cuda_graph=True, warmup_steps=warmup_steps)
    machine = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0)),), cpu_count=8)
    assert ["warmup_steps" in refusal.parameters for refusal in check(spec, machine)] == [True] * refused


@pytest.mark.parametrize(("precision", "value"), [("tf32", "tf32"), ("float32", "ieee"), ("bfloat16", "ieee")])
def test_each_operation_s_precision_is_set_and_older_flags_work_as_in_a_script(precision: str, value: str) -> None:
    import torch

    from workloads.pytorch import steps

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul

    def flags() -> tuple[bool, bool, str]:
        return cudnn.allow_tf32, matmul.allow_tf32, torch.get_float32_matmul_precision()

    steps.set_precision(precision)
    tf32 = (True, True, "high") if precision == "tf32" else (False, False, "highest")
    assert [operation.fp32_precision for operation in (matmul, cudnn.conv, cudnn.rnn)] == [value] * 3
    assert flags() == tf32
    for allowed in (True, False):
        with cudnn.flags(enabled=False, allow_tf32=allowed):
            assert flags() == (allowed, *tf32[1:])
    assert flags() == tf32
    for allowed in (True, False):
        cudnn.allow_tf32 = matmul.allow_tf32 = allowed
        assert flags() == (allowed, allowed, "high" if allowed else "highest")


def test_a_rank_tells_the_state_of_a_convolution_of_1x1_in_nhwc() -> None:
    import torch

    from workloads.pytorch import ranks, steps

    spec = in_pytorch("wrn28-10", layout="NHWC")
    states = [steps.build_step(spec, torch.device("cpu"), ranks.Share(0, 1), None).state() for _ in range(2)]
    assert states[0] == states[1]


def test_a_standby_imports_what_an_optimizer_needs_and_asks_for_no_gpu() -> None:
    script = (
        "import sys, torch; from workloads.pytorch.backend import PytorchBackend; PytorchBackend().preimport(); "
        "modules = set(sys.modules); torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step(); "
        "print(torch.cuda.is_initialized(), *(name for name in set(sys.modules) - modules if 'dynamo' in name))"
    )
    printed = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert printed.split() == ["False"]


def test_an_environment_without_pytorch_is_told_before_the_run(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)

    def refused() -> list[bool]:
        refusals = check(in_pytorch("lstm", interpreter=str(tmp_path)), Machine(cpu_count=8))
        return ["interpreter" in refusal.parameters for refusal in refusals]

    assert refused() == [], "a Python of no virtual environment does not tell"
    (tmp_path / "pyvenv.cfg").touch()
    assert refused() == [True]
    (site / "torch").mkdir()
    assert refused() == []


@pytest.mark.parametrize(
    ("frameworks", "settings", "refused"),
    [
        (("pytorch",), {}, True),
        (("pytorch",), {"framework": "pytorch"}, False),
        (("tensorflow",), {"framework": "pytorch"}, True),
        (("tensorflow",), {"framework": "pytorch", "interpreter": "/envs/torch215"}, False),
        (None, {}, False),
    ],
)
def test_what_a_host_lacks_is_refused_before_the_run(
    frameworks: tuple[str, ...] | None, settings: Settings, refused: bool
) -> None:
    host = Machine(cpu_count=8, local=False, frameworks=frameworks)
    refusals = check(spec_of("lstm", **settings), host)
    assert ["is not installed for these runs" in refusal.reason for refusal in refusals] == [True] * refused


@pytest.mark.parametrize(("all_reduce", "times"), [("nccl", True), ("data_parallel", False)])
def test_cudnn_times_its_algorithms_unless_each_step_has_new_threads(
    monkeypatch: pytest.MonkeyPatch, all_reduce: str, times: bool
) -> None:
    """PyTorch keeps what it timed by thread; on an H200 a step in a new thread took 93 ms in place of 3."""
    import torch

    from workloads.pytorch import steps

    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not times)
    steps.configure({**in_pytorch("cnn10").variant, "all_reduce": all_reduce})
    assert torch.backends.cudnn.benchmark is times
