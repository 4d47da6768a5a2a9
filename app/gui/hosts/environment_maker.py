"""Makes an environment with the framework, here or on a host: says what it takes, asks, and shows how far it is."""

import threading
from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.environments.known import KNOWN
from app.environments.records import Environment, EnvironmentOffer, EnvironmentRequest, Environments, make
from app.errors import UserError
from app.gui.theme import GRID
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.basic import button, set_role, text_label

_LOOK_S = 0.2
Step = EnvironmentOffer | str


class EnvironmentMaker(QWidget):
    """A line of text, uv's last one, and two buttons; hidden until an environment is made.

    `ended` is emitted when one was made, or when that failed or was cancelled.

    Thread: GUI only; the environment is made on a job's thread.
    """

    ended = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._job = CancellableJob(self)
        self._accepted = threading.Event()
        self._host = ""
        self.text = text_label("", "", wrap=True)
        self.accept_button = button("&Download", "Download and install it there", primary=True)
        self.cancel_button = button("Canc&el", "Stop; what was downloaded is kept for next time")
        self.accept_button.clicked.connect(self._accept)
        self.cancel_button.clicked.connect(self._job.stop)
        line = QHBoxLayout()
        line.setSpacing(GRID)
        line.addWidget(self.accept_button)
        line.addWidget(self.cancel_button)
        line.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID)
        column.addWidget(self.text)
        column.addLayout(line)
        self.hide()

    @property
    def is_busy(self) -> bool:
        """Whether an environment is being made."""
        return bool(self._host)

    def make(self, host: str, reach: Callable[[], Environments]) -> None:
        """Make the newest environment that is known.

        `reach` returns what can be done with the environments of the host, on the job's thread.
        """
        self._host = host
        self._accepted.clear()
        self._show(f"Looking for what {host} needs …", role="")
        self.accept_button.hide()
        self.cancel_button.show()
        self.show()
        self._job.run(lambda control: self._work(reach(), control), self._end, self._fail, on_progress=self._take)

    def close_job(self) -> None:
        """End what goes on."""
        self._job.close()

    def _work(self, environments: Environments, control: JobControl[Step]) -> Environment:
        """Make it, on the job's thread, after the user's answer to the offer."""

        def ask(offer: EnvironmentOffer) -> bool:
            control.report(offer)
            while not self._accepted.wait(_LOOK_S):
                if control.stop.is_set():
                    return False
            return True

        def report(line: str) -> bool:
            control.report(line)
            return not control.stop.is_set()

        return make(environments, EnvironmentRequest(name=KNOWN[0].name), ask, report)

    def _accept(self) -> None:
        self.accept_button.hide()
        self._accepted.set()

    def _take(self, step: Step) -> None:
        is_offer = isinstance(step, EnvironmentOffer)
        self.accept_button.setVisible(is_offer)
        if text := step.sentence if isinstance(step, EnvironmentOffer) else step:
            self._show(f"{self._host}: {text}", role="")

    def _end(self, made: Environment) -> None:
        self._finish(f"{self._host} has the environment {made.name}; runs there use it.", "caption")

    def _fail(self, error: UserError) -> None:
        self._finish(str(error), "problem")

    def _finish(self, text: str, role: str) -> None:
        self._host = ""
        self._show(text, role=role)
        for widget in (self.accept_button, self.cancel_button):
            widget.hide()
        self.ended.emit()

    def _show(self, text: str, *, role: str) -> None:
        self.text.setText(text)
        set_role(self.text, role)
