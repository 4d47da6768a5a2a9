"""Which runs of an experiment count: one that was throttled does not, and is made once more."""

from app.analysis.fairness import MOST_THROTTLED_PCT, throttled_pct
from app.records import StoredRun
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec


class Repeated:
    """Judges runs in the order they were made, stored ones first: what is stored says all there is to know."""

    def __init__(self, most_throttled_pct: float = MOST_THROTTLED_PCT) -> None:
        self._most_pct = most_throttled_pct
        self._owed: list[RunSpec] = []

    def counts(self, run: StoredRun) -> bool:
        """Whether this run counts: not if it was throttled for too long, unless it repeats one that was."""
        if not run.row.completed:
            return True
        variant = with_defaults(run.row.spec)
        if variant in self._owed:
            self._owed.remove(variant)
            return True
        if throttled_pct(run) <= self._most_pct:
            return True
        self._owed.append(variant)
        return False
