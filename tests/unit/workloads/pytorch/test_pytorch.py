"""PyTorch computes what TensorFlow does, and its evidence says what really ran."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.analysis.equality import largest_difference
from tests.evidence_runs import spec_of
from tests.unit.workloads.tensorflow.test_gradients import arrays
from workloads.catalog import FRAMEWORKS, Gpu, Machine, check
from workloads.errors import RefusedError
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.jobs import perform
from workloads.protocol import Evidence, RunSpec, Value
from workloads.pytorch.backend import PytorchBackend
from workloads.tensorflow.backend import recipe_of
from workloads.tensorflow.gradients import compute_gradients
from workloads.tensorflow.runtime import Replicas
from workloads.training import Task

Settings = Mapping[str, Value]
pytestmark = pytest.mark.usefixtures("unoptimized")


@pytest.fixture(autouse=True)
def _one_thread_and_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """These models are tiny, and other tests need the other core."""
    import torch

    from workloads.pytorch import steps

    torch.set_num_threads(1)
    monkeypatch.setattr(steps, "_MAX_BATCHES", 2)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "-1")  # a job sets them in its process


def in_pytorch(workload: str, **settings: Value) -> RunSpec:
    return spec_of(workload, framework="pytorch", **settings)


def computed(spec: RunSpec, path: Path, parts: int = 1) -> ComputedGradients:
    found = perform(ComputeGradients(spec=spec, parts=parts, path=str(path)))
    assert isinstance(found, ComputedGradients), found
    return found


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"bidirectional": True}),
        ("lstm", {"outputs": "all"}),
        ("lstm", {"activation": "relu"}),
        ("lstm", {"bidirectional": True, "sequence_lengths": "left_padded"}),
        ("gru", {"bidirectional": True, "outputs": "all", "sequence_lengths": "right_padded"}),
        ("gru", {"outputs": "all", "sequence_lengths": "left_padded", "mode": "inference"}),
        ("gru", {"bidirectional": True}),
        ("gru", {"activation": "relu"}),
        ("cnn10", {"layout": "NHWC"}),
        ("cnn10", {"layout": "NHWC", "pooling": "strided", "bias": True}),
        ("cnn10", {"layout": "NHWC", "pooling": "max"}),
        ("wrn28-10", {"layout": "NHWC"}),
        ("cnn10", {"layout": "NHWC", "mode": "inference"}),
        ("gru", {"mode": "inference"}),
    ],
)
def test_loss_gradients_and_outputs_of_a_seed_are_tensorflow_s(
    one: Replicas, workload: str, settings: Settings, tmp_path: Path
) -> None:
    theirs = ComputeGradients(spec=spec_of(workload, **settings), path=str(tmp_path / "tensorflow.npz"))
    expected = compute_gradients(recipe_of(workload)(theirs.spec.variant), one, theirs)
    found = computed(in_pytorch(workload, **settings), tmp_path / "pytorch.npz")
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)
    assert found.batch == pytest.approx(expected.batch)
    ours, reference = arrays(tmp_path / "pytorch.npz"), arrays(tmp_path / "tensorflow.npz")
    assert list(ours) == list(reference)
    assert largest_difference(list(ours), ours.values(), list(reference.values()))[0] < 3e-5


@pytest.mark.parametrize("workload", ["gru", "cnn10"])
def test_it_goes_on_from_weights_of_another_variant_part_by_part(workload: str, tmp_path: Path) -> None:
    whole = computed(in_pytorch(workload, mode="train", seed=1), tmp_path / "whole.npz")
    request = ComputeGradients(
        spec=in_pytorch(workload, seed=2), path=str(tmp_path / "from.npz"), start_path=str(tmp_path / "whole.npz")
    )
    perform(request)
    other = computed(in_pytorch(workload, seed=2), tmp_path / "other.npz")
    with np.load(tmp_path / "whole.npz") as first, np.load(tmp_path / "other.npz") as second:
        assert not np.array_equal(first["start0"], second["start0"])
    assert other.losses != whole.losses
    wrong = {"units": 9} if workload == "gru" else {"channels": 5}
    answer = perform(
        ComputeGradients(
            spec=in_pytorch(workload, **wrong), path=str(tmp_path / "x.npz"), start_path=str(tmp_path / "whole.npz")
        )
    )
    assert "other shapes" in str(answer)


def test_parts_of_a_batch_have_its_gradients_on_average(tmp_path: Path) -> None:
    computed(in_pytorch("gru"), tmp_path / "whole.npz")
    computed(in_pytorch("gru"), tmp_path / "parts.npz", parts=2)
    whole, parts = arrays(tmp_path / "whole.npz"), arrays(tmp_path / "parts.npz")
    assert largest_difference(list(parts), parts.values(), list(whole.values()))[0] < 1e-5


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_are_as_near_to_float32_as_tensorflow_s(one: Replicas, precision: str, tmp_path: Path) -> None:
    def difference(name: str) -> float:
        short, exact = (arrays(tmp_path / f"{name}-{kind}.npz") for kind in (precision, "float32"))
        return largest_difference(list(short), short.values(), list(exact.values()))[0]

    for kind in (precision, "float32"):
        computed(in_pytorch("cnn10", layout="NHWC", precision=kind), tmp_path / f"pytorch-{kind}.npz")
        spec = spec_of("cnn10", layout="NHWC", precision=kind)
        request = ComputeGradients(spec=spec, path=str(tmp_path / f"tensorflow-{kind}.npz"))
        compute_gradients(recipe_of("cnn10")(spec.variant), one, request)
        computed(in_pytorch("lstm", precision=kind), tmp_path / f"lstm-{kind}.npz")
    assert 1e-5 < difference("pytorch") < 2 * difference("tensorflow")
    assert 1e-5 < difference("lstm") < 0.02


def task_of(spec: RunSpec) -> Task:
    backend = PytorchBackend()
    backend.import_framework(())
    return backend.build_task(spec, None)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"dropout": 0.2, "recurrent_dropout": 0.2}),
        ("gru", {"recurrent_dropout": 0.2}),
        ("lstm", {"activation": "relu", "precision": "float16"}),
        ("cnn10", {"layout": "NHWC", "weight_decay": 1e-4, "batch_size": 16}),
    ],
)
def test_the_loss_falls(workload: str, settings: Settings) -> None:
    task = task_of(in_pytorch(workload, **settings))
    losses = [task.fetch(task.step()) for _ in range(40)]
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:4])
    assert task.allocator_bytes() is None, "on the CPU"


def test_running_statistics_are_keras_s(one: Replicas) -> None:
    """PyTorch keeps the unbiased variance; in inference it is the one that Keras keeps."""
    import torch

    from workloads.pytorch.models import ImageModel
    from workloads.tensorflow.cnn.model import build_cnn

    spec = spec_of("cnn10", layout="NHWC")
    theirs, ours = build_cnn("cnn10", spec.variant), ImageModel("cnn10", spec.variant)
    batch = recipe_of("cnn10")(spec.variant).batch(0)
    images = torch.from_numpy(batch[0]).permute(0, 3, 1, 2)
    theirs.loss(*batch)
    ours.train()
    ours.loss(images, torch.from_numpy(batch[1]))
    ours.eval()
    with torch.no_grad():
        np.testing.assert_allclose(ours(images).numpy(), theirs.outputs(batch[0]).numpy(), atol=1e-4)


def collected(spec: RunSpec, task: Task) -> Evidence:
    collector = PytorchBackend().make_collector(spec, task)
    collector.start()
    assert collector.evidence() is None, "nothing is known before the first step"
    task.fetch(task.step())
    collector.first_step_done()
    collector.trace()
    collector.inspect()
    found = collector.evidence()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("workload", "settings"),
    [("lstm", {}), ("cnn10", {"layout": "NHWC"}), ("cnn10", {"layout": "NCHW", "precision": "bfloat16"})],
)
def test_what_ran_as_requested_is_verified(workload: str, settings: Settings) -> None:
    spec = in_pytorch(workload, **settings)
    found = collected(spec, task_of(spec))
    assert (found.match, found.reason, found.unverified) == (True, None, {})
    assert found.actual == found.requested
    assert found.actual["precision"] == spec.variant["precision"]
    assert found.kernels
    assert found.timeline is not None
    (times,) = found.devices
    assert 0 < times.busy_ns <= times.span_ns
    assert {kernel.kind for kernel in found.kernels} >= {"pointwise", "convolution" if "layout" in settings else "gemm"}


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
    found = collected(spec, task_of(spec))
    assert found.match is False
    assert found.actual[aspect] == actual
    assert [name for name in found.actual if found.actual[name] != found.requested[name]] == [aspect]


def test_an_lstm_that_falls_back_from_cudnn_is_caught() -> None:
    """On the CPU there is no cuDNN: what runs is what GPUs compute with `torch.backends.cudnn.enabled=False`."""
    spec = in_pytorch("lstm", implementation="cudnn")
    found = collected(spec, task_of(spec))
    assert (found.match, found.actual["implementation"]) == (False, "standard")
    assert found.reason == "What ran is not cudnn: it has no cuDNN call."


def test_without_a_trace_nothing_is_claimed() -> None:
    spec = in_pytorch("lstm")
    task = task_of(spec)
    collector = PytorchBackend().make_collector(spec, task)
    collector.first_step_done()
    found = collector.evidence()
    assert found is not None
    assert (found.match, found.actual) == (None, {"compile": "off"})


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
    assert trace.step is not None
    assert trace.step.start_ns == 20_005
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

    found = read([trace(0, 5_000, 0.0), trace(1, 2_000, 8.0)], 1, gpu=True)
    assert [(kernel.name, kernel.kind, kernel.count) for kernel in found.kernels] == [
        ("sm80_gemm", "gemm", 2), (exchange, "communication", 2),
    ]  # fmt: skip
    assert [(one.device, one.busy_ns, one.compute_ns, one.communication_ns) for one in found.times] == [
        ("GPU:0", 60_000, 40_000, 30_000), ("GPU:1", 60_000, 40_000, 30_000),
    ]  # fmt: skip
    assert found.step is not None
    assert (found.step.start_ns, len(found.step.events)) == (25_000, 4)
    assert found.step.end_ps - found.step.start_ps == 65_000_000, "the second begins 5 microseconds later"
    assert [(op.dtype, op.time_ns) for op in found.ops] == [("float32", 40_000)] * 2


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


def test_without_pytorch_the_run_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RefusedError, match="PyTorch cannot be imported"):
        PytorchBackend().import_framework(())


@pytest.mark.parametrize(("precision", "value"), [("float32", "ieee"), ("tf32", "tf32"), ("bfloat16", "ieee")])
def test_every_level_of_cuda_s_precision_is_set_by_itself(
    monkeypatch: pytest.MonkeyPatch, precision: str, value: str
) -> None:
    """PyTorch 2.11 hands a value on to no level that has one, as cuDNN's layers have."""
    import torch

    from workloads.pytorch import steps

    values: dict[tuple[str, str], str] = {}
    monkeypatch.setattr(
        torch._C, "_set_fp32_precision_setter", lambda backend, op, given: values.update({(backend, op): given})
    )
    steps.set_precision(precision)
    cuda = [("cuda", op) for op in ("matmul", "all", "conv", "rnn")]
    assert values == dict.fromkeys([("generic", "all"), *cuda], value)


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


def test_the_environment_names_the_version_and_no_library_twice() -> None:
    found = PytorchBackend().import_framework(())
    assert found["pytorch"][0].isdigit()
    assert found["pytorch_devices"] == "CPU"
    assert FRAMEWORKS["tensorflow"].version_key not in found
    calibration = PytorchBackend().calibrate("float32", ())
    assert calibration is not None
    assert calibration.flops_per_s > 1e8


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
        (("tensorflow",), {"framework": "pytorch", "interpreter": "torch215"}, False),
        (None, {}, False),
    ],
)
def test_what_a_host_lacks_is_refused_before_the_run(
    frameworks: tuple[str, ...] | None, settings: Settings, refused: bool
) -> None:
    host = Machine(cpu_count=8, local=False, frameworks=frameworks)
    refusals = check(spec_of("lstm", **settings), host)
    assert ["is not installed for these runs" in refusal.reason for refusal in refusals] == [True] * refused
