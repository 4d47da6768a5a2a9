"""Tables of runs: the delegate that paints their cells, and a view whose columns fit their content."""

import re
from collections.abc import Collection, Mapping, Sequence

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter, QPalette, QPen, QPolygonF, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionHeader,
    QStyleOptionViewItem,
    QTableView,
)

from app.gui.theme import GRID, LEFT, RIGHT, Theme
from app.gui.widgets.basic import plain_tooltip
from app.gui.widgets.text_widths import (
    PAIR_GAP,
    PLOT_PX,
    SYMBOL_WIDTH,
    DerivedFace,
    Face,
    content_width,
    elide_name,
    small_font,
    tabular,
    two_lines,
    unit_width,
)
from app.gui.window_state import WindowState
from app.viewmodels.format.cells import Cell, Column, Whisker
from app.viewmodels.format.naming import leave_out

AnyIndex = QModelIndex | QPersistentModelIndex

_NO_PARENT = QModelIndex()


class CellModel(QAbstractTableModel):
    """Model of thousands of rows of cells; nothing is made for a cell before it is painted."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = columns
        self._untitled: set[int] = set()

    def row_cells(self, row: int) -> Sequence[Cell]:
        """Return the cells of a row, one per column."""
        raise NotImplementedError

    def title(self, column: int) -> str:
        """Return the title of a column."""
        return self.columns[column].title

    def is_folded(self, _row: int) -> bool | None:
        """Return whether the lines below a row are folded away; None where it has none."""
        return None

    def columnCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self.columns)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return a cell's text and its tooltip; the delegate takes the cell from its row."""
        cell = self.row_cells(index.row())[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return " ".join(filter(None, (", ".join(cell.chips), cell.text, cell.unit)))
        if role == Qt.ItemDataRole.AccessibleTextRole and (folded := self._folded_at(index)) is not None:
            return f"{self.data(index)}, {'folded' if folded else 'unfolded'}"
        return plain_tooltip(cell.tooltip) or None if role == Qt.ItemDataRole.ToolTipRole else None

    def _folded_at(self, index: AnyIndex) -> bool | None:
        return None if index.column() else self.is_folded(index.row())

    def show_title(self, column: int, *, shown: bool) -> None:
        """Show the title of a column, or leave it out where there is no room for it."""
        if shown == (column in self._untitled):
            self._untitled ^= {column}
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, column, column)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return titles, their help and alignment; a title that is not shown is there for screen readers."""
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
_SMALL_LINE = 13
"""Height of each line of a name that takes two."""

_HIGHLIGHTED = QStyle.StateFlag.State_Selected | QStyle.StateFlag.State_MouseOver
_SELECTED_ALPHA = 46
_MARKED_ALPHA = 64


_DOT_PX, _WHISKER_PX, _ARROW_PX = 4.0, 2.0, 6.0


def paint_whisker(painter: QPainter, area: QRectF, whisker: Whisker, colour: QColor) -> None:
    """Paint a dot and its interval into an area, with an arrow where that leaves it."""
    x = [area.left() + area.width() * min(1.0, max(0.0, share)) for share in whisker[:3]]
    y = area.center().y()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(colour, _WHISKER_PX))
    painter.drawLine(QPointF(x[0], y), QPointF(x[2], y))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    for end, leaves, way in ((x[0], whisker.low < 0, _ARROW_PX), (x[2], whisker.high > 1, -_ARROW_PX)):
        if leaves:
            painter.drawPolygon(QPolygonF([QPointF(end, y), QPointF(end + way, y - 4), QPointF(end + way, y + 4)]))
    painter.drawEllipse(QPointF(x[1], y), _DOT_PX, _DOT_PX)


class CellDelegate(QStyledItemDelegate):
    """Paints the cells of a `CellModel`.

    `unit_widths` has the pixels for the unit in each numeric column, `bare` the columns whose units are not shown,
    `pairs` those in which something else than a unit stands behind the number, `plots` those in which something is
    drawn there, by the share at which whiskers have their line. `marked` has the words, in lower case,
    that are marked in the texts of a column, or of all columns (None).
    """

    def __init__(self, theme: Theme, *, names: int = -1) -> None:
        """Make a delegate.

        `names` is the column of names, which take two lines of small letters where one is too short.
        """
        super().__init__()
        self._theme = theme
        self._names = names
        self.tabular = DerivedFace(tabular)
        self._small = DerivedFace(small_font)
        self.unit_widths: dict[int, int] = {}
        self.bare: Collection[int] = ()
        self.pairs: Collection[int] = ()
        self.plots: Mapping[int, float] = {}
        self.marked: Mapping[int | None, Sequence[str]] = {}

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint the row's background and the cell."""
        model = index.model()
        assert isinstance(model, CellModel)
        # Not by the index: to ask the model through Qt costs as much as to paint a short text.
        self.paint_cell(painter, option, index, model.row_cells(index.row())[index.column()])

    def paint_cell(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex, cell: Cell) -> None:
        """Paint the row's background, then symbol, text or number, and unit."""
        painter.save()
        self.paint_background(painter, option)
        face = self.tabular.of(option.font)
        area = self.content_area(option, index)
        if index.column() in self.unit_widths:
            self._paint_quantity(painter, area, cell, index.column(), face)
        else:
            self._paint_text(painter, area, cell, index, face)
        painter.restore()

    def gap(self, column: int) -> int:
        """Return the pixels between a number and what stands behind it."""
        return PAIR_GAP if column in self.pairs else GRID // 2

    def sizeHint(self, _option: QStyleOptionViewItem, _index: AnyIndex) -> QSize:
        """Return the size of one line; columns get their width from the longest text, not from every cell."""
        return QSize(6 * GRID, ROW_HEIGHT)

    def content_area(self, option: QStyleOptionViewItem, _index: AnyIndex) -> QRect:
        """Return the area of a cell's text."""
        return QRect(option.rect).adjusted(GRID, 0, -GRID, 0)

    def paint_background(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        """Paint a selected row as a wash of the accent colour, on which the colours of outcomes stay readable."""
        state = option.state
        if not state & _HIGHLIGHTED:  # nearly every cell; each look at Qt's flags costs as much as a short text
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
        unit_width = 0 if column in self.bare else self.unit_widths[column]
        tone = self._theme.tone_colour(cell.tone) if cell.tone else colours.text
        painter.setPen(QColor(colours.faint if cell.key is None else tone))
        face.write(painter, area.adjusted(0, 0, -unit_width, 0), cell.text, at_right=True)
        if column in self.plots:
            self._paint_plot(painter, area.adjusted(area.width() - unit_width + PAIR_GAP, 0, 0, 0), cell, column)
        elif unit_width:
            painter.setPen(QColor(colours.muted))
            face.write(painter, area.adjusted(area.width() - unit_width + self.gap(column), 0, 0, 0), cell.unit)

    def _paint_plot(self, painter: QPainter, area: QRect, cell: Cell, column: int) -> None:
        """Paint the bar from the line to the value and its whisker, or the line of a series."""
        colours = self._theme.colours
        if cell.whisker is not None:
            x = area.left() + area.width() * self.plots[column]
            end = area.left() + area.width() * min(1.0, max(0.0, cell.whisker.value))
            colour = QColor(colours.accent if cell.whisker.leads else colours.faint if cell.tone else colours.muted)
            bar = QColor(colour)
            bar.setAlpha(_SELECTED_ALPHA)
            painter.fillRect(QRectF(min(x, end), area.top() + GRID, abs(end - x), area.height() - 2 * GRID), bar)
            painter.setPen(QPen(QColor(colours.faint), 1))
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom() + 1))
            paint_whisker(painter, QRectF(area), cell.whisker, colour)
        elif cell.spark:
            step, height = area.width() / (len(cell.spark) - 1), area.height() - 12
            points = [QPointF(area.left() + n * step, area.bottom() - 5 - y * height) for n, y in enumerate(cell.spark)]
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(colours.muted), 1.2))
            painter.drawPolyline(QPolygonF(points))

    def shortened(self, cell: Cell, index: AnyIndex, face: Face, width: int) -> str:
        """Return what fits of a cell's text that is too long."""
        if index.column() == self._names:
            return leave_out(cell.text, self.optional_parts(index), lambda tried: face.width(tried) <= width)
        return elide_name(cell.text, face, width)

    def optional_parts(self, _index: AnyIndex) -> Collection[str]:
        """Return the parts that may be left out of a name; here none."""
        return ()

    def _paint_text(self, painter: QPainter, area: QRect, cell: Cell, index: AnyIndex, face: Face) -> None:
        """Paint a cell that is no number: its symbol, and what fits of its text."""
        painter.setPen(QColor(self._theme.tone_colour(cell.tone) if cell.tone else self._theme.colours.text))
        if cell.symbol:
            face.write(painter, area, cell.symbol)
            area = area.adjusted(SYMBOL_WIDTH, 0, 0, 0)
        width, shown = area.width(), cell.text
        if face.width(shown) > width:
            shown = self.shortened(cell, index, face, width)
            if index.column() == self._names and face.width(shown) > width:
                self._paint_lines(painter, area, cell.text, index, face)
                return
        self.paint_marks(painter, area, shown, index.column(), face)
        face.write(painter, area, shown)

    def _paint_lines(self, painter: QPainter, area: QRect, name: str, index: AnyIndex, whole: Face) -> None:
        """Paint a name in two lines of small letters; what does not fit even so is cut in the middle."""
        face, width = self._small.of(whole.font), area.width()

        def fits(tried: str) -> bool:
            return max(map(face.width, two_lines(tried, face.width))) <= width

        line = QRect(area.left(), area.center().y() - _SMALL_LINE + 1, width, _SMALL_LINE)
        for text in two_lines(leave_out(name, self.optional_parts(index), fits), face.width):
            shown = face.elided(text, Qt.TextElideMode.ElideMiddle, width)
            self.paint_marks(painter, line, shown, index.column(), face)
            face.write(painter, line, shown)
            line.translate(0, _SMALL_LINE)

    def paint_marks(self, painter: QPainter, area: QRect, shown: str, column: int, face: Face) -> None:
        """Paint a wash behind each marked word of a text."""
        words = (*self.marked.get(None, ()), *self.marked.get(column, ())) if self.marked else ()
        if not words:
            return
        wash = QColor(self._theme.colours.accent)
        wash.setAlpha(_MARKED_ALPHA)
        height = face.metrics.height()
        top = area.center().y() - height // 2
        for found in re.finditer("|".join(map(re.escape, words)), shown.lower()):
            left, end = (face.metrics.horizontalAdvance(shown[:at]) for at in found.span())
            painter.fillRect(area.left() + left, top, end - left, height, wash)


