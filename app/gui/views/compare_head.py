"""What a comparison comes to in words, largest on the screen, and under it every reason to doubt it."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import button, text_label
from app.viewmodels.compare import Comparison
from app.viewmodels.compare_head import head_of
from app.viewmodels.doubts import Severity

_SHOWN_AT_ONCE = 2
_ROLES: dict[Severity, str] = {"warning": "caution", "note": "caption"}


class CompareHead(QWidget):
    """The verdict, its first sentence in large letters, can be selected and copied.

    Of many doubts and notes the first are shown until a reader asks for all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._verdict = _selectable("", "verdict")
        self._rest = _selectable("", "")
        self._copy = button("Copy", "Copy the verdict and what makes it doubtful", flat=True)
        self._more = button("", "Show every reason to doubt the verdict, or only the first", flat=True)
        self._copied = ""
        self._told: list[QLabel] = []
        self._all = False
        self._copy.clicked.connect(self.copy)
        self._more.clicked.connect(self._turn)
        self._build()

    def show_model(self, comparison: Comparison) -> None:
        """Show what these runs come to."""
        head = head_of(comparison)
        self._verdict.setText(_unbroken(head.first))
        self._verdict.setToolTip(head.method)
        self._rest.setText(_unbroken(head.rest))
        self._rest.setVisible(bool(head.rest))
        self._tell(head.lines)
        self._copied = head.copied

    def words(self) -> str:
        """The verdict, the doubts and the notes, a line each."""
        shown = "\n".join([self._verdict.text(), self._rest.text(), *(label.text() for label in self._told)])
        return shown.replace("\N{NO-BREAK SPACE}", " ")

    def copy(self) -> None:
        """Put the verdict and the doubts on the clipboard."""
        QGuiApplication.clipboard().setText(self._copied)

    def _tell(self, lines: Sequence[tuple[str, Severity]]) -> None:
        for label in self._told:
            label.hide()
            label.deleteLater()
        self._told = [_selectable(words, _ROLES[severity]) for words, severity in lines]
        for label in self._told:
            self._lines.addWidget(label)
        self._show_some()

    def _turn(self) -> None:
        self._all = not self._all
        self._show_some()

    def _show_some(self) -> None:
        rest = len(self._told) - _SHOWN_AT_ONCE
        for n, label in enumerate(self._told):
            label.setVisible(self._all or n < _SHOWN_AT_ONCE or rest == 1)
        self._more.setText("Fewer" if self._all else f"{rest} more")
        self._more.setVisible(rest > 1)

    def _build(self) -> None:
        self._lines = QVBoxLayout()
        self._lines.setSpacing(GRID // 2)
        top = QHBoxLayout()
        top.setSpacing(2 * GRID)
        top.addWidget(self._verdict, 1)
        top.addWidget(self._copy, 0, Qt.AlignmentFlag.AlignTop)
        below = QHBoxLayout()
        below.setSpacing(2 * GRID)
        below.addLayout(self._lines, 1)
        below.addWidget(self._more, 0, Qt.AlignmentFlag.AlignTop)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        column.setSpacing(GRID // 2)
        column.addLayout(top)
        column.addWidget(self._rest)
        column.addLayout(below)


def _selectable(text: str, role: str) -> QLabel:
    label = text_label(text, role, wrap=True)
    label.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    return label


def _unbroken(words: str) -> str:
    """Words in which no line ends between a number and its percent sign: it reads as another number there."""
    return words.replace(" %", "\N{NO-BREAK SPACE}%")
