"""The Compare screen: the answer, its plots, table, charts and curves, and qualifications; at first, offers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QMenu, QProgressBar, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from app.analysis.intervals import MIN_REPEATS
from app.analysis.verdict import throughputs
from app.gui.actions import Actions
from app.gui.compare.table import CompareTableView, columns_menu, group_menu
from app.gui.compare.tabs import CompareTabs
from app.gui.theme import GRID, LEFT, Theme
from app.gui.widgets.basic import (
    STRETCH,
    ElidedLabel,
    ProblemLine,
    Surface,
    add_choices,
    button,
    clear_layout,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    show_text,
    text_label,
)
from app.gui.widgets.dialogs import ask_save_path, open_on_desktop
from app.gui.widgets.panes import Scroller
from app.gui.widgets.result import ResultView
from app.gui.window_state import WindowState
from app.values import units
from app.values.plain import plain_line, plain_spaces
from app.viewmodels.charts.palette import MAX_COMPARED
from app.viewmodels.compare.arrangement import Arrangement
from app.viewmodels.compare.comparison import Comparison, clipboard_text, comparison_lines
from app.viewmodels.compare.curves import CompareCurves
from app.viewmodels.experiment.verdict_text import verdict_result
from app.viewmodels.format.naming import setting_label
from app.viewmodels.history.labels import format_run_count

if TYPE_CHECKING:
    from app.viewmodels.compare.offers import Offer, OfferAction

_OFFERS_WIDTH = 88 * GRID
_BUTTON_WIDTH = 14 * GRID
_BUTTON_TEXTS: "Mapping[OfferAction, str]" = {
    "compare": "Compare",
    "add": "Add",
    "build": "Choose …",
}


class OffersView(Scroller):
    """Shows `Offer`s; `offer_accepted` carries the one whose button was pressed."""

    offer_accepted = Signal(object)

    def __init__(self) -> None:
        super().__init__(horizontal=False)
        self._offers: tuple[Offer, ...] | None = None
        self.offers: dict[Offer, QPushButton] = {}
        self._rows = QVBoxLayout()
        self.experiments_button = button("Another &experiment …", "Compare the runs of an experiment", flat=True)
        self.experiments_button.hide()
        self._build()

    def show_offers(self, offers: "Sequence[Offer]", *, experiments: bool) -> None:
        """Show these offers, and a button for stored experiments if there are any; equal offers stay."""
        self.experiments_button.setVisible(experiments)
        if tuple(offers) == self._offers:
            return
        self._offers = tuple(offers)
        clear_layout(self._rows)
        self.offers = {}
        for offer in offers:
            self._rows.addWidget(separator())
            self._rows.addWidget(self._offer_row(offer))
        self._rows.addWidget(separator())
        # Focus the first offer if Qt left the focus to the page, where nothing has it yet.
        focused, first = self.window().focusWidget(), next(iter(self.offers.values()), None)
        if first is not None and self.isVisible() and focused is not None and focused.isAncestorOf(first):
            first.setFocus()

    def show_adding(self) -> None:
        """Disable the offer that adds runs until the next offers."""
        self._offers = None
        for offer, offer_button in self.offers.items():
            if offer.action == "add":
                offer_button.setText("Adding …")
                offer_button.setEnabled(False)

    def _offer_row(self, offer: "Offer") -> QWidget:
        offer_button = button(_BUTTON_TEXTS[offer.action], offer.detail)
        offer_button.setAccessibleName(f"{_BUTTON_TEXTS[offer.action]}: {offer.title}")
        offer_button.setMinimumWidth(_BUTTON_WIDTH)
        offer_button.clicked.connect(lambda: self.offer_accepted.emit(offer))
        self.offers[offer] = offer_button
        texts = text_label(offer.title, "heading", wrap=True), text_label(offer.detail, "muted", wrap=True)
        row, around = QWidget(), GRID + GRID // 2
        parts = (make_column(*texts, spacing=GRID // 2), 1), (offer_button, 0, Qt.AlignmentFlag.AlignVCenter)
        make_row(*parts, parent=row, margins=(0, around, 0, around), spacing=3 * GRID)
        return row

    def _build(self) -> None:
        hint = text_label(
            "Check runs in History (Ctrl+3) and press Compare (Ctrl+Shift+C), or start with one of these.",
            "muted",
            wrap=True,
        )
        inside, title = QWidget(maximumWidth=_OFFERS_WIDTH), text_label("Nothing to compare yet", "title")
        self._rows.setSpacing(0)
        lines = title, hint, GRID, self._rows, (self.experiments_button, 0, LEFT), STRETCH
        make_column(*lines, parent=inside, margins=(2 * GRID, 10 * GRID, 2 * GRID, 2 * GRID), spacing=GRID)
        content = QWidget()
        make_row(STRETCH, (inside, 100), STRETCH, parent=content, margins=0)
        self.setWidget(content)


_NO_EXPERIMENT = "No experiments stored yet"

_MARGINS: tuple[tuple[str, float | None], ...] = (
    ("off", None),
    *((units.exactly(margin_pct, "%"), margin_pct) for margin_pct in (1.0, 2.0, 5.0)),
)

_REPORTS = {"HTML (*.html)": ".html", "Markdown (*.md)": ".md"}


_MOST_WARNINGS = 3
"""How many warnings are visible; the others unfold."""
_NOTES_HEIGHT = 22 * GRID
_INTERLEAVE_HINT = "Run these variants again, interleaved, as often as before and at least three times each"
_MOST_RUNS = 100
"""The most runs that one click may request."""


class CompareHeader(QWidget):
    """The answer in the largest letters, and what would decide it.

    `interleave_requested` carries a run of each variant to measure interleaved, the baseline's first; `here_requested`
    how often to measure each variant on this machine, `baseline_requested` a run of the new baseline variant.
    """

    interleave_requested = Signal(object)
    here_requested = Signal(int)
    baseline_requested = Signal(int)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._actions = actions
        self._comparison = Comparison()
        self.result = ResultView(theme, MAX_COMPARED)
        self.steadier_button = button("Use a &steadier baseline", "")
        self.here_button = button("Run this comparison &here", "Run these on this machine, interleaved")
        self.interleave_button = button("Measure them interleaved", _INTERLEAVE_HINT)
        self.steadier_button.clicked.connect(lambda: self.baseline_requested.emit(self._comparison.verdict.steadier))
        self.here_button.clicked.connect(lambda: self.here_requested.emit(self._repeats))
        self.interleave_button.clicked.connect(lambda: self.interleave_requested.emit(self._comparison.to_interleave))
        self._offers = self.steadier_button, self.here_button, self.interleave_button
        for offer in self._offers:
            self.result.add_offer(offer)
        make_column(self.result, parent=self, margins=(2 * GRID, GRID, 2 * GRID, 0))

    def show_model(self, comparison: Comparison, *, new_runs: bool) -> None:
        """Show a comparison's answer; for the same runs in at least the same height, so that nothing below it jumps."""
        if new_runs:
            self.setMinimumHeight(0)
        self._comparison = comparison
        disturbances = comparison.compared_runs.disturbances
        self.result.show_model(verdict_result(comparison.verdict, disturbances) if comparison.variants else None)
        self.result.plot.show()
        self.result.setToolTip(plain_tooltip(comparison.method))
        self._show_offers()

    @property
    def _repeats(self) -> int:
        """Return the variants' number of measurements, at least enough for intervals."""
        return max(MIN_REPEATS, *(len(throughputs(variant.result.runs)) for variant in self._comparison.variants))

    def _show_offers(self) -> None:
        """Offer further runs that would decide more, if they can be started here."""
        comparison = self._comparison
        verdict, variants = comparison.verdict, comparison.variants
        able = len(variants) > 1 and not self._actions.cannot_run([variant.result.runs[0].spec for variant in variants])
        is_own = not comparison.origin
        more = verdict.more_repeats * len(verdict.repeated or variants)
        self.result.offer_more(offered=able and is_own and more <= _MOST_RUNS)
        self.here_button.setVisible(able and not is_own and len(variants) * self._repeats <= _MOST_RUNS)
        self.interleave_button.setVisible(able and bool(comparison.to_interleave))
        name = next((variant.name for variant in variants if variant.result.runs[0].run == verdict.steadier), "")
        self.steadier_button.setVisible(bool(name))
        self.steadier_button.setToolTip(plain_tooltip(f"Compare with {name}, whose runs differ less"))

    def show_waiting(self, text: str) -> None:
        """Replace the answer by what is being computed."""
        self.setMinimumHeight(self.height())
        self.result.show_waiting(text)
        for offer in self._offers:
            offer.hide()


