"""The step of a variant in PyTorch: batches on the device, forward and backward pass, update; compiled or captured."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map  # PyTorch has no public one

from workloads.cifar10 import ImageData, stored_data
from workloads.image_training import MOMENTUM, Schedule, epoch_steps, learning_rate
from workloads.parameters import EAGER_STEPS
from workloads.protocol import RunSpec, Variant
from workloads.pytorch.models import Model, build_model
from workloads.pytorch.ranks import DATA_PARALLEL, RankedStep, RankState, Share, gpus_of, rank_count
from workloads.pytorch.stored_images import EvaluationImages, PrefetchQueue, Preprocessing, training_queue
from workloads.recurrent import ADAM_EPSILON, ADAM_RATE
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.seeding import batch_count, map_in_threads, synthetic_batch
from workloads.training import GOOD_STEPS, LOSS_SCALE, Passes, Task, do_nothing
from workloads.weights import Array, Reference, WeightsKeeper

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Batch = tuple[Any, Any]
"""Inputs and targets: tensors or nests of them."""


def configure(variant: Variant, rank: int = 0) -> torch.device:
    """Apply a variant's settings to PyTorch, before its first operation, and return the rank's device."""
    threads = int(variant["cpu_threads"])
    if threads:
        torch.set_num_threads(threads)
    set_precision(str(variant["precision"]))
    # As in TensorFlow. PyTorch stores timings by thread, and DataParallel starts new threads in each step.
    torch.backends.cudnn.benchmark = variant["all_reduce"] != DATA_PARALLEL
    if variant["compile"]:
        import torch._inductor.config as inductor

        inductor.layout_optimization = False  # otherwise it turns NCHW into NHWC where it expects that to be faster
    torch.manual_seed(int(variant["seed"]))
    if not int(variant["gpus"]):
        return torch.device("cpu")
    if limit_gib := float(variant["memory_limit"]):
        for gpu in gpus_of(variant, rank):
            total_bytes = torch.cuda.mem_get_info(gpu)[1]
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit_gib * 2**30 / total_bytes), gpu)
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


def memory_limit_bytes(gpu: int) -> int:
    """Return the most memory that this process may take of a GPU."""
    return int(torch.cuda.memory.get_per_process_memory_fraction(gpu) * torch.cuda.mem_get_info(gpu)[1])


def set_precision(precision: str) -> None:
    """Compute float32 in TF32 everywhere, or nowhere.

    By default PyTorch computes convolutions and recurrent layers in TF32, and matrix products in float32.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    # The older flags come first: unless they agree, PyTorch raises when a module reads one, as `cudnn.flags` does.
    # Nothing is set above the operations' level: turning that flag off later would disagree with it.
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    for operation in (matmul, cudnn.conv, cudnn.rnn):
        operation.fp32_precision = "tf32" if precision == "tf32" else "ieee"


def host_batch(workload: str, variant: Variant, number: int) -> Batch:
    """Return one batch on the host, images [batch, colours, height, width] in the memory format of the layout."""
    inputs, targets = tree_map(torch.from_numpy, synthetic_batch(workload, variant, number))
    return (inputs.permute(0, 3, 1, 2) if variant.get("layout") == "NHWC" else inputs), targets


class DeviceBatches:
    """Batches that stay on the device and take turns."""

    def __init__(self, batches: Iterable[Batch], device: torch.device, dtype: torch.dtype | None = None) -> None:
        """Copy batches to a device; `dtype` is the type of floating-point inputs, None keeps theirs."""

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None)

        self._batches = [
            (tree_map(cast, inputs), tree_map(lambda tensor: tensor.to(device), targets)) for inputs, targets in batches
        ]
        self._next = 0
        self.first = self._batches[0]

    def take(self) -> Batch:
        batch = self._batches[self._next]
        self._next = (self._next + 1) % len(self._batches)
        return batch


def device_batches(
    batch: Callable[[int], Batch],
    device: torch.device,
    dtype: torch.dtype | None = None,
    map_batches: Callable[[Callable[[int], Batch], Iterable[int]], Iterable[Batch]] = map,
) -> DeviceBatches:
    """Return the batches that stay on the device; `batch` returns a batch by number, on the host.

    `map_batches` may use threads if `batch` allows it.
    """
    first_batch = batch(0)
    size_bytes = sum(tensor.nbytes for tensor in tree_leaves(first_batch))
    return DeviceBatches([first_batch, *map_batches(batch, range(1, batch_count(size_bytes)))], device, dtype)


def make_optimizer(
    workload: str, model: Model, variant: Variant, *, captured: bool
) -> tuple[torch.optim.Optimizer, Schedule | None]:
    """Return the model's own optimizer, or the workload's, fused to one kernel for many weights; and its schedule."""
    if model.optimizer is not None:
        for group in model.optimizer.param_groups:
            group.update({"capturable": captured} if captured and "capturable" in group else {})
        return model.optimizer, None
    trained = [parameter for view in model.views for parameter in view.parameters]
    if workload in RECURRENT_LAYERS:
        return torch.optim.Adam(trained, ADAM_RATE, eps=ADAM_EPSILON, fused=True, capturable=captured), None
    decay, rate = float(variant["weight_decay"]), learning_rate(variant)
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    if not isinstance(rate, Schedule):
        return torch.optim.SGD(groups, rate, MOMENTUM, fused=True), None
    # A captured step reads the rate at each replay.
    peak = torch.tensor(rate.peak, device=trained[0].device)
    return torch.optim.SGD(groups, peak, MOMENTUM, fused=True), rate


class _Answer(nn.Module):  # type: ignore[misc] # mypy knows no PyTorch
    """A model's loss, in inference its outputs, as a module for PyTorch's parallel wrappers."""

    def __init__(self, model: Model, autocast: Callable[[], Any]) -> None:
        super().__init__()
        self.model = model
        self._autocast = autocast
        self.train(model.training)

    def forward(self, *batch: Tensor) -> Tensor:
        with self._autocast():  # the threads of DataParallel do not inherit it
            return self.model.loss(*batch) if self.training else self.model(*batch)


class Step:
    """One step of a variant: eager, with compiled forward and backward pass, or captured as a whole in a CUDA graph.

    With several ranks it is one rank's part, whose gradients are averaged over all of them.
    """

    def __init__(
        self,
        workload: str,
        variant: Variant,
        model: Model,
        batches: DeviceBatches | PrefetchQueue,
        device: torch.device,
        tests: EvaluationImages | None = None,
    ) -> None:
        self.batches = batches
        self._tests = tests
        self.device = device
        self.model = model
        self._trains = self._with_gradients = variant["mode"] == "train"
        self._captures = bool(variant["cuda_graph"])
        self._dtype = DTYPES[str(variant["precision"])]
        self._graph: Any = None
        self._static: Batch | None = None
        self._result = torch.zeros([], device=device)
        self._calls = 0
        model.train(self._trains)
        self._weights = tuple(model.parameters())
        self._compiles = bool(variant["compile"])
        self._outputs: Callable[..., Tensor] = self._compiled(model.__call__)
        self._answer: Callable[..., Tensor] = self._compiled(model.loss) if self._trains else self._outputs
        if variant["all_reduce"] == DATA_PARALLEL:
            replicas = nn.DataParallel(_Answer(model, self._autocast), list(range(int(variant["gpus"]))))
            self._answer = lambda *batch: replicas(*batch).mean() if self._trains else replicas(*batch)
        self._optimizer: torch.optim.Optimizer | None = None
        self._schedule: Schedule | None = None
        if self._trains:
            self._optimizer, self._schedule = make_optimizer(workload, model, variant, captured=self._captures)
        self._steps_begun = 0
        scaled = self._trains and variant["precision"] == "float16"
        self.scaler = torch.amp.GradScaler(device.type, LOSS_SCALE, growth_interval=GOOD_STEPS, enabled=scaled)

    def _compiled(self, answer: Any) -> Any:
        return torch.compile(answer) if self._compiles else answer

    def join(self) -> None:
        """Average gradients over the ranks of the process group from now on, each batch norm by itself."""
        if not self._trains:
            return
        seed = torch.initial_seed() + dist.get_rank()  # so that each rank's dropout is different
        torch.manual_seed(seed % 2**63)
        answer = self._compiled(_Answer(self.model, self._autocast))
        # Each rank keeps its own batch-norm statistics, as TensorFlow's replicas do.
        names = [name for name, _ in answer.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(answer, names)  # noqa: SLF001
        self._answer = DistributedDataParallel(answer, gradient_as_bucket_view=True)

    def state(self) -> RankState:
        weights = (parameter for view in self.model.views for parameter in view.parameters)
        batch = tree_leaves(self.batches.first)
        limit_bytes = 0 if self.device.index is None else memory_limit_bytes(self.device.index)
        return RankState(weights=_checksum(weights), batch=_checksum(batch), memory_limit_bytes=limit_bytes)

    def __call__(self) -> Tensor:
        """Enqueue the next step and return its loss, in inference the mean of its outputs, both on the device."""
        batch = self.batches.take()
        self._set_rate()
        if not self._captures:
            return self.eager(*batch)
        if self._graph is None:
            return self._before_capture(batch)
        self._copy(batch)
        self._graph.replay()
        return self._result

    def _set_rate(self) -> None:
        """Set the next step's learning rate, ahead of the device; steps without an update count too."""
        if self._optimizer is None or self._schedule is None:
            return
        for group in self._optimizer.param_groups:
            group["lr"].fill_(self._schedule.rate(self._steps_begun))
        self._steps_begun += 1

    def eager(self, inputs: Any, targets: Any) -> Tensor:
        """Run one step operation by operation, except for compiled parts."""
        if self._optimizer is None:
            return self.infer(inputs).float().mean()
        loss = self.differentiate(inputs, targets)
        self.scaler.step(self._optimizer)
        self.scaler.update()
        return loss

    def differentiate(self, inputs: Any, targets: Any) -> Tensor:
        """Run forward and backward pass and return the loss; `scaler` scales the gradients."""
        if self._captures:
            self.model.zero_grad(set_to_none=False)
        else:
            for weight in self._weights:  # `zero_grad` visits all modules: 1 % of a step that is bound by the host
                weight.grad = None
        with self._autocast():
            loss = self._answer(inputs, targets)
        self.scaler.scale(loss).backward()
        return loss.detach()

    def differentiate_next(self) -> Tensor:
        """Differentiate the loss of the next batch, without an update, and return it."""
        return self.differentiate(*self.batches.take())

    def halve_scale(self) -> None:
        self.scaler.update(self.scaler.get_scale() / 2)

    def infer(self, inputs: Any) -> Tensor:
        with torch.set_grad_enabled(self._with_gradients), self._autocast():
            return self._answer(inputs).detach()

    def count_correct(self) -> Tensor:
        """Return how many of the rank's test images the model classifies correctly, with its current statistics."""
        assert self._tests is not None, "it trains by epochs"
        self.model.eval()
        with torch.no_grad(), self._autocast():
            count = self._tests.count_correct(self._outputs)
        self.model.train()
        return count

    def statistics(self) -> list[Tensor]:
        return self.model.statistics()

    def reuse_batches(self, reuse: bool) -> None:
        """Repeat the batches from the host that are already on the device, or continue."""
        assert isinstance(self.batches, PrefetchQueue), "else there is nothing to wait for"
        self.batches.reuse_batches(reuse)

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, self._dtype, enabled=self._dtype is not torch.float32)

    def captured(self) -> Tensor:
        assert self._static is not None, "after the first step"
        return self.eager(*self._static)

    def _before_capture(self, batch: Batch) -> Tensor:
        """Run an eager step on its own stream, as a capture requires; capture after the last of them."""
        if self._static is None:
            self._static = tree_map(torch.empty_like, batch)
        self._copy(batch)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self.eager(*self._static)
        torch.cuda.current_stream().wait_stream(stream)
        self._calls += 1
        if self._calls == EAGER_STEPS:
            graph = torch.cuda.CUDAGraph()
            # Other threads, such as the prefetch queue's, may continue meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._result = self.eager(*self._static)
            self._graph = graph
        return result

    def _copy(self, batch: Batch) -> None:
        assert self._static is not None, "made before the first step"
        for static, value in zip(tree_leaves(self._static), tree_leaves(batch), strict=True):
            static.copy_(value)


def fetch(result: Tensor) -> float:
    if result.is_cuda:
        torch.cuda.synchronize()
    return float(result)


class BlockEnds:
    """Marks ends of blocks in the queue of the current GPU, and reports their times on the GPU's clock."""

    def __init__(self) -> None:
        self._origin: torch.cuda.Event | None = None
        self._origin_ns = 0

    def mark(self, result: Tensor) -> Callable[[], tuple[int, float]]:
        """Enqueue an end after the step with this result, as `Task.mark_end` describes."""
        if self._origin is None:
            torch.cuda.synchronize()
            self._origin = torch.cuda.Event(enable_timing=True)
            self._origin.record()
            self._origin_ns = time.monotonic_ns()
        # The next step may overwrite the result, and reading it would also wait for that step.
        origin, copy = self._origin, torch.empty([], dtype=result.dtype, pin_memory=True)
        copy.copy_(result, non_blocking=True)
        end = torch.cuda.Event(enable_timing=True)
        end.record()

        def wait() -> tuple[int, float]:
            end.synchronize()
            return self._origin_ns + round(1e6 * origin.elapsed_time(end)), float(copy)

        return wait


def _checksum(tensors: Iterable[Tensor]) -> int:
    checksum = 0
    for tensor in tensors:
        # A copy gets stride 1: a dimension of size 1 counts as contiguous with any stride, which `view` refuses.
        flat = tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)
        checksum = zlib.crc32(flat.view(torch.uint8).numpy(), checksum)
    return checksum


def build_step(spec: RunSpec, device: torch.device, share: Share, stored: ImageData | None) -> Step:
    """Return a rank's part of a built-in workload's step; it must `join` any other ranks.

    Raises:
        RefusedError: The stored images do not fill a batch.
    """
    workload, variant = spec.workload, spec.variant
    replicas = int(variant["gpus"]) if variant["all_reduce"] == DATA_PARALLEL else share.ranks
    model = build_model(workload, {**variant, "batch_size": int(variant["batch_size"]) // replicas})
    if stored is not None:
        model.prepare = Preprocessing(stored.train, variant)
    model.to(device)
    if variant.get("layout") == "NHWC":
        model.to(memory_format=torch.channels_last)
    if stored is not None:
        tests = EvaluationImages(stored, variant, share, device) if variant["epochs"] else None
        return Step(workload, variant, model, training_queue(stored, variant, share, device), device, tests)
    dtype = DTYPES[str(variant["precision"])]
    batches = device_batches(
        lambda index: share.of(host_batch(workload, variant, index)), device, dtype, map_in_threads
    )
    return Step(workload, variant, model, batches, device)


def model_outputs(spec: RunSpec, weights: Sequence[Array], reference: Reference, *, device: torch.device) -> Array:
    """Return the outputs of a variant's model with saved weights for reference inputs, operation by operation."""
    plain: Variant = {"mode": "inference", "compile": False, "cuda_graph": False, "all_reduce": "nccl"}
    variant = {**spec.variant, **plain}
    model = build_model(spec.workload, variant)
    model.load(weights)
    values = torch.from_numpy(reference.model_inputs(variant))
    if variant.get("layout") == "NHWC":
        values = values.permute(0, 3, 1, 2)
        model.to(memory_format=torch.channels_last)
    inputs = values if reference.lengths is None else (values, torch.from_numpy(reference.lengths))
    batches = DeviceBatches([(inputs, ())], device, DTYPES[str(variant["precision"])])
    step = Step(spec.workload, variant, model.to(device), batches, device)
    outputs: Array = step.infer(batches.first[0]).float().cpu().numpy()
    return outputs


def task_of(step: Step, ranked: RankedStep | None, variant: Variant, **more: Any) -> Task:
    """Return the task of a step, or of all ranks if there are others; `more` has further attributes of `Task`."""
    on_gpu = step.device.type == "cuda"
    if ranked is not None:
        ranked.local = step
        more |= {"connect": ranked.connect, "close": ranked.close}
    return Task(
        step=ranked or step,
        fetch=fetch if ranked is None else lambda result: fetch(ranked.mean(result)),
        mark_end=BlockEnds().mark if on_gpu and ranked is None else None,
        examples=int(variant["batch_size"]),
        trains=variant["mode"] == "train",
        allocator_bytes=lambda: torch.cuda.memory_allocated() if on_gpu else None,
        allocator_peak_bytes=lambda: torch.cuda.max_memory_allocated() if on_gpu else None,
        **more,
    )


def build_task(spec: RunSpec, device: torch.device) -> Task:
    """Load stored data, and return a built-in workload's variant, ready to step after `connect`."""
    variant, ranks = spec.variant, rank_count(spec.variant)
    stored = stored_data(variant)
    ranked = RankedStep(spec, ranks, None) if ranks > 1 else None
    step = build_step(spec, device, Share(0, ranks), stored)
    all_ranks = ranked or step

    def values() -> Iterator[Any]:
        yield from (view.value() for view in step.model.views)
        yield from (statistic.cpu().numpy() for statistic in all_ranks.statistics())  # their mean over the ranks

    keeper = WeightsKeeper(values, partial(model_outputs, device=step.device), stored)
    keep = keeper.keep if variant["save_weights"] else do_nothing
    more: dict[str, Any] = {"keep_weights": keep, "save_weights": keeper.save}
    if stored is not None:
        steps, count = epoch_steps(stored, variant), len(stored.test.classes)
        passes = Passes(steps=steps, accuracy=lambda: fetch(all_ranks.count_correct()) / count)
        more |= {"reuse_batches": all_ranks.reuse_batches, "passes": passes if variant["epochs"] else None}
    return task_of(step, ranked, variant, **more)
