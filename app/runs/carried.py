"""The saved weights of an experiment's runs, tried in the implementations its plan names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.records import Portability, StoredRun
from app.runs.errands import Told
from app.runs.leases import CPU
from app.runs.portability import targets, try_weights, weights_of
from app.runs.schedule import Carried, Plan, of_variant
from app.runs.session import RunServices
from app.storage.store import Store


def run_of(carried: Carried, runs: Sequence[StoredRun]) -> StoredRun | None:
    """The newest completed run whose weights are to be tried."""
    made = [run.row.run for run in runs if run.row.completed]
    own = [row.run for row in of_variant(carried.spec, [run.row for run in runs]) if row.run in made]
    return next((run for run in reversed(runs) if run.row.run in own), None)


def trial_of(run: StoredRun, implementation: str, gpus: int) -> Portability | None:
    """What the newest trial of a run's weights in an implementation gave, on the CPU or on a GPU."""
    found = [
        trial
        for trial in run.portability
        if trial.implementation == implementation and (trial.device == CPU) == (gpus == 0)
    ]
    return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Untried:
    """A trial still to be made: a run's weights in an implementation, on the CPU or on a GPU."""

    run: StoredRun
    implementation: str
    gpus: int


def untried(plan: Plan, runs: Sequence[StoredRun]) -> list[Untried]:
    """The trials that the plan's runs do not have yet, of those runs that are there."""
    return [
        Untried(run, name, carried.gpus)
        for carried in plan.carried
        if (run := run_of(carried, runs)) is not None
        for name in carried.into
        if trial_of(run, name, carried.gpus) is None
    ]


def of_use(plan: Plan, runs: Sequence[StoredRun], database: Path) -> tuple[StoredRun, ...]:
    """These runs without those whose weights are gone before all of their trials were made: they are made again."""
    waiting = [trial.run.row for trial in untried(plan, runs)]
    gone = [row.run for row in waiting if not weights_of(row, database, None).exists()]
    return tuple(run for run in runs if run.row.run not in gone)


def try_carried(
    plan: Plan, runs: Sequence[StoredRun], services: RunServices, told: Told, may_go_on: Callable[[], bool]
) -> list[StoredRun]:
    """Tries and stores what was not tried yet, while it `may_go_on`; the same runs, with what is known of them now.

    Raises `UserError` where a file of weights is not there or an implementation cannot be tried on this machine.
    """
    tried = []
    for trial in untried(plan, runs):
        if may_go_on():
            told(f"Trying the weights of run {trial.run.row.run} in {trial.implementation} …")
            _try(trial, services, told)
            tried.append(trial.run.row.run)
    with Store.open(services.database) as store:
        return [store.load(run.row.run) if run.row.run in tried else run for run in runs]


def _try(trial: Untried, services: RunServices, told: Told) -> None:
    run, machine = trial.run.row, services.feed.wait_inventory().machine
    weights = weights_of(run, services.database, None)
    (target,) = targets(run.spec, [trial.implementation], trial.gpus, machine).possible
    found = try_weights(run, weights, target, services, told).found
    with Store.open(services.database) as store:
        store.add_portability(run.run, [found])
