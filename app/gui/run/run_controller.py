"""The Run screen's controller: connects form, run session and live view."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, Signal

from app.analysis.largest_batch import LargestBatch
from app.errors import UserError
from app.gui.actions import Services
from app.gui.run.form_controller import FormController
from app.gui.run.live import remember_time_controls
from app.gui.run.screen import RunView
from app.gui.threads import WindowEvent
from app.gui.window_state import WindowState
from app.values.events import RunStarted
from app.values.samples import Inventory
from app.viewmodels.plot.panels import TelemetryBuffer
from app.viewmodels.run.form import describe_largest_batch, describe_try
from app.viewmodels.run.live import LiveModel
from workloads.catalog import UsageError
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.runs.probes import LargestBatchSession
    from app.runs.session import RunSession


Result = TypeVar("Result")


class RunController(QObject):
    """Starts and stops runs, one at a time.

    `ended` is emitted when a run, or a search of many, has ended and is stored. While something is active,
    `queue_requested` queues the form's variant; `plan_requested` carries the plan of several variants, which always
    goes to the queue. `queue_stop_requested` stops the queue.

    Thread: GUI only; sessions run on `sessions`.
    """

    ended = Signal()
    queue_requested = Signal(object)
    plan_requested = Signal(object)
    queue_stop_requested = Signal()

    def __init__(
        self,
        view: RunView,
        form: FormController,
        services: Services,
        make_session: Callable[[RunSpec, str, str | None], "RunSession"],
        make_search: Callable[[RunSpec, int, str], "LargestBatchSession"],
    ) -> None:
        """Create the controller of a window's single runs.

        `make_session` creates the session of a run on a host ("" is this machine), with a purpose if any; `make_search`
        creates the search for the largest batch up to a limit, and raises `UsageError`.
        """
        super().__init__(view)
        self._view = view
        self._form_controller = form
        self._form = form.form
        self._live = LiveModel()
        self._services = services
        self._make_session = make_session
        self._make_search = make_search
        self._session: RunSession | LargestBatchSession | None = None
        self._stopping = self._queue_running = False
        self._host = ""
        self._messages = form.messages

    @property
    def recent(self) -> TelemetryBuffer:
        """Return the last minutes of telemetry, which Monitor also shows."""
        return self._live.recent

    def start(self) -> None:
        def run_anyway() -> None:
            if self._session is not None:
                self._session.run_anyway()

        form, live = self._view.form, self._view.live
        form.run_button.clicked.connect(self.run_or_stop)
        form.queue_button.clicked.connect(self.run)
        form.largest_batch_requested.connect(self.find_largest_batch)
        live.anyway_button.clicked.connect(run_anyway)
        live.log_button.clicked.connect(lambda: self._view.show_log(self._live.log))
        live.runs.chosen.connect(self._live.show_run)
        live.runs.chosen.connect(self.refresh)
        live.time_bar.control(self._live, self.refresh)
        live.time_bar.per_gpu_button.clicked.connect(self._live.split_by_gpu)
        live.time_bar.per_gpu_button.clicked.connect(self.refresh)
        remember_time_controls(live, self._live, WindowState("run", self._view))
        self.refresh()

    @property
    def chosen_host(self) -> str:
        return self._form.host

    def show_error(self, error: UserError) -> None:
        """Show an error above the Run button; a pending start of the queue is dropped."""
        if not self._busy:
            self._live.set_queue_running(False)
        self._form_controller.show_error(error)

    def announce_queue(self) -> None:
        """Show immediately that the queue starts, unless a run continues."""
        if not self._busy:
            self._live.set_queue_running(True)
            self.refresh()

    @property
    def host(self) -> str | None:
        return self._host if self.running else None

    @property
    def running(self) -> bool:
        """Return whether a run is active, or its end not yet stored."""
        return self._session is not None

    def handle(self, event: WindowEvent, run: int | None = None) -> None:
        """Take one event of telemetry, or of the run with this number."""
        self._live.handle(event, run)
        if isinstance(event, RunStarted) and self._messages.result and self.running:
            self._messages.result = describe_try(event.spec)
            self._show_form()

    def show_host(self, host: str, inventory: Inventory | None) -> None:
        self._live.show_host(host, inventory)
        self.refresh()

    def show_link(self, title: str, detail: str) -> None:
        """Show why the plots of that host stand still, with a title; "" if they do not."""
        if (title, detail) != self._live.absence:
            self._live.absence = title, detail
            self.refresh()

    def refresh(self) -> None:
        """Show the state after the events so far."""
        self._view.live.show_model(self._live.state())

    def run_or_stop(self) -> None:
        if self._busy:
            self.stop()
        else:
            self.run()

    def run(self) -> None:
        """Run the form's variant, or queue it while something is active; queue an experiment of several."""
        state = self._form.state()
        if not state.can_run:
            return
        try:
            self._form_controller.allow_typed()
            if state.is_experiment:
                self.plan_requested.emit(self._form.selection.plan())
                return
            if self._busy:
                self.queue_requested.emit(self._form.selection.spec)
                return
            spec = self._form.selection.spec
            session = self._make_session(spec, self._form.host, None)
        except UserError as error:
            self.show_error(error)
            return
        self._view.live.show_result(None)
        self._live.request(spec)
        self._begin(session, session.run, lambda _: self._finish())

    def show_queue(self, *, running: bool) -> None:
        """Show whether the queue is active; the form's variant is then also queued."""
        if running and not self._queue_running:
            self._messages.forget()
            self._view.leave_questions()
        self._queue_running = running
        self._live.set_queue_running(running)
        self._stopping = self._stopping and self._busy
        self._show_form()

    def find_largest_batch(self, limit: int) -> None:
        """Search from the form's batch size up to `limit`; the result is shown above the Run button."""
        state, spec = self._form.state(), self._form.selection.spec
        if self._busy or not state.can_run or state.is_experiment:
            return
        try:
            self._form_controller.allow_typed()
            search = self._make_search(spec, limit, self._form.host)
        except (UsageError, UserError) as error:
            self.show_error(UserError(str(error)))
            return
        self._live.request(spec)
        self._begin(search, search.run, self._end_search)
        self._messages.result = "Looking for the largest batch …"
        self._show_form()

    def try_once(self, spec: RunSpec, purpose: str, done: Callable[["RunSession"], None]) -> None:
        """Execute one run on this machine that no experiment reuses; `done` gets the finished session."""
        if self._busy:
            raise UserError("Try it again when the current run or queue has ended, or stop that first.")
        session = self._make_session(spec, "", purpose)

        def end(_: object) -> None:
            self._finish()
            done(session)

        self._live.request(spec)
        self._begin(session, session.run, end)

    @property
    def _busy(self) -> bool:
        return self.running or self._queue_running

    def _begin(
        self, session: "RunSession | LargestBatchSession", work: Callable[[], Result], done: Callable[[Result], None]
    ) -> None:
        self._session, self._host = session, self._form.host
        self._messages.forget()
        self._view.show_live()
        self._services.sessions.run(work, done, self._fail)
        self._show_form()
        self.refresh()

    def stop(self) -> None:
        """Stop what is active; `ended` is emitted when a run has ended."""
        if self._stopping or not self._busy:
            return
        self._stopping = True
        if self._session is not None:
            self._session.stop()
        else:
            self.queue_stop_requested.emit()
        self._show_form()

    def _end_search(self, result: LargestBatch) -> None:
        self._messages.result = describe_largest_batch(result)
        self._finish()

    def _fail(self, error: UserError) -> None:
        self._live.withdraw()
        self._messages.set_error(error)
        self._finish()

    def _finish(self) -> None:
        self._session = None
        self._stopping = False
        self._services.bridge.flush()
        self._show_form()
        self.refresh()
        self.ended.emit()

    def _show_form(self) -> None:
        self._form_controller.show(busy=self._busy, stopping=self._stopping)
