"""The tabs below the comparison table: curves, the article that the runs reproduce, and charts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from app.gui.actions import Actions
from app.gui.compare.charts import ChartsView, ChartWindow
from app.gui.compare.curves import CurvesView
from app.gui.compare.scaling import ScalingPanel
from app.gui.compare.thumbnails import Thumbnails
from app.gui.compare.why import WhyPanel
from app.gui.plot.plot_window import DetachedWindows
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import separator, text_label, toggle_button
from app.gui.widgets.panes import Scroller
from app.gui.window_state import WindowState
from app.viewmodels.charts.colouring import colour_by
from app.viewmodels.charts.model import Chart, PointChart, without_runs
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.why import WHY
from app.viewmodels.format.naming import setting_label
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.gui.compare.article import ArticleView

_CURVES, _ARTICLE, _GPUS = "curves", "article", "gpus"
_TITLES = {
    _CURVES: "Curves",
    WHY: "Why",
    _ARTICLE: "Article",
    "speed-up": "Speed-up",
    "effects": "Effects",
    "energy-ratio": "Energy",
    "batch": "Batch size",
    "frontier": "Speed and energy",
    _GPUS: "Scaling",
    "roofline": "Roofline",
}


class CompareTabs(QWidget):
    """A tab of curves, one of the article, and one per chart; a chart is drawn when its tab is opened.

    `article_requested` is emitted when the tab of the article is first opened for these runs, `enlarged` when what is
    shown is to have the whole screen, or no more.
    """

    article_requested = Signal()
    enlarged = Signal(bool)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self.article: ArticleView | None = None
        self._article_offered = False
        self._article_was_requested = False
        self.curves = CurvesView(theme)
        self.charts = ChartsView(theme, actions, detachable=True)
        self.enlarge = toggle_button("Enlarge", "Fill the screen, without the table (Ctrl+Shift+E)")
        self._comparison = Comparison()
        self._hidden: frozenset[int] = frozenset()
        self.colouring = QComboBox()
        self._coloured_by = ""
        self._colouring_label = text_label("Colour by", "caption")
        self._scaling = ScalingPanel(theme)
        self.why = WhyPanel(theme, actions)
        self._tabs = QTabBar()
        self._thumbnails = Thumbnails(self._tabs, theme)
        self._pictures = QWidget()
        self._scroller = Scroller(self._pictures, steady=True)
        self._stack = QStackedWidget()
        self._wanted = _CURVES
        state = WindowState("compare charts", self)
        self.windows = DetachedWindows(self, state, lambda key: ChartWindow(self, key, theme, actions, state))
        self._connect()
        self._build()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Let charts be drawn for the width that they will have."""
        super().resizeEvent(event)
        around = 2 * self._scroller.frameWidth() + self._scroller.verticalScrollBar().sizeHint().width()
        self.charts.room = self.width() - 4 * GRID - around

    @property
    def titles(self) -> list[str]:
        """Titles of the tabs."""
        return [self._tabs.tabText(n) for n in range(self._tabs.count())]

    def remember(self, state: WindowState) -> None:
        """Open the tab that was open, with its colours, and remember the user's choice from now on."""
        self._wanted = state.read("tab", self._wanted)
        self._coloured_by = state.read("coloured by", "")
        self._tabs.currentChanged.connect(lambda _: state.keep("tab", self._wanted))
        self.colouring.activated.connect(lambda _: state.keep("coloured by", self._coloured_by))

    def open_tab(self, title: str) -> None:
        """Open a tab."""
        self._tabs.setCurrentIndex(self.titles.index(title))

    def offer_article(self, offered: bool) -> None:
        """Set whether the next gallery has the tab of an article; its tables are requested when it is opened."""
        self._article_offered, self._article_was_requested = offered, False
        if self.article is not None:
            self.article.show_article("")

    def open_article(self) -> None:
        """Open the article, where one is offered."""
        if self._article_offered:
            self.open_tab(_TITLES[_ARTICLE])

    def show_article(self, html: str) -> None:
        """Show the tables of the article."""
        self._article_view().show_article(html)

    def show_model(self, comparison: Comparison) -> None:
        """Show a tab per chart; the one chosen last is open if it is there."""
        self._comparison = comparison
        offered = {_CURVES: True, _ARTICLE: self._article_offered, WHY: bool(comparison.why)}
        keys = [*(key for key, is_there in offered.items() if is_there), *(c.key for c in comparison.gallery.charts)]
        self._tabs.blockSignals(True)
        while self._tabs.count():
            self._tabs.removeTab(0)
        for key in keys:
            self._tabs.setTabData(self._tabs.addTab(_TITLES[key]), key)
        self._tabs.setCurrentIndex(keys.index(self._wanted) if self._wanted in keys else 0)
        self._tabs.blockSignals(False)
        self._thumbnails.show_charts({chart.key: chart for chart in comparison.gallery.charts} | _why_chart(comparison))
        self.windows.show_remembered([chart.key for chart in comparison.gallery.charts])
        self._show_tab()

    def hide_variants(self, runs: frozenset[int]) -> None:
        """Leave the variants of these runs out of the charts."""
        if runs != self._hidden:
            self._hidden = runs
            self._show_tab()

    def _choose_tab(self) -> None:
        self._wanted = self._tabs.tabData(self._tabs.currentIndex())
        self._show_tab()

    def _show_tab(self) -> None:
        key = self._tabs.tabData(self._tabs.currentIndex())
        charts = self._charts_of(key)
        self._offer_colours(charts)
        self.charts.show_charts(self._as_chosen(charts))
        for detached in self.windows.open:
            self._show_detached(detached)
        self._scaling.show_views(self._comparison.scaling if key == _GPUS else ())
        self.why.show_views(self._comparison.why if key == WHY else ())
        if key == _ARTICLE:
            self._stack.setCurrentWidget(self._article_view())
            self._request_article()
        else:
            self._stack.setCurrentIndex(0 if key == _CURVES else 1)

    def _detach(self, key: str) -> None:
        self.windows.show_window(key)
        self._show_detached(key)

    def _show_detached(self, key: str) -> None:
        self.windows.open[key].show_charts(self._as_chosen(self._charts_of(key)))

    def _charts_of(self, key: str) -> list[Chart]:
        return [chart for chart in self._comparison.gallery.charts if chart.key == key]

    def _as_chosen(self, charts: Sequence[Chart]) -> list[Chart]:
        """Return charts without the hidden variants, in the colours chosen."""
        chosen, specs = self.colouring.currentData(), self._specs()
        coloured = [
            colour_by(chart, chosen, specs)
            if chosen and isinstance(chart, PointChart) and chosen in chart.colour_choices
            else chart
            for chart in charts
        ]
        return [without_runs(chart, self._hidden) for chart in coloured]

    def _specs(self) -> dict[int, RunSpec]:
        return {row.run: row.spec for row in self._comparison.rows}

    def _offer_colours(self, charts: Sequence[Chart]) -> None:
        """Offer the parameters that the points of a scatter can be coloured by; what was chosen stays if it is one."""
        specs = self._specs()
        names = [name for chart in charts if isinstance(chart, PointChart) for name in chart.colour_choices]
        self.colouring.clear()
        self.colouring.addItem("Automatic", "")
        for name in names:
            self.colouring.addItem(setting_label(specs.values(), name), name)
        self.colouring.setCurrentIndex(max(0, self.colouring.findData(self._coloured_by)))
        for shown in (self.colouring, self._colouring_label):
            shown.setVisible(len(names) > 1)

    def _choose_colours(self) -> None:
        self._coloured_by = self.colouring.currentData()
        self._show_tab()

    def _request_article(self) -> None:
        if not self._article_was_requested:
            self._article_was_requested = True
            self.article_requested.emit()

    def _article_view(self) -> "ArticleView":
        from app.gui.compare.article import ArticleView

        if self.article is None:
            self.article = ArticleView(self._theme)
            self._stack.addWidget(self.article)
        return self.article

    def _connect(self) -> None:
        self._tabs.currentChanged.connect(self._choose_tab)
        self.colouring.activated.connect(self._choose_colours)
        self.charts.detach_requested.connect(self._detach)
        self.charts.enlarge_requested.connect(self.enlarge.toggle)
        self.enlarge.toggled.connect(self.enlarged)

    def _build(self) -> None:
        self._tabs.setDrawBase(False)
        self._tabs.setExpanding(False)
        self._tabs.setAccessibleName("Curves and charts")
        self.enlarge.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # it has a key, and a picture is one step from its tab
        column = QVBoxLayout(self._pictures)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        self.colouring.setAccessibleName("Colour by")
        colours = QHBoxLayout()
        colours.addWidget(self._colouring_label)
        colours.addWidget(self.colouring)
        colours.addStretch(1)
        column.addLayout(colours)
        column.addWidget(self.charts)
        column.addWidget(self._scaling)
        column.addWidget(self.why)
        column.addStretch(1)
        self._stack.addWidget(self.curves)
        self._stack.addWidget(self._scroller)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        bar = QWidget()
        bar.setProperty("role", "tabs")
        top = QHBoxLayout(bar)
        top.setContentsMargins(0, 0, 2 * GRID, 0)
        top.addWidget(self._tabs, 1)
        top.addWidget(self.enlarge)
        layout.addWidget(bar)
        layout.addWidget(separator())
        layout.addWidget(self._stack, 1)


def _why_chart(comparison: Comparison) -> dict[str, Chart]:
    """Return the first chart of why variants differ, by the key of its tab, if there is one."""
    drawn = next((view.chart for view in comparison.why if view.chart is not None), None)
    return {WHY: drawn} if drawn is not None else {}
