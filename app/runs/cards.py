"""Which devices a run may have, and which of them it had better have for the sake of a comparison."""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

from app.runs.leases import CPU
from app.runs.schedule import key_of, keys_counted
from workloads.catalog import Machine, find_gpu
from workloads.protocol import RunSpec


def candidates(spec: RunSpec, machine: Machine) -> list[str]:
    """The devices a run may lease: the GPUs that it names, else all, by UUID; the processor where it asks for none."""
    if not int(spec.variant["gpus"]):
        return [CPU]
    words = [word.strip() for word in str(spec.variant["devices"]).split(",") if word.strip()]
    named = [gpu.uuid for word in words if (gpu := find_gpu(machine, word)) is not None]
    return named or [gpu.uuid for gpu in machine.gpus]


class Spread:
    """Where the runs of an experiment of so many variants were: each is to meet the cards that the others were on.

    Cards of one kind differ by a percent or so, which is no difference of variants where these share their cards.
    """

    def __init__(self, variants: int, machine: Machine) -> None:
        self._variants = variants
        self._machine = machine
        self._of_all = Counter[str]()
        self._of_one = Counter[tuple[Hashable, str]]()

    def add(self, spec: RunSpec, devices: Collection[str]) -> None:
        """Counts a run of this variant that is or was on these devices."""
        self._of_all.update(devices)
        self._of_one.update((key, device) for key in keys_counted(spec) for device in devices)

    def best_first(self, spec: RunSpec) -> list[str]:
        """The devices the run may lease, those first on which its variant has had least of its share of the runs."""
        lack = self._lack(spec)
        return sorted(lack, key=lambda device: -lack[device])

    def first(self, specs: Sequence[RunSpec], held: Collection[str]) -> RunSpec:
        """Of runs on equally many devices the one that lacks those most which nobody holds; of equals the first."""

        def gain(spec: RunSpec) -> float:
            free = [lack for device, lack in self._lack(spec).items() if device not in held]
            count = int(spec.variant["gpus"])
            return sum(sorted(free)[-count:]) if len(free) >= count else float("-inf")

        return max(specs, key=gain)

    def _lack(self, spec: RunSpec) -> dict[str, int]:
        """By device how many runs its variant is behind an equal share of them, times the number of variants."""
        key = key_of(spec)
        return {
            device: self._of_all[device] - self._variants * self._of_one[key, device]
            for device in candidates(spec, self._machine)
        }
