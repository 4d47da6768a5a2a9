"""Widgets that all screens share: labels, buttons, menus, separators, HTML pages and empty states.

Every view follows one convention: it is built with the `Theme`, and with the window's `Actions` where it leads to other
screens; `show_model(model)` gives it its content, and only its controller or parent uses its signals. It starts no
thread, opens no file and does not depend on a controller.
"""

import html
import re
from collections.abc import Callable, Iterable
from string import Template
from typing import Final, TypeVar

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QFontDatabase, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import delete

from app.errors import UserError
from app.gui.theme import GRID, Colours, tabular_font
from app.gui.widgets.text_widths import SentenceLabel
from app.values.plain import plain_line, plain_text

Box = TypeVar("Box", bound=QBoxLayout)
Choice = TypeVar("Choice")
_MAX_TOOLTIP_CHARS = 1_000
_BREAK_HINT = "\N{ZERO WIDTH SPACE}"
_LONG_WORD = re.compile(r"\S{20,}")
_NAME_BREAKS = re.compile(r"[_./:](?=\w)|(?<=[a-z0-9])(?=[A-Z])")


def plain_tooltip(text: str, *, wrap: bool = True) -> str:
    """Return a text as a tooltip that Qt does not read as mark-up; "" for none.

    With `wrap` it breaks into lines of readable length, not only at line feeds.
    """
    if not text:
        return ""
    excerpt = text if len(text) <= _MAX_TOOLTIP_CHARS else f"{text[:_MAX_TOOLTIP_CHARS]} …"
    space = "pre-wrap" if wrap else "pre"
    return f'<p style="white-space: {space}">{html.escape(plain_text(excerpt), quote=False)}</p>'


def text_label(text: str, role: str = "", *, wrap: bool = False, selectable: bool = False) -> QLabel:
    """Return a label of plain text, which the mouse may select.

    Its role in the style sheet is heading, title, figure, big, muted, caption, problem, good, warning or bad.
    """
    label = SentenceLabel(wordWrap=wrap)
    label.setText(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setProperty("role", role)
    if selectable:
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def show_text(label: QLabel, text: str) -> None:
    """Show a text; an empty label takes no space."""
    label.setText(text)
    label.setVisible(bool(text))


def set_role(widget: QWidget, role: str) -> None:
    if widget.property("role") != role:
        widget.setProperty("role", role)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def button(text: str, help: str = "", *, primary: bool = False, flat: bool = False, small: bool = False) -> QPushButton:
    """Return a push button.

    In its label `&` marks the mnemonic. A `primary` button is the screen's main action, a `small` one fits into a bar.
    """
    push_button = QPushButton(text)
    push_button.setProperty("primary", "true" if primary else "false")
    push_button.setProperty("flat", "true" if flat else "false")
    push_button.setProperty("small", "true" if small else "false")
    push_button.setToolTip(plain_tooltip(help))
    push_button.setAutoDefault(False)
    return push_button


def toggle_button(text: str, help: str = "") -> QPushButton:
    toggle = button(text, help, small=True)
    toggle.setCheckable(True)
    return toggle


class SearchLine(QLineEdit):
    """A line for what is searched, with a button that clears it."""

    def __init__(self, prompt: str, name: str = "") -> None:
        super().__init__(placeholderText=prompt, clearButtonEnabled=True)
        self.setAccessibleName(name or prompt)

    def begin(self) -> None:
        """Take the focus, so that what is typed replaces the last search."""
        self.setFocus()
        self.selectAll()


def fixed_text(name: str) -> QPlainTextEdit:
    """Return a view of text to read and copy, in letters of one width."""
    view = QPlainTextEdit(readOnly=True)
    view.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
    view.setAccessibleName(name)
    return view


def add_choices(
    menu: QMenu, choices: Iterable[tuple[str, Choice]], chosen: Choice, choose: Callable[[Choice], object]
) -> None:
    """Add values under their labels to a menu, with the chosen one checked."""
    for label, value in choices:
        action = QAction(label, menu, checkable=True, checked=value == chosen)
        action.triggered.connect(lambda _=False, value=value: choose(value))
        menu.addAction(action)


def painted_pixmap(size: QSize, paint: Callable[[QPainter], None], ratio: float = 1.0) -> QPixmap:
    """Return a transparent pixmap on which `paint` has painted, with `ratio` pixels for each of its size."""
    pixmap = QPixmap(size * ratio)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    paint(painter)
    painter.end()
    return pixmap


class BreakingLabel(QLabel):
    """Wrapped text in which long names and paths also break.

    Qt cuts a word that is too long for a line, and gives the lines too little height.
    """

    def __init__(self, role: str) -> None:
        super().__init__()
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setWordWrap(True)

    def setText(self, text: str) -> None:
        text = plain_text(text)
        super().setText(_LONG_WORD.sub(lambda word: _NAME_BREAKS.sub(rf"\g<0>{_BREAK_HINT}", word[0]), text))

    def minimumSizeHint(self) -> QSize:
        """Return the height of all lines, because scrolling pages use the minimum height.

        A fixed minimum height would remain even if fewer lines suffice at another width.
        """
        return QSize(super().minimumSizeHint().width(), max(0, self.heightForWidth(self.width())))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()

    def text(self) -> str:
        """Return the text without break points."""
        return super().text().replace(_BREAK_HINT, "")


class ElidedLabel(QLabel):
    """One line whose middle, or end, is elided if it does not fit; its tooltip has the full text."""

    def __init__(
        self,
        role: str = "",
        side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignRight,
        elided: Qt.TextElideMode = Qt.TextElideMode.ElideMiddle,
    ) -> None:
        super().__init__()
        self._elided = elided
        self.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def setText(self, text: str) -> None:
        super().setText(plain_line(text))
        self.setToolTip(plain_tooltip(text))

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        text = self.fontMetrics().elidedText(self.text(), self._elided, self.width() - max(0, self.indent()))
        painter.drawText(self.contentsRect().adjusted(max(0, self.indent()), 0, 0, 0), self.alignment(), text)
        painter.end()


class ElidedComboBox(QComboBox):
    """A drop-down list whose current text is elided in the middle if it does not fit."""

    def paintEvent(self, _event: QPaintEvent) -> None:
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        part = QStyle.SubControl.SC_ComboBoxEditField
        width = self.style().subControlRect(QStyle.ComplexControl.CC_ComboBox, option, part, self).width()
        option.currentText = self.fontMetrics().elidedText(self.currentText(), Qt.TextElideMode.ElideMiddle, width)
        painter = QStylePainter(self)
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)
        painter.end()


