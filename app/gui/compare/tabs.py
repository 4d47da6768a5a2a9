"""The views of a comparison: its answer with two plots, its table, a pivot, why variants differ, charts and curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from PySide6.QtCore import QByteArray, QSize, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtSvgWidgets import QSvgWidget
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QSizePolicy,
    QStackedWidget,
    QTabBar,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from app.gui.actions import Actions
from app.gui.compare.charts import ChartsView
from app.gui.compare.curves import CurvesView
from app.gui.compare.table import CompareTableView
from app.gui.plot.pictures import show_picture_menu
from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import (
    STRETCH,
    ElidedComboBox,
    ElidedLabel,
    clear_layout,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    show_text,
    text_label,
)
from app.gui.widgets.panes import Scroller
from app.report.charts.canvas import Drawing
from app.report.scaling import HEIGHT, WIDTH, draw_scaling
from app.values.plain import plain_spaces
from app.viewmodels.charts.model import without_runs
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.pivot import Pivot, pivot_table
from app.viewmodels.compare.scaling import ScalingView, worst_pairs
from app.viewmodels.compare.why import CAVEAT, WhyRow, WhyView
from app.viewmodels.format.cells import TextTable


class ScalingChart(QSvgWidget):
    """The chart of one pair in the theme's colours, as in a report."""

    def __init__(self, theme: Theme, view: ScalingView) -> None:
        super().__init__()
        self._theme = theme
        self._view = view
        self.setFixedSize(WIDTH, HEIGHT)
        self.setAccessibleName(f"{view.title}: {view.efficiency}")
        theme.changed.connect(self._draw)
        self._draw()

    def drawing(self) -> Drawing:
        return draw_scaling(self._view, self._theme.colours)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        show_picture_menu(self, self.drawing, event.globalPos())

    def _draw(self) -> None:
        self.load(QByteArray(self.drawing().svg().encode()))


