"""A custom workload in PyTorch: the user's module, loss, data and optimizer, checked, as a model and its task."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from workloads.custom.evidence import LAYOUTS, checksums, count_distinct, listed, sample_stride
from workloads.custom.function import UserFunction, batch_parts
from workloads.errors import CustomWorkloadError
from workloads.protocol import RunSpec, Source, Variant
from workloads.pytorch.models import Model, WeightView
from workloads.pytorch.ranks import RankedStep, Share, rank_count
from workloads.pytorch.steps import Batch, DeviceBatches, Step, device_batches, fetch, task_of
from workloads.pytorch.trace import layout_of
from workloads.training import Inspection, Layer, Task

_ADAM_RATE, _ADAM_EPSILON = 0.001, 1e-7


class CustomModel(Model):
    """The user's module with its loss; a tuple of inputs is its arguments, a dict its keyword arguments."""

    def __init__(self, module: nn.Module, loss: Callable[..., Any] | None) -> None:
        super().__init__()
        self.module = module
        self._loss = loss
        self.views = [
            WeightView(name, (parameter,), lambda value: value, lambda value: (value,))
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        ]

    def without_gradient(self) -> list[str]:
        """Return the names of the trained weights on which the last loss did not depend."""
        return [view.name for view in self.views if view.parameters[0].grad is None]

    def answer(self, inputs: Any) -> Any:
        """Return what the module gives for inputs."""
        if isinstance(inputs, dict):
            return self.module(**inputs)
        return self.module(*inputs) if isinstance(inputs, tuple | list) else self.module(inputs)

    def forward(self, inputs: Any) -> Tensor:
        """Return the outputs; of a module with several, the mean of each."""
        outputs = _tensors(self.answer(inputs))
        if not outputs:
            raise TypeError("the model gives no tensor")
        return outputs[0] if len(outputs) == 1 else torch.stack([output.float().mean() for output in outputs])

    def loss(self, inputs: Any, targets: Any) -> Tensor:
        """Return the loss of the user's function, else what the module gives, or has as its `loss`."""
        outputs = self.answer(inputs)
        loss = getattr(outputs, "loss", outputs) if self._loss is None else self._loss(outputs, targets)
        source = "the model, without a loss," if self._loss is None else "the loss"
        if not isinstance(loss, Tensor):
            raise TypeError(f"{source} gives {type(loss).__name__}, and should give a tensor of one number")
        if loss.numel() != 1:
            raise TypeError(f"{source} gives a tensor of shape {tuple(loss.shape)}, and should give one number")
        if not loss.requires_grad:
            raise TypeError(f"{source} gives a number that depends on no trained weight")
        return loss.float().reshape(())


def _tensors(nest: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]


class CustomWorkload:
    """One call of the user's function: the model on the device, and its batches on the host."""

    def __init__(self, spec: RunSpec, source: Source | None, device: torch.device) -> None:
        """Run the file; raises `CustomWorkloadError` and whatever the file raises."""
        self.function = UserFunction(spec, source)
        module, loss, self._batch, optimizer = self.function.call(nn.Module, "nn.Module of PyTorch")
        self._trains = spec.variant["mode"] == "train"
        self._has_loss = loss is not None
        if loss is not None and (isinstance(loss, type) or not callable(loss)):
            raise CustomWorkloadError(
                f"{self.function.location}: {loss!r} is no loss of PyTorch; give a function of (outputs, targets), "
                "such as nn.CrossEntropyLoss(), or None if the model gives its loss itself."
            )
        if any(map(is_lazy, module.parameters())):
            raise CustomWorkloadError(
                f"{self.function.location}: the model has lazy layers without sizes; call it before you return it."
            )
        with self.function.attribute_errors():
            self.model = CustomModel(module, loss).to(device)
        if self._trains and not self.model.views:
            raise CustomWorkloadError(
                f"{self.function.location}: the model has no trainable weights; choose mode=inference, or make a layer "
                "trainable."
            )
        self.model.optimizer = self._check_optimizer(optimizer) if self._trains else None

    def _check_optimizer(self, optimizer: Any) -> torch.optim.Optimizer:
        trained = [parameter for view in self.model.views for parameter in view.parameters]
        if optimizer is None:
            return torch.optim.Adam(trained, _ADAM_RATE, eps=_ADAM_EPSILON, fused=True)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise CustomWorkloadError(
                f"{self.function.location}: {optimizer!r} is no optimizer of PyTorch, such as "
                "torch.optim.SGD(model.parameters(), 0.1)."
            )
        if {id(weight) for group in optimizer.param_groups for weight in group["params"]}.isdisjoint(map(id, trained)):
            raise CustomWorkloadError(
                f"{self.function.location}: the optimizer has none of the model's weights; give it model.parameters()."
            )
        return optimizer

    def batch(self, index: int) -> Batch:
        """Return inputs and targets, `()` for no targets, after a check of their sizes."""
        with self.function.attribute_errors():
            inputs, targets = batch_parts(self._batch(index), "(x, y)")
            if self._trains and self._has_loss is (targets is None):
                raise TypeError(
                    "batch gives no targets, which the loss needs; give (x, y), or None in place of the loss if the "
                    "model gives it itself"
                    if targets is None
                    else "batch gives targets, and there is no loss that takes them; give (x, None), or a loss"
                )
            batch: Batch = tree_map(_to_tensor, (inputs, () if targets is None else targets))
            self.function.check_batch(tree_leaves(batch), index)
        return batch


