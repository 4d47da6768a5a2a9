"""A run's saved weights in other implementations and on other devices: what can be tried here, and trying it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import UserError
from app.records import Portability, RunRow
from app.runs.errands import Told, ask, leased
from app.runs.leases import CPU, Leases
from app.runs.session import RunServices
from app.samples import HOST
from app.storage.location import weights_path
from workloads import catalog
from workloads.catalog import Machine
from workloads.protocol import Compared, ExportModel, RunSpec, TryWeights, Variant

_AGAIN = "run the variant again with -s save_weights=true"
_IN_INFERENCE: Variant = {
    "mode": "inference",
    "precision": "float32",
    "xla": False,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
}
"""How weights are tried: the most exact, and without what only training has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where weights can be tried on this machine, and by implementation why they cannot be in the others."""

    possible: tuple[RunSpec, ...]
    left_out: dict[str, str]


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one target, and how large a difference the rounding of the training explains."""

    found: Portability
    tolerance: float


def weights_of(run: RunRow, database: Path, given: Path | None) -> Path:
    """The file of a run's weights: the one given, else that beside the database; raises `UserError`."""
    if run.spec.workload != "lstm":
        raise UserError(f"Run {run.run} is one of {run.spec.workload}; only lstm runs save their weights.")
    if given is not None:
        return given
    if not run.spec.variant.get("save_weights", False):
        raise UserError(f"Run {run.run} did not save its weights: {_AGAIN}.")
    if not run.completed:
        how = run.outcome.name.replace("_", " ") if run.outcome else "still running"
        raise UserError(f"Run {run.run} is {how}, and weights are saved when a run completes: {_AGAIN}.")
    return weights_path(database, run.uid)


def targets(trained: RunSpec, into: Sequence[str], gpus: int, machine: Machine) -> Targets:
    """The variants to try, of the implementations named or of all; raises `UserError` where one named cannot be."""
    known = catalog.workload("lstm").parameter("implementation")
    names = [str(catalog.parse(known, word)) for word in into] or [choice.value for choice in known.choices]
    specs = {name: _target(trained, name, gpus) for name in names}
    reasons = {name: refusals[0].reason for name, spec in specs.items() if (refusals := catalog.check(spec, machine))}
    if reasons and (into or len(reasons) == len(names)):
        raise UserError(next(iter(reasons.values())))
    return Targets(possible=tuple(spec for name, spec in specs.items() if name not in reasons), left_out=reasons)


def _target(trained: RunSpec, implementation: str, gpus: int) -> RunSpec:
    ours: Variant = {
        "implementation": implementation,
        "gpus": gpus,
        "devices": "",
        "cpu_threads": 0,
        "memory_growth": True,
        "save_weights": False,
        "interpreter": "",
    }
    return RunSpec(
        workload=trained.workload, variant={**catalog.with_defaults(trained).variant, **_IN_INFERENCE, **ours}
    )


def try_weights(run: RunRow, weights: Path, spec: RunSpec, services: RunServices, told: Told) -> Trial:
    """One target: the same inputs through it, compared with what the run's own model answered."""
    inventory = services.feed.wait_inventory()
    gpus = [gpu.uuid for gpu in inventory.machine.gpus] if spec.variant["gpus"] else []
    with leased(services.leases, gpus or [CPU], told) as device:
        errand = TryWeights(
            weights_path=str(weights.absolute()),
            trained=catalog.with_defaults(run.spec).variant,
            spec=spec,
            gpu_uuids=(device,) if gpus else (),
        )
        compared = ask(errand, Compared)
    names = {known.device: known.name for known in inventory.devices}
    found = Portability(
        utc_ns=time.time_ns(),
        implementation=str(spec.variant["implementation"]),
        device=device,
        device_name=names[device if gpus else HOST],
        precision=str(spec.variant["precision"]),
        max_difference=compared.max_difference,
        max_output=compared.max_output,
    )
    return Trial(found, compared.tolerance)


def export_model(run: RunRow, weights: Path, paths: Sequence[Path], leases: Leases, told: Told) -> Compared:
    """Makes a plain Keras model of a run's weights at each path: a .keras file, or the folder of a SavedModel."""
    errand = ExportModel(
        weights_path=str(weights.absolute()),
        trained=catalog.with_defaults(run.spec).variant,
        model_paths=tuple(str(path.absolute()) for path in paths),
    )
    with leased(leases, [CPU], told):
        return ask(errand, Compared)
