"""Work that need not be done at once: what nobody sees yet, and what takes longer than a user should wait."""

import time
from collections.abc import Callable, Iterable, Iterator

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

_SLICE_S = 0.006
_CALM_S = 0.005
_MOST_BUSY_TURNS = 50


class CalmTurn(QObject):
    """Does something in the next turn of the event loop in which little else is done; it does not wait for ever.

    What else is done counts by processor time: a busy machine delays a turn too, but is no reason to wait.

    Thread: GUI only.
    """

    def __init__(self, parent: QObject, act: Callable[[], object]) -> None:
        super().__init__(parent)
        self._act = act
        self._began_s = 0.0
        self._busy_turns = 0
        self._timer = QTimer(self, interval=0, singleShot=True)
        self._timer.timeout.connect(self._act_if_calm)

    @property
    def awaited(self) -> bool:
        return self._timer.isActive()

    def wait(self) -> None:
        self._busy_turns = 0
        self._begin()

    def cancel(self) -> None:
        self._timer.stop()

    def _begin(self) -> None:
        self._began_s = time.thread_time()
        self._timer.start()

    def _act_if_calm(self) -> None:
        if time.thread_time() - self._began_s > _CALM_S and self._busy_turns < _MOST_BUSY_TURNS:
            self._busy_turns += 1
            self._begin()
        else:
            self._act()


class WhenSeen(QObject):
    """Does what a widget needs to be seen: at once where it is visible, else when it is next shown.

    Thread: GUI only.
    """

    def __init__(self, widget: QWidget, act: Callable[[], object]) -> None:
        super().__init__(widget)
        self._widget = widget
        self._act = act
        self._due = False

    def ask(self) -> None:
        """Have it done, once, however often it is asked for."""
        if self._widget.isVisible():
            self._act()
        elif not self._due:
            self._due = True
            self._widget.installEventFilter(self)

    def cancel(self) -> None:
        self._due = False
        self._widget.removeEventFilter(self)

    def finish(self) -> None:
        if self._due:
            self._due = False
            self._widget.removeEventFilter(self)
            self._act()

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        """Do it before the widget is laid out and painted."""
        if event.type() == QEvent.Type.Show:
            self.finish()
        return False


class PaintTurns(QObject):
    """Divides the painting of several widgets among turns of the event loop.

    Thread: GUI only.
    """

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._end_s = 0.0
        self._waiting: list[QWidget] = []
        self._turn = QTimer(self, interval=0, singleShot=True)
        self._turn.timeout.connect(self._update_waiting)

    @property
    def busy(self) -> bool:
        """Whether a widget still waits for its turn."""
        return bool(self._waiting)

    def lead(self, widget: QWidget) -> None:
        """Let the painting of a widget that waits for none count too; it is painted before the others."""
        widget.installEventFilter(self)

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        """Begin the turn where a widget is painted that waits for none."""
        if event.type() == QEvent.Type.Paint:
            self._begin()
        return False

    def take(self, widget: QWidget) -> bool:
        """Return whether a widget may be painted in this turn; if not, it is asked to paint in the next one."""
        self._begin()
        is_time = time.monotonic() < self._end_s
        if not is_time:
            self._waiting.append(widget)
        return is_time

    def _begin(self) -> None:
        if not self._turn.isActive():
            self._end_s = time.monotonic() + _SLICE_S
            self._turn.start()

    def _update_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for widget in waiting:
            widget.update()


class Slices(QObject):
    """Goes through steps, a few milliseconds of them in each turn of the event loop, so that input never waits for all.

    New steps replace those that are left; `done` is emitted after the last. With a `slice_s` of 0 each step has a turn
    of its own: it takes long itself, or leaves much to be laid out.

    Thread: GUI only.
    """

    done = Signal()

    def __init__(self, parent: QObject, slice_s: float = _SLICE_S) -> None:
        super().__init__(parent)
        self._slice_s = slice_s
        self._steps: Iterator[object] = iter(())
        self._end_of_turn = QTimer(self, interval=0, singleShot=True)
        self._next_turn = CalmTurn(self, self._go)
        # What an event asks of a timer comes at the end of the same turn, after all was painted.
        self._end_of_turn.timeout.connect(self._next_turn.wait)

    @property
    def busy(self) -> bool:
        return self._end_of_turn.isActive() or self._next_turn.awaited

    def start(self, steps: Iterable[object], *, later: bool = False) -> None:
        """Make the first of these steps now, or later, in the next turn, and the others in those after it.

        A step is made by taking it.
        """
        self._steps = iter(steps)
        self._next_turn.cancel()
        if later:
            self._end_of_turn.start()
        else:
            self._end_of_turn.stop()
            self._go()

    def finish(self) -> None:
        """Make all steps that are left now."""
        if self.busy:
            self.start(list(self._steps))

    def _go(self) -> None:
        end_s = time.monotonic() + self._slice_s
        for _ in self._steps:
            if time.monotonic() >= end_s:
                self._end_of_turn.start()
                return
        if isValid(self):  # the last step may end its owner
            self.done.emit()
