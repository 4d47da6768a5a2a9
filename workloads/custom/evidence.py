"""What a custom workload reveals by itself: whether it trains, on what, and which layout its variant requests."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.custom.definitions import LAYOUT_PARAMETERS
from workloads.evidence import Aspect, run_guarded
from workloads.protocol import Variant
from workloads.training import Inspection, Layer, Task

LAYOUTS = {
    "channels_first": "channels_first",
    "channels_last": "channels_last",
    "nchw": "channels_first",
    "nhwc": "channels_last",
}
ONE_LAYOUT = "the same in all layers"
_MAX_NAMED = 8


def requested_layout(variant: Variant) -> str | None:
    values = (str(variant.get(name, "")) for name in LAYOUT_PARAMETERS)
    return next((value for value in values if value.lower() in LAYOUTS), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of the functions of `Inspection` after a custom workload's measured part.

    Attributes:
        losses: Losses of the first step and of some of the last.
        weights: The names of the trained weights.
        unchanged: The names of trained weights that have not changed since before the first step.
        distinct: The number of examples in a batch, of distinct ones, and of distinct outputs; else why that is
            unknown.
    """

    eager_steps: int = 0
    losses: tuple[float, ...] = ()
    weights: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    without_gradient: tuple[str, ...] = ()
    frozen: str = ""
    layers: tuple[Layer, ...] = ()
    distinct: tuple[int, int, int] | str = ""


NOT_INSPECTED = "The run ended before its weights and outputs were looked at."


class Inspector:
    """Inspects, outside the measured part, what a custom workload's steps did; does nothing for other workloads."""

    def __init__(self, task: Task) -> None:
        self._inspection = task.inspection
        self._trains = task.trains
        self._checksums: Sequence[tuple[str, int]] = ()
        self._losses: tuple[float, ...] = ()
        self.findings: Findings | str = NOT_INSPECTED

    def start(self) -> None:
        """Record the weights before the first step."""
        if self._inspection and self._trains:
            self._checksums = self._inspection.checksums()

    def record_loss(self) -> None:
        if self._inspection:
            self._losses += (self._inspection.loss(),)

    def inspect(self) -> None:
        """Compare weights and losses with those of the first step, and inspect outputs."""
        if inspection := self._inspection:
            self.findings = run_guarded(
                lambda: self._inspect(inspection), lambda how: f"The check of weights and outputs {how}"
            )

    def _inspect(self, inspection: Inspection) -> Findings:
        self.record_loss()
        checksums = inspection.checksums() if self._trains else ()
        pairs = zip(self._checksums, checksums, strict=True)
        distinct = run_guarded(inspection.count_distinct, lambda how: f"The check of outputs {how}")
        return Findings(
            eager_steps=inspection.eager_steps(),
            losses=self._losses,
            weights=tuple(name for name, _ in checksums),
            unchanged=tuple(name for (name, first), (_, last) in pairs if first == last),
            without_gradient=tuple(inspection.without_gradient()),
            frozen=inspection.frozen(),
            layers=tuple(inspection.layers()),
            distinct=distinct,
        )


_TRAINED, _DIFFERENT = "all weights trained", "different examples"
_FEW = 1 / 8
"""The largest share of distinct examples or outputs in a batch to report: 16-bit types make some equal."""


def training_aspects(findings: Findings | str, *, trains: bool) -> Iterator[Aspect]:
    if isinstance(findings, str):
        if trains:
            yield Aspect(name="training", requested=_TRAINED, reason=findings)
        yield Aspect(name="examples", requested=_DIFFERENT, reason=findings)
        return
    if trains:
        yield _training(findings)
    if not isinstance(findings.distinct, tuple) or findings.distinct[0] > 1:
        yield _examples(findings, trains=trains)


