"""Start a window and time its first paint: `python -m app.bench.paint program|bare`, in a fresh process.

Prints `time.monotonic_ns()` of the first paint, and 1 if TensorFlow was imported by then, else 0.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QMainWindow, QWidget


class _FirstPaint(QObject):
    """Watches one widget for its first paint, reports it and ends the program."""

    def __init__(self, watched: QWidget) -> None:
        super().__init__()
        watched.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Report the first paint of the widget."""
        if event.type() == QEvent.Type.Paint:
            watched.removeEventFilter(self)
            report()
        return False


def report() -> None:
    """Print the time and end this process at once."""
    print(time.monotonic_ns(), int("tensorflow" in sys.modules), flush=True)
    os._exit(0)


def bare() -> None:
    """Show the smallest pyqtgraph window: one plot."""
    import pyqtgraph

    application = QApplication(sys.argv[:1])
    window = QMainWindow()
    plot = pyqtgraph.PlotWidget()
    window.setCentralWidget(plot)
    window.resize(1400, 900)
    watcher = _FirstPaint(plot.viewport())
    window.show()
    application.exec()
    del watcher


def program() -> None:
    """Show the program's window on a fresh database."""
    from app.gui.app import Workbench
    from app.gui.theme import Theme

    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    workbench = Workbench(Path(tempfile.mkdtemp()) / "bench.db", theme)
    workbench.window.painted.connect(report)
    workbench.start()
    application.exec()


if __name__ == "__main__":
    {"program": program, "bare": bare}[sys.argv[1]]()
