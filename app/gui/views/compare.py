"""The Compare screen: one row a run above their curves, all with time zero at the start of the measured part."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from app.gui.theme import GRID, Theme
from app.gui.views.compare_table import CompareTable
from app.gui.views.parts import EmptyState, button, text_label
from app.gui.views.run_detail_panels import StoredPanels
from app.gui.views.scaling import ScalingPanel
from app.viewmodels.compare import Comparison, table
from app.viewmodels.plotted import Band

_EMPTY = (
    "Nothing to compare yet",
    "Open History (Ctrl+3), choose two runs or more and press Compare (Ctrl+Shift+C).",
)
_COLUMNS = 2


class CompareView(QWidget):
    """Shows a `Comparison`. The first run is the baseline until another is made it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._comparison = Comparison()
        self._baseline = 0
        self._shared = text_label("", "heading", wrap=True)
        self._mislabelled = text_label("", "warning", wrap=True)
        self._warning = text_label("", "warning", wrap=True)
        self._notes = text_label("", "caption", wrap=True)
        self._problem = text_label("", "bad", wrap=True)
        self._sentences = (self._shared, self._mislabelled, self._warning, self._notes, self._problem)
        self._make_baseline = button("Make &baseline", "Ratios are against this run (B)")
        self._table = CompareTable(theme)
        self._scaling = ScalingPanel(theme)
        self._panels = StoredPanels(theme, _COLUMNS)
        self._pages = QStackedWidget()
        self._page = QWidget()
        self._empty = EmptyState(*_EMPTY)
        self._table.baseline_asked.connect(self.make_baseline)
        self._table.hidden_changed.connect(self._hide_curves)
        self._table.current_changed.connect(self._show_button)
        self._make_baseline.clicked.connect(self._ask_baseline)
        self._build()

    @property
    def table(self) -> CompareTable:
        """The table of runs."""
        return self._table

    @property
    def panels(self) -> StoredPanels:
        """The plots."""
        return self._panels

    @property
    def baseline(self) -> int:
        """The run all ratios are against."""
        return self._baseline

    def words(self) -> str:
        """The sentences around the table, as one text."""
        return "\n".join(label.text() for label in self._sentences)

    def show_model(self, comparison: Comparison) -> None:
        """Show these runs; a baseline that is still among them stays."""
        self._comparison = comparison
        self._problem.hide()
        self._shared.setText(comparison.shared or f"{len(comparison.rows)} runs")
        self._mislabelled.setText(f"✘  {comparison.mislabelled}")
        self._mislabelled.setVisible(bool(comparison.mislabelled))
        self._warning.setText(f"▲  {comparison.differences}")
        self._warning.setVisible(bool(comparison.differences))
        self._notes.setText(" ".join(comparison.notes))
        self._scaling.show_views(comparison.scaling)
        self._pages.setCurrentWidget(self._page if comparison.rows else self._empty)
        bands = (Band("before", comparison.start_s, 0.0), Band("measure", 0.0, comparison.end_s))
        self._panels.show_panels(comparison.panels, (comparison.start_s, comparison.end_s), bands)
        if comparison.rows:
            self.make_baseline(self._baseline if self._baseline in comparison.runs else comparison.runs[0])
            self._hide_curves()
            self._table.setFocus()

    def show_problem(self, sentence: str) -> None:
        """Say what is wrong, above whatever was shown before."""
        self._problem.setText(sentence)
        self._problem.setVisible(bool(sentence))

    def make_baseline(self, run: int) -> None:
        """Make all ratios against this run."""
        self._baseline = run
        self._table.show_table(self._comparison.runs, table(self._comparison.rows, run))
        self._show_button()

    def _ask_baseline(self) -> None:
        run = self._table.current_run()
        if run is not None:
            self.make_baseline(run)

    def _show_button(self) -> None:
        self._make_baseline.setEnabled(self._table.current_run() not in (None, self._baseline))

    def _hide_curves(self) -> None:
        self._panels.hide_curves([str(run) for run in self._table.hidden_runs()])

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        head.addWidget(self._shared, 1)
        head.addWidget(self._make_baseline)
        words = QVBoxLayout()
        words.setContentsMargins(2 * GRID, 0, 2 * GRID, 0)
        words.setSpacing(GRID // 2)
        words.addWidget(self._mislabelled)
        words.addWidget(self._warning)
        plots = QWidget()
        inside = QVBoxLayout(plots)
        inside.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        inside.addWidget(self._scaling)
        inside.addWidget(self._panels, 1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setWidget(plots)
        self._notes.setContentsMargins(2 * GRID, 0, 2 * GRID, 0)
        self._problem.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        self._problem.hide()
        column = QVBoxLayout(self._page)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID)
        column.addLayout(head)
        column.addLayout(words)
        column.addWidget(self._table)
        column.addWidget(self._notes)
        column.addWidget(scroll, 1)
        self._pages.addWidget(self._empty)
        self._pages.addWidget(self._page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._problem)
        layout.addWidget(self._pages, 1)
