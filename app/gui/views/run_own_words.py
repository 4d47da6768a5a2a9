"""The user's own words on the page of a run: its tags and its note, kept when one leaves the field."""

from collections.abc import Collection, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import text_label
from app.viewmodels.own_words import TagChange, after_change, tag_change

_NOTE_LINES = 4


class RunOwnWords(QWidget):
    """Tells what changed when a field or the page is left; what is in the database comes back by `take_…`."""

    tags_changed = Signal(object)
    note_changed = Signal(tuple, str)

    def __init__(self) -> None:
        super().__init__()
        self._run = 0
        self._kept_tags: tuple[str, ...] = ()
        self._kept_note = ""
        self.tags = QLineEdit()
        self.note = _Note()
        self.tags.editingFinished.connect(self._tell_tags)
        self.note.left.connect(self._tell_note)
        self._build()

    def show_words(self, run: int, tags: Sequence[str], note: str) -> None:
        """Show a run's words, after telling what was changed of the one before."""
        self.tell()
        self._run, self._kept_tags, self._kept_note = run, tuple(tags), note
        self.tags.setText(", ".join(tags))
        self.note.setPlainText(note)

    def tell(self) -> None:
        """Tell what was changed and not told yet."""
        self._tell_tags()
        self._tell_note()

    def take_tags(self, change: TagChange) -> None:
        """Tags as they are in the database now."""
        if self._run in change.runs:
            self._kept_tags = after_change(self._kept_tags, change)

    def take_note(self, runs: Collection[int], note: str) -> None:
        """The note as it is in the database now."""
        if self._run in runs:
            self._kept_note = note

    def hideEvent(self, event: QHideEvent) -> None:
        """Leaving the page leaves its fields."""
        self.tell()
        super().hideEvent(event)

    def _tell_tags(self) -> None:
        change = tag_change(self._run, self._kept_tags, self.tags.text())
        if change.added or change.removed:
            self.tags_changed.emit(change)

    def _tell_note(self) -> None:
        note = self.note.toPlainText().strip()
        if note != self._kept_note:
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
        for name, field in (("&Tags, with commas between", self.tags), ("&Note", self.note)):
            label = text_label(name, "caption")
            label.setBuddy(field)
            layout.addWidget(label)
            layout.addWidget(field)


class _Note(QPlainTextEdit):
    left = Signal()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self.left.emit()
