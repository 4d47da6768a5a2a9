"""The GUI thread and the others: background work, the event bridge, and garbage collection.

Python's cyclic collector runs on whichever thread happens to allocate. When that is a reader thread and the garbage
holds Qt objects, they are destroyed off the GUI thread, which Qt does not survive (widgets and timers belong to their
thread: https://doc.qt.io/qt-6/threads-qobject.html). So the automatic collector is off, and a timer does its work.
"""

import ctypes
import gc
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.errors import DatabaseError, UserError, bug_message
from app.telemetry.messages import SamplerMessage
from app.values.events import RunEvent, RunStarted, TelemetryEvent
from app.values.samples import Inventory, Processes
from workloads.catalog import UsageError

if TYPE_CHECKING:
    from app.storage.store import Store

Result = TypeVar("Result")
Progress = TypeVar("Progress")


class Background(QObject):
    """Runs functions one after another on one thread, so that no two use a database at the same time.

    Thread: GUI only.
    """

    _ended = Signal(object, object, object)

    def __init__(
        self, parent: QObject | None = None, is_handled: Callable[[UserError], bool] = lambda _: False
    ) -> None:
        """Create a queue; its thread starts with the first work.

        Args:
            parent: The owner.
            is_handled: Gets each `UserError` first, on the GUI thread; if it returns True, `failed` is not called.
        """
        super().__init__(parent)
        self._closed = False
        self._is_handled = is_handled
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._ended.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def run(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[UserError], None],
    ) -> None:
        """Call `work` on the worker thread, then `done(result)` or `failed(error)` on the GUI thread.

        Nothing is started after `close`.

        Args:
            work: What to do, on the worker thread.
            done: Gets the result.
            failed: Gets a `UserError`, including a `UsageError`, or one for a bug, which is then raised on the GUI
                thread.
        """
        if self._closed:
            return
        future = self._executor.submit(work)
        future.add_done_callback(lambda ended: self._ended.emit(ended, done, failed))

    def ask(
        self,
        database: Path,
        question: Callable[["Store"], Result],
        done: Callable[[Result], None],
        failed: Callable[[UserError], None],
    ) -> None:
        """Call `question` on the worker thread with an open database; otherwise like `run`."""

        def work() -> Result:
            from app.storage.store import Store  # here: the window opens without it

            with Store.open(database) as store:
                return question(store)

        self.run(work, done, failed)

    def close(self) -> None:
        """Drop pending work and wait for current work; nothing is delivered afterwards."""
        self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _deliver(self, ended: Future[Any], done: Callable[[Any], None], failed: Callable[[UserError], None]) -> None:
        if self._closed:
            return
        error = ended.exception()
        if error is None:
            done(ended.result())
            return
        if isinstance(error, UserError) and self._is_handled(error):
            return
        failed(_to_user_error(error))
        if not isinstance(error, UserError | UsageError):
            raise error


@dataclass(frozen=True, slots=True)
class JobControl(Generic[Progress]):
    """A job's connection to the window. Thread: the job's own."""

    report: Callable[[Progress], None]
    """Show the work's progress; returns immediately."""
    stop: threading.Event
    """Set when the work must end early."""


