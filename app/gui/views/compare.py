"""The Compare screen: the verdict, what makes it doubtful, the table, and the curves and pictures of the runs."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QMenu,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.gui.questions import ask_where_to_save
from app.gui.theme import GRID, Theme
from app.gui.views.compare_empty import CompareEmpty
from app.gui.views.compare_halves import CompareHalves
from app.gui.views.compare_head import CompareHead
from app.gui.views.compare_parts import CompareParts
from app.gui.views.compare_table import CompareTableView
from app.gui.views.parts import ElidedLabel, button, say, switch, text_label
from app.viewmodels.compare import Comparison
from app.viewmodels.compare_curves import CompareCurves

_NO_EXPERIMENT = "No experiment is stored here yet"

_REPORTS = {"HTML (*.html)": ".html", "Markdown (*.md)": ".md"}


class CompareView(QWidget):
    """Shows a `Comparison` and its `CompareCurves`. `painted` comes when all of both has been drawn.

    Runs in signals are numbers; `again_asked` wants the variant of a run in the form, `report_asked` has a file's path.
    """

    painted = Signal()
    baseline_asked = Signal(int)
    open_asked = Signal(int)
    again_asked = Signal(int)
    report_asked = Signal(object)
    experiments_wanted = Signal()
    experiment_asked = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._comparison = Comparison()
        self.head = CompareHead()
        self.table = CompareTableView(theme)
        self.parts = CompareParts(theme)
        self._problem = text_label("", "bad", wrap=True)
        self._busy = text_label("", "caption")
        self._by_variant = switch("By variant", "A row a variant; the triangle unfolds its runs")
        self._by_run = switch("By run", "A row a run")
        self._columns = button("Columns …", "Which columns the table shows", small=True)
        self._copy = button(
            "Copy table", "Copy the table tab-separated (Ctrl+C in it); as Markdown from its menu", small=True
        )
        self._report = button(
            "Save &report …", "Write all of this as one HTML file, or as Markdown with its pictures", small=True
        )
        self._experiments = button("&Experiments …", "Compare the runs of an experiment", small=True)
        self._shared = ElidedLabel("caption", Qt.AlignmentFlag.AlignLeft)
        self._pages = QStackedWidget()
        self._page = QWidget()
        self.empty = CompareEmpty()
        self._connect()
        self._build()

    @property
    def by_run_button(self) -> QPushButton:
        """Turns the table to a row a run."""
        return self._by_run

    def words(self) -> str:
        """The sentences above the table, as one text."""
        return "\n".join(filter(None, [self._problem.text(), self.head.words()]))

    def show_model(self, comparison: Comparison) -> None:
        """Show these runs against their baseline; the curves stay as they are."""
        self._comparison = comparison
        self.show_problem("")
        self.show_busy("")
        self.head.show_model(comparison)
        self._shared.setText(comparison.shared)
        self._shared.setToolTip(comparison.shared)
        self.table.show_table(comparison.table)
        self.parts.show_gallery(comparison.gallery, comparison.scaling)
        self._pages.setCurrentWidget(self._page if comparison.runs else self.empty)

    def show_curves(self, curves: CompareCurves) -> None:
        """Show the curves of the runs; those hidden stay hidden."""
        self.parts.curves.show_curves(curves, tuple(self._comparison.looks), self.table.hidden_runs)

    def show_written(self, path: Path) -> None:
        """Say where the report is now."""
        self.show_problem("")
        self._shared.setText(f"Written to {path}.")

    def offer_experiments(self, choices: Sequence[tuple[int, str]]) -> None:
        """Let the reader choose an experiment: numbers with their words."""
        menu = QMenu(self)
        for experiment, words in choices:
            action = menu.addAction(words.replace("&", "&&"))
            action.triggered.connect(lambda _=False, n=experiment: self.experiment_asked.emit(n))
        if not choices:
            menu.addAction(_NO_EXPERIMENT).setEnabled(False)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        beside = self._experiments if self._comparison.runs else self.empty.experiments_button
        menu.popup(beside.mapToGlobal(QPoint(0, beside.height())))

    def show_busy(self, words: str) -> None:
        """Say what is being read, above whatever was shown before; "" is nothing."""
        say(self._busy, words)

    def show_problem(self, sentence: str) -> None:
        """Say what is wrong, above whatever was shown before; "" is nothing wrong."""
        say(self._problem, sentence)

    def _ask_report(self) -> None:
        path = ask_where_to_save(self, "Save report", Path.cwd() / "comparison.html", _REPORTS)
        if path is not None:
            self.report_asked.emit(path)

    def _choose_columns(self) -> None:
        self.table.columns_menu().popup(self._columns.mapToGlobal(QPoint(0, self._columns.height())))

    def _connect(self) -> None:
        self.table.baseline_asked.connect(self.baseline_asked)
        self.table.hidden_changed.connect(lambda: self.parts.curves.hide_runs(self.table.hidden_runs))
        for part in (self.table, self.parts):
            part.open_asked.connect(self.open_asked)
            part.again_asked.connect(self.again_asked)
        self.parts.curves.toggled.connect(lambda run: self.table.toggle_runs([run]))
        self.parts.curves.panels.drawn.connect(lambda: QTimer.singleShot(0, self.painted.emit))
        self._by_variant.clicked.connect(lambda: self.table.show_by_variant(True))
        self._by_run.clicked.connect(lambda: self.table.show_by_variant(False))
        self._columns.clicked.connect(self._choose_columns)
        self._copy.clicked.connect(self.table.copy)
        self._report.clicked.connect(self._ask_report)
        self._experiments.clicked.connect(self.experiments_wanted)
        self.empty.experiments_wanted.connect(self.experiments_wanted)

    def _build(self) -> None:
        group = QButtonGroup(self)
        bar = QHBoxLayout()
        bar.setContentsMargins(GRID, 0, 2 * GRID, 0)
        bar.setSpacing(GRID // 2)
        for made in (self._by_variant, self._by_run):
            group.addButton(made)
            bar.addWidget(made)
        bar.addSpacing(GRID)
        bar.addWidget(self._shared, 1)
        bar.addWidget(self._experiments)
        bar.addWidget(self._columns)
        bar.addWidget(self._copy)
        bar.addWidget(self._report)
        self._by_variant.setChecked(True)
        self._problem.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        self._problem.hide()
        self._busy.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        self._busy.hide()
        column = QVBoxLayout(self._page)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID // 2)
        column.addWidget(self.head)
        column.addLayout(bar)
        column.addWidget(CompareHalves(self.table, self.parts), 1)
        self._pages.addWidget(self.empty)
        self._pages.addWidget(self._page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._problem)
        layout.addWidget(self._busy)
        layout.addWidget(self._pages, 1)
