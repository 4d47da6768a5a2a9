"""The Monitor screen's controller: folds telemetry always, paints only while the screen is seen."""

import time

from PySide6.QtCore import QObject

from app.gui.views.monitor import MonitorView
from app.records import RunEvent
from app.samples import Inventory, Processes
from app.viewmodels.monitor import MonitorModel

_BETWEEN_S = 0.09
"""Numbers that change more often than this nobody can read."""


class MonitorController(QObject):
    """Brings the monitor's model and view together."""

    def __init__(self, view: MonitorView) -> None:
        super().__init__(view)
        self._view = view
        self._model = MonitorModel()
        self._shown_s = 0.0

    def handle(self, event: RunEvent | Inventory | Processes) -> None:
        """Take one event."""
        self._model.handle(event)

    def refresh(self) -> None:
        """Show the numbers now, if anyone can see them and has had time to read the last."""
        if self._view.isVisible() and time.monotonic() - self._shown_s >= _BETWEEN_S:
            self._shown_s = time.monotonic()
            self._view.show_model(self._model.state())
