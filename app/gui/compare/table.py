"""The table of a comparison: variants and their runs from the fastest to the slowest, each with bar and whisker."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QActionGroup,
    QColor,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPen,
)
from PySide6.QtWidgets import QAbstractItemView, QMenu, QStyleOptionViewItem

from app.gui.actions import Actions
from app.gui.plot.legend import paint_mark, paint_swatch, swatch_width
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import ChecksMenu, plain_tooltip
from app.gui.widgets.cell_table import ROW_HEIGHT, AnyIndex, CellDelegate, CellModel, CellTable
from app.gui.widgets.frozen_columns import FrozenColumns
from app.viewmodels.compare.arrangement import Arrangement, table_text
from app.viewmodels.compare.table import BASE, RUN, VARIANT, CompareTable, TableRow
from app.viewmodels.format.cells import Cell

EXPANDER_WIDTH, CHECK_BOX_WIDTH = 16, 16
_SWATCH_WIDTH = 24
MARKS_WIDTH = EXPANDER_WIDTH + CHECK_BOX_WIDTH + _SWATCH_WIDTH + 2 * GRID
"""Width of expander, check box and swatch at the left of the first column."""

_NO_PARENT = QModelIndex()
_MARKS_COLUMN, _BASELINE_COLUMN = 0, 1
_FLAGS = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemNeverHasChildren
_FLAGS_WITH_BOX = _FLAGS | Qt.ItemFlag.ItemIsUserCheckable
_RADIO, _DOT = 6.0, 3.0
_HIDDEN_ALPHA = 60


class CompareModel(CellModel):
    """The arranged rows; the check state of the first column shows and hides curves."""

    def __init__(self) -> None:
        super().__init__(())
        self.table = CompareTable()
        self.rows: Sequence[TableRow] = ()
        self.arrangement = Arrangement()
        self.hidden: frozenset[int] = frozenset()

    def set_table(self, table: CompareTable, arrangement: Arrangement, hidden: Collection[int]) -> None:
        """Show this table."""
        self.beginResetModel()
        self.table, self.arrangement, self.columns = table, arrangement, table.columns
        self.rows = arrangement.rows(table)
        self.hidden = frozenset(hidden)
        self.endResetModel()

    def hide_runs(self, hidden: Collection[int]) -> None:
        """Hide the curves of these runs alone."""
        self.hidden = frozenset(hidden)
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, 0), [Qt.ItemDataRole.CheckStateRole])

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """Return the number of rows, one per variant or run."""
        return 0 if parent.isValid() else len(self.rows)

    def row_cells(self, row: int) -> Sequence[Cell]:
        """Return the cells of a row."""
        return self.rows[row].cells

    def title(self, column: int) -> str:
        """Return the title, with an arrow where the rows are ordered by it."""
        title = super().title(column)
        if column != self.arrangement.column:
            return title
        return f"{title} {'↓' if self.arrangement.descending else '↑'}"

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return the check state of a row and whether it is the baseline; the rest as in every table."""
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.CheckStateRole and index.column() == 0:
            return self.check_state(row)
        if role == Qt.ItemDataRole.AccessibleTextRole and self.table.keys[index.column()] == BASE:
            return "baseline" if row.is_baseline else "not the baseline"
        if role == Qt.ItemDataRole.AccessibleTextRole and row.is_fastest and index.column() == _NAMES:
            return f"{self.data(index)}, the fastest"
        return super().data(index, role)

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        """Return the flags: what has a check box says so to screen readers too."""
        has_box = index.column() == _MARKS_COLUMN and self.rows[index.row()].style is not None
        return _FLAGS_WITH_BOX if has_box else _FLAGS  # Qt looks at them three times for each cell that it paints

    def is_folded(self, row: int) -> bool | None:
        """Return whether the runs of a variant or the variants of a group are folded away; None for one run."""
        return not self.is_open(self.rows[row]) if self.rows[row].is_parent else None

    def is_open(self, row: TableRow) -> bool:
        """Return whether the rows of a variant or of a group are shown below it."""
        return (
            row.title not in self.arrangement.folded
            if row.kind == "group"
            else (row.runs[0] in self.arrangement.unfolded)
        )

    def check_state(self, row: TableRow) -> Qt.CheckState | None:
        """Return whether the curves of all, some or none of a row's runs are shown; None where it has none."""
        if row.style is None:
            return None
        hidden = self.hidden.intersection(row.runs)
        if not hidden:
            return Qt.CheckState.Checked
        return Qt.CheckState.PartiallyChecked if len(hidden) < len(row.runs) else Qt.CheckState.Unchecked


