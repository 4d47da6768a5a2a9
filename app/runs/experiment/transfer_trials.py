"""Weight-transfer trials of an experiment: its runs' saved weights in the implementations its plan names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.plan import Plan, WeightTransfer
from app.records import PortabilityResult, RunHeader
from app.runs.experiment.schedule import runs_of_variant
from app.runs.jobs import Notify
from app.runs.leases import CPU
from app.runs.session import RunServices
from app.runs.weight_transfer import transfer_targets, try_weights, weights_file
from app.storage.store import Store


def run_to_transfer(transfer: WeightTransfer, runs: Sequence[RunHeader]) -> RunHeader | None:
    """Return the newest completed run whose weights are to be tried."""
    numbers = [run.row.run for run in runs if run.row.completed]
    made_runs = [row.run for row in runs_of_variant(transfer.spec, [run.row for run in runs]) if row.run in numbers]
    return next((run for run in reversed(runs) if run.row.run in made_runs), None)


def latest_trial(run: RunHeader, implementation: str, gpus: int) -> PortabilityResult | None:
    """Return the newest trial of a run's weights in an implementation, on the CPU (0 GPUs) or on a GPU."""
    trials = [
        trial
        for trial in run.portability
        if trial.implementation == implementation and (trial.device == CPU) == (gpus == 0)
    ]
    return trials[-1] if trials else None


@dataclass(frozen=True, slots=True)
class TransferTrial:
    """A pending trial: a run's weights in an implementation, on the CPU or on a GPU."""

    run: RunHeader
    implementation: str
    gpus: int


def pending_trials(plan: Plan, runs: Sequence[RunHeader]) -> list[TransferTrial]:
    """Return the trials that the plan's runs do not have yet."""
    return [
        TransferTrial(run, name, transfer.gpus)
        for transfer in plan.weight_transfers
        if (run := run_to_transfer(transfer, runs)) is not None
        for name in transfer.into
        if latest_trial(run, name, transfer.gpus) is None
    ]


def runs_with_weights(plan: Plan, runs: Sequence[RunHeader], database: Path) -> tuple[RunHeader, ...]:
    """Return the runs without those whose weights are gone before all of their trials were made: these are made again.

    Weights are stored next to the runs' database.
    """
    pending = [trial.run.row for trial in pending_trials(plan, runs)]
    missing = [row.run for row in pending if not weights_file(row, database, None).exists()]
    return tuple(run for run in runs if run.row.run not in missing)


def run_pending_trials(
    plan: Plan, runs: Sequence[RunHeader], services: RunServices, notify: Notify, may_continue: Callable[[], bool]
) -> list[RunHeader]:
    """Make and store the pending trials; return the runs with them.

    `notify` gets a sentence per trial; `may_continue` returns whether to begin another one.

    Raises:
        UserError: A file of weights is missing, or an implementation cannot run on this machine.
    """
    tried = []
    for trial in pending_trials(plan, runs):
        if may_continue():
            notify(f"Trying the weights of run {trial.run.row.run} in {trial.implementation} …")
            _run_trial(trial, services, notify)
            tried.append(trial.run.row.run)
    with Store.open(services.database) as store:
        return [store.load_header(run.row.run) if run.row.run in tried else run for run in runs]


def _run_trial(trial: TransferTrial, services: RunServices, notify: Notify) -> None:
    run, machine = trial.run.row, services.host.machine
    weights = weights_file(run, services.database, None)
    (target,) = transfer_targets(run.spec, [trial.implementation], trial.gpus, machine).possible
    result = try_weights(run, weights, target, services.host, notify).result
    with Store.open(services.database) as store:
        store.add_checks(run.run, [result])
