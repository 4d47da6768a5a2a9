"""The palette: a line to type in above a list of actions and things to open, for keyboard and mouse."""

from collections.abc import Sequence
from itertools import groupby

from PySide6.QtCore import QEvent, QModelIndex, QObject, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QLineEdit,
    QListView,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import make_column, separator, text_label
from app.gui.widgets.cell_delegate import AnyIndex
from app.values.plain import plain_line
from app.viewmodels.shell.palette import Entry, Match, search

_WIDTH = 90 * GRID
_ROW_HEIGHT = 4 * GRID
_TOP = 6 * GRID
_ROWS_SHOWN = 14
_ROW_ROLE = Qt.ItemDataRole.UserRole
_LIST_KEYS = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)
_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
_NOTHING = "No match. Try fewer letters."

_Row = Match | str
"""A search result, or a heading."""


class _Delegate(QStyledItemDelegate):
    """Paints a heading, or a title with its matching letters in bold, its detail, and its keys at the right."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme

    def sizeHint(self, _option: QStyleOptionViewItem, _index: AnyIndex) -> QSize:
        return QSize(10 * GRID, _ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        row: _Row = index.data(_ROW_ROLE)
        colours = self._theme.colours
        area = QRect(option.rect).adjusted(2 * GRID, 0, -2 * GRID, 0)
        painter.save()
        painter.setFont(tabular_font())
        if isinstance(row, str):
            painter.setFont(tabular_font(12, bold=True))
            painter.setPen(QColor(colours.muted))
            painter.drawText(area.adjusted(0, GRID // 2, 0, 0), LEFT, row)
        else:
            is_current = bool(option.state & QStyle.StateFlag.State_Selected)
            if is_current:
                painter.fillRect(option.rect, QColor(colours.accent))
            text, quiet = (colours.on_accent,) * 2 if is_current else (colours.text, colours.muted)
            painter.setPen(QColor(quiet))
            painter.drawText(area, RIGHT, row.entry.keys)
            area.setRight(area.right() - painter.fontMetrics().horizontalAdvance(row.entry.keys) - 2 * GRID)
            painter.setPen(QColor(text))
            area.setLeft(_paint_title(painter, area, row) + 2 * GRID)
            painter.setPen(QColor(quiet))
            painter.setFont(tabular_font())
            detail = plain_line(row.entry.detail)
            detail = painter.fontMetrics().elidedText(detail, Qt.TextElideMode.ElideRight, area.width())
            painter.drawText(area, LEFT, detail if area.width() > 4 * GRID else "")
        painter.restore()


def _paint_title(painter: QPainter, area: QRect, row: Match) -> int:
    """Paint a title with its matching letters in bold; return where it ends."""
    marked = set(row.positions)
    x = area.left()
    fonts = tuple(tabular_font(bold=bold) for bold in (False, True))
    for is_marked, run in groupby(range(len(row.entry.title)), marked.__contains__):
        letters = [row.entry.title[at] for at in run]
        painter.setFont(QFont(fonts[is_marked]))
        text = painter.fontMetrics().elidedText("".join(letters), Qt.TextElideMode.ElideRight, area.right() - x)
        painter.drawText(QRect(x, area.top(), max(0, area.right() - x), area.height()), LEFT, text)
        x += painter.fontMetrics().horizontalAdvance(text)
    return x


class Palette(QFrame):
    """A line to type in above a list, in the middle of the window; it closes when it loses the focus.

    `chosen` carries the key of the chosen entry.

    Thread: GUI only.
    """

    chosen = Signal(str)

    def __init__(self, window: QWidget, theme: Theme) -> None:
        super().__init__(window)
        self._theme = theme
        self._entries: tuple[Entry, ...] = ()
        self._recent: tuple[str, ...] = ()
        self._before: QWidget | None = None
        self.line = QLineEdit()
        self.list = QListWidget()
        self._hint = text_label("", "caption")
        self._build()
        self.line.textChanged.connect(lambda _: self._search())
        self.line.installEventFilter(self)
        self.list.clicked.connect(self._choose)
        self.hide()

    def open(self, prompt: str, hint: str, entries: Sequence[Entry], recent: Sequence[str] = ()) -> None:
        """Show these entries, with an empty line. `recent` has the keys of used entries, last one first."""
        if self.isHidden():
            self._before = QApplication.focusWidget()
            self.window().installEventFilter(self)
            _application().focusChanged.connect(self._leave)
        self._theme.apply_style_sheet(self)
        self._recent = tuple(recent)
        self._hint.setText(hint)
        self.line.setPlaceholderText(prompt)
        self.line.setAccessibleName(prompt)
        self._entries = ()
        self.list.clear()
        self.line.clear()
        self.show_entries(entries)
        self.show()
        self.raise_()
        self.line.setFocus()

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Show other entries, keeping the typed text and the choice."""
        current = self.list.currentIndex().data(_ROW_ROLE)
        self._entries = tuple(entries)
        self._search()
        for number in range(self.list.currentRow() + 1, self.list.count()):
            row = self.list.item(number).data(_ROW_ROLE)
            if isinstance(row, Match) and isinstance(current, Match) and row.entry.key == current.entry.key:
                self.list.setCurrentRow(number)

    def close_palette(self) -> None:
        """Hide it and restore the focus."""
        if self.isHidden():
            return
        _application().focusChanged.disconnect(self._leave)
        self.window().removeEventFilter(self)
        self.hide()
        if self._before is not None and self._before.isVisible():
            self._before.setFocus()
        self._before = None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.window() and event.type() == QEvent.Type.Resize:
            self._place()
        if watched is not self.line or not isinstance(event, QKeyEvent):
            return super().eventFilter(watched, event)
        key = Qt.Key(event.key())
        if key not in (*_LIST_KEYS, *_ENTER, Qt.Key.Key_Escape, Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
            return False
        if event.type() == QEvent.Type.ShortcutOverride:
            event.accept()
        elif event.type() == QEvent.Type.KeyPress:
            self._press(key, event)
        return True

    def _press(self, key: Qt.Key, event: QKeyEvent) -> None:
        if key == Qt.Key.Key_Escape:
            self.close_palette()
        elif key in _ENTER:
            self._choose(self.list.currentIndex())
        elif key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
            step = Qt.Key.Key_Down if key == Qt.Key.Key_Tab else Qt.Key.Key_Up
            QApplication.sendEvent(self.list, QKeyEvent(event.type(), step, Qt.KeyboardModifier.NoModifier))
        else:
            QApplication.sendEvent(self.list, event)

    def _choose(self, index: QModelIndex) -> None:
        row = index.data(_ROW_ROLE)
        if isinstance(row, Match):
            self.close_palette()
            self.chosen.emit(row.entry.key)

    def _leave(self, _old: QWidget | None, new: QWidget | None) -> None:
        """Hide when another widget of the program gets the focus, but not when another program does."""
        if new is not None and new is not self and not self.isAncestorOf(new):
            self._before = None
            self.close_palette()

    def _search(self) -> None:
        query = self.line.text()
        rows: list[_Row] = []
        for group, matches in groupby(search(self._entries, query, self._recent), lambda match: match.entry.group):
            rows += [*([] if query.strip() else [group]), *matches]
        self.list.clear()
        for row in rows or [_NOTHING]:
            texts = (row,) if isinstance(row, str) else (row.entry.title, row.entry.detail, row.entry.keys)
            item = QListWidgetItem(", ".join(filter(None, texts)), self.list)
            item.setData(_ROW_ROLE, row)
            if isinstance(row, str):
                item.setFlags(Qt.ItemFlag.NoItemFlags)  # it cannot be chosen
        self.list.setCurrentRow(next((n for n, row in enumerate(rows) if isinstance(row, Match)), -1))
        self.list.scrollToTop()
        self._place()

    def _place(self) -> None:
        room = self.window().size()
        self.setFixedWidth(min(_WIDTH, room.width() - 4 * GRID))
        row_count = min(max(self.list.count(), 1), _ROWS_SHOWN)
        rows_height = min(row_count * _ROW_HEIGHT, max(4 * _ROW_HEIGHT, room.height() - 3 * _TOP))
        self.list.setFixedHeight(rows_height + 2 * self.list.frameWidth())
        self.adjustSize()
        self.move((room.width() - self.width()) // 2, min(_TOP, max(0, room.height() - self.height())))

    def _build(self) -> None:
        self.setProperty("role", "palette")
        self.setAccessibleName("Command palette")
        self.list.setItemDelegate(_Delegate(self._theme))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setUniformItemSizes(True)
        self.list.setAccessibleName("Matches")
        self.list.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.line.setProperty("role", "palette")
        below = make_column(self._hint, margins=(2 * GRID, GRID // 2, 2 * GRID, GRID))
        make_column(self.line, separator(), self.list, separator(), below, parent=self, margins=1, spacing=0)


def _application() -> QApplication:
    application = QApplication.instance()
    assert isinstance(application, QApplication), "widgets need one"
    return application
