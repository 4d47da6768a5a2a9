"""Prepared experiments: what each asks, how it fits this machine, how long it takes, and one click to start it."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.questions import ask_for_file
from app.gui.theme import GRID
from app.gui.views.parts import Scroller, button, clear, rule, say, text_label
from app.viewmodels.presets import PresetLine

_BUTTON_WIDTH = 16 * GRID


class PresetList(Scroller):
    """Shows `PresetLine`s; the user's own come from files."""

    start_asked = Signal(str)
    """With the key of a preset, as the next two."""
    verdict_asked = Signal(str)
    reference_asked = Signal(str)
    file_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(sideways=False)
        self._lines: tuple[PresetLine, ...] = ()
        self._busy = False
        self._starts: dict[str, QPushButton] = {}
        self._references: dict[str, QPushButton] = {}
        self._problem = text_label("", "problem", wrap=True)
        self._reading = text_label("", "muted", wrap=True)
        self._open = button("Open a &file …", "A prepared experiment of your own", flat=True)
        self._open.clicked.connect(self._choose_file)
        self._list = QVBoxLayout()
        self._build()

    def start_button(self, key: str) -> QPushButton:
        """Starts that preset, or shows its verdict where nothing is left to run."""
        return self._starts[key]

    def reference_button(self, key: str) -> QPushButton:
        """Shows the reference runs of that preset."""
        return self._references[key]

    def show_presets(self, lines: Sequence[PresetLine], *, busy: bool) -> None:
        """Show these, made anew only where they are others than before."""
        if tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self._remake()
        for line in lines:
            if not line.is_made:
                self._starts[line.key].setText("Add to queue" if busy else "Start")

    def show_problem(self, words: str) -> None:
        """Say why a file cannot be used; "" is nothing."""
        say(self._problem, words)

    def show_reading(self, words: str) -> None:
        """Say which file is being read; "" is none."""
        say(self._reading, words)

    def _choose_file(self) -> None:
        ask_for_file(self, "Open a prepared experiment", Path.home(), "Presets (*.toml)", self.file_chosen.emit)

    def _remake(self) -> None:
        clear(self._list)
        self._starts, self._references = {}, {}
        for line in self._lines:
            self._list.addWidget(self._card(line))
            self._list.addWidget(rule())

    def _card(self, line: PresetLine) -> QWidget:
        card = QWidget()
        card.setObjectName(f"preset.{line.name}")
        whole = QHBoxLayout(card)
        whole.setContentsMargins(0, GRID + GRID // 2, 0, GRID + GRID // 2)
        whole.setSpacing(3 * GRID)
        whole.addLayout(_words(line), 1)
        whole.addLayout(self._buttons(line))
        return card

    def _buttons(self, line: PresetLine) -> QVBoxLayout:
        start, asked = button("Start", f"Start {line.title}"), self.start_asked
        if line.is_made:
            start, asked = button("Show verdict", f"Compare the stored runs of {line.title}"), self.verdict_asked
        start.setAccessibleName(start.toolTip())
        start.setMinimumWidth(_BUTTON_WIDTH)
        start.setEnabled(not line.problem)
        start.clicked.connect(lambda: asked.emit(line.key))
        self._starts[line.key] = start
        column = QVBoxLayout()
        column.setSpacing(GRID // 2)
        column.addWidget(start)
        if line.reference:
            reference = button(line.reference, f"Compare the reference runs of {line.title}", flat=True)
            reference.setAccessibleName(reference.toolTip())
            reference.clicked.connect(lambda: self.reference_asked.emit(line.key))
            self._references[line.key] = reference
            column.addWidget(reference, 0, Qt.AlignmentFlag.AlignRight)
        column.addStretch(1)
        return column

    def _build(self) -> None:
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(2 * GRID, 0, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        self._list.setSpacing(0)
        column.addLayout(self._list)
        column.addWidget(self._open, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._reading)
        column.addWidget(self._problem)
        column.addStretch(1)
        self._problem.hide()
        self._reading.hide()
        self.setWidget(content)


def _words(line: PresetLine) -> QVBoxLayout:
    told = (
        (line.title, "heading"),
        (line.question, ""),
        (line.amount, "muted"),
        (" ".join(line.notes), "caption"),
        (line.problem, "problem"),
    )
    words = QVBoxLayout()
    words.setSpacing(GRID // 2)
    for text, role in told:
        if text:
            words.addWidget(text_label(text, role, wrap=True))
    words.addStretch(1)
    return words
