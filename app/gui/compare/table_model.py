"""The rows of a comparison's table: their model, and how its first columns are painted."""

from collections.abc import Collection, Mapping, Sequence

from PySide6.QtCore import QModelIndex, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QStyleOptionViewItem

from app.gui.plot.legend import paint_mark, paint_swatch, swatch_width
from app.gui.theme import GRID
from app.gui.widgets.cell_model import AnyIndex, CellModel
from app.gui.widgets.cell_table import CellDelegate
from app.gui.widgets.text_widths import SYMBOL_ONLY, Face, give_way
from app.viewmodels.compare.arrangement import Arrangement
from app.viewmodels.compare.table import BASE, RUN, VARIANT, CompareTable, TableRow
from app.viewmodels.format.cells import Cell

EXPANDER_WIDTH, CHECK_BOX_WIDTH = 16, 16
_SWATCH_WIDTH = 24
MARKS_WIDTH = EXPANDER_WIDTH + CHECK_BOX_WIDTH + _SWATCH_WIDTH + 2 * GRID
"""Width of expander, check box and swatch at the left of the first column."""

_MARKS = ("outcome", "evidence")
"""The columns of symbols, whose words give way where the width is little."""
_OF_INTEREST = (RUN, BASE, VARIANT, "host", *_MARKS, "throughput", "speedup", "energy")
"""The columns that should be in view without scrolling."""
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

    def divide_width(
        self, content: Mapping[int, int], names: int, least: int, metrics: QFontMetrics, view: int
    ) -> dict[int, int]:
        """Return the widths of the columns up to the last figure of interest, such that they fit if they can.

        Args:
            content: Width of each shown column with everything in it.
            names: Width of the variants' names.
            least: The least width of names.
            metrics: Of the font of the titles.
            view: In pixels.
        """
        keys = self.table.keys
        shown = {n: names if keys[n] == VARIANT else width for n, width in content.items() if keys[n] in _OF_INTEREST}
        marks = [n for n in shown if keys[n] in _MARKS]
        titles = {n: metrics.horizontalAdvance(self.title(n)) + 2 * GRID + 2 for n in marks}
        steps = [
            *({n: width} for n, width in titles.items()),
            *({n: SYMBOL_ONLY} for n in marks),
            {n: least for n in shown if keys[n] == VARIANT},
        ]
        widths = give_way(shown, steps, (), view)
        spare = max(0, view - sum(widths.values()))
        return {n: min(shown[n], width + spare) if keys[n] == VARIANT else width for n, width in widths.items()}

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return the check state of a row and whether it is the baseline; the rest as in every table."""
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.CheckStateRole and index.column() == 0:
            return self.check_state(row)
        if role == Qt.ItemDataRole.AccessibleTextRole and self.table.keys[index.column()] == BASE:
            return "baseline" if row.is_baseline else "not the baseline"
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

    def shortened(self, cell: Cell, index: AnyIndex, face: Face, width: int) -> str:
        """Return what fits of a cell's text that is too long; nothing of an outcome.

        Args:
            cell: The cell.
            index: Its index.
            face: What it is painted in.
            width: In pixels.
        """
        model = index.model()
        if isinstance(model, CompareModel) and model.table.keys[index.column()] in _MARKS:
            return ""
        return super().shortened(cell, index, face, width)

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
