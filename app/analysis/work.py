"""How much a variant computes for one example: another that computes more or less is no alternative to it."""

import math
from collections.abc import Sequence

from app.records import RunRow


def operations(runs: Sequence[RunRow]) -> float | None:
    """Operations of one example by formula (docs/utilisation.md), of one variant's runs; None where none knows them.

    They are the same for every implementation, layout, precision, batch size and number of GPUs.
    """
    known = ((row.summary.flops_per_step, row.spec.variant.get("batch_size")) for row in runs)
    return next((of_step / batch for of_step, batch in known if of_step and isinstance(batch, int) and batch > 0), None)


def other_work(runs: Sequence[RunRow], baseline: Sequence[RunRow]) -> float | None:
    """How many times the baseline's operations an example of this variant takes; None where as many, or not known.

    Between workloads an example is another thing, and nothing is known.
    """
    own, base = operations(runs), operations(baseline)
    if not own or not base or math.isclose(own, base) or not same_workload(runs, baseline):
        return None
    return own / base


def alternatives(runs: Sequence[RunRow], others: Sequence[RunRow]) -> bool:
    """Whether two variants do the same for an example, as far as that is known."""
    return same_workload(runs, others) and other_work(runs, others) is None


def same_workload(runs: Sequence[RunRow], others: Sequence[RunRow]) -> bool:
    """Whether two variants are of one workload: between two an example is another thing."""
    return runs[0].spec.workload == others[0].spec.workload
