"""The table of stored runs: loads rows near the viewport and preserves the selection across updates."""

from collections.abc import Iterable, Mapping, Sequence

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView

from app.gui.history.table_model import EXPANDER_WIDTH, GroupSelection, HistoryDelegate, HistoryModel
from app.gui.theme import GRID, Theme
from app.gui.widgets.cell_table import ROW_HEIGHT, SYMBOL_WIDTH, CellTable, tabular
from app.queries import RunQuery
from app.viewmodels.format.cells import Cell
from app.viewmodels.history.search import marked_terms
from app.viewmodels.history.table import (
    ANNOTATIONS_COLUMN,
    COLUMNS,
    DEVICES_COLUMN,
    EVIDENCE_COLUMN,
    HOST_COLUMN,
    MATCH_COLUMN,
    ORDERS,
    OUTCOME_COLUMN,
    VARIANT_COLUMN,
    Group,
    HistoryRow,
    Line,
    Listing,
    widest,
)

_VARIANT_MAX = 24 * GRID
_ANNOTATIONS_MIN = 17 * GRID
_NARROW_ANNOTATIONS = 11 * GRID
_SYMBOL_ONLY = SYMBOL_WIDTH + 2 * GRID
_MARKS = (OUTCOME_COLUMN, EVIDENCE_COLUMN)
"""Columns of symbols; the first gives way before the second, which says less without its title."""
_FIRST_SHARE = 40 * GRID
"""Pixels of spare width: first for variants, then for notes, before variants get more."""
_DEVICES_MAX = 24 * GRID
_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
_NEAR_HEIGHTS, _PAGE_HEIGHTS = 0.5, 2.0
"""Views above and below that need their rows, and views that are read once one lacks them."""


