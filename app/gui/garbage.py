"""Garbage collection on the GUI thread only.

Python's cyclic collector runs on whichever thread happens to allocate. When that is a reader thread and the garbage
holds Qt objects, they are destroyed off the GUI thread, which Qt does not survive (widgets and timers belong to their
thread: https://doc.qt.io/qt-6/threads-qobject.html). So the automatic collector is off, and a timer does its work.
"""

import gc

from PySide6.QtCore import QObject, QTimer

_PERIOD_MS = 1_000


class GuiCollector(QObject):
    """Collects the young generations every second, and the old one when Python's own rule would."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setInterval(_PERIOD_MS)
        self._timer.timeout.connect(self.collect)

    def start(self) -> None:
        """Takes over from the automatic collector; what lives now (modules, classes) is never looked at again."""
        gc.disable()
        gc.collect()
        gc.freeze()
        self._timer.start()

    def stop(self) -> None:
        """Hands collection back to Python."""
        self._timer.stop()
        gc.unfreeze()
        gc.enable()

    def collect(self) -> None:
        """One collection of the oldest generation whose threshold is passed, as the automatic collector does."""
        counts, thresholds = gc.get_count(), gc.get_threshold()
        over = [generation for generation in (2, 1, 0) if counts[generation] > thresholds[generation] > 0]
        gc.collect(over[0] if over else 0)
