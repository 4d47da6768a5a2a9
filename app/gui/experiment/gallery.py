"""The gallery of prepared questions: each with its cost, its answer so far, and a button to start it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs
from PySide6.QtCore import QCoreApplication, QEvent, QObject, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QWidget

from app.errors import UserError
from app.gui.actions import Actions, Services
from app.gui.run.form_controller import FormController
from app.gui.theme import GRID
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.basic import (
    STRETCH,
    Surface,
    button,
    clear_layout,
    make_column,
    plain_tooltip,
    show_text,
    text_label,
)
from app.gui.widgets.dialogs import ask_for_file
from app.gui.widgets.panes import FlowBar, Scroller
from app.viewmodels.experiment.preview import PresetLine

if TYPE_CHECKING:
    from app.gui.run.screen import RunView
    from app.runs.experiment.presets import FindWorkload
    from app.values.plan import Plan
    from workloads.catalog import Machine

TITLE = "What do you want to know?"
_LEAD = (
    "Each question is an experiment, adapted to this machine. For one of your own, choose several values in the form."
)
_WAITING = "Checking this machine …"
_CARD_WIDTH = 44 * GRID
"""From twice this width on there are two columns of cards."""


_CARD_ROLES = ("caption", "heading", "muted", "", "caption", "caption", "problem")
"""The roles of a card's texts."""


