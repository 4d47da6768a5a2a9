"""The page of one stored run: outcome, figures, plots, environment details and log."""

import html
from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QShortcut, QTextCursor, QTextDocument
from PySide6.QtWidgets import QPlainTextEdit, QSplitter, QStackedWidget, QTextEdit, QVBoxLayout, QWidget

from app.gui.actions import Actions
from app.gui.history.annotations import AnnotationView
from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.time_bar import TimeBar
from app.gui.run.evidence import BadgeLine, EvidencePanel
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    STRETCH,
    HtmlPage,
    SearchLine,
    button,
    clear_layout,
    fixed_text,
    make_column,
    make_row,
    separator,
    show_text,
    text_label,
)
from app.gui.widgets.panes import FlowBar, Scroller, splitter
from app.gui.window_state import WindowState
from app.values.plain import plain_text
from app.viewmodels.format.cells import Cell
from app.viewmodels.history.run_detail import DetailGroup, RunDetail
from app.viewmodels.plot.model import RUN_RANGES

_MAX_MATCHES = 500


class LogView(QWidget):
    """Log lines with a search field: all matches are highlighted; Enter goes to the next, Shift+Enter back."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._title = text_label("Log", "heading")
        self._match_count = text_label("", "caption")
        self.search = SearchLine("Search the log")
        self.search.setMaximumWidth(32 * GRID)
        self.search.textChanged.connect(self._highlight_matches)
        self.search.returnPressed.connect(
            lambda: self._find(QTextDocument.FindFlag(0), QTextCursor.MoveOperation.Start)
        )
        self._text = fixed_text("Log of the run")
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        back = QShortcut("Shift+Return", self.search, context=Qt.ShortcutContext.WidgetShortcut)
        back.activated.connect(lambda: self._find(QTextDocument.FindFlag.FindBackward, QTextCursor.MoveOperation.End))
        theme.changed.connect(self._highlight_matches)
        header = make_row(self._title, STRETCH, self._match_count, self.search, spacing=GRID)
        make_column(header, (self._text, 1), parent=self, margins=(0, GRID, 2 * GRID, 2 * GRID), spacing=GRID)

    def show_log(self, title: str, text: str) -> None:
        self._title.setText(title)
        self._text.setPlainText(plain_text(text))
        self._text.moveCursor(QTextCursor.MoveOperation.End)
        self._text.moveCursor(QTextCursor.MoveOperation.StartOfLine)
        self.search.clear()
        self._highlight_matches()

    def _highlight_matches(self) -> None:
        marks: list[QTextEdit.ExtraSelection] = []
        match = self._text.document().find(self.search.text()) if self.search.text() else QTextCursor()
        while not match.isNull() and len(marks) < _MAX_MATCHES:
            marks.append(self._highlight(match))
            match = self._text.document().find(self.search.text(), match)
        self._text.setExtraSelections(marks)
        more = "more than " if len(marks) == _MAX_MATCHES else ""
        self._match_count.setText(f"{more}{len(marks)} found" if self.search.text() else "")

    def _highlight(self, cursor: QTextCursor) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        colour = QColor(self._theme.colours.accent)
        colour.setAlpha(70)
        mark.cursor = cursor
        mark.format.setBackground(colour)
        return mark

    def _find(self, flags: QTextDocument.FindFlag, wrap_to: QTextCursor.MoveOperation) -> None:
        pattern = self.search.text()
        if pattern and not self._text.find(pattern, flags):
            self._text.moveCursor(wrap_to)
            self._text.find(pattern, flags)


def details_html(groups: tuple[DetailGroup, ...], muted: str) -> str:
    """Return the environment's groups as HTML tables, with names in the muted colour and escaped text."""
    return "".join(
        f'<p style="margin-top:12px; margin-bottom:2px"><b>{html.escape(group.title)}</b></p>'
        f"{_table_html(group, muted)}"
        for group in groups
    )


def _table_html(group: DetailGroup, muted: str) -> str:
    if not group.rows:
        items = (
            f'<tr><td width="45%" style="color:{muted}; padding-right:8px">{html.escape(item.name)}</td>'
            f"<td>{html.escape(item.value).replace(chr(10), '<br>')}</td></tr>"
            for item in group.items
        )
        return f'<table width="100%" cellpadding="1">{"".join(items)}</table>'

    def line(row: Sequence[str], style: str = "") -> str:
        # No cell is empty: after an empty last cell, Qt drops the next heading's margin.
        first, *others = (html.escape(cell) or "&nbsp;" for cell in row)
        numbers = "".join(f'<td align="right" style="padding-left:12px; {style}">{cell}</td>' for cell in others)
        return f'<tr><td style="color:{muted}; padding-right:8px">{first}</td>{numbers}</tr>'

    lines = line(group.header, f"color:{muted}"), *map(line, group.rows)
    return f'<table cellpadding="1" cellspacing="0">{"".join(lines)}</table>'


_DETAILS_WIDTH = 44 * GRID
_TRACEBACK_LINES = 14
_LOG_HEIGHT = 19 * GRID


