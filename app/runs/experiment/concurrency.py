"""Which runs of an experiment may run concurrently, and which GPUs each should get."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from app.plan import Plan
from app.runs.experiment.schedule import matching_keys, variant_key
from app.runs.leases import candidate_devices
from workloads.catalog import Machine
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How many runs may run concurrently: at most `parallel`, each on its own GPUs; a run on the CPU is always alone.

    Where an experiment may end early, no variant runs twice concurrently, so that no check of the rule comes too late.
    """

    parallel: int = 1
    gpus: int = 0
    may_end_early: bool = False

    def admits(self, spec: RunSpec, running: Sequence[RunSpec]) -> bool:
        """Return whether a run may begin while others are running."""
        if not running:
            return True
        counts = [int(each.variant["gpus"]) for each in (spec, *running)]
        fits = len(running) < self.parallel and all(counts) and sum(counts) <= self.gpus
        return fits and not (self.may_end_early and spec in running)

    def total_s(self, specs: Sequence[RunSpec], durations_s: Sequence[float]) -> float:
        """Return the seconds from the first run's start to the last one's end, each started as soon as it may."""
        now_s, running = 0.0, list[tuple[float, RunSpec]]()
        for spec, seconds in zip(specs, durations_s, strict=True):
            while not self.admits(spec, [other for _, other in running]):
                first = min(running, key=lambda each: each[0])
                now_s = first[0]
                running.remove(first)
            running.append((now_s + seconds, spec))
        return max((end_s for end_s, _ in running), default=now_s)


def plan_concurrency(plan: Plan, machine: Machine) -> Concurrency:
    """Return which runs of a plan may run concurrently on this machine."""
    return Concurrency(parallel=plan.parallel, gpus=len(machine.gpus), may_end_early=plan.until_pct is not None)


class DeviceBalancer:
    """Spreads the runs of each variant evenly over the GPUs.

    GPUs of one model differ by a percent or so. That is no difference between variants if all of them ran on all GPUs.
    """

    def __init__(self, variants: int, machine: Machine, unit: Callable[[str], str] = str) -> None:
        """Begin without runs.

        Args:
            variants: How many are compared.
            machine: What they run on.
            unit: Over what they are spread, by device: where a node's GPUs cannot be chosen, that is the node.
        """
        self._variants = variants
        self._machine = machine
        self._unit = unit
        self._runs_by_unit = Counter[str]()
        self._runs_by_variant = Counter[tuple[Hashable, str]]()

    def add(self, spec: RunSpec, devices: Collection[str]) -> None:
        """Count a run of a variant that is or was on these devices."""
        units = list(map(self._unit, devices))
        self._runs_by_unit.update(units)
        self._runs_by_variant.update((key, unit) for key in matching_keys(spec) for unit in units)

    def ranked_devices(self, spec: RunSpec) -> list[str]:
        """Return the devices a run may lease; those come first where its variant had the smallest share of the runs."""
        deficits = self._deficits(spec, candidate_devices(spec, self._machine))
        return sorted(deficits, key=lambda device: -deficits[device])

    def choose(self, specs: Sequence[RunSpec], busy: Collection[str]) -> RunSpec:
        """Return the run whose variant lacks the free devices most; the first of equals.

        Args:
            specs: Runs on the same number of GPUs.
            busy: Devices that are in use.
        """

        def deficit_on_free(spec: RunSpec) -> float:
            free = [device for device in candidate_devices(spec, self._machine) if device not in busy]
            count = int(spec.variant["gpus"])
            return sum(sorted(self._deficits(spec, free).values())[-count:]) if len(free) >= count else float("-inf")

        return max(specs, key=deficit_on_free)

    def _deficits(self, spec: RunSpec, devices: Sequence[str]) -> dict[str, int]:
        """Return per device how many runs the variant is behind an equal share, times the number of variants."""
        key = variant_key(spec)
        units = {device: self._unit(device) for device in devices}
        return {
            device: self._runs_by_unit[unit] - self._variants * self._runs_by_variant[key, unit]
            for device, unit in units.items()
        }
