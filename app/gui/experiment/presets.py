"""The list of preset experiments: question, size, estimated duration, and a button to start each."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import button, clear_layout, separator, show_text, text_label
from app.gui.widgets.dialogs import ask_for_file
from app.gui.widgets.panes import Scroller
from app.viewmodels.experiment.preview import PresetLine

_BUTTON_WIDTH = 16 * GRID


class PresetList(Scroller):
    """Shows `PresetLine`s, and opens the user's files."""

    start_requested = Signal(str)
    """Emitted with the key of a preset, as are the next two."""
    verdict_requested = Signal(str)
    reference_requested = Signal(str)
    file_chosen = Signal(str)
    file_removed = Signal(str)

    def __init__(self) -> None:
        super().__init__(horizontal=False)
        self._lines: tuple[PresetLine, ...] = ()
        self._busy = False
        self._starts: dict[str, QPushButton] = {}
        self._verdicts: dict[str, QPushButton] = {}
        self._references: dict[str, QPushButton] = {}
        self._problem = text_label("", "problem", wrap=True)
        self._reading = text_label("", "muted", wrap=True)
        self._open = button("Open a &file …", "Open a preset file of your own", flat=True)
        self._open.clicked.connect(self._choose_file)
        self._list = QVBoxLayout()
        self._build()

    def start_button(self, key: str) -> QPushButton:
        """Return the button that starts a preset, or shows its verdict if nothing is left to run."""
        return self._starts[key]

    def verdict_button(self, key: str) -> QPushButton:
        """Return the button that compares the stored runs of a preset of which some are left to run."""
        return self._verdicts[key]

    def reference_button(self, key: str) -> QPushButton:
        """Return the button that shows the reference runs of a preset."""
        return self._references[key]

    def show_presets(self, lines: Sequence[PresetLine], *, busy: bool) -> None:
        """Show these presets; widgets are made again only for other lines."""
        if tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self._remake()
        for line in lines:
            if not line.is_complete:
                self._starts[line.key].setText("Add to queue" if busy else "Start")

    def show_problem(self, text: str) -> None:
        """Show why a file cannot be used, above the list and in sight; "" for nothing."""
        show_text(self._problem, text)
        if text:
            self.verticalScrollBar().setValue(0)

    def show_reading(self, text: str) -> None:
        """Show which file is being read; "" for none."""
        show_text(self._reading, text)

    def _choose_file(self) -> None:
        ask_for_file(self, "Open a preset file", Path.home(), "Presets (*.toml)", self.file_chosen.emit)

    def _remake(self) -> None:
        clear_layout(self._list)
        self._starts, self._verdicts, self._references = {}, {}, {}
        for line in self._lines:
            self._list.addWidget(self._preset_row(line))
            self._list.addWidget(separator())

    def _preset_row(self, line: PresetLine) -> QWidget:
        row = QWidget()
        row.setObjectName(f"preset.{line.name}")
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, GRID + GRID // 2, 0, GRID + GRID // 2)
        layout.setSpacing(3 * GRID)
        layout.addLayout(_texts(line), 1)
        layout.addLayout(self._buttons(line))
        return row

    def _buttons(self, line: PresetLine) -> QVBoxLayout:
        start, signal = button("Start", f"Start {line.title}"), self.start_requested
        if line.is_complete:
            start, signal = button("Show verdict", f"Compare the stored runs of {line.title}"), self.verdict_requested
        start.setAccessibleName(start.toolTip())
        start.setMinimumWidth(_BUTTON_WIDTH)
        start.setEnabled(line.can_start and not line.problem)
        start.clicked.connect(lambda: signal.emit(line.key))
        self._starts[line.key] = start
        column = QVBoxLayout()
        column.setSpacing(GRID // 2)
        column.addWidget(start)
        if line.has_verdict and not line.is_complete:
            verdict = button("Show verdict", f"Compare the stored runs of {line.title}", flat=True)
            verdict.setAccessibleName(verdict.toolTip())
            verdict.clicked.connect(lambda: self.verdict_requested.emit(line.key))
            self._verdicts[line.key] = verdict
            column.addWidget(verdict, 0, Qt.AlignmentFlag.AlignRight)
        if line.reference:
            reference = button(line.reference, f"Compare the reference runs of {line.title}", flat=True)
            reference.setAccessibleName(reference.toolTip())
            reference.clicked.connect(lambda: self.reference_requested.emit(line.key))
            self._references[line.key] = reference
            column.addWidget(reference, 0, Qt.AlignmentFlag.AlignRight)
        if line.is_users:
            remove = button("Remove from list", f"Take {line.name} from this list; its file stays", flat=True)
            remove.setAccessibleName(remove.toolTip())
            remove.clicked.connect(lambda: self.file_removed.emit(line.key))
            column.addWidget(remove, 0, Qt.AlignmentFlag.AlignRight)
        column.addStretch(1)
        return column

    def _build(self) -> None:
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(2 * GRID, 0, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        self._list.setSpacing(0)
        column.addWidget(self._problem)
        column.addLayout(self._list)
        column.addWidget(self._open, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._reading)
        column.addStretch(1)
        self._problem.hide()
        self._reading.hide()
        self.setWidget(content)


def _texts(line: PresetLine) -> QVBoxLayout:
    parts = (
        (line.title, "heading"),
        (line.question, ""),
        (line.size_text, "muted"),
        (" ".join(line.notes), "caption"),
        (line.problem, "problem"),
    )
    column = QVBoxLayout()
    column.setSpacing(GRID // 2)
    for text, role in parts:
        if text:
            column.addWidget(text_label(text, role, wrap=True))
    column.addStretch(1)
    return column
