"""Small parts all views share.

Every view keeps to one convention: it is built with the `Theme`, shows what `show_model(model)` gives it, and tells
what the user wants by Qt signals. It starts no thread, opens no file and knows no controller.
"""

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QSizePolicy, QSplitter, QVBoxLayout, QWidget

from app.gui.theme import GRID


def text_label(text: str, role: str = "", *, wrap: bool = False) -> QLabel:
    """Plain text in a role of the style sheet: heading, title, big, muted, caption, problem, good, warning, bad."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setProperty("role", role)
    label.setWordWrap(wrap)
    return label


def set_role(widget: QWidget, role: str) -> None:
    """Give a widget another role of the style sheet."""
    if widget.property("role") != role:
        widget.setProperty("role", role)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def button(text: str, help: str = "", *, primary: bool = False, flat: bool = False) -> QPushButton:
    """A push button; `&` in the text marks its mnemonic, `help` is its tooltip."""
    made = QPushButton(text)
    made.setProperty("primary", "true" if primary else "false")
    made.setProperty("flat", "true" if flat else "false")
    made.setToolTip(help)
    made.setAutoDefault(False)
    return made


class ElidedLabel(QLabel):
    """One line that gives way: what does not fit is left out of its middle."""

    def __init__(self, role: str = "", side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignRight) -> None:
        super().__init__()
        self.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw what fits, at its side."""
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        words = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideMiddle, self.width())
        painter.drawText(self.rect(), self.alignment(), words)
        painter.end()


def rule() -> QFrame:
    """A hairline between two parts."""
    line = QFrame()
    line.setProperty("role", "rule")
    line.setFixedHeight(1)
    return line


def splitter(way: Qt.Orientation, first: QWidget, second: QWidget, stretch: tuple[int, int]) -> QSplitter:
    """Two parts with a line between them that can be moved; `stretch` says which takes what room there is."""
    made = QSplitter(way)
    made.setChildrenCollapsible(False)
    made.setHandleWidth(1)
    for widget, share in zip((first, second), stretch, strict=True):
        made.addWidget(widget)
        made.setStretchFactor(made.count() - 1, share)
    return made


class EmptyState(QWidget):
    """What an empty screen says: one heading, what to do next, and what does it."""

    def __init__(self, title: str, text: str, act: QPushButton | None = None) -> None:
        super().__init__()
        self._title = text_label(title, "title")
        self._text = text_label(text, "muted", wrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(4 * GRID, 4 * GRID, 4 * GRID, 4 * GRID)
        layout.setSpacing(GRID)
        layout.addStretch(2)
        layout.addWidget(self._title, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addWidget(self._text)
        self._text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        if act is not None:
            layout.addWidget(act, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addStretch(3)

    def set_text(self, title: str, text: str) -> None:
        """Say something else."""
        self._title.setText(title)
        self._text.setText(text)
