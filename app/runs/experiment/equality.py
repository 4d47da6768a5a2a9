"""Checks before the first run that variants compute the same: a job for each, with the baseline's weights and batch."""

import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.analysis.equality import (
    Equality,
    blocker,
    common_parts,
    describe_differences,
    describe_excess,
    judge_check,
    largest_difference,
    largest_of,
    relative_difference,
    spec_to_check,
    tolerances,
)
from app.errors import UserError
from app.runs.custom import stored_source
from app.runs.experiment.estimates import Experiment, requested_s
from app.runs.experiment.schedule import remaining_runs, runs_of_variant
from app.runs.jobs import Notify
from app.runs.leases import Lease
from app.runs.session import RunServices
from app.storage.store import Store
from app.values import units
from app.values.plan import Plan
from app.values.records import EqualityCheck
from workloads.catalog import find_workload, is_script, runnable
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec

_LIMIT_S = 600.0
"""The longest time for one job, for XLA on a loaded machine."""
_BATCH_TOLERANCE = 1e-6
"""The largest relative difference between moments of the same batch, due to another order of summation."""

_log = logging.getLogger("variantscope.run")


def can_be_checked(spec: RunSpec) -> bool:
    """Return whether the program knows what a workload computes, unlike `dummy` and scripts."""
    workload = find_workload(spec.workload)
    return workload is not None and not workload.hidden and not is_script(spec.workload)


@dataclass(frozen=True, slots=True)
class _Computed:
    """The result of a job, and the file it wrote."""

    result: ComputedGradients
    path: Path


class _NotComparableError(Exception):
    """A variant's gradients say nothing, and why; the text ends a sentence."""


@dataclass(frozen=True, slots=True)
class EqualityChecker:
    """Checks variants against one baseline.

    Attributes:
        baseline: The variant whose weights and batch all others start from.
        notify: Takes a sentence for the user.
        may_continue: Returns whether to continue; asked several times a second.

    Thread: `check` blocks its thread.
    """

    baseline: RunSpec
    services: RunServices
    notify: Notify
    may_continue: Callable[[], bool]

    def check(self, specs: Sequence[RunSpec]) -> Iterator[tuple[RunSpec, EqualityCheck]]:
        """Yield each variant with its check, until it must stop; raises `UserError` if a variant is not allowed."""
        self.services.admit([spec_to_check(spec, self.baseline) for spec in (self.baseline, *specs)])
        with tempfile.TemporaryDirectory(prefix="variantscope-equality-") as folder:
            baselines: dict[int, _Computed | str] = {}
            for spec in specs:
                try:
                    check = self._check(spec, Path(folder), baselines)
                except TimeoutError:
                    return
                _log.info("equality of %s: %s", spec.variant, check)
                yield spec, check

    def _check(self, spec: RunSpec, folder: Path, baselines: dict[int, "_Computed | str"]) -> EqualityCheck:
        """Return the check of one variant; raises `TimeoutError` once it must stop."""
        utc_ns = time.time_ns()
        try:
            if (reason := blocker(spec, self.baseline)) is not None:
                raise _NotComparableError(reason)
            parts = common_parts(spec, self.baseline)
            reference = self._baseline(parts, folder, baselines)
            computation = self._compute(spec, parts, folder / "variant.npz", reference.path)
            return self._compared(computation, reference, utc_ns, tolerances(spec, self.baseline)[0])
        except _NotComparableError as error:
            return EqualityCheck(utc_ns=utc_ns, baseline=self.baseline.variant, reason=str(error))

    def _baseline(self, parts: int, folder: Path, baselines: dict[int, "_Computed | str"]) -> _Computed:
        if parts not in baselines:
            try:
                baselines[parts] = self._compute(self.baseline, parts, folder / f"baseline{parts}.npz", None)
            except _NotComparableError as error:
                baselines[parts] = f"of the baseline: {error}"
        baseline = baselines[parts]
        if isinstance(baseline, str):
            raise _NotComparableError(baseline)
        return baseline

    def _compute(self, spec: RunSpec, parts: int, path: Path, start: Path | None) -> _Computed:
        checked = spec_to_check(spec, self.baseline)
        if (refusal := self.services.host.refusal(checked)) is not None:
            raise _NotComparableError(refusal.rstrip("."))
        end_s = time.monotonic() + _LIMIT_S
        try:
            with self._leased(checked) as lease:
                request = ComputeGradients(
                    spec=checked,
                    gpu_uuids=lease.devices if int(spec.variant["gpus"]) else (),
                    parts=parts // max(1, int(spec.variant["gpus"])),
                    path=str(path),
                    start_path=str(start) if start else None,
                    source=stored_source(spec, self.services.database),
                )
                result = self.services.host.run_job(
                    request, ComputedGradients, lambda: time.monotonic() > end_s or not self.may_continue()
                )
        except TimeoutError:
            if not self.may_continue():
                raise
            raise _NotComparableError(f"it took longer than {units.with_unit(_LIMIT_S / 60, 'min')}") from None
        except UserError as error:
            raise _NotComparableError(str(error).partition("\n")[0].rstrip(".")) from None
        return _Computed(result, path)

    @contextmanager
    def _leased(self, spec: RunSpec) -> Iterator[Lease]:
        """Lease a variant's devices, so that no run measures on them; raises `TimeoutError`."""

        def sleep_or_give_up(seconds: float) -> bool:
            time.sleep(seconds)
            return not self.may_continue()

        lease = self.services.host.lease_for_run(spec, notify=self.notify, wait_for_stop=sleep_or_give_up)
        if lease is None:
            raise TimeoutError
        try:
            yield lease
        finally:
            lease.release()

    def _compared(self, computation: _Computed, reference: _Computed, utc_ns: int, explained: float) -> EqualityCheck:
        """Return the check of two results, begun at `utc_ns`; `explained` is the loss difference due to rounding."""
        pairs = zip(computation.result.batch, reference.result.batch, strict=False)
        if len(computation.result.batch) != len(reference.result.batch) or not all(
            math.isclose(first, second, rel_tol=_BATCH_TOLERANCE, abs_tol=_BATCH_TOLERANCE) for first, second in pairs
        ):
            raise _NotComparableError("its batch is another one")
        losses, losses_of_baseline = computation.result.losses, reference.result.losses
        for twice in filter(None, (losses, losses_of_baseline)):
            if relative_difference(*twice) > explained:
                raise _NotComparableError("the loss of one batch changes from step to step, as with random masks")
        with np.load(computation.path) as mine, np.load(reference.path) as theirs:
            names = [str(name) for name in theirs["names"]]
            keys = [f"gradient{number}" for number in range(len(names))]
            if [mine[key].shape for key in keys if key in mine] != [theirs[key].shape for key in keys]:
                raise _NotComparableError("its gradients are of other shapes")
            difference, tensor = largest_difference(names, map(mine.__getitem__, keys), [theirs[key] for key in keys])
        return EqualityCheck(
            utc_ns=utc_ns,
            baseline=self.baseline.variant,
            loss_difference=relative_difference(losses[0], losses_of_baseline[0]) if losses else None,
            difference=difference,
            tensor=tensor,
        )


