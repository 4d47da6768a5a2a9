"""The live view of a run: throughput, progress, live plots, outcome, and a tab for each concurrent run."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QKeySequence, QPixmap, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QStackedWidget, QTabBar, QWidget

from app.gui.plot.legend import SWATCH, paint_swatch
from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.time_bar import TimeBar
from app.gui.run.evidence import BadgeLine, EvidencePanel
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import (
    STRETCH,
    ElidedLabel,
    Surface,
    button,
    make_column,
    make_row,
    painted_pixmap,
    plain_tooltip,
    set_role,
    show_text,
    text_label,
)
from app.gui.widgets.panes import Scroller
from app.gui.window_state import WindowState
from app.viewmodels.history.evidence import EvidenceView
from app.viewmodels.plot.model import LIVE_RANGES
from app.viewmodels.run.live import LiveModel, LiveState, RunTab, Status

if TYPE_CHECKING:
    from app.gui.widgets.result import ResultView
    from app.viewmodels.experiment.verdict_text import ExperimentResult

_NBSP = "\N{NO-BREAK SPACE}"
_BETWEEN_FACTS = "  ·  "


class RunTabs(QTabBar):
    """A tab per concurrent run, in the colour of its GPU's curves; hidden with a single run.

    `chosen` carries the number of the selected run.
    """

    chosen = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._runs: tuple[RunTab, ...] = ()
        self.setProperty("role", "runs")
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setElideMode(Qt.TextElideMode.ElideRight)
        self.setIconSize(QSize(SWATCH, GRID))
        self.setFont(tabular_font())
        self.setAccessibleName("Runs at the same time")
        self.currentChanged.connect(lambda index: self.chosen.emit(self.tabData(index)))
        theme.changed.connect(self._update_icons)
        self.hide()

    def show_runs(self, runs: Sequence[RunTab], current: int | None) -> None:
        with QSignalBlocker(self):
            if self._runs != tuple(runs):
                self._show(tuple(runs))
            numbers = [run.run for run in runs]
            if current in numbers:
                self.setCurrentIndex(numbers.index(current))

    def _show(self, runs: tuple[RunTab, ...]) -> None:
        self._runs = runs
        while self.count() > len(runs):
            self.removeTab(self.count() - 1)
        while self.count() < len(runs):
            self.addTab("")
        for index, run in enumerate(runs):
            self.setTabText(index, run.label)
            self.setTabToolTip(index, plain_tooltip(run.help))
            self.setTabData(index, run.run)
        self._update_icons()
        self.setVisible(bool(runs))

    def _update_icons(self) -> None:
        for index, run in enumerate(self._runs):
            self.setTabIcon(index, QIcon(self._swatch(run.colour)))

    def _swatch(self, style: int) -> QPixmap:
        colour, middle = self._theme.curve_colour(style), self.iconSize().height() // 2
        return painted_pixmap(self.iconSize(), lambda painter: paint_swatch(painter, 0, middle, colour, style))


_BIG_PX, _SMALL_PX = 36, 20
"""Size of the throughput: of a single run, and next to its experiment's answer."""
_PROGRESS_STEPS = 1000


