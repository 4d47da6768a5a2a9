"""Opens the experiment builder on demand, and offers the quick comparison to a new user."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs
from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.threads import Background
from app.samples import Inventory
from app.viewmodels.run.form import VariantForm
from workloads.catalog import default_interpreter, installed_framework

if TYPE_CHECKING:
    from app.gui.experiment.matrix_controller import MatrixController
    from app.plan import Plan
    from workloads.catalog import Machine


class ExperimentController(QObject):
    """Makes the experiment builder when it is first opened, and offers a new user the quick comparison.

    Thread: GUI only.
    """

    def __init__(
        self,
        view: RunView,
        run: RunController,
        form: VariantForm,
        database: Path,
        reads: Background,
        inventory: Callable[[], Inventory],
        submit: Callable[["Plan"], None],
        show_screen: Callable[[], None],
        actions: Actions,
    ) -> None:
        """Make the controller of a window's experiments.

        The inventory is waited for off the GUI thread; `submit` gets the plan of an experiment to run.
        """
        super().__init__(view)
        self._view = view
        self._run = run
        self._form = form
        self._database = database
        self._reads = reads
        self._inventory = inventory
        self._queue_plan = submit
        self._show_screen = show_screen
        self._actions = actions
        self._matrix: MatrixController | None = None
        self._busy = False
        self._offer_checked = False

    def start(self) -> None:
        """Listen to the view."""
        self._run.form_shown.connect(self._refresh)
        self._view.form.compare_requested.connect(self.open)
        self._view.live.offer_accepted.connect(lambda: self.compare_quickly(self._form.machine, self._form.host))

    def open(self) -> None:
        """Show the builder in place of the plots."""
        if self._matrix is None:
            self._matrix = self._make_matrix()
        self._view.show_matrix()
        self._matrix.show(busy=self._busy)
        self._view.matrix_view().tab(0).setFocus()

    def show_undone(self) -> None:
        """Show the presets again after something was undone."""
        if self._matrix is not None:
            self._matrix.show(busy=self._busy)

    def compare_values(self) -> None:
        """Show the builder on its screen, whichever is open, unless a replay covers the form."""
        if self._view.form.isEnabled():
            self._show_screen()
            self.open()

    def open_presets(self) -> None:
        """Show the builder's presets."""
        self._show_screen()
        self.open()
        self._view.matrix_view().show_page(1)

    def add_preset(self, path: Path) -> None:
        """Show the builder's presets with one more, a file of the user's."""
        self.open_presets()
        if self._matrix is not None:
            self._matrix.add_file(str(path))

    def submit(self, plan: "Plan") -> None:
        """Run an experiment on the form's host, now or when the queue comes to it, and show the plots of its runs."""
        self._submit_to(self._form.host, plan)

    def _submit_to(self, host: str, plan: "Plan") -> None:
        self._show_screen()
        self._view.show_live()
        self._queue_plan(structs.replace(plan, host=host))

    def _refresh(self, busy: bool) -> None:
        self._busy = busy
        if self._matrix is not None and self._view.matrix is not None and self._view.matrix.isVisible():
            self._matrix.show(busy=busy)
        if busy:
            self._view.live.show_offer("")
        elif not self._offer_checked and self._form.state().is_machine_known:
            self._offer_checked = True
            machine = self._form.machine
            self._reads.run(lambda: _quick_offer(self._database, machine), self._show_offer, self._ignore)

    def _show_offer(self, question: str) -> None:
        self._view.live.show_offer("" if self._busy else question)

    def _make_matrix(self) -> "MatrixController":
        from app.gui.experiment.matrix_controller import MatrixController

        view = self._view.matrix_view()
        controller = MatrixController(
            view, self._form, self._database, self._reads, self._inventory, self.submit, self._actions
        )
        view.close_requested.connect(self._view.show_live)
        controller.start()
        return controller

    def compare_quickly(self, machine: "Machine", host: str = "") -> None:
        """Run the quick comparison as it is for the machine of a host; "" is this one."""
        self._view.live.show_offer("")
        self._reads.run(lambda: _quick_plan(machine), partial(self._submit_to, host), self._run.show_error)

    def _ignore(self, error: UserError) -> None:
        """Ignore it: without a database to read there is no offer."""


def _quick_plan(machine: "Machine") -> "Plan":
    from app.runs.experiment.presets import QUICK, load_preset

    return load_preset(QUICK).plan(machine)


def _quick_offer(database: Path, machine: "Machine") -> str:
    """Return the offer of the quick comparison; "" if any run is stored, or runs lack the framework."""
    from app.storage.store import Store

    with Store.open(database) as store:
        runs, *_ = store.library.census()
    if runs or not installed_framework(default_interpreter()):
        return ""
    from app.runs.experiment.presets import QUICK, load_preset

    return f"{load_preset(QUICK).experiment_for(machine).question} Answered within minutes."
