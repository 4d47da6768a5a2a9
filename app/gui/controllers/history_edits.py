"""Writes what a user changes of stored runs: tags, notes, the trash, saved filters, columns."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background, Result
from app.gui.views.history import HistoryView
from app.queries import RunOrder, RunQuery
from app.storage.library import Library
from app.storage.store import Store
from app.viewmodels.history import deleted_label
from app.viewmodels.own_words import OwnWords, TagChange, own_words


class HistoryEdits(QObject):
    """Every change is written off the GUI thread; `changed` tells when one is in the database."""

    changed = Signal()

    def __init__(self, view: HistoryView, database: Path, background: Background, parent: QObject) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._deleted: list[int] = []
        self._connect()

    def _edit(self, change: Callable[[Library], Result], done: Callable[[Result], None] | None = None) -> None:
        """Write one change, then show what came of it."""

        def ended(result: Result) -> None:
            if done is not None:
                done(result)
            self.changed.emit()

        self._with_library(change, ended)

    def _with_library(self, work: Callable[[Library], Result], done: Callable[[Result], None]) -> None:
        def open_and_work() -> Result:
            with Store.open(self._database) as store:
                return work(store.library)

        self._background.run(open_and_work, done, self._say)

    def _say(self, error: UserError) -> None:
        self._view.show_problem(str(error))

    def _ask_tags(self, runs: Sequence[int]) -> None:
        self._with_library(lambda library: _own_words(library, runs), self._view.edit_tags)

    def _ask_note(self, runs: Sequence[int]) -> None:
        self._with_library(lambda library: _own_words(library, runs), self._view.edit_note)

    def _change_tags(self, change: TagChange) -> None:
        if change.added or change.removed:
            own_words = self._view.detail.own_words
            self._edit(lambda library: _change_tags(library, change), lambda _: own_words.take_tags(change))

    def _change_note(self, runs: Sequence[int], note: str) -> None:
        own_words = self._view.detail.own_words
        self._edit(lambda library: _write_note(library, runs, note), lambda _: own_words.take_note(runs, note))

    def _delete(self, runs: Sequence[int]) -> None:
        self._edit(lambda library: library.delete(runs), self._tell_deleted)

    def _tell_deleted(self, runs: list[int]) -> None:
        self._deleted = runs
        self._view.overview.foot.tell(deleted_label(runs) if runs else "", can_undo=bool(runs))

    def _undo(self) -> None:
        if self._deleted:
            self._restore(self._deleted)

    def _restore(self, runs: Sequence[int]) -> None:
        self._edit(lambda library: library.restore(runs), lambda _: self._tell_deleted([]))

    def _purge(self, runs: Sequence[int]) -> None:
        self._edit(lambda library: library.purge(runs), lambda _: self._tell_deleted([]))

    def _save_filter(self, name: str, query: RunQuery) -> None:
        self._edit(lambda library: library.save_filter(name, query))

    def _delete_filter(self, name: str) -> None:
        self._edit(lambda library: library.delete_filter(name))

    def _show_columns(self, columns: Sequence[RunOrder]) -> None:
        self._edit(lambda library: library.show_columns(columns))

    def _connect(self) -> None:
        view = self._view
        actions = view.overview.actions_on_runs
        actions.tags_asked.connect(self._ask_tags)
        actions.note_asked.connect(self._ask_note)
        actions.delete_asked.connect(self._delete)
        actions.restore_asked.connect(self._restore)
        actions.purge_asked.connect(view.ask_to_purge)
        for words in (view, view.detail.own_words):
            words.tags_changed.connect(self._change_tags)
            words.note_changed.connect(self._change_note)
        view.purge_agreed.connect(self._purge)
        view.overview.foot.undo_asked.connect(self._undo)
        view.overview.bar.filter_saved.connect(self._save_filter)
        view.overview.bar.filter_deleted.connect(self._delete_filter)
        view.overview.columns_chosen.connect(self._show_columns)


def _own_words(library: Library, runs: Sequence[int]) -> OwnWords:
    return own_words(library.run_rows(runs), library.facets().tags)


def _write_note(library: Library, runs: Sequence[int], note: str) -> None:
    for run in runs:
        library.set_note(run, note)


def _change_tags(library: Library, change: TagChange) -> None:
    for tag in change.added:
        library.add_tag(change.runs, tag)
    for tag in change.removed:
        library.remove_tag(change.runs, tag)
