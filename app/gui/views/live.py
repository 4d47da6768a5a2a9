"""The right of the Run screen: the number that matters, progress, live plots, the outcome in words."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.gui.panels import PanelStack
from app.gui.theme import GRID, Theme, figures
from app.gui.views.evidence import BadgeLine, EvidencePanel
from app.gui.views.parts import ElidedLabel, Scroller, button, say, set_role, text_label
from app.gui.views.run_tabs import RunTabs
from app.gui.views.time_bar import TimeBar
from app.viewmodels.evidence import EvidenceView
from app.viewmodels.live import LiveState, Status

_BIG_PX = 36
_PROGRESS_STEPS = 1000


class LiveView(QWidget):
    """Shows a `LiveState`."""

    log_asked = Signal()
    offer_taken = Signal()
    run_chosen = Signal(int)
    """Another one of the runs that go on at the same time."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._runs = RunTabs(theme)
        self._runs.chosen.connect(self.run_chosen)
        self._number = text_label("–", "big")
        self._number.setFont(figures(_BIG_PX, bold=True))
        self._number.setAccessibleName("Throughput")
        self._unit = text_label("", "unit")
        self._instead = text_label("", "title")
        self._instead.setAlignment(Qt.AlignmentFlag.AlignBottom)
        self._spread = text_label("", "caption")
        self._name = ElidedLabel("muted")
        self._title = text_label("", "heading")
        self._left = text_label("", "muted")
        self._detail = text_label("", "", wrap=True)
        self._facts = text_label("", "muted", wrap=True)
        self._facts.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._detail.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        for label in (self._left, self._facts, self._spread):
            label.setFont(figures())
        self._badge = BadgeLine(theme)
        self._evidence = EvidencePanel(theme)
        self._parts = QStackedWidget()
        self._badge.toggled.connect(lambda shown: self._parts.setCurrentIndex(int(shown)))
        self._bar = QProgressBar()
        self._bar.setRange(0, _PROGRESS_STEPS)
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName("Progress of this phase")
        self._log = button("Show &log", "The worker's own words, with the traceback", flat=True)
        self._log.clicked.connect(self.log_asked)
        self._offer = button("Start the &quick comparison", "What a first experiment looks like")
        self._offer.clicked.connect(self.offer_taken)
        self._offer_words = text_label("", "muted", wrap=True)
        self._stack = PanelStack(theme)
        self._bar_of_time = TimeBar(self._stack)
        self._state: LiveState | None = None
        self._stack.read.connect(self._show_reading)
        to_plots = QShortcut(QKeySequence("Ctrl+L"), self)
        to_plots.activated.connect(self._stack.setFocus)
        self._build()

    @property
    def log_button(self) -> QPushButton:
        """The button that shows the log, seen when there is one."""
        return self._log

    @property
    def offer_button(self) -> QPushButton:
        """Takes what is offered."""
        return self._offer

    @property
    def name(self) -> str:
        """The variant of the run shown."""
        return self._name.text()

    @property
    def runs(self) -> RunTabs:
        """What chooses among runs that go on at the same time."""
        return self._runs

    @property
    def stack(self) -> PanelStack:
        """The plots."""
        return self._stack

    @property
    def badge(self) -> BadgeLine:
        """Whether the run that ended ran as asked; seen when there is evidence."""
        return self._badge

    @property
    def evidence(self) -> EvidencePanel:
        """What really ran."""
        return self._evidence

    @property
    def time_bar(self) -> TimeBar:
        """What chooses the stretch of time."""
        return self._bar_of_time

    def words(self) -> str:
        """Everything the head says, as one text."""
        labels = (
            self._instead,
            self._title,
            self._detail,
            self._number,
            self._unit,
            self._spread,
            self._left,
            self._facts,
        )
        return " ".join(label.text() for label in labels if label.text())

    def show_model(self, state: LiveState) -> None:
        """Show this state; plots draw only what changed."""
        self._runs.show_runs(state.runs, state.run)
        say(self._number, state.number)
        self._unit.setText(state.unit)
        self._spread.setText(state.spread)
        say(self._facts, state.facts)
        self._show_status(state.status, state.number)
        self._show_evidence(state.evidence)
        self._state = state
        self._bar_of_time.show_model(state)
        self._stack.show_panels(
            state.panels, state.origin_s, state.window_s, state.bands, state.moments, fit=bool(state.held)
        )
        self._show_reading(self._stack.crosshair)

    def show_offer(self, question: str) -> None:
        """Offer to answer a question with one click; "" is no offer."""
        self._offer_words.setText(question)
        for part in (self._offer, self._offer_words):
            part.setVisible(bool(question))

    def _show_evidence(self, view: EvidenceView | None) -> None:
        self._badge.setVisible(view is not None)
        if view is None:
            self._badge.button.setChecked(False)
        else:
            self._badge.show_view(view)
            self._evidence.show_view(view)

    def _show_reading(self, time: float | None) -> None:
        self._bar_of_time.show_reading("" if time is None or self._state is None else self._state.reading(time))

    def _show_status(self, status: Status, number: str) -> None:
        """Where the run stands: beside its number, or in its place while there is none."""
        title, other = (self._title, self._instead) if number else (self._instead, self._title)
        title.setText(status.title)
        set_role(self._title, status.tone)
        set_role(self._instead, f"title {status.tone}")
        title.show()
        other.clear()
        other.hide()
        self._name.setText(status.name)
        self._name.setToolTip(status.name)
        say(self._left, status.left)
        say(self._detail, status.detail)
        self._bar.setValue(round((status.fraction or 0.0) * _PROGRESS_STEPS))
        self._log.setVisible(status.has_log)

    def _build(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, GRID)
        layout.setSpacing(GRID)
        layout.addWidget(self._runs)
        layout.addLayout(self._head())
        layout.addWidget(self._detail)
        layout.addLayout(self._offered())
        layout.addWidget(self._facts)
        layout.addWidget(self._badge)
        layout.addWidget(self._bar)
        self._parts.addWidget(self._curves())
        self._parts.addWidget(self._evidence)
        layout.addWidget(self._parts, 1)

    def _offered(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(2 * GRID)
        line.addWidget(self._offer)
        line.addWidget(self._offer_words, 1)
        self.show_offer("")
        return line

    def _curves(self) -> QWidget:
        made = QWidget()
        column = QVBoxLayout(made)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID)
        column.addWidget(self._bar_of_time)
        column.addWidget(Scroller(self._stack), 1)
        return made

    def _head(self) -> QHBoxLayout:
        figure = QHBoxLayout()
        figure.setSpacing(GRID)
        bottom = Qt.AlignmentFlag.AlignBottom
        unit = QVBoxLayout()
        unit.setSpacing(0)
        unit.addStretch(1)
        unit.addWidget(self._unit)
        unit.addWidget(self._spread)
        unit.addSpacing(GRID // 2)
        self._instead.setMinimumHeight(self._number.sizeHint().height())
        figure.addWidget(self._instead, 0, bottom)
        figure.addWidget(self._number, 0, bottom)
        figure.addLayout(unit)
        words = QVBoxLayout()
        words.setSpacing(GRID // 2)
        words.addStretch(1)
        words.addWidget(self._name)
        words.addLayout(self._status_line())
        head = QHBoxLayout()
        head.addLayout(figure)
        head.addLayout(words, 1)
        return head

    def _status_line(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(GRID)
        line.addStretch(1)
        for widget in (self._log, self._title, self._left):
            line.addWidget(widget)
        return line
