"""The line below the table of runs: how many there are, what was just done, and the database they are in."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QSizePolicy, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import ElidedLabel, button, text_label
from app.viewmodels.storage import KEEP_CHOICES, StorageLine, keep_words


class HistoryFoot(QWidget):
    """Tells; asks to keep samples for another time, to bring deleted runs back, or to stop what goes on."""

    keep_asked = Signal(object)
    undo_asked = Signal()
    stop_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.count = text_label("", "caption")
        self._done = _giving_way("heading")
        self._undo = button("&Undo", "Bring them back (Ctrl+Z)", flat=True)
        self._progress = _giving_way("caption")
        self._stop = button("&Stop", "Nothing of it stays", flat=True)
        self._storage = _giving_way("caption")
        self._keep = QComboBox()
        self._keep_days: int | None = None
        self._keep.activated.connect(lambda index: self.keep_asked.emit(self._keep.itemData(index)))
        self._undo.clicked.connect(self.undo_asked)
        self._stop.clicked.connect(self.stop_asked)
        self._build()
        self.tell("")
        self.show_progress("")

    def tell(self, words: str, *, can_undo: bool = False) -> None:
        """Say what was done; "" is nothing."""
        self._done.setText(words)
        self._done.setToolTip(words)
        self._done.setVisible(bool(words))
        self._undo.setVisible(can_undo)

    def show_progress(self, words: str) -> None:
        """Say how far something is that can be stopped, in place of the database's size; "" is nothing."""
        self._progress.setText(words)
        for widget in (self._progress, self._stop):
            widget.setVisible(bool(words))
        self._storage.setVisible(not words)

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
        for widget in (self._progress, self._stop, self._storage):
            foot.addWidget(widget)
        foot.addSpacing(GRID)
        foot.addWidget(self._keep)


def _giving_way(role: str) -> ElidedLabel:
    """As wide as its words while there is room: a window never grows with what is told in it."""
    label = ElidedLabel(role, Qt.AlignmentFlag.AlignLeft)
    label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
    label.setMinimumWidth(1)
    return label