_CHECK_S = 7.0
"""The time for one variant, mostly the import of the framework (docs/internals/equality.md)."""
_MAX_SHARE = 0.25


def costs_little(plan: Plan) -> bool:
    """Return whether a check adds at most a quarter to the measured seconds."""
    measured_s = [requested_s(spec) * plan.repeats for spec in plan.variants]
    return sum(measured_s) * _MAX_SHARE >= len(measured_s) * _CHECK_S


class ExperimentEquality:
    """The checks of an experiment's variants against its first one, before its first run.

    Every later run stores its variant's check. A failed check does not affect the experiment.

    Thread: `make` before any run; `store` any.
    """

    def __init__(self, experiment: Experiment, services: RunServices, notify: Notify) -> None:
        self._plan = experiment.plan
        self._runs = experiment.runs
        self._services = services
        self._notify = notify
        self._checks: list[tuple[RunSpec, EqualityCheck]] = []

    def make(self, may_continue: Callable[[], bool]) -> None:
        """Check the variants that will run and have no check in a stored run."""
        choice = self._plan.check_equality
        baseline, *others = self._plan.variants
        if choice is False or not can_be_checked(baseline):
            return
        self._checks = [(spec, check) for spec in others if (check := self._stored(spec)) is not None]
        checked = [spec for spec, _ in self._checks]
        possible = runnable(remaining_runs(self._plan, [run.row for run in self._runs]), self._services.host.machine)
        specs = [spec for spec in others if spec in possible and spec not in checked]
        if not specs or not (choice or costs_little(self._plan)):
            return
        self._notify("Checking that the variants compute the same …")
        checker = EqualityChecker(baseline, self._services, self._notify, may_continue)
        checks = list(checker.check(specs))
        self._checks += checks
        for sentence in describe_checks(baseline, checks):
            self._notify(sentence)

    def store(self, run: int, spec: RunSpec) -> None:
        checks = [check for checked, check in self._checks if checked == spec]
        if checks:
            with Store.open(self._services.database) as store:
                store.add_checks(run, checks)

    def _stored(self, spec: RunSpec) -> EqualityCheck | None:
        """Return the newest check of a variant against the baseline of the experiment's runs."""
        rows = runs_of_variant(spec, [run.row for run in self._runs])
        numbers = [row.run for row in rows]
        checks = [
            check
            for run in self._runs
            if run.row.run in numbers
            for check in run.equality
            if check.difference is not None and check.baseline == self._plan.variants[0].variant
        ]
        return max(checks, key=lambda check: check.utc_ns, default=None)


def describe_checks(baseline: RunSpec, checks: Sequence[tuple[RunSpec, EqualityCheck]]) -> list[str]:
    """Return one sentence on the variants that compute the same, and one on each other, named by their settings."""
    equalities = [(spec, judge_check(check, spec)) for spec, check in checks]
    same = [equality for _, equality in equalities if equality.state == "same"]
    sentences = [_describe_other(spec, equality, baseline) for spec, equality in equalities if equality.state != "same"]
    if same:
        count = f"{len(same)} {units.plural('variant', len(same))}"
        verb = "computes" if len(same) == 1 else "compute"
        sentences.insert(0, f"{count} {verb} the same as the baseline: {describe_differences(largest_of(same))}.")
    return sentences


def _describe_other(spec: RunSpec, equality: Equality, baseline: RunSpec) -> str:
    name = ", ".join(f"{key}={value}" for key, value in spec.variant.items() if baseline.variant.get(key) != value)
    if equality.state == "not comparable":
        return f"Not checked whether {name} computes the same: {equality.reason}."
    return f"{name} does not compute the same as the baseline: {describe_excess(equality)}."
