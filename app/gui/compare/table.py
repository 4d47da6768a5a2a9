"""The table of a comparison: variants and their runs, fastest first."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QItemSelectionModel, QPoint, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QAction, QColor, QGuiApplication, QKeyEvent, QKeySequence, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QAbstractItemView, QMenu, QStyleOptionViewItem

from app.gui.actions import Actions
from app.gui.plot.legend import paint_swatch, swatch_width
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import ChecksMenu, add_choices, plain_tooltip
from app.gui.widgets.cell_delegate import BOX_LEFT, CHECK_BOX_PX, AnyIndex, CellDelegate, CellModel
from app.gui.widgets.cell_table import CellTable, FrozenColumns
from app.values.plain import plain_spaces
from app.viewmodels.compare.arrangement import Arrangement, table_text
from app.viewmodels.compare.table import BASE, RUN, SPEEDUP, VARIANT, CompareTable, TableRow
from app.viewmodels.format.cells import Cell
from app.viewmodels.format.naming import Name

_SWATCH_WIDTH = 24

_MARKS_COLUMN, _BASELINE_COLUMN = 0, 1
_FLAGS = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemNeverHasChildren
_FLAGS_WITH_BOX = _FLAGS | Qt.ItemFlag.ItemIsUserCheckable
_RADIO, _DOT = 6.0, 3.0
_HIDDEN_ALPHA = 60


class CompareModel(CellModel):
    """The arranged rows; the check state of the first column shows and hides curves."""

    marks_px, marks_title = BOX_LEFT + CHECK_BOX_PX + _SWATCH_WIDTH + 2 * GRID, "Curves"

    def __init__(self) -> None:
        super().__init__(())
        self.table = CompareTable()
        self.rows: Sequence[TableRow] = ()
        self.arrangement = Arrangement()
        self.hidden: frozenset[int] = frozenset()

    def set_table(self, table: CompareTable, arrangement: Arrangement, hidden: Collection[int]) -> None:
        self.beginResetModel()
        self.table, self.arrangement, self.columns = table, arrangement, table.columns
        self.rows = arrangement.rows(table)
        self.order = None if arrangement.column is None else (arrangement.column, arrangement.descending)
        self.hidden = frozenset(hidden)
        self.endResetModel()

    def hide_runs(self, hidden: Collection[int]) -> None:
        self.hidden = frozenset(hidden)
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, 0), [Qt.ItemDataRole.CheckStateRole])

    def row_cells(self, row: int) -> Sequence[Cell]:
        return self.rows[row].cells

    def names(self) -> Collection[Name]:
        return {row.cells[_NAMES].name for row in self.rows}

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return whether a row is the baseline, or the fastest; otherwise as in every table."""
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.AccessibleTextRole and self.table.keys[index.column()] == BASE:
            return "baseline" if row.is_baseline else "not the baseline"
        if role == Qt.ItemDataRole.AccessibleTextRole and row.leads and index.column() == _NAMES:
            return f"{self.data(index)}, {'the fastest' if row.is_fastest else 'measured fastest'}"
        return super().data(index, role)

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        """Return the flags: check boxes are also announced to screen readers."""
        has_box = index.column() == _MARKS_COLUMN and self.rows[index.row()].style is not None
        return _FLAGS_WITH_BOX if has_box else _FLAGS  # Qt calls this three times for each painted cell

    def is_folded(self, row: int) -> bool | None:
        return not self.is_open(self.rows[row]) if self.rows[row].is_parent else None

    def is_open(self, row: TableRow) -> bool:
        """Return whether the rows of a variant or group are visible below it."""
        return (
            row.title not in self.arrangement.folded
            if row.kind == "group"
            else (row.runs[0] in self.arrangement.unfolded)
        )

    def is_head(self, row: int) -> bool:
        return self.rows[row].kind == "group"

    def check_state(self, position: int) -> Qt.CheckState | None:
        row = self.rows[position]
        if row.style is None:
            return None
        hidden = self.hidden.intersection(row.runs)
        if not hidden:
            return Qt.CheckState.Checked
        return Qt.CheckState.PartiallyChecked if len(hidden) < len(row.runs) else Qt.CheckState.Unchecked


