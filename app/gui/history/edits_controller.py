"""Writes the user's edits of stored runs: tags, notes, trash, saved filters, visible columns; what can be, undoably."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.history.screen import HistoryView
from app.gui.threads import Background, Result
from app.queries import RunQuery
from app.records import RunRow
from app.runs.undo import Edit
from app.storage.library import Library
from app.storage.store import Store
from app.viewmodels.history.annotations import Annotations, TagChange, collect_annotations, runs_label
from app.viewmodels.history.labels import deleted_label


class HistoryEdits(QObject):
    """Writes each change off the GUI thread; `changed` is emitted when it is in the database, or was undone.

    Thread: GUI only.
    """

    changed = Signal()

    def __init__(
        self, view: HistoryView, database: Path, background: Background, actions: Actions, parent: QObject
    ) -> None:
        """Make the controller of the edits.

        Args:
            view: The screen.
            database: The database.
            background: Writes to it.
            actions: The window's, which take what undoes a change.
            parent: Owner of this object.
        """
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._actions = actions
        self._connect()

    def show_undone(self) -> None:
        """Show tags and note of the open run as they are in the database after something was undone."""
        self._view.overview.footer.show_message("")
        editor = self._view.detail.annotations

        def show(rows: Sequence[RunRow]) -> None:
            for row in rows:
                editor.show_annotations(row.run, row.tags, row.note)

        if self._view.shows_run:
            self._with_library(lambda library: library.run_rows([editor.run]), show)

    def _edit(
        self, name: str, change: Callable[[Library], Result], done: Callable[[Result], None] = lambda _: None
    ) -> None:
        """Write one change that can be undone, then show its result.

        Args:
            name: The change, in the imperative.
            change: Makes it.
            done: Gets its result.
        """

        def ended(made: tuple[Result, Edit | None]) -> None:
            result, reversal = made
            self._view.problem.show_sentence("")
            self._actions.record_change(name, reversal)
            done(result)
            self.changed.emit()

        work = partial(Edit.make, self._database, lambda store: change(store.library))
        self._background.run(work, ended, self._show_error)

    def _with_library(self, work: Callable[[Library], Result], done: Callable[[Result], None]) -> None:
        def open_and_work() -> Result:
            with Store.open(self._database) as store:
                return work(store.library)

        self._background.run(open_and_work, done, self._show_error)

    def _show_error(self, error: UserError) -> None:
        self._view.problem.show_sentence(str(error))

    def _edit_tags(self, runs: Sequence[int]) -> None:
        self._with_library(lambda library: _read_annotations(library, runs), self._open_tag_editor)

    def _edit_note(self, runs: Sequence[int]) -> None:
        self._with_library(lambda library: _read_annotations(library, runs), self._open_note_editor)

    def _open_tag_editor(self, annotations: Annotations) -> None:
        self._view.edit_tags(annotations, self._change_tags)

    def _open_note_editor(self, annotations: Annotations) -> None:
        self._view.edit_note(annotations, lambda note: self._change_note(annotations.runs, note))

    def _change_tags(self, change: TagChange) -> None:
        if change.added or change.removed:
            annotations = self._view.detail.annotations
            self._edit(
                f"change tags of {runs_label(change.runs)}",
                lambda library: _change_tags(library, change),
                lambda _: annotations.set_stored_tags(change),
            )

    def _change_note(self, runs: Sequence[int], note: str) -> None:
        annotations = self._view.detail.annotations
        self._edit(
            f"change the note on {runs_label(runs)}",
            lambda library: _write_note(library, runs, note),
            lambda _: annotations.set_stored_note(runs, note),
        )

    def _delete(self, runs: Sequence[int]) -> None:
        self._edit(f"delete {runs_label(runs)}", lambda library: library.delete(runs), self._show_deleted)

    def _show_deleted(self, runs: list[int]) -> None:
        self._view.overview.footer.show_message(deleted_label(runs) if runs else "", can_undo=bool(runs))

    def _restore(self, runs: Sequence[int]) -> None:
        self._edit(
            f"restore {runs_label(runs)}", lambda library: library.restore(runs), lambda _: self._show_deleted([])
        )

    def _ask_to_purge(self, runs: Sequence[int]) -> None:
        self._view.ask_to_purge(runs, lambda: self._purge(runs))

    def _purge(self, runs: Sequence[int]) -> None:
        def purged(_: None) -> None:
            self._show_deleted([])
            self.changed.emit()

        self._with_library(lambda library: library.purge(runs), purged)

    def _save_filter(self, name: str, query: RunQuery) -> None:
        self._edit(f"save the filter “{name}”", lambda library: library.save_filter(name, query))

    def _delete_filter(self, name: str) -> None:
        self._edit(f"delete the filter “{name}”", lambda library: library.delete_filter(name))

    def _show_columns(self, columns: Sequence[str]) -> None:
        self._with_library(lambda library: library.show_columns(columns), lambda _: self.changed.emit())

    def _connect(self) -> None:
        view = self._view
        menu = view.overview.run_menu
        menu.tags_requested.connect(self._edit_tags)
        menu.note_requested.connect(self._edit_note)
        menu.delete_requested.connect(self._delete)
        menu.restore_requested.connect(self._restore)
        menu.purge_requested.connect(self._ask_to_purge)
        view.detail.annotations.tags_changed.connect(self._change_tags)
        view.detail.annotations.note_changed.connect(self._change_note)
        view.overview.footer.undo_requested.connect(self._actions.undo)
        view.overview.bar.filter_saved.connect(self._save_filter)
        view.overview.bar.filter_deleted.connect(self._delete_filter)
        view.overview.columns_chosen.connect(self._show_columns)


def _read_annotations(library: Library, runs: Sequence[int]) -> Annotations:
    return collect_annotations(library.run_rows(runs), library.totals().tags)


def _write_note(library: Library, runs: Sequence[int], note: str) -> None:
    for run in runs:
        library.set_note(run, note)


def _change_tags(library: Library, change: TagChange) -> None:
    for tag in change.added:
        library.add_tag(change.runs, tag)
    for tag in change.removed:
        library.remove_tag(change.runs, tag)
