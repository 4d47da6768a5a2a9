"""Check that variants compute the same: a job per variant, all from the baseline's weights and on its batch."""

import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app import units
from app.analysis.equality import (
    blocker,
    common_parts,
    largest_difference,
    relative_difference,
    spec_to_check,
    tolerances,
)
from app.errors import UserError
from app.records import EqualityCheck
from app.runs.custom import stored_source
from app.runs.host import host_of
from app.runs.jobs import Notify
from app.runs.leases import Lease
from app.runs.session import RunServices
from workloads.catalog import find_workload
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec

_LIMIT_S = 600.0
"""A job that takes longer, with XLA on a loaded machine, is given up."""
_BATCH_TOLERANCE = 1e-6
"""Relative difference of a batch's moments up to which it is the same one, its sums made in another order."""
_LOOK_S = 0.2

_log = logging.getLogger("variantscope.run")


def can_be_checked(spec: RunSpec) -> bool:
    """Return whether a workload computes anything: `dummy` does not."""
    workload = find_workload(spec.workload)
    return workload is not None and not workload.hidden


@dataclass(frozen=True, slots=True)
class _Computed:
    """The result of a job, and the file it wrote."""

    result: ComputedGradients
    path: Path


class _NotComparableError(Exception):
    """Why a variant's gradients say nothing; the text ends a sentence."""


@dataclass(frozen=True, slots=True)
class EqualityChecker:
    """Checks variants against one baseline.

    Attributes:
        baseline: The variant whose weights and batch all others start from.
        notify: Takes a sentence for the user.
        may_continue: Returns whether to go on; asked several times a second.

    Thread: `check` blocks its thread.
    """

    baseline: RunSpec
    services: RunServices
    notify: Notify
    may_continue: Callable[[], bool]

    def check(self, specs: Sequence[RunSpec]) -> Iterator[tuple[RunSpec, EqualityCheck]]:
        """Yield each variant with its check, until it may not go on; raises `UserError` where one is not allowed."""
        self.services.admit([self.baseline, *specs])
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
        """Return the check of one variant; raises `TimeoutError` once it may not go on."""
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
        """Return what the baseline computes of the batch in so many parts, computed once."""
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
                result = host_of(lease, self.services.host).run_job(
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
        """Return the check of two results, begun at `utc_ns`; `explained` is what rounding explains of the loss."""
        pairs = zip(computation.result.batch, reference.result.batch, strict=False)
        if len(computation.result.batch) != len(reference.result.batch) or not all(
            math.isclose(one, other, rel_tol=_BATCH_TOLERANCE, abs_tol=_BATCH_TOLERANCE) for one, other in pairs
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
