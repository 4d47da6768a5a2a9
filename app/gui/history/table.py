"""The table of stored runs: loads rows near the viewport and preserves the selection across updates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView

from app.gui.history.table_model import (
    EXPANDER_WIDTH,
    MARKS,
    VARIANT_MIN,
    ColumnNeeds,
    GroupSelection,
    HistoryDelegate,
    HistoryModel,
    divide_width,
)
from app.gui.theme import GRID, Theme
from app.gui.widgets.cell_table import ROW_HEIGHT, CellTable
from app.gui.widgets.text_widths import SYMBOL_ONLY, content_width, tabular, width_in_two_lines
from app.queries import RunQuery
from app.viewmodels.format.cells import Cell
from app.viewmodels.history.search import marked_terms
from app.viewmodels.history.table import (
    BARE_TITLES,
    COLUMNS,
    DEVICES_COLUMN,
    HOST_COLUMN,
    MATCH_COLUMN,
    ORDERS,
    VARIANT_COLUMN,
    Group,
    HistoryRow,
    Line,
    Listing,
    widest,
)

_WIDTH_MAX = 24 * GRID
"""Of matches, hosts and devices."""
_SORTED = " ↓"
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
        self._content_widths: dict[int, int] = {}
        self._known_widths: dict[str, tuple[int, int]] = {}
        super().__init__(self._lines, HistoryDelegate(theme), elastic=VARIANT_COLUMN, elastic_max=VARIANT_MIN)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setSelectionModel(GroupSelection(self._lines))
        # With all of 10,000 rows chosen a head would ask each one whether it is, for 300 ms a frame.
        self.horizontalHeader().setSelectionModel(QItemSelectionModel(self._lines, self))
        self.horizontalHeader().setSectionsClickable(True)
        self.horizontalHeader().setMinimumSectionSize(SYMBOL_ONLY)
        self.selectionModel().selectionChanged.connect(lambda *_: self.chosen_changed.emit())
        self.verticalScrollBar().valueChanged.connect(self._request_near_rows)
        self.doubleClicked.connect(self._open)
        self.setAccessibleName("Stored runs")

    def show_listing(self, listing: Listing, folded: Iterable[int] | None, *, from_top: bool) -> None:
        """Show the runs of a query.

        Of the experiments that are `folded` only the heads are shown; None shows no groups.
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
        """Show the same runs in other lines."""
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
        is_limited = column in (MATCH_COLUMN, HOST_COLUMN, DEVICES_COLUMN)
        self._content_widths[column] = min(content, _WIDTH_MAX) if is_limited else content
        return self._content_widths[column]

    def _row_after(self, current: Line | None, row: int) -> int | None:
        """Return the row of the current line now; where it is gone, the same row."""
        if current is None or not self._lines.lines:
            return None
        new_row = self._lines.line_row(current)
        return min(row, len(self._lines.lines) - 1) if new_row is None else new_row

    def _stretch(self) -> None:
        """Divide the width of the view between the columns; where it is little, words and units give way."""
        needs = self._needs()
        widths = divide_width(needs, self.viewport().width())
        self._delegate.bare = self._lines.bare = {n for n in needs.bare if widths[n] < needs.content[n]}
        for column, width in widths.items():
            self._lines.show_title(column, shown=column not in MARKS or width > SYMBOL_ONLY)
            self.setColumnWidth(column, width)

    def _needs(self) -> ColumnNeeds:
        """Return the widths that the columns need."""
        metrics = self._metrics()
        chosen = {
            n: self._chosen_widths[each.title] for n, each in enumerate(COLUMNS) if each.title in self._chosen_widths
        }
        shown = {n: width for n, width in self._content_widths.items() if not self.isColumnHidden(n)}
        figures = ((n, self._widest[n], replace(COLUMNS[n], title=BARE_TITLES[n])) for n in BARE_TITLES if n in shown)
        return ColumnNeeds(
            content={**shown, **{n: width for n, width in chosen.items() if n in shown}},
            titles={n: self._title_width(n) for n in MARKS if n in shown},
            bare={
                n: content_width(metrics, column, _SORTED, msgspec.structs.replace(cell, unit=""))
                for n, cell, column in figures
            },
            names={self._name_widths(name, metrics) for name in self._lines.differences},
            chosen=chosen.keys(),
        )

    def _name_widths(self, name: str, metrics: QFontMetrics) -> tuple[int, int]:
        """Return the width that a name needs in one line, and in two."""
        if name not in self._known_widths:
            one_line = metrics.horizontalAdvance(name) + 2 * GRID + 2
            self._known_widths[name] = one_line, width_in_two_lines([name], self.font())
        return self._known_widths[name]

    def _metrics(self) -> QFontMetrics:
        return QFontMetrics(tabular(self.font()))

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
        if needed != self._widest:
            self._widest = needed
            self.fit(needed, title_suffix=_SORTED)
        else:
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


def _true_ranges(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return first and last index of each run of true values."""
    found: list[tuple[int, int]] = []
    for n, flag in enumerate(flags):
        if flag and found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        elif flag:
            found.append((n, n))
    return found
