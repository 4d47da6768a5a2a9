"""Connects the Compare screen with the database: runs are read, aligned and thinned off the GUI thread."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.background import Background
from app.gui.views.compare import CompareView
from app.storage.store import Store
from app.viewmodels.compare import Comparison, compare


class CompareController(QObject):
    """Shows chosen runs side by side; only the last choice asked for is shown."""

    def __init__(
        self, view: CompareView, database: Path, background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._asked: tuple[int, ...] = ()

    def show_runs(self, runs: Sequence[int]) -> None:
        """Compare these runs, in this order; the first is the baseline."""
        asked = self._asked = tuple(runs)
        self._background.run(lambda: _read(self._database, asked), self._show, self._fail)

    def _show(self, comparison: Comparison) -> None:
        if comparison.runs == self._asked:
            self._view.show_model(comparison)

    def _fail(self, error: UserError) -> None:
        self._view.show_problem(str(error))


def _read(database: Path, runs: Sequence[int]) -> Comparison:
    with Store.open(database) as store:
        return compare([store.load(run) for run in runs])
