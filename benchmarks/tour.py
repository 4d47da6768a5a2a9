"""Use the whole window: `python -m benchmarks.paint tour DATABASE SECONDS RUN …`, in a fresh process; prints JSON.

One tour is a fixed list of steps over all screens. A step is given to the event loop like an input, and the next one
comes when what it asked of the database is shown and a moment has passed. Milliseconds of a turn are processor time of
the window's thread, so that what else the machine does counts little, but for those of `clock_ms`. Feedback is what a
step takes until the window has painted anew.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import psutil
from PySide6.QtCore import QEvent, QEventLoop, QObject, QTimer
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QWidget

from app.errors import UserError
from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.history.screen import HistoryView
from app.gui.theme import DARK_ALWAYS, LIGHT_ALWAYS, Theme
from app.gui.threads import GuiGarbageCollector
from app.gui.window import COMPARE, HISTORY, MONITOR, RUN
from app.storage.database import save_setting
from app.storage.known_settings import ANSWERED, FIRST_START

Widget = TypeVar("Widget", bound=QWidget)
Step = tuple[str, Callable[[], object]]

_PAUSE_S = 0.3
OVER_MS = 60.0
_UNDER_WAY_S = 0.015
"""For how long a turn goes on before it is looked at, and how often from then on."""
_FRAMES = 4
LEAST_TOURS = 3
_PROGRAM = Path(__file__).parents[1] / "app"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the event loop: its processor time, in which step it was, and which functions took it."""

    ms: float
    step: str
    under_way: str


class StackWatch(threading.Thread):
    """Notes which functions of the program are under way in turns that take long.

    Thread: its own; `begin` and `end` are called on the window's.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._watched = threading.get_ident()
        self._began_s = 0.0
        self.seen: Counter[str] = Counter()
        self._closed = threading.Event()

    def begin(self) -> None:
        """Begin a turn."""
        self.seen = Counter()
        self._began_s = time.perf_counter()

    def end(self) -> str:
        """End the turn; return the functions that were seen most often, the innermost first."""
        self._began_s = 0.0
        return self.seen.most_common(1)[0][0] if self.seen else ""

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self.join()

    def run(self) -> None:
        """Look at the window's thread while its turn is long."""
        while not self._closed.wait(_UNDER_WAY_S):
            if self._began_s and time.perf_counter() - self._began_s > _UNDER_WAY_S:
                frame = sys._current_frames()[self._watched]  # noqa: SLF001 - the documented way to it
                self.seen[_functions(frame)] += 1


def _functions(frame: FrameType | None) -> str:
    """Return the innermost functions of the program in a stack."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES:
        code = frame.f_code
        path = Path(code.co_filename)
        if path.is_relative_to(_PROGRAM):
            names.append(code.co_qualname)
        frame = frame.f_back
    return " < ".join(names)


class _Repaints(QObject):
    """Counts how often a window paints what has changed in it."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.count = 0
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: ARG002 - Qt's
        self.count += event.type() == QEvent.Type.UpdateRequest
        return False


