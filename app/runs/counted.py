"""Which stored runs count for an experiment: those of its variants that were made in the same surroundings."""

import importlib.metadata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.records import RunRow, StoredRun
from app.runs.environment import program_version
from app.runs.repeated import Repeated
from app.runs.schedule import Plan, counts_as, is_result
from app.samples import HOST, Inventory
from app.storage.reference import is_reference
from app.storage.store import Store
from workloads.catalog import Machine, check, installed_tensorflow, with_defaults
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The facts that make a run's figure another one; None or empty where one is not known, which is no difference.

    Cards go by name, not by UUID: the same experiment may go on another day on another card of the same kind.
    """

    driver: str | None
    cards: frozenset[str]
    cpu: str | None
    tensorflow: str | None
    program_version: str | None

    def differing(self, other: "Surroundings", *, on_gpu: bool) -> list[str]:
        """Names of the facts in which `other` differs, of those that matter on a GPU or on the CPU."""
        pairs: dict[str, tuple[str | None, str | None]] = {
            "TensorFlow": (self.tensorflow, other.tensorflow),
            "VariantScope": (self.program_version, other.program_version),
        }
        if not on_gpu:
            pairs["CPU"] = (self.cpu, other.cpu)
            return _unequal(pairs)
        pairs["driver"] = (self.driver, other.driver)
        known = self.cards and other.cards
        alike = self.cards <= other.cards or other.cards <= self.cards
        return [*_unequal(pairs), *(["card"] if known and not alike else [])]


def _unequal(pairs: dict[str, tuple[str | None, str | None]]) -> list[str]:
    return [name for name, (one, other) in pairs.items() if one and other and one != other]


def surroundings_here(inventory: Inventory) -> Surroundings:
    """Those of a run that would start now."""
    return Surroundings(
        driver=inventory.driver,
        cards=frozenset(gpu.name for gpu in inventory.machine.gpus),
        cpu=next(device.name for device in inventory.devices if device.device == HOST),
        tensorflow=_installed_tensorflow(),
        program_version=program_version(),
    )


def surroundings_of(run: StoredRun) -> Surroundings:
    """Those a run was made in."""
    return Surroundings(
        driver=run.environment.get("driver"),
        cards=frozenset(run.row.gpu_names),
        cpu=run.environment.get("cpu"),
        tensorflow=run.environment.get("tensorflow"),
        program_version=run.environment.get("program_version"),
    )


def _installed_tensorflow() -> str | None:
    """The version a worker would import, told without importing it."""
    try:
        return importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The runs that count, and how many do not because of which facts.

    `brought` is how many count although they were made in other surroundings, as an experiment's own runs do that were
    begun on another machine; `brought_with` names the facts.
    """

    runs: tuple[StoredRun, ...]
    elsewhere: int = 0
    because: tuple[str, ...] = ()
    brought: int = 0
    brought_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The runs that an experiment has made itself: they count wherever that was. With `alone` no others do."""

    runs: frozenset[int] = frozenset()
    alone: bool = False


NO_OWN = Own()
"""It has made none itself."""


@dataclass(frozen=True, slots=True)
class Here:
    """Surroundings that runs are held against; by interpreter the TensorFlow there, where it is not the program's."""

    own: Surroundings
    tensorflow: Mapping[str, str | None]

    def of(self, run: StoredRun) -> Surroundings:
        """Those that a run like this one would have."""
        interpreter = _interpreter(run.row.spec)
        known = interpreter in self.tensorflow
        return replace(self.own, tensorflow=self.tensorflow[interpreter]) if known else self.own


def results_of(stored: Sequence[RunRow], plan: Plan) -> list[RunRow]:
    """Of stored runs, newest first, every one of the plan's variants that ended in a result, oldest first."""
    wanted = [with_defaults(spec) for spec in plan.specs]
    workloads = {spec.workload for spec in wanted}
    return [
        row
        for row in reversed(stored)
        if row.spec.workload in workloads
        and row.purpose is None
        and is_result(row)
        and any(variant in wanted for variant in counts_as(row.spec))
    ]


def made_alike(stored: Sequence[RunRow], machine: Machine) -> list[RunRow]:
    """Of stored runs every one on the CPU or on cards of a kind that is here: how long runs take."""
    names = {gpu.name for gpu in machine.gpus}
    return [row for row in stored if set(row.gpu_names) <= names]


def counted_here(
    store: Store,
    plan: Plan,
    here: Surroundings,
    machine: Machine,
    repeated: Repeated | None = None,
    own: Own = NO_OWN,
    fields: Collection[str] | None = None,
    stored: Sequence[RunRow] | None = None,
) -> Counted:
    """The stored runs that need not be made again; what was refused elsewhere counts only if it is refused here too.

    Reference runs never do: whoever asks for an experiment wants to know of the own machine. `repeated` judges which
    runs were throttled too long to count, and then knows of them. With `fields`, no more of their samples is loaded.
    `stored` are all runs of the store, where they were read already.
    """
    results = results_of(store.list_runs() if stored is None else stored, plan)
    rows = [row for row in _without_reference(results) if not own.alone or row.run in own.runs]
    runs = [store.load(row.run, fields) for row in rows]
    named = {_interpreter(spec) for spec in plan.specs} - {""}
    here_of = Here(here, {interpreter: installed_tensorflow(interpreter) for interpreter in named})
    return _counted(
        [run for run in runs if not _refused_but_possible(run.row, machine)], here_of, repeated or Repeated(), own
    )


def counted_as_newest(store: Store, plan: Plan, repeated: Repeated | None = None) -> Counted:
    """The stored runs made in the surroundings of the newest of them; reference runs where there are no others."""
    found = results_of(store.list_runs(), plan)
    runs = [store.load(row.run) for row in _without_reference(found) or found]
    measured = [run for run in runs if run.row.completed]
    if not runs:
        return Counted(runs=())
    tensorflow = {_interpreter(run.row.spec): run.environment.get("tensorflow") for run in measured or runs}
    return _counted(runs, Here(surroundings_of((measured or runs)[-1]), tensorflow), repeated or Repeated())


def _without_reference(rows: Sequence[RunRow]) -> list[RunRow]:
    return [row for row in rows if not is_reference(row)]


def _refused_but_possible(row: RunRow, machine: Machine) -> bool:
    refused = row.outcome is not None and row.outcome.name == "refused"
    return refused and not check(with_defaults(row.spec), machine)


def _interpreter(spec: RunSpec) -> str:
    return str(spec.variant.get("interpreter", ""))


def _counted(runs: Sequence[StoredRun], here: Here, repeated: Repeated, own: Own = NO_OWN) -> Counted:
    told = [(run, here.of(run).differing(surroundings_of(run), on_gpu=_on_gpu(run))) for run in runs]
    others = [names for run, names in told if names and run.row.run not in own.runs]
    counted = [(run, names) for run, names in told if (not names or run.row.run in own.runs) and repeated.counts(run)]
    brought = [names for _, names in counted if names]
    return Counted(
        runs=tuple(run for run, _ in counted),
        elsewhere=len(others),
        because=tuple(dict.fromkeys(_flat(others))),
        brought=len(brought),
        brought_with=tuple(dict.fromkeys(_flat(brought))),
    )


def _flat(lists: Iterable[Sequence[str]]) -> Iterable[str]:
    return (name for names in lists for name in names)


def _on_gpu(run: StoredRun) -> bool:
    return int(run.row.spec.variant.get("gpus", 0)) > 0
