"""The window without a user: `python -m tests.reliability.unattended DATABASE [SECONDS]`.

It goes on with the queue as soon as the window offers to, and closes when the queue has ended. With SECONDS it shows
another page every so many seconds and prints what the window holds by then, as a line of JSON.
"""

import gc
import json
import sys
import time
from itertools import cycle
from pathlib import Path

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from app.crash import install_hooks
from app.gui.app import Workbench
from app.gui.experiment.queue import QueueView
from app.gui.theme import Theme
from app.gui.threads import GuiGarbageCollector
from app.gui.window import MONITOR, RUN
from app.log import configure

_LOOK_MS = 50
_PAGES = (MONITOR, RUN)
"""History and Compare show what is stored, and hold more of it with every run."""


class UnattendedWindow(QObject):
    """The whole window on a database, and who answers it.

    Thread: GUI only.
    """

    def __init__(self, database: Path, theme: Theme) -> None:
        super().__init__()
        self.workbench = Workbench(database, theme, hidden_workloads=True)
        self._collector = GuiGarbageCollector(self)
        self._pages = cycle(_PAGES)
        self._page = RUN
        self._look = QTimer(self)
        self._look.timeout.connect(self._go_on)
        self._report = QTimer(self)
        self._report.timeout.connect(self._print_state)

    def start(self, report_s: float | None) -> None:
        """Show the window; print its state every so many seconds, or not at all."""
        self.workbench.window.painted.connect(self._collector.start)
        self.workbench.queue.running_changed.connect(self._close_after)
        self.workbench.start()
        self._look.start(_LOOK_MS)
        if report_s is not None:
            self._report.start(round(1000 * report_s))

    def close(self) -> None:
        """End the sampler and the threads."""
        self._look.stop()
        self._report.stop()
        self.workbench.close()
        self._collector.stop()

    def _go_on(self) -> None:
        for view in self.workbench.window.findChildren(QueueView):
            if view.offer_banner.isVisibleTo(view):
                view.offer_banner.buttons["go on"].click()

    def _close_after(self, running: bool) -> None:
        if not running:
            self.workbench.quit()

    def _print_state(self) -> None:
        window = self.workbench.window
        gc.collect()
        began_s = time.perf_counter()
        window.repaint()
        state = {
            "frame_ms": (time.perf_counter() - began_s) * 1e3 if self._page == RUN else None,
            "qt_objects": len(window.findChildren(QObject)),
            "python_blocks": sys.getallocatedblocks(),
        }
        print(json.dumps(state), flush=True)
        self._page = next(self._pages)
        window.show_page(self._page)


def main() -> None:
    """Open the window and close it with the end of the queue."""
    install_hooks()
    configure()
    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    unattended = UnattendedWindow(Path(sys.argv[1]), theme)
    unattended.start(float(sys.argv[2]) if len(sys.argv) > 2 else None)
    status = application.exec()
    unattended.close()
    sys.exit(status)


if __name__ == "__main__":
    main()