class Tour:
    """The program's window on a database, and the longest turn of its event loop in each step.

    Thread: GUI only.
    """

    def __init__(self, database: Path, runs: Sequence[int], theme: Theme, pause_s: float = _PAUSE_S) -> None:
        """Make the window.

        Args:
            database: Its database.
            runs: The stored runs that are opened and compared.
            theme: The window's theme, which is changed and changed back.
            pause_s: How long a step is left alone after what it asked for is there.
        """
        save_setting(database, FIRST_START, ANSWERED)
        self.longest: dict[str, Turn] = {}
        self.feedback_ms: dict[str, float] = {}
        self.over = 0
        self.clock_ms = 0.0
        self._runs = runs
        self._pause_s = pause_s
        self._waiting: tuple[str, int, float] | None = None
        self._loop = QEventLoop()
        self._watch = StackWatch()
        self._theme = theme
        self._choice = theme.choice
        self._workbench = Workbench(database, theme)
        self.window = self._workbench.window
        self._repaints = _Repaints(self.window)
        self._collector = GuiGarbageCollector()
        self.window.painted.connect(self._collector.start)

    def start(self) -> None:
        """Show the window, and wait until it shows telemetry."""
        self._watch.start()
        self.window.resize(1440, 900)
        self._workbench.start()
        self._settle("start")
        self._workbench.feed.wait_inventory()
        self._settle("start")

    def go(self) -> None:
        """Make all steps once."""
        for name, act in self.steps():
            QTimer.singleShot(0, self.window, partial(self._act, name, act))
            self._settle(name)
        self._collector.collect()  # as the program does within a second: what was just freed says nothing

    def _act(self, name: str, act: Callable[[], object]) -> None:
        self._waiting = (name, self._repaints.count, time.thread_time())
        act()

    def close(self) -> None:
        """Close the window, and end its threads."""
        self._theme.choose(self._choice)
        self.window.allow_close()
        self.window.close()
        self._workbench.close()
        self._collector.stop()
        self._watch.close()

    def steps(self) -> Iterator[Step]:
        """Yield what a user does, by name; each is made when the one before is shown."""
        window = self.window
        yield from self._on_run_and_monitor()
        yield "open History", lambda: window.show_page(HISTORY)
        yield from self._in_history(_find_only(window, HistoryView))
        yield "open Compare", lambda: window.show_page(COMPARE)
        yield from self._in_compare(_find_only(window, CompareView))
        for page, name in enumerate(("Run", "Monitor", "History", "Compare")):
            yield f"return to {name}", partial(window.show_page, page)
            yield f"dark {name}", partial(self._theme.choose, DARK_ALWAYS)
            yield f"small {name}", partial(window.resize, 1024, 700)
            yield f"light {name}", partial(self._theme.choose, LIGHT_ALWAYS)
            yield f"large {name}", partial(window.resize, 1440, 900)

    def _on_run_and_monitor(self) -> Iterator[Step]:
        bench = self._workbench
        yield "open Run", lambda: bench.window.show_page(RUN)
        for workload in ("lstm", "wrn28-10", "cnn10"):
            yield f"form of {workload}", partial(bench.run_view.form.workload_chosen.emit, workload)
        yield "several values", partial(bench.run_view.form.typed.emit, "batch_size", "8..512 x2")
        yield "questions", bench.run_view.show_gallery
        yield "leave the questions", bench.run_view.show_live
        yield "open Monitor", lambda: bench.window.show_page(MONITOR)
        yield "palette", bench.shell.open_palette
        yield "close the palette", bench.shell.open_palette
        yield "settings", bench.window.settings_requested.emit
        yield "close the settings", lambda: [each.close() for each in bench.window.findChildren(QDialog)]

    def _in_history(self, view: HistoryView) -> Iterator[Step]:
        bar, detail = view.overview.bar, view.detail
        for text in ("nchw", "cudnn", ""):
            yield f"search {text!r}", partial(bar.search.setText, text)
        yield "filter panel", bar.facets.click
        yield "group by experiment", _press(view.overview, "Group by experiment")
        yield "scroll History", partial(view.table.verticalScrollBar().setValue, 60)
        yield "ungroup", _press(view.overview, "Group by experiment")
        yield "close the filter panel", bar.facets.click
        for run in self._runs[:: len(self._runs) // 3]:
            yield "open a run", partial(self._workbench.actions.open_run, run)
            yield "evidence", partial(detail.badge.button.setChecked, True)
            yield "plots again", partial(detail.badge.button.setChecked, False)
        yield "close the run", view.show_list

    def _in_compare(self, view: CompareView) -> Iterator[Step]:
        for runs in (self._runs[:8], self._runs):
            yield f"compare {len(runs)}", partial(self._workbench.actions.compare, runs)
            for title in view.tabs.titles:
                yield f"tab {title} of {len(runs)}", partial(view.tabs.open_tab, title)
            yield "curves again", partial(view.tabs.open_tab, "Curves")
            yield "mean per variant", view.tabs.curves.means_box.click
            yield "curves of runs", view.tabs.curves.means_box.click
            yield "align by steps", partial(view.tabs.curves.alignment_requested.emit, "steps")
            yield "align by time", partial(view.tabs.curves.alignment_requested.emit, "time")
            yield "table again", partial(view.tabs.open_tab, "Table")
            yield "notes", view.notes.button.click
            yield "no notes", view.notes.button.click
            yield "scroll Compare", partial(view.table.verticalScrollBar().setValue, 20)
            yield "margin", partial(view.margin_chosen.emit, 2.0)
            yield "no margin", partial(view.margin_chosen.emit, None)

    def _settle(self, step: str) -> None:
        """Turn the loop until what was asked of the database is shown and a moment has passed."""
        read: list[None] = []
        end_s = 0.0
        self._turn(step)
        self._workbench.reads.run(lambda: None, read.append, _raise)
        while not read or time.perf_counter() < end_s:
            self._turn(step)
            end_s = end_s or (time.perf_counter() + self._pause_s if read else 0.0)

    def _turn(self, step: str) -> None:
        """Let the loop turn once, and note it if it took long."""
        self._watch.begin()
        started, clock_started = time.thread_time(), time.perf_counter()
        busy = self._loop.processEvents()
        turn_ms = (time.thread_time() - started) * 1e3
        under_way = self._watch.end()
        if self._waiting is not None and self._repaints.count > self._waiting[1]:
            name, _, acted_s = self._waiting
            self._waiting = None
            ms = (time.thread_time() - acted_s) * 1e3
            self.feedback_ms[name] = max(self.feedback_ms.get(name, ms), ms)
        if busy:
            self.clock_ms = max(self.clock_ms, (time.perf_counter() - clock_started) * 1e3)
            self.over += turn_ms > OVER_MS
            turn = Turn(turn_ms, step, under_way)
            self.longest[step] = max(self.longest.get(step, turn), turn, key=lambda turn: turn.ms)
        else:
            time.sleep(0.001)


def _press(widget: QWidget, label: str) -> Callable[[], object]:
    """Return what presses the button or action of a widget whose label has this in it."""

    def press() -> None:
        buttons = {found.text(): found.click for found in widget.findChildren(QPushButton)}
        actions = {found.text(): found.trigger for found in widget.findChildren(QAction)}
        next(act for text, act in (buttons | actions).items() if label in text.replace("&", ""))()

    return press


def _raise(error: UserError) -> None:
    raise error


def _find_only(window: QWidget, kind: type[Widget]) -> Widget:
    (found,) = window.findChildren(kind)
    return found


def _memory_mb() -> float:
    return psutil.Process().memory_info().rss / 1e6


def main(database: Path, seconds: float, runs: Sequence[int]) -> None:
    """Print the longest turns of one window, and its memory after each tour.

    Args:
        database: Its database.
        seconds: How long it is used, at least for three tours.
        runs: The stored runs that are opened and compared.
    """
    theme = Theme(QApplication(sys.argv[:1]))
    theme.start()
    tour = Tour(database, runs, theme)
    end_s = time.perf_counter() + seconds
    try:
        tour.start()
        found: dict[str, Any] = {"start_mb": _memory_mb(), "tours_mb": []}
        while len(found["tours_mb"]) < LEAST_TOURS or time.perf_counter() < end_s:
            tour.go()
            found["tours_mb"].append(_memory_mb())
        longest = sorted(tour.longest.values(), key=lambda turn: -turn.ms)
        slowest, feedback_ms = max(tour.feedback_ms.items(), key=lambda item: item[1])
        found |= {"feedback_step": slowest, "feedback_ms": feedback_ms}
        found |= {"turns": [*map(asdict, longest)], "over": tour.over, "clock_ms": tour.clock_ms}
    finally:
        tour.close()
    print(json.dumps(found))