class CompareNotes(QWidget):
    """The warnings, where the runs were made, and what else qualifies the answer, which unfolds."""

    def __init__(self) -> None:
        super().__init__()
        self.text = text_label("", "", wrap=True)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.unfolded = Scroller(self.text, horizontal=False)
        self.text.setContentsMargins(2 * GRID, 0, 2 * GRID, 0)
        self.unfolded.hide()
        self.warnings = [
            ElidedLabel("caution", Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight)
            for _ in range(_MOST_WARNINGS)
        ]
        self.provenance = ElidedLabel("caption", Qt.AlignmentFlag.AlignLeft)
        self.button = button("", "Show or hide the whole verdict and all notes", flat=True)
        self.button.clicked.connect(self._toggle)
        line = make_row((self.provenance, 1), self.button, spacing=2 * GRID)
        lines = make_column(*self.warnings, line, margins=(2 * GRID, 0, 2 * GRID, GRID), spacing=GRID // 2)
        make_column(separator(), self.unfolded, lines, parent=self, margins=0, spacing=GRID)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        self.unfolded.setFixedHeight(max(0, min(_NOTES_HEIGHT, self.text.heightForWidth(self.width()))))

    def _toggle(self) -> None:
        self._fit()
        self.unfolded.setVisible(self.unfolded.isHidden())

    def show_waiting(self) -> None:
        """Say nothing about an answer that is not there yet, in the same room."""
        for label in (*self.warnings, self.text):
            label.setText("")

    def show_model(self, comparison: Comparison) -> None:
        lines = comparison_lines(comparison)
        worst = [line for line in lines if line.severity == "warning"][:_MOST_WARNINGS]
        notes = [line for line in lines if line not in worst]
        for label, line in zip(self.warnings, [*worst, *[None] * _MOST_WARNINGS], strict=False):
            show_text(label, line.text if line else "")
            label.setToolTip(plain_tooltip("\n".join(filter(None, (line.text, line.detail))) if line else ""))
        self.provenance.setText(comparison.provenance)
        details = "\n".join("\n".join(filter(None, (line.text, line.detail))) for line in notes)
        alike = " · ".join(filter(None, comparison.table.agreed.values()))
        self.text.setText("\n\n".join(filter(None, (comparison.verdict.text, alike, details))))
        self._fit()
        self.button.setText(f"{len(notes)} &{units.plural('note', len(notes))}" if notes else "&Notes")


class ReadingView(QWidget):
    """Shows how many runs are compared, the progress, and the answer once known; `cancelled` is its button's signal."""

    cancelled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._title = text_label("", "title")
        self._bar = QProgressBar(textVisible=False)
        self._answer = text_label("", wrap=True)
        cancel = button("&Cancel", "Leave these runs")
        cancel.clicked.connect(self.cancelled)
        inside = QWidget(maximumWidth=_OFFERS_WIDTH)
        lines = self._title, self._bar, self._answer, (cancel, 0, LEFT), STRETCH
        make_column(*lines, parent=inside, margins=(2 * GRID, 10 * GRID, 2 * GRID, 2 * GRID), spacing=2 * GRID)
        make_row(STRETCH, (inside, 100), STRETCH, parent=self, margins=0)

    def show_progress(self, done: int, runs: int, answer: str) -> None:
        """Show how many of the runs are read, without a bar at the end: a comparison's progress is unknown."""
        is_read = done == runs
        self._title.setText(f"{'Comparing' if is_read else 'Reading'} {format_run_count(runs)}")
        self._bar.setAccessibleName(f"{done} of {runs} read")
        self._bar.setMaximum(runs)
        self._bar.setValue(done)
        self._bar.setVisible(not is_read)
        self._answer.setText(answer)


class CompareView(Surface):
    """Shows a `Comparison` and its `CompareCurves`; `painted` is emitted when their visible parts are drawn.

    `report_requested` carries a file's path, `experiment_requested` an experiment's number, `margin_chosen` the margin
    of equivalence in percent, or None, `question_chosen` the setting that the answer should be about.
    """

    painted = Signal()
    report_requested = Signal(object)
    experiments_requested = Signal()
    experiment_requested = Signal(int)
    margin_chosen = Signal(object)
    question_chosen = Signal(str)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._comparison = Comparison()
        self.header = CompareHeader(theme, actions)
        self.table = CompareTableView(theme, actions)
        self.tabs = CompareTabs(theme, actions, self.table, self.header.result.plot)
        self.notes = CompareNotes()
        self.problem = ProblemLine()
        self.reading = ReadingView()
        self.offers = OffersView()
        self._written, self._written_path = QWidget(), ElidedLabel("caption")
        self._open_report = button("&Open it", "Open the report in its default program", flat=True)
        self._report_path = Path()
        self._report = button("Save &report …", "Save this comparison as one HTML file, or as Markdown with charts")
        self._options = button("&Options", "Rows, groups and columns of the table, and what can be copied")
        self.menu = QMenu(self._options)
        self.questions, self._margins = QMenu("&Question", self.menu), QMenu("&Margin of equality", self.menu)
        self._pages, self._page = QStackedWidget(), QWidget()
        self._build_menu()
        self._connect()
        self._build()

    @property
    def margins(self) -> list[QAction]:
        return self._margins.actions()

    def show_model(self, comparison: Comparison, *, new_runs: bool = True) -> None:
        """Show these runs against their baseline; for the rest see `CompareTabs`."""
        self._comparison = comparison
        self.problem.show_sentence("")
        self._written.hide()
        self.header.show_model(comparison, new_runs=new_runs)
        self.notes.show_model(comparison)
        self.table.show_table(comparison.table)
        self._pages.setCurrentWidget(self._page if comparison.variants else self.offers)
        self.tabs.show_model(comparison, new_runs=new_runs)
        self._options.setEnabled(True)
        self._report.setEnabled(True)
        self._margins.clear()
        add_choices(self._margins, _MARGINS, comparison.margin_pct, self.margin_chosen.emit)
        self.questions.clear()
        names = dict.fromkeys(effect.parameter for effect in comparison.verdict.effects)
        labels = (setting_label([row.spec for row in comparison.rows], name) for name in names)
        add_choices(
            self.questions, zip(labels, names, strict=True), comparison.verdict.asked, self.question_chosen.emit
        )
        self.questions.setEnabled(not self.questions.isEmpty())

    def show_reading(self, done: int, runs: int, answer: str = "") -> None:
        """Show only how many runs of a comparison are read, and their answer once it is known."""
        self.problem.show_sentence("")
        self.reading.show_progress(done, runs, answer)
        self._pages.setCurrentWidget(self.reading)

    def show_waiting(self, text: str) -> None:
        """Replace the answer while the runs are compared in another way; nothing can be copied meanwhile."""
        self.header.show_waiting(text)
        self.tabs.answer.show_why(None)
        self.notes.show_waiting()
        self._options.setEnabled(False)
        self._report.setEnabled(False)

    def leave_reading(self) -> None:
        if self._pages.currentWidget() is self.reading or not self._report.isEnabled():
            self.show_model(self._comparison, new_runs=False)

    def show_curves(self, curves: CompareCurves) -> None:
        """Show the runs' curves; hidden ones stay hidden."""
        comparison = self._comparison
        extent = "".join(note.sentence for note in comparison.compared_runs.extent)
        self.tabs.curves.show_curves(curves, tuple(comparison.styles), self.table.hidden_runs, extent)

    def show_report_path(self, path: Path) -> None:
        """Show where the report was written, with a button that opens it."""
        self.problem.show_sentence("")
        self._report_path = path
        self._written_path.setText(f"Written to {path}.")
        self._written.show()

    def offer_experiments(self, choices: Sequence[tuple[int, str]]) -> None:
        menu = QMenu(self)
        for experiment, label in choices:
            action = menu.addAction(plain_line(label).replace("&", "&&"))
            action.triggered.connect(lambda _=False, n=experiment: self.experiment_requested.emit(n))
        if not choices:
            menu.addAction(_NO_EXPERIMENT).setEnabled(False)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        anchor = self._options if self._comparison.variants else self.offers.experiments_button
        menu.popup(anchor.mapToGlobal(QPoint(0, anchor.height())))

    def remember(self, database: Path) -> None:
        """Restore the table's arrangement for this database, and store the user's changes."""
        state = WindowState("compare", self, database)
        self.table.remember_widths(state)
        self.table.arrange(replace(state.read("arrangement", Arrangement()), column=None, unfolded=frozenset()))
        self.table.arranged.connect(partial(state.keep, "arrangement"))

    def _ask_report(self) -> None:
        path = ask_save_path(self, "Save report", Path.cwd() / "comparison.html", _REPORTS)
        if path is not None:
            self.report_requested.emit(path)

    def _build_menu(self) -> None:
        for title, make in (("&Group by", group_menu), ("Co&lumns", columns_menu)):
            entry = self.menu.addAction(f"{title} …")
            entry.triggered.connect(lambda _=False, make=make: self._pop_up(make(self.table)))
        self.menu.addMenu(self.questions)
        self.menu.addMenu(self._margins)
        self.menu.addSeparator()
        self.menu.addAction("&Copy the table").triggered.connect(self.table.copy)
        self.menu.addAction("Copy the &verdict").triggered.connect(
            lambda: QGuiApplication.clipboard().setText(plain_spaces(clipboard_text(self._comparison)))
        )
        self.menu.addSeparator()
        self.menu.addAction("Compare an &experiment …").triggered.connect(self.experiments_requested)
        self._options.setMenu(self.menu)
        self._options.setProperty("menu", True)

    def _pop_up(self, menu: QMenu) -> None:
        menu.popup(self._options.mapToGlobal(QPoint(0, self._options.height())))

    def _connect(self) -> None:
        for first in (self, self.table.viewport()):
            self.tabs.curves.panels.turns.lead(first)
        self.table.hidden_changed.connect(lambda: self.tabs.hide_variants(self.table.hidden_runs))
        self.tabs.curves.toggled.connect(self.table.toggle_runs)
        self.tabs.curves.panels.drawn.connect(lambda: QTimer.singleShot(0, self, self._tell_painted))
        self._report.clicked.connect(self._ask_report)
        self._open_report.clicked.connect(lambda: open_on_desktop(self._report_path))
        self.offers.experiments_button.clicked.connect(self.experiments_requested)

    def _tell_painted(self) -> None:
        if not self.tabs.curves.is_waiting:
            self.painted.emit()

    def _build(self) -> None:
        for menu_button in (self._options, self._report):
            self.tabs.tools.addWidget(menu_button)
        written = (self._written_path, 1), self._open_report
        make_row(*written, parent=self._written, margins=(2 * GRID, 0, 2 * GRID, GRID // 2))
        self._written.hide()
        make_column(self.header, (self.tabs, 1), self.notes, parent=self._page, margins=0, spacing=0)
        for page in (self.offers, self.reading, self._page):
            self._pages.addWidget(page)
        make_column(self.problem, (self._pages, 1), self._written, parent=self, margins=0, spacing=0)
