"""Whether two variants compute the same: which can be compared, how much they differ, and what rounding explains."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.values import units
from app.values.records import EqualityCheck, StoredRun
from workloads.catalog import drops_between_layers, find_workload, is_custom, with_defaults
from workloads.protocol import RunSpec, Variant

LOSS_TOLERANCES = {"float32": 1e-5, "tf32": 2e-3, "float16": 2e-3, "bfloat16": 1e-2}
SMOOTH_TOLERANCES = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
RELU_TOLERANCES = {"float32": 5e-2, "tf32": 4e-1, "float16": 4e-1, "bfloat16": 8e-1}
"""The largest relative differences of gradients that rounding explains in networks with ReLU, by precision. Tolerances
are above the largest differences measured between variants that compute the same (docs/internals/equality.md).

The derivative of ReLU jumps at 0. Rounding by u sends a share of about u of all values to its other side, each of which
changes the gradient by all of its part, so that in the Euclidean norm it changes by about sqrt(u), not by u.
"""

SMALL_SHARE = 1e-2
"""A gradient with a smaller share of all gradients is treated as having this one. Some gradients are zero except for
rounding, such as that of a bias before batch norm."""

_TINY = 1e-30
"""Below every nonzero gradient."""

_WITHOUT_CHANCE = ("dropout", "recurrent_dropout")
"""Parameters that a check sets to 0: each implementation draws their masks at random in another order."""

State = Literal["same", "differs", "not comparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """The result of a check.

    Attributes:
        state: Whether the differences are within the tolerance.
        loss_difference: Relative difference of the loss; None in inference.
        difference: Largest relative difference of a gradient, in inference of the outputs.
        tensor: The weight with that gradient, or `outputs`.
        loss_tolerance: The loss difference that rounding explains.
        tolerance: The difference of gradients or outputs that rounding explains.
        reason: Why they could not be compared.
    """

    state: State
    loss_difference: float | None = None
    difference: float | None = None
    tensor: str | None = None
    loss_tolerance: float
    tolerance: float
    reason: str | None = None


def blocker(spec: RunSpec, baseline: RunSpec) -> str | None:
    """Return why two variants are not meant to compute the same; None if they are."""
    workload = find_workload(baseline.workload)
    if spec.workload != baseline.workload or workload is None:
        return "they are of different workloads"
    labels = [
        parameter.label
        for parameter in workload.parameters
        if parameter.affects_step
        and not parameter.same_result
        and spec.variant.get(parameter.name) != baseline.variant.get(parameter.name)
    ]
    if labels:
        return f"they differ in {', '.join(label[:1].lower() + label[1:] for label in labels)}"
    if drops_between_layers(spec) != drops_between_layers(baseline):
        return "cuDNN's whole stack drops between layers only, others before each layer"
    batch, parts = int(spec.variant["batch_size"]), common_parts(spec, baseline)
    return f"a batch of {batch} has no {parts} equal parts" if batch % parts else None


def common_parts(spec: RunSpec, baseline: RunSpec) -> int:
    """Return into how many parts to cut a batch so that each GPU of either variant gets whole parts."""
    return math.lcm(*(max(1, int(side.variant["gpus"])) for side in (spec, baseline)))


def spec_to_check(spec: RunSpec, baseline: RunSpec) -> RunSpec:
    """Return a variant without dropout, with the baseline's seed and other parameters that do not change a step."""
    workload = find_workload(baseline.workload)
    shared = [p.name for p in workload.parameters if not p.affects_step and p.name != "devices"] if workload else []
    same: Variant = {name: baseline.variant[name] for name in shared if name in baseline.variant}
    none: Variant = {name: 0.0 for name in _WITHOUT_CHANCE if name in spec.variant and not is_custom(spec.workload)}
    return RunSpec(workload=spec.workload, variant={**spec.variant, **same, **none})


def tolerances(spec: RunSpec, baseline: RunSpec) -> tuple[float, float]:
    """Return the tolerances of loss and gradients (in inference: outputs) for the coarser rounding of two variants."""
    is_smooth = not is_custom(spec.workload) and spec.variant.get("activation") == "tanh"
    of_gradients = SMOOTH_TOLERANCES if is_smooth or spec.variant.get("mode") == "inference" else RELU_TOLERANCES
    precisions = [str(side.variant.get("precision")) for side in (spec, baseline)]
    return max(LOSS_TOLERANCES.get(precision, 0.0) for precision in precisions), max(
        of_gradients.get(precision, 0.0) for precision in precisions
    )


def relative_difference(value: float, reference: float) -> float:
    return 0.0 if value == reference else abs(value - reference) / max(abs(reference), _TINY)


def largest_difference(
    names: Sequence[str], tensors: Iterable[NDArray[np.float32]], reference: Sequence[NDArray[np.float32]]
) -> tuple[float, str]:
    """Return the largest relative difference of a tensor, ||g - r|| / ||r|| in the Euclidean norm, and its name."""
    norms = [float(np.linalg.norm(tensor.astype(np.float64))) for tensor in reference]
    least: float = max(SMALL_SHARE * math.hypot(*norms), _TINY)
    differences = [
        float(np.linalg.norm(tensor.astype(np.float64) - expected)) / max(norm, least)
        for tensor, expected, norm in zip(tensors, reference, norms, strict=True)
    ]
    return max(zip(differences, names, strict=True))


