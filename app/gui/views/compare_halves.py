"""The Compare screen's table above its curves and pictures, with a line between them that can be moved."""

import math
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.gui.views.cell_delegate import ROW_HEIGHT
from app.gui.views.compare_table import CompareTableView
from app.gui.views.parts import splitter

_MOST_FOR_TABLE = 0.4
_KEYS = {"Ctrl+Shift+Down": ROW_HEIGHT, "Ctrl+Shift+Up": -ROW_HEIGHT}


class CompareHalves(QWidget):
    """The table gets the height its rows want, up to a share of the whole, until a reader moves the line.

    Ctrl+Shift+Down and Up move it by a row.
    """

    def __init__(self, table: CompareTableView, below: QWidget) -> None:
        super().__init__()
        self._table = table
        self._chosen: int | None = None
        self._split = splitter(Qt.Orientation.Vertical, table, below, (0, 1))
        self._split.splitterMoved.connect(self._moved)
        table.height_wanted.connect(self._share)
        for keys, by in _KEYS.items():
            QShortcut(QKeySequence(keys), self).activated.connect(partial(self._move, by))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._split)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a small window the table gives way too."""
        super().resizeEvent(event)
        self._share()

    def _share(self) -> None:
        wanted = self._table.wanted_height
        too_many = max(0, math.ceil((wanted - self.height() * _MOST_FOR_TABLE) / ROW_HEIGHT))
        height = wanted - too_many * ROW_HEIGHT if self._chosen is None else self._chosen
        self._split.setSizes([height, max(1, self.height() - height)])

    def _move(self, by: int) -> None:
        self._chosen = self._table.height() + by
        self._share()
        self._moved()

    def _moved(self) -> None:
        self._chosen = self._table.height()
