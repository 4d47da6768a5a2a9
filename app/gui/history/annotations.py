"""Editors for the user's annotations of runs: dialogs for tags and notes, and the fields on a run's page."""

from collections.abc import Collection, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from app.gui.theme import GRID
from app.gui.widgets.basic import plain_tooltip, text_label
from app.viewmodels.history.annotations import Annotations, TagChange, apply_tag_change, parse_tags, tag_change

_CHECK_STATES = {True: Qt.CheckState.Checked, False: Qt.CheckState.Unchecked, None: Qt.CheckState.PartiallyChecked}


class TagDialog(QDialog):
    """A check box per tag, partly checked where only some of the runs have it, and a line for new tags."""

    changed = Signal(object)

    def __init__(self, annotations: Annotations, parent: QWidget) -> None:
        super().__init__(parent)
        self._annotations = annotations
        self._tags = QListWidget()
        self.line = QLineEdit()
        self.setWindowTitle(f"Tags of {annotations.runs_label}")
        for tag, state in annotations.tags.items():
            self._add(tag).setCheckState(_CHECK_STATES[state])
        self._tags.setAccessibleName("Tags")
        self._tags.setVisible(bool(annotations.tags))
        self.line.setAccessibleName("New tag")
        self.line.setPlaceholderText("New tag, then Enter")
        layout = _layout(self)
        layout.addWidget(text_label(self.windowTitle(), "heading"))
        layout.addWidget(self.line)
        layout.addWidget(self._tags, 1)
        layout.addWidget(_buttons(self))
        self.line.setFocus()

    def states(self) -> dict[str, Qt.CheckState]:
        """Return the check state of every tag."""
        return {item.text(): item.checkState() for item in map(self._tags.item, range(self._tags.count()))}

    def tick(self, tag: str, state: Qt.CheckState) -> None:
        """Set the check box of a tag, regardless of case; a new tag gets one."""
        known = self._tags.findItems(tag, Qt.MatchFlag.MatchFixedString)
        for item in known or [self._add(tag)]:
            item.setCheckState(state)
        self._tags.show()

    def accept(self) -> None:
        """Add the tags typed in the focused line, else save the changes and close."""
        typed = parse_tags(self.line.text())
        if typed and self.line.hasFocus():
            self._add_typed(typed)
            return
        self._add_typed(typed)
        before = {tag: _CHECK_STATES[state] for tag, state in self._annotations.tags.items()}
        turned = {tag: now for tag, now in self.states().items() if now != before.get(tag, Qt.CheckState.Unchecked)}
        self.changed.emit(
            TagChange(
                runs=self._annotations.runs,
                added=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Checked),
                removed=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Unchecked),
            )
        )
        super().accept()

    def _add_typed(self, typed: tuple[str, ...]) -> None:
        self.line.clear()
        for tag in typed:
            self.tick(tag, Qt.CheckState.Checked)

    def _add(self, tag: str) -> QListWidgetItem:
        item = QListWidgetItem(tag, self._tags)
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsUserCheckable)
        return item


class NoteDialog(QDialog):
    """Edits the note of one run, or one note for several."""

    changed = Signal(str)

    def __init__(self, annotations: Annotations, parent: QWidget) -> None:
        super().__init__(parent)
        self.editor = QPlainTextEdit(annotations.note or "")
        self.setWindowTitle(f"Note on {annotations.runs_label}")
        self.editor.setAccessibleName("Note")
        self.editor.setTabChangesFocus(True)
        self.editor.document().setDocumentMargin(GRID - 2)
        self.editor.document().setModified(False)
        self.editor.setPlaceholderText(
            "Their notes differ: this note will replace them." if annotations.note is None else "Why was this run made?"
        )
        layout = _layout(self)
        layout.addWidget(text_label(self.windowTitle(), "heading"))
        layout.addWidget(self.editor, 1)
        layout.addWidget(_buttons(self, "Save (Ctrl+Enter)"))
        for keys in ("Ctrl+Return", "Ctrl+Enter"):
            QShortcut(QKeySequence(keys), self).activated.connect(self.accept)
        self.editor.moveCursor(self.editor.textCursor().MoveOperation.End)
        self.editor.setFocus()

    def accept(self) -> None:
        """Save the note if it was changed."""
        if self.editor.document().isModified():
            self.changed.emit(self.editor.toPlainText())
        super().accept()


