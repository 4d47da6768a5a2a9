"""Run a few steps of a small variant on the CPU in this process, and collect their evidence."""

import copy
import functools
from typing import TYPE_CHECKING

from workloads.catalog import Machine, complete
from workloads.protocol import Evidence, RunSpec, Source, Value, Variant
from workloads.tensorflow.runtime import Replicas

if TYPE_CHECKING:
    from workloads.tensorflow.evidence.collector import EvidenceCollector

Settings = tuple[tuple[str, Value], ...]

SMALL: dict[str, dict[str, Value]] = {
    "lstm": {"units": 8, "timesteps": 6, "features": 4, "layers": 2},
    "gru": {"units": 8, "timesteps": 6, "features": 4, "layers": 2},
    "cnn10": {"channels": 4},
    "wrn28-10": {"depth": 10, "widen": 1},
}


def spec_of(workload: str, **settings: Value) -> RunSpec:
    """Return the complete spec of a variant whose steps take milliseconds."""
    return complete(workload, {"gpus": 0, "batch_size": 8, **SMALL[workload], **settings}, Machine(cpu_count=2))


def collect_evidence(
    spec: RunSpec,
    replicas: Replicas,
    *,
    really: Variant | None = None,
    steps: bool = False,
    source: Source | None = None,
) -> Evidence:
    """Return the evidence of a run; what runs that do the same have executed is observed once.

    Args:
        spec: The requested spec.
        replicas: Its replicas.
        really: Values of the variant that the step really has.
        steps: Whether steps are traced too.
        source: The file of a custom workload.
    """
    actual = {**spec.variant, **(really or {})}
    observed = _traced if steps else _started
    collector = copy.copy(observed(spec.workload, tuple(actual.items()), replicas, source))
    collector._spec = spec
    found = collector.evidence()
    assert found is not None
    return found


@functools.cache
def _traced(workload: str, settings: Settings, replicas: Replicas, source: Source | None) -> "EvidenceCollector":
    """Run steps of a variant under the profiler, too."""
    collector = copy.copy(_started(workload, settings, replicas, source))
    collector.trace()
    return collector


@functools.cache
def _started(workload: str, settings: Settings, replicas: Replicas, source: Source | None) -> "EvidenceCollector":
    """Run the first two steps of a variant."""
    from workloads.tensorflow.backend import recipe_of
    from workloads.tensorflow.custom import custom_recipe
    from workloads.tensorflow.evidence.collector import EvidenceCollector
    from workloads.tensorflow.steps import build_task

    spec = RunSpec(workload=workload, variant=dict(settings))
    recipe = custom_recipe(spec, source) if source else recipe_of(workload)(spec.variant)
    task = build_task(recipe, spec.variant, replicas)
    collector = EvidenceCollector(spec, task)
    assert collector.evidence() is None, "nothing is known before the first step"
    collector.start()
    task.fetch(task.step())
    collector.first_step_done()
    task.fetch(task.step())
    collector.inspect()
    return collector
