"""The window's question whether to allow what a file, a database or a stored run names; see `app.grants`."""

from collections.abc import Sequence
from concurrent.futures import Future

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QMainWindow

from app.grants import Grant
from app.gui.theme import Theme
from app.gui.widgets.dialogs import ask_confirmation

_LOOK_S = 0.2


class ConsentQuestion(QObject):
    """Asks on the GUI thread for other threads, which wait for the answer.

    Thread: `ask` any but the GUI's; the others GUI only.
    """

    _asked = Signal(object, object)

    def __init__(self, window: QMainWindow, theme: Theme) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        # One reference, read by the threads that wait: no lock is needed.
        self._closed = False
        self._asked.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def ask(self, grants: Sequence[Grant]) -> bool:
        """Return whether the user allows all of these; no, once the window closes."""
        answer: Future[bool] = Future()
        self._asked.emit(grants, answer)
        while not self._closed:
            try:
                return answer.result(_LOOK_S)
            except TimeoutError:
                continue
        return False

    def close(self) -> None:
        """Allow nothing more, so that nobody waits."""
        self._closed = True

    def _show(self, grants: Sequence[Grant], answer: "Future[bool]") -> None:
        requests = "\n\n".join(grant.request for grant in grants)
        box = ask_confirmation(
            self._window,
            self._theme,
            "Allow this?",
            "This was not typed here. Allow it, now and from now on, to",
            requests,
            "&Allow",
            "&Do not allow",
        )
        box.accepted.connect(lambda: answer.set_result(True))
        box.rejected.connect(lambda: answer.set_result(False))
