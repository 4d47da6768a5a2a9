"""A new user's first view of the Run screen: a card for each machine that can run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFrame, QWidget

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.run.form_controller import FormController
from app.gui.settings.settings import SettingsStore
from app.gui.theme import GRID, LEFT
from app.gui.widgets.basic import STRETCH, Surface, button, clear_layout, make_column, make_row, text_label
from app.gui.widgets.panes import Scroller
from app.storage.known_settings import ANSWERED, FIRST_START
from app.values.samples import Inventory
from workloads.catalog import FRAMEWORK, Machine, default_interpreter, installed_framework

if TYPE_CHECKING:
    from app.gui.run.screen import RunView


Target = Literal["gpu", "cpu", "host", "reference"]
Action = Literal["compare", "install", "host", "reference"]

TITLE = "Where do you want to run?"
LEAD = (
    "Each run is a separate process, on this machine or another; this window compares them. "
    "You can change this later in Settings."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChoice:
    """A place for runs: its name, its hardware or needs, and its action with the label of its button."""

    target: Target
    title: str
    text: str
    action: Action
    label: str


def first_choices(inventory: Inventory, framework: str | None, reference_runs: int) -> tuple[FirstChoice, ...]:
    """Return the places for runs, the GPUs of this machine first; without any, the reference runs.

    `framework` is its version in the environment of runs here, None without one.
    """
    usable = {gpu.uuid for gpu in inventory.machine.gpus} if inventory.machine.hidden_by else None
    gpus = [device for device in inventory.devices if device.kind == "gpu" and device.lost is None]
    names = [device.name for device in gpus if usable is None or device.device in usable]
    count = inventory.machine.cpu_count
    reason = f" No GPU: {inventory.no_gpu_reason}." if inventory.no_gpu_reason and not names else ""
    local: list[tuple[Target, str, str]] = [
        ("cpu", "This machine's CPU", f"{count} {'core' if count == 1 else 'cores'}.{reason} ")
    ]
    if names:
        kinds = ", ".join(dict.fromkeys(names))
        local.insert(0, ("gpu", f"This machine's {f'{len(names)} GPUs' if len(names) > 1 else 'GPU'}: {kinds}", ""))
    action: Action = "compare" if framework else "install"
    text, label = f"{FRAMEWORK.name} {framework} is installed.", "Start the &quick comparison"
    if not framework:
        text = f"Runs need {FRAMEWORK.name}, a one-time download whose size you see first."
        label = f"Get {FRAMEWORK.name} …"
    choices = [
        FirstChoice(target=target, title=title, text=f"{about}{text}", action=action, label=label)
        for target, title, about in local
    ]
    look = FirstChoice(
        target="reference",
        title="Just look",
        text=f"{reference_runs} runs measured on H200s come with the program, to look at and compare.",
        action="reference",
        label="Show the reference runs",
    )
    return (*choices, _HOST, look) if names else (look, *choices, _HOST)


_HOST = FirstChoice(
    target="host",
    title="Another machine, over SSH",
    text="Runs and telemetry there, window and results here, over your own SSH. Nothing to install there.",
    action="host",
    label="Add a host …",
)


_WIDTH = 80 * GRID


class ChoiceCard(QFrame):
    """A `FirstChoice`; `primary` marks the most common one."""

    def __init__(self, choice: FirstChoice, *, primary: bool) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self.title = text_label(choice.title, "heading", wrap=True)
        self.text = text_label(choice.text, "muted", wrap=True)
        self.button = button(choice.label, primary=primary and choice.action != "host")
        words = make_column(self.title, self.text, spacing=GRID // 2)
        make_row((words, 1), self.button, parent=self, margins=2 * GRID, spacing=GRID)


class FirstStartView(Surface):
    """The cards under a title; `chosen` carries the place and the action."""

    chosen = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(TITLE)
        self.cards: list[ChoiceCard] = []
        self._choices: Sequence[FirstChoice] = ()
        self._column = make_column(spacing=GRID)
        self.later_button = button("Not now", "Settings leads back to this choice", flat=True)
        self._build()

    def show_model(self, choices: Sequence[FirstChoice]) -> None:
        if choices == self._choices:
            return
        self._choices = choices
        clear_layout(self._column)
        self.cards = [ChoiceCard(choice, primary=not n) for n, choice in enumerate(choices)]
        for card, choice in zip(self.cards, choices, strict=True):
            card.button.clicked.connect(lambda _=False, choice=choice: self.chosen.emit(choice.target, choice.action))
            self._column.addWidget(card)

    def _build(self) -> None:
        middle = QWidget(maximumWidth=_WIDTH)
        words = text_label(TITLE, "title"), text_label(LEAD, "muted", wrap=True)
        parts = STRETCH, *words, GRID, self._column, (self.later_button, 0, LEFT), (STRETCH, 2)
        make_column(*parts, parent=middle, margins=2 * GRID, spacing=GRID)
        around = QWidget()
        make_row(STRETCH, (middle, 100), STRETCH, parent=around, margins=0)
        make_column(Scroller(around, horizontal=False), parent=self, margins=0)


class FirstStart(QObject):
    """Shows the places for runs on a new database, and again from the settings.

    `decided` is emitted once it is known whether the window starts with them.

    Thread: GUI only.
    """

    decided = Signal()

    def __init__(
        self,
        view: "RunView",
        form: FormController,
        store: SettingsStore,
        actions: Actions,
        compare: Callable[[Machine], None],
    ) -> None:
        super().__init__(view)
        self._view = view
        self._form = form
        self._store = store
        self._actions = actions
        self._compare = compare
        self._inventory: Inventory | None = None
        self._is_new: bool | None = None
        self._facts: tuple[str | None, int] | None = None
        """The framework of runs here, and the number of bundled runs."""
        self._is_busy = False
        form.updated.connect(self._make_room)

    def start(self) -> None:
        """Show the choice on a new database once this machine's devices are known, unless something started before."""

        def take(is_new: bool) -> None:
            self._is_new = is_new
            self._decide()

        self._store.background.run(lambda: is_unanswered(self._store.database), take, self._fail_to_read)

    def open(self) -> None:
        self._read(lambda: True)

    def handle(self, event: object) -> None:
        if isinstance(event, Inventory):
            is_first, self._inventory = self._inventory is None, event
            if is_first:
                self._decide()
            self._show()

    def _decide(self) -> None:
        if self._is_new is None or self._inventory is None:
            return
        if self._is_new:
            self._read(lambda: not self._is_busy)
        else:
            self.decided.emit()

    def _read(self, is_wanted: Callable[[], bool]) -> None:
        def take(facts: tuple[str | None, int]) -> None:
            self._facts = facts
            if self._inventory is not None and is_wanted():
                self._open_view()
            self.decided.emit()

        self._store.background.run(_read_facts, take, self._fail_to_read)

    def _fail_to_read(self, error: UserError) -> None:
        self._store.on_failure(error)
        self.decided.emit()

    def _open_view(self) -> None:
        if self._view.first_start is None:
            view = self._view.first_start_view()
            view.chosen.connect(self._choose)
            view.later_button.clicked.connect(self._leave)
        self._show()
        self._view.show_first_start()

    def _show(self) -> None:
        view, facts = self._view.first_start, self._facts
        if view is not None and facts is not None and self._inventory is not None:
            view.show_model(first_choices(self._inventory, *facts))

    def _choose(self, target: Target, action: Action) -> None:
        match action:
            case "install":
                self._view.show_live()  # next to the form, whose next run installs it
                self._store_answer()
                self._form.get_framework(FRAMEWORK)
            case "host":
                self._store_answer()  # the choice stays: a user who adds no host takes another place
                self._actions.manage_hosts()
            case "reference":
                self._leave()
                self._actions.show_reference()
            case "compare" if self._inventory is not None:
                self._view.show_live()  # where its first run starts, instead of the questions
                self._store_answer()
                machine = self._inventory.machine
                self._compare(Machine(cpu_count=machine.cpu_count) if target == "cpu" else machine)

    def _leave(self) -> None:
        """Show the questions; this database is not asked again."""
        self._view.show_gallery()
        self._store_answer()

    def _store_answer(self) -> None:
        from app.storage.database import save_setting

        database = self._store.database
        self._store.background.run(
            lambda: save_setting(database, FIRST_START, ANSWERED), lambda _: None, self._store.on_failure
        )

    def _make_room(self, busy: bool) -> None:
        self._is_busy = busy
        if busy and self._view.first_start is not None and self._view.first_start.isVisible():
            self._view.show_live()


def is_unanswered(database: Path) -> bool:
    """Return whether nobody has run anything or answered yet."""
    from app.storage.database import load_setting
    from app.storage.store import Store

    with Store.open(database) as store:
        runs, *_ = store.library.census()
    return not runs and load_setting(database, FIRST_START) is None


def _read_facts() -> tuple[str | None, int]:
    from app.storage.reference import reference_files

    return installed_framework(default_interpreter()), sum(len(file.uids) for file in reference_files())