class CompareDelegate(CellDelegate):
    """Paints expander, check box and swatch in the first column and the radio mark of the baseline."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint the cell, then the marks of its column; the head of a group stands out."""
        model = index.model()
        assert isinstance(model, CompareModel)
        row = model.rows[index.row()]
        if row.kind == "group":
            painter.fillRect(option.rect, QColor(self._theme.colours.window))
            option.font.setBold(True)
        elif row.is_fastest and index.column() == _NAMES:
            option.font.setBold(True)
        super().paint(painter, option, index)
        if index.column() not in (_MARKS_COLUMN, _BASELINE_COLUMN):
            return
        area = QRect(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if index.column() == _MARKS_COLUMN:
            self._paint_marks(painter, area, row, model)
        elif row.kind not in ("member", "group"):
            self._paint_radio(painter, area, chosen=row.is_baseline)
        painter.restore()

    def content_area(self, option: QStyleOptionViewItem, index: AnyIndex) -> QRect:
        """Return the area of the text, in the first column right of its marks."""
        area = super().content_area(option, index)
        return area.adjusted(MARKS_WIDTH, 0, 0, 0) if index.column() == 0 else area

    def _paint_marks(self, painter: QPainter, area: QRect, row: TableRow, model: CompareModel) -> None:
        middle = area.center().y()
        if row.is_parent:
            self._paint_expander(painter, QPointF(area.left() + GRID, middle), model.is_open(row))
        state = model.check_state(row)
        if row.style is None or state is None:
            return
        self._paint_check_box(
            painter,
            QRect(area.left() + EXPANDER_WIDTH, middle - CHECK_BOX_WIDTH // 2, CHECK_BOX_WIDTH, CHECK_BOX_WIDTH),
            state,
        )
        colour = self._theme.curve_colour(row.style)
        colour.setAlpha(_HIDDEN_ALPHA if state == Qt.CheckState.Unchecked else 255)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
        left = area.left() + EXPANDER_WIDTH + CHECK_BOX_WIDTH + GRID + (_SWATCH_WIDTH - swatch_width(row.style)) // 2
        paint_swatch(painter, left, middle, colour, row.style)
        if row.mark:
            paint_mark(
                painter, QPointF(left + swatch_width(row.style) / 2, middle + 0.5), colour, row.mark, self._theme
            )

    def _paint_expander(self, painter: QPainter, position: QPointF, expanded: bool) -> None:
        painter.save()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._theme.colours.muted))
        painter.translate(position)
        if expanded:
            painter.rotate(90)
        painter.drawPolygon([QPointF(-2, -4), QPointF(3, 0), QPointF(-2, 4)])
        painter.restore()

    def _paint_check_box(self, painter: QPainter, area: QRect, state: Qt.CheckState) -> None:
        colours, is_empty = self._theme.colours, state == Qt.CheckState.Unchecked
        box = QRectF(area).adjusted(1.5, 1.5, -1.5, -1.5)
        painter.setPen(QPen(QColor(colours.muted if is_empty else colours.accent), 1))
        painter.setBrush(QColor(colours.surface if is_empty else colours.accent))
        painter.drawRoundedRect(box, 3, 3)
        if is_empty:
            return
        painter.setPen(QPen(QColor(colours.on_accent), 1.8))
        left, middle = box.left() + 3, box.center().y()
        tick = [QPointF(left, middle), QPointF(left + 2.5, middle + 2.5), QPointF(box.right() - 3, middle - 3)]
        painter.drawPolyline(tick if state == Qt.CheckState.Checked else [tick[0], QPointF(box.right() - 3, middle)])

    def _paint_radio(self, painter: QPainter, area: QRect, *, chosen: bool) -> None:
        colours = self._theme.colours
        middle = QRectF(area).center()
        painter.setPen(QPen(QColor(colours.accent if chosen else colours.faint), 1.5))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(middle, _RADIO, _RADIO)
        if chosen:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colours.accent))
            painter.drawEllipse(middle, _DOT, _DOT)


_MIN_ROWS_SHOWN = 4
_VARIANT_MAX = 40 * GRID
_BASE_WIDTH = 6 * GRID
_HOST_MAX = 24 * GRID
_ALWAYS_SHOWN = (RUN, BASE, VARIANT)
_NAMES = 2
"""The column of the variants' names."""
_FROZEN_COLUMNS = 3
"""Run, baseline and name stay while the others scroll."""


