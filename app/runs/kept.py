"""What an experiment consists of, kept in the database while it goes on: cut off, it is found in the history too."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from app.runs.schedule import Plan
from app.storage.store import Store


class KeptExperiment:
    """An experiment in the database; it is there from its first run on."""

    def __init__(self, database: Path, plan: Plan, preset: str | None) -> None:
        self._database = database
        self._plan = plan
        self._preset = preset
        self._runs: list[int] = []

    def add(self, runs: Iterable[int]) -> None:
        """Adds runs that were made or counted. Raises `UserError` where they cannot be stored."""
        self._runs += runs
        if not self._runs:
            return
        plan = {
            "variants": self._plan.variants,
            "repeats": self._plan.repeats,
            "until_pct": self._plan.until_pct,
            "carried": self._plan.carried,
        }
        with Store.open(self._database) as store:
            store.library.keep_experiment(
                self._runs, name=self._plan.name, preset=self._preset, plan=msgspec.json.encode(plan).decode()
            )
