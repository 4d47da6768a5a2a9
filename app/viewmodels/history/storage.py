"""The status line below the history: database size, free disk space and sample retention."""

from dataclasses import dataclass
from pathlib import Path

from app import units
from app.storage.retention import Pruned

RETENTION_CHOICES: tuple[int | None, ...] = (None, 7, 30, 90, 365)
"""Days that samples can be stored; None is for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLine:
    """The database's size, the free space on its disk and its retention; `note` is what was last deleted."""

    path: Path
    size_bytes: int
    free_bytes: int | None
    retention_days: int | None
    note: str = ""

    @property
    def text(self) -> str:
        """The line: `profiles.db · 12.4 MiB · 212 GiB free on its disk`."""
        free = "" if self.free_bytes is None else f"{units.byte_size(self.free_bytes)} free on its disk"
        return " · ".join(filter(None, (self.path.name, units.byte_size(self.size_bytes), free, self.note)))


def retention_label(days: int | None) -> str:
    """Return the label of a retention choice."""
    if days is None:
        return "Keep all samples"
    return "Keep samples of the last year" if days == 365 else f"Keep samples of the last {days} days"


def prune_question(found: Pruned, days: int) -> str:
    """Return the question to ask before anything is deleted."""
    runs = f"{len(found.runs):,} {units.plural('run', len(found.runs))}"
    return f"Delete the samples and logs of {runs} that ended more than {days} days ago?"


def prune_consequence(found: Pruned) -> str:
    """Return what pruning would do and how long it takes."""
    seconds = max(1.0, found.before_bytes / 100e6)
    return (
        f"{found.rows:,} samples and log lines would be deleted; figures, phases and blocks stay. "
        f"Giving the space back takes about {units.duration(seconds)} for this database."
    )


def prune_result(done: Pruned) -> str:
    """Return what pruning did."""
    freed = max(0, done.before_bytes - done.after_bytes)
    return f"{units.byte_size(freed)} given back in {units.seconds(done.seconds)}" if done.runs else ""