class Surface(QWidget):
    """A part of the window with the background of a screen."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)


class ChecksMenu(QMenu):
    """A menu of check boxes that stays open for changes by mouse or Space; Enter changes one and closes it."""

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if not self._change(self.actionAt(event.position().toPoint())):
            super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Toggle the current check box by Space, which Qt's style ignores in menus."""
        if event.key() != Qt.Key.Key_Space or not self._change(self.activeAction()):
            super().keyPressEvent(event)

    def _change(self, entry: QAction | None) -> bool:
        if entry is None or not (entry.isCheckable() and entry.isEnabled()):
            return False
        entry.trigger()
        return True


Item = QWidget | QLayout | int | tuple[QWidget | QLayout | None, int] | tuple[QWidget, int, Qt.AlignmentFlag] | None
"""An item of a row or column; a pair includes the stretch, by which items share the remaining space, a number is a gap
in pixels."""
STRETCH: Final = None
"""The item that takes the remaining space."""
Margins = int | tuple[int, int, int, int]
"""All four margins, or left, top, right and bottom, in pixels."""


def make_column(
    *items: Item, parent: QWidget | None = None, margins: Margins | None = None, spacing: int | None = None
) -> QVBoxLayout:
    """Return a vertical layout; None leaves margins and spacing to the style."""
    return _filled(QVBoxLayout() if parent is None else QVBoxLayout(parent), items, margins, spacing)


def make_row(
    *items: Item, parent: QWidget | None = None, margins: Margins | None = None, spacing: int | None = None
) -> QHBoxLayout:
    """Return a horizontal layout; None leaves margins and spacing to the style."""
    return _filled(QHBoxLayout() if parent is None else QHBoxLayout(parent), items, margins, spacing)


def _filled(layout: Box, items: Iterable[Item], margins: Margins | None, spacing: int | None) -> Box:
    if margins is not None:
        layout.setContentsMargins(*((margins,) * 4 if isinstance(margins, int) else margins))
    if spacing is not None:
        layout.setSpacing(spacing)
    for item in items:
        match item if isinstance(item, tuple) else (item, 0):
            case None, stretch:
                layout.addStretch(stretch or 1)
            case int(gap), _:
                layout.addSpacing(gap)
            case QLayout() as inside, stretch:
                layout.addLayout(inside, stretch)
            case QWidget() as widget, stretch:
                layout.addWidget(widget, stretch)
            case QWidget() as widget, stretch, side:
                layout.addWidget(widget, stretch, side)
    return layout


