"""The way to experiments: opens what they are built with, and offers the quick comparison to a newcomer."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.controllers.run import RunController
from app.gui.views.run import RunView
from app.samples import Inventory
from app.viewmodels.form import VariantForm

if TYPE_CHECKING:
    from app.gui.controllers.matrix import MatrixController
    from app.runs.queued import Asked
    from workloads.catalog import Machine


class Experiments(QObject):
    """What builds experiments is made when it is first wanted. `asked` has an `Asked` and a preset's key or None.

    `compare_asked` has the stored runs of a preset.
    """

    asked = Signal(object, object)
    compare_asked = Signal(object)

    def __init__(
        self,
        view: RunView,
        run: RunController,
        form: VariantForm,
        database: Path,
        reads: Background,
        inventory: Callable[[], Inventory],
    ) -> None:
        super().__init__(view)
        self._view = view
        self._run = run
        self._form = form
        self._database = database
        self._reads = reads
        self._inventory = inventory
        self._matrix: MatrixController | None = None
        self._busy = False
        self._looked = False

    def start(self) -> None:
        """Listen to the view."""
        self._run.form_shown.connect(self._refresh)
        self._view.form.compare_asked.connect(self.open)
        self._view.live.offer_taken.connect(self._ask_quick)

    def open(self) -> None:
        """Show what experiments are built with, in place of the plots."""
        if self._matrix is None:
            self._matrix = self._make()
        self._view.show_matrix()
        self._matrix.show(busy=self._busy)
        self._view.matrix_view().setFocus()

    def close(self) -> None:
        """Give up what is being read."""
        if self._matrix is not None:
            self._matrix.close()

    def open_prepared(self) -> None:
        """Show the prepared ones."""
        self.open()
        self._view.matrix_view().show_page(1)

    def _refresh(self, busy: bool) -> None:
        self._busy = busy
        if self._matrix is not None and self._view.matrix is not None and self._view.matrix.isVisible():
            self._matrix.show(busy=busy)
        if busy:
            self._view.live.show_offer("")
        elif self._form.state().known_machine and not self._looked:
            self._looked = True
            machine = self._form.machine
            self._reads.run(lambda: _offer(self._database, machine), self._show_offer, self._ignore)

    def _show_offer(self, question: str) -> None:
        self._view.live.show_offer("" if self._busy else question)

    def _make(self) -> "MatrixController":
        from app.gui.controllers.matrix import MatrixController

        view = self._view.matrix_view()
        made = MatrixController(view, self._form, self._database, self._reads, self._inventory)
        made.asked.connect(self._ask)
        made.compare_asked.connect(self.compare_asked)
        view.close_asked.connect(self._view.show_live)
        made.start()
        return made

    def _ask(self, asked: "Asked", preset: str | None) -> None:
        """Back to the plots: what was asked for is seen there."""
        self._view.show_live()
        self.asked.emit(asked, preset)

    def _ask_quick(self) -> None:
        self._view.live.show_offer("")
        machine = self._form.machine
        self._reads.run(lambda: _quick(machine), lambda asked: self.asked.emit(asked, asked.name), self._run.show_error)

    def _ignore(self, error: UserError) -> None:
        """An offer that cannot be made is none."""


def _quick(machine: "Machine") -> "Asked":
    from app.runs.presets import QUICK, preset
    from app.runs.queued import Asked

    return Asked.of(preset(QUICK).plan(machine))


def _offer(database: Path, machine: "Machine") -> str:
    """What a newcomer can begin with; "" where something is stored already."""
    from app.storage.store import Store

    with Store.open(database) as store:
        runs, *_ = store.library.census()
    if runs:
        return ""
    from app.runs.presets import QUICK, preset

    return f"{preset(QUICK).form(machine).question} Answered within minutes."
