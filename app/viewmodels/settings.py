"""What the Settings dialog offers, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app import units
from app.samples import SAMPLE_MS
from app.viewmodels.history.labels import RETENTION_CHOICES, StorageLine, retention_label

THEMES = {"system": "Same as system", "light": "Light", "dark": "Dark"}
"""Label of each choice of `Theme`."""

SAMPLING_CHOICES_MS = (10.0, 20.0, SAMPLE_MS, 100.0, 200.0, 500.0, 1000.0)
"""Within the limits of `--sample-ms`."""

_MAX_DATABASES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsState:
    """What the dialog shows beside the choices that databases store.

    Attributes:
        theme: The choice of the theme.
        sample_ms: Milliseconds between two readings of this computer's GPUs.
        databases: The open one first, then those opened before.
        storage: Size and retention of the open one; None until they are read.
        hosts: Names of the user's hosts.
        problem: What went wrong last.
    """

    theme: str
    sample_ms: float
    databases: tuple[Path, ...]
    storage: StorageLine | None = None
    hosts: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sampling(self) -> dict[float, str]:
        """Label of each period, in milliseconds; one of the command line is among them."""
        return {ms: sampling_label(ms) for ms in sorted({*SAMPLING_CHOICES_MS, self.sample_ms})}

    @property
    def retention(self) -> dict[int | None, str]:
        """Label of each number of days that samples can be stored."""
        stored = () if self.storage is None else (self.storage.retention_days,)
        return {days: retention_label(days) for days in dict.fromkeys((*RETENTION_CHOICES, *stored))}

    @property
    def hosts_text(self) -> str:
        """The user's hosts in a line."""
        named = ", ".join(self.hosts[:4]) + (" …" if len(self.hosts) > 4 else "")
        return f"{len(self.hosts)} {units.plural('host', len(self.hosts))}: {named}." if self.hosts else "None yet."


def sampling_label(period_ms: float) -> str:
    """Return a period as its label: `50 ms (20 per second)`."""
    return f"{units.exactly(period_ms, 'ms')} ({1000 / period_ms:.3g} per second)"


def recent_databases(opened: Path, former: Sequence[str]) -> tuple[Path, ...]:
    """Return the databases to offer: the open one, then those that were opened before and are still there."""
    there = (path for path in map(Path, former) if path != opened and path.is_file())
    return (opened, *there)[:_MAX_DATABASES]
