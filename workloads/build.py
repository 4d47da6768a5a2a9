"""Turns a run spec into a task, in the steps that a worker reports as phases: approve, import, build."""

import os
from collections.abc import Sequence

from workloads import catalog, dummy
from workloads.backend import backend_of
from workloads.errors import RefusedError
from workloads.machine import Gpu, Machine
from workloads.protocol import RunSpec, Source
from workloads.training import Task


def machine_of(gpu_uuids: Sequence[str]) -> Machine:
    """Return what a worker knows of this machine: the UUIDs of its GPUs."""
    gpus = tuple(Gpu(index=index, uuid=uuid, name="") for index, uuid in enumerate(gpu_uuids))
    return Machine(gpus=gpus, cpu_count=os.cpu_count() or 1)


def approve(spec: RunSpec, gpu_uuids: Sequence[str]) -> RunSpec:
    """Return the complete spec if it can run on these GPUs and its data are there; raises `RefusedError`.

    The lease already chose the GPUs, so `devices` is not looked up again.
    """
    machine = machine_of(gpu_uuids)
    try:
        is_users = catalog.is_custom(spec.workload) or catalog.is_script(spec.workload)
        full = spec if is_users else catalog.complete(spec.workload, spec.variant, machine)
    except catalog.UsageError as error:
        raise RefusedError(str(error)) from error
    any_device = RunSpec(workload=full.workload, variant={**full.variant, "devices": ""})
    for refusal in catalog.check(any_device, machine):
        raise RefusedError(refusal.reason)
    return full


def import_libraries(spec: RunSpec, gpu_uuids: Sequence[str]) -> dict[str, str]:
    """Import what the workload needs, seeing only these GPUs, and return its environment; raises `RefusedError`."""
    backend = backend_of(spec)
    return {} if backend is None else backend.import_framework(gpu_uuids, float(spec.variant["memory_limit"]))


def build(spec: RunSpec, source: Source | None = None) -> Task:
    """Return the variant ready to step; after `import_libraries`.

    The spec is complete. Errors in a custom workload's own source pass unchanged.

    Raises:
        RefusedError: The variant's data cannot be used.
    """
    backend = backend_of(spec)
    return dummy.task(spec.variant) if backend is None else backend.build_task(spec, source)
