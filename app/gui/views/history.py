"""The History screen: the table of stored runs, and the page of the one that was opened."""

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QMessageBox,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.gui.theme import GRID, Theme
from app.gui.views.history_table import HistoryTable
from app.gui.views.parts import EmptyState, button, rule, text_label
from app.gui.views.run_detail import RunDetailView
from app.viewmodels.cells import OUTCOMES
from app.viewmodels.history import COLUMNS, HistoryScreen, Query, can_compare, compare_label, count_label
from app.viewmodels.run_detail import RunDetail
from app.viewmodels.storage import KEEP_CHOICES, StorageLine, keep_words


class HistoryView(QWidget):
    """Shows a `HistoryScreen`, or a `RunDetail` on top of it."""

    query_changed = Signal(object)
    run_opened = Signal(int)
    compare_asked = Signal(list)
    retention_asked = Signal(object)
    pruning_agreed = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._screen = HistoryScreen()
        self._search = QLineEdit()
        self._workload = QComboBox()
        self._outcome = QComboBox()
        self._storage = text_label("", "caption")
        self._keep = QComboBox()
        self._keep_days: int | None = None
        self._count = text_label("", "caption")
        self._compare = button(compare_label(0), "Compare the chosen runs (Ctrl+Shift+C)", primary=True)
        self._problem = text_label("", "bad", wrap=True)
        self._table = HistoryTable(theme)
        self._empty = EmptyState("", "")
        self._lower = QStackedWidget()
        self._pages = QStackedWidget()
        self._list = QWidget()
        self._detail = RunDetailView(theme)
        self._build()
        self._connect()

    @property
    def table(self) -> HistoryTable:
        """The table of runs."""
        return self._table

    @property
    def detail(self) -> RunDetailView:
        """The page of one run."""
        return self._detail

    def show_model(self, screen: HistoryScreen) -> None:
        """Show these runs; what was chosen stays chosen."""
        self._screen = screen
        _offer(
            self._workload, "All workloads", {name: name for name in screen.history.workloads}, screen.query.workload
        )
        outcomes = {name: f"{OUTCOMES[name].symbol}  {OUTCOMES[name].word}" for name in screen.history.outcomes}
        _offer(self._outcome, "All outcomes", outcomes, screen.query.outcome)
        if self._search.text() != screen.query.text:
            self._search.setText(screen.query.text)
        self._table.show_rows(screen.rows, screen.history.widest, screen.query)
        title, _, text = screen.empty_text.partition("\n")
        self._empty.set_text(title, text)
        self._lower.setCurrentWidget(self._empty if screen.empty_text else self._table)
        self._show_chosen()

    def show_problem(self, sentence: str) -> None:
        """Say what is wrong where the user looks; "" is nothing wrong."""
        self._problem.setText(sentence)
        self._problem.setVisible(bool(sentence))

    def show_storage(self, line: StorageLine) -> None:
        """Say how large the database is and how long it keeps samples."""
        self._storage.setText(line.words)
        self._storage.setToolTip(str(line.path))
        self._keep_days = line.keep_days
        choices = dict.fromkeys((*KEEP_CHOICES, line.keep_days))
        self._keep.clear()
        for days in choices:
            self._keep.addItem(keep_words(days), days)
        self._keep.setCurrentIndex(list(choices).index(line.keep_days))

    def ask_to_prune(self, question: str, consequence: str, days: int) -> None:
        """Ask before samples are deleted; the setting stays as it was unless the user agrees."""
        box = QMessageBox(QMessageBox.Icon.Question, "Old samples", question)
        box.setParent(self, box.windowFlags())
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setInformativeText(consequence)
        delete = box.addButton("&Delete", QMessageBox.ButtonRole.AcceptRole)
        keep = box.addButton("&Keep them", QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(keep)
        delete.clicked.connect(lambda: self.pruning_agreed.emit(days))
        keep.clicked.connect(lambda: self._keep.setCurrentIndex(self._keep.findData(self._keep_days)))
        box.open()

    def show_run(self, detail: RunDetail) -> None:
        """Turn to the page of one run."""
        self._detail.show_model(detail)
        self._pages.setCurrentWidget(self._detail)
        self._detail.setFocus()

    def show_list(self) -> None:
        """Turn back to the table."""
        self._pages.setCurrentWidget(self._list)
        self._table.setFocus()

    @property
    def shows_run(self) -> bool:
        """Whether the page of a run is open."""
        return self._pages.currentWidget() is self._detail

    def _show_chosen(self) -> None:
        chosen = len(self._table.chosen())
        self._compare.setText(compare_label(chosen))
        self._compare.setEnabled(can_compare(chosen))
        self._count.setText(count_label(len(self._screen.rows), len(self._screen.history.rows), chosen))

    def _ask_compare(self) -> None:
        chosen = self._table.chosen()
        if can_compare(len(chosen)):
            self.compare_asked.emit(chosen)

    def _search_changed(self, text: str) -> None:
        if text != self._screen.query.text:
            self._ask_query()

    def _ask_query(self) -> None:
        self.query_changed.emit(
            Query(
                text=self._search.text(),
                workload=self._workload.currentData() or "",
                outcome=self._outcome.currentData() or "",
                column=self._screen.query.column,
                descending=self._screen.query.descending,
            )
        )

    def _find(self) -> None:
        if self.shows_run:
            self._detail.focus_search()
            return
        self._search.setFocus()
        self._search.selectAll()

    def _escape(self) -> None:
        if self.shows_run:
            self.show_list()
            return
        self._search.clear()
        self._table.setFocus()

    def _menu(self, place: QPoint) -> None:
        """What can be done with the chosen runs, also by the keyboard's menu key."""
        menu = QMenu(self._table)
        run = self._table.current_run()
        opened = QAction("&Open", menu, enabled=run is not None)
        opened.triggered.connect(lambda: self.run_opened.emit(run))
        compare = QAction(compare_label(len(self._table.chosen())), menu, enabled=self._compare.isEnabled())
        compare.triggered.connect(self._ask_compare)
        menu.addActions([opened, compare])
        sort = menu.addMenu("&Sort by")
        for number, column in enumerate(COLUMNS):
            entry = QAction(column.title, sort, checkable=True, checked=number == self._screen.query.column)
            entry.triggered.connect(lambda _checked, n=number: self._sort(n))
            sort.addAction(entry)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self._table.viewport().mapToGlobal(place))

    def _sort(self, column: int) -> None:
        self.query_changed.emit(self._screen.query.by(column))

    def _connect(self) -> None:
        self._search.textChanged.connect(self._search_changed)
        self._search.returnPressed.connect(self._table.setFocus)
        self._workload.activated.connect(self._ask_query)
        self._outcome.activated.connect(self._ask_query)
        self._compare.clicked.connect(self._ask_compare)
        self._keep.activated.connect(lambda index: self.retention_asked.emit(self._keep.itemData(index)))
        self._table.opened.connect(self.run_opened)
        self._table.chosen_changed.connect(self._show_chosen)
        self._table.horizontalHeader().sectionClicked.connect(self._sort)
        self._table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._table.customContextMenuRequested.connect(self._menu)
        self._detail.back_asked.connect(self.show_list)
        for keys, act in (("Ctrl+F", self._find), ("Escape", self._escape), ("Ctrl+Shift+C", self._ask_compare)):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(act)

    def _build(self) -> None:
        self._search.setPlaceholderText("Search runs (Ctrl+F)")
        self._search.setClearButtonEnabled(True)
        self._search.setMinimumWidth(32 * GRID)
        for widget, name in (
            (self._search, "Search runs"),
            (self._workload, "Workload shown"),
            (self._outcome, "Outcome shown"),
        ):
            widget.setAccessibleName(name)
        for combo in (self._workload, self._outcome):
            combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        bar = QHBoxLayout()
        bar.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        bar.setSpacing(GRID)
        bar.addWidget(self._search)
        bar.addWidget(self._workload)
        bar.addWidget(self._outcome)
        bar.addStretch(1)
        bar.addWidget(self._count)
        bar.addWidget(self._compare)
        self._problem.setContentsMargins(2 * GRID, 0, 2 * GRID, GRID)
        self._problem.hide()
        self._lower.addWidget(self._table)
        self._lower.addWidget(self._empty)
        column = QVBoxLayout(self._list)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(bar)
        column.addWidget(self._lower, 1)
        column.addWidget(rule())
        column.addLayout(self._foot())
        self._pages.addWidget(self._list)
        self._pages.addWidget(self._detail)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._problem)
        layout.addWidget(self._pages, 1)

    def _foot(self) -> QHBoxLayout:
        self._keep.setAccessibleName("How long samples are kept")
        self._keep.setToolTip("Samples and logs of older runs are deleted when the window opens; their figures stay")
        self._keep.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        foot = QHBoxLayout()
        foot.setContentsMargins(2 * GRID, GRID // 2, 2 * GRID, GRID // 2)
        foot.addWidget(self._storage)
        foot.addStretch(1)
        foot.addWidget(self._keep)
        return foot


def _offer(combo: QComboBox, everything: str, choices: dict[str, str], chosen: str) -> None:
    """Fill a filter unless it offers just that already."""
    wanted = {"": everything, **choices}
    if chosen and chosen not in wanted:
        wanted[chosen] = chosen
    if {combo.itemData(n): combo.itemText(n) for n in range(combo.count())} != wanted:
        combo.clear()
        for value, words in wanted.items():
            combo.addItem(words, value)
    combo.setCurrentIndex(list(wanted).index(chosen))
