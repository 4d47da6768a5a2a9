"""Tables of runs: columns fit their content, and rows fold and have check boxes."""

from collections.abc import Collection, Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, Qt
from PySide6.QtGui import (
    QFontMetrics,
    QGuiApplication,
    QKeyEvent,
    QLinearGradient,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QFrame, QHeaderView, QMenu, QTableView

from app.gui.theme import GRID, tabular_font
from app.gui.widgets.basic import plain_tooltip
from app.gui.widgets.cell_delegate import (
    BOX_LEFT,
    CHECK_BOX_PX,
    ROW_HEIGHT,
    AnyIndex,
    CellDelegate,
    CellHeader,
    CellModel,
)
from app.gui.widgets.text_widths import (
    MORE_PX,
    PAIR_GAP,
    SMALL_PX,
    SPARK_PX,
    SYMBOL_ONLY,
    ColumnNeeds,
    behind_width,
    content_width,
    divide_width,
    width_in_two_lines,
)
from app.gui.window_state import WindowState
from app.values.units import plural
from app.viewmodels.format.cells import Cell
from app.viewmodels.format.naming import SEPARATOR, Name


class RowsView(QTableView):
    """Rows of one height, painted by a `CellDelegate`."""

    def __init__(self, model: CellModel, delegate: CellDelegate) -> None:
        super().__init__()
        for owned in (model, delegate):
            if owned.parent() is None:
                owned.setParent(self)
        self.setModel(model)
        self.setItemDelegate(delegate)
        self.head = CellHeader(delegate)
        self.setHorizontalHeader(self.head)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setShowGrid(False)
        # The delegate paints the selection: the style's solid accent would hide outcomes' colours.
        self.setStyleSheet("QTableView { selection-background-color: transparent; }")
        rows = self.verticalHeader()
        rows.hide()
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        rows.setDefaultSectionSize(ROW_HEIGHT)

    def currentChanged(self, current: AnyIndex, previous: AnyIndex) -> None:
        """Paint the frame of the current row, where Qt would frame one cell."""
        super().currentChanged(current, previous)
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        index = self.currentIndex()
        if self.hasFocus() and index.isValid() and not self.selectionModel().isSelected(index):
            painter = QPainter(self.viewport())
            painter.setPen(QGuiApplication.palette().highlight().color())  # the view's own is transparent
            row = self.visualRect(index)
            painter.drawRect(0, row.top(), self.viewport().width() - 1, row.height() - 1)
            painter.end()


_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
_PLAIN = (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)


class CellTable(RowsView):
    """A table whose columns shrink by their own rules to fit its width, and whose rows fold and have check boxes."""

    def __init__(self, model: CellModel, delegate: CellDelegate) -> None:
        super().__init__(model, delegate)
        self._cells = model
        self._delegate = delegate
        self._content_px: dict[int, int] = {}
        self._names_px: dict[Name, tuple[int, int]] = {}
        self._state: WindowState | None = None
        self._chosen_widths: dict[str, int] = {}
        self._is_fitting = False
        self._configure()
        self._more = MoreColumns(self)

    def remember_widths(self, state: WindowState) -> None:
        """Store the widths that the user drags, by the columns' titles; a double click on a border removes one."""
        self._state = state
        self._chosen_widths = state.read("widths", {}, dict[str, int])
        header = self.horizontalHeader()
        header.sectionResized.connect(self._choose_width)
        header.sectionHandleDoubleClicked.connect(self._forget_width)

    def setColumnWidth(self, column: int, width: int) -> None:
        titles = [head.title for head in self._cells.columns[column : column + 1]]  # none before there are cells
        self._is_fitting = True
        super().setColumnWidth(column, next((self._chosen_widths.get(title, width) for title in titles), width))
        self._is_fitting = False

    def fit(self, widest: Sequence[Cell], *, bold: bool = False) -> None:
        metrics = QFontMetrics(tabular_font(bold=bold))
        columns = list(enumerate(self._cells.columns))
        self._delegate.pairs = {n for n, column in columns if column.second}
        self._delegate.sparks = {n for n, column in columns if column.has_spark}
        self._content_px = {}
        self._delegate.unit_widths.clear()
        for n, (column, cell) in enumerate(zip(self._cells.columns, widest, strict=True)):
            if column.numeric:
                self._delegate.unit_widths[n] = behind_width(metrics, column, cell)
            sorted_by = " ↓" if self.horizontalHeader().sectionsClickable() else ""
            content = content_width(metrics, column, sorted_by, cell) + (0 if n else self._cells.marks_px)
            self._content_px[n] = self.width_for(n, content)
        self._stretch()

    def width_for(self, column: int, content: int) -> int:
        """Return the width of a column whose text takes `content` pixels."""
        most = self._cells.columns[column].most
        return min(content, most) if most and not self._cells.columns[column].shrink else content

    def show_columns(self, columns: Collection[int]) -> None:
        """Show only these columns."""
        for n in range(len(self._cells.columns)):
            self.setColumnHidden(n, n not in columns)
        self._stretch()

    def open_row(self, row: int) -> None:
        """Open what a row represents, on a double click or Enter."""

    def toggle_fold(self, row: int) -> None: ...
    def toggle_check(self, row: int) -> None: ...
    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, is_plain = Qt.Key(event.key()), event.modifiers() in _PLAIN
        if key == Qt.Key.Key_S and not event.modifiers() and self.horizontalHeader().sectionsClickable():
            self.sort_menu().popup(self.viewport().mapToGlobal(QPoint(0, 0)))
        elif not (is_plain and self.currentIndex().isValid() and self._handle_row_key(key, self.currentIndex().row())):
            super().keyPressEvent(event)

    def _handle_row_key(self, key: Qt.Key, row: int) -> bool:
        """Handle a key for a row; return whether it had an effect."""
        folded, above = self._cells.is_folded(row), self._cells.head_above(row)
        if key == Qt.Key.Key_Space and self._cells.check_state(row) is not None:
            self.toggle_check(row)
        elif folded is not None and (key in _ENTER or key == (Qt.Key.Key_Right if folded else Qt.Key.Key_Left)):
            self.toggle_fold(row)
        elif key in _ENTER:
            self.open_row(row)
        elif key == Qt.Key.Key_Left and folded is None and above is not None:
            self.setCurrentIndex(self._cells.index(above, 0))
        else:
            return False
        return True

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton or not self._click_mark(event):
            super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Open a row, or fold and unfold what it heads; a quick second click on a mark counts as a click."""
        index = self.indexAt(event.position().toPoint())
        if not index.isValid() or event.button() != Qt.MouseButton.LeftButton or self._click_mark(event):
            return
        (self.open_row if self._cells.is_folded(index.row()) is None else self.toggle_fold)(index.row())

    def _click_mark(self, event: QMouseEvent) -> bool:
        """Handle a click on a row's marks; return whether there was one."""
        index = self.indexAt(event.position().toPoint())
        x, row = event.position().x() - self.columnViewportPosition(0), index.row()
        if not index.isValid() or index.column() or x >= self._cells.marks_px:
            return False
        if x < BOX_LEFT and self._cells.is_folded(row) is not None:
            self.toggle_fold(row)
        elif BOX_LEFT <= x < BOX_LEFT + CHECK_BOX_PX + GRID and self._cells.check_state(row) is not None:
            self.toggle_check(row)
        else:
            return False
        return True

    def sort_menu(self) -> QMenu:
        menu, header = QMenu(self), self.horizontalHeader()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for number, column in enumerate(self._cells.columns):
            if not header.isSectionHidden(number):
                entry = menu.addAction(column.title.replace("&", "&&"))
                entry.triggered.connect(lambda _=False, number=number: header.sectionClicked.emit(number))
        return menu

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._stretch()

    def _stretch(self) -> None:
        """Divide the width of the view between the columns; if it is narrow, each shrinks by its own rule."""
        columns, view = self._cells.columns, self.viewport().width()
        widths = {n: width for n, width in self._content_px.items() if n < len(columns) and not self.isColumnHidden(n)}
        chosen = {n: self._chosen_widths[columns[n].title] for n in widths if columns[n].title in self._chosen_widths}
        titles = self.horizontalHeader().fontMetrics()
        needs = {
            n: ColumnNeeds(
                columns[n],
                chosen.get(n, width),
                titles.horizontalAdvance(self._cells.title(n)) + 2 * GRID,
                self._names() if columns[n].shrink == "name" else (),
                is_chosen=n in chosen,
            )
            for n, width in widths.items()
        }
        widths = divide_width(needs, view)
        for column, width in widths.items():
            self._cells.show_title(column, is_visible=columns[column].shrink != "symbol" or width > SYMBOL_ONLY)
            if columns[column].shrink == "plot":  # without its plot a number is right-aligned
                plot_px = SPARK_PX + PAIR_GAP
                self._delegate.unit_widths[column] = 0 if width < needs[column].content else plot_px
            self.setColumnWidth(column, width)
        self._more.place()

    def _names(self) -> list[tuple[int, int]]:
        metrics = QFontMetrics(tabular_font())
        for name in self._cells.names():
            if name not in self._names_px:
                self._names_px[name] = (
                    metrics.horizontalAdvance(SEPARATOR.join(name)) + 2 * GRID + 2,
                    width_in_two_lines(name),
                )
        return [self._names_px[name] for name in self._cells.names()]

    def _choose_width(self, column: int, former: int, width: int) -> None:
        """Record the width of a column that the user dragged; hiding and showing are changes from or to 0."""
        if self._state is not None and not self._is_fitting and former and width:
            self._chosen_widths[self._cells.columns[column].title] = width
            self._state.keep("widths", self._chosen_widths)

    def _forget_width(self, column: int) -> None:
        if self._state is not None:
            self._chosen_widths.pop(self._cells.columns[column].title, None)
            self._state.keep("widths", self._chosen_widths)

    def _configure(self) -> None:
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setWordWrap(False)
        self.setMouseTracking(True)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setMinimumSectionSize(SYMBOL_ONLY)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)


