"""When an experiment checks that its variants compute the same, and what its runs store of that."""

from collections.abc import Callable, Sequence

from app.analysis.equality import Equality, describe_differences, describe_excess, judge_check, largest_of
from app.plan import Plan
from app.records import EqualityCheck
from app.runs.equality import EqualityChecker, can_be_checked
from app.runs.experiment.estimates import Experiment, requested_s
from app.runs.experiment.schedule import remaining_runs, runs_of_variant
from app.runs.jobs import Notify
from app.runs.session import RunServices
from app.storage.store import Store
from app.units import plural
from workloads.catalog import runnable
from workloads.protocol import RunSpec

_CHECK_S = 7.0
"""What one variant takes, most of it the import of the framework (docs/equality.md)."""
_MAX_SHARE = 0.25


def costs_little(plan: Plan) -> bool:
    """Return whether a check adds at most a quarter to the seconds that are measured."""
    measured_s = [requested_s(spec) * plan.repeats for spec in plan.variants]
    return sum(measured_s) * _MAX_SHARE >= len(measured_s) * _CHECK_S


class ExperimentEquality:
    """The checks of an experiment's variants against its first one, made before its first run.

    Every run made afterwards stores the check of its variant. A check that fails costs the experiment nothing.

    Thread: `make` before any run; `store` any.
    """

    def __init__(self, experiment: Experiment, services: RunServices, notify: Notify) -> None:
        self._plan = experiment.plan
        self._runs = experiment.runs
        self._services = services
        self._notify = notify
        self._checks: list[tuple[RunSpec, EqualityCheck]] = []

    def make(self, may_continue: Callable[[], bool]) -> None:
        """Check the variants that are to run and that no stored run has a check of."""
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
        """Store the check of a run's variant with the run, if there is one."""
        checks = [check for checked, check in self._checks if checked == spec]
        if checks:
            with Store.open(self._services.database) as store:
                store.add_checks(run, checks)

    def _stored(self, spec: RunSpec) -> EqualityCheck | None:
        """Return the newest check of a variant against the baseline that the experiment's runs have."""
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
    """Return a sentence on the variants that compute the same, and one on each other, named by their settings."""
    equalities = [(spec, judge_check(check, spec)) for spec, check in checks]
    same = [equality for _, equality in equalities if equality.state == "same"]
    sentences = [_describe_other(spec, equality, baseline) for spec, equality in equalities if equality.state != "same"]
    if same:
        count = f"{len(same)} {plural('variant', len(same))}"
        verb = "computes" if len(same) == 1 else "compute"
        sentences.insert(0, f"{count} {verb} the same as the baseline: {describe_differences(largest_of(same))}.")
    return sentences


def _describe_other(spec: RunSpec, equality: Equality, baseline: RunSpec) -> str:
    name = ", ".join(f"{key}={value}" for key, value in spec.variant.items() if baseline.variant.get(key) != value)
    if equality.state == "not comparable":
        return f"Not checked whether {name} computes the same: {equality.reason}."
    return f"{name} does not compute the same as the baseline: {describe_excess(equality)}."
