"""Widgets side by side, in as many lines as they need."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget


class FlowLayout(QLayout):
    """Places widgets side by side and wraps them into further lines."""

    def __init__(self, parent: QWidget, horizontal_gap: int, vertical_gap: int, *, right: bool = False) -> None:
        """Lay out a widget.

        Gaps are in pixels; with `right` lines end at the right.
        """
        super().__init__(parent)
        self._right = right
        self._horizontal_gap = horizontal_gap
        self._vertical_gap = vertical_gap
        self._items: list[QLayoutItem] = []
        self._rects: dict[int, list[QRect]] = {}
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem) -> None:
        """Append an item."""
        self._items.append(item)
        self._rects.clear()

    def invalidate(self) -> None:
        """Forget where the items are: one of them has changed its size, or whether it is shown."""
        self._rects.clear()
        super().invalidate()

    def count(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        """Return the item at an index, None past the end."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        """Remove and return the item at an index."""
        self._rects.clear()
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def hasHeightForWidth(self) -> bool:
        """Return True: a smaller width takes more lines."""
        return True

    def heightForWidth(self, width: int) -> int:
        """Return the height of all lines at a width, in pixels."""
        return max((rect.bottom() + 1 for rect in self._item_rects(width)), default=0)

    def sizeHint(self) -> QSize:
        """Return the size of all items in one line."""
        sizes = [item.sizeHint() for item in self._items]
        gaps = self._horizontal_gap * max(0, len(sizes) - 1)
        return QSize(sum(size.width() for size in sizes) + gaps, max((size.height() for size in sizes), default=0))

    def minimumSize(self) -> QSize:
        """Return the size of the widest and the highest item."""
        sizes = [item.minimumSize() for item in self._items]
        return QSize(max((s.width() for s in sizes), default=0), max((s.height() for s in sizes), default=0))

    def expandingDirections(self) -> Qt.Orientation:
        """Return none: spare room stays empty."""
        return Qt.Orientation(0)

    def setGeometry(self, area: QRect) -> None:
        """Place all items within an area."""
        super().setGeometry(area)
        rects = self._item_rects(area.width())
        self._rects = {area.width(): rects}  # or a window that is made wider would leave one for each pixel
        for item, rect in zip(self._items, rects, strict=True):
            item.setGeometry(rect.translated(area.topLeft()))

    def _item_rects(self, width: int) -> list[QRect]:
        """Return where the items are, found once for a width: Qt asks for the height many times in a layout."""
        if width not in self._rects:
            self._rects[width] = self._placed(width)
        return self._rects[width]

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
            gap = self._horizontal_gap if size.width() else 0  # what is hidden takes none
            position = QPoint(position.x() + size.width() + gap, position.y())
        return self._aligned(rects, width)

    def _aligned(self, rects: Sequence[QRect], width: int) -> list[QRect]:
        """Return the items in the middle of their lines' heights, and the lines at the right where they end there."""
        ends = {rect.top(): rect.right() + 1 for rect in rects}  # of each line its last item's
        heights = {top: max(rect.height() for rect in rects if rect.top() == top) for top in ends}
        return [
            rect.translated(
                max(0, width - ends[rect.top()]) if self._right else 0, (heights[rect.top()] - rect.height()) // 2
            )
            for rect in rects
        ]


class FlowBar(QWidget):
    """Widgets side by side, which always has room for as many lines as they need."""

    def __init__(self, horizontal_gap: int, vertical_gap: int, *widgets: QWidget, right: bool = False) -> None:
        """Make a bar of widgets with the gaps and the side of its `FlowLayout`."""
        super().__init__()
        self.flow = FlowLayout(self, horizontal_gap, vertical_gap, right=right)
        for widget in widgets:
            self.flow.addWidget(widget)

    def event(self, event: QEvent) -> bool:
        """Have room for all lines, after another width and after a change of what is in them."""
        done = super().event(event)
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            self.setMinimumHeight(self.flow.heightForWidth(self.width()))
        return done
