"""What stands above the table of a comparison: the verdict, and why it may mislead."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import button, plain_tooltip, text_label
from app.viewmodels.compare.comparison import Comparison, HeaderLine, comparison_header
from app.viewmodels.compare.environment_warnings import Severity

_COLLAPSED_COUNT = 2
_INTERLEAVE_HINT = "Run these variants anew, in turns, as often as before and at least three times each"
_ROLES: dict[Severity, str] = {"warning": "caution", "note": "caption"}


class WarningLine(QWidget):
    """A warning or note, with a button where measuring its variants interleaved would settle it."""

    interleave_requested = Signal(object)

    def __init__(self, line: HeaderLine) -> None:
        super().__init__()
        self.text = line.text
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID // 2)
        column.addWidget(_selectable(_with_unbroken_percent(line.text), _ROLES[line.severity]))
        if line.interleave:
            measure = button("Measure them interleaved", _INTERLEAVE_HINT, flat=True)
            measure.clicked.connect(lambda: self.interleave_requested.emit(line.interleave))
            below = QHBoxLayout()
            below.setContentsMargins(2 * GRID, 0, 0, GRID // 2)
            below.addWidget(measure)
            below.addStretch(1)
            column.addLayout(below)


class CompareHeader(QWidget):
    """The verdict, with its first sentence in large letters, and the first of its warnings and notes.

    `interleave_requested` has a run of each variant that should be measured interleaved, the baseline's first.
    """

    interleave_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._verdict = _selectable("", "verdict")
        self._rest = _selectable("", "")
        self._copy = button("Copy", "Copy the verdict and its warnings", flat=True)
        self._more = button("", "Show all warnings, or only the first", flat=True)
        self._clipboard_text = ""
        self._warnings: list[WarningLine] = []
        self._all = False
        self._copy.clicked.connect(self.copy)
        self._more.clicked.connect(self._toggle_all)
        self._build()

    def show_model(self, comparison: Comparison) -> None:
        """Show the verdict of a comparison."""
        header = comparison_header(comparison)
        self._verdict.setText(_with_unbroken_percent(header.first))
        self._verdict.setToolTip(plain_tooltip(header.method))
        self._rest.setText(_with_unbroken_percent(header.rest))
        self._rest.setVisible(bool(header.rest))
        self._show_warnings(header.lines)
        self._clipboard_text = header.clipboard_text

    def displayed_text(self) -> str:
        """Return the verdict, the warnings and the notes, one per line."""
        shown = "\n".join([self._verdict.text(), self._rest.text(), *(line.text for line in self._warnings)])
        return shown.replace("\N{NO-BREAK SPACE}", " ")

    def copy(self) -> None:
        """Copy the verdict and the warnings."""
        QGuiApplication.clipboard().setText(self._clipboard_text)

    def _show_warnings(self, lines: Sequence[HeaderLine]) -> None:
        for shown in self._warnings:
            shown.hide()
            shown.deleteLater()
        self._warnings = [WarningLine(line) for line in lines]
        for shown in self._warnings:
            shown.interleave_requested.connect(self.interleave_requested)
            self._lines.addWidget(shown)
        self._update_visibility()

    def _toggle_all(self) -> None:
        self._all = not self._all
        self._update_visibility()

    def _update_visibility(self) -> None:
        rest = len(self._warnings) - _COLLAPSED_COUNT
        for n, shown in enumerate(self._warnings):
            shown.setVisible(self._all or n < _COLLAPSED_COUNT or rest == 1)
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


def _with_unbroken_percent(text: str) -> str:
    """Return the text without a line break between a number and its percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
