"""The History screen: the list of stored runs, the page of one run, or the diff of two."""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QMessageBox, QStackedWidget, QTextBrowser, QWidget

from app.gui.actions import Actions
from app.gui.history.page import RunPageView
from app.gui.history.run_list import HistoryList
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    HtmlPage,
    ProblemLine,
    SearchLine,
    Surface,
    button,
    make_column,
    make_row,
    report_style,
    separator,
    text_label,
    toggle_button,
)
from app.gui.widgets.dialogs import ask_confirmation
from app.gui.widgets.panes import FlowBar
from app.gui.window_state import WindowState
from app.viewmodels.history.labels import format_run_count
from app.viewmodels.history.run_detail import RunDetail
from app.viewmodels.history.run_diff import RunDiff

_MAX_WIDTH = 150 * GRID
_MARGINS = 7 * GRID
"""The width around the page and of its scroll bar."""


class RunDiffView(QWidget):
    """Shows a `RunDiff`."""

    compare_requested = Signal(list)
    swap_requested = Signal(list)
    save_requested = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._diff: RunDiff | None = None
        self._title = text_label("", "title")
        self._names = text_label("", "muted", wrap=True)
        self.back = button("← &History", "Back to the table (Escape)", flat=True)
        self._alike = toggle_button("Show what is &equal", "List values that both runs share too")
        self._swap = button("S&wap", "Count changes from the other run", small=True)
        self._save = button("&Save …", "Write this page to an HTML or Markdown file", small=True)
        self._compare = button("Open in &Compare", "Compare the two runs: verdict, curves, charts", small=True)
        self.search = SearchLine("Search this page (Ctrl+F)", "Search this page")
        self.page = HtmlPage(GRID // 2)
        state = WindowState("diff", self)
        self._alike.setChecked(state.read("alike", False))
        self._alike.toggled.connect(partial(state.keep, "alike"))
        self._alike.toggled.connect(self._rebuild)
        self._swap.clicked.connect(lambda: self.swap_requested.emit(self._runs()[::-1]))
        self._compare.clicked.connect(lambda: self.compare_requested.emit(self._runs()))
        self._save.clicked.connect(lambda: self.save_requested.emit(self._diff))
        theme.changed.connect(self._rebuild)
        self._build()

    def show_diff(self, diff: RunDiff) -> None:
        self._diff = diff
        self._title.setText(diff.title)
        self._names.setText("\n".join(f"{label}:  {name}" for label, name in zip(diff.labels, diff.names, strict=True)))
        self._rebuild()
        self.page.verticalScrollBar().setValue(0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.page.setLineWrapColumnOrWidth(min(_MAX_WIDTH, self.width() - _MARGINS))

    def _rebuild(self) -> None:
        if self._diff is not None:
            from app.report.render import diff_html  # here: importing the template engine is slow

            text = diff_html(self._diff, everything=self._alike.isChecked())
            self.page.show_html(text, report_style(self._theme.colours) + "td { white-space: normal; }")

    def _runs(self) -> list[int]:
        return [] if self._diff is None else list(self._diff.runs)

    def _find_next(self) -> None:
        """Go to the next occurrence of the text, wrapping around at the end."""
        if not self.page.find(self.search.text()):
            self.page.moveCursor(self.page.textCursor().MoveOperation.Start)
            self.page.find(self.search.text())

    def _build(self) -> None:
        self.page.setLineWrapMode(QTextBrowser.LineWrapMode.FixedPixelWidth)
        self.page.setAccessibleName("What differs between the runs")
        self.search.setFixedWidth(26 * GRID)
        self.search.returnPressed.connect(self._find_next)
        parts = self.search, self._alike, self._swap, self._save, self._compare
        tools = FlowBar(GRID, GRID // 2, *parts, right=True)
        lines = make_row(self.back, (tools, 1)), self._title, self._names, separator(), (self.page, 1)
        make_column(*lines, parent=self, margins=(2 * GRID, GRID, 2 * GRID, 0), spacing=GRID)


class HistoryView(Surface):
    """Shows a `Listing`, or on top of it a `RunDetail` or a `RunDiff`."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self.problem = ProblemLine()
        self._pages = QStackedWidget()
        self.overview = HistoryList(theme, actions)
        self.table = self.overview.table
        self.detail = RunPageView(theme, actions)
        self.diff = RunDiffView(theme)
        self._pages.addWidget(self.overview)
        self._pages.addWidget(self.detail)
        self._pages.addWidget(self.diff)
        make_column(self.problem, (self._pages, 1), parent=self, margins=0, spacing=0)
        self.detail.back.clicked.connect(self.show_list)
        self.diff.back.clicked.connect(self.show_list)
        for keys, act in (("Ctrl+F", self._focus_search), ("Escape", self._escape)):
            QShortcut(keys, self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut).activated.connect(act)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._pages.currentWidget() is self.overview:
            self.table.setFocus()

    @property
    def shows_run(self) -> bool:
        return self._pages.currentWidget() is self.detail

    def show_run(self, detail: RunDetail) -> None:
        self.detail.show_model(detail)
        self._pages.setCurrentWidget(self.detail)
        self.detail.setFocus()

    def show_diff(self, diff: RunDiff) -> None:
        self.diff.show_diff(diff)
        self._pages.setCurrentWidget(self.diff)
        self.diff.page.setFocus()

    def show_list(self) -> None:
        self._pages.setCurrentWidget(self.overview)
        self.table.setFocus()

    def ask_to_purge(self, runs: Sequence[int], agreed: Callable[[], None]) -> None:
        """Ask before runs are permanently deleted; `agreed` is called if the user agrees."""
        question = f"Delete {format_run_count(len(runs))} for good?"
        loss = "Their samples and saved weights are deleted too. This cannot be undone."
        box = ask_confirmation(self, self._theme, "Deleted runs", question, loss, "&Delete", "&Keep them")
        box.accepted.connect(agreed)

    def ask_to_import(self, name: str) -> QMessageBox:
        """Ask whether to add the runs of an opened file; return the open box."""
        question = f"Add the runs of {name} to your history?"
        consequence = "Runs already here are not added again, and the new ones can be deleted."
        return ask_confirmation(self, self._theme, "Import runs", question, consequence, "&Add them", "&Cancel")

    def _focus_search(self) -> None:
        lines = self.overview.bar.search, self.detail.log.search, self.diff.search
        lines[self._pages.currentIndex()].begin()

    def _escape(self) -> None:
        """Close the innermost thing: a run's evidence, the page, the filters."""
        if self._pages.currentWidget() is self.overview:
            self.overview.escape()
        elif self.shows_run and self.detail.badge.button.isChecked():
            self.detail.badge.button.setChecked(False)
        else:
            self.show_list()
