"""The bar above the table of runs: search, filters, saved filters, and the main actions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QInputDialog, QLineEdit, QMenu, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import button
from app.queries import RunQuery
from app.viewmodels.format.cells import OUTCOMES, local_time
from app.viewmodels.history.search import describe_left_out
from app.viewmodels.history.table import Listing, is_filtered, unordered, with_text

_FILTER_MIN_WIDTH, _FILTER_MAX_WIDTH = 8 * GRID, 18 * GRID
_LIST_MAX_WIDTH = 64 * GRID
_NAME_LENGTH = 24

Value = TypeVar("Value", str, int | None)


class FilterBar(QWidget):
    """Edits the query; `query_changed` is emitted at each change, also while the user types."""

    query_changed = Signal(object)
    filter_saved = Signal(str, object)
    filter_deleted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._listing = Listing()
        self._query = RunQuery()
        self._leave = button("← &All runs", "Leave the deleted runs (Escape)", flat=True)
        self.search = QLineEdit()
        self._more = button("", "Search these too", flat=True)
        self._workload = _filter_combo("Workload shown")
        self._outcome = _filter_combo("Outcome shown")
        self._tag = _filter_combo("Tag shown")
        self._experiment = _filter_combo("Experiment shown")
        self._filters = button("Filters", "Saved filters")
        self.view = button("View", "Groups, columns, deleted runs, reference runs, import")
        self.compare = button("Compare", "Compare the selected runs (Ctrl+Shift+C)", primary=True)
        self.restore = button("Restore", "Restore the selected runs from the trash (R)", primary=True)
        self._build()

    @property
    def query(self) -> RunQuery:
        """The current query, whether its runs are shown yet or not."""
        return self._query

    def show_listing(self, listing: Listing) -> None:
        """Show the choices of the filters and the query."""
        self._listing, self._query = listing, listing.query
        facets, query = listing.options.facets, listing.query
        ends = {name: words for name, words in OUTCOMES.items() if name in facets.outcomes}
        outcomes = {name: f"{words.symbol}  {words.word}" for name, words in ends.items()}
        experiments: dict[int | None, str] = {
            found.experiment: f"{found.name} · {local_time(found.created_utc_ns, None)}"
            for found in listing.options.experiments
        }
        _fill_combo(self._workload, "All workloads", _labels(facets.workloads), query.workload, "")
        _fill_combo(self._outcome, "All outcomes", outcomes, query.outcome, "")
        _fill_combo(self._tag, "All tags", _labels(facets.tags), query.tag, "")
        _fill_combo(self._experiment, "All experiments", experiments, query.experiment, None)
        if self.search.text() != query.text:
            self.search.setText(query.text)
        self.search.setPlaceholderText("Search deleted runs (Ctrl+F)" if query.deleted else "Search runs (Ctrl+F)")
        self._more.setText(describe_left_out(listing.found))
        self._more.setVisible(listing.found.left_out > 0)
        self._filters.setText(_shortened(listing.filter_name) or "Filters")
        self._filters.setVisible(bool(listing.options.filters or facets.total))
        self._leave.setVisible(query.deleted)
        self.compare.setVisible(not query.deleted)
        self.restore.setVisible(query.deleted)

    def change_query(self, query: RunQuery) -> None:
        """Change the query."""
        self._query = query
        self.query_changed.emit(query)

    def clear(self) -> None:
        """Remove every filter; without any, leave the trash."""
        if is_filtered(self._query):
            self.show_deleted(self._query.deleted)
        elif self._query.deleted:
            self.show_deleted(False)

    def show_deleted(self, deleted: bool) -> None:
        """Query the runs in the trash, or all others, without filters."""
        self.change_query(RunQuery(deleted=deleted, order=self._query.order, descending=self._query.descending))

    def focus_search(self) -> None:
        """Focus the search field."""
        self.search.setFocus()
        self.search.selectAll()

    def _search_changed(self, text: str) -> None:
        if text != self._query.text:
            self.change_query(with_text(self._query, text))

    def _filter_chosen(self) -> None:
        self.change_query(
            replace(
                self._query,
                workload=self._workload.currentData(),
                outcome=self._outcome.currentData(),
                tag=self._tag.currentData(),
                experiment=self._experiment.currentData(),
            )
        )

    def _fill_filters(self, menu: QMenu) -> None:
        """Fill the menu with the saved filters, then with what can be done with the current one."""
        menu.clear()
        in_force = self._listing.filter_name
        for name, query in self._listing.options.filters.items():
            entry = menu.addAction(_shortened(name).replace("&", "&&"))
            entry.setCheckable(True)
            entry.setChecked(name == in_force)
            entry.triggered.connect(lambda _checked, query=query: self.change_query(query))
        menu.addSeparator()
        save = menu.addAction("&Save these filters …")
        save.setEnabled(unordered(self._query) != RunQuery() and not in_force)
        save.triggered.connect(self._ask_name)
        delete = menu.addAction("&Delete this filter")
        delete.setEnabled(bool(in_force))
        delete.triggered.connect(lambda: self.filter_deleted.emit(in_force))

    def _ask_name(self) -> None:
        box = QInputDialog(self)
        box.setWindowTitle("Save these filters")
        box.setLabelText("Name:")
        box.setOkButtonText("&Save")
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.textValueSelected.connect(lambda name: self.filter_saved.emit(name, self._query))
        box.open()

    def _build(self) -> None:
        self.search.setAccessibleName("Search runs")
        self.search.setClearButtonEnabled(True)
        self.search.setMinimumWidth(16 * GRID)
        self.search.setMaximumWidth(40 * GRID)
        self._more.clicked.connect(lambda: self.search.setText(self._listing.found.wider))
        self._leave.clicked.connect(lambda: self.show_deleted(False))
        self.search.textChanged.connect(self._search_changed)
        saved = QMenu(self._filters)
        saved.aboutToShow.connect(lambda: self._fill_filters(saved))
        self._filters.setMenu(saved)
        for opener in (self._filters, self.view):
            opener.setProperty("menu", "true")
        self._filters.setAccessibleName("Saved filters")
        bar = QHBoxLayout(self)
        bar.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        bar.setSpacing(GRID)
        bar.addWidget(self._leave)
        bar.addWidget(self.search, 1)
        bar.addWidget(self._more)
        for combo in (self._workload, self._outcome, self._tag, self._experiment):
            combo.activated.connect(self._filter_chosen)
            bar.addWidget(combo)
        bar.addWidget(self._filters)
        bar.addWidget(self.view)
        bar.addStretch(1)
        bar.addWidget(self.restore)
        bar.addWidget(self.compare)


def _labels(names: Mapping[str, int]) -> dict[str, str]:
    return {name: name for name in names}


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


def _filter_combo(name: str) -> QComboBox:
    made = QComboBox()
    made.setAccessibleName(name)
    made.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
    made.setMinimumWidth(_FILTER_MIN_WIDTH)
    made.setMaximumWidth(_FILTER_MAX_WIDTH)
    return made


def _fill_combo(combo: QComboBox, unset_label: str, choices: Mapping[Value, str], chosen: Value, unset: Value) -> None:
    """Fill a filter, unless it has just these choices already; hide it without any."""
    items: dict[Value, str] = {unset: unset_label, **choices}
    if chosen not in items:
        items[chosen] = str(chosen)
    if {combo.itemData(n): combo.itemText(n) for n in range(combo.count())} != items:
        combo.clear()
        for value, label in items.items():
            combo.addItem(label, value)
        combo.view().setMinimumWidth(min(combo.view().sizeHintForColumn(0) + 4 * GRID, _LIST_MAX_WIDTH))
    combo.setCurrentIndex(list(items).index(chosen))
    combo.setVisible(len(items) > 1)
