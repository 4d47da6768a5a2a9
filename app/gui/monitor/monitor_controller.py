"""Feeds the Monitor's model with what this machine says, and the screen with what of it anyone can see."""

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.gui.threads import WindowEvent
from app.viewmodels.monitor.model import MonitorModel

if TYPE_CHECKING:
    from app.gui.monitor.screen import MonitorView

_REFRESH_PLOTS_S, _REFRESH_WORDS_S = 0.15, 0.5
"""Numbers that change more often than this nobody can read."""
_TICK_MS = 1_000


class MonitorController(QObject):
    """Brings the monitor's model and view together: takes events, and shows what anyone can see.

    Once a second it does so even where nothing comes: the screen has to say how old its numbers are. Until the view is
    made, the model alone takes what comes.

    Thread: GUI only.
    """

    def __init__(self, model: MonitorModel, parent: QObject) -> None:
        super().__init__(parent)
        self._view: MonitorView | None = None
        self._model = model
        self._plots_s = self._words_s = 0.0
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def attach(self, view: "MonitorView") -> None:
        """Show what is known in this view from now on."""
        self._view = view

    def close(self) -> None:
        """Refresh the screen no more."""
        self._timer.stop()

    def handle(self, event: WindowEvent) -> None:
        """Take one event of this machine."""
        self._model.handle(event)

    def refresh(self) -> None:
        """Show what is known now, if anyone can see it and has had time to read the last."""
        if self._view is None:
            return
        now_s = time.monotonic()
        if self._view.isVisible() and now_s - self._words_s >= _REFRESH_WORDS_S:
            self._words_s = self._plots_s = now_s
            self._view.show_table()
        elif now_s - self._plots_s >= _REFRESH_PLOTS_S:
            self._plots_s = now_s
            self._view.show_chosen(words=False)

    def _tick(self) -> None:
        self._model.tick()
        self.refresh()
