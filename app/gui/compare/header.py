"""What heads a comparison: who is faster and how sure that is, what is compared, and why it may mislead."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import ElidedLabel, button, plain_tooltip, set_role, show_text, text_label
from app.gui.widgets.result import ResultView
from app.viewmodels.compare.comparison import Comparison, HeaderLine, comparison_header
from app.viewmodels.compare.state_warnings import Severity
from app.viewmodels.experiment.verdict_text import verdict_result

_COLLAPSED_COUNT = 2
_INTERLEAVE_HINT = "Run these variants again, interleaved, as often as before and at least three times each"
_ROLES: dict[Severity, str] = {"warning": "caution", "note": "caption"}
MANY_VARIANTS = 8
"""The table itself is the plot of more, and has the height; more repeats of each are a plan, not a click."""


class CompareHeader(QWidget):
    """The answer in the largest letters, what would decide it, what was compared, and the first warnings, a line each.

    The sentences behind the answer and all warnings unfold. `interleave_requested` has a run of each variant that
    should be measured interleaved, the baseline's first; `more_requested` how many more repeats would decide it.
    """

    interleave_requested = Signal(object)
    more_requested = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.result = ResultView(theme)
        self._against = ElidedLabel("caption", Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight)
        self._first = [ElidedLabel("", Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight) for _ in "12"]
        self._whole = {"": _selectable(""), "warning": _selectable("caution"), "note": _selectable("caption")}
        self._more = button("", "Show the whole verdict and all warnings, or the first of each in a line", flat=True)
        self._interleave = button("Measure them interleaved", _INTERLEAVE_HINT, small=True)
        self._lines: tuple[HeaderLine, ...] = ()
        self._is_unfolded = False
        self._clipboard_text = ""
        self._more.clicked.connect(self._toggle)
        self._interleave.clicked.connect(lambda: self.interleave_requested.emit(self._runs_to_interleave()))
        self.result.more_requested.connect(self.more_requested)
        self._build()

    def show_model(self, comparison: Comparison) -> None:
        """Show what heads a comparison."""
        header = comparison_header(comparison)
        self.result.show_model(verdict_result(comparison.verdict) if comparison.variants else None)
        is_few = 1 < len(comparison.variants) <= MANY_VARIANTS
        self.result.offer_more(offered=is_few)
        self.result.plot.setVisible(is_few)
        self._against.setText(comparison.against)
        self._against.setToolTip(plain_tooltip("\n".join(filter(None, (comparison.against, comparison.baseline_note)))))
        self._lines, self._clipboard_text = header.lines, header.clipboard_text
        self._whole[""].setToolTip(plain_tooltip(header.method))
        self._whole[""].setText(comparison.verdict.text)
        for severity in _ROLES:
            texts = (line.text for line in self._lines if line.severity == severity)
            self._whole[severity].setText("\n".join(texts))
        self._interleave.setVisible(bool(self._runs_to_interleave()))
        self._fold()

    def show_waiting(self, text: str) -> None:
        """Say in place of the answer what is being found out."""
        self.result.show_waiting(text)
        self._lines = ()
        self._interleave.hide()
        self._is_unfolded = False
        self._fold()

    def displayed_text(self) -> str:
        """Return the answer, the verdict, the warnings and the notes."""
        parts = (self.result.displayed_text(), *(label.text() for label in self._whole.values()))
        return "\n".join(filter(None, parts)).replace("\N{NO-BREAK SPACE}", " ")

    def copy(self) -> None:
        """Copy the verdict and the warnings."""
        QGuiApplication.clipboard().setText(self._clipboard_text)

    @property
    def more_button(self) -> QPushButton:
        """Button that unfolds the sentences."""
        return self._more

    def _runs_to_interleave(self) -> tuple[int, ...]:
        return next((line.interleave for line in self._lines if line.interleave), ())

    def _toggle(self) -> None:
        self._is_unfolded = not self._is_unfolded
        self._fold()

    def _fold(self) -> None:
        """Show the first lines, or all that there is to say."""
        for label, line in zip(self._first, [*self._lines[:_COLLAPSED_COUNT], None, None], strict=False):
            show_text(label, line.text if line is not None and not self._is_unfolded else "")
            label.setToolTip(plain_tooltip(line.text if line is not None else ""))
            set_role(label, _ROLES[line.severity if line is not None else "note"])
        for whole in self._whole.values():
            whole.setVisible(self._is_unfolded and bool(whole.text()))
        rest = len(self._lines) - _COLLAPSED_COUNT
        self._more.setText("Less" if self._is_unfolded else f"{rest} more" if rest > 0 else "More")
        self._more.setVisible(bool(self._lines or self._whole[""].text()))

    def _build(self) -> None:
        lines = QVBoxLayout()
        lines.setSpacing(GRID // 2)
        widgets: list[QLabel] = [self._against, *self._first, *self._whole.values()]
        for widget in widgets:
            lines.addWidget(widget)
        below = QHBoxLayout()
        below.setSpacing(2 * GRID)
        below.addLayout(lines, 1)
        below.addWidget(self._interleave, 0, Qt.AlignmentFlag.AlignBottom)
        below.addWidget(self._more, 0, Qt.AlignmentFlag.AlignBottom)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        column.setSpacing(0)
        column.addWidget(self.result)
        column.addLayout(below)


def _selectable(role: str) -> QLabel:
    label = text_label("", role, wrap=True)
    label.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    label.hide()
    return label
