"""Room on the disk that holds the database: a run is warned of little, and not begun with next to none."""

import shutil
from dataclasses import dataclass
from pathlib import Path

LITTLE_BYTES = 200_000_000
"""Less than this is worth a warning: some hours of samples of a few GPUs."""

LEAST_BYTES = 20_000_000
"""Less than this is not enough to store a run."""


@dataclass(frozen=True, slots=True)
class Room:
    """Free space where a database lies, in bytes; None where the system does not say."""

    path: Path
    free_bytes: int | None

    @property
    def warning(self) -> str:
        """One sentence where there is little room, "" where there is enough."""
        if self.free_bytes is None or self.free_bytes >= LITTLE_BYTES:
            return ""
        return (
            f"Only {self._free_words()} is free on the disk that holds {self.path}; "
            "free some space, or delete old samples with `python -m app prune`."
        )

    @property
    def refusal(self) -> str:
        """One sentence where no run can be stored, "" where one can."""
        if self.free_bytes is None or self.free_bytes >= LEAST_BYTES:
            return ""
        return f"The disk that holds {self.path} has only {self._free_words()} free; free some space, then run again."

    def _free_words(self) -> str:
        return f"{(self.free_bytes or 0) / 1e6:,.0f} MB"


def room_for(database: Path) -> Room:
    """The room a database has, which need not exist yet."""
    folder = next(parent for parent in (database.absolute().parent, *database.absolute().parents) if parent.is_dir())
    try:
        return Room(database, shutil.disk_usage(folder).free)
    except OSError:
        return Room(database, None)
