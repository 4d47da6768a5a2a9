"""The Compare screen: verdict and warnings, the table of runs, and tabs with curves and charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QAction, QActionGroup, QDesktopServices, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QMenu,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app import units
from app.gui.actions import Actions
from app.gui.compare.header import CompareHeader
from app.gui.compare.table import CompareTableView, columns_menu, group_menu
from app.gui.compare.tabs import CompareTabs
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    ElidedLabel,
    button,
    clear_layout,
    plain_tooltip,
    separator,
    show_text,
    text_label,
    toggle_button,
)
from app.gui.widgets.cell_table import ROW_HEIGHT
from app.gui.widgets.dialogs import ask_save_path
from app.gui.widgets.flow_layout import FlowBar
from app.gui.widgets.panes import Scroller, splitter
from app.gui.widgets.problem import ProblemLine
from app.gui.window_state import WindowState
from app.viewmodels.compare.arrangement import Arrangement
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.curves import CompareCurves

if TYPE_CHECKING:
    from app.viewmodels.compare.offers import Offer, OfferAction

_OFFERS_WIDTH = 88 * GRID
_BUTTON_WIDTH = 14 * GRID
_BUTTON_TEXTS: "Mapping[OfferAction, str]" = {
    "compare": "Compare",
    "article": "Compare",
    "add": "Add",
    "build": "Choose …",
}


class OffersView(Scroller):
    """Shows `Offer`s; `offer_accepted` has the one whose button was pressed."""

    offer_accepted = Signal(object)

    def __init__(self) -> None:
        super().__init__(horizontal=False)
        self._offers: tuple[Offer, ...] | None = None
        self._buttons: dict[Offer, QPushButton] = {}
        self._rows = QVBoxLayout()
        self._experiments = button("Another &experiment …", "Compare the runs of an experiment", flat=True)
        self._experiments.hide()
        self._build()

    @property
    def experiments_button(self) -> QPushButton:
        """Button that offers the stored experiments."""
        return self._experiments

    @property
    def offers(self) -> "Mapping[Offer, QPushButton]":
        """The offers with their buttons."""
        return self._buttons

    def show_offers(self, offers: "Sequence[Offer]", *, experiments: bool) -> None:
        """Show these offers, and the button for stored experiments if there are any; equal offers stay."""
        self._experiments.setVisible(experiments)
        if tuple(offers) == self._offers:
            return
        self._offers = tuple(offers)
        clear_layout(self._rows)
        self._buttons = {}
        for offer in offers:
            self._rows.addWidget(separator())
            self._rows.addWidget(self._offer_row(offer))
        self._rows.addWidget(separator())
        self._take_keyboard()

    def show_adding(self) -> None:
        """Disable the offer that adds runs until the next offers."""
        self._offers = None
        for offer, made in self._buttons.items():
            if offer.action == "add":
                made.setText("Adding …")
                made.setEnabled(False)

    def _take_keyboard(self) -> None:
        """Give the keyboard to the first offer where Qt left it to the page, in which nothing took it yet."""
        now, first = self.window().focusWidget(), next(iter(self._buttons.values()), None)
        if first is not None and self.isVisible() and now is not None and now.isAncestorOf(first):
            first.setFocus()

    def _offer_row(self, offer: "Offer") -> QWidget:
        made = button(_BUTTON_TEXTS[offer.action], offer.detail)
        made.setAccessibleName(f"{_BUTTON_TEXTS[offer.action]}: {offer.title}")
        made.setMinimumWidth(_BUTTON_WIDTH)
        made.clicked.connect(lambda: self.offer_accepted.emit(offer))
        self._buttons[offer] = made
        texts = QVBoxLayout()
        texts.setSpacing(GRID // 2)
        texts.addWidget(text_label(offer.title, "heading", wrap=True))
        texts.addWidget(text_label(offer.detail, "muted", wrap=True))
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, GRID + GRID // 2, 0, GRID + GRID // 2)
        layout.setSpacing(3 * GRID)
        layout.addLayout(texts, 1)
        layout.addWidget(made, 0, Qt.AlignmentFlag.AlignVCenter)
        return row

    def _build(self) -> None:
        hint = text_label(
            "Select runs in History (Ctrl+3) and press Compare (Ctrl+Shift+C), or start with one of these.",
            "muted",
            wrap=True,
        )
        inside = QWidget()
        inside.setMaximumWidth(_OFFERS_WIDTH)
        column = QVBoxLayout(inside)
        column.setContentsMargins(2 * GRID, 10 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addWidget(text_label("Nothing to compare yet", "title"))
        column.addWidget(hint)
        column.addSpacing(GRID)
        self._rows.setSpacing(0)
        column.addLayout(self._rows)
        column.addWidget(self._experiments, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        content = QWidget()
        middle = QHBoxLayout(content)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.addStretch(1)
        middle.addWidget(inside, 100)
        middle.addStretch(1)
        self.setWidget(content)


_MAX_TABLE_SHARE = 0.4
_KEYS = {"Ctrl+Shift+Down": ROW_HEIGHT, "Ctrl+Shift+Up": -ROW_HEIGHT}


class CompareSplitter(QWidget):
    """Gives the table the height of its rows, up to a share of the whole, until the user moves the line.

    Ctrl+Shift+Down and Ctrl+Shift+Up move the line by a row.
    """

    def __init__(self, table: CompareTableView, below: QWidget) -> None:
        super().__init__()
        self._table = table
        self._user_height: int | None = None
        self._splitter = splitter(Qt.Orientation.Vertical, table, below, (0, 1))
        table.lower()  # a splitter puts its last part below: that one would be painted first, and the table wait
        self._splitter.splitterMoved.connect(self._remember_height)
        table.preferred_height_changed.connect(self._apply_height)
        for keys, by in _KEYS.items():
            QShortcut(QKeySequence(keys), self).activated.connect(partial(self._move, by))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._splitter)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Limit the table's height in a small window."""
        super().resizeEvent(event)
        self._apply_height()

    def _apply_height(self) -> None:
        preferred = self._table.preferred_height
        too_many = max(0, math.ceil((preferred - self.height() * _MAX_TABLE_SHARE) / ROW_HEIGHT))
        height = preferred - too_many * ROW_HEIGHT if self._user_height is None else self._user_height
        self._splitter.setSizes([height, max(1, self.height() - height)])

    def _move(self, by: int) -> None:
        self._user_height = self._table.height() + by
        self._apply_height()
        self._remember_height()

    def _remember_height(self) -> None:
        self._user_height = self._table.height()


