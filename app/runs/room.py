"""Which runs of an experiment may go on at the same time, and how long they take together."""

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """At most `parallel` runs at once on a machine with so many GPUs, each on its own; one on the CPU is alone.

    Where an experiment may end early no variant goes on twice at once, so that every look comes when it is due.
    """

    parallel: int = 1
    gpus: int = 0
    may_end_early: bool = False

    def takes(self, spec: RunSpec, going: Sequence[RunSpec]) -> bool:
        """Whether a run may begin while these go on."""
        if not going:
            return True
        counts = [int(each.variant["gpus"]) for each in (spec, *going)]
        fits = len(going) < self.parallel and all(counts) and sum(counts) <= self.gpus
        return fits and not (self.may_end_early and spec in going)

    def together_s(self, specs: Sequence[RunSpec], lasting_s: Sequence[float]) -> float:
        """From the first's beginning to the last's end, each begun in its order as soon as it may."""
        now_s, going = 0.0, list[tuple[float, RunSpec]]()
        for spec, seconds in zip(specs, lasting_s, strict=True):
            while not self.takes(spec, [other for _, other in going]):
                first = min(going, key=lambda each: each[0])
                now_s = first[0]
                going.remove(first)
            going.append((now_s + seconds, spec))
        return max((end_s for end_s, _ in going), default=now_s)
