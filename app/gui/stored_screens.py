"""History and Compare: created soon after the start, or when first needed, with the actions that lead there."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.errors import UserError
from app.gui.actions import Actions, Services
from app.gui.window import COMPARE, HISTORY

if TYPE_CHECKING:
    from app.gui.compare.compare_controller import CompareController
    from app.gui.history.history_controller import HistoryController
    from app.queries import Question


class StoredScreens(QObject):
    """The two screens of stored runs; each controller is None until its page exists. Thread: GUI only."""

    runs_shown = Signal(object)
    """Emitted with displayed runs, and their answer."""

    def __init__(self, services: Services) -> None:
        super().__init__(services.window)
        self.history: HistoryController | None = None
        self.compare: CompareController | None = None
        self._window = services.window
        self._services = services

    @staticmethod
    def prepare() -> None:
        """Import both screens while another one is in use, which is half the time to show them. Thread: any."""
        for module in ("history.history_controller", "compare.compare_controller"):
            importlib.import_module(f"app.gui.{module}")

    def make_ahead(self) -> None:
        """Create both while another one is in use, in separate turns, which halves the time to show one."""
        for page in (HISTORY, COMPARE):
            QTimer.singleShot(0, self, partial(self._window.make_page, page))

    def make_history(self, actions: Actions) -> QWidget:
        from app.gui.history.history_controller import HistoryController
        from app.gui.history.screen import HistoryView

        view = HistoryView(self._services.theme, actions)
        self.history = HistoryController(view, self._services.database, self._services.reads, actions)
        return view

    def make_compare(self, actions: Actions) -> QWidget:
        from app.gui.compare.compare_controller import CompareController
        from app.gui.compare.screen import CompareView

        view = CompareView(self._services.theme, actions)
        self.compare = CompareController(view, self._services.database, self._services.reads, actions)
        return view

    def _history_page(self) -> "HistoryController":
        self._window.show_page(HISTORY)
        assert self.history is not None, "its page makes it"
        return self.history

    def open_run(self, run: int) -> None:
        self._history_page().open_run(run)
        self.runs_shown.emit((run,))

    def import_file(self, path: Path) -> None:
        """Show the history and ask whether to add the runs of another database."""
        self._history_page().transfer.offer_import(path)

    def add_file(self, path: Path) -> None:
        self._history_page().transfer.import_file(path)

    def show_reference(self) -> None:
        self._history_page().transfer.set_reference(True)

    def add_reference(self, failed: Callable[[UserError], None]) -> None:
        """Add the reference runs without switching to the history; `failed` gets the error."""
        self._window.make_page(HISTORY)
        if self.history is not None:
            self.history.transfer.set_reference(True, failed)

    def compare_runs(self, runs: Sequence[int], question: "Question | None" = None) -> None:
        self._window.show_page(COMPARE)
        if self.compare is not None:
            self.compare.show_runs(runs, question)
        self.runs_shown.emit(runs)

    def refresh(self, page: int) -> None:
        """Read the runs of a page again, if it is one of these two and exists."""
        screen = {HISTORY: self.history, COMPARE: self.compare}.get(page)
        if screen is not None:
            screen.refresh()

    def refresh_all(self) -> None:
        """Read the runs of both screens again."""
        self.refresh(HISTORY)
        self.refresh(COMPARE)

    def show_undone(self) -> None:
        """Read the database again after an undo."""
        self.refresh_all()
        if self.history is not None:
            self.history.show_undone()