class CompareDelegate(CellDelegate):
    """Paints the swatch in the first column and the baseline's radio mark; the fastest has bold name and speed."""

    def paint_cell(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex, cell: Cell) -> None:
        model = index.model()
        assert isinstance(model, CompareModel)
        row = model.rows[index.row()]
        if row.leads and model.table.keys[index.column()] in _LEADING:
            option.font.setBold(True)
        super().paint_cell(painter, option, index, cell)
        if index.column() == _BASELINE_COLUMN and row.kind not in ("member", "group"):
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._paint_radio(painter, QRect(option.rect), chosen=row.is_baseline)

    def paint_row_marks(self, painter: QPainter, area: QRect, position: int, model: CellModel) -> None:
        """Paint the swatch of a row's curves after its expander and check box."""
        super().paint_row_marks(painter, area, position, model)
        assert isinstance(model, CompareModel)
        row, state, middle = model.rows[position], model.check_state(position), area.center().y()
        if row.style is None or state is None:
            return
        colour = self._theme.curve_colour(row.style)
        colour.setAlpha(_HIDDEN_ALPHA if state == Qt.CheckState.Unchecked else 255)
        left = area.left() + BOX_LEFT + CHECK_BOX_PX + GRID + (_SWATCH_WIDTH - swatch_width(row.style)) // 2
        paint_swatch(painter, left, middle, colour, row.style, row.mark, self._theme)

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


_BASE_WIDTH = 6 * GRID
_ALWAYS_SHOWN = (RUN, BASE, VARIANT)
_LEADING = (VARIANT, SPEEDUP)
_NAMES = 2
"""The column of the variants' names."""
_FROZEN_COLUMNS = 3
"""Run, baseline and name stay visible while the others scroll."""


