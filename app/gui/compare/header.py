"""What stands above the table of a comparison: the verdict, and why it may mislead."""

from itertools import takewhile

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import ElidedLabel, button, plain_tooltip, text_label
from app.gui.widgets.pacing import Slices
from app.viewmodels.compare.comparison import Comparison, HeaderLine, comparison_header
from app.viewmodels.compare.state_warnings import Severity

_COLLAPSED_COUNT = 2
_INTERLEAVE_HINT = "Run these variants again, interleaved, as often as before and at least three times each"
_ROLES: dict[Severity, str] = {"warning": "caution", "note": "caption"}


class FoldingText(QWidget):
    """A text that `fold` shows in full, to be selected, or in one line that ends where the room does."""

    def __init__(self, text: str, role: str) -> None:
        super().__init__()
        self._full = _selectable(text, role)
        self._line = ElidedLabel(role, Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._full)
        column.addWidget(self._line)
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Show a text."""
        self._full.setText(text)
        self._line.setText(text)
        self._line.setToolTip(plain_tooltip(text))

    def text(self) -> str:
        """Return the whole text."""
        return self._line.text()

    def fold(self, folded: bool) -> None:
        """Show one line, or all."""
        self._full.setVisible(not folded)
        self._line.setVisible(folded)


class WarningLine(QWidget):
    """A warning or note, with a button where measuring its variants interleaved would settle it."""

    interleave_requested = Signal(object)

    def __init__(self, line: HeaderLine) -> None:
        super().__init__()
        self.line = line
        self._shown = FoldingText(line.text, _ROLES[line.severity])
        self.fold = self._shown.fold
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._shown, 1)
        if line.interleave:
            measure = button("Measure them interleaved", _INTERLEAVE_HINT, flat=True)
            measure.clicked.connect(lambda: self.interleave_requested.emit(line.interleave))
            row.addWidget(measure, 0, Qt.AlignmentFlag.AlignTop)


class CompareHeader(QWidget):
    """The verdict, with its first sentence in large letters, and the first of its warnings and notes.

    Folded, as at first, all but the first sentence has a line each, so that table and pictures have the room.
    `interleave_requested` has a run of each variant that should be measured interleaved, the baseline's first.
    """

    interleave_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._verdict = _selectable("", "verdict")
        self._rest = FoldingText("", "")
        self._copy = button("Copy", "Copy the verdict and its warnings", flat=True)
        self._more = button("", "Show the whole verdict and all warnings, or the first of each in a line", flat=True)
        self._clipboard_text = ""
        self._found: tuple[HeaderLine, ...] = ()
        self._warnings: list[WarningLine] = []
        self._all = False
        self._copy.clicked.connect(self.copy)
        self._adding = Slices(self, slice_s=0.0)
        self._more.clicked.connect(self._toggle_all)
        self._build()

    def show_model(self, comparison: Comparison) -> None:
        """Show the verdict of a comparison."""
        header = comparison_header(comparison)
        self._verdict.setText(header.first)
        self._verdict.setToolTip(plain_tooltip(header.method))
        self._rest.set_text(header.rest)
        self._rest.setVisible(bool(header.rest))
        self._found = tuple(header.lines)
        self._show_warnings()
        self._clipboard_text = header.clipboard_text

    def displayed_text(self) -> str:
        """Return the verdict, the warnings and the notes, one per line."""
        shown = "\n".join([self._verdict.text(), self._rest.text(), *(line.text for line in self._found)])
        return shown.replace("\N{NO-BREAK SPACE}", " ")

    def copy(self) -> None:
        """Copy the verdict and the warnings."""
        QGuiApplication.clipboard().setText(self._clipboard_text)

    def _toggle_all(self) -> None:
        self._all = not self._all
        self._adding.finish()
        self._update_visibility()

    def _show_warnings(self) -> None:
        """Show the first lines; those that are there already stay, and the others are made soon, hidden."""
        pairs = zip(self._warnings, self._found, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].line == pair[1], pairs))
        for shown in self._warnings[same:]:
            shown.hide()
            shown.deleteLater()
        del self._warnings[same:]
        first = max(same, sum(map(self._is_shown, range(len(self._found)))))
        for line in self._found[same:first]:
            self._add_line(line)
        self._update_visibility()
        self._adding.start(map(self._add_line, self._found[first:]), later=True)

    def _add_line(self, line: HeaderLine) -> None:
        """Add a line, ready to be shown."""
        added = WarningLine(line)
        added.interleave_requested.connect(self.interleave_requested)
        added.hide()
        self._column.addWidget(added)
        for part in (added, *added.findChildren(QLabel)):
            part.ensurePolished()
        self._warnings.append(added)

    def _is_shown(self, number: int) -> bool:
        return self._all or number < _COLLAPSED_COUNT or len(self._found) == _COLLAPSED_COUNT + 1

    def _update_visibility(self) -> None:
        rest = len(self._found) - _COLLAPSED_COUNT
        self._parts.setEnabled(False)  # Qt lays the whole window out for every widget that is shown in a visible one
        self._lines.hide()
        for n, shown in enumerate(self._warnings):
            shown.fold(not self._all)
            shown.setVisible(self._is_shown(n))
        self._lines.show()
        self._rest.fold(not self._all)
        self._more.setText("Fewer" if self._all else f"{rest} more" if rest > 1 else "More")
        self._more.setVisible(bool(self._found or self._rest.text()))
        self._parts.setEnabled(True)
        self._parts.invalidate()

    def _build(self) -> None:
        self._lines = QWidget()
        self._column = QVBoxLayout(self._lines)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(GRID // 2)
        top = QHBoxLayout()
        top.setSpacing(2 * GRID)
        top.addWidget(self._verdict, 1)
        top.addWidget(self._copy, 0, Qt.AlignmentFlag.AlignTop)
        below = QHBoxLayout()
        below.setSpacing(2 * GRID)
        below.addWidget(self._lines, 1)
        below.addWidget(self._more, 0, Qt.AlignmentFlag.AlignTop)
        self._parts = QVBoxLayout(self)
        self._parts.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        self._parts.setSpacing(GRID // 2)
        self._parts.addLayout(top)
        self._parts.addWidget(self._rest)
        self._parts.addLayout(below)


def _selectable(text: str, role: str) -> QLabel:
    label = text_label(text, role, wrap=True)
    label.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    return label
