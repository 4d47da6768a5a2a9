"""A few steps of a small variant on the CPU in this process, and the evidence of what they ran."""

from workloads.catalog import Machine, complete
from workloads.protocol import Evidence, RunSpec, Value, Variant
from workloads.runtime import Replicas

SMALL: dict[str, dict[str, Value]] = {
    "lstm": {"units": 8, "timesteps": 6, "features": 4, "layers": 2},
    "cnn10": {"channels": 4},
    "wrn28-10": {"depth": 10, "widen": 1},
}


def spec_of(workload: str, **given: Value) -> RunSpec:
    """The complete spec of a variant that takes milliseconds."""
    return complete(workload, {"gpus": 0, "batch_size": 8, **SMALL[workload], **given}, Machine(cpu_count=2))


def witnessed(spec: RunSpec, replicas: Replicas, *, really: Variant | None = None, steps: bool = False) -> Evidence:
    """The evidence of a run of `spec`; `really` is what its step truly computes; `steps`: traced too."""
    from workloads.build import recipe_of
    from workloads.evidence.witness import Witness
    from workloads.steps import build_task

    ran = {**spec.variant, **(really or {})}
    task = build_task(recipe_of(spec.workload)(ran), ran, replicas)
    witness = Witness(spec, task)
    assert witness.evidence() is None, "nothing is known before the first step"
    witness.start()
    task.fetch(task.step())
    witness.first_step_done()
    if steps:
        witness.trace()
    found = witness.evidence()
    assert found is not None
    return found
