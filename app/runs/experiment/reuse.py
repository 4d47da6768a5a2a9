"""Which stored runs an experiment can reuse: same variant, same environment, not throttled for too long."""

import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from app.analysis.comparability import differing_variables, is_same_host, onednn_differs, throttled_pct
from app.paths import program_version
from app.queries import QueueEntry
from app.runs.environment import sources_hash
from app.runs.experiment.schedule import is_result
from app.storage.owner import host_id
from app.storage.store import Store
from app.values.environment_keys import HOST_ID_KEY, HOST_KEY, SOURCES_KEY, STOOD_STILL_KEY
from app.values.plan import MAX_THROTTLED_PCT, Plan, matching_variants
from app.values.records import RunHeader, RunRow
from app.values.samples import HOST, Inventory
from workloads.catalog import (
    FRAMEWORK,
    FRAMEWORKS,
    Machine,
    check,
    default_interpreter,
    installed_framework,
    recorded_variables,
)
from workloads.protocol import RunSpec

_MOST_COMPARABLE = 300
"""The most stored runs for estimating durations and spreads: more take memory in every program that runs something."""
RECENT_S = 3600
"""The largest age in seconds at which others' runs count for a new experiment: a machine changes within hours."""


class ThrottleFilter:
    """Decides which runs count, given in their order, stored runs first.

    A run that was throttled, or suspended with its program, is repeated once.

    Thread: one at a time.
    """

    def __init__(self, max_throttled_pct: float = MAX_THROTTLED_PCT) -> None:
        self._max_pct = max_throttled_pct
        self._awaiting_repeat: list[RunSpec] = []

    def accepts(self, run: RunHeader) -> bool:
        """Return whether a run counts: not if it was throttled or suspended, unless it repeats one that was."""
        if not run.row.completed:
            return True
        variant = run.row.spec
        if variant in self._awaiting_repeat:
            self._awaiting_repeat.remove(variant)
            return True
        if throttled_pct(run.environment) <= self._max_pct and STOOD_STILL_KEY not in run.environment:
            return True
        self._awaiting_repeat.append(variant)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFingerprint:
    """The parts of an environment that affect a run's figures; None or empty if unknown, which counts as equal.

    `frameworks` has versions by the value of the parameter `framework`; for a run, only its own. `sources` is the hash
    of the code that a worker imports; `variables` are its environment variables; `host` identifies its host, and is
    empty for the program's own machine. GPUs are compared by name, not UUID: an experiment may continue on another GPU
    of the same model.
    """

    driver: str | None
    gpus: frozenset[str]
    cpu: str | None
    frameworks: Mapping[str, str]
    program_version: str | None
    sources: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)

    def differences(self, other: "EnvironmentFingerprint", *, on_gpu: bool) -> list[str]:
        """Return the names of the differences from `other` that matter on a GPU or on the CPU."""
        pairs: dict[str, tuple[str | None, str | None]] = {
            **{
                framework.name: (self.frameworks.get(key), other.frameworks.get(key))
                for key, framework in FRAMEWORKS.items()
            },
            "VariantScope": (self.program_version, other.program_version),
            "version of the code": (self.sources, other.sources),
            "driver" if on_gpu else "CPU": (self.driver, other.driver) if on_gpu else (self.cpu, other.cpu),
        }
        has_gpus = on_gpu and self.gpus and other.gpus
        same_gpus = self.gpus <= other.gpus or other.gpus <= self.gpus
        names = [
            *[name for name, values in pairs.items() if all(values) and len(set(values)) > 1],
            *differing_variables(self.variables, other.variables),
        ]
        if not on_gpu and onednn_differs(self.variables, other.variables):
            names.append("oneDNN")
        hosts = [] if is_same_host(self.host, other.host) else ["host"]
        return [*hosts, *names, *(["GPU"] if has_gpus and not same_gpus else [])]


def current_fingerprint(inventory: Inventory, environment: Mapping[str, str] | None = None) -> EnvironmentFingerprint:
    """Return the fingerprint of a run that would start now on the host of an inventory.

    `environment` is the host's own report, if it may be another machine. Its framework may be unknown before a run.
    """
    gpus = frozenset(gpu.name for gpu in inventory.machine.gpus)
    if environment is not None and HOST_KEY in environment:
        return _fingerprint(environment, gpus)
    # TensorFlow for macOS has no oneDNN to switch on.
    defaults = FRAMEWORK.default_variables if sys.platform == "linux" else {}
    installed = _installed_versions("")
    here = {
        "driver": inventory.driver,
        "cpu": next(device.name for device in inventory.devices if device.device == HOST),
        **{FRAMEWORKS[name].version_key: version for name, version in installed.items()},
        "program_version": program_version(),
        SOURCES_KEY: sources_hash(),
        HOST_ID_KEY: host_id(),
        **recorded_variables({**defaults, **os.environ}),
    }
    return _fingerprint({key: value for key, value in here.items() if value}, gpus)