class HistoryTable(CellTable):
    """Table that keeps the selection, the current run and the first visible one when its lines are replaced."""

    opened = Signal(int)
    chosen_changed = Signal()
    rows_requested = Signal(tuple)
    rows_shown = Signal()
    fold_toggled = Signal(int)

    def __init__(self, theme: Theme) -> None:
        self._lines = HistoryModel()
        self._widest: tuple[Cell, ...] = ()
        self._preferred_widths = dict.fromkeys((VARIANT_COLUMN, ANNOTATIONS_COLUMN, OUTCOME_COLUMN, EVIDENCE_COLUMN), 0)
        self._essential_width = 0
        super().__init__(self._lines, HistoryDelegate(theme), elastic=VARIANT_COLUMN, elastic_max=_VARIANT_MAX)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setSelectionModel(GroupSelection(self._lines))
        # With all of 10,000 rows chosen a head would ask each one whether it is, for 300 ms a frame.
        self.horizontalHeader().setSelectionModel(QItemSelectionModel(self._lines, self))
        self.horizontalHeader().setSectionsClickable(True)
        self.selectionModel().selectionChanged.connect(lambda *_: self.chosen_changed.emit())
        self.verticalScrollBar().valueChanged.connect(self._request_near_rows)
        self.doubleClicked.connect(self._open)
        self.setAccessibleName("Stored runs")

    def show_listing(self, listing: Listing, folded: Iterable[int] | None, *, from_top: bool) -> None:
        """Show the runs of a query.

        Args:
            listing: Runs and the rows that were read.
            folded: Experiments whose groups are folded; None shows no groups.
            from_top: Scroll to the top.
        """
        marked = marked_terms(listing.query.text)
        self._delegate.marked = {ORDERS.index(order) if order else None: words for order, words in marked.items()}
        self._lines.searched = (*marked.get("", ()), *marked.get("variant", ()))
        self._lines.mark_outdated()
        self._lines.fill(listing.rows, listing.rows)
        self._widest = _without_matches(self._widest)
        self._fit(listing.rows.values())
        self._set_lines(listing.lines(folded), listing.query, from_top=from_top)
        self._emit_shown()

    def show_lines(self, lines: Sequence[Line], query: RunQuery, *, from_top: bool = False) -> None:
        """Show the same runs in other lines.

        Args:
            lines: Runs and groups in order.
            query: What ordered them.
            from_top: Scroll to the top.
        """
        self._set_lines(lines, query, from_top=from_top)
        self._request_near_rows()

    def show_columns(self, shown: Sequence[str]) -> None:
        """Show these columns, by the names of their orders."""
        for column, order in enumerate(ORDERS):
            self.setColumnHidden(column, order not in shown)
        self._stretch()

    def _set_lines(self, lines: Sequence[Line], query: RunQuery, *, from_top: bool) -> None:
        """Replace the lines; selected runs stay selected, and the first visible one stays first."""
        chosen, current, row = set(self.chosen()), self.current_line(), self.currentIndex().row()
        first = self._first_in_view()
        self._lines.set_lines(lines, query)
        self.clearSpans()
        for top, _ in self._lines.group_ranges():
            self.setSpan(top, 0, 1, len(COLUMNS))
        self._restore_selection(chosen, self._row_after(current, row))
        top_row = None if from_top or first is None else self._lines.line_row(first)
        self.verticalScrollBar().setValue(top_row or 0)
        self.chosen_changed.emit()

    def add_rows(self, requested: Iterable[int], rows: Mapping[int, HistoryRow]) -> None:
        """Show rows that were read for these runs."""
        self._lines.fill(requested, rows)
        self._fit(rows.values())
        self._emit_shown()

    def chosen(self) -> list[int]:
        """Return the selected runs, oldest first, with those of selected folded groups."""
        found: set[int] = set()
        for part in self.selectionModel().selection().toList():
            for line in self._lines.lines[part.top() : part.bottom() + 1]:
                found.update((line,) if isinstance(line, int) else self._lines.folded_runs(line))
        return sorted(found)

    def current_line(self) -> Line | None:
        """Return the current run or group."""
        index = self.currentIndex()
        return self._lines.lines[index.row()] if index.isValid() else None

    def current_run(self) -> int | None:
        """Return the current run, None on a group's line."""
        line = self.current_line()
        return line if isinstance(line, int) else None

    def runs_near(self) -> tuple[int, ...]:
        """Return the visible runs and those near them."""
        return tuple(
            line for line in self._lines.lines[slice(*self._visible_range(_NEAR_HEIGHTS))] if isinstance(line, int)
        )

    def open_current(self) -> None:
        """Open the current run, or fold the current group."""
        if self.currentIndex().isValid():
            self._open(self.currentIndex())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Open the current run by Enter; fold and unfold groups by Enter, Left and Right."""
        line = self.current_line()
        plain = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
        if isinstance(line, int) and event.key() in _ENTER:
            self.opened.emit(line)
        elif not (plain and self._handle_fold_key(event.key(), line)):
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Fold a group whose arrow is clicked."""
        index = self.indexAt(event.position().toPoint())
        line = self._lines.lines[index.row()] if index.isValid() else None
        off_expander = event.position().x() - self.columnViewportPosition(0) > EXPANDER_WIDTH
        if isinstance(line, Group) and not off_expander and event.button() == Qt.MouseButton.LeftButton:
            self.fold_toggled.emit(line.experiment)
        else:
            super().mousePressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Request the rows of lines that came into view."""
        super().resizeEvent(event)
        self._request_near_rows()

    def width_for(self, column: int, content: int) -> int:
        """Limit the width of matches, hosts and devices."""
        if column in self._preferred_widths:
            self._preferred_widths[column] = content
        return min(content, _DEVICES_MAX) if column in (MATCH_COLUMN, HOST_COLUMN, DEVICES_COLUMN) else content

    def _row_after(self, current: Line | None, row: int) -> int | None:
        """Return the row of the current line now; where it is gone, the same row."""
        if current is None or not self._lines.lines:
            return None
        new_row = self._lines.line_row(current)
        return min(row, len(self._lines.lines) - 1) if new_row is None else new_row

    def _stretch(self) -> None:
        """Divide the width that other columns leave between variants and notes; where it is little, words give way.

        A variant needs what tells it from the others. Before the table gets wider than its view, outcome and evidence
        are symbols, whose words are in their tooltips: first under their titles, at last alone.
        """
        preferred, annotations = self._preferred_widths[VARIANT_COLUMN], self._preferred_widths[ANNOTATIONS_COLUMN]
        self._elastic_max = max(_VARIANT_MAX, self._essential_width)
        missing = self._missing_width(self._essential_width + min(annotations, _ANNOTATIONS_MIN))
        widths = {column: self._preferred_widths[column] for column in _MARKS if not self.isColumnHidden(column)}
        titled = [(column, self._title_width(column)) for column in widths]
        alone = [(column, _SYMBOL_ONLY) for column in widths]
        widths[ANNOTATIONS_COLUMN] = min(annotations, _ANNOTATIONS_MIN)
        _shrink(widths, (*titled, (ANNOTATIONS_COLUMN, _NARROW_ANNOTATIONS), *alone), missing)
        for column, width in widths.items():
            self._lines.show_title(column, shown=width > _SYMBOL_ONLY)
            self.setColumnWidth(column, width)
        super()._stretch()
        variant = self.columnWidth(VARIANT_COLUMN)
        first = min(preferred, max(_FIRST_SHARE, self._essential_width))
        spare = variant - first
        if spare > 0 and not self.isColumnHidden(ANNOTATIONS_COLUMN):
            notes = min(spare, min(annotations, _FIRST_SHARE) - widths[ANNOTATIONS_COLUMN])
            notes += max(0, spare - notes - (preferred - first))
            self.setColumnWidth(VARIANT_COLUMN, variant - notes)
            self.setColumnWidth(ANNOTATIONS_COLUMN, widths[ANNOTATIONS_COLUMN] + notes)

    def _missing_width(self, elastic: int) -> int:
        """Return by how much the columns are wider than the view with so many pixels for variants and notes."""
        header, view = self.horizontalHeader(), self.viewport().width()
        shown = (n for n in range(header.count()) if not self.isColumnHidden(n))
        fixed = (n for n in shown if n not in (VARIANT_COLUMN, ANNOTATIONS_COLUMN))
        return elastic - view + sum(self._preferred_widths.get(n, header.sectionSize(n)) for n in fixed)

    def _title_width(self, column: int) -> int:
        """Return the width of a column's title."""
        return self.horizontalHeader().fontMetrics().horizontalAdvance(self._lines.title(column)) + 2 * GRID

    def _handle_fold_key(self, key: int, line: Line | None) -> bool:
        """Fold, unfold, or go from a run to its group; return whether the key does that."""
        if isinstance(line, Group):
            is_folded = bool(self._lines.folded_runs(line))
            toggles = key in _ENTER or key == (Qt.Key.Key_Right if is_folded else Qt.Key.Key_Left)
            if toggles:
                self.fold_toggled.emit(line.experiment)
            return toggles
        above = self._lines.group_above(self.currentIndex().row())
        if key != Qt.Key.Key_Left or above is None:
            return False
        self.setCurrentIndex(self._lines.index(above, 0))
        return True

    def _request_near_rows(self) -> None:
        """Request the rows near the visible ones, more than needed once some are missing."""
        if self._lines.missing(*self._visible_range(_NEAR_HEIGHTS)):
            self.rows_requested.emit(self._lines.missing(*self._visible_range(_PAGE_HEIGHTS)))

    def _visible_range(self, heights: float) -> tuple[int, int]:
        """Return first line and end of the visible lines, with so many views more on either side."""
        height = self.viewport().height() // ROW_HEIGHT + 1
        first, margin = max(0, self.rowAt(0)), int(heights * height)
        return max(0, first - margin), first + height + margin

    def _fit(self, rows: Iterable[HistoryRow]) -> None:
        """Fit the columns to new rows; they only grow, so that nothing jumps while scrolling."""
        needed = widest(rows, self._widest)
        metrics = QFontMetrics(tabular(self.font()))
        essential = max(map(metrics.horizontalAdvance, self._lines.differences), default=0) + 2 * GRID + 2
        if needed != self._widest:
            self._widest, self._essential_width = needed, essential
            self.fit(needed, title_suffix=" ↓")
        elif essential != self._essential_width:
            self._essential_width = essential
            self._stretch()

    def _first_in_view(self) -> Line | None:
        """Return the first visible line; None for the first of all, so that new lines above it show."""
        first = self.rowAt(0)
        return self._lines.lines[first] if first > 0 else None

    def _emit_shown(self) -> None:
        self.rows_shown.emit()
        self._request_near_rows()

    def _open(self, index: QModelIndex) -> None:
        line = self._lines.lines[index.row()]
        if isinstance(line, Group):
            self.fold_toggled.emit(line.experiment)
        else:
            self.opened.emit(line)

    def _restore_selection(self, chosen: set[int], current_row: int | None) -> None:
        selection = QItemSelection()
        last = len(COLUMNS) - 1
        lines = self._lines.lines if chosen else ()
        for first, end in _true_ranges([self._lines.is_chosen(line, chosen) for line in lines]):
            selection.select(self._lines.index(first, 0), self._lines.index(end, last))
        model = self.selectionModel()
        model.blockSignals(True)
        if current_row is not None:
            model.setCurrentIndex(self._lines.index(current_row, 0), QItemSelectionModel.SelectionFlag.NoUpdate)
        model.select(selection, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        model.blockSignals(False)


def _without_matches(widest: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Return the widest cells without that of the matches: another search has others."""
    return tuple(Cell(text="") if n == MATCH_COLUMN else cell for n, cell in enumerate(widest))


def _shrink(widths: dict[int, int], steps: Iterable[tuple[int, int]], missing: int) -> None:
    """Make columns narrower while pixels are missing.

    Args:
        widths: The width of each column, which changes.
        steps: Columns with their next smaller width, in the order in which they give way.
        missing: By how many pixels they are too wide.
    """
    for column, width in steps:
        if missing > 0 and column in widths and width < widths[column]:
            missing -= widths[column] - width
            widths[column] = width


def _true_ranges(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return first and last index of each run of true values."""
    found: list[tuple[int, int]] = []
    for n, flag in enumerate(flags):
        if flag and found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        elif flag:
            found.append((n, n))
    return found
