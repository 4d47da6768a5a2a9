"""From a spec to a task, in the steps a worker reports as phases; TensorFlow is imported when it is needed."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workloads import catalog, cifar10
from workloads.errors import RefusedError
from workloads.protocol import RunSpec, Source, Variant
from workloads.schema import Gpu, Machine
from workloads.tensorflow import runtime
from workloads.training import Task

if TYPE_CHECKING:
    from workloads.tensorflow.evidence.collector import EvidenceCollector
    from workloads.tensorflow.recipe import Recipe


def approve(spec: RunSpec, gpu_uuids: Sequence[str]) -> RunSpec:
    """The complete spec, if it can run on the GPUs given and its data are there; raises `RefusedError`.

    Which GPUs those are was settled by whoever gave them, so `devices` is not looked up again.
    """
    gpus = tuple(Gpu(index=index, uuid=uuid, name="") for index, uuid in enumerate(gpu_uuids))
    machine = Machine(gpus=gpus, cpu_count=os.cpu_count() or 1)
    try:
        full = spec if catalog.is_custom(spec.workload) else catalog.complete(spec.workload, spec.variant, machine)
    except catalog.UsageError as error:
        raise RefusedError(str(error)) from error
    any_device = RunSpec(workload=full.workload, variant={**full.variant, "devices": ""})
    for refusal in catalog.check(any_device, machine):
        raise RefusedError(refusal.reason)
    if full.variant.get("data") == "cifar10":
        cifar10.find(cifar10.data_folder(str(full.variant["data_folder"])))
    return full


def needs_tensorflow(spec: RunSpec) -> bool:
    """Whether this workload computes with TensorFlow."""
    return spec.workload != "dummy"


def import_libraries(spec: RunSpec, gpu_uuids: Sequence[str]) -> dict[str, str]:
    """Import what the workload needs, seeing these GPUs only, and return the facts of it; raises `RefusedError`."""
    if not needs_tensorflow(spec):
        return {}
    runtime.prepare_environment(gpu_uuids)
    runtime.import_tensorflow(int(spec.variant["gpus"]))
    return runtime.environment_info()


def build(spec: RunSpec, source: Source | None = None) -> Task:
    """The variant, ready to step; after `import_for`. Raises `RefusedError` where its data cannot be used.

    A user's own workload is in `source`; errors of theirs are raised as they come.
    """
    if not needs_tensorflow(spec):
        from workloads import dummy

        return dummy.task(spec.variant)
    from workloads.tensorflow.steps import build_task

    stored = stored_data(spec.variant)
    replicas = runtime.configure(spec.variant)
    return build_task(_recipe(spec, source), spec.variant, replicas, stored)


def _recipe(spec: RunSpec, source: Source | None) -> "Recipe":
    if not catalog.is_custom(spec.workload):
        return recipe_of(spec.workload)(spec.variant)
    if source is None:
        raise RefusedError(f"The file of {spec.workload} did not come with the order to run it.")
    from workloads.tensorflow.custom import custom_recipe

    return custom_recipe(spec, source)


def stored_data(variant: Variant) -> cifar10.Cifar10 | None:
    """The data a variant takes from a copy on this machine; None where its data are made."""
    if variant.get("data") != "cifar10":
        return None
    return cifar10.load(cifar10.data_folder(str(variant["data_folder"])))


def make_collector(spec: RunSpec, task: Task) -> "EvidenceCollector | None":
    """Who watches what the task really runs; None where nobody is to, or nothing is computed."""
    if not needs_tensorflow(spec) or spec.variant["evidence"] == "off":
        return None
    from workloads.tensorflow.evidence.collector import EvidenceCollector

    return EvidenceCollector(spec, task)


def recipe_of(workload: str) -> "Callable[[Variant], Recipe]":
    """The function that gives a workload's recipe for a variant."""
    if workload == "lstm":
        from workloads.tensorflow.lstm import model

        return model.recipe
    from workloads.tensorflow.cnn.model import recipe_of as cnn_recipe_of

    return cnn_recipe_of(workload)
