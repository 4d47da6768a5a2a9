"""Time History and Compare on a database: `python -m benchmarks.screens PATH RUN …`, in a fresh process.

The whole window, 1440 x 900; each time is from the user's action to the painted result. Prints milliseconds as JSON,
with `stalls` the longest time in which the window took no input after each action: processor time of its thread alone,
so that what else the machine does counts little.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from app.errors import UserError
from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.history.run_list import HistoryList
from app.gui.history.screen import HistoryView
from app.gui.theme import Theme
from app.gui.threads import GuiGarbageCollector
from app.gui.window import COMPARE, HISTORY
from benchmarks.database import typed_prefixes

Widget = TypeVar("Widget", bound=QWidget)

_UP_MS = 1500
_COMPARISONS = 5


class TimedWindow:
    """The program's window on a database, its telemetry running, with methods that time it."""

    def __init__(self, database: Path) -> None:
        self._application = QApplication(sys.argv[:1])
        self.stalls_ms: list[float] = []
        theme = Theme(self._application)
        theme.start()
        self._workbench = Workbench(database, theme)
        self.window = self._workbench.window
        self.window.resize(1440, 900)
        self._collector = GuiGarbageCollector()
        self.window.painted.connect(self._collector.start)
        self._workbench.start()
        self._application.processEvents()
        self._workbench.feed.wait_inventory()
        # A user opens History when the window is up and shows telemetry.
        loop = QEventLoop()
        QTimer.singleShot(_UP_MS, loop.quit)
        loop.exec()

    def history_ms(self) -> list[float]:
        """Time the first paint of History, and of every search as it is typed."""
        found = self.window.findChildren
        times = [self._timed_ms(lambda: self.window.show_page(HISTORY), lambda: _rows(found(HistoryView)) > 0)]
        overview = _find_only(self.window, HistoryView).overview
        for text in typed_prefixes():
            type_on, done = partial(overview.bar.search.setText, text), partial(_is_found, overview, text)
            times.append(self._timed_ms(type_on, done))
        return times

    def compare_ms(self, runs: list[int]) -> list[float]:
        """Time repeated comparisons of these runs; the first creates the screen too."""
        painted: list[None] = []

        def open_screen() -> None:
            self.window.show_page(COMPARE)
            _find_only(self.window, CompareView).painted.connect(lambda: painted.append(None))
            ask()

        def ask() -> None:
            assert self._workbench.stored.compare is not None, "its page is shown"
            self._workbench.stored.compare.show_runs(runs)

        acts = [open_screen] + [ask] * _COMPARISONS
        return [self._timed_ms(act, partial(_is_longer, painted, n)) for n, act in enumerate(acts)]

    def close(self) -> None:
        """End the sampler and the threads."""
        self._workbench.close()
        self._collector.stop()

    def _timed_ms(self, act: Callable[[], object], done: Callable[[], bool]) -> float:
        """Time from the action, while nothing else is being read, to the paint after it is done."""
        self._wait_for_reads()
        started, turns = time.perf_counter(), [time.thread_time()]
        act()
        while not done():
            turns.append(time.thread_time())
            self._application.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
        turns.append(time.thread_time())
        self._application.processEvents()
        turns.append(time.thread_time())
        self.stalls_ms.append(max(end - start for start, end in pairwise(turns)) * 1e3)
        return (time.perf_counter() - started) * 1e3

    def _wait_for_reads(self) -> None:
        """Wait until earlier requests to the database have been read and shown."""
        finished: list[None] = []
        self._workbench.reads.run(lambda: None, finished.append, _raise)
        while not finished:
            self._application.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)


def _raise(error: UserError) -> None:
    raise error


def _rows(views: Sequence[HistoryView]) -> int:
    return sum(len(view.overview.listing.runs) for view in views)


def _is_found(overview: HistoryList, text: str) -> bool:
    return overview.listing.query.text == text


def _is_longer(painted: Sequence[None], count: int) -> bool:
    return len(painted) > count


def _find_only(window: QWidget, kind: type[Widget]) -> Widget:
    (found,) = window.findChildren(kind)
    return found


def main() -> None:
    """Print every time of one window."""
    stage = TimedWindow(Path(sys.argv[1]))
    try:
        times = {"history": stage.history_ms(), "compare": stage.compare_ms([int(word) for word in sys.argv[2:]])}
        times["stalls"] = stage.stalls_ms
    finally:
        stage.close()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