class ScalingPanel(QWidget):
    """One part for each of the worst pairs of runs that differ only in their GPUs; hidden without any."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._column = make_column(parent=self, margins=(0, 0, 0, 2 * GRID), spacing=3 * GRID)
        self.hide()

    def show_views(self, views: Sequence[ScalingView]) -> None:
        """Show the pairs with the largest loss; the report has all."""
        clear_layout(self._column)
        for view in worst_pairs(views):
            self._column.addWidget(_pair(self._theme, view))
        self.setVisible(bool(views))


def _pair(theme: Theme, view: ScalingView) -> QWidget:
    pair = QWidget()
    pair.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    speedup = text_label(f"efficiency, speed-up {view.speedup}; {view.interval}", "caption")
    header = make_row(text_label(view.efficiency, "figure"), (speedup, 1), spacing=GRID)
    texts = text_label(view.title, "heading"), header, text_label(view.cause, "", wrap=True)
    make_column(*texts, ScalingChart(theme, view), parent=pair, margins=0, spacing=GRID)
    return pair


class PivotView(QWidget):
    """The effect of the setting asked about, by two others that the user chooses; `choice_made` carries these."""

    choice_made = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns = ElidedComboBox(), ElidedComboBox()
        self._axes = QWidget()
        left, end = Qt.AlignmentFlag.AlignLeft, Qt.TextElideMode.ElideRight
        self._caption, self._sources = (ElidedLabel(role, left, end) for role in ("muted", "caption"))
        self.table = QTreeWidget()
        self._build()

    def show_pivot(self, pivot: Pivot | None, *, is_read: bool = True) -> None:
        """Show a pivot; None means that no two variants differ in a single setting, once that `is_read`."""
        table = pivot_table(pivot) if pivot else TextTable(head=(), rows=(), caption=_NO_PIVOT if is_read else "")
        if pivot:
            axes = {name: pivot.label(name) for name in pivot.axes}
            _show_choice(self.rows, axes, pivot.rows_by[-1])
            _show_choice(self.columns, axes if pivot.columns_by else {"": "one column", **axes}, pivot.columns_by)
        self._axes.setVisible(pivot is not None and len(pivot.axes) > 1)
        self._caption.setText(table.caption)
        show_text(self._sources, " ".join(pivot.sources if pivot else ()))
        self.table.clear()
        self.table.setColumnCount(len(table.head))
        self.table.setHeaderLabels(table.head)
        rows = [QTreeWidgetItem(row) for row in table.rows]
        self.table.addTopLevelItems(rows)
        for item in (self.table.headerItem(), *rows):
            for column in range(len(table.head)):
                item.setTextAlignment(column, RIGHT if column in table.numeric else LEFT)
        self.table.setVisible(pivot is not None)

    def _choose(self) -> None:
        choices = [self.rows.currentData(), self.columns.currentData()]
        if choices[0] == choices[1]:
            choices[self.sender() is self.rows] = ""
        self.choice_made.emit(*choices)

    def _copy(self) -> None:
        rows = [self.table.headerItem(), *self.table.selectedItems()]
        cells = ("\t".join(row.text(n) for n in range(self.table.columnCount())) for row in rows)
        QGuiApplication.clipboard().setText(plain_spaces("\n".join(cells)))

    def _build(self) -> None:
        for choice, name in ((self.rows, "Rows"), (self.columns, "Columns")):
            choice.setAccessibleName(name)
            choice.setMinimumWidth(12 * GRID)
            choice.activated.connect(self._choose)
        by, and_ = (text_label(word, "muted") for word in ("By", "and"))
        make_row(by, self.rows, and_, self.columns, STRETCH, parent=self._axes, margins=0, spacing=GRID)
        self.table.setAccessibleName("Effect of a setting at each value of two others")
        self.table.setRootIsDecorated(False)
        self.table.setStyleSheet(f"QTreeView::item {{ padding: {GRID // 2}px {GRID}px; }}")
        self.table.setFont(tabular_font())
        self.table.setSelectionMode(QTreeWidget.SelectionMode.ExtendedSelection)
        self.table.header().setStretchLastSection(False)
        self.table.header().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        QShortcut(QKeySequence("Ctrl+C"), self.table, self._copy, context=Qt.ShortcutContext.WidgetShortcut)
        parts = self._axes, self._caption, (self.table, 1), self._sources
        make_column(*parts, parent=self, margins=(2 * GRID, GRID, 2 * GRID, GRID), spacing=GRID)


_NO_PIVOT = "No two of these variants differ in one setting alone."


def _show_choice(choice: QComboBox, texts: Mapping[str, str], chosen: str) -> None:
    choice.clear()
    for name, text in texts.items():
        choice.addItem(text, name)
    choice.setCurrentIndex(list(texts).index(chosen))


_MAX_WIDTH = 1600
_TABLE_WIDTH = 130 * GRID
_COLUMN_PCT = 22
_ROW = QSize(0, 3 * GRID)


class WhyPanel(QWidget):
    """Shows one variant against the baseline, and a choice of variants if there are several; hidden without any."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._views: tuple[WhyView, ...] = ()
        self.choice = ElidedComboBox()
        self.choice.setAccessibleName("Variant that is compared with the baseline")
        self.choice.currentIndexChanged.connect(self._show_chosen)
        self._against = text_label("", "muted")
        self._sentence = text_label("", "", wrap=True, selectable=True)
        self._notes = text_label("", "caption", wrap=True)
        self._charts = ChartsView(theme, actions)
        self._gains = make_column(spacing=GRID // 2)
        self._table_title = text_label("Parts of a step", "heading")
        self.table = PartsTable()
        chooser = make_row(self.choice, self._against, STRETCH, spacing=GRID)
        self.choice.setMinimumWidth(24 * GRID)
        parts = chooser, self._sentence, self._notes, self._charts, self._gains, self._table_title, self.table
        make_column(*parts, parent=self, margins=(0, GRID, 0, 2 * GRID), spacing=GRID)
        self.setMaximumWidth(_MAX_WIDTH)
        self.hide()

    def show_views(self, views: tuple[WhyView, ...]) -> None:
        """Show the view of the variant chosen before, else of the one whose step differs most."""
        if views is self._views:
            return
        chosen = self.choice.currentText()
        self._views = views
        names = [view.name for view in views]
        self.choice.blockSignals(True)
        self.choice.clear()
        self.choice.addItems(names)
        first = max(views, key=lambda view: view.changed_share, default=None)
        self.choice.setCurrentIndex(names.index(chosen) if chosen in names else views.index(first) if first else 0)
        self.choice.blockSignals(False)
        self._show_chosen()
        self.setVisible(bool(views))

    def _show_chosen(self) -> None:
        if not self._views:
            return
        view = self._views[self.choice.currentIndex()]
        several = len(self._views) > 1
        self.choice.setVisible(several)
        show_text(self._against, f"against {view.baseline}" if several else "")
        self._sentence.setText(view.sentence)
        show_text(self._notes, "\n".join(note.sentence for note in view.notes))
        self._charts.show_charts([view.chart] if view.chart else [])
        clear_layout(self._gains)
        if view.gains:
            self._gains.addWidget(text_label("What if", "heading"))
            for gain in view.gains:
                self._gains.addWidget(text_label(f"·  {gain.sentence}", "", wrap=True))
            self._gains.addWidget(text_label(CAVEAT, "caption", wrap=True))
        self._table_title.setVisible(bool(view.rows))
        self.table.show_rows(view.head, view.rows)


class PartsTable(QTreeWidget):
    """The parts of a step with their kernels, without scrolling. Arrows or a click unfold a part."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Parts of a step and their kernels")
        self.setUniformRowHeights(True)
        self.setMaximumWidth(_TABLE_WIDTH)
        self.setFont(tabular_font())
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.header().setStretchLastSection(False)
        self.header().setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.itemExpanded.connect(self._fit_height)
        self.itemCollapsed.connect(self._fit_height)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.header().setMaximumSectionSize(event.size().width() * _COLUMN_PCT // 100)
        super().resizeEvent(event)

    def show_rows(self, head: Sequence[str], rows: Sequence[WhyRow]) -> None:
        """Show these rows with all parts folded; hidden without any."""
        self.clear()
        self.setColumnCount(len(head) + 1)
        self.setHeaderLabels(["Part", *head])
        self.addTopLevelItems(_items(rows))
        header = self.header()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column, title in enumerate(head, 1):
            self.headerItem().setTextAlignment(column, RIGHT)
            self.headerItem().setToolTip(column, plain_tooltip(title))
        self.setVisible(bool(rows))
        self._fit_height()

    def _fit_height(self) -> None:
        parts = [self.topLevelItem(n) for n in range(self.topLevelItemCount())]
        rows = len(parts) + sum(part.childCount() for part in parts if part is not None and part.isExpanded())
        self.setFixedHeight(self.header().sizeHint().height() + rows * _ROW.height() + 2 * self.frameWidth())


def _items(rows: Sequence[WhyRow]) -> list[QTreeWidgetItem]:
    items: list[QTreeWidgetItem] = []
    bold = tabular_font(bold=True)
    for row in rows:
        item = QTreeWidgetItem([row.label, *row.cells])
        item.setSizeHint(0, _ROW)
        for column in range(len(row.cells) + 1):
            item.setTextAlignment(column, RIGHT if column else LEFT)
            if row.kind == "step":
                item.setFont(column, bold)
        # Kernels' names are full of angle brackets, which Qt would take for mark-up.
        item.setToolTip(0, plain_tooltip(row.help))
        if row.is_detail:
            items[-1].addChild(item)
        else:
            items.append(item)
    return items


ANSWER, TABLE, PIVOT, WHY = "Answer", "Table", "Pivot", "Why"
CHARTS, SCALING, CURVES = "Charts", "Scaling", "Curves"
_TAB_OF_CHART: Mapping[str, str] = {
    "effects": CHARTS,
    "batch": CHARTS,
    "frontier": CHARTS,
    "roofline": CHARTS,
    "gpus": SCALING,
}
"""The tab of each chart, by key; speed-ups are in the answer's plot."""
_TITLES = ANSWER, TABLE, PIVOT, WHY, CHARTS, SCALING, CURVES


class AnswerPage(QWidget):
    """The forest plot, and below it the waterfall of why the fastest variant differs from the baseline."""

    def __init__(self, theme: Theme, actions: Actions, plot: QWidget) -> None:
        super().__init__()
        self.waterfall = ChartsView(theme, actions)
        self.obstacle = text_label("", "muted", wrap=True)
        parts = plot, self.waterfall, self.obstacle, STRETCH
        make_column(*parts, parent=self, margins=(2 * GRID, GRID, 2 * GRID, 0), spacing=GRID)
        self.setMaximumWidth(_MAX_WIDTH)

    def show_why(self, why: WhyView | None) -> None:
        notes = " ".join(note.sentence for note in why.notes) if why else ""
        charts = [replace(why.chart, caption=notes or why.chart.caption)] if why and why.chart else []
        self.waterfall.show_charts(charts)
        show_text(self.obstacle, why.sentence if why and not charts else "")


class CompareTabs(QWidget):
    """The answer with its plots, the table, reasons, charts and curves; empty tabs are hidden.

    Hidden content is created when opened: `pivot_requested` and `curves_requested` are emitted when these are first
    opened for these runs, the former again for each choice of the user.
    """

    pivot_requested = Signal(str, str)
    curves_requested = Signal()

    def __init__(self, theme: Theme, actions: Actions, table: CompareTableView, plot: QWidget) -> None:
        super().__init__()
        self._theme = theme
        self._comparison = Comparison()
        self._hidden: frozenset[int] = frozenset()
        self._due: set[str] = set()
        self.pivot = PivotView()
        self.tools = QHBoxLayout()
        self.answer = AnswerPage(theme, actions, plot)
        self.curves = CurvesView(theme)
        self.charts = ChartsView(theme, actions)
        self.why = WhyPanel(theme, actions)
        self._scaling = ScalingPanel(theme)
        self._tabs = QTabBar(drawBase=False, expanding=False)
        self._table, self._pictures = table, QWidget()
        self.answer_scroller = Scroller(self.answer, horizontal=False)
        self._scroller = Scroller(self._pictures, steady=True)
        self._stack = QStackedWidget()
        self._build()
        self._tabs.currentChanged.connect(self._show_tab)
        self.pivot.choice_made.connect(self.pivot_requested)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        around = 2 * self._scroller.frameWidth() + self._scroller.verticalScrollBar().sizeHint().width()
        self.charts.room = self.width() - 4 * GRID - around

    @property
    def titles(self) -> list[str]:
        return [self._tabs.tabText(n) for n in range(self._tabs.count()) if self._tabs.isTabVisible(n)]

    def open_tab(self, title: str) -> None:
        self._tabs.setCurrentIndex(_TITLES.index(title))

    def show_model(self, comparison: Comparison, *, new_runs: bool = True) -> None:
        """Show a comparison; one of the same runs keeps their curves."""
        self._comparison = comparison
        self._due.add(PIVOT)
        if new_runs:
            self._due.add(CURVES)
            self.pivot.show_pivot(None, is_read=False)
            self.curves.clear()
        there = {ANSWER, TABLE, CURVES, *(_TAB_OF_CHART.get(chart.key, "") for chart in comparison.charts)}
        there |= ({PIVOT} if len(comparison.variants) > 1 else set()) | ({WHY} if comparison.why else set())
        if self._title not in there:
            self.open_tab(ANSWER)
        for number, title in enumerate(_TITLES):
            # A call that changes nothing would make Qt forget a former tab's change.
            if self._tabs.isTabVisible(number) != (title in there):
                self._tabs.setTabVisible(number, title in there)
        self._show_tab()

    def hide_variants(self, runs: frozenset[int]) -> None:
        self._hidden = runs
        self.curves.hide_runs(runs)
        self._show_tab()

    @property
    def shows_curves(self) -> bool:
        return self._title == CURVES

    @property
    def _title(self) -> str:
        return self._tabs.tabText(self._tabs.currentIndex())

    def _show_tab(self) -> None:
        title = self._title
        charts = [chart for chart in self._comparison.charts if _TAB_OF_CHART.get(chart.key) == title]
        self.charts.show_charts([without_runs(chart, self._hidden) for chart in charts])
        self._scaling.show_views(self._comparison.scaling if title == SCALING else ())
        self.why.show_views(self._comparison.why if title == WHY else ())
        if title == ANSWER:
            self.answer.show_why(self._comparison.leading_why)
        pages = {ANSWER: self.answer_scroller, TABLE: self._table, PIVOT: self.pivot, CURVES: self.curves}
        self._stack.setCurrentWidget(pages.get(title, self._scroller))
        if title not in self._due:
            return
        self._due.discard(title)
        if title == CURVES:
            self.curves_requested.emit()
        else:
            self.pivot_requested.emit("", "")

    def hasHeightForWidth(self) -> bool:
        """Return that it takes the space that a long answer leaves, which a small window would otherwise cut."""
        return False

    def _build(self) -> None:
        for title in _TITLES:
            self._tabs.addTab(title)
        self._tabs.setAccessibleName("Views of the comparison")
        self.setFocusProxy(self._tabs)
        pictures = self.charts, self._scaling, self.why, STRETCH
        make_column(*pictures, parent=self._pictures, margins=(2 * GRID, GRID, 2 * GRID, GRID))
        for page in (self.answer_scroller, self._table, self._scroller, self.curves, self.pivot):
            self._stack.addWidget(page)
        bar = QWidget()
        bar.setProperty("role", "tabs")
        make_row((self._tabs, 1), self.tools, parent=bar, margins=(0, 0, 2 * GRID, 0), spacing=GRID)
        self.tools.setSpacing(GRID)
        self._stack.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        self._stack.setMinimumHeight(16 * GRID)
        make_column(bar, separator(), (self._stack, 1), parent=self, margins=0, spacing=0)
