"""Builds experiments: the values chosen, what the database knows of them, the presets, and what is asked for."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication

from app.errors import UserError
from app.gui.background import Background
from app.gui.controllers.preset_files import PresetFiles
from app.gui.controllers.presets import own_runs, preset_lines, reference_runs_of
from app.gui.views.matrix import MatrixView
from app.queries import Ahead
from app.runs.ahead import look_ahead
from app.runs.counted import Own
from app.runs.early import MOST_REPEATS
from app.runs.presets import Find, keep_own_file, preset
from app.runs.queued import Asked
from app.runs.schedule import Plan
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.ahead import ahead_sentences, never_beside_words
from app.viewmodels.form import VariantForm
from app.viewmodels.matrix import MatrixForm
from app.viewmodels.matrix_state import AskedMatrix
from app.viewmodels.presets import PresetLine
from workloads.catalog import Machine
from workloads.protocol import Value

_LOOKING = "Looking at what is stored …"


class MatrixController(QObject):
    """Brings form, matrix and database together; `asked` has an `Asked` and a preset's key or None.

    `compare_asked` has the stored runs of a preset.
    """

    asked = Signal(object, object)
    compare_asked = Signal(object)

    def __init__(
        self,
        view: MatrixView,
        form: VariantForm,
        database: Path,
        reads: Background,
        inventory: Callable[[], Inventory],
    ) -> None:
        super().__init__(view)
        self._view = view
        self._matrix = MatrixForm(form, MOST_REPEATS)
        self._form = form
        self._database = database
        self._reads = reads
        self._inventory = inventory
        self._busy = False
        self._ahead: Ahead | None = None
        self._stored = False
        self._problem = ""
        self._wanted: AskedMatrix | None = None
        self._looking = False
        self._presets: tuple[PresetLine, ...] = ()
        self._files = PresetFiles(database, self)

    def start(self) -> None:
        """Listen to the view."""
        rows, foot, presets = self._view.rows, self._view.foot, self._view.presets
        database, inventory = self._database, self._inventory
        rows.ticked.connect(lambda name, value, on: self._change(lambda: self._matrix.tick(name, value, on=on)))
        rows.listed.connect(lambda name, text: self._change(lambda: self._matrix.type_list(name, text)))
        foot.baseline_chosen.connect(lambda index: self._change(lambda: self._matrix.choose_baseline(index)))
        foot.extended.connect(self._extend)
        foot.reset_asked.connect(lambda: self._change(self._matrix.reset))
        foot.copy_asked.connect(self._copy_command)
        foot.start_asked.connect(self._ask)
        presets.start_asked.connect(self._ask_preset)
        presets.verdict_asked.connect(lambda key: self._compare(lambda: own_runs(database, key, inventory())))
        presets.reference_asked.connect(lambda key: self._compare(lambda: reference_runs_of(database, key)))
        presets.file_chosen.connect(self._add_file)
        self._files.told.connect(presets.show_reading, Qt.ConnectionType.QueuedConnection)
        self._view.presets_shown.connect(self._look_at_presets)

    def close(self) -> None:
        """Give up what is being read."""
        self._files.close()

    def show(self, *, busy: bool) -> None:
        """Show the form's variant and what is stored as they are now; while the window is `busy` all is only queued."""
        self._busy = busy
        self._wanted = None
        self._show()
        if self._view.presets.isVisible():
            self._look_at_presets()

    def _change(self, change: Callable[[], None]) -> None:
        change()
        self._show()

    def _extend(self, name: str, value: Value | None) -> None:
        self._change(lambda: self._matrix.extend(**{name: value}))

    def _show(self) -> None:
        state = self._matrix.state()
        if not state.problem:
            self._look(self._matrix.asked())
        self._view.show_model(state, self._words(), stored=state.again or self._stored, busy=self._busy)
        self._view.presets.show_presets(self._presets, busy=self._busy)

    def _words(self) -> str:
        """What is known of the time that it takes."""
        if self._ahead is None or self._wanted is None:
            return self._problem or _LOOKING
        asked = self._wanted
        never = never_beside_words(asked.variants, self._form.machine) if asked.parallel > 1 else ""
        said = ahead_sentences(self._ahead, at_most=asked.until_pct is not None, budget_s=asked.budget_s)
        return " ".join([*said, never])

    def _look(self, asked: AskedMatrix) -> None:
        """Ask the database about an experiment, one question at a time; only the newest answer is shown."""
        if asked == self._wanted:
            return
        self._wanted, self._ahead, self._problem = asked, None, ""
        if self._looking:
            return
        self._looking = True
        self._reads.run(lambda: _ahead(self._database, asked, self._inventory()), self._answer(asked), self._failed)

    def _answer(self, asked: AskedMatrix) -> Callable[[Ahead], None]:
        def take(ahead: Ahead) -> None:
            self._looking = False
            if asked == self._wanted:
                self._ahead, self._stored = ahead, ahead.done > 0
            else:
                self._wanted = None
            self._show()

        return take

    def _failed(self, error: UserError) -> None:
        self._looking, self._problem = False, str(error)
        self._show()

    def _ask(self) -> None:
        asked = self._matrix.asked()
        how = Asked.of(_plan(asked), budget_s=asked.budget_s, parallel=asked.parallel, again=asked.again)
        self.asked.emit(how, None)

    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(self._matrix.command())
        self._view.foot.confirm_copied()

    def _look_at_presets(self) -> None:
        self._reads.run(
            lambda: preset_lines(self._database, self._inventory()), self._show_presets, self._preset_failed
        )

    def _show_presets(self, lines: tuple[PresetLine, ...]) -> None:
        self._presets = lines
        self._view.presets.show_presets(lines, busy=self._busy)

    def _ask_preset(self, key: str) -> None:
        machine = self._form.machine
        self._view.presets.show_problem("")
        self._files.run(lambda find: _of_preset(key, find, machine), self._begin_preset, self._preset_failed)

    def _begin_preset(self, found: tuple[Asked, str]) -> None:
        self.asked.emit(*found)

    def _compare(self, read: Callable[[], list[int]]) -> None:
        self._reads.run(read, self.compare_asked.emit, self._preset_failed)

    def _preset_failed(self, error: UserError) -> None:
        self._view.presets.show_problem(str(error))

    def _add_file(self, file: str) -> None:
        """List one of the user's too, from now on."""
        machine = self._form.machine

        def work(find: Find) -> tuple[PresetLine, ...]:
            preset(file, find).plan(machine)
            keep_own_file(self._database, file)
            return preset_lines(self._database, self._inventory())

        self._view.presets.show_problem("")
        self._files.run(work, self._show_presets, self._preset_failed)


def _of_preset(key: str, find: Find, machine: Machine) -> tuple[Asked, str]:
    named = preset(key, find)
    return Asked.of(named.plan(machine)), named.key


def _plan(asked: AskedMatrix) -> Plan:
    return Plan(
        name=asked.name,
        variants=asked.variants,
        repeats=asked.repeats,
        until_pct=asked.until_pct,
        notes=asked.notes,
    )


def _ahead(database: Path, asked: AskedMatrix, inventory: Inventory) -> Ahead:
    with Store.open(database) as store:
        return look_ahead(store, _plan(asked), inventory, Own(alone=asked.again), parallel=asked.parallel)
