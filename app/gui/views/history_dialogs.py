"""The two small windows in which a user's own words on chosen runs are changed: tags and note."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
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
from app.gui.views.parts import text_label
from app.viewmodels.own_words import OwnWords, TagChange, tags_typed

_STATES = {True: Qt.CheckState.Checked, False: Qt.CheckState.Unchecked, None: Qt.CheckState.PartiallyChecked}


class TagDialog(QDialog):
    """A box to tick for each tag there is, and a line for new ones; half ticked where only some of the runs have it."""

    changed = Signal(object)

    def __init__(self, words: OwnWords, parent: QWidget) -> None:
        super().__init__(parent)
        self._words = words
        self._tags = QListWidget()
        self.line = QLineEdit()
        self.setWindowTitle(f"Tags of {words.whose}")
        for tag, state in words.tags.items():
            self._add(tag).setCheckState(_STATES[state])
        self._tags.setAccessibleName("Tags")
        self._tags.setVisible(bool(words.tags))
        self.line.setAccessibleName("New tag")
        self.line.setPlaceholderText("New tag, then Enter")
        layout = _layout(self)
        layout.addWidget(text_label(self.windowTitle(), "heading"))
        layout.addWidget(self.line)
        layout.addWidget(self._tags, 1)
        layout.addWidget(_buttons(self))
        self.line.setFocus()

    def states(self) -> dict[str, Qt.CheckState]:
        """Every tag and its box."""
        return {item.text(): item.checkState() for item in map(self._tags.item, range(self._tags.count()))}

    def tick(self, tag: str, state: Qt.CheckState) -> None:
        """Set the box of a tag, whatever its case; a new tag gets one."""
        known = self._tags.findItems(tag, Qt.MatchFlag.MatchFixedString)
        for item in known or [self._add(tag)]:
            item.setCheckState(state)
        self._tags.show()

    def accept(self) -> None:
        """Enter in the line adds what was typed to the list; Enter once more, or Save, keeps the changes."""
        typed = tags_typed(self.line.text())
        if typed and self.line.hasFocus():
            self._take(typed)
            return
        self._take(typed)
        before = {tag: _STATES[state] for tag, state in self._words.tags.items()}
        turned = {tag: now for tag, now in self.states().items() if now != before.get(tag, Qt.CheckState.Unchecked)}
        self.changed.emit(
            TagChange(
                runs=self._words.runs,
                added=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Checked),
                removed=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Unchecked),
            )
        )
        super().accept()

    def _take(self, typed: tuple[str, ...]) -> None:
        self.line.clear()
        for tag in typed:
            self.tick(tag, Qt.CheckState.Checked)

    def _add(self, tag: str) -> QListWidgetItem:
        item = QListWidgetItem(tag, self._tags)
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsUserCheckable)
        return item


class NoteDialog(QDialog):
    """A note of any length, for one run or the same for several."""

    changed = Signal(str)

    def __init__(self, words: OwnWords, parent: QWidget) -> None:
        super().__init__(parent)
        self.editor = QPlainTextEdit(words.note or "")
        self.setWindowTitle(f"Note on {words.whose}")
        self.editor.setAccessibleName("Note")
        self.editor.setTabChangesFocus(True)
        self.editor.document().setDocumentMargin(GRID - 2)
        self.editor.document().setModified(False)
        self.editor.setPlaceholderText(
            "Their notes differ: what you write here replaces them." if words.note is None else "Why was this run made?"
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
        """Keep the note if it was touched."""
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
    box.button(QDialogButtonBox.StandardButton.Save).setToolTip(help)
    box.accepted.connect(dialog.accept)
    box.rejected.connect(dialog.reject)
    return box
