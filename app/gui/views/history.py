"""The History screen: the list of stored runs, and the page of the one that was opened."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QMessageBox, QStackedWidget, QVBoxLayout, QWidget

from app.gui.questions import ask
from app.gui.theme import GRID, Theme
from app.gui.views.history_dialogs import NoteDialog, TagDialog
from app.gui.views.history_list import HistoryList
from app.gui.views.history_table import HistoryTable
from app.gui.views.parts import say, text_label
from app.gui.views.run_detail import RunDetailView
from app.viewmodels.history import Listing, run_count
from app.viewmodels.own_words import OwnWords
from app.viewmodels.run_detail import RunDetail
from app.viewmodels.storage import StorageLine


class HistoryView(QWidget):
    """Shows a `Listing`, or a `RunDetail` on top of it."""

    tags_changed = Signal(object)
    note_changed = Signal(tuple, str)
    purge_agreed = Signal(list)
    pruning_agreed = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._problem = text_label("", "bad", wrap=True)
        self._pages = QStackedWidget()
        self._overview = HistoryList(theme)
        self._detail = RunDetailView(theme)
        self._build()
        self._connect()

    def showEvent(self, event: QShowEvent) -> None:
        """The keyboard begins in the table."""
        super().showEvent(event)
        if not self.shows_run:
            self.table.setFocus()

    @property
    def overview(self) -> HistoryList:
        """The list of runs with all around it."""
        return self._overview

    @property
    def table(self) -> HistoryTable:
        """The table of runs."""
        return self._overview.table

    @property
    def detail(self) -> RunDetailView:
        """The page of one run."""
        return self._detail

    @property
    def shows_run(self) -> bool:
        """Whether the page of a run is open."""
        return self._pages.currentWidget() is self._detail

    def show_model(self, listing: Listing) -> None:
        """Show these runs; what was chosen stays chosen."""
        self._overview.show_listing(listing)

    def show_problem(self, sentence: str) -> None:
        """Say what is wrong where the user looks; "" is nothing wrong."""
        say(self._problem, sentence)

    def show_storage(self, line: StorageLine) -> None:
        """Say how large the database is and how long it keeps samples."""
        self._overview.foot.show_storage(line)

    def show_run(self, detail: RunDetail) -> None:
        """Turn to the page of one run."""
        self._detail.show_model(detail)
        self._pages.setCurrentWidget(self._detail)
        self._detail.setFocus()

    def show_list(self) -> None:
        """Turn back to the table."""
        self._pages.setCurrentWidget(self._overview)
        self.table.setFocus()

    def edit_tags(self, words: OwnWords) -> None:
        """Let the user change the tags of these runs."""
        dialog = TagDialog(words, self)
        dialog.changed.connect(self.tags_changed)
        dialog.open()

    def edit_note(self, words: OwnWords) -> None:
        """Let the user write one note on these runs."""
        dialog = NoteDialog(words, self)
        dialog.changed.connect(lambda note: self.note_changed.emit(words.runs, note))
        dialog.open()

    def ask_to_prune(self, question: str, consequence: str, days: int) -> None:
        """Ask before samples are deleted; the setting stays as it was unless the user agrees."""
        agreed = self._ask("Old samples", question, consequence)
        agreed.accepted.connect(lambda: self.pruning_agreed.emit(days))
        agreed.rejected.connect(self._overview.foot.show_kept)

    def ask_to_purge(self, runs: list[int]) -> None:
        """Ask before runs are deleted for good."""
        question = f"Delete {run_count(len(runs))} for good?"
        agreed = self._ask(
            "Deleted runs", question, "Their samples and saved weights go too. Nothing brings them back."
        )
        agreed.accepted.connect(lambda: self.purge_agreed.emit(runs))

    def _ask(self, title: str, question: str, consequence: str) -> QMessageBox:
        """A question before something is deleted; its `accepted` and `rejected` tell the answer."""
        return ask(self, self._theme, title, question, consequence, "&Delete", "&Keep them")

    def _find(self) -> None:
        if self.shows_run:
            self._detail.focus_search()
        else:
            self._overview.bar.go_to_search()

    def _escape(self) -> None:
        if self.shows_run:
            self.show_list()
        else:
            self._overview.escape()

    def _connect(self) -> None:
        self._detail.back_asked.connect(self.show_list)
        for keys, act in (
            ("Ctrl+F", self._find),
            ("Escape", self._escape),
            ("Ctrl+Z", self._overview.foot.undo_asked.emit),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(act)

    def _build(self) -> None:
        self._problem.setContentsMargins(2 * GRID, 0, 2 * GRID, GRID)
        self._problem.hide()
        self._pages.addWidget(self._overview)
        self._pages.addWidget(self._detail)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._problem)
        layout.addWidget(self._pages, 1)