class CompareTableView(CellTable):
    """Space hides and shows curves, B makes a baseline, arrows fold, Return opens, Ctrl+C copies.

    So does the mouse. `baseline_requested` has the number of a run, `columns_changed` the names of the hidden columns,
    `arranged` the user's new arrangement.
    """

    hidden_changed = Signal()
    baseline_requested = Signal(int)
    columns_changed = Signal(object)
    arranged = Signal(object)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        self._actions = actions
        self._model = CompareModel()
        self.hidden_columns: frozenset[str] = frozenset()
        super().__init__(self._model, CompareDelegate(theme, names=_NAMES), elastic=_NAMES, elastic_max=_VARIANT_MAX)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        heads = self.horizontalHeader()
        heads.setSectionsClickable(True)
        heads.sectionClicked.connect(self._sort)
        heads.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        heads.customContextMenuRequested.connect(lambda at: columns_menu(self).popup(heads.mapToGlobal(at)))
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._show_menu)
        self.setAccessibleName("Compared runs")
        self._frozen = FrozenColumns(self, self._delegate, _FROZEN_COLUMNS)

    def show_table(self, table: CompareTable) -> None:
        """Show this table, arranged like the last one; the current row stays if it is still there."""
        self._show(table, self._model.arrangement)

    @property
    def table(self) -> CompareTable:
        """The table that is shown."""
        return self._model.table

    @property
    def arrangement(self) -> Arrangement:
        """How the rows are arranged."""
        return self._model.arrangement

    def arrange(self, arrangement: Arrangement) -> None:
        """Show the rows in another arrangement."""
        self._show(self._model.table, arrangement)
        self.arranged.emit(arrangement)
        self.hidden_changed.emit()

    def hide_columns(self, names: Collection[str]) -> None:
        """Hide these columns, those without any value, and those whose rows all say the same."""
        self.hidden_columns = frozenset(names)
        for n, key in enumerate(self._model.table.keys):
            self.setColumnHidden(n, key in self.hidden_columns or key in self._model.table.folded)
        self._stretch()

    def rows(self) -> list[TableRow]:
        """Return the rows from top to bottom."""
        return list(self._model.rows)

    def select_row(self, row: int) -> None:
        """Select a row, unlike Qt's `selectRow` also while Ctrl or Shift is held, as in Ctrl+Shift+C."""
        flags = QItemSelectionModel.SelectionFlag
        self.selectionModel().setCurrentIndex(self._model.index(row, 0), flags.ClearAndSelect | flags.Rows)

    def current_row(self) -> TableRow | None:
        """Return the current row."""
        index = self.currentIndex()
        return self._model.rows[index.row()] if index.isValid() else None

    @property
    def hidden_runs(self) -> frozenset[int]:
        """The runs whose curves are hidden."""
        return self._model.hidden

    def toggle_runs(self, runs: Collection[int]) -> None:
        """Hide the curves of these runs, or show them if all are hidden."""
        shown = set(runs) - self._model.hidden
        self._model.hide_runs(self._model.hidden | shown if shown else self._model.hidden - set(runs))
        self.hidden_changed.emit()

    def copy(self, *, markdown: bool = False) -> None:
        """Copy what is shown, tab-separated or as a Markdown table."""
        hidden = self.hidden_columns | self._model.table.folded
        text = table_text(self._model.table, self._model.rows, hidden, markdown=markdown)
        QGuiApplication.clipboard().setText(text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Handle the table's own keys."""
        row, key = self.current_row(), Qt.Key(event.key())
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif row is None:
            super().keyPressEvent(event)
        elif key == Qt.Key.Key_Space:
            self.toggle_runs(row.runs)
        elif key == Qt.Key.Key_B and row.kind != "group":
            self.baseline_requested.emit(row.runs[0])
        elif key in (Qt.Key.Key_Right, Qt.Key.Key_Left) and row.is_parent:
            self._set_expanded(row, expanded=key == Qt.Key.Key_Right)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(row)
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Handle a click on an expander, a check box or a radio mark."""
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and event.button() == Qt.MouseButton.LeftButton:
            x = event.position().x() - self.columnViewportPosition(index.column())
            self._click(self._model.rows[index.row()], self._model.table.keys[index.column()], x)
        super().mouseReleaseEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Open a run, or unfold a variant."""
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and index.column() > 1:
            self._open(self._model.rows[index.row()])

    def width_for(self, column: int, content: int) -> int:
        """Add the width of the marks in the first column."""
        key = self._model.table.keys[column]
        return {"host": min(content, _HOST_MAX), BASE: _BASE_WIDTH, RUN: content + MARKS_WIDTH}.get(key, content)

    def _show(self, table: CompareTable, arrangement: Arrangement) -> None:
        row, same_runs = self.current_row(), table is self._model.table
        before = self.currentIndex().row() if same_runs else 0
        self._model.set_table(table, arrangement, self._model.hidden & _runs(table))
        self._delegate.unit_widths.clear()
        self.fit(table.widest, title_suffix=" ↓")
        self.hide_columns(self.hidden_columns)
        if self._model.rows:
            rows = self._model.rows
            there = (n for n, each in enumerate(rows) if row and _are_alike(each, row) and each.runs[0] in row.runs)
            self.select_row(next(there, min(max(before, 0), len(rows) - 1)))
        self._update_heights(len(self._model.rows))

    def _update_heights(self, rows: int) -> None:
        """Limit the height to that of all rows, and of a few."""
        frame = 2 * self.frameWidth() + self.horizontalScrollBar().sizeHint().height()
        frame += self.horizontalHeader().sizeHint().height()
        self.setMaximumHeight(frame + ROW_HEIGHT * rows)
        self.setMinimumHeight(frame + ROW_HEIGHT * min(rows, _MIN_ROWS_SHOWN))

    def _click(self, row: TableRow, key: str, x: float) -> None:
        if key == BASE and row.kind not in ("member", "group"):
            self.baseline_requested.emit(row.runs[0])
        elif row.kind == "group" or (key == RUN and x < EXPANDER_WIDTH and row.is_parent):
            self._set_expanded(row, expanded=not self._model.is_open(row))
        elif key == RUN and EXPANDER_WIDTH <= x < EXPANDER_WIDTH + CHECK_BOX_WIDTH + GRID and row.style is not None:
            self.toggle_runs(row.runs)

    def _open(self, row: TableRow) -> None:
        if row.is_parent:
            self._set_expanded(row, expanded=not self._model.is_open(row))
        else:
            self._actions.open_run(row.runs[0])

    def _set_expanded(self, row: TableRow, *, expanded: bool) -> None:
        before = self.arrangement
        if row.kind == "group":
            folded = before.folded - {row.title} if expanded else before.folded | {row.title}
            self.arrange(replace(before, folded=folded))
            return
        expanded_runs = before.unfolded | {row.runs[0]} if expanded else before.unfolded - {row.runs[0]}
        self.arrange(replace(before, unfolded=expanded_runs))

    def _sort(self, column: int) -> None:
        if self._model.table.keys[column] == BASE:
            return
        numeric = self._model.columns[column].numeric
        self.arrange(self.arrangement.sorted_by(column, numeric=numeric))

    def show_column(self, key: str, shown: bool) -> None:
        """Show or hide a column, as the user chose."""
        self.hide_columns(self.hidden_columns - {key} if shown else self.hidden_columns | {key})
        self.columns_changed.emit(self.hidden_columns)

    def _show_menu(self, position: QPoint) -> None:
        """Show the menu of the current row."""
        row = self.current_row()
        menu = QMenu(self)
        if row is not None:
            run, is_group = row.runs[0], row.kind == "group"
            entries: list[tuple[str, Callable[[], object]]] = [
                ("&Fold or unfold" if row.is_parent else "&Open the run", lambda: self._open(row)),
                ("Hide or show &curves\tSpace", lambda: self.toggle_runs(row.runs)),
            ]
            if not is_group:
                entries[1:1] = [
                    ("&Run again …", lambda: self._actions.run_again(run)),
                    ("Make &baseline\tB", lambda: self.baseline_requested.emit(run)),
                ]
            for label, act in entries:
                menu.addAction(label).triggered.connect(act)
            menu.addSeparator()
        menu.addAction("&Copy the table").triggered.connect(self.copy)
        menu.addAction("Copy as &Markdown").triggered.connect(lambda: self.copy(markdown=True))
        for title, below in (("&Group by", group_menu(self)), ("Co&lumns", columns_menu(self))):
            below.setTitle(title)
            menu.addMenu(below)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.viewport().mapToGlobal(position))


