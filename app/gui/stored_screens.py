"""History and Compare: imported and made when they are first shown, and what leads from one to the other."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.gui.theme import Theme
from app.gui.threads import Background

if TYPE_CHECKING:
    from app.gui.compare.compare_controller import CompareController
    from app.gui.history.history_controller import HistoryController
    from app.gui.history.transfer_controller import TransferController


class StoredScreens(QObject):
    """The two screens on stored runs. `replay_asked` tells which run is to be played, `again_asked` what to run again.

    `build_asked` wants an experiment to be built. `imported` tells that runs came from another database, and with them
    what is unfinished there. `turn_to_history` and `turn_to_compare` show the pages, which makes them.
    """

    replay_requested = Signal(int)
    rerun_requested = Signal(object)
    build_requested = Signal()
    imported = Signal()

    def __init__(
        self,
        theme: Theme,
        database: Path,
        reads: Background,
        show_history: Callable[[], None],
        show_compare: Callable[[], None],
    ) -> None:
        super().__init__()
        self.history: HistoryController | None = None
        self.compare: CompareController | None = None
        self._transfer: TransferController | None = None
        self._theme = theme
        self._database = database
        self._reads = reads
        self._show_history = show_history
        self._show_compare = show_compare

    @staticmethod
    def prepare() -> None:
        """Import what they are made of while another one is looked at: half of what showing them takes."""
        for module in ("history.history_controller", "compare.compare_controller"):
            importlib.import_module(f"app.gui.{module}")

    def make_history(self) -> QWidget:
        """The History page."""
        from app.gui.history.history_controller import HistoryController
        from app.gui.history.screen import HistoryView
        from app.gui.history.transfer_controller import TransferController

        view = HistoryView(self._theme)
        self.history = HistoryController(view, self._database, self._reads)
        self.history.compare_requested.connect(self.compare_runs)
        self._transfer = TransferController(view, self._database)
        self._transfer.imported.connect(self.history.refresh)
        self._transfer.imported.connect(self.imported)
        self.history.export_requested.connect(self._transfer.export)
        self.history.import_requested.connect(self._transfer.import_runs)
        self.history.reference_requested.connect(self._transfer.show_reference)
        view.detail.replay_requested.connect(self.replay_requested)
        return view

    def make_compare(self) -> QWidget:
        """The Compare page."""
        from app.gui.compare.compare_controller import CompareController
        from app.gui.compare.screen import CompareView

        view = CompareView(self._theme)
        self.compare = CompareController(view, self._database, self._reads)
        self.compare.open_run_requested.connect(self.open_run)
        self.compare.rerun_requested.connect(self.rerun_requested)
        self.compare.offers.build_requested.connect(self.build_requested)
        self.compare.offers.runs_added.connect(self.refresh_history)
        return view

    def open_run(self, run: int) -> None:
        """Show a run's own page."""
        self._show_history()
        if self.history is not None:
            self.history.open_run(run)

    def show_reference(self) -> None:
        """Show the history with the reference runs in it."""
        self._show_history()
        if self._transfer is not None:
            self._transfer.show_reference(True)

    def compare_runs(self, runs: Sequence[int]) -> None:
        """Show these runs side by side."""
        self._show_compare()
        if self.compare is not None:
            self.compare.show_runs(runs)

    def compare_experiment(self, runs: Sequence[int]) -> None:
        """Show these runs of an experiment; the article that they repeat, if they repeat one, is looked at first."""
        self._show_compare()
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
