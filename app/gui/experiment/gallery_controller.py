"""The gallery's controller: reads the prepared questions, starts them, and opens files of the user's."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs
from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.run.form_controller import FormController
from app.gui.run.screen import RunView
from app.gui.threads import Background, CancellableJob, JobControl
from app.samples import Inventory
from app.viewmodels.experiment.preview import PresetLine

if TYPE_CHECKING:
    from app.plan import Plan
    from app.runs.experiment.presets import FindWorkload
    from workloads.catalog import Machine

Result = TypeVar("Result")


class GalleryController(QObject):
    """Shows the prepared questions while nothing is shown of a run, and submits what the user starts.

    Thread: GUI only. Presets that may need a file of the user's are read by a job, which can take as long as
    the framework's import or as a current run: nothing else waits for it.
    """

    def __init__(
        self,
        view: RunView,
        form: FormController,
        database: Path,
        reads: Background,
        inventory: Callable[[], Inventory],
        submit: Callable[["Plan"], None],
        show_screen: Callable[[], None],
        actions: Actions,
    ) -> None:
        """Make the controller of a window's questions.

        The inventory is waited for off the GUI thread; `submit` gets the plan of an experiment to run.
        """
        super().__init__(view)
        self._view = view
        self._gallery = view.gallery
        self._form = form
        self._database = database
        self._reads = reads
        self._inventory = inventory
        self._queue_plan = submit
        self._show_screen = show_screen
        self._actions = actions
        self._lines: tuple[PresetLine, ...] = ()
        self._machine: Machine | None = None
        self._busy = False
        self._files = CancellableJob(self)

    def start(self) -> None:
        """Listen to the views."""
        gallery, database, inventory = self._gallery, self._database, self._inventory
        self._form.shown.connect(self._refresh)
        self._view.gallery_shown.connect(self._read)
        gallery.left.connect(self._view.show_live)
        gallery.start_requested.connect(self._submit_preset)
        gallery.verdict_requested.connect(
            lambda key: self._compare(lambda: _reader().preset_runs(database, key, inventory()))
        )
        gallery.reference_requested.connect(
            lambda key: self._compare(lambda: _reader().preset_reference_runs(database, key))
        )
        gallery.file_chosen.connect(self._list_file)
        gallery.file_removed.connect(lambda file: self._list_file(file, listed=False))

    def open(self) -> None:
        """Show the questions, with the keyboard in the form's field of several values or else on the first question.

        Do nothing while a replay covers the form.
        """
        if not self._view.form.isEnabled():
            return
        self._show_screen()
        self._view.show_gallery()
        if not self._view.form.focus_several():
            self._gallery.focus_first()

    def add_preset(self, path: Path) -> None:
        """Show the questions with one more, a file of the user's."""
        self.open()
        self._list_file(str(path))

    def show_undone(self) -> None:
        """Show the questions again after something was undone."""
        self._form.show()
        self._read()

    def submit(self, plan: "Plan") -> None:
        """Run an experiment on the form's host, now or when the queue comes to it, and show the plots of its runs."""
        self._submit_to(self._form.form.host, plan)

    def compare_quickly(self, machine: "Machine", host: str = "") -> None:
        """Run the quick comparison as it is for the machine of a host; "" is this one."""
        self._reads.run(lambda: _reader().quick_plan(machine), partial(self._submit_to, host), self._form.show_error)

    def _submit_to(self, host: str, plan: "Plan") -> None:
        self._show_screen()
        self._view.show_live()
        self._queue_plan(structs.replace(plan, host=host))

    def _refresh(self, busy: bool) -> None:
        """Read again when a run has ended and when another machine is known; say what a start does."""
        machine = self._form.form.selection.machine
        is_stale = machine != self._machine or (self._busy and not busy)
        self._machine, self._busy = machine, busy
        self._gallery.show_model(self._lines, busy=busy)
        if is_stale:
            self._read()

    def _read(self) -> None:
        """Read the questions, then what is stored and left of each, then what is known of their answers."""
        if self._machine is None or not self._gallery.isVisible():
            return
        database, machine = self._database, self._machine
        if not self._lines:
            self._reads.run(lambda: _reader().preset_lines(database, machine), self._show_lines, self._fail)
        self._reads.run(lambda: _reader().estimated_lines(database, self._inventory()), self._show_lines, self._fail)

    def _show_lines(self, lines: tuple[PresetLine, ...]) -> None:
        self._lines = lines
        self._gallery.show_model(lines, busy=self._busy)

    def _submit_preset(self, key: str) -> None:
        machine = self._form.form.machine
        self._gallery.show_problem("")
        self._run_on_files(lambda find: _reader().load_preset(key, find).plan(machine), self.submit)

    def _compare(self, read: Callable[[], list[int]]) -> None:
        self._reads.run(read, self._actions.compare_experiment, self._fail)

    def _fail(self, error: UserError) -> None:
        self._gallery.show_problem(str(error))

    def _list_file(self, file: str, *, listed: bool = True) -> None:
        """List one of the user's presets from now on, or take it from the list; its file stays.

        No file that it names is read, for that would run it.
        """
        from app.runs.undo import PresetFile

        database = self._database

        def show(lines: tuple[PresetLine, ...]) -> None:
            name = Path(file).name
            change = f"list the preset {name}" if listed else f"take the preset {name} from the list"
            self._actions.record_change(change, PresetFile(database, file, listed))
            self._show_lines(lines)

        self._gallery.show_problem("")
        self._reads.run(lambda: _reader().list_file(database, file, self._inventory(), listed=listed), show, self._fail)

    def _run_on_files(self, work: Callable[["FindWorkload"], Result], done: Callable[[Result], None]) -> None:
        """Do work that may have to read files of custom workloads; the gallery says what it waits for."""
        from app.runs.custom import ReadOptions, resolve_workload

        def run_work(control: JobControl[str]) -> Result:
            consent = self._actions.consent
            reading = ReadOptions(notify=control.report, wait_for_stop=control.stop.wait, consent=consent)
            try:
                return work(lambda word: resolve_workload(word, self._database, reading))
            finally:
                control.report("")

        self._files.run(run_work, done, self._fail, on_progress=self._gallery.show_reading)


def _reader() -> ModuleType:
    """Return the module that reads presets, which the window's start does not wait for."""
    from app.gui.experiment import preset_reader

    return preset_reader
