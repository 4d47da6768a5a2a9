"""The search for the largest batch that fits: doubled until memory runs out, then bisected. Pure functions."""

from dataclasses import dataclass, field
from typing import Literal

from workloads import catalog
from workloads.protocol import OutcomeName, RunSpec, Value

Ending = Literal["found", "limit", "none fits", "stopped", "broken off"]

TRIAL_PARAMETERS: dict[str, Value] = {
    "steps": 3,
    "warmup_steps": 1,
    "evidence": "off",
    "save_weights": False,
    "weights_from": "last",
    "epochs": 0,
    "schedule": "constant",
}
"""What a try replaces in the variant: enough steps to allocate everything that a step needs."""
_STEP_DIVISOR = 8


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """A batch size that was tried: the run's number, and how it ended."""

    run: int
    batch_size: int
    outcome: OutcomeName


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """The result of a search: the largest batch size that fitted and the smallest that did not; None if there is none.

    `ending` says why it ended; at the limit every try fitted. `reason` is why `fails` failed, if not for lack of
    memory, or why the try that ended the search failed.
    """

    ending: Ending
    fits: int | None
    fails: int | None
    step: int
    tries: tuple[BatchTrial, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """Where a search begins and must end, and the multiples that it distinguishes."""

    start: int
    limit: int
    step: int


def search_bounds(spec: RunSpec, limit: int | None = None, step: int | None = None) -> SearchBounds:
    """Return the bounds of a search for a variant.

    Args:
        spec: The variant; its batch size is tried first.
        limit: The largest batch size to try; None is the workload's maximum, for a GPU only.
        step: The precision of the answer, a multiple of the GPUs; None is an eighth of the first batch.

    Raises:
        UsageError: There is no limit on the CPU, or the bounds contradict each other.
    """
    gpus = int(spec.variant["gpus"])
    if gpus == 0 and limit is None:
        raise catalog.UsageError(
            "On the CPU a batch that does not fit makes the whole machine swap, or the system kill programs: search "
            "on a GPU, or set the largest batch to try with --batch-limit."
        )
    start, unit = int(spec.variant["batch_size"]), max(1, gpus)
    workload = catalog.find_workload(spec.workload) or catalog.workload(spec.workload)
    _, highest = map(int, workload.parameter("batch_size").limits or (1, start))
    rounded_limit = min(highest, limit or highest) // unit * unit
    if rounded_limit < start:
        raise catalog.UsageError(
            f"The limit, {rounded_limit:,}, is below the batch size to begin with, {start:,}: "
            "give a higher limit, or begin with a smaller batch."
        )
    rounded = max(unit, (step or start // _STEP_DIVISOR) // unit * unit)
    return SearchBounds(start=start, limit=rounded_limit, step=rounded)


@dataclass(slots=True)
class BatchSearch:
    """Chooses the next batch size to try from the outcomes of earlier trials."""

    bounds: SearchBounds
    fits: int = 0
    fails: int | None = None
    reason: str | None = None
    tries: list[BatchTrial] = field(default_factory=list)

    def next_batch_size(self) -> int | None:
        bounds = self.bounds
        if self.fails is None:
            doubled = min(2 * self.fits, bounds.limit) if self.fits else bounds.start
            return doubled if doubled > self.fits else None
        middle = (self.fits + self.fails) // 2 // bounds.step * bounds.step
        if middle <= self.fits:
            middle += bounds.step
        return middle if self.fits < middle < self.fails else None

    def record(self, trial: BatchTrial, reason: str | None = None) -> bool:
        """Record a trial's outcome; return false if it ends the search.

        A batch that fails for another reason than memory, after a smaller one succeeded, does not fit either: a tensor
        may have more elements than a kernel can count.
        """
        self.tries.append(trial)
        if trial.outcome == "completed":
            self.fits = trial.batch_size
            return True
        out_of_memory = trial.outcome == "out_of_memory"
        if not out_of_memory and not (self.fits and trial.outcome in ("failed", "crashed")):
            return False
        self.fails, self.reason = trial.batch_size, None if out_of_memory else reason
        return True

    def result(self, ending: Ending | None = None, reason: str | None = None) -> LargestBatch:
        """Return the result so far; `ending` says why the search stopped early."""
        natural: Ending = "none fits" if not self.fits else "limit" if self.fails is None else "found"
        return LargestBatch(
            ending=ending or natural,
            fits=self.fits or None,
            fails=self.fails,
            step=self.bounds.step,
            tries=tuple(self.tries),
            reason=reason or self.reason,
        )


def trial_spec(spec: RunSpec, batch_size: int) -> RunSpec:
    shortened = {name: value for name, value in TRIAL_PARAMETERS.items() if name in spec.variant}
    return RunSpec(workload=spec.workload, variant={**spec.variant, **shortened, "batch_size": batch_size})
