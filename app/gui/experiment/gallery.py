"""The gallery of prepared questions: what each asks, what it takes, what is known of its answer, and its start."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import button, clear_layout, plain_tooltip, show_text, text_label
from app.gui.widgets.dialogs import ask_for_file
from app.gui.widgets.flow_layout import FlowBar
from app.gui.widgets.panes import Scroller
from app.viewmodels.experiment.preview import PresetLine

TITLE = "What do you want to know?"
_LEAD = (
    "Each question is an experiment, adapted to this machine. For one of your own, choose several values in the form."
)
_CARD_WIDTH = 44 * GRID
"""From twice that on there are two columns of cards."""


class GalleryView(QWidget):
    """Shows `PresetLine`s as cards; the signals have the key of one, or the path of a file."""

    start_requested = Signal(str)
    verdict_requested = Signal(str)
    reference_requested = Signal(str)
    file_chosen = Signal(str)
    file_removed = Signal(str)
    left = Signal()
    """For the live plots."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._lines: tuple[PresetLine, ...] = ()
        self._columns = 1
        self._cards: list[QuestionCard] = []
        self._problem = text_label("", "problem", wrap=True)
        self._reading = text_label("", "muted", wrap=True)
        self._open = button("Open a &file …", "Open a preset file of your own", flat=True)
        self._plots = button("&Live plots", "Show what this machine does now (Ctrl+L)", flat=True)
        self._grid = QGridLayout()
        self._scroller = Scroller(horizontal=False)
        self._open.clicked.connect(self._choose_file)
        self._plots.clicked.connect(self.left)
        self._build()

    def card(self, key: str) -> "QuestionCard":
        """Return the card of a preset."""
        return next(card for card in self._cards if card.key == key)

    def show_model(self, lines: Sequence[PresetLine], *, busy: bool) -> None:
        """Show these presets; cards are made again only for other lines."""
        if tuple(lines) != self._lines:
            self._lines = tuple(lines)
            clear_layout(self._grid)
            self._cards = [QuestionCard(line, self) for line in lines]
            self._arrange()
        for card in self._cards:
            card.show_busy(busy=busy)

    def show_problem(self, text: str) -> None:
        """Show why a file cannot be used, above the cards and in sight; "" for nothing."""
        show_text(self._problem, text)

    def show_reading(self, text: str) -> None:
        """Show which file is being read; "" for none."""
        show_text(self._reading, text)

    def focus_first(self) -> None:
        """Give the keyboard to the first question that can be started."""
        starts = (card.start for card in self._cards if card.start.isEnabled())
        next(starts, self._open).setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Use one column or two."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        self._columns = 2 if self.width() >= 2 * _CARD_WIDTH + 6 * GRID else 1
        for number, card in enumerate(self._cards):
            self._grid.addWidget(card, number // self._columns, number % self._columns)
        self._grid.setColumnStretch(0, 1)
        self._grid.setColumnStretch(1, self._columns - 1)

    def _choose_file(self) -> None:
        ask_for_file(self, "Open a preset file", Path.home(), "Presets (*.toml)", self.file_chosen.emit)

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(3 * GRID)
        head.addWidget(text_label(TITLE, "title"), 1)
        head.addWidget(self._open)
        head.addWidget(self._plots)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(3 * GRID, GRID, 3 * GRID, 3 * GRID)
        column.setSpacing(0)
        self._grid.setSpacing(2 * GRID)
        column.addLayout(self._grid)
        column.addStretch(1)
        self._scroller.setWidget(content)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        top = QVBoxLayout()
        top.setContentsMargins(3 * GRID, 2 * GRID, 3 * GRID, GRID)
        top.setSpacing(GRID // 2)
        top.addLayout(head)
        top.addWidget(text_label(_LEAD, "muted", wrap=True))
        top.addWidget(self._problem)
        top.addWidget(self._reading)
        layout.addLayout(top)
        layout.addWidget(self._scroller, 1)
        self._problem.hide()
        self._reading.hide()


class QuestionCard(QFrame):
    """A prepared question."""

    def __init__(self, line: PresetLine, owner: GalleryView) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self.setObjectName(f"preset.{line.name}")
        self.key = line.key
        self._is_complete = line.is_complete
        self.start = button("Start", f"Start {line.title}")
        self.verdict = button("Show verdict", f"Compare the stored runs of {line.title}", flat=True)
        self.reference = button(line.reference, f"Compare the reference runs of {line.title}", flat=True)
        remove = button("Remove from list", f"Take {line.name} from this list; its file stays", flat=True)
        started, key = owner.verdict_requested if line.is_complete else owner.start_requested, line.key
        self.start.setEnabled(line.can_start and not line.problem)
        self.start.clicked.connect(lambda: started.emit(key))
        self.verdict.clicked.connect(lambda: owner.verdict_requested.emit(key))
        self.reference.clicked.connect(lambda: owner.reference_requested.emit(key))
        remove.clicked.connect(lambda: owner.file_removed.emit(key))
        offered = {
            self.start: True,
            self.verdict: line.has_verdict and not line.is_complete,
            self.reference: bool(line.reference),
            remove: line.is_users,
        }
        self._build(line, [each for each, is_offered in offered.items() if is_offered])

    def show_busy(self, *, busy: bool) -> None:
        """Say what the start does while something is active."""
        self.start.setText("Show verdict" if self._is_complete else "Add to queue" if busy else "Start")

    def _build(self, line: PresetLine, buttons: Sequence[QPushButton]) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        texts = (
            (line.title if line.question else "", "caption"),
            (line.question or line.title, "heading"),
            (" · ".join(filter(None, (line.size, line.time))), "muted"),
            (line.answer, ""),
            (line.stored, "caption"),
            (line.adapted, "caption"),
            (line.problem, "problem"),
        )
        for text, role in texts:
            if text:
                label = text_label(text, role, wrap=True)
                label.setToolTip(plain_tooltip("\n".join((line.title, *line.notes))))
                column.addWidget(label)
        column.addStretch(1)
        bar = FlowBar(2 * GRID, GRID // 2)
        for each in buttons:
            each.setAccessibleName(f"{each.text()}: {line.title}")
            bar.flow.addWidget(each)
        column.addWidget(bar)