class RunPageView(QWidget):
    """Shows a `RunDetail`."""

    timeline_requested = Signal(int)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self._actions = actions
        self._detail: RunDetail | None = None
        self._title = text_label("", "title", wrap=True)
        self._subtitle = text_label("", "muted")
        self._outcome = text_label("", "heading")
        self._reason = text_label("", wrap=True, selectable=True)
        self.badge = BadgeLine(theme)
        self.evidence = EvidencePanel(theme, is_stored=True)
        self.evidence.timeline_requested.connect(lambda: self._with_run(self.timeline_requested.emit))
        self._parts = QStackedWidget()
        self._notes = text_label("", "muted", wrap=True)
        self._figures = FlowBar(4 * GRID, GRID)
        self._traceback = fixed_text("Traceback")
        self.panels = PanelStack(theme, staggered=True)
        self.time_bar = TimeBar(self.panels, RUN_RANGES)
        self._no_plots = text_label("This run has no measurements: it ended before any were taken.", "muted")
        self.annotations = AnnotationView()
        self._details = HtmlPage(GRID)
        self.log = LogView(theme)
        self.back = button("← &History", "Back to the table (Escape)", flat=True)
        self._again = button("R&un again …", "Load this variant into the form on the Run screen")
        self._copy = button("Copy co&mmand", "Copy the command that runs this variant again")
        self.badge.toggled.connect(lambda is_on: self._parts.setCurrentIndex(int(is_on)))
        self._again.clicked.connect(lambda: self._with_run(self._actions.run_again))
        self._copy.clicked.connect(self._copy_command)
        theme.changed.connect(self._restyle)
        self._build()

    def show_model(self, detail: RunDetail) -> None:
        self._detail = detail
        self._title.setText(detail.title)
        self._subtitle.setText(detail.subtitle)
        self._outcome.setText(f"{detail.outcome.symbol}  {detail.outcome.text.capitalize()}")
        show_text(self._reason, detail.reason)
        show_text(self._notes, "\n".join(detail.notes))
        self.badge.show_view(detail.evidence)
        self.evidence.show_view(detail.evidence)
        self.annotations.show_annotations(detail.run, detail.tags, detail.note)
        self._traceback.setPlainText(plain_text(detail.traceback.rstrip()))
        self._traceback.setVisible(bool(detail.traceback))
        lines = min(self._traceback.blockCount(), _TRACEBACK_LINES) + 2
        self._traceback.setFixedHeight(lines * self._traceback.fontMetrics().lineSpacing())
        self._traceback.verticalScrollBar().setValue(detail.fault_line)
        clear_layout(self._figures.flow)
        for name, cell in detail.figures:
            self._figures.flow.addWidget(_figure(name, cell))
        self._no_plots.setVisible(not detail.plots.panels)
        self.time_bar.setVisible(bool(detail.plots.panels))
        self.panels.show_plots(detail.plots)
        self.log.show_log(detail.log_title, detail.log)
        self.log.setVisible(bool(detail.log))
        self._details.verticalScrollBar().setValue(0)
        self._restyle()

    def _with_run(self, act: Callable[[int], None]) -> None:
        if self._detail is not None:
            act(self._detail.run)

    def _copy_command(self) -> None:
        if self._detail is not None:
            QGuiApplication.clipboard().setText(self._detail.command)

    def _restyle(self) -> None:
        if self._detail is None:
            return
        tone = self._detail.outcome.tone
        self._outcome.setStyleSheet(f"color: {self._theme.tone_colour(tone)};" if tone else "")
        self._details.show_html(details_html(self._detail.groups, self._theme.colours.muted))

    def _build(self) -> None:
        self._traceback.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._details.setAccessibleName("Details of the run")
        parts = self._header(), separator(), (self._body(), 1)
        make_column(*parts, parent=self, margins=(2 * GRID, GRID, 0, 0), spacing=GRID)

    def _header(self) -> QVBoxLayout:
        top = make_row(self.back, STRETCH, self._again, self._copy)
        state = make_row(self._outcome, self._subtitle, STRETCH, spacing=2 * GRID)
        text = make_column(state, self._reason, self._notes, spacing=GRID // 2)
        row = make_row((text, 1), self._figures, spacing=4 * GRID)
        return make_column(top, self._title, row, self.badge, margins=(0, 0, 2 * GRID, 0), spacing=GRID)

    def _body(self) -> QSplitter:
        plots = QWidget()
        lines = self._traceback, self._no_plots, self.time_bar, (self.panels, 1)
        make_column(*lines, parent=plots, margins=(0, GRID, 2 * GRID, GRID), spacing=GRID).addStretch(0)
        self._parts.addWidget(Scroller(plots))
        self._parts.addWidget(self.evidence)
        left = splitter(Qt.Orientation.Vertical, self._parts, self.log, (1, 0))
        left.setSizes([1000, _LOG_HEIGHT])
        state = WindowState("run page", self)
        state.keep_splitter("log", left)
        # Build the side panel: annotations, then the environment.
        about = QWidget()
        make_column(self.annotations, separator(), (self._details, 1), parent=about, margins=0, spacing=0)
        body = splitter(Qt.Orientation.Horizontal, left, about, (1, 0))
        body.setSizes([1000, _DETAILS_WIDTH])
        state.keep_splitter("details", body)
        return body


def _figure(name: str, cell: Cell) -> QWidget:
    number = text_label(cell.text, "figure")
    number.setAccessibleName(name)
    bottom, figure = Qt.AlignmentFlag.AlignBottom, QWidget()
    line = make_row((number, 0, bottom), (text_label(cell.unit, "muted"), 0, bottom), STRETCH, spacing=GRID // 2)
    make_column(text_label(name, "caption"), line, STRETCH, parent=figure, margins=0, spacing=0)
    return figure
