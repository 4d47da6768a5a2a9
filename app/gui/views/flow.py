"""A layout that breaks its line where there is no more room, as text does."""

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget


class FlowLayout(QLayout):
    """Places widgets side by side, then on the next line, `across` and `down` pixels apart."""

    def __init__(self, parent: QWidget, across: int, down: int) -> None:
        super().__init__(parent)
        self._across = across
        self._down = down
        self._items: list[QLayoutItem] = []
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem) -> None:
        """Put it at the end."""
        self._items.append(item)

    def count(self) -> int:
        """How many there are."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        """The one at a place, None past the end."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        """Take one out."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def hasHeightForWidth(self) -> bool:
        """Fewer pixels across are more lines."""
        return True

    def heightForWidth(self, width: int) -> int:
        """How high all lines are in a width, in pixels."""
        return max((place.bottom() + 1 for place in self._places(width)), default=0)

    def sizeHint(self) -> QSize:
        """All in one line."""
        sizes = [item.sizeHint() for item in self._items]
        gaps = self._across * max(0, len(sizes) - 1)
        return QSize(sum(size.width() for size in sizes) + gaps, max((size.height() for size in sizes), default=0))

    def minimumSize(self) -> QSize:
        """The widest of them alone."""
        sizes = [item.minimumSize() for item in self._items]
        return QSize(max((s.width() for s in sizes), default=0), max((s.height() for s in sizes), default=0))

    def expandingDirections(self) -> Qt.Orientation:
        """None: what room is left stays empty."""
        return Qt.Orientation(0)

    def setGeometry(self, area: QRect) -> None:
        """Place all within an area."""
        super().setGeometry(area)
        for item, place in zip(self._items, self._places(area.width()), strict=True):
            item.setGeometry(place.translated(area.topLeft()))

    def _places(self, width: int) -> list[QRect]:
        found: list[QRect] = []
        at = QPoint(0, 0)
        for item in self._items:
            size = item.sizeHint()
            if at.x() and at.x() + size.width() > width:
                at = QPoint(0, max(place.bottom() + 1 for place in found) + self._down)
            found.append(QRect(at, size))
            at = QPoint(at.x() + size.width() + self._across, at.y())
        return found
