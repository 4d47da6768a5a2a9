"""Editors for annotations of runs: dialogs for tags and notes, which a run's page shows."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QGridLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QWidget,
)

from app.gui.theme import GRID
from app.gui.widgets.basic import Item, button, make_column, plain_tooltip, text_label
from app.viewmodels.history.labels import Annotations, TagChange, parse_tags

_CHECK_STATES = {True: Qt.CheckState.Checked, False: Qt.CheckState.Unchecked, None: Qt.CheckState.PartiallyChecked}


class TagDialog(QDialog):
    """A check box per tag, partly checked if only some of the runs have it, and a line for new tags."""

    changed = Signal(object)

    def __init__(self, annotations: Annotations, parent: QWidget) -> None:
        super().__init__(parent)
        self._annotations = annotations
        self._tags = QListWidget()
        self.line = QLineEdit(placeholderText="New tag, then Enter")
        self.setWindowTitle(f"Tags of {annotations.runs_label}")
        for tag, state in annotations.tags.items():
            self._add(tag).setCheckState(_CHECK_STATES[state])
        self._tags.setAccessibleName("Tags")
        self._tags.setVisible(bool(annotations.tags))
        self.line.setAccessibleName("New tag")
        _fill(self, self.line, (self._tags, 1), _buttons(self))
        self.line.setFocus()

    def states(self) -> dict[str, Qt.CheckState]:
        return {item.text(): item.checkState() for item in map(self._tags.item, range(self._tags.count()))}

    def tick(self, tag: str, state: Qt.CheckState) -> None:
        """Set the check box of a tag, regardless of case; a new tag gets one."""
        items = self._tags.findItems(tag, Qt.MatchFlag.MatchFixedString)
        for item in items or [self._add(tag)]:
            item.setCheckState(state)
        self._tags.show()

    def accept(self) -> None:
        """Add the tags typed in the focused line, else save the changes and close."""
        typed = parse_tags(self.line.text())
        self.line.clear()
        for tag in typed:
            self.tick(tag, Qt.CheckState.Checked)
        if typed and self.line.hasFocus():
            return
        stored = {tag: _CHECK_STATES[state] for tag, state in self._annotations.tags.items()}
        turned = {tag: now for tag, now in self.states().items() if now != stored.get(tag, Qt.CheckState.Unchecked)}
        self.changed.emit(
            TagChange(
                runs=self._annotations.runs,
                added=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Checked),
                removed=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Unchecked),
            )
        )
        super().accept()

    def _add(self, tag: str) -> QListWidgetItem:
        item = QListWidgetItem(tag, self._tags)
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsUserCheckable)
        return item


class NoteDialog(QDialog):
    """Edits the note of one run, or one note for several; `changed` carries the runs and the note."""

    changed = Signal(tuple, str)

    def __init__(self, annotations: Annotations, parent: QWidget) -> None:
        super().__init__(parent)
        self._runs = annotations.runs
        self.editor = QPlainTextEdit(annotations.note or "", tabChangesFocus=True)
        self.setWindowTitle(f"Note on {annotations.runs_label}")
        self.editor.setAccessibleName("Note")
        self.editor.document().setDocumentMargin(GRID - 2)
        self.editor.document().setModified(False)
        self.editor.setPlaceholderText(
            "Their notes differ: this note will replace them." if annotations.note is None else "Why did you run this?"
        )
        _fill(self, (self.editor, 1), _buttons(self, "Save (Ctrl+Enter)"))
        for keys in ("Ctrl+Return", "Ctrl+Enter"):
            QShortcut(keys, self, self.accept)
        self.editor.moveCursor(self.editor.textCursor().MoveOperation.End)
        self.editor.setFocus()

    def accept(self) -> None:
        if self.editor.document().isModified():
            self.changed.emit(self._runs, self.editor.toPlainText())
        super().accept()


def _fill(dialog: QDialog, *parts: Item) -> None:
    """Put parts below the dialog's title."""
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.resize(48 * GRID, 40 * GRID)
    title = text_label(dialog.windowTitle(), "heading")
    make_column(title, *parts, parent=dialog, margins=2 * GRID, spacing=GRID)


def _buttons(dialog: QDialog, help: str = "") -> QDialogButtonBox:
    box = QDialogButtonBox(QDialogButtonBox.StandardButton.Save | QDialogButtonBox.StandardButton.Cancel)
    box.button(QDialogButtonBox.StandardButton.Save).setToolTip(plain_tooltip(help))
    box.accepted.connect(dialog.accept)
    box.rejected.connect(dialog.reject)
    return box


class AnnotationView(QWidget):
    """The tags and the note of a run, each with a button that requests its dialog; both signals carry the runs."""

    tags_requested = Signal(list)
    note_requested = Signal(list)

    def __init__(self) -> None:
        super().__init__()
        self.run = 0
        self.tags, self.note = (text_label("", wrap=True, selectable=True) for _ in range(2))
        self.tags_button = button("&Tags …", "Change the tags of this run", small=True)
        self.note_button = button("&Note …", "Change the note on this run", small=True)
        self.tags_button.clicked.connect(lambda: self.tags_requested.emit([self.run]))
        self.note_button.clicked.connect(lambda: self.note_requested.emit([self.run]))
        grid = QGridLayout(self)
        grid.setContentsMargins(GRID, GRID, 2 * GRID, GRID)
        grid.setColumnStretch(0, 1)
        for row, (label, opener) in enumerate(((self.tags, self.tags_button), (self.note, self.note_button))):
            grid.addWidget(label, row, 0)
            grid.addWidget(opener, row, 1, Qt.AlignmentFlag.AlignTop)

    def show_annotations(self, run: int, tags: Sequence[str], note: str) -> None:
        self.run = run
        self.tags.setText(", ".join(tags) or "No tags")
        self.note.setText(note or "No note")