class LiveView(Surface):
    """Shows a `LiveState`."""

    more_requested = Signal(int, tuple)
    """Emitted with the number of further repeats for each variant, and the variants."""
    quiet_requested = Signal()
    """Emitted to repeat the experiment on a quiet machine."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.runs = RunTabs(theme)
        self.result: ResultView | None = None
        """The answer of the run's experiment, created when first needed."""
        self._theme = theme
        self._number = text_label("–", "big")
        self._number.setFont(tabular_font(_BIG_PX, bold=True))
        self._number.setAccessibleName("Throughput")
        self._unit = text_label("", "unit")
        self._placeholder = text_label("", "title")
        self._placeholder.setAlignment(Qt.AlignmentFlag.AlignBottom)
        self._spread = text_label("", "caption")
        self.name_label = ElidedLabel("muted")
        self._title = text_label("", "heading")
        self._time_left = text_label("", "muted")
        self._detail = text_label("", "", wrap=True, selectable=True)
        self._facts = text_label("", "muted", wrap=True, selectable=True)
        for label in (self._time_left, self._facts, self._spread):
            label.setFont(tabular_font())
        self.badge = BadgeLine(theme)
        self.evidence = EvidencePanel(theme)
        self._parts = QStackedWidget()
        self.badge.toggled.connect(lambda is_on: self._parts.setCurrentIndex(int(is_on)))
        self._bar = QProgressBar(maximum=_PROGRESS_STEPS, textVisible=False)
        self._bar.setAccessibleName("Progress of this phase")
        self.log_button = button("Show &log", "The worker's output, with the traceback", flat=True)
        self.anyway_button = button(
            "Run any&way", "Start now, though others use the device; the run records it", small=True
        )
        self.stack = PanelStack(theme)
        self.time_bar = TimeBar(self.stack)
        self.status = Status(title="")
        leave = QShortcut(QKeySequence("Escape"), self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        leave.setEnabled(False)
        leave.activated.connect(lambda: self.badge.button.setChecked(False))
        self.badge.toggled.connect(leave.setEnabled)
        curves = QWidget()
        make_column(self.time_bar, (Scroller(self.stack), 1), parent=curves, margins=0, spacing=GRID)
        for part in (curves, self.evidence):
            self._parts.addWidget(part)
        lines = self.runs, self._header(), self._detail, self._facts, self.badge, self._bar, (self._parts, 1)
        self._column = make_column(*lines, parent=self, margins=(2 * GRID, 2 * GRID, 2 * GRID, GRID), spacing=GRID)

    def show_model(self, state: LiveState) -> None:
        """Show this state; plots draw only what changed."""
        self.runs.show_runs(state.runs, state.run)
        show_text(self._number, state.throughput)
        self._unit.setText(state.unit)
        show_text(self._spread, state.spread)
        show_text(
            self._facts,
            f"{_NBSP}{_NBSP}·{_NBSP} ".join(fact.replace(" ", _NBSP) for fact in state.summary.split(_BETWEEN_FACTS)),
        )
        self._show_status(state.status, state.throughput)
        self._show_evidence(state.evidence)
        self.status = state.status
        self.time_bar.show_view(state.window, state.pause_label, growing=state.growing)
        self.time_bar.per_gpu_button.setVisible(state.has_several_gpus)
        self.time_bar.per_gpu_button.setChecked(state.per_gpu)
        self.stack.show_plots(state.plots)

    def show_result(self, result: "ExperimentResult | None") -> None:
        """Show the experiment's result so far, above its run, whose figure shrinks; None hides it."""
        if self.result is None and result is not None:
            from app.gui.widgets.result import ResultView

            self.result = ResultView(self._theme)
            self.result.more_requested.connect(self.more_requested)
            self.result.quiet_requested.connect(self.quiet_requested)
            self._column.insertWidget(0, self.result)
        if self.result is not None:
            self.result.show_model(result)
        self._number.setFont(tabular_font(_SMALL_PX if result is not None else _BIG_PX, bold=True))
        set_role(self._number, "figure" if result is not None else "big")

    def _show_evidence(self, view: EvidenceView | None) -> None:
        self.badge.setVisible(view is not None)
        if view is None:
            self.badge.button.setChecked(False)
        else:
            self.badge.show_view(view)
            self.evidence.show_view(view)

    def _show_status(self, status: Status, number: str) -> None:
        title, other = (self._title, self._placeholder) if number else (self._placeholder, self._title)
        show_text(title, status.title)
        show_text(other, "")
        set_role(self._title, status.tone)
        set_role(self._placeholder, f"title {status.tone}")
        self.name_label.setText(status.name)
        show_text(self._time_left, status.left)
        show_text(self._detail, status.detail)
        self._bar.setValue(round((status.fraction or 0.0) * _PROGRESS_STEPS))
        self.log_button.setVisible(status.has_log)
        self.anyway_button.setVisible(status.can_run_anyway)

    def _header(self) -> QHBoxLayout:
        bottom = Qt.AlignmentFlag.AlignBottom
        unit = make_column(STRETCH, self._unit, self._spread, GRID // 2, spacing=0)
        self._placeholder.setMinimumHeight(self._number.sizeHint().height())
        figure = make_row((self._placeholder, 0, bottom), (self._number, 0, bottom), unit, spacing=GRID)
        status = make_row(STRETCH, self.log_button, self.anyway_button, self._title, self._time_left, spacing=GRID)
        text = make_column(STRETCH, self.name_label, status, spacing=GRID // 2)
        return make_row(figure, (text, 1))


def remember_time_controls(view: LiveView, model: LiveModel, state: WindowState) -> None:
    """Restore the last time range and panels, and remember later choices."""
    bar, chosen = view.time_bar, state.read("range", "measured")
    model.follow(chosen if chosen in LIVE_RANGES else "measured")
    model.split_by_gpu(state.read("per gpu", False))
    bar.range_requested.connect(partial(state.keep, "range"))
    bar.per_gpu_button.clicked.connect(partial(state.keep, "per gpu"))
