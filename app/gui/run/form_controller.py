"""The form's controller: choices and typed texts, the experiment's estimate, messages, and undo."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import structs
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication

from app.errors import DatabaseError, UserError
from app.grants import require, typed, variant_grants
from app.gui.actions import Services
from app.gui.run.form import FormView
from app.gui.window import RUN
from app.gui.window_state import WindowState
from app.queries import ExperimentProgress
from app.values.plan import Plan
from app.values.samples import Inventory
from app.viewmodels.experiment.preview import (
    describe_estimate,
    describe_resolution,
    describe_size,
    describe_stored,
    experiment_label,
    sequential_reason,
)
from app.viewmodels.plot.panels import describe_lost
from app.viewmodels.run.form import FormChoices, VariantForm
from workloads.catalog import Framework, UsageError
from workloads.protocol import RunSpec, Value

_READING = "Checking stored runs …"


class FormMessages(QObject):
    """The messages above the Run button: an error with a remedy, a warning, the result of a search.

    `changed` is emitted when anything but the form's controller changes them.

    Thread: GUI only.
    """

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.error = self.warning = self.result = ""
        self.retry: Callable[[], None] | None = None

    @property
    def caution(self) -> str:
        """Return what is shown above an error: the result, but no warning."""
        return " ".join(filter(None, ("" if self.error else self.warning, self.result)))

    def set_error(self, error: UserError) -> None:
        """Replace the messages by an error, without commands of the terminal."""
        text = error.in_window if isinstance(error, DatabaseError) else str(error)
        retry = self.retry if text == self.error else None  # others may fail for the same reason
        self.forget()
        self.error, self.retry = text, retry

    def show_failed_read(self, retry: Callable[[], None], error: UserError) -> None:
        """Show why something could not be read; `retry`, which reads it again, is offered if that may help."""
        self.set_error(error)
        self.retry = retry if error.may_pass else None
        self.changed.emit()

    def forget(self) -> None:
        """Forget error and result, because what they were about has changed."""
        self.error = self.result = ""
        self.retry = None

    def try_again(self) -> None:
        """Read again; the reader shows the outcome."""
        retry = self.retry
        self.forget()
        self.changed.emit()
        if retry is not None:
            retry()


@dataclass(frozen=True, slots=True)
class _FormReversal:
    """Restores earlier choices of a form, which are one record; the undo stack's listener shows them."""

    form: VariantForm
    choices: FormChoices

    def __call__(self) -> "_FormReversal":
        current = self.form.choices
        self.form.restore(self.choices)
        return _FormReversal(self.form, current)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """The progress of a plan, and what it would be if stored runs of the last hour counted."""

    plan: Plan
    ahead: ExperimentProgress
    countable: ExperimentProgress


