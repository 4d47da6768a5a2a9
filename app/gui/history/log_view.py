"""The end of a run's log, with search."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFontDatabase, QKeySequence, QShortcut, QTextCursor, QTextDocument
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QTextEdit, QVBoxLayout, QWidget

from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import text_label

_MAX_MATCHES = 500


class LogView(QWidget):
    """Log lines with a search field: all matches are marked; Enter goes to the next, Shift+Enter to the previous."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._title = text_label("Log", "heading")
        self._match_count = text_label("", "caption")
        self._search = QLineEdit()
        self._search.setPlaceholderText("Search the log")
        self._search.setAccessibleName("Search the log")
        self._search.setClearButtonEnabled(True)
        self._search.setMaximumWidth(32 * GRID)
        self._search.textChanged.connect(self._highlight_matches)
        self._search.returnPressed.connect(self._next)
        self._text = QPlainTextEdit()
        self._text.setReadOnly(True)
        self._text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._text.setAccessibleName("Log of the run")
        back = QShortcut(QKeySequence("Shift+Return"), self._search)
        back.setContext(Qt.ShortcutContext.WidgetShortcut)
        back.activated.connect(self._previous)
        theme.follow(self, self._highlight_matches)
        self._build()

    def show_log(self, title: str, text: str) -> None:
        """Show a log at its end."""
        self._title.setText(title)
        self._text.setPlainText(text)
        self._text.moveCursor(QTextCursor.MoveOperation.End)
        self._text.moveCursor(QTextCursor.MoveOperation.StartOfLine)
        self._search.clear()
        self._highlight_matches()

    def focus_search(self) -> None:
        """Focus the search field."""
        self._search.setFocus()
        self._search.selectAll()

    def _highlight_matches(self) -> None:
        marks: list[QTextEdit.ExtraSelection] = []
        match = self._text.document().find(self._search.text()) if self._search.text() else QTextCursor()
        while not match.isNull() and len(marks) < _MAX_MATCHES:
            marks.append(self._highlight(match))
            match = self._text.document().find(self._search.text(), match)
        self._text.setExtraSelections(marks)
        more = "more than " if len(marks) == _MAX_MATCHES else ""
        self._match_count.setText(f"{more}{len(marks)} found" if self._search.text() else "")

    def _highlight(self, cursor: QTextCursor) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        colour = QColor(self._theme.colours.accent)
        colour.setAlpha(70)
        mark.cursor = cursor
        mark.format.setBackground(colour)
        return mark

    def _next(self) -> None:
        self._find(QTextDocument.FindFlag(0), QTextCursor.MoveOperation.Start)

    def _previous(self) -> None:
        self._find(QTextDocument.FindFlag.FindBackward, QTextCursor.MoveOperation.End)

    def _find(self, flags: QTextDocument.FindFlag, wrap_to: QTextCursor.MoveOperation) -> None:
        pattern = self._search.text()
        if pattern and not self._text.find(pattern, flags):
            self._text.moveCursor(wrap_to)
            self._text.find(pattern, flags)

    def _build(self) -> None:
        header = QHBoxLayout()
        header.setSpacing(GRID)
        header.addWidget(self._title)
        header.addStretch(1)
        header.addWidget(self._match_count)
        header.addWidget(self._search)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, GRID, 2 * GRID, 2 * GRID)
        layout.setSpacing(GRID)
        layout.addLayout(header)
        layout.addWidget(self._text, 1)