_NO_EXPERIMENT = "No experiments stored yet"

_MARGINS_PCT = (None, 1.0, 2.0, 5.0)

_REPORTS = {"HTML (*.html)": ".html", "Markdown (*.md)": ".md"}


def _margin_label(margin_pct: float | None) -> str:
    return "off" if margin_pct is None else units.exactly(margin_pct, "%")


class CompareView(QWidget):
    """Shows a `Comparison` and its `CompareCurves`; `painted` is emitted when all of both is drawn.

    `report_requested` has the path of the file, `experiment_requested` the number of an experiment, `margin_chosen` the
    margin of equivalence in percent, or None.
    """

    painted = Signal()
    report_requested = Signal(object)
    experiments_requested = Signal()
    experiment_requested = Signal(int)
    margin_chosen = Signal(object)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._comparison = Comparison()
        self.header = CompareHeader()
        self.table = CompareTableView(theme, actions)
        self.tabs = CompareTabs(theme, actions)
        self.problem = ProblemLine()
        self._busy = text_label("", "caption")
        self._written, self._written_path = QWidget(), ElidedLabel("caption")
        self._open_report = button("&Open it", "Open the report in its default program", flat=True)
        self._report_path = Path()
        self._by_variant = toggle_button("By variant", "One row per variant; the triangle expands its runs")
        self._by_run = toggle_button("By run", "One row per run")
        self._group = button("Group …", "Group the variants by a parameter", small=True)
        self._hidden = button("", "Show the variants that were hidden", small=True)
        self._columns = button("Columns …", "Which columns the table shows", small=True)
        self._copy = button(
            "Copy table", "Copy the table tab-separated (Ctrl+C in it); as Markdown from its menu", small=True
        )
        self._report = button(
            "Save &report …", "Save this comparison as one HTML file, or as Markdown with charts", small=True
        )
        self._margin = button("", "Say whether variants are equal within a margin", small=True)
        self._experiments = button("&Experiments …", "Compare the runs of an experiment", small=True)
        self._shared = ElidedLabel("caption", Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight)
        self._shared.setIndent(2 * GRID)
        self._bar = QWidget()
        self._pages = QStackedWidget()
        self._page = QWidget()
        self._restore_key = QShortcut(QKeySequence("Escape"), self)
        self.offers = OffersView()
        self._connect()
        self._build()

    @property
    def by_run_button(self) -> QPushButton:
        """Button that shows one row per run."""
        return self._by_run

    @property
    def margin_button(self) -> QPushButton:
        """Button whose menu has the margins."""
        return self._margin

    def displayed_text(self) -> str:
        """Return the sentences above the table."""
        return "\n".join(filter(None, [self.problem.text, self.header.displayed_text()]))

    def show_model(self, comparison: Comparison) -> None:
        """Show these runs against their baseline; the curves stay."""
        self._comparison = comparison
        self.problem.show_sentence("")
        self.show_busy("")
        self._written.hide()
        self.header.show_model(comparison)
        self._shared.setText(comparison.against)
        self._shared.setToolTip(plain_tooltip("\n".join(filter(None, (comparison.against, comparison.baseline_note)))))
        self.table.show_table(comparison.table)
        self.tabs.show_model(comparison)
        self._show_arrangement()
        self._margin.setText(f"Margin: {_margin_label(comparison.margin_pct)}")
        for action in self._margin.menu().actions():
            action.setChecked(action.data() == comparison.margin_pct)
        self._pages.setCurrentWidget(self._page if comparison.variants else self.offers)

    def show_curves(self, curves: CompareCurves) -> None:
        """Show the curves of the runs; those hidden stay hidden."""
        self.tabs.curves.show_curves(curves, tuple(self._comparison.styles), self.table.hidden_runs)

    def show_report_path(self, path: Path) -> None:
        """Say where the report was written, with a button that opens it."""
        self.problem.show_sentence("")
        self._report_path = path
        self._written_path.setText(f"Written to {path}.")
        self._written.show()

    def offer_experiments(self, choices: Sequence[tuple[int, str]]) -> None:
        """Open a menu of experiments, given as numbers with labels."""
        menu = QMenu(self)
        for experiment, label in choices:
            action = menu.addAction(label.replace("&", "&&"))
            action.triggered.connect(lambda _=False, n=experiment: self.experiment_requested.emit(n))
        if not choices:
            menu.addAction(_NO_EXPERIMENT).setEnabled(False)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        anchor = self._experiments if self._comparison.variants else self.offers.experiments_button
        menu.popup(anchor.mapToGlobal(QPoint(0, anchor.height())))

    def show_busy(self, text: str) -> None:
        """Say what is being read, above what is shown; "" hides it."""
        show_text(self._busy, text)

    def _ask_report(self) -> None:
        path = ask_save_path(self, "Save report", Path.cwd() / "comparison.html", _REPORTS)
        if path is not None:
            self.report_requested.emit(path)

    def remember(self, database: Path) -> None:
        """Arrange the table as it was for this database, and keep what the user makes of it."""
        state = WindowState("compare", self, database)
        self.table.remember_widths(state)
        self.tabs.remember(state)
        self.table.arrange(replace(state.read("arrangement", Arrangement()), column=None, unfolded=frozenset()))
        self.table.arranged.connect(partial(state.keep, "arrangement"))

    def _show_arrangement(self) -> None:
        """Say how many variants are hidden, and leave them out of the pictures."""
        table = self._comparison.table
        hidden = sum(map(self.table.arrangement.is_hidden, table.variants))
        self._hidden.setText(f"Show {hidden} hidden")
        self._hidden.setVisible(bool(hidden))
        self._group.setVisible(len(table.variants) > 1)
        grouped = dict(table.parameters).get(self.table.arrangement.group_by)
        self._group.setText(f"Group: {grouped.replace('&', '&&')}" if grouped else "Group …")
        (self._by_variant if self.table.arrangement.by_variant else self._by_run).setChecked(True)
        self.tabs.hide_variants(self.table.arrangement.hidden_runs(table))

    def _enlarge(self, enlarged: bool) -> None:
        """Leave what is below the table alone with the line that says what is compared, or show all again."""
        for part in (self.header, self._bar, self.table):
            part.setVisible(not enlarged)
        self._page_column.setContentsMargins(0, GRID if enlarged else 0, 0, 0)
        self._restore_key.setEnabled(enlarged)

    def _choose_columns(self) -> None:
        columns_menu(self.table).popup(self._columns.mapToGlobal(QPoint(0, self._columns.height())))

    def _choose_group(self) -> None:
        group_menu(self.table).popup(self._group.mapToGlobal(QPoint(0, self._group.height())))

    def _add_margins(self) -> None:
        menu = QMenu(self._margin)
        group = QActionGroup(menu)
        for margin_pct in _MARGINS_PCT:
            action = QAction(_margin_label(margin_pct), group, checkable=True)
            action.setData(margin_pct)
            action.triggered.connect(lambda _=False, chosen=margin_pct: self.margin_chosen.emit(chosen))
            menu.addAction(action)
        self._margin.setMenu(menu)
        self._margin.setProperty("menu", True)

    def _connect(self) -> None:
        self._add_margins()
        for first in (self, self.table.viewport()):
            self.tabs.curves.panels.turns.lead(first)
        self.tabs.enlarged.connect(self._enlarge)
        QShortcut(QKeySequence("Ctrl+Shift+E"), self).activated.connect(self.tabs.enlarge.toggle)
        self._restore_key.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._restore_key.setEnabled(False)
        self._restore_key.activated.connect(self.tabs.enlarge.toggle)
        self.table.hidden_changed.connect(lambda: self.tabs.curves.hide_runs(self.table.hidden_runs))
        self.tabs.curves.toggled.connect(self.table.toggle_runs)
        self.tabs.curves.panels.drawn.connect(lambda: QTimer.singleShot(0, self, self.painted.emit))
        self._by_variant.clicked.connect(lambda: self.table.show_by_variant(True))
        self._by_run.clicked.connect(lambda: self.table.show_by_variant(False))
        self.table.arranged.connect(self._show_arrangement)
        self._columns.clicked.connect(self._choose_columns)
        self._group.clicked.connect(self._choose_group)
        self._hidden.clicked.connect(self.table.show_all_variants)
        self._copy.clicked.connect(self.table.copy)
        self._report.clicked.connect(self._ask_report)
        self._open_report.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._report_path))))
        for opener in (self._experiments, self.offers.experiments_button):
            opener.clicked.connect(self.experiments_requested)

    def _build(self) -> None:
        group = QButtonGroup(self)
        bar = QHBoxLayout(self._bar)
        bar.setContentsMargins(GRID, 0, 2 * GRID, 0)
        bar.setSpacing(GRID // 2)
        for made in (self._by_variant, self._by_run):
            group.addButton(made)
            bar.addWidget(made, 0, Qt.AlignmentFlag.AlignTop)
        bar.addSpacing(GRID)
        tools = FlowBar(GRID // 2, 0, right=True)
        for made in (
            self._hidden,
            self._margin,
            self._experiments,
            self._group,
            self._columns,
            self._copy,
            self._report,
        ):
            tools.flow.addWidget(made)
        bar.addWidget(tools, 1)
        self._by_variant.setChecked(True)
        self._busy.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        self._busy.hide()
        line = QHBoxLayout(self._written)
        line.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        line.addWidget(self._written_path, 1)
        line.addWidget(self._open_report)
        self._written.hide()
        self._page_column = column = QVBoxLayout(self._page)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID // 2)
        column.addWidget(self.header)
        column.addWidget(self._bar)
        column.addWidget(self._shared)
        column.addWidget(CompareSplitter(self.table, self.tabs), 1)
        self._pages.addWidget(self.offers)
        self._pages.addWidget(self._page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.problem)
        layout.addWidget(self._busy)
        layout.addWidget(self._written)
        layout.addWidget(self._pages, 1)
