"""Time a window's first paint: `python -m benchmarks.paint program|plots|bare DATABASE`, in a fresh process.

Prints `time.monotonic_ns()` of the first paint, with `plots` of the first curve of live telemetry, and 1 if TensorFlow
was imported by then, else 0. With `tour DATABASE SECONDS RUN …` the window is used instead (`benchmarks.tour`).
"""

import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication, QMainWindow, QWidget

if TYPE_CHECKING:
    from app.gui.plot.time_panel import TimePanel

_LOOK_MS = 5


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


def program(database: Path, *, plots: bool = False) -> None:
    """Show the program's window on a database, as `python -m app` does."""
    from app.telemetry.feed import TelemetryFeed

    gc.disable()
    feed = TelemetryFeed()
    feed.start()
    from app.gui.app import Workbench
    from app.gui.theme import Theme

    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    workbench = Workbench(database, theme, feed=feed)
    timer = QTimer()
    if plots:
        stack = workbench.run_view.live.stack
        timer.timeout.connect(lambda: report() if any(map(_has_curve, stack.visible_plots)) else None)
        timer.start(_LOOK_MS)
    else:
        workbench.window.painted.connect(report)
    workbench.start()
    if plots:
        workbench.run_view.show_live()  # in place of the questions
    application.exec()


def _has_curve(plot: "TimePanel") -> bool:
    return any(plot.columns_drawn(key) > 1 for key in plot.shown_keys())


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        bare()
    elif sys.argv[1] == "tour":
        from benchmarks.tour import main

        main(Path(sys.argv[2]), float(sys.argv[3]), [int(word) for word in sys.argv[4:]])
    else:
        program(Path(sys.argv[2]), plots=sys.argv[1] == "plots")
