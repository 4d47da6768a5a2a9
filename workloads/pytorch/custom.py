"""A custom workload in PyTorch: the user's module, loss, data and optimizer, checked and built into a task."""

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from workloads.custom.evidence import LAYOUTS, checksums, count_distinct, listed, name_frozen, sample_stride
from workloads.custom.function import UserFunction, batch_parts
from workloads.errors import CustomWorkloadError, describe_value
from workloads.protocol import RunSpec, Source, Variant
from workloads.pytorch.models import Model, WeightView
from workloads.pytorch.ranks import RankedStep, Share, rank_count
from workloads.pytorch.steps import Batch, DeviceBatches, Step, device_batches, fetch, task_of
from workloads.pytorch.trace import layout_of
from workloads.training import Inspection, Layer, Task

_ADAM_RATE, _ADAM_EPSILON = 0.001, 1e-7


class CustomModel(Model):
    """The user's module with its loss; a tuple of inputs becomes its arguments, a dict its keyword arguments."""

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
        if isinstance(inputs, dict):
            return self.module(**inputs)
        return self.module(*inputs) if isinstance(inputs, tuple | list) else self.module(inputs)

    def forward(self, inputs: Any) -> Tensor:
        """Return the outputs; for a module with several outputs, the mean of each."""
        outputs = _tensors(self.answer(inputs))
        if not outputs:
            raise TypeError("the model returns no tensor")
        return outputs[0] if len(outputs) == 1 else torch.stack([output.float().mean() for output in outputs])

    def loss(self, inputs: Any, targets: Any) -> Tensor:
        """Return the loss of the user's function, else the module's result or its `loss`."""
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
    """Return the tensors in nested containers, and in dataclasses, into which PyTorch does not look."""
    tensors = []
    for leaf in tree_leaves(nest):
        tensors += _tensors(vars(leaf)) if is_dataclass(leaf) else [leaf] if isinstance(leaf, Tensor) else []
    return tensors


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
                f"{self.function.location}: {describe_value(loss)} is not a loss of PyTorch; give a function of "
                "(outputs, targets), such as nn.CrossEntropyLoss(), or None if the model gives its loss itself."
            )
        if any(map(is_lazy, module.parameters())):
            raise CustomWorkloadError(
                f"{self.function.location}: the model has lazy layers without sizes; call it before you return it."
            )
        with self.function.attribute_errors():
            self.model = CustomModel(module, loss).to(device)
        types = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
        self._float_type = next(types, torch.get_default_dtype())
        if self._trains and not self.model.views:
            raise CustomWorkloadError(
                f"{self.function.location}: the model has no trainable weights; choose mode=inference, or make a layer "
                "trainable."
            )
        self.model.optimizer = self._check_optimizer(optimizer) if self._trains else None

    def _check_optimizer(self, optimizer: Any) -> torch.optim.Optimizer:
        trained = [parameter for view in self.model.views for parameter in view.parameters]
        if optimizer is None:
            fused = all(map(torch.is_floating_point, trained))  # which complex numbers cannot be
            return torch.optim.Adam(trained, _ADAM_RATE, eps=_ADAM_EPSILON, fused=fused)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise CustomWorkloadError(
                f"{self.function.location}: {describe_value(optimizer)} is not an optimizer of PyTorch; give one of "
                "all weights, such as torch.optim.SGD(model.parameters(), 0.1)."
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
                    "batch returns no targets, which the loss needs; give (x, y), or None instead of the loss if the "
                    "model gives it itself"
                    if targets is None
                    else "batch returns targets, and there is no loss that takes them; give (x, None), or a loss"
                )
            batch: Batch = tree_map(self._to_tensor, (inputs, () if targets is None else targets))
            self.function.check_batch(tree_leaves(batch), index)
        return batch

    def _to_tensor(self, value: Any) -> Tensor:
        """Return a copy on the host with the same strides.

        A tensor keeps its type. In arrays, float64, NumPy's default, becomes the weights' type, and int32 becomes
        int64.
        """
        if value is None:
            raise TypeError("batch returns None among its arrays; targets can be None as a whole only")
        if isinstance(value, Tensor):
            tensor = value.detach().cpu().clone()
        else:  # a file's bytes may be in the other order, which NumPy computes with
            array = np.asarray(value)
            tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
        if tensor.is_nested:
            raise TypeError("batch returns a nested tensor; convert it with .to_padded_tensor(0.0)")
        if tensor.layout is not torch.strided:
            raise TypeError("batch returns a sparse tensor; convert it with .to_dense()")
        if tensor.is_complex():
            raise TypeError(f"batch returns {tensor.dtype} values, and a model takes real numbers")
        types = {} if isinstance(value, Tensor) else {torch.float64: self._float_type, torch.int32: torch.int64}
        return tensor.to(types.get(tensor.dtype, tensor.dtype))


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
        """Average gradients over the ranks, whose models must be alike; raises `CustomWorkloadError`."""
        with self._function.attribute_errors():
            super().join()
        self._checks_gradients = self._trains

    def differentiate(self, inputs: Any, targets: Any) -> Tensor:
        """Run both passes; raises `CustomWorkloadError` if ranks would wait for a gradient that does not exist."""
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
        """Run a step; raises `CustomWorkloadError`."""
        with self._function.attribute_errors():
            self.last = super().__call__()
        return self.last

    def infer(self, inputs: Any) -> Tensor:
        """Return the outputs of a batch in inference; gradients are enabled if the module itself differentiates."""
        try:
            return super().infer(inputs)
        except RuntimeError as error:
            if self._with_gradients or "does not require grad" not in str(error):
                raise
        self._with_gradients = True
        print("The model differentiates in its forward pass, so inference keeps gradients.", flush=True)  # noqa: T201
        return super().infer(inputs)

    def answers(self, inputs: Any, *, noise: bool) -> list[Tensor]:
        """Return each output of the user's module as steps compute it, but operation by operation.

        Modules stay in the mode in which the steps left them. Without `noise`, those that keep no statistics are in
        evaluation mode, so that dropout does not make outputs differ.
        """
        modes = {module: module.training for module in self.model.modules()}
        for module in modes:
            keeps = next(module.buffers(recurse=False), None) is not None
            if isinstance(module, nn.SyncBatchNorm) or not (noise or keeps):  # the first would wait for other ranks
                module.training = False
        with torch.set_grad_enabled(self._with_gradients), self._autocast():
            outputs = self._answers(inputs)
        for module, training in modes.items():
            module.training = training
        return [output.detach() for output in _tensors(outputs)]


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
    layers = tuple(_describe(name, module) for name, module in step.model.module.named_modules())
    return task_of(step, ranked, spec.variant, layers=layers, inspection=_inspection(step, spec.variant))


