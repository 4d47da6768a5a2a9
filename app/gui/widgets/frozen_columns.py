"""The first columns of a table, which stay where they are while the others scroll sideways.

A second view of the same model and selection lies over the first one, as in Qt's example of a frozen column
(https://doc.qt.io/qt-6/qtwidgets-itemviews-frozencolumn-example.html); it is there only while the table is scrolled.
"""

from PySide6.QtCore import QEvent, QObject, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QTableView

from app.gui.widgets.cell_table import ROW_HEIGHT, CellDelegate, CellHeader, CellTable

_MAX_SHARE = 0.6
"""Largest share of the table's width that they take."""


class FrozenColumns(QTableView):
    """Shows the first columns of a table over its left edge; clicks on them are clicks on the table's own."""

    def __init__(self, table: CellTable, delegate: CellDelegate, count: int) -> None:
        """Lie over a table.

        The first `count` columns stay.
        """
        super().__init__(table)
        self._table, self._count = table, count
        self.setModel(table.model())
        self.setSelectionModel(table.selectionModel())
        self.setItemDelegate(delegate)
        self.setHorizontalHeader(CellHeader(delegate))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setShowGrid(False)
        self.setStyleSheet("QTableView { selection-background-color: transparent; }")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        table.horizontalScrollBar().valueChanged.connect(self._place)
        table.verticalScrollBar().valueChanged.connect(self.verticalScrollBar().setValue)
        table.horizontalHeader().sectionResized.connect(self._place)
        table.viewport().installEventFilter(self)
        self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keep the height of the table."""
        if event.type() == QEvent.Type.Resize:
            self._place()
        return super().eventFilter(watched, event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Press the table's own cell."""
        self._pass_on(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Release over the table's own cell."""
        self._pass_on(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Double-click the table's own cell."""
        self._pass_on(event)

    def _pass_on(self, event: QMouseEvent) -> None:
        """Give the table an event where its own cell would be, had it not been scrolled."""
        position = event.position() - QPointF(self._table.horizontalScrollBar().value(), 0)
        handlers = {
            QEvent.Type.MouseButtonPress: self._table.mousePressEvent,
            QEvent.Type.MouseButtonRelease: self._table.mouseReleaseEvent,
            QEvent.Type.MouseButtonDblClick: self._table.mouseDoubleClickEvent,
        }
        moved = QMouseEvent(
            event.type(), position, event.globalPosition(), event.button(), event.buttons(), event.modifiers()
        )
        handlers[event.type()](moved)

    def _place(self) -> None:
        """Take the place of the first columns if the table is scrolled; the last one leaves room for others."""
        table, header = self._table, self._table.horizontalHeader()
        shown = [n for n in range(min(self._count, header.count())) if not header.isSectionHidden(n)]
        if not table.horizontalScrollBar().value() or not shown:
            self.hide()
            return
        widths = [header.sectionSize(n) for n in shown]
        widths[-1] -= max(0, sum(widths) - round(_MAX_SHARE * table.viewport().width()))
        for n in range(header.count()):
            self.setColumnHidden(n, n not in shown)
        for n, width in zip(shown, widths, strict=True):
            self.setColumnWidth(n, width)
        self.horizontalHeader().setFixedHeight(header.height())
        frame = table.frameWidth()
        self.setGeometry(frame, frame, sum(widths), header.height() + table.viewport().height())
        self.verticalScrollBar().setValue(table.verticalScrollBar().value())
        self.show()
        self.raise_()
