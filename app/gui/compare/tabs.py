"""The tabs below the comparison table: curves, the article that the runs reproduce, and charts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from app.gui.actions import Actions
from app.gui.compare.charts import ChartsView
from app.gui.compare.curves import CurvesView
from app.gui.compare.scaling import ScalingPanel
from app.gui.compare.thumbnails import Thumbnails
from app.gui.compare.why import WhyPanel
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import Scroller, separator, text_label
from app.viewmodels.charts.colouring import COLOURED, colour_by, colour_choices
from app.viewmodels.charts.model import Chart, PointChart, without_runs
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.why import WHY
from app.viewmodels.format.naming import parameter_label
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

    `article_requested` is emitted when the tab of the article is first opened for these runs.
    """

    article_requested = Signal()

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self.article: ArticleView | None = None
        self._article_offered = False
        self._article_was_requested = False
        self.curves = CurvesView(theme)
        self.charts = ChartsView(theme, actions)
        self._comparison = Comparison()
        self._hidden: frozenset[int] = frozenset()
        self.colouring = QComboBox()
        self._coloured_by = ""
        self._colouring_label = text_label("Colour by", "caption")
        self._scaling = ScalingPanel(theme)
        self.why = WhyPanel(theme, actions)
        self._tabs = QTabBar()
        self._thumbnails = Thumbnails(self._tabs, theme)
        self._stack = QStackedWidget()
        self._tabs.currentChanged.connect(self._show_tab)
        self._build()

    @property
    def titles(self) -> list[str]:
        """Titles of the tabs."""
        return [self._tabs.tabText(n) for n in range(self._tabs.count())]

    def open_tab(self, title: str) -> None:
        """Open a tab."""
        self._tabs.setCurrentIndex(self.titles.index(title))

    def offer_article(self, offered: bool) -> None:
        """Set whether the next gallery has the tab of an article; its tables are requested when it is opened."""
        self._article_offered, self._article_was_requested = offered, False

    def open_article(self) -> None:
        """Open the article, where one is offered."""
        if self._article_offered:
            self.open_tab(_TITLES[_ARTICLE])

    def show_article(self, html: str) -> None:
        """Show the tables of the article."""
        self._article_view().show_html(html)

    def show_model(self, comparison: Comparison) -> None:
        """Show a tab per chart; the open tab stays open if it is still there."""
        self._comparison = comparison
        before = self._tabs.tabData(self._tabs.currentIndex())
        offered = {_CURVES: True, _ARTICLE: self._article_offered, WHY: bool(comparison.why)}
        keys = [*(key for key, is_there in offered.items() if is_there), *(c.key for c in comparison.gallery.charts)]
        self._tabs.blockSignals(True)
        while self._tabs.count():
            self._tabs.removeTab(0)
        for key in keys:
            self._tabs.setTabData(self._tabs.addTab(_TITLES[key]), key)
        self._tabs.setCurrentIndex(keys.index(before) if before in keys else 0)
        self._tabs.blockSignals(False)
        self._thumbnails.show_charts({chart.key: chart for chart in comparison.gallery.charts} | _why_chart(comparison))
        self._show_tab()

    def hide_variants(self, runs: frozenset[int]) -> None:
        """Leave the variants of these runs out of the charts."""
        if runs != self._hidden:
            self._hidden = runs
            self._show_tab()

    def _show_tab(self) -> None:
        key = self._tabs.tabData(self._tabs.currentIndex())
        charts = [chart for chart in self._comparison.gallery.charts if chart.key == key]
        self._offer_colours(charts)
        self._show_charts(charts)
        self._scaling.show_views(self._comparison.scaling if key == _GPUS else ())
        self.why.show_views(self._comparison.why if key == WHY else ())
        if key == _ARTICLE:
            self._stack.setCurrentWidget(self._article_view())
            self._request_article()
        else:
            self._stack.setCurrentIndex(0 if key == _CURVES else 1)

    def _show_charts(self, charts: Sequence[Chart]) -> None:
        chosen, specs = self.colouring.currentData(), self._specs()
        coloured = [
            colour_by(chart, chosen, specs)
            if chosen and isinstance(chart, PointChart) and chart.key in COLOURED
            else chart
            for chart in charts
        ]
        self.charts.show_charts([without_runs(chart, self._hidden) for chart in coloured])

    def _specs(self) -> dict[int, RunSpec]:
        return {row.run: row.spec for row in self._comparison.rows}

    def _offer_colours(self, charts: Sequence[Chart]) -> None:
        """Offer the parameters that the points of a scatter can be coloured by; what was chosen stays if it is one."""
        specs = self._specs()
        names = [
            name
            for chart in charts
            if isinstance(chart, PointChart) and chart.key in COLOURED
            for name in colour_choices(chart, specs)
        ]
        self.colouring.clear()
        self.colouring.addItem("Automatic", "")
        for name in names:
            self.colouring.addItem(parameter_label(next(s for s in specs.values() if name in s.variant), name), name)
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

    def _build(self) -> None:
        self._tabs.setDrawBase(False)
        self._tabs.setExpanding(False)
        self._tabs.setAccessibleName("Curves and charts")
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        self.colouring.setAccessibleName("Colour by")
        self.colouring.activated.connect(self._choose_colours)
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
        self._stack.addWidget(Scroller(inside))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._tabs)
        layout.addWidget(separator())
        layout.addWidget(self._stack, 1)


def _why_chart(comparison: Comparison) -> dict[str, Chart]:
    """Return the first chart of why variants differ, by the key of its tab, if there is one."""
    drawn = next((view.chart for view in comparison.why if view.chart is not None), None)
    return {WHY: drawn} if drawn is not None else {}
