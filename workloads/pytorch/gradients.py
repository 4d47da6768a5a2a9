"""Loss and gradients of a first step in PyTorch, or its outputs: what variants that compute the same agree in.

The step is the one that is measured, with precision, layout and compiler; only its optimizer changes nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from workloads.catalog import is_custom
from workloads.errors import RefusedError
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec
from workloads.pytorch.custom import CustomStep, CustomWorkload
from workloads.pytorch.models import Model, build_model
from workloads.pytorch.ranks import RankedStep, Share, rank_count
from workloads.pytorch.steps import DTYPES, Batch, DeviceBatches, Step, host_batch
from workloads.seeding import Weight
from workloads.training import give_up
from workloads.weights import moments, read_start, write_gradients

_MAX_ROUNDS = 16
"""So often float16 may halve the scale of its loss, from 2^15, until every gradient is finite."""


def compute_gradients(request: ComputeGradients, device: torch.device) -> ComputedGradients:
    """Make the step on one batch, part by part, and write what it computed.

    Raises:
        RefusedError: The weights are not of the shapes of those to start from, or the gradients are not finite.
    """
    variant = request.spec.variant
    trains = variant["mode"] == "train"
    ranks = rank_count(variant) if trains else 1
    ranked = RankedStep(request.spec, ranks, request.source, request) if ranks > 1 else None
    step, start, batch = parted_step(request, device, Share(0, ranks))
    if ranked is not None:
        ranked.local = step
        ranked.connect(give_up)
    if trains:
        names = [view.name for view in step.model.views]
        gradients, losses = _gradients(step, ranked or step, request.parts)
    else:
        names, losses = ["outputs"], ()
        outputs = [step.infer(step.batches.take()[0]).float().cpu().numpy() for _ in range(request.parts)]
        gradients = [np.concatenate(outputs)]
    if ranked is not None:
        ranked.close()
    write_gradients(request.path, names, gradients, start)
    return ComputedGradients(losses=losses, batch=moments(part.numpy() for part in tree_leaves(batch)))


def parted_step(request: ComputeGradients, device: torch.device, share: Share) -> tuple[Step, list[Weight], Batch]:
    """Return a rank's part of the step on parts of a batch, the seed's weights if it starts from these, and the batch.

    Raises:
        RefusedError: The weights are not of the shapes of those to start from.
    """
    workload, variant = request.spec.workload, request.spec.variant
    size = int(variant["batch_size"]) // request.parts
    part = {**variant, "batch_size": size, "cuda_graph": False}

    def parts_of(batch: Batch) -> Iterator[Batch]:
        return (share.of(Share(number, request.parts).of(batch)) for number in range(request.parts))

    if is_custom(workload):
        custom = CustomWorkload(request.spec, request.source, device)
        start, batch = _start_weights(custom.model, request.start_path), custom.batch(0)
        spec = RunSpec(workload=workload, variant=part)
        return CustomStep(custom, spec, DeviceBatches(parts_of(batch), device), device), start, batch
    model = build_model(workload, part)
    start, batch = _start_weights(model, request.start_path), host_batch(workload, variant, 0)
    model.to(device)
    if variant.get("layout") == "NHWC":
        model.to(memory_format=torch.channels_last)
    batches = DeviceBatches(parts_of(batch), device, DTYPES[str(variant["precision"])])
    return Step(workload, part, model, batches, device), start, batch


def _start_weights(model: Model, path: str | None) -> list[Weight]:
    """Assign another variant's weights, or return those of the seed where there are none."""
    values = [view.value() for view in model.views]
    if path is None:
        return values
    for view, value in zip(model.views, read_start(path, [value.shape for value in values]), strict=True):
        view.assign(value)
    return []


def _gradients(step: Step, all_ranks: Step | RankedStep, parts: int) -> tuple[list[Weight], tuple[float, ...]]:
    """Return the mean gradients of the parts, and the mean loss twice; `step` is the part of this rank of the whole."""
    for _ in range(_MAX_ROUNDS):
        losses, of_parts = [], []
        for _ in range(parts):
            losses.append(float(all_ranks.differentiate_next()))
            scale = step.scaler.get_scale()
            of_parts.append([view.gradient() / scale for view in step.model.views])
        if all(np.isfinite(gradient).all() for gradients in of_parts for gradient in gradients):
            break
        all_ranks.halve_scale()
    else:
        raise RefusedError("its gradients are not finite")
    again = [float(all_ranks.differentiate_next()) for _ in range(parts)]
    mean = [np.mean(of_weight, axis=0) for of_weight in zip(*of_parts, strict=True)]
    return mean, (float(np.mean(losses)), float(np.mean(again)))