class FormController(QObject):
    """Connects the form with its view and, for estimates, with the database.

    `updated` is emitted whenever the form is updated, with whether a run or the queue is active.

    Thread: GUI only.
    """

    updated = Signal(bool)

    def __init__(self, view: FormView, form: VariantForm, services: Services) -> None:
        super().__init__(view)
        self.form = form
        self._view = view
        self._services = services
        self._state = WindowState("run", view)
        self._busy = self._stopping = False
        self._estimate: _Estimate | None = None
        self._read_plan: Plan | None = None
        """The plan for which the database was last read."""
        self._is_reading, self._unread = False, ""
        self._typed: set[tuple[str, str, Value]] = set()
        self.messages = FormMessages(self)

    def start(self) -> None:
        """Connect the view and show the first state."""
        view = self._view
        view.workload_chosen.connect(lambda name: self._change(lambda: self.form.choose(name)))
        view.edited.connect(lambda name, values: self._change(lambda: self._edit(name, values)))
        view.typed.connect(lambda name, text: self._change(lambda: self._type(name, text)))
        view.reset_button.clicked.connect(self._reset)
        view.copy_button.clicked.connect(self._copy_command)
        view.retry_button.clicked.connect(self.messages.try_again)
        self.messages.changed.connect(self.show)
        view.script_changed.connect(self.show)
        self.form.restore(self._state.read("form", self.form.choices))
        self.show()

    def show(self, *, busy: bool | None = None, stopping: bool | None = None) -> None:
        """Show the form's state; `busy` is whether a run or the queue is active, `stopping` whether it is ending."""
        if busy not in (None, self._busy):
            self._read_plan = None  # the stored runs have changed
        self._busy = self._busy if busy is None else busy
        self._stopping = self._stopping if stopping is None else stopping
        estimate = self._estimate
        has_stored = estimate is not None and bool(estimate.countable.done or estimate.countable.older_utc_ns)
        state = self.form.state(has_stored=has_stored)
        label = "Run"
        brief = detail = ""
        if state.is_experiment and state.can_run:
            plan = self.form.selection.plan()
            self._request_estimate(plan)
            current = estimate if estimate is not None and estimate.plan == plan else None
            most = plan.until_pct is not None
            label = experiment_label(state.runs, current.ahead if current else None, most=most)
            detail = self._describe(current) if current else self._unread or _READING
            stored = describe_stored(current.ahead, current.countable) if current and plan.again else []
            brief = " ".join([describe_size(plan), *stored, *([self._unread] if self._unread else [])])
        self._view.retry_button.setVisible(self.messages.retry is not None)
        self._view.show_model(
            state,
            label=label,
            brief=brief,
            detail=detail,
            busy=self._busy,
            stopping=self._stopping,
            error=self.messages.error,
            warning=self.messages.caution,
        )
        self.updated.emit(self._busy)

    def run_again(self, run: int) -> None:
        """Load a run's variant into the form."""
        services = self._services
        services.window.show_page(RUN)
        failed = partial(self.messages.show_failed_read, lambda: self.run_again(run))
        services.reads.ask(services.database, lambda store: store.load(run, ()).row.spec, self.fill, failed)

    def read_again(self) -> None:
        """Read again what is stored of the experiment: runs or queue entries may have disappeared."""
        self._read_plan = None
        self.show()

    def set_machine(self, host: str, inventory: Inventory | None) -> None:
        """Run on a host from now on, once its devices are known; "" is this machine."""
        if host != self.form.host or inventory is None:
            self.messages.forget()
            self.form.set_host(host)
        if inventory is not None:
            self.form.set_machine(inventory.machine, inventory.no_gpu_reason or describe_lost(inventory))
        self._read_plan = None
        self.show()

    def fill(self, spec: RunSpec) -> None:
        """Put a variant into the form, and report what this version lacks."""
        try:
            self._change(lambda: self.form.fill(spec))
        except UsageError as error:
            self.show_error(UserError(str(error)))

    def show_error(self, error: UserError) -> None:
        """Show an error above the Run button, without commands of the terminal."""
        self.messages.set_error(error)
        self.show()

    def warn(self, text: str) -> None:
        """Show a warning above the Run button; "" hides it."""
        self.messages.warning = text
        self.show()

    def allow_typed(self) -> None:
        """Allow the chosen Pythons and packages that the user typed or chose here; raises `UserError`."""
        chosen = self._typed & self._foreign()
        require((grant for host, name, value in chosen for grant in variant_grants({name: value}, host)), typed)

    def get_framework(self, framework: Framework) -> None:
        """Have runs install a framework, as if the user had typed its package."""
        package = framework.package(on_gpus=bool(self.form.machine and self.form.machine.gpus))
        self._change(lambda: self._edit("packages", (package,)))

    def _change(self, change: Callable[[], None]) -> None:
        self.messages.forget()
        self.form.files.clear_last()
        change()
        self._state.keep("form", self.form.choices)
        self.show()
        self._view.changed.emit()

    def _edit(self, name: str, values: tuple[Value, ...]) -> None:
        self._edit_foreign(lambda: self.form.edit(name, *values))

    def _type(self, name: str, text: str) -> None:
        self._edit_foreign(lambda: self.form.type(name, text))

    def _edit_foreign(self, edit: Callable[[], None]) -> None:
        """Record what an edit by the user adds; what a run, undo or the last window chose needs consent."""
        before = self._foreign()
        edit()
        self._typed |= self._foreign() - before

    def _foreign(self) -> set[tuple[str, str, Value]]:
        chosen = self.form.selection.chosen
        return {(self.form.host, name, value) for name in ("interpreter", "packages") for value in chosen.get(name, ())}

    def _reset(self) -> None:
        choices = self.form.choices
        self._change(self.form.reset)
        if self.form.choices != choices:
            self._services.record_change("reset the form", _FormReversal(self.form, choices))

    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(self.form.selection.command())
        self._view.copy_button.setText("Copied")  # until something changes

    def _describe(self, estimate: _Estimate) -> str:
        plan, at_most = estimate.plan, estimate.plan.until_pct is not None
        alone = sequential_reason(plan.variants, self.form.machine) if plan.parallel > 1 else ""
        sentences = describe_estimate(estimate.ahead, at_most=at_most, budget_s=plan.budget_s)
        shows = describe_resolution(estimate.ahead.resolution, at_most=at_most)
        return " ".join(filter(None, (*sentences, *shows, alone)))

    def _request_estimate(self, plan: Plan) -> None:
        """Query the database about an experiment, one at a time; only the newest answer is shown."""
        if self._is_reading or plan == self._read_plan:
            return
        self._read_plan, self._is_reading, self._unread = plan, True, ""
        services = self._services
        services.reads.run(
            lambda: _read_estimate(services.database, plan, services.inventory()), self._take, self._fail
        )

    def _take(self, estimate: _Estimate) -> None:
        self._is_reading, self._estimate = False, estimate
        self.show()

    def _fail(self, error: UserError) -> None:
        self._is_reading, self._unread = False, str(error)
        self.show()


def _read_estimate(database: Path, plan: Plan, inventory: Inventory) -> _Estimate:
    from app.runs.experiment.queue import estimate_remaining
    from app.storage.store import Store

    with Store.open(database) as store:
        stored = store.list_runs()
        ahead = estimate_remaining(store, plan, inventory, stored)
        countable = ahead
        if plan.again:
            countable = estimate_remaining(store, structs.replace(plan, again=False), inventory, stored)
        return _Estimate(plan, ahead, countable)
