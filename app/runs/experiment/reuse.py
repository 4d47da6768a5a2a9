"""Which stored runs an experiment can reuse: same variant, same environment, not throttled for too long."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.analysis.comparability import throttled_pct
from app.paths import program_version
from app.plan import MAX_THROTTLED_PCT, Plan
from app.records import RunHeader, RunRow
from app.runs.experiment.schedule import is_result, matching_variants
from app.samples import HOST, Inventory
from app.storage.reference import is_reference
from app.storage.store import Store
from workloads.catalog import FRAMEWORK, Machine, check, installed_framework
from workloads.protocol import RunSpec


class ThrottleFilter:
    """Judges runs in the order they were made, stored ones first: what is stored says all there is to know."""

    def __init__(self, max_throttled_pct: float = MAX_THROTTLED_PCT) -> None:
        self._max_pct = max_throttled_pct
        self._awaiting_repeat: list[RunSpec] = []

    def accepts(self, run: RunHeader) -> bool:
        """Whether this run counts: not if it was throttled for too long, unless it repeats one that was."""
        if not run.row.completed:
            return True
        variant = run.row.spec
        if variant in self._awaiting_repeat:
            self._awaiting_repeat.remove(variant)
            return True
        if throttled_pct(run.environment) <= self._max_pct:
            return True
        self._awaiting_repeat.append(variant)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFingerprint:
    """The facts that make a run's figure another one; None or empty where one is not known, which is no difference.

    Cards go by name, not by UUID: the same experiment may go on another day on another card of the same kind.
    """

    driver: str | None
    gpus: frozenset[str]
    cpu: str | None
    framework: str | None
    program_version: str | None

    def differences(self, other: "EnvironmentFingerprint", *, on_gpu: bool) -> list[str]:
        """Names of the facts in which `other` differs, of those that matter on a GPU or on the CPU."""
        pairs: dict[str, tuple[str | None, str | None]] = {
            FRAMEWORK.name: (self.framework, other.framework),
            "VariantScope": (self.program_version, other.program_version),
        }
        if not on_gpu:
            pairs["CPU"] = (self.cpu, other.cpu)
            return _differing_keys(pairs)
        pairs["driver"] = (self.driver, other.driver)
        known = self.gpus and other.gpus
        same_gpus = self.gpus <= other.gpus or other.gpus <= self.gpus
        return [*_differing_keys(pairs), *(["card"] if known and not same_gpus else [])]


def _differing_keys(pairs: dict[str, tuple[str | None, str | None]]) -> list[str]:
    return [name for name, (one, other) in pairs.items() if one and other and one != other]


def current_fingerprint(inventory: Inventory) -> EnvironmentFingerprint:
    """Those of a run that would start now."""
    return EnvironmentFingerprint(
        driver=inventory.driver,
        gpus=frozenset(gpu.name for gpu in inventory.machine.gpus),
        cpu=next(device.name for device in inventory.devices if device.device == HOST),
        framework=installed_framework(),
        program_version=program_version(),
    )


def run_fingerprint(run: RunHeader) -> EnvironmentFingerprint:
    """Those a run was made in."""
    return EnvironmentFingerprint(
        driver=run.environment.get("driver"),
        gpus=frozenset(run.row.gpu_names),
        cpu=run.environment.get("cpu"),
        framework=run.environment.get(FRAMEWORK.version_key),
        program_version=run.environment.get("program_version"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusableRuns:
    """The runs that count, and how many do not because of which facts.

    `brought` is how many count although they were made in other surroundings, as an experiment's own runs do that were
    begun on another machine; `brought_with` names the facts.
    """

    runs: tuple[RunHeader, ...]
    excluded: int = 0
    excluded_due_to: tuple[str, ...] = ()
    imported: int = 0
    imported_differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FingerprintByInterpreter:
    """The environment that runs are compared with; `framework` is its version in each other interpreter."""

    base: EnvironmentFingerprint
    framework: Mapping[str, str | None]

    def expected_for(self, run: RunHeader) -> EnvironmentFingerprint:
        """Those that a run like this one would have."""
        interpreter = _interpreter(run.row.spec)
        known = interpreter in self.framework
        return replace(self.base, framework=self.framework[interpreter]) if known else self.base


def matching_results(stored: Sequence[RunRow], plan: Plan) -> list[RunRow]:
    """Of stored runs, newest first, every one of the plan's variants that ended in a result, oldest first."""
    workloads = {spec.workload for spec in plan.specs}
    return [
        row
        for row in reversed(stored)
        if row.spec.workload in workloads
        and row.purpose is None
        and is_result(row)
        and any(variant in plan.specs for variant in matching_variants(row.spec))
    ]