def _describe(name: str, module: nn.Module, inputs: Sequence[Any] = ()) -> Layer:
    images = next((value for value in inputs if isinstance(value, Tensor) and value.ndim == 4), None)
    is_layer = next(module.children(), None) is None
    layout = layout_of(images.shape, images.stride()) if images is not None and is_layer else ""
    return Layer(
        name=name,
        kind=type(module).__name__,
        layout=LAYOUTS.get(layout.lower(), ""),
        recurrent=isinstance(module, nn.RNNBase | nn.RNNCellBase),
        training=None if isinstance(module, nn.SyncBatchNorm) else module.training,  # `answers` sets its mode
    )


def _inspection(step: CustomStep, variant: Variant) -> Inspection:
    layers: dict[str, Layer] = {}
    model = step.model
    names = {module: name for name, module in model.module.named_modules()}

    def record(module: nn.Module, inputs: Sequence[Any]) -> None:
        if module in names:
            layers[names[module]] = _describe(names[module], module, inputs)

    def distinct() -> tuple[int, int, int]:
        inputs, _ = step.batches.take()
        with register_module_forward_pre_hook(record):  # modules of TorchScript take no hooks
            outputs = [step.answers(inputs, noise=True)]
        if variant["mode"] == "train":
            outputs.append(step.answers(inputs, noise=False))
        return count_distinct(map(_numbers, tree_leaves(inputs)), [list(map(_sample, several)) for several in outputs])

    return Inspection(
        eager_steps=lambda: 0,
        loss=lambda: fetch(step.last),
        checksums=lambda: checksums((view.name, view.value()) for view in model.views),
        without_gradient=model.without_gradient,
        count_distinct=distinct,
        frozen=lambda: name_frozen((weight.numel(), weight.requires_grad) for weight in model.module.parameters()),
        layers=lambda: tuple(layers.values()),
    )


def _numbers(tensor: Tensor) -> Any:
    """Return a tensor as an array; floating-point numbers become float64, because NumPy has no bfloat16."""
    values = tensor.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def _sample(output: Tensor) -> Any:
    """Return some numbers of each row, in float64; an output without rows unchanged."""
    if not output.ndim:
        return _numbers(output)
    rows = output.reshape(len(output), -1)
    return _numbers(rows[:, :: sample_stride(rows.shape[1])].double())
