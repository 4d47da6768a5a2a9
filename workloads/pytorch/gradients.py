"""Loss and gradients of a first step in PyTorch, or its outputs, in which equivalent variants agree.

It is the measured step, with precision, layout and compiler, except that the optimizer changes nothing.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from workloads.catalog import is_custom
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec
from workloads.pytorch.custom import CustomStep, CustomWorkload
from workloads.pytorch.models import Model, build_model
from workloads.pytorch.ranks import RankedStep, Share, rank_count
from workloads.pytorch.steps import DTYPES, Batch, DeviceBatches, Step, host_batch
from workloads.seeding import Weight
from workloads.training import give_up
from workloads.weights import mean_gradients, moments, read_start, write_gradients


def compute_gradients(request: ComputeGradients, device: torch.device) -> ComputedGradients:
    """Run the step on one batch, part by part, and write the results.

    Raises:
        RefusedError: The weights to start from have other shapes, or gradients are not finite.
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
        all_ranks = ranked or step

        def differentiate() -> tuple[float, list[Weight]]:
            loss, scale = float(all_ranks.differentiate_next()), step.scaler.get_scale()
            return loss, [view.gradient() / scale for view in step.model.views]

        gradients, losses = mean_gradients(differentiate, request.parts, all_ranks.halve_scale)
    else:
        names, losses = ["outputs"], ()
        outputs = [step.infer(step.batches.take()[0]).float().cpu().numpy() for _ in range(request.parts)]
        gradients = [np.concatenate(outputs)]
    if ranked is not None:
        ranked.close()
    write_gradients(request.path, names, gradients, start)
    return ComputedGradients(losses=losses, batch=moments(tensor.double().numpy() for tensor in tree_leaves(batch)))


def parted_step(request: ComputeGradients, device: torch.device, share: Share) -> tuple[Step, list[Weight], Batch]:
    """Return a rank's step on parts of a batch, the seed's weights if it starts from these, and the batch.

    Raises:
        RefusedError: The weights to start from have other shapes.
    """
    workload, variant = request.spec.workload, request.spec.variant
    size = int(variant["batch_size"]) // request.parts
    part_variant = {**variant, "batch_size": size, "cuda_graph": False}

    def parts_of(batch: Batch) -> Iterator[Batch]:
        return (share.of(Share(number, request.parts).of(batch)) for number in range(request.parts))

    if is_custom(workload):
        custom = CustomWorkload(request.spec, request.source, device)
        start, batch = _start_weights(custom.model, request.start_path), custom.batch(0)
        spec = RunSpec(workload=workload, variant=part_variant)
        return CustomStep(custom, spec, DeviceBatches(parts_of(batch), device), device), start, batch
    model = build_model(workload, part_variant)
    start, batch = _start_weights(model, request.start_path), host_batch(workload, variant, 0)
    model.to(device)
    if variant.get("layout") == "NHWC":
        model.to(memory_format=torch.channels_last)
    batches = DeviceBatches(parts_of(batch), device, DTYPES[str(variant["precision"])])
    return Step(workload, part_variant, model, batches, device), start, batch


def _start_weights(model: Model, path: str | None) -> list[Weight]:
    """Assign another variant's weights; without them, return the seed's."""
    values = [view.value() for view in model.views]
    if path is None:
        return values
    for view, value in zip(model.views, read_start(path, [value.shape for value in values]), strict=True):
        view.assign(value)
    return []