def clear_layout(layout: QLayout) -> None:
    while (item := layout.takeAt(0)) is not None:
        if (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()
        delete(item)  # it belongs to the caller now


def separator() -> QFrame:
    """Return a hairline between two parts."""
    line = QFrame()
    line.setProperty("role", "rule")
    line.setFixedHeight(1)
    return line


_REPORT_STYLE = Template("""
h2 { font-size: medium; margin-top: 16px; margin-bottom: 4px; }
p { margin-top: 0px; margin-bottom: 4px; }
p.quiet { color: $muted; }
table { margin-top: 4px; margin-bottom: 12px; border-collapse: collapse; }
th, td { padding: 4px 12px 4px 0px; border-bottom: 1px solid $line; text-align: left; white-space: nowrap; }
th { color: $muted; font-weight: normal; white-space: normal; vertical-align: bottom; }
td.long { white-space: normal; }
.number { text-align: right; }
pre { white-space: pre-wrap; }
""")


def report_style(colours: Colours) -> str:
    return _REPORT_STYLE.substitute(muted=colours.muted, line=colours.line)


class HtmlPage(QTextBrowser):
    """Text from HTML, with aligned figures."""

    def __init__(self, margin: int) -> None:
        super().__init__()
        self.setFont(tabular_font())
        self.document().setDocumentMargin(margin)

    def show_html(self, text: str, style_sheet: str = "") -> None:
        """Show HTML in these styles, keeping the scroll position."""
        position = self.verticalScrollBar().value()
        self.document().setDefaultStyleSheet(style_sheet)
        self.setHtml(plain_text(text))
        self.verticalScrollBar().setValue(position)


class EmptyState(QWidget):
    """Placeholder of an empty screen: a heading, what to do next, and the buttons for it."""

    def __init__(self, title: str, text: str, *actions: QPushButton) -> None:
        super().__init__()
        self._title = text_label(title, "title", wrap=True)
        self._text = text_label(text, "muted", wrap=True)
        middle = Qt.AlignmentFlag.AlignHCenter
        for label in (self._title, self._text):
            label.setAlignment(middle)
        buttons = ((action, 0, middle) for action in actions)
        texts: tuple[Item, ...] = (STRETCH, 2), self._title, self._text
        make_column(*texts, *buttons, (STRETCH, 3), parent=self, margins=4 * GRID, spacing=GRID)

    def set_text(self, title: str, text: str) -> None:
        self._title.setText(title)
        self._text.setText(text)


Retry = Callable[[], None]


class ProblemLine(QWidget):
    """One sentence; without one it takes no space. Thread: GUI only."""

    def __init__(self) -> None:
        super().__init__()
        self._retry: Retry | None = None
        self._is_read = False
        self._text = text_label("", "bad", wrap=True)
        self._button = button("&Try again", "Read the file again", small=True)
        self._button.clicked.connect(self._try_again)
        parts = (self._text, 1), (self._button, 0, Qt.AlignmentFlag.AlignTop)
        make_row(*parts, parent=self, margins=(2 * GRID, GRID, 2 * GRID, 0), spacing=2 * GRID)
        self.hide()

    @property
    def text(self) -> str:
        return self._text.text()

    def show_sentence(self, sentence: str) -> None:
        """Show a sentence that is not about a read; "" hides it, and any failed read."""
        self._is_read = False
        self._show(sentence, None)

    def show_failed_read(self, error: UserError, retry: Retry) -> None:
        """Show why something could not be read, and offer to read it again if that may help."""
        self._is_read = True
        self._show(str(error), retry if error.may_pass else None)

    def end_failed_read(self) -> None:
        """Hide a failed read after a successful one; a sentence about something else stays."""
        if self._is_read:
            self.show_sentence("")

    def _show(self, sentence: str, retry: Retry | None) -> None:
        self._retry = retry
        show_text(self._text, sentence)
        self._button.setVisible(retry is not None)
        self._button.setEnabled(True)
        self.setVisible(bool(sentence))

    def _try_again(self) -> None:
        """Read again; the reader shows the outcome."""
        if self._retry is not None:
            self._button.setEnabled(False)
            self._retry()