def _are_alike(one: TableRow, other: TableRow) -> bool:
    """Return whether both rows are heads of groups, or none is."""
    return (one.kind == "group") == (other.kind == "group")


def _runs(table: CompareTable) -> set[int]:
    return {run for variant in table.variants for run in variant.summary.runs}


def columns_menu(view: CompareTableView) -> QMenu:
    """Make a menu with a check box for each column of a table with a value; it stays open while some are changed."""
    menu = ChecksMenu(view)
    for key, column in zip(view.table.keys, view.table.columns, strict=True):
        if key in _ALWAYS_SHOWN or key in view.table.folded:
            continue
        entry = QAction(column.title, menu, checkable=True, checked=key not in view.hidden_columns)
        entry.setToolTip(plain_tooltip(column.help))
        entry.toggled.connect(lambda shown, key=key: view.show_column(key, shown))
        menu.addAction(entry)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu


def group_menu(view: CompareTableView) -> QMenu:
    """Make a menu of the parameters that the variants of a table may be grouped by."""
    menu = QMenu(view)
    group = QActionGroup(menu)
    for name, title in (("", "No groups"), *view.table.parameters):
        entry = QAction(title.replace("&", "&&"), group, checkable=True, checked=name == view.arrangement.group_by)
        entry.triggered.connect(
            lambda _=False, name=name: view.arrange(replace(view.arrangement, group_by=name, folded=frozenset()))
        )
        menu.addAction(entry)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu
