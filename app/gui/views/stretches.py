"""Two buttons over plots: the measured part, or runs from beginning to end."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import switch
from app.viewmodels.plotted import Span

_ZOOM = "Ctrl and the wheel zoom, dragging moves; or click here and use +, −, Shift and the arrows"


class Stretches(QWidget):
    """Offers two stretches of an axis. `asked` tells which `Span` to show."""

    asked = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._spans: tuple[Span, Span] = ((0.0, 1.0), (0.0, 1.0))
        self.measured_button = switch("Measured", "Show the measured part")
        self.whole_button = switch("Whole", f"Show everything from beginning to end. {_ZOOM}")
        self.measured_button.clicked.connect(self._ask_measured)
        self.whole_button.clicked.connect(self._ask_whole)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(GRID // 2)
        row.addWidget(self.measured_button)
        row.addWidget(self.whole_button)

    def show_spans(self, measured: Span, whole: Span) -> None:
        """Offer these; where both are one there is nothing to choose."""
        self._spans = measured, whole
        self.setEnabled(measured != whole)

    def _ask_measured(self) -> None:
        self.asked.emit(self._spans[0])

    def _ask_whole(self) -> None:
        self.asked.emit(self._spans[1])

    def show_seen(self, span: Span) -> None:
        """Mark which of them is in view; after zooming it may be neither."""
        for made, own in zip((self.measured_button, self.whole_button), self._spans, strict=True):
            made.setChecked(span == own)