class GalleryView(Surface):
    """Shows `PresetLine`s as cards; the signals carry a card's key, or a file's path."""

    start_requested = Signal(str)
    verdict_requested = Signal(str)
    reference_requested = Signal(str)
    file_chosen = Signal(str)
    file_removed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._columns = 1
        self.cards: list[QuestionCard] = []
        self._problem = text_label("", "problem", wrap=True)
        self._reading = text_label(_WAITING, "muted", wrap=True)
        self._open = button("Open a &file …", "Open a preset file of your own", flat=True)
        self.plots_button = button("&Live plots", "Show what this machine does now (Ctrl+L)", flat=True)
        self._head = QWidget()
        self._grid = QGridLayout()
        self._scroller = Scroller(horizontal=False)
        self._open.clicked.connect(
            lambda: ask_for_file(self, "Open a preset file", Path.home(), "Presets (*.toml)", self.file_chosen.emit)
        )
        self._build()

    def show_model(self, lines: Sequence[PresetLine], *, busy: bool) -> None:
        """Show these presets; cards are rebuilt only if the presets changed."""
        if [line.key for line in lines] != [card.key for card in self.cards]:
            if not self.cards:
                self._head.show()
                self.show_reading("")
            clear_layout(self._grid)
            self.cards = [QuestionCard(line.key, self) for line in lines]
            self._arrange()
        for card, line in zip(self.cards, lines, strict=True):
            card.show_model(line, busy=busy)
            card.show()  # immediately, not when Qt gets to it
        # Wrapped texts get their height in a second layout, before which nothing is painted.
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)

    def show_problem(self, text: str) -> None:
        """Show why a file cannot be used, visibly above the cards; "" for nothing."""
        show_text(self._problem, text)

    def show_reading(self, text: str) -> None:
        show_text(self._reading, text)

    def focus_first(self) -> None:
        """Focus the first question that can be started."""
        starts = (card.start for card in self.cards if card.start.isEnabled())
        next(starts, self._open).setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        self._columns = 2 if self.width() >= 2 * _CARD_WIDTH + 6 * GRID else 1
        for number, card in enumerate(self.cards):
            self._grid.addWidget(card, number // self._columns, number % self._columns)
        self._grid.setColumnStretch(0, 1)
        self._grid.setColumnStretch(1, self._columns - 1)

    def _build(self) -> None:
        head = QGridLayout(self._head)
        head.setContentsMargins(0, 0, 0, 0)
        head.setHorizontalSpacing(3 * GRID)
        head.setVerticalSpacing(GRID // 2)
        head.setColumnStretch(0, 1)
        for number, widget in enumerate((text_label(TITLE, "title"), self._open, self.plots_button)):
            head.addWidget(widget, 0, number)
        head.addWidget(text_label(_LEAD, "muted", wrap=True), 1, 0, 1, 3)
        content = QWidget()
        self._grid.setSpacing(2 * GRID)
        make_column(self._grid, STRETCH, parent=content, margins=(3 * GRID, GRID, 3 * GRID, 3 * GRID), spacing=0)
        self._scroller.setWidget(content)
        above = self._head, self._problem, self._reading
        top = make_column(*above, margins=(3 * GRID, 2 * GRID, 3 * GRID, GRID), spacing=GRID // 2)
        make_column(top, (self._scroller, 1), parent=self, margins=0, spacing=0)
        self._head.hide()
        self._problem.hide()


class QuestionCard(QFrame):
    """A prepared question."""

    def __init__(self, key: str, owner: GalleryView) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self.key = key
        self._preset: PresetLine | None = None
        self.start = button("Start")
        self.verdict = button("Show verdict", flat=True)
        self.reference = button("", flat=True)
        self._remove = button("Remove from list", flat=True)
        self.start.clicked.connect(
            lambda: (owner.verdict_requested if self._is_complete else owner.start_requested).emit(key)
        )
        self.verdict.clicked.connect(lambda: owner.verdict_requested.emit(key))
        self.reference.clicked.connect(lambda: owner.reference_requested.emit(key))
        self._remove.clicked.connect(lambda: owner.file_removed.emit(key))
        self._labels = [text_label("", role, wrap=True) for role in _CARD_ROLES]
        bar = FlowBar(2 * GRID, GRID // 2, self.start, self.verdict, self.reference, self._remove)
        make_column(*self._labels, STRETCH, bar, parent=self, margins=2 * GRID, spacing=GRID)

    @property
    def _is_complete(self) -> bool:
        return self._preset is not None and self._preset.is_complete

    def show_model(self, line: PresetLine, *, busy: bool) -> None:
        self.start.setText("Show verdict" if line.is_complete else "Add to queue" if busy else "Start")
        if line != self._preset:
            self._preset = line
            self._show_line(line)

    def _show_line(self, line: PresetLine) -> None:
        texts = (
            line.title if line.question else "",
            line.question or line.title,
            " · ".join(filter(None, (line.size, line.time))),
            *(line.answer, line.stored, line.adapted, line.problem),
        )
        for label, text in zip(self._labels, texts, strict=True):
            show_text(label, text)
            label.setToolTip(plain_tooltip("\n".join((line.title, *line.notes))))
        self.setObjectName(f"preset.{line.name}")
        self.reference.setText(line.reference)
        self.start.setEnabled(line.can_start and not line.problem)
        for action_button, is_offered, hint in (
            (self.start, True, f"Start {line.title}"),
            (self.verdict, line.has_verdict and not line.is_complete, f"Compare the stored runs of {line.title}"),
            (self.reference, bool(line.reference), f"Compare the reference runs of {line.title}"),
            (self._remove, line.is_users, f"Take {line.name} from this list; its file stays"),
        ):
            action_button.setVisible(is_offered)
            action_button.setToolTip(plain_tooltip(hint))
            action_button.setAccessibleName(f"{action_button.text()}: {line.title}")


Result = TypeVar("Result")


class GalleryController(QObject):
    """Shows the prepared questions while no run is displayed, and submits what the user starts.

    Thread: GUI only. A separate job reads presets that may need a user's file, because that can take as long as the
    framework's import or a current run.
    """

    def __init__(
        self,
        view: "RunView",
        form: FormController,
        services: Services,
        submit: Callable[["Plan"], None],
        show_screen: Callable[[], None],
        actions: Actions,
    ) -> None:
        """Create the controller of a window's questions; `submit` gets the plan of an experiment to run."""
        super().__init__(view)
        self._view = view
        self._gallery = view.gallery
        self._form = form
        self._services = services
        self._queue_plan = submit
        self._show_screen = show_screen
        self._actions = actions
        self._lines: tuple[PresetLine, ...] = ()
        self._machine: Machine | None = None
        self._busy = self._is_wanted = False
        self._files = CancellableJob(self)

    def start(self) -> None:
        gallery = self._gallery
        self._form.updated.connect(self._refresh)
        self._view.gallery_shown.connect(self.read)
        gallery.plots_button.clicked.connect(self._view.show_live)
        gallery.start_requested.connect(self._submit_preset)
        gallery.verdict_requested.connect(partial(self._compare, of_reference=False))
        gallery.reference_requested.connect(partial(self._compare, of_reference=True))
        gallery.file_chosen.connect(self._list_file)
        gallery.file_removed.connect(lambda file: self._list_file(file, listed=False))

    def open(self) -> None:
        """Show the questions, and focus the form's field with several values, else the first question."""
        self._show_screen()
        self._view.show_gallery()
        if not self._view.form.focus_several():
            self._gallery.focus_first()

    def add_preset(self, path: Path) -> None:
        """Show the questions with an additional one, from a user's file."""
        self.open()
        self._list_file(str(path))

    def show_undone(self) -> None:
        self._form.show()
        self.read()

    def submit(self, plan: "Plan") -> None:
        """Run an experiment on the form's host, now or in its turn, and show its runs' plots."""
        self._submit_to(self._form.form.host, plan)

    def compare_quickly(self, machine: "Machine") -> None:
        """Run the quick comparison adapted to this machine."""
        self._services.reads.run(
            lambda: stored_experiments().quick_plan(machine), partial(self._submit_to, ""), self._form.show_error
        )

    def _submit_to(self, host: str, plan: "Plan") -> None:
        self._show_screen()
        self._view.show_live()
        self._queue_plan(structs.replace(plan, host=host))

    def _refresh(self, busy: bool) -> None:
        """Read again when a run has ended or another machine is known; show what a start does."""
        machine = self._form.form.selection.machine
        is_stale = machine != self._machine or (self._busy and not busy)
        self._machine, self._busy = machine, busy
        self._gallery.show_model(self._lines, busy=busy)
        if is_stale and self._is_wanted:
            self.read()

    def come_in_sight(self) -> None:
        """Read what was not read before: nothing is read for an invisible screen."""
        if self._is_wanted and not self._lines:
            self.read()

    def read(self) -> None:
        """Read the questions, then their stored and remaining runs, then their answers.

        Nothing is read before this call, because a new user is asked something else first.
        """
        self._is_wanted = True
        if self._machine is None or not self._gallery.isVisible():
            return
        services, database, machine = self._services, self._services.database, self._machine
        if not self._lines:
            self._services.reads.run(
                lambda: stored_experiments().preset_lines(database, machine), self._show_lines, self._fail
            )
        self._services.reads.run(
            lambda: stored_experiments().estimated_lines(database, services.inventory()), self._show_lines, self._fail
        )

    def _show_lines(self, lines: tuple[PresetLine, ...]) -> None:
        self._lines = lines
        self._gallery.show_model(lines, busy=self._busy)

    def _submit_preset(self, key: str) -> None:
        machine = self._form.form.machine
        self._gallery.show_problem("")
        self._run_on_files(lambda find: stored_experiments().load_preset(key, find).plan(machine), self.submit)

    def _compare(self, key: str, *, of_reference: bool) -> None:
        database, inventory = self._services.database, self._services.inventory
        self._services.reads.run(
            lambda: stored_experiments().preset_runs(database, key, inventory(), of_reference=of_reference),
            lambda answer: self._actions.compare(*answer),
            self._fail,
        )

    def _fail(self, error: UserError) -> None:
        self._gallery.show_problem(str(error))

    def _list_file(self, file: str, *, listed: bool = True) -> None:
        """Add one of the user's presets to the list, or remove it; its file stays.

        No file that it names is read, because that would run it.
        """
        from app.runs.undo import PresetFile

        services, database = self._services, self._services.database

        def show(lines: tuple[PresetLine, ...]) -> None:
            name = Path(file).name
            change = f"list the preset {name}" if listed else f"take the preset {name} from the list"
            services.record_change(change, PresetFile(database, file, listed))
            self._show_lines(lines)

        self._gallery.show_problem("")
        self._services.reads.run(
            lambda: stored_experiments().list_file(database, file, services.inventory(), listed=listed),
            show,
            self._fail,
        )

    def _run_on_files(self, work: Callable[["FindWorkload"], Result], done: Callable[[Result], None]) -> None:
        """Do work that may have to read files of custom workloads; the gallery shows what it waits for."""
        from app.runs.custom import ReadOptions, resolve_workload

        def run_work(control: JobControl[str]) -> Result:
            reading = ReadOptions(
                notify=control.report, wait_for_stop=control.stop.wait, consent=self._services.consent
            )
            try:
                return work(lambda word: resolve_workload(word, self._services.database, reading))
            finally:
                control.report("")

        self._files.run(run_work, done, self._fail, on_progress=self._gallery.show_reading)


def stored_experiments() -> ModuleType:
    """Return the module that reads the database's experiments, which the window's start does not import."""
    from app.gui.experiment import stored

    return stored
