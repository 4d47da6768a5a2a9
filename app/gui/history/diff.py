"""The page of two runs side by side: what differs, section by section, and what is alike where wanted."""

import html
from collections.abc import Iterator, Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLineEdit, QTextBrowser, QWidget

from app.gui.theme import GRID, Colours, Theme
from app.gui.widgets.basic import HtmlPage, button, make_column, make_row, separator, text_label, toggle_button
from app.gui.widgets.flow_layout import FlowBar
from app.gui.window_state import WindowState
from app.viewmodels.history.run_diff import DiffRow, DiffSection, RunDiff, TextDiff, text_line

_MAX_WIDTH = 150 * GRID
_MARGINS = 7 * GRID
"""Around the page and its scroll bar."""
_SHARES = (34, 24, 24, 18)
"""Of the page's width, in percent: the names, both runs, the change."""
_INDENT = "&nbsp;" * 5


class RunDiffView(QWidget):
    """Shows a `RunDiff`."""

    back_requested = Signal()
    compare_requested = Signal(list)
    swap_requested = Signal(list)
    save_requested = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._diff: RunDiff | None = None
        self._title = text_label("", "title")
        self._names = text_label("", "muted", wrap=True)
        self._back = button("← &History", "Back to the table (Escape)", flat=True)
        self._alike = toggle_button("Show what is &equal", "List values that both runs share too")
        self._swap = button("S&wap", "Count changes from the other run", small=True)
        self._save = button("&Save …", "Write this page to an HTML or Markdown file", small=True)
        self._compare = button("Open in &Compare", "Compare the two runs: verdict, curves, charts", small=True)
        self._search = QLineEdit()
        self._page = HtmlPage(GRID // 2)
        self._back.clicked.connect(self.back_requested)
        state = WindowState("diff", self)
        self._alike.setChecked(state.read("alike", False))
        self._alike.toggled.connect(partial(state.keep, "alike"))
        self._alike.toggled.connect(self._rebuild)
        self._swap.clicked.connect(lambda: self.swap_requested.emit(self._runs()[::-1]))
        self._compare.clicked.connect(lambda: self.compare_requested.emit(self._runs()))
        self._save.clicked.connect(lambda: self.save_requested.emit(self._diff))
        theme.follow(self, self._rebuild)
        self._build()

    def show_diff(self, diff: RunDiff) -> None:
        """Show two runs from the top of the page."""
        self._diff = diff
        self._title.setText(diff.title)
        self._names.setText("\n".join(f"{label}:  {name}" for label, name in zip(diff.labels, diff.names, strict=True)))
        self._rebuild()
        self._page.verticalScrollBar().setValue(0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep lines short enough to be followed from name to value."""
        super().resizeEvent(event)
        self._page.setLineWrapColumnOrWidth(min(_MAX_WIDTH, self.width() - _MARGINS))

    def focus_search(self) -> None:
        """Focus the search field."""
        self._search.setFocus()
        self._search.selectAll()

    def focus_page(self) -> None:
        """Give the keyboard to the page, which it scrolls."""
        self._page.setFocus()

    def _rebuild(self) -> None:
        if self._diff is not None:
            self._page.show_html(diff_html(self._diff, self._theme.colours, everything=self._alike.isChecked()))

    def _runs(self) -> list[int]:
        return [] if self._diff is None else list(self._diff.runs)

    def _find_next(self) -> None:
        """Go to the next place that has the text, from the top again after the last one."""
        if not self._page.find(self._search.text()):
            self._page.moveCursor(self._page.textCursor().MoveOperation.Start)
            self._page.find(self._search.text())

    def _build(self) -> None:
        self._page.setLineWrapMode(QTextBrowser.LineWrapMode.FixedPixelWidth)
        self._page.setAccessibleName("What differs between the runs")
        self._search.setPlaceholderText("Search this page (Ctrl+F)")
        self._search.setAccessibleName("Search this page")
        self._search.setClearButtonEnabled(True)
        self._search.setFixedWidth(26 * GRID)
        self._search.returnPressed.connect(self._find_next)
        parts = self._search, self._alike, self._swap, self._save, self._compare
        tools = FlowBar(GRID, GRID // 2, *parts, right=True)
        lines = make_row(self._back, (tools, 1)), self._title, self._names, separator(), (self._page, 1)
        make_column(*lines, parent=self, margins=(2 * GRID, GRID, 2 * GRID, 0), spacing=GRID)


def diff_html(diff: RunDiff, colours: Colours, *, everything: bool) -> str:
    """Return the page as HTML, every text escaped."""
    sections = (_section_html(section, diff.labels, colours, everything=everything) for section in diff.sections)
    return "".join((*sections, *(_text_html(text, diff.labels, colours) for text in diff.texts)))


def _section_html(section: DiffSection, labels: tuple[str, str], colours: Colours, *, everything: bool) -> str:
    rows = [*section.rows, *(section.alike if everything else ())]
    parts = [_title_html(section.title, section.counts, colours)]
    if section.note and (rows or section.key == "kernels"):
        parts.append(f'<p style="margin:0 0 6px 0; color:{colours.muted}">{html.escape(section.note)}</p>')
    if rows:
        numbers = any(row.change for row in rows)
        heads = ("", *labels, "Change" if numbers else "")
        body = "".join(_row_html(row, colours, alike=row in section.alike, numbers=numbers) for row in rows)
        parts.append(
            f'<table width="100%" cellspacing="0" cellpadding="2">{_cells(heads, colours.muted, numbers)}{body}</table>'
        )
    return "".join(parts)


def _row_html(row: DiffRow, colours: Colours, *, alike: bool, numbers: bool) -> str:
    name = f"{_INDENT}{_escaped(row.name)}" if row.kernel else _escaped(row.name)
    cells = (name, *map(_escaped, (row.first, row.second, row.change)))
    return _cells(cells, colours.muted if alike or row.kernel else colours.text, numbers, name_colour=colours.muted)


def _cells(cells: Sequence[str], colour: str, numbers: bool, name_colour: str = "") -> str:
    side = "right" if numbers else "left"

    def cell_texts() -> Iterator[str]:
        for n, (cell, share) in enumerate(zip(cells, _SHARES, strict=True)):
            paint = name_colour if n == 0 and name_colour else colour
            align = side if n else "left"
            style = f"color:{paint}; padding-right:16px"
            yield f'<td width="{share}%" align="{align}" style="{style}">{cell or "&nbsp;"}</td>'

    return f"<tr>{''.join(cell_texts())}</tr>"


def _text_html(text: TextDiff, labels: tuple[str, str], colours: Colours) -> str:
    """Return the lines of a text that one run has: − those of the first, + those of the second."""
    title = _title_html(text.title, text.counts, colours)
    if not text.changes:
        return title
    tones = {"first": colours.bad, "second": colours.good}
    legend = f'<p style="margin:0; color:{colours.muted}">− {labels[0]} · + {labels[1]}</p>'
    lines = "".join(
        f'<div style="color:{tones[change.side]}; white-space:pre-wrap; font-family:monospace">'
        f"{html.escape(text_line(change))}</div>"
        for change in text.changes
    )
    return f"{title}{legend}{lines}"


def _title_html(title: str, counts: str, colours: Colours) -> str:
    note = f' &nbsp;<span style="color:{colours.muted}">{html.escape(counts)}</span>' if counts else ""
    return f'<p style="margin-top:16px; margin-bottom:4px"><b>{html.escape(title)}</b>{note}</p>'


def _escaped(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
