"""The line below the table of runs: how many there are, what was just deleted, and the database they are in."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import button, text_label
from app.viewmodels.storage import KEEP_CHOICES, StorageLine, keep_words


class HistoryFoot(QWidget):
    """Tells; asks for samples to be kept for other times, and for what was deleted to be brought back."""

    keep_asked = Signal(object)
    undo_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.count = text_label("", "caption")
        self._done = text_label("", "heading")
        self._undo = button("&Undo", "Bring them back (Ctrl+Z)", flat=True)
        self._storage = text_label("", "caption")
        self._keep = QComboBox()
        self._keep_days: int | None = None
        self._keep.activated.connect(lambda index: self.keep_asked.emit(self._keep.itemData(index)))
        self._undo.clicked.connect(self.undo_asked)
        self._build()
        self.tell("")

    def tell(self, words: str) -> None:
        """Say what was deleted and offer to undo it; "" is nothing."""
        self._done.setText(words)
        self._done.setVisible(bool(words))
        self._undo.setVisible(bool(words))

    def show_storage(self, line: StorageLine) -> None:
        """Say how large the database is and how long it keeps samples."""
        self._storage.setText(line.words)
        self._storage.setToolTip(str(line.path))
        self._keep_days = line.keep_days
        choices = dict.fromkeys((*KEEP_CHOICES, line.keep_days))
        self._keep.clear()
        for days in choices:
            self._keep.addItem(keep_words(days), days)
        self.show_kept()

    def show_kept(self) -> None:
        """Show again for how long samples are kept: the user did not agree to another time."""
        self._keep.setCurrentIndex(self._keep.findData(self._keep_days))

    def _build(self) -> None:
        self._keep.setAccessibleName("How long samples are kept")
        self._keep.setToolTip("Samples and logs of older runs are deleted when the window opens; their figures stay")
        self._keep.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        foot = QHBoxLayout(self)
        foot.setContentsMargins(2 * GRID, GRID // 2, 2 * GRID, GRID // 2)
        foot.setSpacing(GRID)
        foot.addWidget(self.count)
        foot.addSpacing(2 * GRID)
        foot.addWidget(self._done)
        foot.addWidget(self._undo)
        foot.addStretch(1)
        foot.addWidget(self._storage)
        foot.addSpacing(GRID)
        foot.addWidget(self._keep)