def _layout(dialog: QDialog) -> QVBoxLayout:
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.resize(48 * GRID, 40 * GRID)
    layout = QVBoxLayout(dialog)
    layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
    layout.setSpacing(GRID)
    return layout


def _buttons(dialog: QDialog, help: str = "") -> QDialogButtonBox:
    box = QDialogButtonBox(QDialogButtonBox.StandardButton.Save | QDialogButtonBox.StandardButton.Cancel)
    box.button(QDialogButtonBox.StandardButton.Save).setToolTip(plain_tooltip(help))
    box.accepted.connect(dialog.accept)
    box.rejected.connect(dialog.reject)
    return box


_NOTE_LINES = 4


class AnnotationEditor(QWidget):
    """Edits the tags and the note of a run; changes are emitted when a field or the page is left.

    `set_stored_tags` and `set_stored_note` confirm what is in the database.
    """

    tags_changed = Signal(object)
    note_changed = Signal(tuple, str)

    def __init__(self) -> None:
        super().__init__()
        self._run = 0
        self._stored_tags: tuple[str, ...] = ()
        self._stored_note = ""
        self.tags = QLineEdit()
        self.note = _NoteEdit()
        self.tags.editingFinished.connect(self._emit_tags)
        self.note.left.connect(self._emit_note)
        self._build()

    @property
    def run(self) -> int:
        """Number of the run that is shown."""
        return self._run

    def show_annotations(self, run: int, tags: Sequence[str], note: str) -> None:
        """Show a run's tags and note, after emitting the changes of the previous run."""
        self.emit_changes()
        self._run, self._stored_tags, self._stored_note = run, tuple(tags), note
        self.tags.setText(", ".join(tags))
        self.note.setPlainText(note)

    def emit_changes(self) -> None:
        """Emit the changes that were not emitted yet."""
        self._emit_tags()
        self._emit_note()

    def set_stored_tags(self, change: TagChange) -> None:
        """Apply a change of tags that is in the database now."""
        if self._run in change.runs:
            self._stored_tags = apply_tag_change(self._stored_tags, change)

    def set_stored_note(self, runs: Collection[int], note: str) -> None:
        """Take the note that is in the database now."""
        if self._run in runs:
            self._stored_note = note

    def hideEvent(self, event: QHideEvent) -> None:
        """Emit the changes when the page is left."""
        self.emit_changes()
        super().hideEvent(event)

    def _emit_tags(self) -> None:
        change = tag_change(self._run, self._stored_tags, self.tags.text())
        if change.added or change.removed:
            self.tags_changed.emit(change)

    def _emit_note(self) -> None:
        note = self.note.toPlainText().strip()
        if note != self._stored_note:
            self.note_changed.emit((self._run,), note)

    def _build(self) -> None:
        self.tags.setAccessibleName("Tags of this run")
        self.tags.setPlaceholderText("night, baseline")
        self.note.setAccessibleName("Note on this run")
        self.note.setPlaceholderText("Why was this run made?")
        self.note.setTabChangesFocus(True)
        self.note.document().setDocumentMargin(GRID - 2)
        self.note.setFixedHeight(_NOTE_LINES * self.note.fontMetrics().lineSpacing() + 2 * GRID)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(GRID, GRID, 2 * GRID, GRID)
        layout.setSpacing(GRID // 2)
        for name, field in (("&Tags (comma-separated)", self.tags), ("&Note", self.note)):
            label = text_label(name, "caption")
            label.setBuddy(field)
            layout.addWidget(label)
            layout.addWidget(field)


class _NoteEdit(QPlainTextEdit):
    left = Signal()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self.left.emit()
