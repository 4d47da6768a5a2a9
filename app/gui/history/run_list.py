"""The list of stored runs with its search and filters, actions on the checked runs, and the status line below."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QAction, QColor, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import (
    QGridLayout,
    QHeaderView,
    QMenu,
    QSizePolicy,
    QStackedWidget,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from app.gui.actions import Actions
from app.gui.history.table import HistoryTable
from app.gui.theme import GRID, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import (
    STRETCH,
    ChecksMenu,
    ElidedLabel,
    EmptyState,
    SearchLine,
    button,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    set_role,
    text_label,
    toggle_button,
)
from app.gui.widgets.panes import splitter
from app.gui.window_state import WindowState
from app.paths import RUNS_SUFFIX
from app.queries import RunQuery
from app.viewmodels.history.labels import (
    OPEN_AT_FIRST,
    FacetGroup,
    StorageLine,
    answer_hint,
    can_compare,
    choose,
    compare_label,
    count_label,
    describe_left_out,
    empty_text,
    offers_reference,
    restore_label,
    with_choice,
)
from app.viewmodels.history.table import COLUMNS, ORDERS, Listing, is_filtered, toggle_order, with_text

EXPORT_LABELS = {
    "db": f"&Database ({RUNS_SUFFIX}) …",
    "csv": "&CSV tables …",
    "json": "&JSON tables …",
    "parquet": "&Parquet tables …",
    "trace": "&Timeline (Perfetto) …",
}
"""The export formats, with their labels in the menu."""


class FilterBar(QWidget):
    """Edits the query; `query_changed` is emitted at each change, even while the user types."""

    query_changed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._listing = Listing()
        self.query = RunQuery()
        self._leave = button("← &All runs", "Leave the deleted runs (Escape)", flat=True)
        self.search = SearchLine("", "Search runs")
        self.facets = toggle_button("&Filter by", "Workload, variant, card, host, outcome, date … (Ctrl+B)")
        self._clear = button("Clear", "Untick all", flat=True)
        self._more = button("", "Search these too", flat=True)
        self.view = button("View", "Groups, columns, deleted runs, reference runs, import")
        self._build()

    def show_listing(self, listing: Listing) -> None:
        self._listing, self.query = listing, listing.query
        query = listing.query
        chosen = sum(map(len, query.selected.values()))
        self._clear.setVisible(chosen > 0)
        self.facets.setText(f"&Filter by ({chosen})" if chosen else "&Filter by")
        if self.search.text() != query.text:
            self.search.setText(query.text)
        self.search.setPlaceholderText("Search deleted runs (Ctrl+F)" if query.deleted else "Search runs (Ctrl+F)")
        self._more.setText(describe_left_out(listing.matches))
        self._more.setVisible(listing.matches.left_out > 0)
        self._leave.setVisible(query.deleted)

    def change_query(self, query: RunQuery) -> None:
        self.query = query
        self.query_changed.emit(query)

    def clear(self) -> None:
        """Remove every filter; without any, leave the trash."""
        if is_filtered(self.query):
            self.show_deleted(self.query.deleted)
        elif self.query.deleted:
            self.show_deleted(False)

    def show_deleted(self, deleted: bool) -> None:
        """Query the runs in the trash, or all others, without filters."""
        self.change_query(RunQuery(deleted=deleted, order=self.query.order, descending=self.query.descending))

    def _search_changed(self, text: str) -> None:
        if text != self.query.text:
            self.change_query(with_text(self.query, text))

    def _build(self) -> None:
        self.search.setMinimumWidth(16 * GRID)
        self.search.setMaximumWidth(40 * GRID)
        self._clear.clicked.connect(lambda: self.change_query(with_choice(self.query, {})))
        for view in (self._leave, self._clear, self._more):  # until there are runs that need it
            view.hide()
        self._more.clicked.connect(lambda: self.search.setText(self._listing.matches.wider))
        self._leave.clicked.connect(lambda: self.show_deleted(False))
        self.search.textChanged.connect(self._search_changed)
        self.view.setProperty("menu", "true")
        queries = self._leave, self.facets, self._clear, (self.search, 1), self._more
        make_row(*queries, self.view, STRETCH, parent=self, margins=(2 * GRID, GRID, 2 * GRID, GRID), spacing=GRID)


class RunMenu(QObject):
    """The menu and the keys for the checked runs, which each signal carries, oldest first.

    Without checked runs they apply to the current one, and an unchecked line's menu to that line.
    """

    diff_requested = Signal(list)
    baseline_requested = Signal(list)
    log_requested = Signal(list)
    copy_requested = Signal(list)
    reveal_requested = Signal(list)
    tags_requested = Signal(list)
    note_requested = Signal(list)
    delete_requested = Signal(list)
    restore_requested = Signal(list)
    purge_requested = Signal(list)
    export_requested = Signal(list, str)

    def __init__(self, table: HistoryTable, actions: Actions) -> None:
        super().__init__(table)
        self._table = table
        self._line_runs: list[int] = []
        self._open = QAction("&Open\tEnter", self)
        self._open.triggered.connect(table.open_current)
        self.compare = self._action("&Compare", "Ctrl+Shift+C", actions.compare)
        self.compare.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.diff = self._action("&Diff", "D", self.diff_requested.emit)
        self._baseline = self._action("Compare with &baseline", "B", self.baseline_requested.emit)
        self._again = self._action("R&un again …", "A", lambda runs: actions.run_again(runs[0]))
        self._copy = self._action("Copy co&mmand", "Ctrl+C", self.copy_requested.emit)
        self._log = self._action("Show &log", "L", self.log_requested.emit)
        self._reveal = self._action("Show &files", "F", self.reveal_requested.emit)
        self._tags = self._action("&Tags …", "T", self.tags_requested.emit)
        self._note = self._action("&Note …", "N", self.note_requested.emit)
        self._delete = self._action("Dele&te", "Del", self.delete_requested.emit)
        self.restore = self._action("&Restore", "R", self.restore_requested.emit)
        self._purge = self._action("Delete for &good …", "Shift+Del", self.purge_requested.emit)
        self._export = QMenu("&Export", table)
        for kind, label in EXPORT_LABELS.items():
            entry = self._export.addAction(label)
            entry.triggered.connect(lambda _checked, kind=kind: self.export_requested.emit(self._runs(), kind))
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        table.customContextMenuRequested.connect(self._show_menu)
        table.chosen_changed.connect(self._update_actions)
        table.selectionModel().currentChanged.connect(self._update_actions)

    def _update_actions(self) -> None:
        """Enable the actions that apply to the runs, in the trash or not."""
        chosen, deleted = len(self._runs()), self._table.shows_deleted
        self.compare.setText(compare_label(chosen))
        self.compare.setEnabled(can_compare(chosen) and not deleted)
        self.restore.setText(restore_label(chosen))
        self.diff.setEnabled(chosen == 2)
        for action in (self._again, self._log):
            action.setEnabled(chosen == 1)
        for action in (self._baseline, self._tags, self._note, self._delete):
            action.setEnabled(chosen > 0 and not deleted)
        for action in (self.restore, self._purge):
            action.setEnabled(chosen > 0 and deleted)
        for action in (self._copy, self._reveal):
            action.setEnabled(chosen > 0)
        self._export.setEnabled(chosen > 0)

    def make_menu(self) -> QMenu:
        menu = QMenu(self._table)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._open.setEnabled(isinstance(self._table.current_line(), int))
        for part in (
            (self._open, self.compare, self.diff, self._baseline),
            (self._again, self._copy, self._log, self._reveal),
            (self._tags, self._note, self._export.menuAction()),
            (self._delete, self.restore, self._purge),
        ):
            menu.addActions([action for action in part if action.isEnabled()])
            menu.addSeparator()
        return menu

    def _action(self, label: str, key: str, act: Callable[[list[int]], object]) -> QAction:
        action = QAction(label, self, shortcut=QKeySequence(key), shortcutContext=Qt.ShortcutContext.WidgetShortcut)
        action.triggered.connect(lambda: act(self._runs()))
        self._table.addAction(action)
        return action

    def _show_menu(self, position: QPoint) -> None:
        def leave_line() -> None:
            self._line_runs = []
            self._update_actions()

        self._line_runs = [] if self._table.is_current_checked() else self._table.current_runs()
        self._update_actions()
        menu = self.make_menu()
        menu.aboutToHide.connect(leave_line, Qt.ConnectionType.QueuedConnection)  # it hides before its action
        menu.popup(self._table.viewport().mapToGlobal(position))

    def _runs(self) -> list[int]:
        return self._line_runs or self._table.chosen() or self._table.current_runs()


_VALUE_ROLE = Qt.ItemDataRole.UserRole
_LABEL, _COUNT = 0, 1
_LINE = QSize(0, 3 * GRID)


class FacetPanel(QWidget):
    """Shows facets as a tree: a line for each, its values below it with check boxes."""

    value_toggled = Signal(str, str, bool)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._state = WindowState("history", self)
        self._open = set(self._state.read("open facets", list(OPEN_AT_FIRST), list[str]))
        self.groups: Sequence[FacetGroup] = ()
        """The facets by which runs can be narrowed down."""
        self.tree = QTreeWidget()
        self.tree.itemChanged.connect(self._emit_toggled)
        self.tree.itemExpanded.connect(lambda item: self._fold(item, is_open=True))
        self.tree.itemCollapsed.connect(lambda item: self._fold(item, is_open=False))
        theme.changed.connect(self._rebuild)
        self._build()

    def show_groups(self, groups: Sequence[FacetGroup]) -> None:
        """Show these facets; position and current line stay."""
        if groups != self.groups:
            self.groups = groups
            self._rebuild()

    def _rebuild(self) -> None:
        position, current = self.tree.verticalScrollBar().value(), self._current()
        # The width of the longest number: Qt would make room for a hidden title.
        counts = [self.tree.fontMetrics().horizontalAdvance(f"{v.runs:,}") for g in self.groups for v in g.values]
        self.tree.header().resizeSection(_COUNT, max(counts, default=0) + 2 * GRID + 2)
        self.tree.blockSignals(True)
        self.tree.clear()
        for group in self.groups:
            chosen = sum(value.chosen for value in group.values)
            head = QTreeWidgetItem(self.tree, [f"{group.title} ({chosen})" if chosen else group.title])
            head.setSizeHint(_LABEL, _LINE)
            head.setData(_LABEL, _VALUE_ROLE, (group.name, ""))
            head.setFont(_LABEL, tabular_font(bold=True))
            for value in group.values:
                item = QTreeWidgetItem(head, [value.label, f"{value.runs:,}"])
                item.setData(_LABEL, _VALUE_ROLE, (group.name, value.value))
                item.setCheckState(_LABEL, Qt.CheckState.Checked if value.chosen else Qt.CheckState.Unchecked)
                item.setSizeHint(_LABEL, _LINE)
                item.setTextAlignment(_COUNT, RIGHT)
                item.setForeground(_COUNT, QColor(self._theme.colours.muted))
                item.setToolTip(_LABEL, plain_tooltip(value.label))
                if (group.name, value.value) == current:
                    self.tree.setCurrentItem(item)
            head.setFirstColumnSpanned(True)
            head.setExpanded(group.name in self._open)
            if (group.name, "") == current:
                self.tree.setCurrentItem(head)
        self.tree.blockSignals(False)
        self.tree.verticalScrollBar().setValue(position)

    def _current(self) -> tuple[str, str] | None:
        item = self.tree.currentItem()
        return tuple(item.data(_LABEL, _VALUE_ROLE)) if item is not None else None

    def _emit_toggled(self, item: QTreeWidgetItem, _column: int) -> None:
        name, value = item.data(_LABEL, _VALUE_ROLE)
        self.value_toggled.emit(name, value, item.checkState(_LABEL) == Qt.CheckState.Checked)

    def _fold(self, item: QTreeWidgetItem, *, is_open: bool) -> None:
        name, _ = item.data(_LABEL, _VALUE_ROLE)
        self._open = self._open | {name} if is_open else self._open - {name}
        self._state.keep("open facets", sorted(self._open))

    def _build(self) -> None:
        self.tree.setHeaderLabels(("Value", "Runs"))  # for screen readers
        self.tree.setHeaderHidden(True)
        self.tree.setAccessibleName("Facets of the runs")
        self.tree.setIndentation(GRID + GRID // 2)
        self.tree.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.tree.header()
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(3 * GRID)
        header.setSectionResizeMode(_LABEL, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(_COUNT, QHeaderView.ResizeMode.Fixed)
        make_column((self.tree, 1), parent=self, margins=(GRID, GRID // 2, 0, 0))
        self.setMinimumWidth(20 * GRID)


class HistoryHeader(QWidget):
    """The answer of the checked runs, actions for them, and what all runs of the table have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = ElidedLabel("heading", Qt.AlignmentFlag.AlignLeft)  # who begins it, how sure it is ends it
        self._next_step = ElidedLabel("caption", Qt.AlignmentFlag.AlignRight, Qt.TextElideMode.ElideRight)
        self.agreed = ElidedLabel("caption", Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight)
        self.compare = button("Compare", "Compare the checked runs (Ctrl+Shift+C)", primary=True)
        self.restore = button("Restore", "Restore the checked runs from the trash (R)", primary=True)
        self.compare.setEnabled(False)
        self.restore.hide()
        texts = QGridLayout()
        texts.setHorizontalSpacing(2 * GRID)
        texts.setVerticalSpacing(GRID // 2)
        texts.addWidget(self.answer, 0, 0, 1, 2)
        texts.addWidget(self.agreed, 1, 0)
        texts.addWidget(self._next_step, 1, 1)
        parts = (texts, 1), self.restore, self.compare
        make_row(*parts, parent=self, margins=(2 * GRID, 0, 2 * GRID, GRID), spacing=2 * GRID)

    def show_listing(self, listing: Listing) -> None:
        self.agreed.setText(listing.agreed)
        self.compare.setVisible(not listing.query.deleted)
        self.restore.setVisible(listing.query.deleted)

    def show_chosen(self, chosen: int, *, deleted: bool) -> None:
        """Remove the answer about other runs, and show what replaces it."""
        self.compare.setText(compare_label(chosen))
        self.compare.setEnabled(can_compare(chosen))
        self.restore.setText(restore_label(chosen))
        self.restore.setEnabled(chosen > 0)
        self.show_answer(answer_hint(chosen, deleted=deleted), "", "muted")

    def show_answer(self, text: str, next_step: str, role: str = "heading") -> None:
        self.answer.setText(text)
        set_role(self.answer, role)
        self._next_step.setText(next_step)


_WIDE, _FACETS_WIDTH = 1400, 35 * GRID
"""The narrowest list that shows the facets by default, and their width."""


class HistoryFooter(QWidget):
    """Shows counts, messages, progress and the database; undoes a deletion, stops a transfer."""

    def __init__(self) -> None:
        super().__init__()
        self.count = text_label("", "caption")
        self._message = _shrinking_label("heading")
        self.undo = button("&Undo", "Restore the deleted runs (Ctrl+Z)", flat=True)
        self._progress = _shrinking_label("caption")
        self.stop = button("&Stop", "Stop and discard it", flat=True)
        self._storage = _shrinking_label("caption")
        messages = self.count, 2 * GRID, self._message, self.undo
        parts = *messages, STRETCH, self._progress, self.stop, self._storage
        make_row(*parts, parent=self, margins=(2 * GRID, GRID // 2, 2 * GRID, GRID // 2), spacing=GRID)
        self.show_message("")
        self.show_progress("")

    def show_message(self, text: str, *, can_undo: bool = False) -> None:
        self._message.setText(text)
        self._message.setVisible(bool(text))
        self.undo.setVisible(can_undo)

    def show_progress(self, text: str) -> None:
        """Show the progress of a transfer instead of the database's size; "" ends it."""
        self._progress.setText(text)
        for widget in (self._progress, self.stop):
            widget.setVisible(bool(text))
        self._storage.setVisible(not text)

    def show_storage(self, line: StorageLine) -> None:
        """Show the database's size and how long it keeps samples."""
        self._storage.setText(line.text)
        self._storage.setToolTip(plain_tooltip(str(line.path)))


def _shrinking_label(role: str) -> ElidedLabel:
    """Return a label as wide as its text if there is room, which never widens the window."""
    label = ElidedLabel(role, Qt.AlignmentFlag.AlignLeft)
    label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
    label.setMinimumWidth(1)
    return label


class HistoryList(QWidget):
    """Shows a `Listing`, in groups that fold."""

    columns_chosen = Signal(list)
    facets_requested = Signal()
    import_requested = Signal()
    reference_requested = Signal(bool)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self.listing = Listing()
        self._folded: set[int] = set()
        self._state = WindowState("history", self)
        self._facets_chosen = self._state.read("facets chosen", -1)
        self.bar = FilterBar()
        self.header = HistoryHeader()
        self.facets = FacetPanel(theme)
        self.table = HistoryTable(theme)
        self.run_menu = RunMenu(self.table, actions)
        self.footer = HistoryFooter()
        self._show_reference = button("Show &reference runs", "Copies of runs measured on real GPUs", primary=True)
        self._show_all = button("Show all r&uns", "Clear search and filters, or leave the deleted runs (Escape)")
        self._empty = EmptyState("", "", self._show_reference, self._show_all)
        self._pages = QStackedWidget()
        self._group = self._toggle("&Group by experiment", "Ctrl+G")
        self._show_facets = self._toggle("&Filter panel", "Ctrl+B")
        self._deleted = self._toggle("&Deleted runs", "")
        self._reference = self._toggle("Re&ference runs", "")
        self._columns = ChecksMenu("&Columns", self)
        self._build_menus()
        self._build()
        self._connect()

    @property
    def grouped(self) -> bool:
        return self._group.isChecked()

    @property
    def wants_facets(self) -> bool:
        return self.bar.facets.isChecked()

    def show_listing(self, listing: Listing) -> None:
        """Show these runs; the selection stays, and so does the position unless the query is new."""
        is_new = listing.query != self.listing.query
        self.listing = listing
        self.bar.show_listing(listing)
        self.header.show_listing(listing)
        self.header.setVisible(bool(listing.runs))
        self._show_columns(listing)
        self._deleted.setChecked(listing.query.deleted)
        self._deleted.setText(f"&Deleted runs ({listing.options.totals.deleted:,})")
        self._reference.setChecked(listing.options.reference > 0)
        title, _, text = empty_text(listing).partition("\n")
        self._empty.set_text(title, text)
        # This order moves the focus from the button to the table.
        self._pages.setCurrentWidget(self.table if listing.runs else self._empty)
        self._show_reference.setVisible(offers_reference(listing))
        self._show_all.setVisible(not offers_reference(listing))
        self.table.show_listing(listing, self._folded_groups(), from_top=is_new)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_facets()

    def show_facets(self, groups: Sequence[FacetGroup]) -> None:
        self.facets.show_groups(groups)
        self._place_facets()

    def _place_facets(self) -> None:
        """Show or hide the facets: as the user chose, else if there is room; never an empty panel."""
        is_open = bool(self._facets_chosen) if self._facets_chosen >= 0 else self.width() >= _WIDE
        self.facets.setVisible(is_open and bool(self.facets.groups))
        self.bar.facets.setChecked(is_open)
        self._show_facets.setChecked(is_open)

    def _choose_facets(self, is_open: bool) -> None:
        self._facets_chosen = int(is_open)
        self._state.keep("facets chosen", self._facets_chosen)
        self._place_facets()
        if is_open:
            self.facets_requested.emit()

    def escape(self) -> None:
        """Remove the filters, or leave the trash, and focus the table."""
        self.bar.clear()
        self.table.setFocus()

    def _folded_groups(self) -> set[int] | None:
        return self._folded if self.grouped else None

    def _fold(self, experiment: int) -> None:
        self._folded ^= {experiment}
        self.table.show_lines(self.listing.lines(self._folded_groups()), self.listing.query)

    def _show_chosen(self) -> None:
        chosen, deleted = len(self.table.chosen()), self.listing.query.deleted
        self.header.show_chosen(chosen, deleted=deleted)
        self.footer.count.setText(count_label(self.listing, chosen, self.table.checked_elsewhere))

    def _show_columns(self, listing: Listing) -> None:
        self.table.show_columns([ORDERS.index(order) for order in listing.columns])
        for order, entry in zip(ORDERS, self._columns.actions(), strict=True):
            entry.setChecked(order in listing.options.columns)

    def _choose_columns(self) -> None:
        entries = zip(ORDERS, self._columns.actions(), strict=True)
        chosen = [order for order, entry in entries if entry.isChecked() and entry.isVisible()]
        options = replace(self.listing.options, columns=chosen)
        self._show_columns(replace(self.listing, options=options))
        self.columns_chosen.emit(chosen)

    def _ask_reference(self, is_checked: bool) -> None:
        """Request adding or removing the reference runs; the check mark changes when that is done."""
        self._reference.setChecked(not is_checked)
        self.reference_requested.emit(is_checked)

    def _toggle(self, label: str, key: str) -> QAction:
        everywhere = Qt.ShortcutContext.WidgetWithChildrenShortcut
        action = QAction(label, self, checkable=True, shortcut=QKeySequence(key), shortcutContext=everywhere)
        self.addAction(action)
        return action

    def _connect(self) -> None:
        self.addAction(self.run_menu.compare)
        self._group.toggled.connect(
            lambda: self.table.show_lines(self.listing.lines(self._folded_groups()), self.listing.query, from_top=True)
        )
        self._show_facets.triggered.connect(self._choose_facets)
        self.bar.facets.clicked.connect(self._choose_facets)
        self.facets.value_toggled.connect(
            lambda name, value, chosen: self.bar.change_query(choose(self.bar.query, name, value, chosen=chosen))
        )
        self._deleted.triggered.connect(self.bar.show_deleted)
        self._reference.triggered.connect(self._ask_reference)
        self._show_all.clicked.connect(self.escape)
        self._show_reference.clicked.connect(lambda: self.reference_requested.emit(True))
        self.bar.search.returnPressed.connect(self.table.setFocus)
        # Otherwise Qt would focus the tabs when the button disappears.
        self.footer.undo.released.connect(self.table.setFocus)
        self.header.compare.clicked.connect(self.run_menu.compare.trigger)
        self.header.restore.clicked.connect(self.run_menu.restore.trigger)
        self.table.chosen_changed.connect(self._show_chosen)
        for keys, checked in (("Ctrl+A", True), ("Ctrl+Shift+A", False)):
            check = QShortcut(keys, self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
            check.activated.connect(partial(self.table.check_all, checked=checked))
        self.table.fold_toggled.connect(self._fold)
        header = self.table.horizontalHeader()
        header.sectionClicked.connect(lambda column: self.bar.change_query(toggle_order(self.bar.query, column)))
        header.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        header.customContextMenuRequested.connect(lambda position: self._columns.popup(header.mapToGlobal(position)))

    def _build_menus(self) -> None:
        for column, order in zip(COLUMNS, ORDERS, strict=True):
            entry = self._columns.addAction(column.title)
            entry.setCheckable(True)
            entry.setEnabled(order != "run")
            entry.triggered.connect(self._choose_columns)
        sort = QMenu("&Sort by", self)
        for number, column in enumerate(COLUMNS):
            entry = sort.addAction(column.title)
            entry.triggered.connect(lambda _checked, n=number: self.bar.change_query(toggle_order(self.bar.query, n)))
        view = QMenu(self.bar.view)
        view.addActions([self._group, self._show_facets, self._deleted, self._reference])
        view.addSeparator()
        view.addMenu(sort)
        view.addMenu(self._columns)
        view.addSeparator()
        view.addAction("&Import runs …").triggered.connect(self.import_requested)
        self.bar.view.setMenu(view)

    def _build(self) -> None:
        self._pages.addWidget(self.table)
        self._pages.addWidget(self._empty)
        body = splitter(Qt.Orientation.Horizontal, self.facets, self._pages, (0, 1))
        body.setSizes([_FACETS_WIDTH, 1000])
        self._state.keep_splitter("facets", body)
        self.table.remember_widths(self._state)
        make_column(self.bar, self.header, (body, 1), separator(), self.footer, parent=self, margins=0, spacing=0)
