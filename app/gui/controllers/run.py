"""The Run screen's controller: form, session and live view brought together."""

from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication

from app.errors import UserError
from app.gui.background import Background
from app.gui.bridge import Bridge
from app.gui.controllers.time import connect_time
from app.gui.views.run import RunView
from app.records import Inventory, Outcome, RunEvent
from app.viewmodels.form import VariantForm
from app.viewmodels.live import LiveModel
from workloads.protocol import RunSpec, Value


class Session(Protocol):
    """One run from its spec to its outcome; see `app.runs.session`."""

    def run(self) -> Outcome:
        """Run to the end; blocks its thread."""

    def stop(self) -> None:
        """Ask the run to end; from any thread."""


class RunController(QObject):
    """Starts and stops runs, one at a time. `ended` comes when a run is over and stored."""

    ended = Signal()

    def __init__(
        self,
        view: RunView,
        form: VariantForm,
        make_session: Callable[[RunSpec], Session],
        sessions: Background,
        bridge: Bridge,
    ) -> None:
        super().__init__(view)
        self._view = view
        self._form = form
        self._live = LiveModel()
        self._make_session = make_session
        self._sessions = sessions
        self._bridge = bridge
        self._session: Session | None = None
        self._stopping = False
        self._error = ""
        self._warning = ""

    def start(self) -> None:
        """Listen to the view and show the first state."""
        form, live = self._view.form, self._view.live
        form.workload_chosen.connect(lambda name: self._change(lambda: self._form.choose(name)))
        form.edited.connect(self._edit)
        form.reset_asked.connect(lambda: self._change(self._form.reset))
        form.run_or_stop_asked.connect(self.run_or_stop)
        form.copy_asked.connect(self._copy_command)
        live.log_asked.connect(lambda: self._view.show_log(self._live.log))
        connect_time(live, self._live, self.refresh)
        self._show_form()
        self.refresh()

    @property
    def running(self) -> bool:
        """Whether a run is under way, its end not yet stored."""
        return self._session is not None

    def handle(self, event: RunEvent | Inventory) -> None:
        """Take one event of a run or of telemetry."""
        self._live.handle(event)
        if isinstance(event, Inventory):
            self._form.set_machine(event.machine, event.no_gpu_reason)
            self._show_form()

    def refresh(self) -> None:
        """Show what the events so far amount to."""
        self._view.live.show_model(self._live.state())

    def run_or_stop(self) -> None:
        """The one button: run the variant, or stop the run."""
        if self.running:
            self.stop()
        else:
            self.run()

    def run(self) -> None:
        """Run the form's variant in a session of its own; nothing happens while one goes or where it cannot run."""
        state = self._form.state()
        if self.running or not state.known_machine or state.refusals:
            return
        spec = self._form.spec()
        self._session = self._make_session(spec)
        self._error = ""
        self._live.request(spec)
        self._sessions.run(self._session.run, self._end, self._fail)
        self._show_form()
        self.refresh()

    def stop(self) -> None:
        """Ask the run to end; `ended` tells when it has."""
        if self._session is not None and not self._stopping:
            self._stopping = True
            self._session.stop()
            self._show_form()

    def show_error(self, error: UserError) -> None:
        """Say beside the Run button what is wrong."""
        self._error = str(error)
        self._show_form()

    def warn(self, words: str) -> None:
        """Say above the Run button what may go wrong; "" is nothing."""
        self._warning = words
        self._show_form()

    def _edit(self, name: str, value: Value) -> None:
        self._change(lambda: self._form.edit(name, value))

    def _change(self, change: Callable[[], None]) -> None:
        self._error = ""
        change()
        self._show_form()

    def _end(self, _outcome: Outcome) -> None:
        self._over()

    def _fail(self, error: UserError) -> None:
        self._live.withdraw()
        self._error = str(error)
        self._over()

    def _over(self) -> None:
        self._session = None
        self._stopping = False
        self._bridge.flush()
        self._show_form()
        self.refresh()
        self.ended.emit()

    def _show_form(self) -> None:
        self._view.form.show_model(
            self._form.state(),
            running=self.running,
            stopping=self._stopping,
            error=self._error,
            warning=self._warning,
        )

    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(self._form.command())
        self._view.form.confirm_copied()
