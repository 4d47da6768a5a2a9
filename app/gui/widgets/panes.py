"""Scroll areas, and splitters whose handles the keyboard also moves."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QLayout, QLayoutItem, QScrollArea, QSplitter, QSplitterHandle, QWidget

from app.gui.theme import GRID


class Scroller(QScrollArea):
    """A scroll area as wide as its content; if `steady`, no wider without a scroll bar. It takes no focus itself."""

    def __init__(self, content: QWidget | None = None, *, horizontal: bool = True, steady: bool = False) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        if content is not None:
            self.setWidget(content)
        if not horizontal:
            self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        if steady:
            self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
            bar = self.verticalScrollBar()
            bar.rangeChanged.connect(lambda least, most: bar.setEnabled(least < most))  # a disabled one is invisible


class PageScroller(QScrollArea):
    """A page that fills the available space, and scrolls if that is too small.

    Qt's own resizing would give wrapped text its preferred height, and scroll in windows of any size.
    """

    def __init__(self, page: QWidget) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._page = page
        self.setWidget(page)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Give the page more height if it now needs more."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return super().eventFilter(watched, event)

    def _fit(self) -> None:
        room, least = self.maximumViewportSize(), self._page.minimumSizeHint()
        if least.width() > room.width():
            room.setHeight(room.height() - self.horizontalScrollBar().sizeHint().height())
        if least.height() > room.height():
            room.setWidth(room.width() - self.verticalScrollBar().sizeHint().width())
        self._page.resize(room.expandedTo(least))


class _SplitterHandle(QSplitterHandle):
    """A handle between two parts that arrow keys also move while it is focused."""

    def __init__(self, orientation: Qt.Orientation, parent: QSplitter) -> None:
        super().__init__(orientation, parent)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Line between two parts")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, across = Qt.Key(event.key()), self.orientation() == Qt.Orientation.Horizontal
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1} if across else {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
        if key in steps:
            line = self.contentsRect().translated(self.pos())  # the handle is wider, to be easy to hit
            position = line.x() if across else line.y()
            self.moveSplitter(self.closestLegalPosition(position + steps[key] * 2 * GRID))
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(self.rect(), self.palette().highlight())
            painter.end()


class _Splitter(QSplitter):
    """A splitter whose handles take the focus."""

    def createHandle(self) -> QSplitterHandle:
        return _SplitterHandle(self.orientation(), self)


def splitter(orientation: Qt.Orientation, first: QWidget, second: QWidget, stretch: tuple[int, int]) -> QSplitter:
    """Return two parts with a movable line between them.

    `stretch` has the shares of the spare room that the two take.
    """
    panes = _Splitter(orientation)
    panes.setChildrenCollapsible(False)
    panes.setHandleWidth(1)
    for widget, share in zip((first, second), stretch, strict=True):
        panes.addWidget(widget)
        panes.setStretchFactor(panes.count() - 1, share)
    return panes


class FlowLayout(QLayout):
    """Places widgets side by side and wraps them into further lines."""

    def __init__(self, parent: QWidget, horizontal_gap: int, vertical_gap: int, *, right: bool = False) -> None:
        """Lay out a widget. Gaps are in pixels; with `right` lines are right-aligned."""
        super().__init__(parent)
        self._right = right
        self._horizontal_gap = horizontal_gap
        self._vertical_gap = vertical_gap
        self._items: list[QLayoutItem] = []
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return max((rect.bottom() + 1 for rect in self._placed(width)), default=0)

    def sizeHint(self) -> QSize:
        sizes = [item.sizeHint() for item in self._items]
        gaps = self._horizontal_gap * max(0, len(sizes) - 1)
        return QSize(sum(size.width() for size in sizes) + gaps, max((size.height() for size in sizes), default=0))

    def minimumSize(self) -> QSize:
        sizes = [item.minimumSize() for item in self._items]
        return QSize(max((s.width() for s in sizes), default=0), max((s.height() for s in sizes), default=0))

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def setGeometry(self, area: QRect) -> None:
        super().setGeometry(area)
        for item, rect in zip(self._items, self._placed(area.width()), strict=True):
            item.setGeometry(rect.translated(area.topLeft()))

    def _placed(self, width: int) -> list[QRect]:
        rects: list[QRect] = []
        position = QPoint(0, 0)
        for item in self._items:
            size = item.sizeHint()
            if item.isEmpty():  # hidden, so without a gap
                rects.append(QRect(position, size))
                continue
            if position.x() and position.x() + size.width() > width:
                position = QPoint(0, max(rect.bottom() + 1 for rect in rects) + self._vertical_gap)
            rects.append(QRect(position, size))
            gap = self._horizontal_gap if size.width() else 0  # hidden items take none
            position = QPoint(position.x() + size.width() + gap, position.y())
        return self._aligned(rects, width)

    def _aligned(self, rects: Sequence[QRect], width: int) -> list[QRect]:
        """Return the items centred vertically in their lines, and lines right-aligned if they end there."""
        ends = {rect.top(): rect.right() + 1 for rect in rects}  # the right edge of each line's last item
        heights = {top: max(rect.height() for rect in rects if rect.top() == top) for top in ends}
        return [
            rect.translated(
                max(0, width - ends[rect.top()]) if self._right else 0, (heights[rect.top()] - rect.height()) // 2
            )
            for rect in rects
        ]


class FlowBar(QWidget):
    """Widgets next to each other, always with room for as many lines as they need."""

    def __init__(self, horizontal_gap: int, vertical_gap: int, *widgets: QWidget, right: bool = False) -> None:
        """Create a bar of widgets with the gaps and alignment of its `FlowLayout`."""
        super().__init__()
        self.flow = FlowLayout(self, horizontal_gap, vertical_gap, right=right)
        for widget in widgets:
            self.flow.addWidget(widget)

    def event(self, event: QEvent) -> bool:
        """Make room for all lines after a change of width or of content."""
        is_handled = super().event(event)
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            self.setMinimumHeight(self.flow.heightForWidth(self.width()))
        return is_handled
