"""History and Compare: imported and made when they are first shown, and what leads from one to the other."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.gui.background import Background
from app.gui.theme import Theme

if TYPE_CHECKING:
    from app.gui.controllers.compare import CompareController
    from app.gui.controllers.history import HistoryController
    from app.gui.controllers.takeaway import Takeaway


class StoredScreens(QObject):
    """The two screens on stored runs. `replay_asked` tells which run is to be played, `again_asked` what to run again.

    `build_asked` wants an experiment to be built. `imported` tells that runs came from another database, and with them
    what is unfinished there. `turn_to_history` and `turn_to_compare` show the pages, which makes them.
    """

    replay_asked = Signal(int)
    again_asked = Signal(object)
    build_asked = Signal()
    imported = Signal()

    def __init__(
        self,
        theme: Theme,
        database: Path,
        reads: Background,
        turn_to_history: Callable[[], None],
        turn_to_compare: Callable[[], None],
    ) -> None:
        super().__init__()
        self.history: HistoryController | None = None
        self.compare: CompareController | None = None
        self._takeaway: Takeaway | None = None
        self._theme = theme
        self._database = database
        self._reads = reads
        self._turn_to_history = turn_to_history
        self._turn_to_compare = turn_to_compare

    @staticmethod
    def prepare() -> None:
        """Import what they are made of while another one is looked at: half of what showing them takes."""
        for screen in ("history", "compare"):
            importlib.import_module(f"app.gui.controllers.{screen}")

    def make_history(self) -> QWidget:
        """The History page."""
        from app.gui.controllers.history import HistoryController
        from app.gui.controllers.takeaway import Takeaway
        from app.gui.views.history import HistoryView

        view = HistoryView(self._theme)
        self.history = HistoryController(view, self._database, self._reads)
        self.history.compare_requested.connect(self.compare_runs)
        self._takeaway = Takeaway(view, self._database, self)
        self._takeaway.imported.connect(self.history.refresh)
        self._takeaway.imported.connect(self.imported)
        self.history.export_requested.connect(self._takeaway.export)
        self.history.import_requested.connect(self._takeaway.import_runs)
        self.history.reference_requested.connect(self._takeaway.show_reference)
        view.detail.replay_asked.connect(self.replay_asked)
        return view

    def make_compare(self) -> QWidget:
        """The Compare page."""
        from app.gui.controllers.compare import CompareController
        from app.gui.views.compare import CompareView

        view = CompareView(self._theme)
        self.compare = CompareController(view, self._database, self._reads)
        self.compare.open_asked.connect(self.open_run)
        self.compare.again_asked.connect(self.again_asked)
        self.compare.offers.build_asked.connect(self.build_asked)
        self.compare.offers.runs_added.connect(self.refresh_history)
        return view

    def open_run(self, run: int) -> None:
        """Show a run's own page."""
        self._turn_to_history()
        if self.history is not None:
            self.history.open_run(run)

    def show_reference(self) -> None:
        """Show the history with the reference runs in it."""
        self._turn_to_history()
        if self._takeaway is not None:
            self._takeaway.show_reference(True)

    def compare_runs(self, runs: Sequence[int]) -> None:
        """Show these runs side by side."""
        self._turn_to_compare()
        if self.compare is not None:
            self.compare.show_runs(runs)

    def compare_experiment(self, runs: Sequence[int]) -> None:
        """Show these runs of an experiment; the article that they repeat, if they repeat one, is looked at first."""
        self._turn_to_compare()
        if self.compare is not None:
            self.compare.show_runs(runs, article=True)

    def refresh_history(self) -> None:
        """Runs were stored."""
        if self.history is not None:
            self.history.refresh()

    def refresh_compare(self) -> None:
        """Runs were stored."""
        if self.compare is not None:
            self.compare.refresh()

    def close(self) -> None:
        """End what is being exported or imported."""
        if self._takeaway is not None:
            self._takeaway.close()