class CellHeader(QHeaderView):
    """Titles over a table of cells: a number's stands over the number, and what stands behind it has one of its own."""

    def __init__(self, delegate: CellDelegate) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._delegate = delegate

    def paintSection(self, painter: QPainter, area: QRect, section: int) -> None:
        """Paint the title of a column, and that of what stands behind its numbers."""
        model = self.model()
        assert isinstance(model, CellModel)
        column = model.columns[section]
        second = column.second if column.plot != "spark" else ""
        unit_width = self._delegate.unit_widths.get(section, 0)
        if not (second or column.plot) or not unit_width:
            super().paintSection(painter, area, section)
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


class CellTable(QTableView):
    """Table of whole rows of one height; one elastic column takes the width that the others leave."""

    def __init__(self, model: CellModel, delegate: CellDelegate, *, elastic: int, elastic_max: int) -> None:
        """Make an empty table.

        The preferred width of the `elastic` column has a limit, in pixels.
        """
        super().__init__()
        self._cells = model
        self._delegate = delegate
        self._elastic = elastic
        self._elastic_max = elastic_max
        self._elastic_preferred = 0
        self._state: WindowState | None = None
        self._chosen_widths: dict[str, int] = {}
        self._is_fitting = False
        model.setParent(self)
        delegate.setParent(self)
        self.setModel(model)
        self.setItemDelegate(delegate)
        self.setHorizontalHeader(CellHeader(delegate))
        self._configure()

    def remember_widths(self, state: WindowState) -> None:
        """Keep the widths that the user drags, by the columns' titles; a double click on a border forgets one."""
        self._state = state
        self._chosen_widths = state.read("widths", {}, dict[str, int])
        header = self.horizontalHeader()
        header.sectionResized.connect(self._choose_width)
        header.sectionHandleDoubleClicked.connect(self._forget_width)

    def setColumnWidth(self, column: int, width: int) -> None:
        """Set the width of a column, unless the user has chosen another."""
        titles = [each.title for each in self._cells.columns[column : column + 1]]  # none before there are cells
        self._is_fitting = True
        super().setColumnWidth(column, next((self._chosen_widths.get(title, width) for title in titles), width))
        self._is_fitting = False

    def fit(self, widest: Sequence[Cell], *, title_suffix: str = "") -> None:
        """Give every column the width of its widest cell, or of its title with `title_suffix`."""
        metrics = QFontMetrics(tabular(self.font()))
        columns = list(enumerate(self._cells.columns))
        self._delegate.pairs = {n for n, column in columns if column.second}
        self._delegate.plots = {n: column.reference for n, column in columns if column.plot}
        for n, (column, cell) in enumerate(zip(self._cells.columns, widest, strict=True)):
            if column.numeric:
                second = column.second if cell.unit else ""
                self._delegate.unit_widths[n] = (
                    max(unit_width(metrics, each, self._delegate.gap(n)) for each in (cell.unit, second))
                    if not column.plot
                    else PLOT_PX[column.plot] + PAIR_GAP
                )
            width = self.width_for(n, content_width(metrics, column, title_suffix, cell))
            if n == self._elastic:
                self._elastic_preferred = width
            else:
                self.setColumnWidth(n, width)
        self._stretch()

    def width_for(self, _column: int, content: int) -> int:
        """Return the width of a column whose text takes `content` pixels."""
        return content

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Offer on S what a click on a title does."""
        if event.key() == Qt.Key.Key_S and not event.modifiers() and self.horizontalHeader().sectionsClickable():
            self.sort_menu().popup(self.viewport().mapToGlobal(QPoint(0, 0)))
        else:
            super().keyPressEvent(event)

    def sort_menu(self) -> QMenu:
        """Make a menu of the columns in sight, each of which sorts as its title does."""
        menu, header = QMenu(self), self.horizontalHeader()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for number, column in enumerate(self._cells.columns):
            if not header.isSectionHidden(number):
                entry = menu.addAction(column.title.replace("&", "&&"))
                entry.triggered.connect(lambda _=False, number=number: header.sectionClicked.emit(number))
        return menu

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the elastic column what the others leave."""
        super().resizeEvent(event)
        self._stretch()

    def _stretch(self) -> None:
        """Stretch the elastic column; the table scrolls sideways where the others leave less than it prefers."""
        header = self.horizontalHeader()
        others = sum(header.sectionSize(n) for n in range(header.count()) if n != self._elastic)
        preferred = min(self._elastic_preferred, self._elastic_max)
        self.setColumnWidth(self._elastic, max(preferred, self.viewport().width() - others))

    def _choose_width(self, column: int, before: int, width: int) -> None:
        """Remember the width of a column that the user dragged; hiding one and showing it is a change from or to 0."""
        if self._state is not None and not self._is_fitting and before and width:
            self._chosen_widths[self._cells.columns[column].title] = width
            self._state.keep("widths", self._chosen_widths)

    def _forget_width(self, column: int) -> None:
        if self._state is not None:
            self._chosen_widths.pop(self._cells.columns[column].title, None)
            self._state.keep("widths", self._chosen_widths)

    def _configure(self) -> None:
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setShowGrid(False)
        # The delegate paints the selection: the style's solid accent would swallow the colours of outcomes.
        self.setStyleSheet("QTableView { selection-background-color: transparent; }")
        self.setWordWrap(False)
        self.setMouseTracking(True)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        rows = self.verticalHeader()
        rows.hide()
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        rows.setDefaultSectionSize(ROW_HEIGHT)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setMinimumSectionSize(5 * GRID)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
