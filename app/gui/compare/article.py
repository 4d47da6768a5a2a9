"""The article that the compared runs reproduce, next to the measured figures, as selectable text."""

import re

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QTextOption

from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import HtmlPage, report_style
from app.gui.widgets.pacing import WhenSeen

_HEADS, _BREAKS, _JOINER = re.compile("<th[^>]*>[^<]*"), re.compile(r"(?<=\w[-/])(?=\w)"), "\N{WORD JOINER}"
"""The heads of tables, where Qt would break their words, and what it breaks at no more."""


class ArticleView(HtmlPage):
    """Shows HTML in the theme's colours; it copies as HTML, and as Markdown where text is wanted."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(2 * GRID)
        self._theme = theme
        self._html = ""
        # Where a bar came with the text, all would be laid out a second time, for the width that is left.
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        # Otherwise Qt breaks the words of narrow heads in their middle.
        self.setWordWrapMode(QTextOption.WrapMode.WordWrap)
        self.setAccessibleName("The article beside what was measured")
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        # Qt lays tables out a pixel or two wider than the page in some widths.
        self.horizontalScrollBar().rangeChanged.connect(self._hide_needless_bar)
        self._content = WhenSeen(self, self._restyle)
        theme.changed.connect(self._content.ask)

    def show_article(self, html: str) -> None:
        """Show this HTML from its top, unless it is shown already."""
        if html != self._html:
            self._html = html
            self.verticalScrollBar().setValue(0)
            self._content.ask()

    def createMimeDataFromSelection(self) -> QMimeData:
        """Return what Ctrl+C copies: of several cells, Markdown rows rather than one line per cell."""
        # Made by Qt, not here: the clipboard keeps it, and one of Python's would outlive the interpreter and crash.
        data = super().createMimeDataFromSelection()
        cursor = self.textCursor()
        ends = [self.document().findBlock(position) for position in (cursor.selectionStart(), cursor.selectionEnd())]
        # Read first: Qt fills it then, and would write over what was set before.
        if data.text() and ends[0] != ends[1]:
            # Qt writes cells with unbreakable text as code.
            data.setText(cursor.selection().toMarkdown().replace("```\n", "").strip() + "\n")
        data.setText(data.text().replace(_JOINER, ""))
        data.setHtml(data.html().replace(_JOINER, ""))
        return data

    def _hide_needless_bar(self, _least: int, most: int) -> None:
        policy = Qt.ScrollBarPolicy
        self.setHorizontalScrollBarPolicy(policy.ScrollBarAsNeeded if most > GRID // 2 else policy.ScrollBarAlwaysOff)

    def _restyle(self) -> None:
        colours = self._theme.colours
        unbroken = _HEADS.sub(
            lambda head: _BREAKS.sub(_JOINER, head[0]).replace(" %", "\N{NO-BREAK SPACE}%"), self._html
        )
        self.show_html(unbroken, report_style(colours))
