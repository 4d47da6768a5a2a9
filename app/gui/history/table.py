"""The table of stored runs: creates rows near the viewport, and keeps checks and position."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView

from app.gui.history.table_model import HistoryDelegate, HistoryModel, line_runs
from app.gui.theme import Theme
from app.gui.widgets.cell_delegate import ROW_HEIGHT
from app.gui.widgets.cell_table import CellTable, FrozenColumns
from app.queries import RunQuery
from app.viewmodels.history.labels import marked_terms
from app.viewmodels.history.table import COLUMNS, EXPECTED, ORDERS, Group, Line, Listing, widest
from app.viewmodels.plot.panels import Sparks

_NEAR_HEIGHTS = 0.5
"""The number of views above and below that need their rows."""
_SPARKS_DELAY_MS = 150
"""The time without scrolling before curves are read."""
_SPARKS_AT_ONCE = 4
"""Runs whose curves are read together; other reads wait for them."""


class HistoryTable(CellTable):
    """A table that keeps the current run and the first visible one when its lines are replaced.

    Only a check box, Space, Ctrl and Shift change checks; a click or an arrow key moves to another line.
    """

    opened = Signal(int)
    chosen_changed = Signal()
    sparks_requested = Signal(tuple)
    fold_toggled = Signal(int)

    def __init__(self, theme: Theme) -> None:
        self._lines = HistoryModel()
        self._widest = EXPECTED
        super().__init__(self._lines, HistoryDelegate(theme))
        self.shows_deleted = False
        """Whether these runs are in the trash."""
        self.head.hide()  # until there is a listing, as its titles would be cut
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.horizontalHeader().setSectionsClickable(True)
        self.head.box_clicked.connect(
            lambda: self.check_all(checked=self._lines.check_state_of_all() != Qt.CheckState.Checked)
        )
        self._lines.checks_changed.connect(self._show_checks)
        self.verticalScrollBar().valueChanged.connect(self._make_near_rows)
        self._sparks_delay = QTimer(self, interval=_SPARKS_DELAY_MS, singleShot=True)
        self._sparks_delay.timeout.connect(self._request_sparks)
        self.setAccessibleName("Stored runs")
        FrozenColumns(self, self._delegate, 1)

    def show_listing(self, listing: Listing, folded: Iterable[int] | None, *, from_top: bool) -> None:
        """Show the runs of a query. `folded` experiments show only their heads; None shows no groups."""
        self.head.show()
        self.shows_deleted = listing.query.deleted
        marked = marked_terms(listing.query.text)
        self._delegate.marked = {ORDERS.index(order) if order else None: words for order, words in marked.items()}
        self._lines.searched = (*marked.get("", ()), *marked.get("variant", ()))
        self._lines.take_runs(listing.rows, listing.row_view)
        self.show_lines(listing.lines(folded), listing.query, from_top=from_top)

    def show_lines(self, lines: Sequence[Line], query: RunQuery, *, from_top: bool = False) -> None:
        """Replace the lines; the current one and the first visible one stay if possible."""
        current, row, top = self.current_line(), self.currentIndex().row(), self.rowAt(0)
        # None for the very first, so that new lines above it become visible.
        first = self._lines.lines[top] if top > 0 and not from_top else None
        self._lines.set_lines(lines, query)
        self.clearSpans()
        for head, _ in self._lines.group_ranges:
            self.setSpan(head, 0, 1, len(COLUMNS))
        if current is not None and lines:
            new_row = self._lines.line_row(current)
            self.setCurrentIndex(self._lines.index(min(row, len(lines) - 1) if new_row is None else new_row, 0))
        self.verticalScrollBar().setValue((None if first is None else self._lines.line_row(first)) or 0)
        self.chosen_changed.emit()
        self._make_near_rows()

    def chosen(self) -> list[int]:
        """Return the checked runs of the table, oldest first, including those of folded groups."""
        return sorted(self._lines.checked & self._lines.listed)

    @property
    def checked_elsewhere(self) -> int:
        """Return how many checked runs are not in the table."""
        return len(self._lines.checked - self._lines.listed)

    def current_line(self) -> Line | None:
        index = self.currentIndex()
        return self._lines.lines[index.row()] if index.isValid() else None

    def current_runs(self) -> list[int]:
        """Return the run of the current line, or a group's, oldest first."""
        line = self.current_line()
        return sorted(line.runs) if isinstance(line, Group) else [] if line is None else [line]

    def is_current_checked(self) -> bool:
        return not self._lines.checked.isdisjoint(self.current_runs())

    def add_sparks(self, sparks: Mapping[int, Sparks]) -> None:
        """Draw the curves that were read, and request those still missing."""
        self._lines.add_sparks(sparks)
        self._sparks_delay.start()

    def open_current(self) -> None:
        if (row := self.currentIndex().row()) >= 0:
            (self.toggle_fold if self._lines.is_head(row) else self.open_row)(row)

    def open_row(self, row: int) -> None:
        line = self._lines.lines[row]
        if isinstance(line, int):
            self.opened.emit(line)

    def toggle_fold(self, row: int) -> None:
        line = self._lines.lines[row]
        if isinstance(line, Group):
            self.fold_toggled.emit(line.experiment)

    def toggle_check(self, row: int) -> None:
        self.setCurrentIndex(self._lines.index(row, 0))
        is_checked = self._lines.check_state(row) == Qt.CheckState.Checked
        self._lines.check(line_runs(self._lines.lines[row]), checked=not is_checked)

    def check_all(self, *, checked: bool) -> None:
        """Check all runs in the table, or none; runs elsewhere are unchecked too."""
        self._lines.check(self._lines.listed if checked else self._lines.checked, checked=checked)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        before = self.currentIndex().row()
        super().keyPressEvent(event)
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self.currentIndex().row() != before:
            self._check_from(before)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        before, index, held = self.currentIndex().row(), self.indexAt(event.position().toPoint()), event.modifiers()
        changes = held & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
        if event.button() != Qt.MouseButton.LeftButton or not index.isValid() or not changes:
            super().mousePressEvent(event)
        elif held & Qt.KeyboardModifier.ShiftModifier:
            self.setCurrentIndex(index)
            self._check_from(before)
        else:
            self.toggle_check(index.row())

    def _check_from(self, row: int) -> None:
        top, bottom = sorted((max(row, 0), self.currentIndex().row()))
        self._lines.check(
            itertools.chain.from_iterable(map(line_runs, self._lines.lines[top : bottom + 1])), checked=True
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.head.isHidden():
            painter = QPainter(self.viewport())
            painter.drawText(self.viewport().rect(), Qt.AlignmentFlag.AlignCenter, "Reading the runs …")
            painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_near_rows()

    def _make_near_rows(self) -> None:
        """Create the rows in and near the view; columns only grow, so that scrolling does not make them jump."""
        needed = widest((self._widest, *self._lines.make(*self._visible_range(_NEAR_HEIGHTS))))
        if needed != self._widest or not self._content_px:
            self._widest = needed
            self.fit(needed)
        else:
            self._stretch()
        self._sparks_delay.start()

    def _request_sparks(self) -> None:
        """Request the curves of the visible runs, a few at a time, once the view stops moving."""
        if self.isVisible() and (missing := self._lines.without_sparks(*self._visible_range(0.0))):
            self.sparks_requested.emit(missing[:_SPARKS_AT_ONCE])

    def _show_checks(self) -> None:
        for part in (self, self.head):  # groups and the head show how many runs are checked
            part.viewport().update()
        self.chosen_changed.emit()

    def _visible_range(self, heights: float) -> tuple[int, int]:
        """Return the visible lines as first and end, with that many views more on either side."""
        height = self.viewport().height() // ROW_HEIGHT + 1
        first, margin = max(0, self.rowAt(0)), int(heights * height)
        return max(0, first - margin), first + height + margin
