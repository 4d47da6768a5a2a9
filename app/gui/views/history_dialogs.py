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
        self._new = QLineEdit()
        self.setWindowTitle(f"Tags of {words.whose}")
        for tag, state in words.tags.items():
            self._add(tag, state)
        self._tags.setAccessibleName("Tags")
        self._tags.setVisible(bool(words.tags))
        self._new.setAccessibleName("New tag")
        self._new.setPlaceholderText("New tag, then Enter")
        layout = _layout(self)
        layout.addWidget(text_label(self.windowTitle(), "heading"))
        layout.addWidget(self._new)
        layout.addWidget(self._tags, 1)
        layout.addWidget(_buttons(self))
        self._new.setFocus()

    def accept(self) -> None:
        """Enter in the line adds what was typed to the list; Enter once more, or Save, keeps the changes."""
        typed = tags_typed(self._new.text())
        if typed and self._new.hasFocus():
            self._take(typed)
            return
        self._take(typed)
        states = {item.text(): item.checkState() for item in map(self._tags.item, range(self._tags.count()))}
        before = {tag: _STATES[state] for tag, state in self._words.tags.items()}
        turned = {tag: state for tag, state in states.items() if state != before.get(tag, Qt.CheckState.Unchecked)}
        self.changed.emit(
            TagChange(
                runs=self._words.runs,
                added=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Checked),
                removed=tuple(tag for tag, state in turned.items() if state == Qt.CheckState.Unchecked),
            )
        )
        super().accept()

    def _take(self, typed: tuple[str, ...]) -> None:
        self._new.clear()
        for tag in typed:
            known = self._tags.findItems(tag, Qt.MatchFlag.MatchFixedString)
            for item in known:
                item.setCheckState(Qt.CheckState.Checked)
            if not known:
                self._add(tag, True)
        self._tags.setVisible(self._tags.count() > 0)

    def _add(self, tag: str, state: bool | None) -> None:
        item = QListWidgetItem(tag, self._tags)
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsUserCheckable)
        item.setCheckState(_STATES[state])


class NoteDialog(QDialog):
    """A note of any length, for one run or the same for several."""

    changed = Signal(str)

    def __init__(self, words: OwnWords, parent: QWidget) -> None:
        super().__init__(parent)
        self._text = QPlainTextEdit(words.note or "")
        self.setWindowTitle(f"Note on {words.whose}")
        self._text.setAccessibleName("Note")
        self._text.setTabChangesFocus(True)
        self._text.setPlaceholderText(
            "Their notes differ: what you write here replaces them." if words.note is None else "Why was this run made?"
        )
        layout = _layout(self)
        layout.addWidget(text_label(self.windowTitle(), "heading"))
        layout.addWidget(self._text, 1)
        layout.addWidget(_buttons(self, "Save (Ctrl+Enter)"))
        for keys in ("Ctrl+Return", "Ctrl+Enter"):
            QShortcut(QKeySequence(keys), self).activated.connect(self.accept)
        self._text.moveCursor(self._text.textCursor().MoveOperation.End)
        self._text.setFocus()

    def accept(self) -> None:
        """Keep the note if it was touched."""
        if self._text.document().isModified():
            self.changed.emit(self._text.toPlainText())
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
