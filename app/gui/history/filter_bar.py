"""The bar above the table of runs: search and filters."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import STRETCH, button, make_row, toggle_button
from app.queries import RunQuery
from app.viewmodels.history.labels import describe_left_out, with_choice
from app.viewmodels.history.table import Listing, is_filtered, with_text


class FilterBar(QWidget):
    """Edits the query; `query_changed` is emitted at each change, even while the user types."""

    query_changed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._listing = Listing()
        self.query = RunQuery()
        self._leave = button("← &All runs", "Leave the deleted runs (Escape)", flat=True)
        self.search = QLineEdit()
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

    def focus_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()

    def _search_changed(self, text: str) -> None:
        if text != self.query.text:
            self.change_query(with_text(self.query, text))

    def _build(self) -> None:
        self.search.setAccessibleName("Search runs")
        self.search.setClearButtonEnabled(True)
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
