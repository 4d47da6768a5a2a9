"""From other threads to the GUI thread: events queue up here, one timer drains them."""

import queue
import time

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.records import RunEvent, RunStarted
from app.samples import DeviceLost, FieldsSeen, Inventory, Processes, Sample, SlowSample

_PERIOD_MS = 33
_BUDGET_S = 0.008


class Bridge(QObject):
    """`post` may come from any thread. On the GUI thread `arrived` tells each event, then `drained` once a tick.

    With an event comes the number of the run it is of, None where that has none yet or it is of the machine.
    """

    arrived = Signal(object, object)
    drained = Signal()
    _woken = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._queue: queue.SimpleQueue[tuple[RunEvent | Inventory | Processes, int | None]] = queue.SimpleQueue()
        self._awake = False
        self._closed = False
        self._timer = QTimer(self)
        self._timer.setInterval(_PERIOD_MS)
        self._timer.timeout.connect(self._tick)
        self._woken.connect(self._wake, Qt.ConnectionType.QueuedConnection)

    def post(self, event: RunEvent | Inventory | Processes, run: int | None = None) -> None:
        """Queue an event; the timer runs only while something arrives."""
        self._queue.put((event, run))
        if not self._awake:
            self._awake = True
            self._woken.emit()

    def flush(self) -> None:
        """Deliver everything queued now, however much it is."""
        while self._deliver(float("inf")):
            pass
        self.drained.emit()

    def close(self) -> None:
        """Deliver nothing more; a wake-up already on its way finds nobody."""
        self._closed = True
        self._timer.stop()

    def _wake(self) -> None:
        if not self._closed:
            self._timer.start()

    def _tick(self) -> None:
        if self._deliver(time.monotonic() + _BUDGET_S):
            self.drained.emit()
            return
        self._timer.stop()
        self._awake = False
        if not self._queue.empty():  # something came between the last look and falling asleep
            self._awake = True
            self._timer.start()

    def _deliver(self, deadline_s: float) -> int:
        """Events delivered before the deadline; the rest waits for the next tick."""
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
    """A run's sink that hands its events to the window. Samples come there from the feed already, run or no run."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._run: int | None = None

    def handle(self, event: RunEvent) -> None:
        """Queue the event."""
        if isinstance(event, RunStarted):
            self._run = event.run
        if not isinstance(event, Sample | SlowSample | DeviceLost | FieldsSeen):
            self._bridge.post(event, self._run)
