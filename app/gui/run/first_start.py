"""What a new user sees first on the Run screen: the places where runs can be made, a card for each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QBoxLayout, QFrame, QGridLayout, QPushButton, QWidget

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.run.form_controller import FormController
from app.gui.settings.settings import SettingsStore
from app.gui.theme import GRID
from app.gui.widgets.basic import STRETCH, button, make_column, make_row, show_text, text_label
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
    """A place for runs: its name, what it has or takes, and what can be done, each with its label."""

    target: Target
    title: str
    text: str
    actions: tuple[tuple[Action, str], ...] = ()


def first_choices(inventory: Inventory, framework: str | None, reference_runs: int) -> tuple[FirstChoice, ...]:
    """Return the places for runs, the GPUs of this machine first; without any, the reference runs.

    `framework` is its version in the environment that runs use here, None where there is none.
    """
    usable = {gpu.uuid for gpu in inventory.machine.gpus} if inventory.machine.hidden_by else None
    gpus = [device for device in inventory.devices if device.kind == "gpu" and device.lost is None]
    names = [device.name for device in gpus if usable is None or device.device in usable]
    local: list[tuple[Target, str, str]] = []
    if names:
        kinds = ", ".join(dict.fromkeys(names))
        local.append(("gpu", f"This machine's {f'{len(names)} GPUs' if len(names) > 1 else 'GPU'}: {kinds}", ""))
        local.append(("cpu", "This machine's CPU", f"{_cores(inventory)}."))
    else:
        reason = f" No GPU: {inventory.no_gpu_reason}." if inventory.no_gpu_reason else ""
        local.append(("cpu", "This machine's CPU", f"{_cores(inventory)}.{reason}"))
    choices = [_local_choice(*arguments, framework) for arguments in local]
    look = FirstChoice(
        target="reference",
        title="Just look",
        text=f"{reference_runs} runs measured on H200s come with the program, to look at and compare.",
        actions=(("reference", "Show the reference runs"),),
    )
    return (*choices, _HOST, look) if names else (look, *choices, _HOST)


_HOST = FirstChoice(
    target="host",
    title="Another machine, over SSH",
    text="Runs and telemetry there, window and results here, over your own SSH. Nothing to install there.",
    actions=(("host", "Add a host …"),),
)


def _cores(inventory: Inventory) -> str:
    count = inventory.machine.cpu_count
    return f"{count} {'core' if count == 1 else 'cores'}"


def _local_choice(target: Target, title: str, text: str, framework: str | None) -> FirstChoice:
    """Return the choice of a place on this machine, where runs need the framework."""
    actions: tuple[tuple[Action, str], ...] = ()
    if framework:
        text = f"{text} {FRAMEWORK.name} {framework} is installed.".strip()
        actions = (("compare", "Start the &quick comparison"),)
    else:
        text = f"{text} Runs need {FRAMEWORK.name}, a one-time download whose size you see first.".strip()
        actions = (("install", f"Get {FRAMEWORK.name} …"),)
    return FirstChoice(target=target, title=title, text=text, actions=actions)


_WIDTH = 80 * GRID


class ChoiceCard(QFrame):
    """A `FirstChoice`; `chosen` has the place and the action."""

    chosen = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self._choice: FirstChoice | None = None
        self._title = text_label("", "heading", wrap=True)
        self._text = text_label("", "muted", wrap=True)
        self.action_buttons: list[QPushButton] = []
        self._buttons = make_row(spacing=GRID)
        layout = QGridLayout(self)
        layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        layout.setHorizontalSpacing(3 * GRID)
        layout.setVerticalSpacing(GRID // 2)
        layout.setColumnStretch(0, 1)
        for row, widget in enumerate((self._title, self._text)):
            layout.addWidget(widget, row, 0)
        layout.addLayout(self._buttons, 0, 1, 2, 1, Qt.AlignmentFlag.AlignVCenter)

    def show_model(self, choice: FirstChoice, *, primary: bool) -> None:
        """Show a choice; `primary` marks the one that most users take."""
        self._title.setText(choice.title)
        show_text(self._text, choice.text)
        if self._choice is None or self._choice.actions != choice.actions:
            self._show_actions(choice, primary=primary)
        self._choice = choice

    def _show_actions(self, choice: FirstChoice, *, primary: bool) -> None:
        while self.action_buttons:
            _discard(self._buttons, self.action_buttons.pop())
        for action, label in choice.actions:
            action_button = button(label, primary=primary and action in ("compare", "install", "reference"))
            action_button.clicked.connect(lambda _=False, action=action: self.chosen.emit(choice.target, action))
            self._buttons.addWidget(action_button)
            self.action_buttons.append(action_button)


def _discard(layout: QBoxLayout, widget: QWidget) -> None:
    """Take a widget out of a layout at once, and delete it when nothing uses it any more."""
    layout.removeWidget(widget)
    widget.hide()
    widget.deleteLater()


class FirstStartView(QWidget):
    """The cards under a title; `chosen` has the place and the action."""

    chosen = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(TITLE)
        self.cards: list[ChoiceCard] = []
        self._column = make_column(spacing=GRID)
        self.later_button = button("Not now", "Settings leads back to this choice", flat=True)
        self._build()

    def show_model(self, choices: Sequence[FirstChoice]) -> None:
        while len(self.cards) < len(choices):
            card = ChoiceCard()
            card.chosen.connect(self.chosen)
            self.cards.append(card)
            self._column.addWidget(card)
        while len(self.cards) > len(choices):
            _discard(self._column, self.cards.pop())
        for index, (card, choice) in enumerate(zip(self.cards, choices, strict=True)):
            card.show_model(choice, primary=index == 0)

    def _build(self) -> None:
        middle = QWidget()
        middle.setMaximumWidth(_WIDTH)
        column = make_column(STRETCH, text_label(TITLE, "title"), parent=middle, margins=2 * GRID, spacing=GRID)
        column.addWidget(text_label(LEAD, "muted", wrap=True))
        column.addSpacing(GRID)
        column.addLayout(self._column)
        column.addWidget(self.later_button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(2)
        around = QWidget()
        make_row(STRETCH, (middle, 100), STRETCH, parent=around, margins=0)
        make_column(Scroller(around, horizontal=False), parent=self, margins=0)


class StartFacts(NamedTuple):
    """The framework that runs have here, and how many runs come along."""

    framework: str | None
    reference_runs: int


class FirstStart(QObject):
    """Shows the places for runs on a new database, and again when the settings lead to them.

    `decided` is emitted when it is known whether the window begins with them.

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
        self._facts: StartFacts | None = None
        self._is_busy = False
        form.updated.connect(self._make_room)

    def start(self) -> None:
        """Show the choice if the database is new, once this machine's devices are known and if nothing began before."""

        def take(is_new: bool) -> None:
            self._is_new = is_new
            self._decide()

        self._store.background.run(lambda: is_unanswered(self._store.database), take, self._fail_to_read)

    def open(self) -> None:
        """Show the choice, whatever was answered before."""
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
        def take(facts: StartFacts) -> None:
            self._facts = facts
            if self._inventory is not None and is_wanted():
                self._open_view()
            self.decided.emit()

        self._store.background.run(read_facts, take, self._fail_to_read)

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
            view.show_model(first_choices(self._inventory, facts.framework, facts.reference_runs))

    def _choose(self, target: Target, action: Action) -> None:
        match action:
            case "install":
                self._view.show_live()  # beside the form, whose next run installs it
                self._store_answer()
                self._form.get_framework(FRAMEWORK)
            case "host":
                self._store_answer()  # the choice stays: who adds no host takes another place
                self._actions.manage_hosts()
            case "reference":
                self._leave()
                self._actions.show_reference()
            case "compare" if self._inventory is not None:
                self._view.show_live()  # where its first run begins, not the questions
                self._store_answer()
                machine = self._inventory.machine
                self._compare(Machine(cpu_count=machine.cpu_count) if target == "cpu" else machine)

    def _leave(self) -> None:
        """Show the questions; this database is asked no more."""
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
    """Return whether nobody has run or answered yet."""
    from app.storage.database import load_setting
    from app.storage.store import Store

    with Store.open(database) as store:
        runs, *_ = store.library.census()
    return not runs and load_setting(database, FIRST_START) is None


def read_facts() -> StartFacts:
    """Return what the choice depends on, of this machine's environments and the program's files."""
    from app.storage.reference import reference_files

    return StartFacts(installed_framework(default_interpreter()), sum(len(file.uids) for file in reference_files()))
