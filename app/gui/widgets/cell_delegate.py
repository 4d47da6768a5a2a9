"""Tables of runs: their model, and the delegate that paints its cells."""

import html
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from PySide6.QtCore import (
    QAbstractTableModel,
    QBuffer,
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QHelpEvent, QMouseEvent, QPainter, QPalette, QPen, QPolygonF
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionHeader,
    QStyleOptionViewItem,
    QToolTip,
)

from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import painted_pixmap, plain_tooltip
from app.gui.widgets.text_widths import PAIR_GAP, SMALL_PX, SPARK_PX, SYMBOL_WIDTH, Face, elide_name, two_lines
from app.values.records import Floats
from app.viewmodels.format.cells import Bar, Cell, Column
from app.viewmodels.format.naming import SEPARATOR, Name, leave_out

AnyIndex = QModelIndex | QPersistentModelIndex

_NO_PARENT = QModelIndex()


class CellModel(QAbstractTableModel):
    """A model of thousands of rows of cells; nothing is created for a cell before it is painted."""

    marks_px, marks_title = 0, ""
    """Space for expander and check box at the left of the first column, and its title."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = columns
        self.rows: Sequence[Any] = ()
        """The rows, from which `row_cells` creates cells, unless they are cells."""
        self.order: tuple[int, bool] | None = None
        """The column that orders the rows, and whether in descending order."""
        self._untitled: set[int] = set()

    def row_cells(self, row: int) -> Sequence[Cell]:
        cells: Sequence[Cell] = self.rows[row]
        return cells

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def show_rows(self, rows: Sequence[Any], *, is_alike: bool) -> None:
        """Show these rows; if `is_alike`, only figures have changed and the selection stays."""
        if not is_alike:
            self.beginResetModel()
        self.rows = rows
        if not is_alike:
            self.endResetModel()
        elif rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(self.columns) - 1))

    def title(self, column: int) -> str:
        """Return the title, with an arrow if it orders the rows: Qt's own arrow would cover right-aligned text."""
        title = self.columns[column].title
        if self.order is None or column != self.order[0]:
            return title
        return f"{title} {'↓' if self.order[1] else '↑'}"

    def is_folded(self, _row: int) -> bool | None:
        """Return whether the lines below a row are folded; None if it has none."""
        return None

    def is_head(self, _row: int) -> bool:
        return False

    def head_above(self, _row: int) -> int | None:
        return None

    def check_state(self, _row: int) -> Qt.CheckState | None:
        return None

    def check_state_of_all(self) -> Qt.CheckState | None:
        return None

    def names(self) -> Collection[Name]:
        """Return the names in the column of names, which must be readable completely, in at least two lines."""
        return ()

    def columnCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.columns)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return a cell's text and its tooltip; the delegate gets the cell from its row."""
        if role == Qt.ItemDataRole.CheckStateRole:
            return None if index.column() else self.check_state(index.row())
        cell = self.row_cells(index.row())[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return " ".join(filter(None, (", ".join(cell.chips), cell.text, cell.unit)))
        folded = None if index.column() else self.is_folded(index.row())
        if role == Qt.ItemDataRole.AccessibleTextRole and folded is not None:
            return f"{self.data(index)}, {'folded' if folded else 'unfolded'}"
        return plain_tooltip(cell.tooltip) or None if role == Qt.ItemDataRole.ToolTipRole else None

    def show_title(self, column: int, *, is_visible: bool) -> None:
        """Show the title of a column, or hide it for lack of space."""
        if is_visible == (column in self._untitled):
            self._untitled ^= {column}
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, column, column)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return titles, their help and alignment; hidden titles remain for screen readers."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column.numeric else LEFT
        if role == Qt.ItemDataRole.DisplayRole:
            return "" if section in self._untitled else self.title(section)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return self.title(section)
        return plain_tooltip(column.help) if role == Qt.ItemDataRole.ToolTipRole else None


ROW_HEIGHT = 28
_SMALL_LINE = ROW_HEIGHT // 2
"""The height of each line of a two-line name."""

CHECK_BOX_PX = 16
BOX_LEFT = 2 * GRID
"""The left edge of the check box, right of the expander."""
CURVE_SIZE = QSize(40 * GRID, 12 * GRID)

_HIGHLIGHTED = QStyle.StateFlag.State_Selected | QStyle.StateFlag.State_MouseOver
_SELECTED_ALPHA = 46
_MARKED_ALPHA = 64


