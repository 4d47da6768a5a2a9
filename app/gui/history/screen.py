"""The History screen: the list of stored runs, the page of one run, or the diff of two."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QShortcut, QShowEvent
from PySide6.QtWidgets import QMessageBox, QStackedWidget, QWidget

from app.gui.actions import Actions
from app.gui.history.annotations import NoteDialog, TagDialog
from app.gui.history.diff import RunDiffView
from app.gui.history.filter_bar import FilterBar
from app.gui.history.page import RunPageView
from app.gui.history.run_list import HistoryList
from app.gui.theme import Theme
from app.gui.widgets.basic import make_column
from app.gui.widgets.dialogs import ask_confirmation
from app.gui.widgets.problem import ProblemLine
from app.viewmodels.history.labels import Annotations, TagChange, format_run_count
from app.viewmodels.history.run_detail import RunDetail
from app.viewmodels.history.run_diff import RunDiff


class HistoryView(QWidget):
    """Shows a `Listing`, or on top of it a `RunDetail` or a `RunDiff`."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.problem = ProblemLine()
        self._pages = QStackedWidget()
        self.overview = HistoryList(theme, actions)
        self.table = self.overview.table
        self.detail = RunPageView(theme, actions)
        self.diff = RunDiffView(theme)
        self._build()
        self._connect()

    def showEvent(self, event: QShowEvent) -> None:
        """Focus the table."""
        super().showEvent(event)
        if self._pages.currentWidget() is self.overview:
            self.table.setFocus()

    @property
    def shows_run(self) -> bool:
        """Whether the page of a run is open."""
        return self._pages.currentWidget() is self.detail

    def show_run(self, detail: RunDetail) -> None:
        """Show the page of a run."""
        self.detail.show_model(detail)
        self._pages.setCurrentWidget(self.detail)
        self.detail.setFocus()

    def show_diff(self, diff: RunDiff) -> None:
        """Show the page of two runs."""
        self.diff.show_diff(diff)
        self._pages.setCurrentWidget(self.diff)
        self.diff.focus_page()

    def show_list(self) -> None:
        """Show the list again."""
        self._pages.setCurrentWidget(self.overview)
        self.table.setFocus()

    def edit_tags(self, annotations: Annotations, changed: Callable[[TagChange], None]) -> None:
        """Let the user change the tags of these runs; `changed` gets what differs."""
        dialog = TagDialog(annotations, self)
        dialog.changed.connect(changed)
        dialog.open()

    def edit_note(self, annotations: Annotations, changed: Callable[[Sequence[int], str], None]) -> None:
        """Let the user write one note on these runs; `changed` gets both."""
        dialog = NoteDialog(annotations, self)
        dialog.changed.connect(changed)
        dialog.open()

    def ask_to_purge(self, runs: Sequence[int], agreed: Callable[[], None]) -> None:
        """Ask before runs are deleted for good; `agreed` is called when the user agrees."""
        question = f"Delete {format_run_count(len(runs))} for good?"
        loss = "Their samples and saved weights are deleted too. This cannot be undone."
        box = ask_confirmation(self, self._theme, "Deleted runs", question, loss, "&Delete", "&Keep them")
        box.accepted.connect(agreed)

    def ask_to_import(self, name: str) -> QMessageBox:
        """Ask whether to add the runs of a file that the user opened; return the open box."""
        question = f"Add the runs of {name} to your history?"
        consequence = "Runs already here are not added again, and the new ones can be deleted."
        return ask_confirmation(self, self._theme, "Import runs", question, consequence, "&Add them", "&Cancel")

    def _focus_search(self) -> None:
        pages: dict[QWidget | None, FilterBar | RunPageView | RunDiffView]
        pages = {self.overview: self.overview.bar, self.detail: self.detail, self.diff: self.diff}
        pages[self._pages.currentWidget()].focus_search()

    def _escape(self) -> None:
        """Close the innermost thing: a run's evidence, the page, the filters."""
        if self._pages.currentWidget() is self.overview:
            self.overview.escape()
        elif self.shows_run and self.detail.badge.button.isChecked():
            self.detail.badge.button.setChecked(False)
        else:
            self.show_list()

    def _connect(self) -> None:
        self.detail.back_requested.connect(self.show_list)
        self.diff.back_requested.connect(self.show_list)
        for keys, act in (("Ctrl+F", self._focus_search), ("Escape", self._escape)):
            QShortcut(keys, self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut).activated.connect(act)

    def _build(self) -> None:
        self._pages.addWidget(self.overview)
        self._pages.addWidget(self.detail)
        self._pages.addWidget(self.diff)
        make_column(self.problem, (self._pages, 1), parent=self, margins=0, spacing=0)
