"""The experiment builder's controller: chosen values, time estimates, presets, and the resulting plan."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication

from app.errors import UserError
from app.grants import allow_pythons
from app.gui.actions import Actions
from app.gui.experiment.matrix import MatrixView
from app.gui.experiment.preset_reader import known_workloads, preset_lines, preset_reference_runs, preset_runs
from app.gui.threads import Background, CancellableJob, JobControl
from app.gui.window_state import WindowState
from app.plan import Plan
from app.queries import ExperimentProgress
from app.runs.custom import ReadOptions, UnreadFileError, resolve_workload
from app.runs.experiment.presets import FindWorkload, list_user_preset_file, load_preset
from app.runs.experiment.queue import estimate_remaining
from app.runs.experiment.schedule import MAX_REPEATS
from app.runs.undo import PresetFile
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.experiment.matrix import MatrixChoices, MatrixForm
from app.viewmodels.experiment.preview import (
    PresetLine,
    describe_estimate,
    describe_order,
    describe_resolution,
    sequential_reason,
)
from app.viewmodels.run.form import VariantForm
from workloads.protocol import Value

Result = TypeVar("Result")


_READING = "Checking stored runs …"


class MatrixController(QObject):
    """Connects form, matrix, presets and database.

    Thread: GUI only. Presets that may need a file of the user's are read by a job, which can take as long as
    the framework's import or as a current run: nothing else waits for it.
    """

    def __init__(
        self,
        view: MatrixView,
        form: VariantForm,
        database: Path,
        reads: Background,
        inventory: Callable[[], Inventory],
        submit: Callable[[Plan], None],
        actions: Actions,
    ) -> None:
        """Make the controller of a view.

        The form's variant gives every value that is not chosen here. The inventory is waited for off the GUI thread;
        `submit` gets the plan of an experiment to run.
        """
        super().__init__(view)
        self._view = view
        self._matrix = MatrixForm(form, MAX_REPEATS)
        self._state = WindowState("matrix", view)
        self._matrix.restore(self._state.read("choices", MatrixChoices()))
        self._form = form
        self._database = database
        self._reads = reads
        self._inventory = inventory
        self._busy = False
        self._estimate: ExperimentProgress | None = None
        self._stored = self._older = False
        self._problem = ""
        self._plan: Plan | None = None
        self._reading = False
        self._presets: tuple[PresetLine, ...] = ()
        self._submit = submit
        self._actions = actions
        self._files = CancellableJob(self)

    def start(self) -> None:
        """Listen to the view."""
        rows, foot, presets = self._view.rows, self._view.footer, self._view.presets
        database, inventory = self._database, self._inventory
        rows.value_toggled.connect(lambda name, value, on: self._change(lambda: self._matrix.tick(name, value, on=on)))
        rows.list_edited.connect(lambda name, text: self._change(lambda: self._enter_list(name, text)))
        typed_problem = self._matrix.problem_while_typing
        rows.list_typed.connect(lambda name, text: rows.show_problem(name, typed_problem(name, text)))
        foot.baseline_chosen.connect(lambda index: self._change(lambda: self._matrix.choose_baseline(index)))
        foot.extent_changed.connect(self._extend)
        foot.reset_requested.connect(lambda: self._change(self._matrix.reset))
        foot.copy_requested.connect(self._copy_command)
        foot.start_requested.connect(lambda: self._submit(self._matrix.plan()))
        presets.start_requested.connect(self._submit_preset)
        presets.verdict_requested.connect(lambda key: self._compare(lambda: preset_runs(database, key, inventory())))
        presets.reference_requested.connect(lambda key: self._compare(lambda: preset_reference_runs(database, key)))
        presets.file_chosen.connect(self.add_file)
        presets.file_removed.connect(self._remove_file)
        self._view.presets_shown.connect(self._read_presets)

    def show(self, *, busy: bool) -> None:
        """Show the form's variant and what is stored as they are now; while `busy`, experiments are only queued."""
        self._busy = busy
        self._plan = None
        self._show()
        if self._view.presets.isVisible():
            self._read_presets()

    def _change(self, change: Callable[[], None]) -> None:
        change()
        self._state.keep("choices", self._matrix.choices)
        self._show()

    def _enter_list(self, name: str, text: str) -> None:
        self._matrix.enter_list(name, text)
        if name == "interpreter":
            try:
                allow_pythons(self._matrix.typed_values(name), self._form.host)
            except UserError as error:
                self._preset_failed(error)

    def _extend(self, name: str, value: Value | None) -> None:
        self._change(lambda: self._matrix.update_extent(**{name: value}))

    def _show(self) -> None:
        state = self._matrix.state()
        if not state.problem:
            self._request_estimate(self._matrix.plan())
        stored, older = state.again or self._stored, state.reuse or self._older
        self._view.show_model(state, self._describe_time(), stored=stored, older=older, busy=self._busy)
        self._view.presets.show_presets(self._presets, busy=self._busy)

    def _describe_time(self) -> str:
        """Return what is known of the time the experiment takes."""
        if self._estimate is None or self._plan is None:
            return self._problem or _READING
        plan = self._plan
        sequential_note = sequential_reason(plan.variants, self._form.machine) if plan.parallel > 1 else ""
        at_most = plan.until_pct is not None
        sentences = describe_estimate(self._estimate, at_most=at_most, budget_s=plan.budget_s)
        shows = describe_resolution(self._estimate.resolution, at_most=at_most)
        return " ".join([*sentences, *describe_order(plan), *shows, sequential_note])

    def _request_estimate(self, plan: Plan) -> None:
        """Ask the database about an experiment, one question at a time; only the newest answer is shown."""
        if plan == self._plan:
            return
        self._plan, self._estimate, self._problem = plan, None, ""
        if self._reading:
            return
        self._reading = True
        self._reads.run(
            lambda: _read_estimate(self._database, plan, self._inventory()),
            self._estimate_handler(plan),
            self._failed,
        )

    def _estimate_handler(self, plan: Plan) -> Callable[[ExperimentProgress], None]:
        def take(ahead: ExperimentProgress) -> None:
            self._reading = False
            if plan == self._plan:
                self._estimate = ahead
                self._stored, self._older = ahead.done > 0, bool(ahead.older_utc_ns)
            else:
                self._plan = None
            self._show()

        return take

    def _failed(self, error: UserError) -> None:
        self._reading, self._problem = False, str(error)
        self._show()

    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(self._matrix.command())
        self._view.footer.confirm_copied()

    def _read_presets(self) -> None:
        self._reads.run(
            lambda: preset_lines(self._database, self._inventory()), self._show_presets, self._preset_failed
        )

    def _show_presets(self, lines: tuple[PresetLine, ...]) -> None:
        self._presets = lines
        self._view.presets.show_presets(lines, busy=self._busy)

    def _submit_preset(self, key: str) -> None:
        machine = self._form.machine
        self._view.presets.show_problem("")
        self._run_on_files(lambda find: load_preset(key, find).plan(machine), self._submit)

    def _compare(self, read: Callable[[], list[int]]) -> None:
        self._reads.run(read, self._actions.compare_experiment, self._preset_failed)

    def _preset_failed(self, error: UserError) -> None:
        self._view.presets.show_problem(str(error))

    def add_file(self, file: str) -> None:
        """List one of the user's presets from now on; no file that it names is read, for that would run it."""
        machine = self._form.machine

        def work() -> tuple[PresetLine, ...]:
            with contextlib.suppress(UnreadFileError):
                load_preset(file, known_workloads(self._database)).plan(machine)
            list_user_preset_file(self._database, file)
            return preset_lines(self._database, self._inventory())

        def show(lines: tuple[PresetLine, ...]) -> None:
            self._actions.record_change(f"list the preset {Path(file).name}", PresetFile(self._database, file, True))
            self._show_presets(lines)

        self._view.presets.show_problem("")
        self._reads.run(work, show, self._preset_failed)

    def _remove_file(self, file: str) -> None:
        """Take one of the user's presets from the list; its file stays."""

        def work() -> tuple[PresetLine, ...]:
            list_user_preset_file(self._database, file, listed=False)
            return preset_lines(self._database, self._inventory())

        def show(lines: tuple[PresetLine, ...]) -> None:
            name = f"take the preset {Path(file).name} from the list"
            self._actions.record_change(name, PresetFile(self._database, file, False))
            self._show_presets(lines)

        self._reads.run(work, show, self._preset_failed)

    def _run_on_files(self, work: Callable[[FindWorkload], Result], done: Callable[[Result], None]) -> None:
        """Do work that may have to read files of custom workloads; the list of presets says what it waits for."""

        def run_work(control: JobControl[str]) -> Result:
            consent = self._actions.consent
            reading = ReadOptions(notify=control.report, wait_for_stop=control.stop.wait, consent=consent)
            try:
                return work(lambda word: resolve_workload(word, self._database, reading))
            finally:
                control.report("")

        self._files.run(run_work, done, self._preset_failed, on_progress=self._view.presets.show_reading)


def _read_estimate(database: Path, plan: Plan, inventory: Inventory) -> ExperimentProgress:
    with Store.open(database) as store:
        return estimate_remaining(store, plan, inventory)
