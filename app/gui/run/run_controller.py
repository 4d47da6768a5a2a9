"""The Run screen's controller: connects form, run session and live view."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication

from app.analysis.largest_batch import LargestBatch
from app.errors import DatabaseError, RunRescuedError, UserError
from app.events import RunStarted
from app.grants import allow_pythons
from app.gui.run.live import LiveView
from app.gui.run.screen import RunView
from app.gui.threads import Background, Bridge, WindowEvent
from app.gui.window_state import WindowState
from app.samples import Inventory
from app.viewmodels.plot.telemetry_buffer import TelemetryBuffer, describe_lost
from app.viewmodels.run.form import FormChoices, VariantForm
from app.viewmodels.run.largest_batch import describe_largest_batch, describe_try
from app.viewmodels.run.live import WINDOWS, LiveModel
from workloads.catalog import UsageError
from workloads.protocol import RunSpec, Value

if TYPE_CHECKING:
    from app.runs.probes import LargestBatchSession
    from app.runs.session import RunSession


def connect_time_controls(view: LiveView, model: LiveModel, refresh: Callable[[], None]) -> None:
    """Connect a view's time bar and plots with the time range of a model.

    `refresh` is called after each change, to show it.
    """

    def show(change: Callable[[], None]) -> None:
        change()
        refresh()

    bar, plots = view.time_bar, view.stack
    bar.range_requested.connect(lambda name: show(lambda: model.follow(name)))
    bar.pause_requested.connect(lambda: show(model.toggle_pause))
    bar.follow_requested.connect(lambda: show(model.follow))
    bar.per_gpu_toggled.connect(lambda apart: show(lambda: model.split_by_gpu(apart)))
    plots.zoomed.connect(lambda factor, at: show(lambda: model.zoom(factor, at)))
    plots.panned.connect(lambda by: show(lambda: model.pan(by)))
    plots.range_requested.connect(lambda start, end: show(lambda: model.hold(start, end)))


def remember_time_controls(view: LiveView, model: LiveModel, state: WindowState) -> None:
    """Show the time range and the panels that were chosen last, and remember those that are chosen."""
    bar, chosen = view.time_bar, state.read("range", "measured")
    model.follow(next((name for name in WINDOWS if name == chosen), "measured"))
    model.split_by_gpu(state.read("per gpu", False))
    bar.range_requested.connect(partial(state.keep, "range"))
    bar.per_gpu_toggled.connect(partial(state.keep, "per gpu"))


Result = TypeVar("Result")


class FormMessages(QObject):
    """What is said above the Run button: an error with what may help, a warning, the result of a search.

    `changed` is emitted when others than the controller of the form change it.

    Thread: GUI only.
    """

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.error = self.warning = self.result = ""
        self.retry: Callable[[], None] | None = None
        self.rescued: Path | None = None
        """The file of the last run that the database could not take."""

    @property
    def caution(self) -> str:
        """What is shown above an error: the result, but no warning."""
        return " ".join(filter(None, ("" if self.error else self.warning, self.result)))

    def set_error(self, error: UserError) -> None:
        """Set an error, without commands of the terminal, in place of what was said."""
        self.forget()
        self.rescued = error.path if isinstance(error, RunRescuedError) else self.rescued
        self.error = error.in_window if isinstance(error, DatabaseError) else str(error)
        self.retry = None

    def show_failed_read(self, retry: Callable[[], None], error: UserError) -> None:
        """Show why something could not be read; `retry`, which reads it again, is offered where that may help."""
        self.set_error(error)
        self.retry = retry if error.may_pass else None
        self.changed.emit()

    def forget(self) -> None:
        """Forget error and result: what they were about has changed."""
        self.error = self.result = ""
        self.retry = None

    def take_away(self) -> None:
        """Take error and result away, for something else is shown now."""
        self.forget()
        self.changed.emit()

    def try_again(self) -> None:
        """Read again; whoever reads shows how it ends."""
        retry = self.retry
        self.take_away()
        if retry is not None:
            retry()


class RunController(QObject):
    """Starts and stops runs, one at a time.

    `ended` is emitted when a run, or a search of many, is over and stored. While one or the queue is active, the
    form's variant goes into the queue by `queue_requested`; `queue_stop_requested` stops the queue. `form_shown` is
    emitted at every change of the form, and says whether a run or the queue is active.

    Thread: GUI only; sessions run on `sessions`.
    """

    ended = Signal()
    queue_requested = Signal(object)
    queue_stop_requested = Signal()
    form_shown = Signal(bool)

    def __init__(
        self,
        view: RunView,
        form: VariantForm,
        make_session: Callable[[RunSpec, str], "RunSession"],
        make_search: Callable[[RunSpec, int, str], "LargestBatchSession"],
        sessions: Background,
        bridge: Bridge,
    ) -> None:
        """Make the controller of a window's single runs.

        `make_session` makes the session of a run on a host, "" being this machine; `make_search` makes the search for
        the largest batch up to a limit, and raises `UsageError`.
        """
        super().__init__(view)
        self._view = view
        self._form = form
        self._live = LiveModel()
        self._make_session = make_session
        self._make_search = make_search
        self._sessions = sessions
        self._bridge = bridge
        self._session: RunSession | LargestBatchSession | None = None
        self._stopping = self._queue_running = False
        self._host = ""
        self.messages = FormMessages(self)
        self._state = WindowState("run", view)

    @property
    def recent(self) -> TelemetryBuffer:
        """The last minutes of telemetry, which the Monitor shows too."""
        return self._live.recent

    def start(self) -> None:
        """Connect the view and show the first state."""
        form, live = self._view.form, self._view.live
        form.workload_chosen.connect(lambda name: self._change(lambda: self._form.choose(name)))
        form.edited.connect(lambda name, value: self._change(lambda: self._edit(name, value)))
        form.reset_requested.connect(lambda: self._change(self._form.reset))
        form.run_or_stop_requested.connect(self.run_or_stop)
        form.queue_requested.connect(self.run)
        form.copy_requested.connect(self._copy_command)
        form.largest_batch_requested.connect(self.find_largest_batch)
        form.retry_button.clicked.connect(self.messages.try_again)
        self.messages.changed.connect(self.show_form)
        live.anyway_button.clicked.connect(self._run_anyway)
        live.log_requested.connect(lambda: self._view.show_log(self._live.log))
        live.run_chosen.connect(self._show_run)
        connect_time_controls(live, self._live, self.refresh)
        self._form.restore(self._state.read("form", FormChoices()))
        remember_time_controls(live, self._live, self._state)
        self.show_form()
        self.refresh()

    @property
    def chosen_host(self) -> str:
        """The host of the form's runs; "" is this machine."""
        return self._form.host

    @property
    def host(self) -> str | None:
        """The host of the active run; None where there is none."""
        return self._host if self.running else None

    @property
    def running(self) -> bool:
        """Whether a run is active, or its end not yet stored."""
        return self._session is not None

    def handle(self, event: WindowEvent, run: int | None = None) -> None:
        """Take one event of telemetry, or of the run with this number."""
        self._live.handle(event, run)
        if isinstance(event, RunStarted) and self.messages.result and self.running:
            self.messages.result = describe_try(event.spec)
            self.show_form()

    def show_host(self, host: str, inventory: Inventory | None) -> None:
        """Show the telemetry of a host; "" is this machine."""
        self._live.show_host(host, inventory)
        self.refresh()

    def show_link(self, title: str, detail: str) -> None:
        """Say why the plots of that host stand still, with a title; "" where they do not."""
        if (title, detail) != self._live.absence:
            self._live.absence = title, detail
            self.refresh()

    def set_machine(self, host: str, inventory: Inventory | None) -> None:
        """Make runs on a host from now on, once its devices are known; "" is this machine."""
        if host != self._form.host or inventory is None:
            self.messages.forget()
            self._form.set_host(host)
        if inventory is not None:
            self._form.set_machine(inventory.machine, inventory.no_gpu_reason or describe_lost(inventory))
        self.show_form()

    def refresh(self) -> None:
        """Show the state after the events so far."""
        self._view.live.show_model(self._live.state())

    def run_or_stop(self) -> None:
        """Run the variant, or stop what is active."""
        if self._busy:
            self.stop()
        else:
            self.run()

    def run(self) -> None:
        """Run the form's variant, or queue it while something is active; do nothing where it cannot run."""
        state = self._form.state()
        if not state.is_machine_known or state.refusals:
            return
        spec = self._form.spec()
        if self._busy:
            self.queue_requested.emit(spec)
            return
        try:
            session = self._make_session(spec, self._form.host)
        except UserError as error:
            self.show_error(error)
            return
        self._view.live.show_result(None)
        self._live.request(spec)
        self._begin(session, session.run, lambda _: self._finish())

    def show_queue(self, *, running: bool) -> None:
        """Show whether the queue is active; the form's variant is then queued too."""
        if running and not self._queue_running:
            self.messages.forget()
        self._queue_running = running
        self._live.set_queue_running(running)
        self._stopping = self._stopping and self._busy
        self.show_form()

    def find_largest_batch(self, limit: int) -> None:
        """Search from the form's batch size up to `limit`; the result is shown above the Run button."""
        state, spec = self._form.state(), self._form.spec()
        if self._busy or not state.is_machine_known or state.refusals:
            return
        try:
            search = self._make_search(spec, limit, self._form.host)
        except (UsageError, UserError) as error:
            self.show_error(UserError(str(error)))
            return
        self._live.request(spec)
        self._begin(search, search.run, self._end_search)
        self.messages.result = "Looking for the largest batch …"
        self.show_form()

    @property
    def _busy(self) -> bool:
        return self.running or self._queue_running

    def _begin(
        self, session: "RunSession | LargestBatchSession", work: Callable[[], Result], done: Callable[[Result], None]
    ) -> None:
        self._session, self._host = session, self._form.host
        self.messages.take_away()
        self._view.show_live()
        self._sessions.run(work, done, self._fail)
        self.refresh()

    def fill(self, spec: RunSpec) -> None:
        """Put a variant into the form, and say what is not known any more."""
        try:
            self._change(lambda: self._form.fill(spec))
        except UsageError as error:
            self.show_error(UserError(str(error)))

    def stop(self) -> None:
        """Stop what is active; `ended` is emitted when a run has ended."""
        if self._stopping or not self._busy:
            return
        self._stopping = True
        if self._session is not None:
            self._session.stop()
        else:
            self.queue_stop_requested.emit()
        self.show_form()

    def show_error(self, error: UserError) -> None:
        """Show an error above the Run button, without commands of the terminal."""
        self.messages.set_error(error)
        self.show_form()

    def _run_anyway(self) -> None:
        if self._session is not None:
            self._session.run_anyway()

    def warn(self, text: str) -> None:
        """Show a warning above the Run button; "" hides it."""
        self.messages.warning = text
        self.show_form()

    def _show_run(self, run: int) -> None:
        self._live.show_run(run)
        self.refresh()

    def _change(self, change: Callable[[], None]) -> None:
        self.messages.forget()
        change()
        self._state.keep("form", self._form.choices)
        self.show_form()

    def _edit(self, name: str, value: Value) -> None:
        self._form.edit(name, value)
        if name == "interpreter":
            try:
                allow_pythons([self._form.spec().variant[name]], self._form.host)
            except UserError as error:
                self.messages.set_error(error)

    def _end_search(self, result: LargestBatch) -> None:
        self.messages.result = describe_largest_batch(result)
        self._finish()

    def _fail(self, error: UserError) -> None:
        self._live.withdraw()
        self.messages.set_error(error)
        self._finish()

    def _finish(self) -> None:
        self._session = None
        self._stopping = False
        self._bridge.flush()
        self.show_form()
        self.refresh()
        self.ended.emit()

    def show_form(self) -> None:
        """Show the state of the form."""
        self._view.form.retry_button.setVisible(self.messages.retry is not None)
        self._view.form.show_model(
            self._form.state(),
            busy=self._busy,
            stopping=self._stopping,
            error=self.messages.error,
            warning=self.messages.caution,
        )
        self.form_shown.emit(self._busy)

    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(self._form.command())
        self._view.form.confirm_copied()
