"""Asks a new user where runs shall be made, once, and makes an environment for them where the user wants one."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.run.form_controller import FormController
from app.gui.run.screen import RunView
from app.gui.settings.settings import SettingsStore
from app.samples import Inventory
from app.storage.known_settings import ANSWERED, FIRST_START
from app.viewmodels.run.first_start import Action, Place, first_choices
from workloads.catalog import Machine, default_interpreter, installed_framework

if TYPE_CHECKING:
    from app.gui.run.first_start import FirstStartView


class Known(NamedTuple):
    """Whether nobody has run or answered yet, the framework that runs have here, and how many runs come along."""

    is_new: bool
    framework: str | None
    reference_runs: int


class FirstStart(QObject):
    """Shows the places for runs on a new database, and again when the settings lead to them.

    Thread: GUI only; an environment is made on a job's thread.
    """

    def __init__(
        self,
        view: RunView,
        form: FormController,
        store: SettingsStore,
        actions: Actions,
        compare: Callable[[Machine], None],
        installed: Callable[[], None],
    ) -> None:
        """Make the controller of a window's first start.

        `installed` is called when runs have their environment.
        """
        super().__init__(view)
        self._view = view
        self._store = store
        self._actions = actions
        self._compare = compare
        self._installed = installed
        self._inventory: Inventory | None = None
        self._known: Known | None = None
        self._is_read = False
        self._is_busy = False
        self._is_preparing = False
        form.shown.connect(self._make_room)

    def start(self) -> None:
        """Show the choice if the database is new, once this machine's devices are known and if nothing began before."""
        self._is_read = True
        if self._inventory is not None:
            self._read(only_new=True)

    def open(self) -> None:
        """Show the choice, whatever was answered before."""
        self._read(only_new=False)

    def handle(self, event: object) -> None:
        """Take the devices of this machine."""
        if isinstance(event, Inventory):
            is_first, self._inventory = self._inventory is None, event
            if is_first and self._is_read:
                self._read(only_new=True)
            self._show()

    def _read(self, *, only_new: bool) -> None:
        def take(known: Known) -> None:
            self._known = known
            is_wanted = not only_new or (known.is_new and self._view.is_free and not self._is_busy)
            if self._inventory is not None and is_wanted:
                self._open_view()

        self._store.background.run(lambda: read_known(self._store.database), take, self._store.on_failure)

    def _open_view(self) -> None:
        if self._view.first_start is None:
            view = self._view.first_start_view()
            view.chosen.connect(self._choose)
            view.left.connect(self._leave)
            view.maker.ended.connect(self._end_installation)
        self._show()
        self._view.show_first_start()

    def _show(self) -> None:
        view, known = self._view.first_start, self._known
        if view is not None and known is not None and self._inventory is not None:
            reference_runs, is_making = known.reference_runs, view.maker.is_busy
            choices = first_choices(
                self._inventory, known.framework, reference_runs, is_making=is_making, is_preparing=self._is_preparing
            )
            view.show_model(choices)

    def _choose(self, place: Place, action: Action) -> None:
        match action:
            case "install" if self._view.first_start is not None:
                self._install(self._view.first_start)
            case "host":
                self._store_answer()  # the choice stays: who adds no host takes another place
                self._actions.manage_hosts()
            case "watch":
                self._watch()
            case "reference":
                self._leave()
                self._actions.show_reference()
            case "compare" if self._inventory is not None:
                self._leave()
                machine = self._inventory.machine
                self._compare(Machine(cpu_count=machine.cpu_count) if place == "cpu" else machine)

    def _watch(self) -> None:
        """Play a reference run once all are added."""
        self._is_preparing = True
        self._show()

        def play(run: int) -> None:
            self._is_preparing = False
            self._leave()
            self._actions.replay(run)

        self._store.background.run(lambda: add_run_to_watch(self._store.database), play, self._fail)

    def _fail(self, error: UserError) -> None:
        self._is_preparing = False
        self._show()
        self._store.on_failure(error)

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

    def _install(self, view: "FirstStartView") -> None:
        from app.environments.managed import manage_environments

        view.maker.make("This machine", lambda: manage_environments)
        self._show()

    def _end_installation(self) -> None:
        def take(framework: str | None) -> None:
            if self._known is not None:
                self._known = self._known._replace(framework=framework)
            self._show()
            if framework:
                self._installed()

        self._store.background.run(lambda: installed_framework(default_interpreter()), take, self._store.on_failure)


def read_known(database: Path) -> Known:
    """Return what the choice depends on, of a database and of this machine's environments."""
    from app.storage.database import load_setting
    from app.storage.reference import reference_files
    from app.storage.store import Store

    with Store.open(database) as store:
        runs, *_ = store.library.census()
    is_new = not runs and load_setting(database, FIRST_START) is None
    reference_runs = sum(len(file.uids) for file in reference_files())
    return Known(is_new, installed_framework(default_interpreter()), reference_runs)


def add_run_to_watch(database: Path) -> int:
    """Add the reference runs, and return the newest of an image network on a GPU: its plots have the most to see."""
    from app.storage.reference import add_reference
    from app.storage.store import Store

    runs = frozenset(add_reference(database))
    with Store.open(database) as store:
        rows = [row for row in store.list_runs() if row.run in runs]
    return next(row.run for row in rows if row.spec.workload == "cnn10" and row.completed and row.gpu_names)
