"""Prepared experiments: what each asks, how it fits this machine, how long it takes, and one click to start it."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.gui.questions import ask_for_file
from app.gui.theme import GRID
from app.gui.views.parts import button, rule, text_label
from app.viewmodels.presets import PresetLine


class PresetList(QScrollArea):
    """Shows `PresetLine`s; the user's own come from files."""

    start_asked = Signal(str)
    """With the key of a preset."""
    file_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[PresetLine, ...] = ()
        self._busy = False
        self._starts: dict[str, QPushButton] = {}
        self._problem = text_label("", "problem", wrap=True)
        self._open = button("Open a &file …", "A prepared experiment of your own", flat=True)
        self._open.clicked.connect(self._choose_file)
        self._list = QVBoxLayout()
        self._build()

    def start_button(self, key: str) -> QPushButton:
        """Starts that preset."""
        return self._starts[key]

    def show_presets(self, lines: Sequence[PresetLine], *, busy: bool) -> None:
        """Show these, made anew only where they are others than before."""
        if tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self._remake()
        for made in self._starts.values():
            made.setText("Add to queue" if busy else "Start")

    def show_problem(self, words: str) -> None:
        """Say why a file cannot be used; "" is nothing."""
        self._problem.setText(words)
        self._problem.setVisible(bool(words))

    def _choose_file(self) -> None:
        ask_for_file(self, "Open a prepared experiment", Path.home(), "Presets (*.toml)", self.file_chosen.emit)

    def _remake(self) -> None:
        while (item := self._list.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        self._starts = {}
        for place, line in enumerate(self._lines):
            if place:
                self._list.addWidget(rule())
            self._list.addWidget(self._card(line))

    def _card(self, line: PresetLine) -> QWidget:
        card = QWidget()
        card.setObjectName(f"preset.{line.name}")
        words = QVBoxLayout()
        words.setSpacing(GRID // 2)
        head = QHBoxLayout()
        head.setSpacing(GRID + GRID // 2)
        head.addWidget(text_label(line.name, "heading"))
        head.addWidget(text_label(line.size, "muted"))
        head.addStretch(1)
        words.addLayout(head)
        told = ((line.question, ""), (line.time, "muted"), (" ".join(line.notes), "caption"), (line.problem, "problem"))
        for text, role in told:
            if text:
                words.addWidget(text_label(text, role, wrap=True))
        start = button("Start", f"Start {line.name}")
        start.setAccessibleName(f"Start {line.name}")
        start.setEnabled(not line.problem)
        start.clicked.connect(lambda _=False, key=line.key: self.start_asked.emit(key))
        self._starts[line.key] = start
        whole = QHBoxLayout(card)
        whole.setContentsMargins(0, GRID + GRID // 2, 0, GRID + GRID // 2)
        whole.setSpacing(3 * GRID)
        whole.addLayout(words, 1)
        whole.addWidget(start, 0, Qt.AlignmentFlag.AlignTop)
        return card

    def _build(self) -> None:
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(2 * GRID, 0, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        self._list.setSpacing(0)
        column.addLayout(self._list)
        column.addWidget(rule())
        column.addWidget(self._open, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._problem)
        column.addStretch(1)
        self._problem.hide()
        self.setWidget(content)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