def runs_on_same_hardware(stored: Sequence[RunRow], machine: Machine) -> list[RunRow]:
    """Of stored runs every one on the CPU or on cards of a kind that is here: how long runs take."""
    names = {gpu.name for gpu in machine.gpus}
    return [row for row in stored if set(row.gpu_names) <= names]


def reusable_runs(
    store: Store,
    plan: Plan,
    fingerprint: EnvironmentFingerprint,
    machine: Machine,
    own_runs: Collection[int] = (),
    throttle_filter: ThrottleFilter | None = None,
    stored: Sequence[RunRow] | None = None,
) -> ReusableRuns:
    """The stored runs that need not be made again; what was refused elsewhere counts only if it is refused here too.

    Reference runs never do: whoever asks for an experiment wants to know of the own machine. `repeated` judges which
    runs were throttled too long to count, and then knows of them. With `fields`, no more of their samples is loaded.
    `stored` are all runs of the store, where they were read already.
    """
    results = matching_results(store.list_runs() if stored is None else stored, plan)
    rows = [row for row in _without_reference(results) if not plan.again or row.run in own_runs]
    runs = [store.load_header(row.run) for row in rows]
    interpreters = {_interpreter(spec) for spec in plan.specs} - {""}
    fingerprints = FingerprintByInterpreter(
        fingerprint, {interpreter: installed_framework(interpreter) for interpreter in interpreters}
    )
    return _select_reusable(
        [run for run in runs if not _refused_but_possible(run.row, machine)],
        fingerprints,
        throttle_filter or ThrottleFilter(plan.max_throttled_pct),
        own_runs,
    )


def reusable_as_newest(store: Store, plan: Plan) -> ReusableRuns:
    """The stored runs made in the surroundings of the newest of them; reference runs where there are no others."""
    results = matching_results(store.list_runs(), plan)
    runs = [store.load_header(row.run) for row in _without_reference(results) or results]
    measured = [run for run in runs if run.row.completed]
    if not runs:
        return ReusableRuns(runs=())
    framework = {_interpreter(run.row.spec): run.environment.get(FRAMEWORK.version_key) for run in measured or runs}
    return _select_reusable(
        runs,
        FingerprintByInterpreter(run_fingerprint((measured or runs)[-1]), framework),
        ThrottleFilter(plan.max_throttled_pct),
    )


def _without_reference(rows: Sequence[RunRow]) -> list[RunRow]:
    return [row for row in rows if not is_reference(row)]


def _refused_but_possible(row: RunRow, machine: Machine) -> bool:
    refused = row.outcome is not None and row.outcome.name == "refused"
    return refused and not check(row.spec, machine)


def _interpreter(spec: RunSpec) -> str:
    return str(spec.variant.get("interpreter", ""))


def _select_reusable(
    runs: Sequence[RunHeader],
    fingerprints: FingerprintByInterpreter,
    throttle_filter: ThrottleFilter,
    own_runs: Collection[int] = (),
) -> ReusableRuns:
    compared = [
        (run, fingerprints.expected_for(run).differences(run_fingerprint(run), on_gpu=_on_gpu(run))) for run in runs
    ]
    excluded = [names for run, names in compared if names and run.row.run not in own_runs]
    accepted = [
        (run, names)
        for run, names in compared
        if (not names or run.row.run in own_runs) and throttle_filter.accepts(run)
    ]
    imported = [names for _, names in accepted if names]
    return ReusableRuns(
        runs=tuple(run for run, _ in accepted),
        excluded=len(excluded),
        excluded_due_to=tuple(dict.fromkeys(_flatten(excluded))),
        imported=len(imported),
        imported_differences=tuple(dict.fromkeys(_flatten(imported))),
    )


def _flatten(lists: Iterable[Sequence[str]]) -> Iterable[str]:
    return (name for names in lists for name in names)


def _on_gpu(run: RunHeader) -> bool:
    return int(run.row.spec.variant.get("gpus", 0)) > 0
