"""The table of a comparison: its model, how its first columns are painted, and the view."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPoint, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QColor,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QMenu, QStyle, QStyleOptionButton, QStyleOptionViewItem, QWidget

from app.gui.actions import Actions
from app.gui.plot.legend import paint_swatch, swatch_width
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import plain_tooltip
from app.gui.widgets.cell_table import CELL_ROLE, ROW_HEIGHT, AnyIndex, CellDelegate, CellModel, CellTable
from app.viewmodels.compare.table import BASE, RUN, VARIANT, Arrangement, CompareTable, TableRow, table_text
from app.viewmodels.format.cells import Cell

ROW_ROLE = CELL_ROLE + 1
EXPANDER_WIDTH, CHECK_BOX_WIDTH = 16, 16
_SWATCH_WIDTH = 24
MARKS_WIDTH = EXPANDER_WIDTH + CHECK_BOX_WIDTH + _SWATCH_WIDTH + 2 * GRID
"""Width of expander, check box and swatch at the left of the first column."""

_NO_PARENT = QModelIndex()
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
        """Show this table.

        Args:
            table: Its variants and runs.
            arrangement: Order, grouping and unfolded variants.
            hidden: Runs whose curves are not shown.
        """
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
        """Return the row itself or its check state; the rest as in every table."""
        row = self.rows[index.row()]
        if role == ROW_ROLE:
            return row
        if role == Qt.ItemDataRole.CheckStateRole and index.column() == 0:
            return self._check_state(row)
        if role == Qt.ItemDataRole.AccessibleTextRole and self.table.keys[index.column()] == BASE:
            return "baseline" if row.is_baseline else "not the baseline"
        return super().data(index, role)

    def _check_state(self, row: TableRow) -> Qt.CheckState | None:
        if row.style is None:
            return None
        hidden = self.hidden.intersection(row.runs)
        if not hidden:
            return Qt.CheckState.Checked
        return Qt.CheckState.PartiallyChecked if len(hidden) < len(row.runs) else Qt.CheckState.Unchecked


class CompareDelegate(CellDelegate):
    """Paints expander, check box and swatch in the first column and the radio mark of the baseline."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint the cell, then the marks of its column."""
        super().paint(painter, option, index)
        row = index.data(ROW_ROLE)
        area = QRect(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if index.column() == 0:
            self._paint_marks(painter, area, row, index)
        elif index.data(Qt.ItemDataRole.AccessibleTextRole) is not None and row.kind != "member":
            self._paint_radio(painter, area, chosen=row.is_baseline)
        painter.restore()

    def content_area(self, option: QStyleOptionViewItem, index: AnyIndex) -> QRect:
        """Return the area of the text, in the first column right of its marks."""
        area = super().content_area(option, index)
        return area.adjusted(MARKS_WIDTH, 0, 0, 0) if index.column() == 0 else area

    def _paint_marks(self, painter: QPainter, area: QRect, row: TableRow, index: AnyIndex) -> None:
        model = index.model()
        assert isinstance(model, CompareModel)
        middle = area.center().y()
        if row.kind == "variant":
            self._paint_expander(
                painter, QPointF(area.left() + GRID, middle), row.runs[0] in model.arrangement.unfolded
            )
        if row.style is None:
            return
        state = Qt.CheckState(index.data(Qt.ItemDataRole.CheckStateRole))
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
        box = QStyleOptionButton()
        box.rect = area
        on = {Qt.CheckState.Checked: QStyle.StateFlag.State_On, Qt.CheckState.Unchecked: QStyle.StateFlag.State_Off}
        box.state = QStyle.StateFlag.State_Enabled | on.get(state, QStyle.StateFlag.State_NoChange)
        view = self.parent()
        assert isinstance(view, QWidget)
        view.style().drawPrimitive(QStyle.PrimitiveElement.PE_IndicatorCheckBox, box, painter, view)

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


_MAX_ROWS_SHOWN, _MIN_ROWS_SHOWN = 8, 2
_VARIANT_MAX, _VARIANT_PCT = 36 * GRID, 32
"""Largest width of names: in pixels in any window, and in percent of a wide one."""
_BASE_WIDTH = 6 * GRID
_HOST_MAX = 24 * GRID
_ALWAYS_SHOWN = (RUN, BASE, VARIANT)


class CompareTableView(CellTable):
    """Space hides and shows curves, B makes a baseline, arrows fold, Return opens, Ctrl+C copies; so does the mouse.

    `baseline_requested` has the number of a run, `columns_changed` the names of the hidden columns.
    """

    hidden_changed = Signal()
    baseline_requested = Signal(int)
    columns_changed = Signal(object)
    preferred_height_changed = Signal()

    def __init__(self, theme: Theme, actions: Actions) -> None:
        self._actions = actions
        self._model = CompareModel()
        self._hidden_columns: frozenset[str] = frozenset()
        self.preferred_height = 0
        super().__init__(self._model, CompareDelegate(theme), elastic=2, elastic_max=_VARIANT_MAX)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        heads = self.horizontalHeader()
        heads.setSectionsClickable(True)
        heads.sectionClicked.connect(self._sort)
        heads.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        heads.customContextMenuRequested.connect(lambda at: self.columns_menu().popup(heads.mapToGlobal(at)))
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._show_menu)
        self.setAccessibleName("Compared runs")

    def show_table(self, table: CompareTable) -> None:
        """Show this table, arranged like the last one; the current row stays if it is still there."""
        self._show(table, self._model.arrangement)

    def show_by_variant(self, by_variant: bool) -> None:
        """Show one row per variant, or one per run."""
        self._show(self._model.table, replace(self._model.arrangement, by_variant=by_variant))

    def hide_columns(self, names: Collection[str]) -> None:
        """Hide these columns, and those without any value."""
        self._hidden_columns = frozenset(names)
        for n, key in enumerate(self._model.table.keys):
            self.setColumnHidden(n, key in self._hidden_columns or key in self._model.table.empty)
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
        hidden = self._hidden_columns | self._model.table.empty
        text = table_text(self._model.table, self._model.rows, hidden, markdown=markdown)
        QGuiApplication.clipboard().setText(text)

    def columns_menu(self) -> QMenu:
        """Make a menu with a check box for each column with a value."""
        menu = QMenu(self)
        table = self._model.table
        for key, column in zip(table.keys, table.columns, strict=True):
            if key not in _ALWAYS_SHOWN and key not in table.empty:
                entry = QAction(column.title, menu, checkable=True, checked=key not in self._hidden_columns)
                entry.setToolTip(plain_tooltip(column.help))
                entry.toggled.connect(lambda shown, key=key: self._show_column(key, shown))
                menu.addAction(entry)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return menu

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Handle the table's own keys."""
        row, key = self.current_row(), Qt.Key(event.key())
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif row is None:
            super().keyPressEvent(event)
        elif key == Qt.Key.Key_Space:
            self.toggle_runs(row.runs)
        elif key == Qt.Key.Key_B:
            self.baseline_requested.emit(row.runs[0])
        elif key in (Qt.Key.Key_Right, Qt.Key.Key_Left) and row.kind == "variant":
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

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Let names be wider in a wide window."""
        self._elastic_max = max(_VARIANT_MAX, self.width() * _VARIANT_PCT // 100)
        super().resizeEvent(event)

    def width_for(self, column: int, content: int) -> int:
        """Add the width of the marks in the first column."""
        key = self._model.table.keys[column]
        if key == "host":
            return min(content, _HOST_MAX)
        return _BASE_WIDTH if key == BASE else content + MARKS_WIDTH if key == RUN else content

    def _show(self, table: CompareTable, arrangement: Arrangement) -> None:
        row = self.current_row()
        self._model.set_table(table, arrangement, self._model.hidden & _runs(table))
        self._delegate.unit_widths.clear()
        self.fit(table.widest(), title_suffix=" ↓")
        self.hide_columns(self._hidden_columns)
        if self._model.rows:
            self.select_row(next((n for n, each in enumerate(self._model.rows) if row and each.runs[0] in row.runs), 0))
        self._update_heights(len(self._model.rows))

    def _update_heights(self, rows: int) -> None:
        """Limit the height to that of all rows, and of a few; `preferred_height` shows up to eight."""
        frame = 2 * self.frameWidth() + self.horizontalScrollBar().sizeHint().height()
        frame += self.horizontalHeader().sizeHint().height()
        self.setMaximumHeight(frame + ROW_HEIGHT * rows)
        self.setMinimumHeight(frame + ROW_HEIGHT * min(rows, _MIN_ROWS_SHOWN))
        self.preferred_height = frame + ROW_HEIGHT * min(rows, _MAX_ROWS_SHOWN)
        self.preferred_height_changed.emit()

    def _click(self, row: TableRow, key: str, x: float) -> None:
        if key == BASE and row.kind != "member":
            self.baseline_requested.emit(row.runs[0])
        elif key == RUN and x < EXPANDER_WIDTH and row.kind == "variant":
            self._set_expanded(row, expanded=row.runs[0] not in self._model.arrangement.unfolded)
        elif key == RUN and EXPANDER_WIDTH <= x < EXPANDER_WIDTH + CHECK_BOX_WIDTH + GRID and row.style is not None:
            self.toggle_runs(row.runs)

    def _open(self, row: TableRow) -> None:
        if row.kind == "variant":
            self._set_expanded(row, expanded=row.runs[0] not in self._model.arrangement.unfolded)
        else:
            self._actions.open_run(row.runs[0])

    def _set_expanded(self, row: TableRow, *, expanded: bool) -> None:
        before = self._model.arrangement
        expanded_runs = before.unfolded | {row.runs[0]} if expanded else before.unfolded - {row.runs[0]}
        self._show(self._model.table, replace(before, unfolded=expanded_runs))

    def _sort(self, column: int) -> None:
        if self._model.table.keys[column] == BASE:
            return
        numeric = self._model.columns[column].numeric
        self._show(self._model.table, self._model.arrangement.sorted_by(column, numeric=numeric))

    def _show_column(self, key: str, shown: bool) -> None:
        self.hide_columns(self._hidden_columns - {key} if shown else self._hidden_columns | {key})
        self.columns_changed.emit(self._hidden_columns)

    def _show_menu(self, position: QPoint) -> None:
        """Show the menu of the current row."""
        row = self.current_row()
        menu = QMenu(self)
        if row is not None:
            run, alone = row.runs[0], row.kind != "variant"
            for label, act in (
                ("&Open the run" if alone else "&Show or hide its runs", lambda: self._open(row)),
                ("&Run again …", lambda: self._actions.run_again(run)),
                ("Make &baseline", lambda: self.baseline_requested.emit(run)),
                ("&Hide or show its curves", lambda: self.toggle_runs(row.runs)),
            ):
                menu.addAction(label).triggered.connect(act)
            menu.addSeparator()
        menu.addAction("&Copy the table").triggered.connect(self.copy)
        menu.addAction("Copy as &Markdown").triggered.connect(lambda: self.copy(markdown=True))
        columns = self.columns_menu()
        columns.setTitle("Co&lumns")
        menu.addMenu(columns)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.viewport().mapToGlobal(position))


def _runs(table: CompareTable) -> set[int]:
    return {run for variant in table.variants for run in variant.summary.runs}