def _to_tensor(value: Any) -> Tensor:
    """Return a copy on the host, its strides as they are; numbers of 64 bits become PyTorch's own type of 32."""
    if value is None:
        raise TypeError("batch gives None among its arrays; targets can be None as a whole only")
    tensor = value.detach().cpu().clone() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    if tensor.layout is not torch.strided:
        raise TypeError("batch gives a sparse tensor; make a dense one of it, by .to_dense()")
    if tensor.is_complex():
        raise TypeError(f"batch gives {tensor.dtype} values, and a model takes real numbers")
    if tensor.is_floating_point():
        return tensor.to(torch.get_default_dtype())
    return tensor.long() if tensor.dtype is torch.int32 else tensor


class CustomStep(Step):
    """The step of a custom workload: its errors are those of the user's function, and its last loss is kept."""

    model: CustomModel
    batches: DeviceBatches

    def __init__(self, custom: CustomWorkload, spec: RunSpec, batches: DeviceBatches, device: torch.device) -> None:
        self._function = custom.function
        self._answers = custom.model.answer
        with self._function.attribute_errors():
            super().__init__(spec.workload, spec.variant, custom.model, batches, device)
        self.last = torch.zeros([])
        self._checks_gradients = False

    def join(self) -> None:
        """Average gradients over the ranks, whose models have to be alike; raises `CustomWorkloadError`."""
        with self._function.attribute_errors():
            super().join()
        self._checks_gradients = self._trains

    def differentiate(self, inputs: Any, targets: Any) -> Tensor:
        """Make both passes; raises `CustomWorkloadError` where ranks would wait for a gradient that there is not."""
        try:
            loss = super().differentiate(inputs, targets)
        except RuntimeError as error:
            if "not used in producing loss" not in str(error):
                raise
            raise self._unused_error("each weight in each step") from error
        if self._checks_gradients and (names := self.model.without_gradient()):
            raise self._unused_error(listed(names))
        self._checks_gradients = False
        return loss

    def _unused_error(self, what: str) -> CustomWorkloadError:
        return CustomWorkloadError(
            f"{self._function.location}: The loss does not depend on {what}, and DistributedDataParallel waits for all "
            "gradients; freeze such weights, or use all_reduce=data_parallel."
        )

    def __call__(self) -> Tensor:
        """Make a step; raises `CustomWorkloadError`."""
        with self._function.attribute_errors():
            self.last = super().__call__()
        return self.last

    def answers(self, inputs: Any, *, training: bool) -> list[Tensor]:
        """Return each output of the user's module, computed operation by operation."""
        self.model.train(training)
        for layer in self.model.modules():
            if isinstance(layer, nn.SyncBatchNorm):
                layer.eval()  # else it waits for other ranks
        with torch.no_grad(), self._autocast():
            outputs = self._answers(inputs)
        self.model.train(self._trains)
        return _tensors(outputs)


def build_custom_step(spec: RunSpec, source: Source | None, device: torch.device, share: Share) -> CustomStep:
    """Return a rank's part of the step of a user's function; raises like `build_custom_task`."""
    custom = CustomWorkload(spec, source, device)
    batches = device_batches(lambda index: share.of(custom.batch(index)), device)
    return CustomStep(custom, spec, batches, device)


def build_custom_task(spec: RunSpec, source: Source | None, device: torch.device) -> Task:
    """Return the task of a user's function; raises `CustomWorkloadError` and whatever the file raises."""
    ranks = rank_count(spec.variant)
    ranked = RankedStep(spec, ranks, source) if ranks > 1 else None
    step = build_custom_step(spec, source, device, Share(0, ranks))
    layers = [_describe(name, module) for name, module in _leaves(step.model.module)]
    inspection = _inspection(step, spec.variant)
    return task_of(step, ranked, spec.variant, layers=tuple(layers), inspection=inspection)


def _leaves(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that have no others in them, by name."""
    for name, layer in module.named_modules():
        if next(layer.children(), None) is None:
            yield name, layer


def _describe(name: str, module: nn.Module, inputs: Sequence[Any] = ()) -> Layer:
    images = next((value for value in inputs if isinstance(value, Tensor) and value.ndim == 4), None)
    layout = "" if images is None else layout_of(images.shape, images.stride())
    recurrent = isinstance(module, nn.RNNBase | nn.RNNCellBase)
    return Layer(name=name, kind=type(module).__name__, layout=LAYOUTS.get(layout.lower(), ""), recurrent=recurrent)


def _inspection(step: CustomStep, variant: Variant) -> Inspection:
    layers: dict[str, Layer] = {}
    model = step.model

    def distinct() -> tuple[int, int, int]:
        inputs, _ = step.batches.take()
        modes = {False, variant["mode"] == "train"}
        with _watched(model.module, layers):
            outputs = [[_sample(output) for output in step.answers(inputs, training=mode)] for mode in modes]
        return count_distinct((tensor.cpu().numpy() for tensor in tree_leaves(inputs)), outputs)

    return Inspection(
        eager_steps=lambda: 0,
        loss=lambda: fetch(step.last),
        checksums=lambda: checksums((view.name, view.value()) for view in model.views),
        without_gradient=model.without_gradient,
        count_distinct=distinct,
        layers=lambda: tuple(layers.values()),
    )


@contextmanager
def _watched(module: nn.Module, layers: dict[str, Layer]) -> Iterator[None]:
    """Record each layer with the layout of the images that it gets."""

    def watch(name: str) -> Callable[[nn.Module, Any], None]:
        def record(layer: nn.Module, inputs: Any) -> None:
            layers[name] = _describe(name, layer, inputs)

        return record

    handles = [layer.register_forward_pre_hook(watch(name)) for name, layer in _leaves(module)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _sample(output: Tensor) -> Any:
    """Return some numbers of each row, in float64; as it is where it has no rows."""
    if not output.ndim:
        return output.cpu().numpy()
    rows = output.reshape(len(output), -1)
    return rows[:, :: sample_stride(rows.shape[1])].double().cpu().numpy()