def judge_check(check: EqualityCheck, spec: RunSpec) -> Equality:
    baseline = RunSpec(workload=spec.workload, variant=check.baseline)
    of_loss, of_gradients = tolerances(spec, baseline)
    state: State = "not comparable"
    if check.difference is not None:
        is_same = check.difference <= of_gradients and (check.loss_difference or 0.0) <= of_loss
        state = "same" if is_same else "differs"
    return Equality(
        state=state,
        loss_difference=check.loss_difference,
        difference=check.difference,
        tensor=check.tensor,
        loss_tolerance=of_loss,
        tolerance=of_gradients,
        reason=check.reason,
    )


_LARGE = 1e-2
"""Larger differences are reported together with what rounding explains."""


def largest_of(equalities: Sequence[Equality]) -> Equality:
    losses = [equality.loss_difference for equality in equalities if equality.loss_difference is not None]
    largest = max(equalities, key=lambda equality: equality.difference or 0.0)
    return replace(largest, loss_difference=max(losses, default=None))


def describe_differences(equality: Equality) -> str:
    """Return how close two variants are: `loss within 3.0e-07, gradients within 2.1e-06 (layer0/forward/kernel)`."""
    is_large = equality.difference is not None and equality.difference >= _LARGE
    return ", ".join(_parts(equality, "within", "equal")) + (f". {_explained(equality)}" if is_large else "")


def describe_excess(equality: Equality) -> str:
    """Return how much two variants differ, and how much rounding explains."""
    return f"{' and '.join(_parts(equality, 'off by', 'equal'))}. {_explained(equality)}"


def _explained(equality: Equality) -> str:
    loss = "" if equality.loss_difference is None else f"{format_difference(equality.loss_tolerance)} and "
    return f"Rounding explains {loss}{format_difference(equality.tolerance)}"


def _parts(equality: Equality, word: str, equal: str) -> list[str]:
    """Return the phrases about the loss, if any, and about gradients or outputs."""
    assert equality.difference is not None, "it was compared"
    what = "outputs" if equality.tensor == "outputs" else "gradients"
    where = f" ({equality.tensor})" if equality.difference and equality.tensor != what else ""
    values = (("loss", equality.loss_difference, ""), (what, equality.difference, where))
    return [
        f"{name} {f'{word} {format_difference(value)}' if value else equal}{suffix}"
        for name, value, suffix in values
        if value is not None
    ]


def format_difference(value: float) -> str:
    """Return a relative difference above 0: `2.1e-06`, `0.3 %`, `12 %`."""
    return f"{value:.1e}" if value < 1e-3 else units.percent(100 * value, 0 if value >= 0.1 else 1)


Pair = tuple[bytes, bytes]
"""The encoded specs of a variant and of the baseline it was checked against."""


def known_checks(runs: Iterable[StoredRun]) -> dict[Pair, EqualityCheck]:
    """Return the newest check of each pair of variants in stored runs."""
    checks = [(run.row.spec, check) for run in runs for check in run.equality]
    return {
        (_encoded(spec), _encoded(with_defaults(RunSpec(workload=spec.workload, variant=check.baseline)))): check
        for spec, check in sorted(checks, key=lambda pair: pair[1].utc_ns)
    }


def find_equality(spec: RunSpec, baseline: RunSpec, checks: Mapping[Pair, EqualityCheck]) -> Equality | None:
    """Return the result of a check of two variants, whichever was the baseline; None without a check.

    If both were checked against a third, their differences add up: ||g - r|| <= ||g - t|| + ||t - r||. This can show
    that they compute the same, but not that they differ.
    """
    mine, theirs = _encoded(spec), _encoded(baseline)
    direct = checks.get((mine, theirs)) or checks.get((theirs, mine))
    if direct is not None:
        return judge_check(replace(direct, baseline=baseline.variant), spec)
    thirds = [
        (check, checks[theirs, third])
        for (of, third), check in checks.items()
        if of == mine and (theirs, third) in checks
    ]
    sums = [judge_check(_added(*pair, baseline), spec) for pair in thirds]
    return next((equality for equality in sums if equality.state == "same"), None)


def _encoded(spec: RunSpec) -> bytes:
    return msgspec.json.encode(spec, order="sorted")


def _added(first: EqualityCheck, second: EqualityCheck, baseline: RunSpec) -> EqualityCheck:
    larger = max(first, second, key=lambda check: check.difference or 0.0)
    return EqualityCheck(
        utc_ns=larger.utc_ns,
        baseline=baseline.variant,
        loss_difference=_sum(first.loss_difference, second.loss_difference),
        difference=_sum(first.difference, second.difference),
        tensor=larger.tensor,
    )


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