class CancellableJob(QObject):
    """Runs functions one after another on its own thread; each can report progress and be stopped.

    `close_jobs` ends it with the window of its parent.

    Thread: GUI only.
    """

    _reported = Signal(object, object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._background = Background(self)
        self._stop = threading.Event()
        self._closed = False
        self._reported.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def run(
        self,
        work: Callable[[JobControl[Progress]], Result],
        done: Callable[[Result], None],
        failed: Callable[[UserError], None],
        *,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Call `work` on the job's thread, then `done` or `failed` on the GUI thread, as `Background.run` does.

        Args:
            work: What to do. It checks or waits on its control's `stop`, and ends soon after it is set.
            done: Gets the result.
            failed: Gets the error; stopped work must raise one.
            on_progress: Gets each report, on the GUI thread, before the end.
        """
        if self._stop.is_set():
            self._stop = threading.Event()  # a new one: stopped work may not have noticed yet
        control: JobControl[Progress] = JobControl(lambda report: self._reported.emit(on_progress, report), self._stop)
        self._background.run(lambda: work(control), done, failed)

    def stop(self) -> None:
        """Ask current and pending work to end early."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and wait for the thread; nothing is delivered afterwards."""
        self._closed = True
        self.stop()
        self._background.close()

    def _deliver(self, on_progress: Callable[[Any], None], report: object) -> None:
        if not self._closed:
            on_progress(report)


def close_jobs(window: QWidget) -> None:
    """Stop every job in a window, and wait for their threads."""
    jobs = window.findChildren(CancellableJob)
    for job in jobs:
        job.stop()
    for job in jobs:
        job.close()


def _to_user_error(error: BaseException) -> UserError:
    if isinstance(error, DatabaseError):
        return error.for_window()
    if isinstance(error, UserError):
        return error
    return UserError(str(error) if isinstance(error, UsageError) else bug_message(error))


@dataclass(frozen=True, slots=True)
class HostMessage:
    """A message of another host's telemetry."""

    host: str
    message: SamplerMessage


WindowEvent = RunEvent | Inventory | Processes
"""What `Bridge.arrived` carries, with the number of the run."""

_DRAIN_PERIOD_MS = 33
_BUDGET_S = 0.008


class Bridge(QObject):
    """Brings events to the GUI thread: `arrived` is emitted for each, then `drained` once per tick.

    `arrived` carries the event, another host's within a `HostMessage`, and its run's number: None if the run has none
    yet or the event is a machine's.

    Thread: GUI only, except `post`.
    """

    arrived = Signal(object, object)
    drained = Signal()
    _woken = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._queue: queue.SimpleQueue[tuple[WindowEvent | HostMessage, int | None]] = queue.SimpleQueue()
        self._awake = False
        self._closed = False
        self._timer = QTimer(self, interval=_DRAIN_PERIOD_MS)
        self._timer.timeout.connect(self._tick)
        self._woken.connect(self._wake, Qt.ConnectionType.QueuedConnection)

    def post(self, event: WindowEvent | HostMessage, run: int | None = None) -> None:
        """Queue an event; the timer runs only while events arrive. Thread: any."""
        self._queue.put((event, run))
        if not self._awake:
            self._awake = True
            self._woken.emit()

    def flush(self) -> None:
        """Deliver all queued events now."""
        while self._deliver(float("inf")):
            pass
        self.drained.emit()

    def close(self) -> None:
        """Deliver nothing more, even after a wake-up that is already queued."""
        self._closed = True
        self._timer.stop()

    def _wake(self) -> None:
        if not self._closed:
            self._timer.start()
            self._tick()

    def _tick(self) -> None:
        if self._deliver(time.monotonic() + _BUDGET_S):
            self.drained.emit()
            return
        self._timer.stop()
        self._awake = False
        if not self._queue.empty():  # an event was posted after the last check, when the timer still counted as running
            self._awake = True
            self._timer.start()

    def _deliver(self, deadline_s: float) -> int:
        """Deliver events until the deadline and return their number; the rest waits for the next tick."""
        count = 0
        while time.monotonic() < deadline_s:
            try:
                event, run = self._queue.get_nowait()
            except queue.Empty:
                break
            self.arrived.emit(event, run)
            count += 1
        return count


class BridgeSink:
    """A run's sink that forwards its events to the window, except samples, which come from the feed.

    Thread: the session's.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._run: int | None = None

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self._run = event.run
        if not isinstance(event, TelemetryEvent):
            self._bridge.post(event, self._run)


_COLLECT_PERIOD_MS = 1_000

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
"""Returns freed memory between used memory to the system, which glibc's free() does not; takes 1 to 3 ms."""


class GuiGarbageCollector(QObject):
    """Collects garbage on the GUI thread, once per second and by Python's thresholds, and returns free memory.

    Thread: GUI only.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self, interval=_COLLECT_PERIOD_MS)
        self._module_count = 0
        self._timer.timeout.connect(self.collect)

    def start(self) -> None:
        """Replace the automatic collector; objects that exist now (modules, classes) are never examined again.

        Garbage among them, a few hundred objects, stays, because searching all takes longer than a frame.
        """
        gc.disable()
        self._freeze()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        gc.unfreeze()
        gc.enable()

    def collect(self) -> None:
        """Collect the oldest generation whose threshold is exceeded, as the automatic collector does.

        Modules imported since the last time are excluded too: a screen's first use imports them, and they would be a
        third of all objects.
        """
        if len(sys.modules) > self._module_count:
            gc.collect()
            self._freeze()
        else:
            counts, thresholds = gc.get_count(), gc.get_threshold()
            due = [generation for generation in (2, 1, 0) if counts[generation] > thresholds[generation] > 0]
            gc.collect(due[0] if due else 0)
        if _trim is not None:
            _trim(0)

    def _freeze(self) -> None:
        self._module_count = len(sys.modules)
        gc.freeze()