class CompareTableView(CellTable):
    """Space hides and shows curves, B sets the baseline, arrows fold, Return opens, Ctrl+C copies.

    The mouse does the same. `baseline_requested` carries a run's number, `columns_changed` the names of hidden columns,
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
        super().__init__(self._model, CompareDelegate(theme))
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
        """Show this table, arranged like the last one, except for an order chosen for other runs.

        The current row stays if possible, unless it was the fastest.
        """
        is_other = not _runs(self._model.table) <= _runs(table)
        self._show(table, replace(self.arrangement, column=None) if is_other else self.arrangement)

    @property
    def table(self) -> CompareTable:
        return self._model.table

    @property
    def arrangement(self) -> Arrangement:
        return self._model.arrangement

    def arrange(self, arrangement: Arrangement) -> None:
        self._show(self._model.table, arrangement)
        self.arranged.emit(arrangement)
        self.hidden_changed.emit()

    def hide_columns(self, names: Collection[str]) -> None:
        """Hide these columns, those without any value, and those whose rows are all equal."""
        self.hidden_columns = frozenset(names)
        hidden = self.hidden_columns | self._model.table.folded
        self.show_columns([n for n, key in enumerate(self._model.table.keys) if key not in hidden])

    def rows(self) -> list[TableRow]:
        return list(self._model.rows)

    def select_row(self, row: int) -> None:
        """Select a row, even (unlike Qt's `selectRow`) while Ctrl or Shift is held, as in Ctrl+Shift+C."""
        flags = QItemSelectionModel.SelectionFlag
        self.selectionModel().setCurrentIndex(self._model.index(row, 0), flags.ClearAndSelect | flags.Rows)

    def current_row(self) -> TableRow | None:
        index = self.currentIndex()
        return self._model.rows[index.row()] if index.isValid() else None

    @property
    def hidden_runs(self) -> frozenset[int]:
        return self._model.hidden

    def toggle_runs(self, runs: Collection[int]) -> None:
        """Hide the curves of these runs, or show them if all are hidden."""
        visible_runs = set(runs) - self._model.hidden
        self._model.hide_runs(self._model.hidden | visible_runs if visible_runs else self._model.hidden - set(runs))
        self.hidden_changed.emit()

    def copy(self, *, markdown: bool = False) -> None:
        hidden = self.hidden_columns | self._model.table.folded
        text = table_text(self._model.table, self._model.rows, hidden, markdown=markdown)
        QGuiApplication.clipboard().setText(plain_spaces(text))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row, key = self.current_row(), Qt.Key(event.key())
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif key == Qt.Key.Key_Space and row is not None:
            self.toggle_runs(row.runs)
        elif key == Qt.Key.Key_B and row is not None and row.kind != "group":
            self.baseline_requested.emit(row.runs[0])
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and event.button() == Qt.MouseButton.LeftButton:
            row = self._model.rows[index.row()]
            if index.column() == _BASELINE_COLUMN and row.kind not in ("member", "group"):
                self.baseline_requested.emit(row.runs[0])
            elif index.column() and row.kind == "group":
                self.toggle_fold(index.row())
        super().mouseReleaseEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.indexAt(event.position().toPoint()).column() != _BASELINE_COLUMN:
            super().mouseDoubleClickEvent(event)

    def width_for(self, column: int, content: int) -> int:
        return _BASE_WIDTH if column == _BASELINE_COLUMN else super().width_for(column, content)

    def _show(self, table: CompareTable, arrangement: Arrangement) -> None:
        row, is_same = self.current_row(), table is self._model.table
        if not is_same and (not _runs(self._model.table) <= _runs(table) or (row and row.leads)):
            row = None  # another may be the fastest now
        current = self.currentIndex().row() if is_same else None
        self._model.set_table(table, arrangement, self._model.hidden & _runs(table))
        self.fit(table.widest)
        self.hide_columns(self.hidden_columns)
        if self._model.rows:
            rows = self._model.rows
            alike = (
                n
                for n, line in enumerate(rows)
                if row and line.runs[0] in row.runs and (line.kind == "group") == (row.kind == "group")
            )
            leader = next((n for n, line in enumerate(rows) if line.leads), 0)
            self.select_row(next(alike, min(leader if current is None else max(current, 0), len(rows) - 1)))

    def open_row(self, row: int) -> None:
        self._actions.open_run(self._model.rows[row].runs[0])

    def toggle_check(self, row: int) -> None:
        self.toggle_runs(self._model.rows[row].runs)

    def toggle_fold(self, row: int) -> None:
        changed, arrangement = self._model.rows[row], self.arrangement
        if changed.kind == "group":
            self.arrange(replace(arrangement, folded=arrangement.folded ^ {changed.title}))
        else:
            self.arrange(replace(arrangement, unfolded=arrangement.unfolded ^ {changed.runs[0]}))

    def _sort(self, column: int) -> None:
        if self._model.table.keys[column] == BASE:
            return
        numeric = self._model.columns[column].numeric
        self.arrange(self.arrangement.sorted_by(column, numeric=numeric))

    def show_column(self, key: str, is_visible: bool) -> None:
        self.hide_columns(self.hidden_columns - {key} if is_visible else self.hidden_columns | {key})
        self.columns_changed.emit(self.hidden_columns)

    def _show_menu(self, position: QPoint) -> None:
        row = self.current_row()
        menu = QMenu(self)
        if row is not None:
            run, is_group, at = row.runs[0], row.kind == "group", self.currentIndex().row()
            open_or_fold = partial(self.toggle_fold if row.is_parent else self.open_row, at)
            entries: list[tuple[str, Callable[[], object]]] = [
                ("&Fold or unfold" if row.is_parent else "&Open the run", open_or_fold),
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


def _runs(table: CompareTable) -> set[int]:
    return {run for variant in table.variants for run in variant.summary.runs}


def columns_menu(view: CompareTableView) -> QMenu:
    """Return a menu with a check box for each non-empty column of a table; it stays open during changes."""
    menu = ChecksMenu(view)
    for key, column in zip(view.table.keys, view.table.columns, strict=True):
        if key in _ALWAYS_SHOWN or key in view.table.folded:
            continue
        entry = QAction(column.title, menu, checkable=True, checked=key not in view.hidden_columns)
        entry.setToolTip(plain_tooltip(column.help))
        entry.toggled.connect(lambda is_checked, key=key: view.show_column(key, is_checked))
        menu.addAction(entry)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu


def group_menu(view: CompareTableView) -> QMenu:
    """Return a menu of the parameters by which a table's variants may be grouped."""
    menu = QMenu(view)
    titles = ((title.replace("&", "&&"), name) for name, title in (("", "No groups"), *view.table.parameters))

    def group_by(name: str) -> None:
        view.arrange(replace(view.arrangement, group_by=name, folded=frozenset()))

    add_choices(menu, titles, view.arrangement.group_by, group_by)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu
