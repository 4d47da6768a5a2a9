"""Scroll areas, and splitters whose lines the keyboard moves too."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QScrollArea, QSplitter, QSplitterHandle, QWidget

from app.gui.theme import GRID


class Scroller(QScrollArea):
    """Scroll area as wide as its content may be, and no wider without a bar if `steady`; it takes no focus itself."""

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
            bar.rangeChanged.connect(lambda least, most: bar.setEnabled(least < most))  # a disabled one is not seen


class PageScroller(QScrollArea):
    """A page that fills the room there is, and scrolls where that is less than it needs.

    Qt's own resizing would give wrapped text the height that it likes best, and scroll in windows of any size.
    """

    def __init__(self, page: QWidget) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._page = page
        self.setWidget(page)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the page the room."""
        super().resizeEvent(event)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Give the page more room where it needs more than before."""
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
    """A line between two parts that arrows move too, while it has the keyboard."""

    def __init__(self, orientation: Qt.Orientation, parent: QSplitter) -> None:
        super().__init__(orientation, parent)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Line between two parts")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the line."""
        key, across = Qt.Key(event.key()), self.orientation() == Qt.Orientation.Horizontal
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1} if across else {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
        if key in steps:
            line = self.contentsRect().translated(self.pos())  # the handle is wider, to be easy to hit
            position = line.x() if across else line.y()
            self.moveSplitter(self.closestLegalPosition(position + steps[key] * 2 * GRID))
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Show that it has the keyboard."""
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(self.rect(), self.palette().highlight())
            painter.end()


class _Splitter(QSplitter):
    """A splitter whose lines take the keyboard."""

    def createHandle(self) -> QSplitterHandle:
        """Make a line."""
        return _SplitterHandle(self.orientation(), self)


def splitter(orientation: Qt.Orientation, first: QWidget, second: QWidget, stretch: tuple[int, int]) -> QSplitter:
    """Make two parts with a movable line between them.

    `stretch` has the shares of the spare room that the two take.
    """
    panes = _Splitter(orientation)
    panes.setChildrenCollapsible(False)
    panes.setHandleWidth(1)
    for widget, share in zip((first, second), stretch, strict=True):
        panes.addWidget(widget)
        panes.setStretchFactor(panes.count() - 1, share)
    return panes