class CellDelegate(QStyledItemDelegate):
    """Paints the cells of a `CellModel`.

    `unit_widths` has the pixels for the unit in each numeric column; in `pairs` columns something other than a unit
    follows the number, in `sparks` columns a line. `marked` has the lower-case words to highlight in a column's texts,
    or in all columns' (None).
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.faces = Face(tabular_font()), Face(tabular_font(bold=True))
        """The faces of plain rows and of bold ones."""
        self._small = Face(tabular_font(SMALL_PX))
        self.unit_widths: dict[int, int] = {}
        self.pairs: Collection[int] = ()
        self.sparks: Collection[int] = ()
        self.marked: Mapping[int | None, Sequence[str]] = {}

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint the row's background, the marks of its first cell, and the cell."""
        model, row = index.model(), index.row()
        assert isinstance(model, CellModel)
        painter.save()
        if model.is_head(row):
            painter.fillRect(option.rect, QColor(self._theme.colours.window))
            option.font.setBold(True)
        self.paint_background(painter, option)
        if model.marks_px and not index.column():
            self.paint_row_marks(painter, QRect(option.rect), row, model)
        # Not by the index: querying the model through Qt costs as much as painting a short text.
        self.paint_cell(painter, option, index, model.row_cells(row)[index.column()])
        painter.restore()

    def paint_cell(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex, cell: Cell) -> None:
        face = self.faces[option.font.bold()]
        area = self.content_area(option, index)
        if index.column() in self.unit_widths:
            self._paint_quantity(painter, area, cell, index.column(), face)
        else:
            self._paint_text(painter, area, cell, index, face)

    def paint_row_marks(self, painter: QPainter, area: QRect, row: int, model: "CellModel") -> None:
        middle, folded, state = area.center().y(), model.is_folded(row), model.check_state(row)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if folded is not None:
            paint_expander(painter, QPointF(area.left() + GRID, middle + 0.5), self._theme.colours.muted, folded)
        if state is not None:
            self.paint_check_box(painter, area, state)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)

    def paint_check_box(self, painter: QPainter, area: QRect, state: Qt.CheckState) -> None:
        colours, is_empty = self._theme.colours, state == Qt.CheckState.Unchecked
        corner = area.left() + BOX_LEFT, area.center().y() - CHECK_BOX_PX // 2
        box = QRectF(*corner, CHECK_BOX_PX, CHECK_BOX_PX).adjusted(1.5, 1.5, -1.5, -1.5)
        painter.setPen(QPen(QColor(colours.muted if is_empty else colours.accent), 1))
        painter.setBrush(QColor(colours.surface if is_empty else colours.accent))
        painter.drawRoundedRect(box, 3, 3)
        if is_empty:
            return
        painter.setPen(QPen(QColor(colours.on_accent), 1.8))
        left, middle = box.left() + 3, box.center().y()
        tick = [QPointF(left, middle), QPointF(left + 2.5, middle + 2.5), QPointF(box.right() - 3, middle - 3)]
        painter.drawPolyline(tick if state == Qt.CheckState.Checked else [tick[0], QPointF(box.right() - 3, middle)])

    def helpEvent(
        self, event: QHelpEvent, view: QAbstractItemView, option: QStyleOptionViewItem, index: AnyIndex
    ) -> bool:
        model = index.model()
        if event.type() != QEvent.Type.ToolTip or not isinstance(model, CellModel):
            return super().helpEvent(event, view, option, index)
        cells = model.row_cells(index.row())
        drawn = [(column.title, cell) for column, cell in zip(model.columns, cells, strict=True) if cell.spark]
        pictures = "".join(
            f"<p>{html.escape(title)}<br>{_picture(cell.spark, self._theme.colours.accent)}</p>"
            for title, cell in drawn
        )
        QToolTip.showText(event.globalPos(), plain_tooltip(cells[index.column()].tooltip) + pictures, view)
        return True

    def gap(self, column: int) -> int:
        """Return the pixels between a number and what follows it."""
        return PAIR_GAP if column in self.pairs else GRID // 2

    def sizeHint(self, _option: QStyleOptionViewItem, _index: AnyIndex) -> QSize:
        """Return the size of one line; columns get their width from the longest text, not from every cell."""
        return QSize(6 * GRID, ROW_HEIGHT)

    def content_area(self, option: QStyleOptionViewItem, index: AnyIndex) -> QRect:
        """Return the area of a cell's text; in the first column, right of its marks."""
        model = index.model()
        assert isinstance(model, CellModel)
        return QRect(option.rect).adjusted(GRID if index.column() else GRID + model.marks_px, 0, -GRID, 0)

    def paint_background(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        """Paint a selected row in a tint of the accent colour, on which outcomes' colours stay readable."""
        state = option.state
        if not state & _HIGHLIGHTED:  # nearly every cell; each access to Qt's flags costs as much as a short text
            return
        colours = self._theme.colours
        if state & QStyle.StateFlag.State_Selected:
            wash = QColor(colours.accent)
            wash.setAlpha(_SELECTED_ALPHA)
            painter.fillRect(option.rect, wash)
        else:
            painter.fillRect(option.rect, QColor(colours.raised))

    def _paint_quantity(self, painter: QPainter, area: QRect, cell: Cell, column: int, face: Face) -> None:
        colours = self._theme.colours
        unit_width = self.unit_widths[column]
        if cell.bar is not None:
            self._paint_bar(painter, area.adjusted(0, 0, -unit_width, 0), cell.bar)
        tone = self._theme.tone_colour(cell.tone) if cell.tone else colours.text
        painter.setPen(QColor(colours.faint if cell.key is None else tone))
        face.write(painter, area.adjusted(0, 0, -unit_width, 0), cell.text, at_right=True)
        if unit_width and column not in self.sparks:
            painter.setPen(QColor(colours.faint if cell.tone and cell.unit else colours.muted))
            face.write(painter, area.adjusted(area.width() - unit_width + self.gap(column), 0, GRID, 0), cell.unit)
        elif unit_width and cell.spark:
            room = QRectF(area).adjusted(area.width() - SPARK_PX, 6, 0, -6)
            paint_course(painter, room, np.asarray(cell.spark), QColor(colours.muted))

    def _paint_bar(self, painter: QPainter, area: QRect, bar: Bar) -> None:
        colours, line = self._theme.colours, QRectF(area.left(), area.bottom() - 4, area.width(), 3)
        painter.fillRect(line, QColor(colours.raised))
        line.setWidth(bar.share * area.width())
        painter.fillRect(line, QColor(colours.accent if bar.leads else colours.faint))

    def shortened(self, cell: Cell, index: AnyIndex, face: Face, width: int) -> str:
        """Return what fits of a long cell text; nothing of words after a symbol."""
        shrink, name = _shrink(index), cell.name or (cell.text,)
        if shrink == "symbol":
            return ""
        if shrink == "name":
            optional = self.optional_parts(index)
            return SEPARATOR.join(leave_out(name, optional, lambda parts: face.width(SEPARATOR.join(parts)) <= width))
        return elide_name(name, face, width)

    def optional_parts(self, _index: AnyIndex) -> Collection[str]:
        """Return the parts that may be left out of a name; none here."""
        return ()

    def _paint_text(self, painter: QPainter, area: QRect, cell: Cell, index: AnyIndex, face: Face) -> None:
        painter.setPen(QColor(self._theme.tone_colour(cell.tone) if cell.tone else self._theme.colours.text))
        if cell.symbol:
            face.write(painter, area, cell.symbol)
            area = area.adjusted(SYMBOL_WIDTH, 0, 0, 0)
        width, text = area.width(), cell.text
        if face.width(text) > width:
            text = self.shortened(cell, index, face, width)
            if _shrink(index) == "name" and face.width(text) > width:
                self._paint_lines(painter, area, cell.name or (cell.text,), index)
                return
        self.paint_marks(painter, area, text, index.column(), face)
        face.write(painter, area, text)

    def _paint_lines(self, painter: QPainter, area: QRect, name: Name, index: AnyIndex) -> None:
        """Paint a name in two lines of small letters, cut in the middle if it still does not fit."""
        face, width = self._small, area.width()

        def fits(tried: Name) -> bool:
            return max(map(face.width, two_lines(tried, face.width))) <= width

        line = QRect(area.left(), area.center().y() - _SMALL_LINE + 1, width, _SMALL_LINE)
        for text in two_lines(leave_out(name, self.optional_parts(index), fits), face.width):
            excerpt = face.elided(text, Qt.TextElideMode.ElideMiddle, width)
            self.paint_marks(painter, line, excerpt, index.column(), face)
            face.write(painter, line, excerpt)
            line.translate(0, _SMALL_LINE)

    def paint_marks(self, painter: QPainter, area: QRect, text: str, column: int, face: Face) -> None:
        words = (*self.marked.get(None, ()), *self.marked.get(column, ())) if self.marked else ()
        if not words:
            return
        wash = QColor(self._theme.colours.accent)
        wash.setAlpha(_MARKED_ALPHA)
        height = face.metrics.height()
        top = area.center().y() - height // 2
        for match in re.finditer("|".join(map(re.escape, words)), text.lower()):
            left, end = (face.metrics.horizontalAdvance(text[:at]) for at in match.span())
            painter.fillRect(area.left() + left, top, end - left, height, wash)


def _shrink(index: AnyIndex) -> str:
    model = index.model()
    assert isinstance(model, CellModel)
    return model.columns[index.column()].shrink


def paint_expander(painter: QPainter, middle: QPointF, colour: str, folded: bool) -> None:
    """Paint the arrow of foldable lines: right if folded, else down."""
    corners = ((-2, -4), (2, 0), (-2, 4)) if folded else ((-4, -2), (0, 2), (4, -2))
    painter.setPen(QPen(QColor(colour), 1.5))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPolyline(QPolygonF([middle + QPointF(x, y) for x, y in corners]))


def _picture(spark: Sequence[float], colour: str) -> str:
    """Return the HTML of a line in a tooltip."""
    room = QRectF(QPointF(), CURVE_SIZE)
    pixmap = painted_pixmap(CURVE_SIZE, lambda painter: paint_course(painter, room, np.asarray(spark), QColor(colour)))
    stored = QBuffer()
    stored.open(QBuffer.OpenModeFlag.WriteOnly)
    pixmap.save(stored, "PNG")
    return f'<img src="data:image/png;base64,{bytes(stored.data().toBase64().data()).decode()}">'


def paint_course(painter: QPainter, room: QRectF, course: Floats, colour: QColor) -> None:
    """Paint a line of values from 0 to 1 over a wash of its colour; NaN are gaps."""
    wash = QColor(colour)
    wash.setAlpha(_SELECTED_ALPHA)
    indices = np.flatnonzero(np.isfinite(course))
    step = room.width() / max(1, len(course) - 1)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    for part in np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1):
        if len(part) < 2:
            continue
        heights = np.clip(course[part], 0.0, 1.0) * room.height()
        x, y = room.left() + part * step, room.bottom() - heights
        line = [QPointF(*point) for point in zip(x.tolist(), y.tolist(), strict=True)]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(wash)
        foot = [QPointF(line[-1].x(), room.bottom()), QPointF(line[0].x(), room.bottom())]
        painter.drawPolygon(QPolygonF([*line, *foot]))
        painter.setPen(QPen(colour, 1.2))
        painter.drawPolyline(QPolygonF(line))


class CellHeader(QHeaderView):
    """Titles above a table of cells: a number's title is above the number, and what follows it has a separate title.

    `box_clicked` belongs to the check box above all rows.
    """

    box_clicked = Signal()

    def __init__(self, delegate: CellDelegate) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._delegate = delegate

    def paintSection(self, painter: QPainter, area: QRect, section: int) -> None:
        model = self.model()
        assert isinstance(model, CellModel)
        column = model.columns[section]
        unit_width = self._delegate.unit_widths.get(section, 0)
        second = "" if column.has_spark else column.second
        if not (second or column.has_spark) or not unit_width:
            super().paintSection(painter, area, section)
            if not section:
                painter.setPen(self.palette().color(QPalette.ColorRole.PlaceholderText))
                painter.drawText(area.adjusted(BOX_LEFT, 0, 0, 0), LEFT, model.marks_title)
                if (state := model.check_state_of_all()) is not None:
                    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                    self._delegate.paint_check_box(painter, area, state)
            return
        option = QStyleOptionHeader()
        self.initStyleOption(option)
        self.initStyleOptionForIndex(option, section)
        option.rect, option.text = area, ""
        painter.save()
        self.style().drawControl(QStyle.ControlElement.CE_Header, option, painter, self)
        painter.setPen(option.palette.color(QPalette.ColorRole.PlaceholderText))  # the style sheet's muted colour
        inside = area.adjusted(GRID, 0, -GRID, 0)
        painter.drawText(inside.adjusted(0, 0, -unit_width, 0), RIGHT, model.title(section))
        gap = self._delegate.gap(section)
        painter.drawText(inside.adjusted(inside.width() - unit_width + gap, 0, 0, 0), LEFT, second)
        painter.restore()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        model, x = self.model(), event.position().x() - self.sectionViewportPosition(0)
        assert isinstance(model, CellModel)
        is_on_box = BOX_LEFT <= x < BOX_LEFT + CHECK_BOX_PX + GRID and model.check_state_of_all() is not None
        if is_on_box and event.button() == Qt.MouseButton.LeftButton:
            self.box_clicked.emit()
        else:
            super().mousePressEvent(event)
