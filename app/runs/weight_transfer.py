"""A run's saved weights in other implementations and devices: targets, trials, an experiment's trials, and export."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import UserError
from app.paths import weights_path
from app.runs.experiment.schedule import runs_of_variant
from app.runs.host import Host
from app.runs.jobs import Notify, leased, run_job
from app.runs.leases import CPU, Leases
from app.runs.session import RunServices
from app.storage.store import Store
from app.values.plan import Plan, WeightTransfer
from app.values.records import PortabilityResult, RunHeader, RunRow
from app.values.samples import HOST
from workloads import catalog
from workloads.catalog import Machine
from workloads.job_protocol import ExportModel, OutputDifference, TryWeights
from workloads.protocol import RunSpec, Variant

_RERUN_HINT = "run the variant again with -s save_weights=true"
_INFERENCE_SETTINGS: Variant = {
    "mode": "inference",
    "precision": "float32",
    "xla": False,
    "compile": False,
    "cuda_graph": False,
    "all_reduce": "nccl",
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
}
"""Settings of a trial: the most exact ones, without those that only training has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTargets:
    """Variants in which weights can be tried on this machine, and by implementation why others cannot."""

    possible: tuple[RunSpec, ...]
    excluded: dict[str, str]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of one trial, and the largest difference that the training's rounding explains."""

    result: PortabilityResult
    tolerance: float


def weights_file(run: RunRow, database: Path, path: Path | None) -> Path:
    """Return the file of a run's weights: the given one, else the one next to the database.

    Raises:
        UserError: The run saved no weights.
    """
    savers = [
        workload.name for workload in catalog.WORKLOADS if any(p.name == "save_weights" for p in workload.parameters)
    ]
    if run.spec.workload not in savers:
        names = f"{', '.join(savers[:-1])} and {savers[-1]}"
        raise UserError(f"Run {run.run} is of {run.spec.workload}; only {names} runs save their weights.")
    if path is not None:
        return path
    if not run.spec.variant.get("save_weights", False):
        raise UserError(f"Run {run.run} did not save its weights: {_RERUN_HINT}.")
    if not run.completed:
        how = run.outcome.name.replace("_", " ") if run.outcome else "still running"
        raise UserError(f"Run {run.run} is {how}, and weights are saved when a run completes: {_RERUN_HINT}.")
    return weights_path(database, run.uid)


def transfer_targets(trained: RunSpec, into: Sequence[str], gpus: int, machine: Machine) -> TransferTargets:
    """Return the variants in which to try the weights of a trained one.

    `into` are implementations; empty for all. With 0 GPUs the CPU is used.

    Raises:
        UserError: A named implementation, or every one, cannot be tried here.
    """
    parameter = catalog.workload(trained.workload).parameter("implementation")
    names = [str(catalog.parse(parameter, word)) for word in into] or [choice.value for choice in parameter.choices]
    specs = {name: _target_spec(trained, name, gpus) for name in names}
    reasons = {name: refusals[0].reason for name, spec in specs.items() if (refusals := catalog.check(spec, machine))}
    if reasons and (into or len(reasons) == len(names)):
        raise UserError(next(iter(reasons.values())))
    return TransferTargets(
        possible=tuple(spec for name, spec in specs.items() if name not in reasons), excluded=reasons
    )


_TRAINING_PARAMETERS = (
    *("data", "data_folder", "images", "augmentation", "scaling", "epochs"),
    *("learning_rate", "schedule", "weight_decay", "save_weights", "weights_from"),
)
"""Parameters that a trial has at their defaults: it only infers, and the file has the scaling of inputs."""


def _target_spec(trained: RunSpec, implementation: str, gpus: int) -> RunSpec:
    overrides: Variant = {
        "implementation": implementation,
        "gpus": gpus,
        "devices": "",
        "cpu_threads": 0,
        "memory_growth": True,
        "memory_limit": 0.0,
        "interpreter": "",
        "packages": "",
    }
    parameters = catalog.workload(trained.workload).parameters
    defaults = {parameter.name: parameter.default for parameter in parameters}
    overrides |= {name: value for name, value in defaults.items() if name in _TRAINING_PARAMETERS}
    changed = {name: value for name, value in {**_INFERENCE_SETTINGS, **overrides}.items() if name in defaults}
    return RunSpec(workload=trained.workload, variant={**trained.variant, **changed})


def try_weights(run: RunRow, weights: Path, spec: RunSpec, host: Host, notify: Notify) -> TrialResult:
    """Load a run's weights into a variant, and compare its outputs with those of the run's model for the same inputs.

    Raises:
        JobError: It failed.
    """
    inventory = host.inventory()
    gpus = [gpu.uuid for gpu in inventory.machine.gpus] if spec.variant["gpus"] else []
    with leased(host.leases, gpus or [CPU], notify) as device:
        request = TryWeights(
            weights_path=str(weights.absolute()),
            trained=run.spec,
            spec=spec,
            gpu_uuids=(device,) if gpus else (),
        )
        compared = host.run_job(request, OutputDifference)
    names = {device.device: device.name for device in inventory.devices}
    result = PortabilityResult(
        utc_ns=time.time_ns(),
        implementation=str(spec.variant["implementation"]),
        device=device,
        device_name=names[device if gpus else HOST],
        precision=str(spec.variant["precision"]),
        max_difference=compared.max_difference,
        max_output=compared.max_output,
    )
    return TrialResult(result, compared.tolerance)


def export_model(run: RunRow, weights: Path, paths: Sequence[Path], leases: Leases, notify: Notify) -> OutputDifference:
    """Write a plain Keras model with a run's weights to each path: a `.keras` file, or a folder for a SavedModel.

    Raises:
        JobError: It failed.
    """
    request = ExportModel(
        weights_path=str(weights.absolute()),
        trained=run.spec,
        model_paths=tuple(str(path.absolute()) for path in paths),
    )
    with leased(leases, [CPU], notify):
        return run_job(request, OutputDifference)


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
    """Return the trials that the plan's runs still lack."""
    return [
        TransferTrial(run, name, transfer.gpus)
        for transfer in plan.weight_transfers
        if (run := run_to_transfer(transfer, runs)) is not None
        for name in transfer.into
        if latest_trial(run, name, transfer.gpus) is None
    ]


def runs_with_weights(plan: Plan, runs: Sequence[RunHeader], database: Path) -> tuple[RunHeader, ...]:
    """Return the runs except those whose weights were lost before all of their trials, which are repeated.

    Weights are stored next to the runs' database.
    """
    pending = [trial.run.row for trial in pending_trials(plan, runs)]
    missing = [row.run for row in pending if not weights_file(row, database, None).exists()]
    return tuple(run for run in runs if run.row.run not in missing)


def run_pending_trials(
    plan: Plan, runs: Sequence[RunHeader], services: RunServices, notify: Notify, may_continue: Callable[[], bool]
) -> list[RunHeader]:
    """Run and store the pending trials; return the runs with them.

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