class MoreColumns(QAbstractButton):
    """Lies over the right edge of a table while columns are beyond it, with their number; a click scrolls to them."""

    def __init__(self, table: CellTable) -> None:
        super().__init__(table)
        self._table = table
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        bar = table.horizontalScrollBar()
        self.clicked.connect(lambda: bar.setValue(bar.value() + bar.pageStep() // 2))
        bar.valueChanged.connect(self.place)
        bar.rangeChanged.connect(self.place)
        self.hide()

    def place(self) -> None:
        """Move beside the last complete column, or hide if nothing is beyond the edge."""
        table, header = self._table, self._table.horizontalHeader()
        edge = table.viewport().width() - MORE_PX
        ends = {n: header.sectionViewportPosition(n) + header.sectionSize(n) for n in range(header.count())}
        beyond = [n for n, end in ends.items() if end > edge and not header.isSectionHidden(n)]
        bar = table.horizontalScrollBar()
        self.setVisible(bool(beyond) and bar.value() < bar.maximum())
        titles = (table.model().headerData(n, Qt.Orientation.Horizontal) for n in beyond)
        self.setText(f"+{len(beyond)} ›")
        self.setToolTip(plain_tooltip(f"{len(beyond)} more {plural('column', len(beyond))}: {', '.join(titles)}"))
        frame = table.frameWidth()
        self.setGeometry(frame + edge, frame, MORE_PX, header.height() + table.viewport().height())
        self.raise_()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, palette = QPainter(self), self.palette()
        title = QRect(0, 0, self.width(), self._table.horizontalHeader().height())
        painter.fillRect(self.rect(), palette.base())
        painter.fillRect(title, palette.window())
        painter.setPen(palette.link().color())
        painter.setFont(tabular_font(SMALL_PX))
        painter.drawText(title, Qt.AlignmentFlag.AlignCenter, self.text())
        shade = QLinearGradient(0, 0, self.width(), 0)
        shade.setColorAt(0, Qt.GlobalColor.transparent)
        shade.setColorAt(1, palette.button().color())
        painter.fillRect(self.rect().adjusted(0, title.height(), 0, 0), shade)
        painter.end()


_MAX_SHARE = 0.6
"""The largest share of the table's width for frozen columns."""


class FrozenColumns(RowsView):
    """Shows the first columns of a table over its left edge; clicks on them act on the table.

    It is visible only while the table is scrolled sideways, as in Qt's example of a frozen column
    (https://doc.qt.io/qt-6/qtwidgets-itemviews-frozencolumn-example.html).
    """

    def __init__(self, table: CellTable, delegate: CellDelegate, count: int) -> None:
        """Lie over a table; its first `count` columns stay."""
        model = table.model()
        assert isinstance(model, CellModel)
        super().__init__(model, delegate)
        self.setParent(table)
        self._table, self._count = table, count
        self.setSelectionModel(table.selectionModel())
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        table.horizontalScrollBar().valueChanged.connect(self._place)
        table.verticalScrollBar().valueChanged.connect(self.verticalScrollBar().setValue)
        table.head.sectionResized.connect(self._place)
        self.head.box_clicked.connect(table.head.box_clicked)
        table.viewport().installEventFilter(self)
        self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._place()
        return super().eventFilter(watched, event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._table.mousePressEvent(self._moved(event))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._table.mouseReleaseEvent(self._moved(event))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._table.mouseDoubleClickEvent(self._moved(event))

    def _moved(self, event: QMouseEvent) -> QMouseEvent:
        """Return an event at the position of the table's own cell, as if it were not scrolled."""
        position = event.position() - QPointF(self._table.horizontalScrollBar().value(), 0)
        held = event.button(), event.buttons(), event.modifiers()
        return QMouseEvent(event.type(), position, event.globalPosition(), *held)

    def _place(self) -> None:
        """Cover the first columns if the table is scrolled; the last one leaves room for others."""
        table, header = self._table, self._table.horizontalHeader()
        visible_columns = [n for n in range(min(self._count, header.count())) if not header.isSectionHidden(n)]
        if not table.horizontalScrollBar().value() or not visible_columns:
            self.hide()
            return
        widths = [header.sectionSize(n) for n in visible_columns]
        widths[-1] -= max(0, sum(widths) - round(_MAX_SHARE * table.viewport().width()))
        for n in range(header.count()):
            self.setColumnHidden(n, n not in visible_columns)
        for n, width in zip(visible_columns, widths, strict=True):
            self.setColumnWidth(n, width)
        self.horizontalHeader().setFixedHeight(header.height())
        frame = table.frameWidth()
        self.setGeometry(frame, frame, sum(widths), header.height() + table.viewport().height())
        self.verticalScrollBar().setValue(table.verticalScrollBar().value())
        self.show()
        self.raise_()