def named_fingerprint(host: str) -> EnvironmentFingerprint:
    """Return what is known of a host without asking it: its name."""
    return _fingerprint({HOST_KEY: host}, frozenset())


def run_fingerprint(run: RunHeader) -> EnvironmentFingerprint:
    return _fingerprint(run.environment, frozenset(run.row.gpu_names))


def _fingerprint(environment: Mapping[str, str], gpus: frozenset[str]) -> EnvironmentFingerprint:
    return EnvironmentFingerprint(
        driver=environment.get("driver"),
        gpus=gpus,
        cpu=environment.get("cpu"),
        frameworks=_versions(environment),
        program_version=environment.get("program_version"),
        sources=environment.get(SOURCES_KEY),
        variables=environment,
        host={key: environment[key] for key in (HOST_KEY, HOST_ID_KEY) if key in environment},
    )


def _versions(environment: Mapping[str, str]) -> dict[str, str]:
    versions = {name: environment.get(framework.version_key) for name, framework in FRAMEWORKS.items()}
    return {name: version for name, version in versions.items() if version}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusableRuns:
    """Which stored runs count for an experiment.

    Attributes:
        excluded: How many do not count because their environments differ.
        excluded_due_to: In what these differ.
        imported: How many count although their environments differ, because the experiment ran them on another machine.
        imported_differences: In what these differ.
        older_utc_ns: When the runs that are only too old were made, in order.
    """

    runs: tuple[RunHeader, ...]
    excluded: int = 0
    excluded_due_to: tuple[str, ...] = ()
    imported: int = 0
    imported_differences: tuple[str, ...] = ()
    older_utc_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FingerprintByPython:
    """The environment to compare runs with.

    `frameworks` has the versions in other Pythons than the program's own, by interpreter and packages.
    """

    base: EnvironmentFingerprint
    frameworks: Mapping[tuple[str, str], Mapping[str, str]]

    def expected_for(self, run: RunHeader) -> EnvironmentFingerprint:
        frameworks = self.frameworks.get(_python(run.row.spec))
        return self.base if frameworks is None else replace(self.base, frameworks=frameworks)


def matching_results(stored: Iterable[RunRow], plan: Plan) -> list[RunRow]:
    """Return the results of the plan's variants, oldest first; `stored` is newest first."""
    workloads = {spec.workload for spec in plan.specs}
    newest_first = [
        row
        for row in stored
        if row.spec.workload in workloads
        and row.purpose is None
        and is_result(row)
        and any(variant in plan.specs for variant in matching_variants(row.spec))
    ]
    return newest_first[::-1]


def largest_reference(rows: Iterable[RunRow]) -> list[RunRow]:
    """Return the reference runs among these, from the file with the most.

    Files share variants, measured on different machines and days.
    """
    reference = [row for row in rows if row.is_reference]
    files = Counter(row.experiments for row in reference)
    return [row for row in reference if files[row.experiments] == max(files.values())]


def runs_on_same_hardware(stored: Iterable[RunRow], machine: Machine) -> list[RunRow]:
    """Return the newest stored runs on the CPU, or on GPU models that this machine has, for estimates."""
    names = {gpu.name for gpu in machine.gpus}
    return list(islice((row for row in stored if set(row.gpu_names) <= names), _MOST_COMPARABLE))


def reusable_runs(
    store: Store,
    plan: Plan,
    fingerprint: EnvironmentFingerprint,
    machine: Machine | None,
    entry: QueueEntry | None = None,
    throttle_filter: ThrottleFilter | None = None,
    stored: Sequence[RunRow] | None = None,
) -> ReusableRuns:
    """Return the stored runs that need no repetition: the entry's own, and recent ones of others.

    A run that was refused elsewhere counts only if it is refused here too. Reference runs never count: an experiment is
    about the user's machine. The entry's own runs count wherever and whenever they ran.

    `fingerprint` is the environment of a run started now. `throttle_filter` decides which runs count, and remembers
    that for later runs. `stored` are all rows of the store, if already read.
    """
    own_runs = frozenset[int]() if entry is None else runs_of_entry(store, entry)
    results = matching_results(store.each_run() if stored is None else stored, plan)
    rows = [row for row in _without_reference(results) if not plan.again or row.run in own_runs]
    runs = [store.load_header(row.run) for row in rows]
    # Only another host itself knows its Python environments.
    pythons = {_python(spec) for spec in plan.specs if HOST_KEY not in fingerprint.host} - {("", "")}
    fingerprints = FingerprintByPython(
        fingerprint,
        # What uv would install is unknown until it does.
        {(python, packages): {} if packages else _installed_versions(python) for python, packages in pythons},
    )
    return _select_reusable(
        [run for run in runs if machine is None or not _refused_but_possible(run.row, machine)],
        fingerprints,
        throttle_filter or ThrottleFilter(plan.max_throttled_pct),
        own_runs,
        0 if plan.reuse else _begin_utc_ns(store, entry) - RECENT_S * 10**9,
    )


