"""The page of one stored run: how it ended, its figures, its plots, every fact, the end of its log."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import (
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QSplitter,
    QStackedWidget,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from app.gui.theme import GRID, Theme, figures
from app.gui.views.evidence import BadgeLine, EvidencePanel
from app.gui.views.parts import button, clear, rule, say, splitter, text_label
from app.gui.views.run_detail_facts import facts_html
from app.gui.views.run_detail_log import LogView
from app.gui.views.run_detail_panels import StoredPanels
from app.gui.views.run_own_words import RunOwnWords
from app.gui.views.stretches import Stretches
from app.viewmodels.cells import Cell
from app.viewmodels.run_detail import RunDetail

_FACTS_WIDTH = 44 * GRID
_TRACEBACK_LINES = 14
_LOG_HEIGHT = 19 * GRID


class RunDetailView(QWidget):
    """Shows a `RunDetail`."""

    back_asked = Signal()
    replay_asked = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._detail: RunDetail | None = None
        self._title = text_label("", "title", wrap=True)
        self._subtitle = text_label("", "muted")
        self._outcome = text_label("", "heading")
        self._reason = text_label("", wrap=True)
        self._reason.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._badge = BadgeLine(theme)
        self._evidence = EvidencePanel(theme)
        self._parts = QStackedWidget()
        self._notes = text_label("", "muted", wrap=True)
        self._figures = QHBoxLayout()
        self._traceback = QPlainTextEdit()
        self._panels = StoredPanels(theme)
        self._stretches = Stretches()
        self._no_plots = text_label("This run has no measurements: it ended before any were taken.", "muted")
        self._own_words = RunOwnWords()
        self._facts = QTextBrowser()
        self._log = LogView(theme)
        self._back = button("← &History", "Back to the table (Escape)", flat=True)
        self._copy = button("Copy as co&mmand", "Copy the command that runs this variant again")
        self._replay = button("Re&play", "Play this run again on the Run screen, as it was")
        self._badge.toggled.connect(lambda shown: self._parts.setCurrentIndex(int(shown)))
        self._back.clicked.connect(self.back_asked)
        self._replay.clicked.connect(self._ask_replay)
        self._copy.clicked.connect(self._copy_command)
        self._stretches.asked.connect(self._panels.show_range)
        self._panels.moved.connect(lambda: self._stretches.show_seen(self._panels.span))
        theme.changed.connect(self._restyle)
        self._build()

    @property
    def replay_button(self) -> QPushButton:
        """The button that plays the run again; enabled where it has something to play."""
        return self._replay

    @property
    def panels(self) -> StoredPanels:
        """The plots."""
        return self._panels

    @property
    def stretches(self) -> Stretches:
        """Which stretch of the run the plots show."""
        return self._stretches

    @property
    def own_words(self) -> RunOwnWords:
        """The run's tags and note."""
        return self._own_words

    @property
    def badge(self) -> BadgeLine:
        """Whether the run ran as asked."""
        return self._badge

    @property
    def evidence(self) -> EvidencePanel:
        """What really ran."""
        return self._evidence

    def words(self) -> str:
        """Everything the page says apart from plots and log, as one text."""
        labels = (self._title, self._subtitle, self._outcome, self._reason, self._notes)
        long = (self._badge.words(), self._evidence.words(), self._traceback.toPlainText(), self._facts.toPlainText())
        return "\n".join([*(label.text() for label in labels), *long])

    def show_model(self, detail: RunDetail) -> None:
        """Show this run from its top."""
        self._detail = detail
        self._title.setText(detail.title)
        self._subtitle.setText(detail.subtitle)
        self._outcome.setText(f"{detail.outcome.symbol}  {detail.outcome.text.capitalize()}")
        say(self._reason, detail.reason)
        say(self._notes, "\n".join(detail.notes))
        self._badge.show_view(detail.evidence)
        self._evidence.show_view(detail.evidence)
        self._replay.setEnabled(bool(detail.panels))
        self._own_words.show_words(detail.run, detail.tags, detail.note)
        self._traceback.setPlainText(detail.traceback.rstrip())
        self._traceback.setVisible(bool(detail.traceback))
        lines = min(self._traceback.blockCount(), _TRACEBACK_LINES) + 2
        self._traceback.setFixedHeight(lines * self._traceback.fontMetrics().lineSpacing())
        self._show_figures(detail.figures)
        self._no_plots.setVisible(not detail.panels)
        self._stretches.setVisible(detail.measured != detail.whole)
        self._stretches.show_spans(detail.measured, detail.whole)
        self._panels.show_panels(detail.panels, detail.measured, detail.bands, whole=detail.whole)
        self._stretches.show_seen(self._panels.span)
        self._log.show_log(detail.log_title, detail.log)
        self._restyle()
        self._facts.moveCursor(self._facts.textCursor().MoveOperation.Start)

    def focus_search(self) -> None:
        """Put the cursor into the search of the log."""
        self._log.focus_search()

    def _show_figures(self, shown: tuple[tuple[str, Cell], ...]) -> None:
        clear(self._figures)
        for name, cell in shown:
            self._figures.addWidget(_figure(name, cell))

    def _ask_replay(self) -> None:
        if self._detail is not None:
            self.replay_asked.emit(self._detail.run)

    def _copy_command(self) -> None:
        if self._detail is not None:
            QGuiApplication.clipboard().setText(self._detail.command)

    def _restyle(self) -> None:
        if self._detail is None:
            return
        tone = self._detail.outcome.tone
        self._outcome.setStyleSheet(f"color: {self._theme.tone_colour(tone)};" if tone else "")
        place = self._facts.verticalScrollBar().value()
        self._facts.setHtml(facts_html(self._detail.groups, self._theme.colours.muted))
        self._facts.verticalScrollBar().setValue(place)

    def _build(self) -> None:
        self._figures.setSpacing(4 * GRID)
        self._traceback.setReadOnly(True)
        self._traceback.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._traceback.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._traceback.setAccessibleName("Traceback")
        self._facts.setAccessibleName("Facts of the run")
        self._facts.setFrameShape(QTextBrowser.Shape.NoFrame)
        self._facts.setFont(figures())
        self._facts.document().setDocumentMargin(GRID)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, GRID, 0, 0)
        layout.setSpacing(GRID)
        layout.addLayout(self._head())
        layout.addWidget(rule())
        layout.addWidget(self._body(), 1)

    def _head(self) -> QVBoxLayout:
        top = QHBoxLayout()
        top.addWidget(self._back)
        top.addStretch(1)
        top.addWidget(self._replay)
        top.addWidget(self._copy)
        state = QHBoxLayout()
        state.setSpacing(2 * GRID)
        state.addWidget(self._outcome)
        state.addWidget(self._subtitle)
        state.addStretch(1)
        words = QVBoxLayout()
        words.setSpacing(GRID // 2)
        words.addWidget(self._title)
        words.addLayout(state)
        words.addWidget(self._reason)
        words.addWidget(self._notes)
        told = QHBoxLayout()
        told.setSpacing(4 * GRID)
        told.addLayout(words, 1)
        told.addLayout(self._figures)
        head = QVBoxLayout()
        head.setContentsMargins(0, 0, 2 * GRID, 0)
        head.setSpacing(GRID)
        head.addLayout(top)
        head.addLayout(told)
        head.addWidget(self._badge)
        return head

    def _body(self) -> QSplitter:
        plots = QWidget()
        column = QVBoxLayout(plots)
        column.setContentsMargins(0, GRID, 2 * GRID, GRID)
        column.setSpacing(GRID)
        column.addWidget(self._traceback)
        column.addWidget(self._no_plots)
        column.addWidget(self._stretches, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._panels, 1)
        column.addStretch(0)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setWidget(plots)
        self._parts.addWidget(scroll)
        self._parts.addWidget(self._evidence)
        left = splitter(Qt.Orientation.Vertical, self._parts, self._log, (1, 0))
        left.setSizes([1000, _LOG_HEIGHT])
        body = splitter(Qt.Orientation.Horizontal, left, self._about(), (1, 0))
        body.setSizes([1000, _FACTS_WIDTH])
        return body

    def _about(self) -> QWidget:
        """What is told in words: the user's own, then the facts."""
        about = QWidget()
        column = QVBoxLayout(about)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._own_words)
        column.addWidget(rule())
        column.addWidget(self._facts, 1)
        return about


def _figure(name: str, cell: Cell) -> QWidget:
    """One number, large, with its unit beside and its name above."""
    number = text_label(cell.text, "figure")
    number.setAccessibleName(name)
    line = QHBoxLayout()
    line.setSpacing(GRID // 2)
    line.addWidget(number, 0, Qt.AlignmentFlag.AlignBottom)
    line.addWidget(text_label(cell.unit, "muted"), 0, Qt.AlignmentFlag.AlignBottom)
    line.addStretch(1)
    made = QWidget()
    column = QVBoxLayout(made)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(0)
    column.addWidget(text_label(name, "caption"))
    column.addLayout(line)
    column.addStretch(1)
    return made
