"""The Monitor screen's controller: folds telemetry always, paints only while the screen is seen."""

from PySide6.QtCore import QObject

from app.gui.views.monitor import MonitorView
from app.records import Inventory, RunEvent
from app.viewmodels.monitor import MonitorModel


class MonitorController(QObject):
    """Brings the monitor's model and view together."""

    def __init__(self, view: MonitorView) -> None:
        super().__init__(view)
        self._view = view
        self._model = MonitorModel()

    def handle(self, event: RunEvent | Inventory) -> None:
        """Take one event."""
        self._model.handle(event)

    def refresh(self) -> None:
        """Show the numbers now, if anyone can see them."""
        if self._view.isVisible():
            self._view.show_model(self._model.state())