def _training(findings: Findings) -> Aspect:
    """Return whether steps changed all unfrozen weights, through gradients, and the loss."""
    count, without_gradient = len(findings.weights), findings.without_gradient
    unchanged = [name for name in findings.unchanged if name not in without_gradient]
    reasons = [
        f"{claim} {f'{len(names)} of the {count} weights: {listed(names)}' if len(names) < count else 'any weight'}."
        for claim, names in (("The loss does not depend on", without_gradient), ("The steps did not change", unchanged))
        if names
    ]
    trained = len(without_gradient) + len(unchanged) < count
    if trained and len(findings.losses) > 1 and len(set(findings.losses)) == 1:
        reasons.append(f"The loss was {findings.losses[0]:.6g} in the first step and in the last.")
    requested = f"{findings.frozen}, all others trained" if findings.frozen else _TRAINED
    actual = (None if reasons else requested) if trained else "no weight trained"
    return Aspect(name="training", requested=requested, actual=actual, reason=" ".join(reasons) or None)


def _examples(findings: Findings, *, trains: bool) -> Aspect:
    if isinstance(findings.distinct, str):
        return Aspect(name="examples", requested=_DIFFERENT, reason=findings.distinct)
    examples, different, outputs = findings.distinct
    reason = None
    if different <= max(1, _FEW * examples):
        reason = f"Different examples in a batch of {examples}: {different}."
    elif outputs <= max(1, _FEW * different):
        reason = f"Different outputs for {different} different examples: {outputs}."
        reason += "" if trains else " Running statistics that no training has updated can do that."
    return Aspect(name="examples", requested=_DIFFERENT, actual=None if reason else _DIFFERENT, reason=reason)


def name_frozen(weights: Iterable[tuple[int, bool]]) -> str:
    """Return `Inspection.frozen`; each weight comes with its number of values and whether it is trainable."""
    sizes = list(weights)
    frozen = [size for size, trained in sizes if not trained]
    share = 100 * sum(frozen) / max(1, sum(size for size, _ in sizes))
    return f"{len(frozen)} of {len(sizes)} weights frozen ({share:.4g} % of their numbers)" if frozen else ""


def checksums(weights: Iterable[tuple[str, Any]]) -> list[tuple[str, int]]:
    return [(name, zlib.crc32(np.asarray(weight).tobytes())) for name, weight in weights]


_MOST_NUMBERS = 4096
"""How many numbers of an example's output to compare, from all over it: a language model's output is gigabytes."""
_ROUNDING = 1e-5
"""The largest difference of equal rows of a product in float32, due to another order of summation."""


def sample_stride(numbers: int) -> int:
    """Return the stride between the compared numbers of an example's output."""
    return max(1, numbers // _MOST_NUMBERS)


def count_distinct(inputs: Iterable[Any], outputs_by_mode: Iterable[Sequence[Any]]) -> tuple[int, int, int]:
    """Return the number of examples, of distinct ones, and the least number of distinct outputs in any mode.

    Inputs are arrays with one row per example; outputs without as many rows, in float64, are ignored.
    """
    examples = list(map(np.asarray, inputs))
    count = len(examples[0])
    distinct = len({b"".join(row.tobytes() for row in rows) for rows in zip(*examples, strict=True)})
    return count, distinct, min(_count_outputs(map(np.asarray, outputs), count) for outputs in outputs_by_mode)


def _count_outputs(outputs: Iterable[NDArray[Any]], count: int) -> int:
    """Return the largest number of distinct rows in any output; without a row per example, all count as distinct."""
    outputs_rows = [_describe_rows(output) for output in outputs if output.ndim and len(output) == count]
    return max((1 + int(np.sum(np.diff(np.sort(rows)) > _ROUNDING)) for rows in outputs_rows), default=count)


def _describe_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Return a number for each row, at most 1; rows that are equal except for rounding get nearly the same."""
    # Not their sums, which are 1 for probabilities.
    numbers = rows @ np.linspace(1.0, 2.0, rows.shape[1])
    return numbers / max(np.abs(numbers).max(), np.finfo(np.float64).tiny)  # type: ignore[no-any-return]


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (" …" if len(names) > _MAX_NAMED else "")
