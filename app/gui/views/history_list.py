"""The list of stored runs: search and filters above, the table, and what there is of it all below."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QStackedWidget, QVBoxLayout, QWidget

from app.gui.theme import Theme
from app.gui.views.history_actions import HistoryActions
from app.gui.views.history_bar import HistoryBar
from app.gui.views.history_foot import HistoryFoot
from app.gui.views.history_table import HistoryTable
from app.gui.views.parts import EmptyState, button, rule
from app.queries import RunOrder
from app.viewmodels.history import (
    COLUMNS,
    ORDERS,
    Listing,
    can_compare,
    compare_label,
    count_label,
    empty_text,
    offers_reference,
    ordered_by,
    restore_label,
)


class HistoryList(QWidget):
    """Shows a `Listing`. Groups and what is folded of them are this screen's own; all else is asked for."""

    columns_chosen = Signal(list)
    import_asked = Signal()
    reference_asked = Signal(bool)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._listing = Listing()
        self._folded: set[int] = set()
        self.bar = HistoryBar()
        self.table = HistoryTable(theme)
        self.actions_on_runs = HistoryActions(self.table)
        self.foot = HistoryFoot()
        self._show_reference = button("Show &reference runs", "Copies of runs measured on real GPUs", primary=True)
        self._empty = EmptyState("", "", self._show_reference)
        self._lower = QStackedWidget()
        self._group = self._toggle("&Group by experiment", "Ctrl+G")
        self._deleted = self._toggle("&Deleted runs", "")
        self._reference = self._toggle("Re&ference runs", "")
        self._columns = QMenu("&Columns", self)
        self._build_menus()
        self._build()
        self._connect()

    @property
    def grouped(self) -> bool:
        """Whether runs stand in groups by experiment."""
        return self._group.isChecked()

    @property
    def listing(self) -> Listing:
        """The runs shown, and what they were asked for with."""
        return self._listing

    def show_listing(self, listing: Listing) -> None:
        """Show what was found; what was chosen stays chosen, and the view where it was unless the question is new."""
        is_new = listing.query != self._listing.query
        self._listing = listing
        self.bar.show_listing(listing)
        self._show_columns(listing.offered.shown)
        self._deleted.setChecked(listing.query.deleted)
        self._deleted.setText(f"&Deleted runs ({listing.offered.facets.deleted:,})")
        self._reference.setChecked(listing.offered.reference > 0)
        title, _, text = empty_text(listing).partition("\n")
        self._empty.set_text(title, text)
        # In this order the keyboard goes from the button to the table.
        self._lower.setCurrentWidget(self.table if listing.runs else self._empty)
        self._show_reference.setVisible(offers_reference(listing))
        self.table.show_listing(listing, self._folds(), from_top=is_new)

    def escape(self) -> None:
        """Take the filters away, then leave the trash; else to the table."""
        self.bar.clear()
        self.table.setFocus()

    def _folds(self) -> set[int] | None:
        return self._folded if self.grouped else None

    def _fold(self, experiment: int) -> None:
        self._folded ^= {experiment}
        self.table.show_lines(self._listing.lines(self._folds()), self._listing.query)

    def _regroup(self) -> None:
        self.table.show_lines(self._listing.lines(self._folds()), self._listing.query, from_top=True)

    def _show_chosen(self) -> None:
        chosen, deleted = len(self.table.chosen()), self._listing.query.deleted
        self.bar.compare.setText(compare_label(chosen))
        self.bar.compare.setEnabled(can_compare(chosen))
        self.bar.restore.setText(restore_label(chosen))
        self.bar.restore.setEnabled(chosen > 0)
        self.actions_on_runs.show_chosen(chosen, deleted=deleted)
        self.foot.count.setText(count_label(self._listing, chosen))

    def _show_columns(self, shown: Sequence[RunOrder]) -> None:
        self.table.show_columns(shown)
        for order, entry in zip(ORDERS, self._columns.actions(), strict=True):
            entry.setChecked(order in shown)

    def _choose_columns(self) -> None:
        chosen = [order for order, entry in zip(ORDERS, self._columns.actions(), strict=True) if entry.isChecked()]
        self._show_columns(chosen)
        self.columns_chosen.emit(chosen)

    def _ask_deleted(self) -> None:
        self.bar.ask_deleted(self._deleted.isChecked())

    def _ask_reference(self, shown: bool) -> None:
        """The mark stays as it was until the runs are here, or gone."""
        self._reference.setChecked(not shown)
        self.reference_asked.emit(shown)

    def _toggle(self, words: str, key: str) -> QAction:
        made = QAction(words, self)
        made.setCheckable(True)
        made.setShortcut(QKeySequence(key))
        made.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.addAction(made)
        return made

    def _connect(self) -> None:
        self.addAction(self.actions_on_runs.compare)
        self._group.toggled.connect(self._regroup)
        self._deleted.triggered.connect(self._ask_deleted)
        self._reference.triggered.connect(self._ask_reference)
        self._show_reference.clicked.connect(lambda: self.reference_asked.emit(True))
        self.bar.search.returnPressed.connect(self.table.setFocus)
        self.bar.compare.clicked.connect(self.actions_on_runs.compare.trigger)
        self.bar.restore.clicked.connect(self.actions_on_runs.restore.trigger)
        self.table.chosen_changed.connect(self._show_chosen)
        self.table.fold_asked.connect(self._fold)
        heads = self.table.horizontalHeader()
        heads.sectionClicked.connect(lambda column: self.bar.ask(ordered_by(self.bar.query, column)))
        heads.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        heads.customContextMenuRequested.connect(lambda place: self._columns.popup(heads.mapToGlobal(place)))

    def _build_menus(self) -> None:
        for column, order in zip(COLUMNS, ORDERS, strict=True):
            entry = self._columns.addAction(column.title)
            entry.setCheckable(True)
            entry.setEnabled(order != "run")
            entry.triggered.connect(self._choose_columns)
        sort = QMenu("&Sort by", self)
        for number, column in enumerate(COLUMNS):
            entry = sort.addAction(column.title)
            entry.triggered.connect(lambda _checked, n=number: self.bar.ask(ordered_by(self.bar.query, n)))
        view = QMenu(self.bar.view)
        view.addActions([self._group, self._deleted, self._reference])
        view.addSeparator()
        view.addMenu(sort)
        view.addMenu(self._columns)
        view.addSeparator()
        view.addAction("&Import runs …").triggered.connect(self.import_asked)
        self.bar.view.setMenu(view)

    def _build(self) -> None:
        self._lower.addWidget(self.table)
        self._lower.addWidget(self._empty)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.bar)
        layout.addWidget(self._lower, 1)
        layout.addWidget(rule())
        layout.addWidget(self.foot)
