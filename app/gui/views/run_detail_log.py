"""The end of a run's log, and the search in it."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFontDatabase, QKeySequence, QShortcut, QTextCursor, QTextDocument
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QTextEdit, QVBoxLayout, QWidget

from app.gui.theme import GRID, Theme
from app.gui.views.parts import text_label

_MOST_MARKED = 500


class LogView(QWidget):
    """Monospaced lines with a search field: every match is marked, Enter goes to the next one, Shift+Enter back."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._title = text_label("Log", "heading")
        self._found = text_label("", "caption")
        self._search = QLineEdit()
        self._search.setPlaceholderText("Search the log")
        self._search.setAccessibleName("Search the log")
        self._search.setClearButtonEnabled(True)
        self._search.setMaximumWidth(32 * GRID)
        self._search.textChanged.connect(self._mark)
        self._search.returnPressed.connect(self._next)
        self._text = QPlainTextEdit()
        self._text.setReadOnly(True)
        self._text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._text.setAccessibleName("Log of the run")
        back = QShortcut(QKeySequence("Shift+Return"), self._search)
        back.setContext(Qt.ShortcutContext.WidgetShortcut)
        back.activated.connect(self._previous)
        theme.changed.connect(self._mark)
        self._build()

    def show_log(self, title: str, text: str) -> None:
        """Show this log, from its end."""
        self._title.setText(title)
        self._text.setPlainText(text)
        self._text.moveCursor(QTextCursor.MoveOperation.End)
        self._text.moveCursor(QTextCursor.MoveOperation.StartOfLine)
        self._search.clear()
        self._mark()

    def focus_search(self) -> None:
        """Put the cursor into the search field."""
        self._search.setFocus()
        self._search.selectAll()

    def _mark(self) -> None:
        marks: list[QTextEdit.ExtraSelection] = []
        at = self._text.document().find(self._search.text()) if self._search.text() else QTextCursor()
        while not at.isNull() and len(marks) < _MOST_MARKED:
            marks.append(self._marked(at))
            at = self._text.document().find(self._search.text(), at)
        self._text.setExtraSelections(marks)
        more = "more than " if len(marks) == _MOST_MARKED else ""
        self._found.setText(f"{more}{len(marks)} found" if self._search.text() else "")

    def _marked(self, cursor: QTextCursor) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        colour = QColor(self._theme.colours.accent)
        colour.setAlpha(70)
        mark.cursor = cursor
        mark.format.setBackground(colour)
        return mark

    def _next(self) -> None:
        self._go(QTextDocument.FindFlag(0), QTextCursor.MoveOperation.Start)

    def _previous(self) -> None:
        self._go(QTextDocument.FindFlag.FindBackward, QTextCursor.MoveOperation.End)

    def _go(self, how: QTextDocument.FindFlag, around: QTextCursor.MoveOperation) -> None:
        words = self._search.text()
        if words and not self._text.find(words, how):
            self._text.moveCursor(around)
            self._text.find(words, how)

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(GRID)
        head.addWidget(self._title)
        head.addStretch(1)
        head.addWidget(self._found)
        head.addWidget(self._search)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, GRID, 2 * GRID, 2 * GRID)
        layout.setSpacing(GRID)
        layout.addLayout(head)
        layout.addWidget(self._text, 1)
