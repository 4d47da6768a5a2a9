"""Why one variant's step takes longer than another's: the difference by class of kernels, kernel and idle time.

A device's measured step is the time of its traced kernels, minus their overlap, plus the time without a kernel: step =
kernels − overlap + idle, where busy = kernels − overlap (their union) and idle = step − busy. Tracing stretches the
gaps between kernels, not the kernels, so idle time comes from the measured step. If kernels kept a device busy for
longer than the measured step, `unexplained` is the excess. So the parts always add up to the step, and their
differences to the difference of two steps. The trace gives the shares of the causes of idle time.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

import numpy as np

from app.analysis.intervals import Estimate, difference, level_at
from app.analysis.run_state import mean_clock_mhz
from app.analysis.scaling import DOMINANT_SHARE
from app.analysis.steps import (
    IdleCause,
    idle_shares,
    kernel_ms,
    mean_present,
    measured_step_ms,
    run_traced_step,
    step_examples,
)
from app.analysis.verdict import count_looks, same_work, same_workload, throughputs
from app.values.records import Floats, Ints, StoredRun
from workloads.kernels import KernelClass, merging_compiler
from workloads.protocol import Kernel

PartKind = KernelClass | Literal["idle", "overlap", "unexplained"]
Obstacle = Literal["other workload", "nothing measured", "no trace", "no trace to have", "processor and GPU"]
"""Why two variants cannot be compared by their parts."""

MAX_KERNELS = 12
"""The most kernels of a class to list."""
_LISTED_CHANGE, _LISTED_TIME = 0.001, 0.01
"""A kernel is listed if it changes by the first share of a step, or takes the second share."""
PER_EXAMPLES = 1000
"""The number of examples to which times refer if batch sizes differ."""
SMALLEST_GAIN = 0.01
"""The smallest gain, as a share of a step, for which a class is worth a sentence."""
_IN_BOTH = 0.01
"""A class with a smaller share of its time on the other side corresponds to other classes there."""
CLASSES: tuple[KernelClass, ...] = get_args(KernelClass)
IDLE_CAUSES: tuple[IdleCause, ...] = get_args(IdleCause)
_ROUNDING = 1e-9
_MORE_LAUNCHES = 0.1
"""If a step is longer by idle time, this many more kernels are worth reporting."""
_KERNEL_NOISE, _IDLE_NOISE = 0.03, 0.5
"""For single runs of one variant, how much a class of kernels may differ, as a share of a step, and how much idle time
may, as a share of itself: 658 of the 681 pairs among the reference runs stay within."""
_PER_DEVICE = ("batch_size", "gpus")
"""Settings, besides the compiler, that determine what a kernel computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A time of both variants in ms, averaged over their runs, and the other's minus the baseline's.

    `noise_ms` is how much single runs of one variant may differ in it.
    """

    baseline_ms: float
    other_ms: float
    difference: Estimate
    noise_ms: float

    @property
    def is_certain(self) -> bool:
        """Return whether the sign is certain: by the interval, or without one because the change exceeds the noise."""
        ends = self.difference.interval
        return abs(self.difference.value) > self.noise_ms if ends is None else ends[0] > 0 or ends[1] < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """The change of one kernel."""

    kernel: Kernel
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseChange:
    """The change of the idle time with one cause."""

    cause: IdleCause
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The change of one part of a step, and of its kernels, the largest first; `more` are not listed.

    `causes` of idle time exist if all runs' traces have them.
    """

    kind: PartKind
    change: Change
    kernels: tuple[KernelChange, ...] = ()
    more: int = 0
    more_ms: float = 0.0
    causes: tuple[CauseChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepDifference:
    """Two variants' steps and their parts, the largest change first; on GPUs the parts add up to the step.

    Attributes:
        baseline: The baseline's measured and traced runs.
        other: The other variant's runs.
        examples: The number of one GPU's examples to which all times refer if its batches differ; None means one step.
        on_gpu: Whether the runs were on GPUs. On the CPU, operations overlap and tracing slows them, so that they do
            not add up.
        step: The measured step.
    """

    baseline: tuple[StoredRun, ...]
    other: tuple[StoredRun, ...]
    examples: int | None
    on_gpu: bool
    step: Change
    parts: tuple[Part, ...]


def step_difference(runs: Sequence[StoredRun], baseline: Sequence[StoredRun]) -> StepDifference | Obstacle:
    """Return the difference of a variant's step to the baseline's, or why it is unknown.

    Each interval holds separately, at every look.
    """
    if not same_workload([run.row for run in runs], [run.row for run in baseline]):
        return "other workload"
    measured = [[run for run in side if is_measured(run)] for side in (baseline, runs)]
    if not all(measured):
        return "nothing measured"
    sides = [[run for run in side if is_traced(run)] for side in measured]
    if not all(sides):
        return lack_of_trace([*baseline, *runs])
    on_gpu = {_on_gpu(run) for side in sides for run in side}
    if len(on_gpu) > 1:
        return "processor and GPU"
    examples = PER_EXAMPLES if len({examples_per_gpu(run) for side in sides for run in side}) > 1 else None
    times = _step_times([run for side in sides for run in side], examples)
    looks = count_looks(*([run.row for run in side] for side in (runs, baseline)))
    noise_ms = _KERNEL_NOISE * float(times.step.mean())
    idle_ms = float(np.maximum(times.step - times.busy, 0.0).max())
    comparer = _Comparer(len(sides[0]), level_at(looks), noise_ms, noise_ms + _IDLE_NOISE * idle_ms)
    classes = _class_parts(times, comparer)
    parts = chain(classes, _rest_parts(times, comparer)) if on_gpu == {True} else classes
    return StepDifference(
        baseline=tuple(sides[0]),
        other=tuple(sides[1]),
        examples=examples,
        on_gpu=on_gpu == {True},
        step=comparer.change(times.step, has_idle=True),
        parts=tuple(sorted(parts, key=lambda part: -abs(part.change.difference.value))),
    )


def examples_per_gpu(run: StoredRun) -> float:
    """Return how many examples of a step each GPU computes; on the CPU, all."""
    return max(step_examples(run.row.spec, run.row.summary), 1) / max(int(run.row.spec.variant.get("gpus", 1)), 1)


def is_measured(run: StoredRun) -> bool:
    return bool(throughputs([run.row])) and measured_step_ms(run.row.spec, run.row.summary) is not None


def is_traced(run: StoredRun) -> bool:
    evidence = run.evidence
    if evidence is None or not evidence.steps or not evidence.kernels:
        return False
    return not _on_gpu(run) or run_traced_step(run) is not None


def lack_of_trace(runs: Sequence[StoredRun]) -> Obstacle:
    """Return whether another run could have the trace that these lack, or their evidence says why there is none."""
    has_reasons = all(run.evidence is not None and run.row.spec.variant.get("evidence") == "trace" for run in runs)
    return "no trace to have" if has_reasons else "no trace"


def _on_gpu(run: StoredRun) -> bool:
    return run.row.spec.variant.get("gpus") != 0


@dataclass(frozen=True, slots=True)
class _StepTimes:
    """Times in ms, one column per run, the baseline's first; `times` has one row per kernel.

    `idle_shares` is empty unless all runs have them.
    """

    kernels: list[Kernel]
    times: Floats
    busy: Floats
    step: Floats
    idle_shares: dict[IdleCause, Floats]


def _step_times(runs: Sequence[StoredRun], examples: int | None) -> _StepTimes:
    traces = [run.evidence for run in runs if run.evidence is not None]
    rows: dict[str, int] = {}
    kernels: list[Kernel] = []
    columns = []
    for evidence in traces:
        column = [rows.setdefault(kernel.name, len(rows)) for kernel in evidence.kernels]
        columns.append(column)
        for row, kernel in zip(column, evidence.kernels, strict=True):
            if row == len(kernels):
                kernels.append(kernel)
    units = np.array([1.0 if examples is None else examples / examples_per_gpu(run) for run in runs])
    times = [
        kernel_ms(evidence) * np.bincount(column, [kernel.time_ns for kernel in evidence.kernels], len(rows))
        for evidence, column in zip(traces, columns, strict=True)
    ]
    traced = [run_traced_step(run) for run in runs]
    shares = [by_cause for by_cause in map(idle_shares, traces) if by_cause]
    return _StepTimes(
        kernels,
        np.column_stack(times) * units,
        np.array([step.busy_ms if step else 0.0 for step in traced]) * units,
        np.array([measured_step_ms(run.row.spec, run.row.summary) or 0.0 for run in runs]) * units,
        {cause: np.array([by_cause[cause] for by_cause in shares]) for cause in IDLE_CAUSES}
        if len(shares) == len(runs)
        else {},
    )


@dataclass(frozen=True, slots=True)
class _Comparer:
    """Compares rows of times whose first `split` columns are the baseline's runs.

    `noise_ms` is that of a time in which kernels run, `idle_noise_ms` of one that has idle time.
    """

    split: int
    level: float
    noise_ms: float
    idle_noise_ms: float

    def differences(self, rows: Floats) -> Floats:
        return np.asarray(rows[:, self.split :].mean(axis=1) - rows[:, : self.split].mean(axis=1))

    def change(self, row: Floats, *, has_idle: bool = False) -> Change:
        baseline, other = row[: self.split].tolist(), row[self.split :].tolist()
        return Change(
            baseline_ms=sum(baseline) / len(baseline),
            other_ms=sum(other) / len(other),
            difference=difference(other, baseline, self.level),
            noise_ms=self.idle_noise_ms if has_idle else self.noise_ms,
        )


def _class_parts(step_times: _StepTimes, comparer: _Comparer) -> Iterator[Part]:
    codes = {kind: code for code, kind in enumerate(CLASSES)}
    kinds = np.fromiter((codes[kernel.kind] for kernel in step_times.kernels), np.int64, len(step_times.kernels))
    for code, kind in enumerate(CLASSES):
        rows = np.flatnonzero(kinds == code)
        if rows.size:
            yield _class_part(kind, rows, step_times, comparer)


def _rest_parts(step_times: _StepTimes, comparer: _Comparer) -> Iterator[Part]:
    """Yield the other parts of a step, except those that no run has."""
    total = step_times.times.sum(axis=0)
    idle = np.maximum(step_times.step - step_times.busy, 0.0)
    overlap = -np.maximum(total - step_times.busy, 0.0)
    unexplained = step_times.step - (total + overlap + idle)
    rest: tuple[tuple[PartKind, Floats], ...] = (("idle", idle), ("overlap", overlap), ("unexplained", unexplained))
    for kind, values in rest:
        if (np.abs(values) > _ROUNDING * step_times.step).any():
            causes = _idle_causes(values, step_times, comparer) if kind == "idle" else ()
            yield Part(kind=kind, change=comparer.change(values, has_idle=kind != "overlap"), causes=tuple(causes))


def _idle_causes(idle: Floats, step_times: _StepTimes, comparer: _Comparer) -> list[CauseChange]:
    causes = [
        CauseChange(cause=cause, change=comparer.change(idle * shares, has_idle=True))
        for cause, shares in step_times.idle_shares.items()
        if shares.any()
    ]
    return sorted(causes, key=lambda cause: -abs(cause.change.difference.value))


def _class_part(kind: KernelClass, rows: Ints, step_times: _StepTimes, comparer: _Comparer) -> Part:
    times = step_times.times[rows]
    differences = comparer.differences(times)
    step_ms = step_times.step[: comparer.split].mean()
    is_listed = (np.abs(differences) >= _LISTED_CHANGE * step_ms) | (times.max(axis=1) >= _LISTED_TIME * step_ms)
    order = np.argsort(np.where(is_listed, -np.abs(differences), 1.0), kind="stable")
    count = min(MAX_KERNELS, int(is_listed.sum()))
    first, remaining = order[:count], order[count:]
    return Part(
        kind=kind,
        change=comparer.change(times.sum(axis=0)),
        kernels=tuple(
            KernelChange(kernel=step_times.kernels[rows[n]], change=comparer.change(times[n])) for n in first
        ),
        more=len(remaining),
        more_ms=float(differences[remaining].sum()),
    )


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause behind the parts: how much of the difference it explains, in ms, and both variants' figures.

    Figures are the mean SM clock in MHz, the ms of waiting for data, or the number of kernels to launch.
    """

    kind: Literal["clock", "data", "launches"]
    ms: float
    baseline: float
    other: float


def find_cause(difference: StepDifference) -> Cause | None:
    """Return the first cause that explains most of a certain difference of steps.

    A clock explains at most its share of the time in which kernels run, and nothing if parts change in opposite
    directions. Waiting for data and for the host to launch kernels is idle time; between different numbers of GPUs idle
    time also includes waiting for each other, and more kernels explain nothing. Runs without samples have no clock.
    """
    if not difference.on_gpu or not difference.step.is_certain:
        return None
    sides = difference.baseline, difference.other
    idle = next((part.change for part in difference.parts if part.kind == "idle"), None)
    candidates = []
    total_ms, largest = difference.step.difference.value, difference.parts[0].change.difference.value
    clocks = [mean_present(map(mean_clock_mhz, side)) for side in sides]
    if clocks[0] and clocks[1] and 0 < largest / total_ms <= 1:
        slower_ms = (difference.step.baseline_ms - (idle.baseline_ms if idle else 0.0)) * (clocks[0] / clocks[1] - 1)
        candidates.append(Cause("clock", total_ms * min(slower_ms / total_ms, 1.0), clocks[0], clocks[1]))
    waits = [mean_present(run.row.summary.waiting_pct for run in side) for side in sides]
    if waits != [None, None]:  # a side whose data stay on the device has no figure, and no wait
        baseline_ms, other_ms = (
            (pct or 0.0) / 100 * step_ms
            for pct, step_ms in zip(waits, (difference.step.baseline_ms, difference.step.other_ms), strict=True)
        )
        candidates.append(Cause("data", other_ms - baseline_ms, baseline_ms, other_ms))
    launched = [mean_present(_launches(run, difference.examples) for run in side) for side in sides]
    gpus = {run.row.spec.variant.get("gpus") for side in sides for run in side}
    if idle and idle.is_certain and launched[0] and launched[1] and len(gpus) == 1:
        change = (launched[1] - launched[0]) * math.copysign(1.0, idle.difference.value)
        if change >= _MORE_LAUNCHES * launched[0]:
            candidates.append(Cause("launches", idle.difference.value, launched[0], launched[1]))
    return next((candidate for candidate in candidates if candidate.ms / total_ms > DOMINANT_SHARE), None)


def _launches(run: StoredRun, examples: int | None) -> float | None:
    traced = run_traced_step(run)
    return traced.kernels * (examples / examples_per_gpu(run) if examples else 1.0) if traced else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One side's step with the other's time in some classes, and how many times as fast it would be.

    `of_baseline`: the baseline takes the other's time. The interval is the class's change's, with the step as known;
    several classes together have none.
    """

    of_baseline: bool
    kinds: tuple[PartKind, ...]
    step_ms: float
    speedup: Estimate


def what_if(difference: StepDifference) -> tuple[WhatIf, ...]:
    """Return what each side would gain from the classes in which the other is faster, the slower side first.

    Each class of both sides that certainly gains `SMALLEST_GAIN` or more, largest first, then all of them together.
    Idle time is not a class that could be adopted. Empty if classes do not correspond (on the CPU, with different work
    per step and GPU, or with different compilers), or if the clock explains most of the difference.
    """
    runs = [*difference.baseline, *difference.other]
    settings = {(merging_compilers([run]), *(run.row.spec.variant.get(name) for name in _PER_DEVICE)) for run in runs}
    is_same = len(settings) == 1 and all(same_work([run.row], [runs[0].row]) for run in runs)
    if not difference.on_gpu or not is_same:
        return ()
    if (cause := find_cause(difference)) and cause.kind == "clock":
        return ()
    baseline_is_slower = difference.step.difference.value <= 0
    return (*_gains(difference, baseline_is_slower), *_gains(difference, not baseline_is_slower))


def merging_compilers(runs: Sequence[StoredRun]) -> frozenset[str]:
    """Return the compilers that fused operations of a step, by the kernels that ran.

    XLA does so always in JAX, in TensorFlow if `xla` or an implementation requests it.
    """
    kernels = (kernel for run in runs if run.evidence for kernel in run.evidence.kernels)
    return frozenset(filter(None, (merging_compiler(kernel.name) for kernel in kernels)))


def _gains(difference: StepDifference, of_baseline: bool) -> list[WhatIf]:
    sign, step_ms = (-1, difference.step.baseline_ms) if of_baseline else (1, difference.step.other_ms)
    better = [
        part
        for part in difference.parts
        if part.kind in CLASSES
        and part.change.is_certain
        and min(times := (part.change.baseline_ms, part.change.other_ms)) >= _IN_BOTH * max(times)
        and sign * part.change.difference.value >= SMALLEST_GAIN * step_ms
    ]
    gains = [part.change.difference.scaled(sign) for part in better]
    together = [Estimate(sum(gain.value for gain in gains), None, None, gains[0].n)] if len(gains) > 1 else []
    kinds = [*((part.kind,) for part in better), tuple(part.kind for part in better)]
    return [
        WhatIf(
            of_baseline=of_baseline,
            kinds=classes,
            step_ms=step_ms - gain.value,
            speedup=Estimate(
                step_ms / (step_ms - gain.value),
                None if gain.low is None else step_ms / (step_ms - gain.low),
                None if gain.high is None or gain.high >= step_ms else step_ms / (step_ms - gain.high),
                gain.n,
            ),
        )
        for classes, gain in zip(kinds, [*gains, *together], strict=False)
        if gain.value < step_ms
    ]
