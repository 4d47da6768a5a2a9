"""What a comparison comes to in words, largest on the screen, and under it every reason to doubt it."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import button, set_role, text_label
from app.viewmodels.compare import Comparison
from app.viewmodels.doubts import EVIDENCE, Doubt

_SHORT = 240
"""Characters of a verdict that is shown in large letters."""
_SHOWN_AT_ONCE = 2
_SIGNS = {"warning": "▲", "note": "·"}


class CompareHead(QWidget):
    """The verdict can be selected and copied. Of many doubts the first are shown until a reader asks for all."""

    def __init__(self) -> None:
        super().__init__()
        self._verdict = _selectable("", "verdict")
        self._copy = button("Copy", "Copy the verdict and what makes it doubtful", flat=True)
        self._more = button("", "Show every reason to doubt the verdict, or only the first", flat=True)
        self._doubts: list[QLabel] = []
        self._notes = text_label("", "caption", wrap=True)
        self._all = False
        self._copy.clicked.connect(self.copy)
        self._more.clicked.connect(self._turn)
        self._build()

    def show_model(self, comparison: Comparison) -> None:
        """Show what these runs come to."""
        self._verdict.setText(comparison.verdict)
        set_role(self._verdict, "verdict" if len(comparison.verdict) <= _SHORT else "heading")
        self._verdict.setToolTip(comparison.method)
        self._notes.setText(" ".join(comparison.notes))
        self._notes.setVisible(bool(comparison.notes))
        # What runs that are not what they say they are mean for the verdict, the verdict itself says.
        self._show_doubts([doubt for doubt in comparison.doubts if doubt.key != EVIDENCE])

    def words(self) -> str:
        """The verdict, the doubts and the notes, a line each."""
        lines = [self._verdict.text(), *(label.text() for label in self._doubts), self._notes.text()]
        return "\n".join(filter(None, lines))

    def copy(self) -> None:
        """Put the verdict and the doubts on the clipboard."""
        lines = [self._verdict.text(), *(label.text() for label in self._doubts)]
        QGuiApplication.clipboard().setText("\n".join(lines))

    def _show_doubts(self, doubts: Sequence[Doubt]) -> None:
        for label in self._doubts:
            label.hide()
            label.deleteLater()
        self._doubts = [_selectable(f"{_SIGNS[doubt.severity]}  {doubt.sentence}", _role(doubt)) for doubt in doubts]
        for label in self._doubts:
            self._lines.addWidget(label)
        self._show_some()

    def _turn(self) -> None:
        self._all = not self._all
        self._show_some()

    def _show_some(self) -> None:
        rest = len(self._doubts) - _SHOWN_AT_ONCE
        for n, label in enumerate(self._doubts):
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
        doubts = QHBoxLayout()
        doubts.setSpacing(2 * GRID)
        doubts.addLayout(self._lines, 1)
        doubts.addWidget(self._more, 0, Qt.AlignmentFlag.AlignTop)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        column.setSpacing(GRID // 2)
        for part in (top, doubts):
            column.addLayout(part)
        column.addWidget(self._notes)


def _selectable(text: str, role: str) -> QLabel:
    label = text_label(text, role, wrap=True)
    label.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    return label


def _role(doubt: Doubt) -> str:
    return "caution" if doubt.severity == "warning" else "caption"