def _installed_versions(interpreter: str) -> dict[str, str]:
    versions = {
        name: installed_framework(interpreter or default_interpreter(), framework)
        for name, framework in FRAMEWORKS.items()
    }
    return {name: version.partition("+")[0] for name, version in versions.items() if version}


def runs_of_entry(store: Store, entry: QueueEntry) -> frozenset[int]:
    """Return an entry's runs, here or elsewhere, and those that counted when it began."""
    return frozenset(() if entry.experiment is None else store.library.runs_of_experiment(entry.experiment))


def _begin_utc_ns(store: Store, entry: QueueEntry | None) -> int:
    """Return when an experiment began: now, if it has no runs yet."""
    experiment = None if entry is None or entry.experiment is None else store.library.experiment(entry.experiment)
    if entry is None or experiment is None:
        return time.time_ns()
    # An experiment that a new entry extends is older than the entry.
    return max(entry.added_utc_ns, experiment.created_utc_ns)


def reusable_as_newest(store: Store, plan: Plan) -> ReusableRuns:
    """Return the reusable stored runs in the newest run's environment; reference runs if there are no others."""
    results = matching_results(store.each_run(), plan)
    runs = [store.load_header(row.run) for row in _without_reference(results) or largest_reference(results)]
    measured = [run for run in runs if run.row.completed]
    if not runs:
        return ReusableRuns(runs=())
    frameworks: dict[tuple[str, str], dict[str, str]] = {}
    for run in measured or runs:
        frameworks.setdefault(_python(run.row.spec), {}).update(_versions(run.environment))
    return _select_reusable(
        runs,
        FingerprintByPython(run_fingerprint((measured or runs)[-1]), frameworks),
        ThrottleFilter(plan.max_throttled_pct),
    )


def _without_reference(rows: Sequence[RunRow]) -> list[RunRow]:
    return [row for row in rows if not row.is_reference]


def _refused_but_possible(row: RunRow, machine: Machine) -> bool:
    refused = row.outcome is not None and row.outcome.name == "refused"
    return refused and not check(row.spec, machine)


def _python(spec: RunSpec) -> tuple[str, str]:
    return str(spec.variant.get("interpreter", "")), str(spec.variant.get("packages", ""))


def _select_reusable(
    runs: Sequence[RunHeader],
    fingerprints: FingerprintByPython,
    throttle_filter: ThrottleFilter,
    own_runs: Collection[int] = (),
    since_utc_ns: int = 0,
) -> ReusableRuns:
    compared = [
        (run, fingerprints.expected_for(run).differences(run_fingerprint(run), on_gpu=_on_gpu(run))) for run in runs
    ]
    of_others = [(run, names) for run, names in compared if run.row.run not in own_runs]
    excluded = [names for _, names in of_others if names]
    older = [run.row for run, names in of_others if not names and run.row.started_utc_ns < since_utc_ns]
    accepted = [
        (run, names)
        for run, names in compared
        if (run.row.run in own_runs or (not names and run.row.started_utc_ns >= since_utc_ns))
        and throttle_filter.accepts(run)
    ]
    imported = [names for _, names in accepted if names]
    return ReusableRuns(
        runs=tuple(run for run, _ in accepted),
        excluded=len(excluded),
        excluded_due_to=tuple(dict.fromkeys(_flatten(excluded))),
        imported=len(imported),
        imported_differences=tuple(dict.fromkeys(_flatten(imported))),
        older_utc_ns=tuple(row.started_utc_ns for row in older),
    )


def _flatten(lists: Iterable[Sequence[str]]) -> Iterable[str]:
    return (name for names in lists for name in names)


def _on_gpu(run: RunHeader) -> bool:
    return int(run.row.spec.variant.get("gpus", 0)) > 0
