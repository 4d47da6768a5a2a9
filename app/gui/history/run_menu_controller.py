"""Does what the menu of runs asks and the database has to be read for: diff, baseline, log, command, files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.history.screen import HistoryView
from app.gui.threads import Background
from app.gui.widgets.dialogs import ask_for_new_file
from app.paths import weights_path
from app.storage.library import Library
from app.storage.store import Store
from app.units import plural
from app.viewmodels.format.naming import run_command
from app.viewmodels.format.sentences import format_run_numbers
from app.viewmodels.history.run_diff import RunDiff, run_diff

Found = TypeVar("Found")


class RunMenuController(QObject):
    """Reads off the GUI thread, then shows or copies.

    Thread: GUI only.
    """

    def __init__(
        self, view: HistoryView, database: Path, background: Background, actions: Actions, parent: QObject
    ) -> None:
        """Connect the menu.

        Args:
            view: The screen.
            database: Has the runs.
            background: Reads them.
            actions: Lead to other screens.
            parent: Owns this controller.
        """
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._actions = actions
        menu = view.overview.run_menu
        menu.diff_requested.connect(self.show_diff)
        menu.baseline_requested.connect(self._compare_with_baseline)
        menu.copy_requested.connect(self._copy_commands)
        menu.reveal_requested.connect(self._show_files)
        view.diff.swap_requested.connect(self.show_diff)
        view.diff.save_requested.connect(self._ask_to_save)
        view.diff.compare_requested.connect(actions.compare)

    def show_diff(self, runs: Sequence[int]) -> None:
        """Read two runs and turn to the page of their diff, with changes counted from the first."""
        first, second = runs
        self._read(lambda store: run_diff(store.load(first), store.load(second), None), self._view.show_diff)

    def _ask_to_save(self, diff: RunDiff) -> None:
        path = Path.home() / "diff-{}-{}.html".format(*diff.runs)
        pages = "Pages (*.html *.md)"
        ask_for_new_file(self._view, "Save the diff", path, pages, lambda file: self._save(diff, Path(file)))

    def _save(self, diff: RunDiff, path: Path) -> None:
        def show(_: None) -> None:
            self._view.problem.show_sentence("")

        problem = self._view.problem
        self._background.run(lambda: _write(diff, path), show, lambda error: problem.show_sentence(str(error)))

    def _compare_with_baseline(self, runs: Sequence[int]) -> None:
        self._read(lambda store: with_baselines(store.library, runs), self._actions.compare)

    def _copy_commands(self, runs: Sequence[int]) -> None:
        def copy(commands: list[str]) -> None:
            QGuiApplication.clipboard().setText("\n".join(commands))
            self._view.overview.footer.show_message(f"{len(commands)} {plural('command', len(commands))} copied")

        self._read(lambda store: [run_command(store.load(run, ())) for run in runs], copy)

    def _show_files(self, runs: Sequence[int]) -> None:
        self._read(lambda store: folder_of(store.library, runs[0]), open_folder)

    def _read(self, work: Callable[[Store], Found], done: Callable[[Found], object]) -> None:
        def open_and_work() -> Found:
            with Store.open(self._database) as store:
                return work(store)

        def show(found: Found) -> None:
            self._view.problem.show_sentence("")
            done(found)

        def fail(error: UserError) -> None:
            self._view.problem.show_failed_read(error, partial(self._read, work, done))

        self._background.run(open_and_work, show, fail)


def _write(diff: RunDiff, path: Path) -> None:
    from app.report.render import check_suffix, render_diff, write_page  # here: the templates' engine takes its time

    check_suffix(path)
    if path.exists():
        raise UserError(f"{path} is there already; choose another name.")
    write_page(path, render_diff(diff, path))


def with_baselines(library: Library, runs: Sequence[int]) -> list[int]:
    """Return the repeats of some runs' variants with those of the baseline, each from the newest experiment of a run.

    The baseline is the first variant of the experiment, oldest first.

    Raises:
        UserError: No experiment says what the baseline is, or the runs are all of the baseline.
    """
    found: dict[int, None] = {}
    for row in library.run_rows(runs):
        if not row.experiments:
            raise UserError(f"Run {row.run} belongs to no experiment; select a second run and press Ctrl+Shift+C.")
        members = library.run_rows(library.runs_of_experiment(max(row.experiments)))
        wanted = (members[0].spec, row.spec)
        found.update(dict.fromkeys(member.run for member in members if member.spec in wanted))
        if members[0].spec == row.spec and len(runs) == 1:
            raise UserError(f"{format_run_numbers([row.run]).capitalize()} is of the baseline itself.")
    return list(found)


def folder_of(library: Library, run: int) -> Path:
    """Return the folder of a run's saved weights, or that of the database where it saved none."""
    (row,) = library.run_rows([run])
    weights = weights_path(library.path, row.uid)
    return weights.parent if weights.exists() else library.path.parent


def open_folder(folder: Path) -> None:
    """Show a folder in the desktop's file manager."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
