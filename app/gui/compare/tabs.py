"""The tabs below the comparison table: curves, the article that the runs reproduce, and charts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QEvent, QObject, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QPainter, QPixmap, QResizeEvent
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QStackedWidget,
    QTabBar,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.gui.actions import Actions
from app.gui.compare.charts import ChartsView, ChartWindow
from app.gui.compare.curves import CurvesView
from app.gui.compare.scaling import ScalingPanel
from app.gui.plot.plot_window import DetachedWindows
from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import (
    ElidedComboBox,
    clear_layout,
    plain_tooltip,
    separator,
    show_text,
    text_label,
    toggle_button,
)
from app.gui.widgets.pacing import Slices
from app.gui.widgets.panes import Scroller
from app.gui.window_state import WindowState
from app.report.charts.draw import MIN_WIDTH, draw_chart
from app.viewmodels.charts.model import BarChart, Chart, Plot, PointChart, without_runs
from app.viewmodels.charts.palette import colour_by
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.why import WHY, WhyRow, WhyView
from app.viewmodels.compare.why_text import CAVEAT
from app.viewmodels.format.naming import setting_label
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.gui.compare.article import ArticleView

_MAX_WIDTH = 1600
_TABLE_WIDTH = 130 * GRID
_ROW = QSize(0, 3 * GRID)


class WhyPanel(QWidget):
    """Shows one variant against the baseline, and a choice of variants where there are several; hidden without any."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._views: tuple[WhyView, ...] = ()
        self.choice = ElidedComboBox()
        self.choice.setAccessibleName("Variant that is compared with the baseline")
        self.choice.currentIndexChanged.connect(self._show_chosen)
        self._against = text_label("", "muted")
        self._sentence = text_label("", "", wrap=True)
        self._sentence.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._notes = text_label("", "caption", wrap=True)
        self._charts = ChartsView(theme, actions)
        self._gains = QVBoxLayout()
        self._table_title = text_label("Parts of a step", "heading")
        self.table = PartsTable()
        self._build()
        self.hide()

    def show_views(self, views: tuple[WhyView, ...]) -> None:
        """Show the view of the variant chosen before, if it is there, else the first that explains something."""
        if views is self._views:
            return
        chosen = self.choice.currentText()
        self._views = views
        names = [view.name for view in views]
        self.choice.blockSignals(True)
        self.choice.clear()
        self.choice.addItems(names)
        first = next((n for n, view in enumerate(views) if view.found), 0)
        self.choice.setCurrentIndex(names.index(chosen) if chosen in names else first)
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
        show_text(self._notes, "\n".join(view.notes))
        self._charts.show_charts([view.chart] if view.chart else [])
        clear_layout(self._gains)
        if view.gains:
            self._gains.addWidget(text_label("What if", "heading"))
            for gain in view.gains:
                self._gains.addWidget(text_label(f"·  {gain}", "", wrap=True))
            self._gains.addWidget(text_label(CAVEAT, "caption", wrap=True))
        self._table_title.setVisible(bool(view.rows))
        self.table.show_rows(view.head, view.rows)

    def _build(self) -> None:
        chooser = QHBoxLayout()
        chooser.setSpacing(GRID)
        chooser.addWidget(self.choice)
        chooser.addWidget(self._against)
        chooser.addStretch(1)
        self.choice.setMinimumWidth(24 * GRID)
        self._gains.setSpacing(GRID // 2)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, GRID, 0, 2 * GRID)
        column.setSpacing(GRID)
        column.addLayout(chooser)
        column.addWidget(self._sentence)
        column.addWidget(self._notes)
        column.addWidget(self._charts)
        column.addLayout(self._gains)
        column.addWidget(self._table_title)
        column.addWidget(self.table)
        self.setMaximumWidth(_MAX_WIDTH)


class PartsTable(QTreeWidget):
    """The parts of a step, each with its kernels; as high as its rows. Arrows unfold, and so does a click."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Parts of a step and their kernels")
        self.setUniformRowHeights(True)
        self.setMaximumWidth(_TABLE_WIDTH)
        self.setFont(tabular_font())
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.header().setStretchLastSection(False)
        self.itemExpanded.connect(self._fit_height)
        self.itemCollapsed.connect(self._fit_height)

    def show_rows(self, head: Sequence[str], rows: Sequence[WhyRow]) -> None:
        """Show these rows, all parts folded; hidden without any."""
        self.clear()
        self.setColumnCount(len(head) + 1)
        self.setHeaderLabels(["Part", *head])
        self.addTopLevelItems(_items(rows))
        header = self.header()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column in range(1, len(head) + 1):
            self.headerItem().setTextAlignment(column, RIGHT)
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
        # Names of kernels are full of angle brackets, which Qt would take for mark-up.
        item.setToolTip(0, plain_tooltip(row.help))
        if row.is_detail:
            items[-1].addChild(item)
        else:
            items.append(item)
    return items


SIZE = QSize(64, 36)
_TAB_PADDING, _ICON_GAP = 4 * GRID, GRID
"""Of a tab around its title, by the style sheet, and between picture and title."""


class Thumbnails(QObject):
    """Draws the charts of a tab bar as its icons, one in each turn of the event loop so that nothing waits for all.

    Where the tabs would not fit with all of them, there are none. Thread: GUI only.
    """

    def __init__(self, tabs: QTabBar, theme: Theme) -> None:
        super().__init__(tabs)
        self._tabs = tabs
        self._theme = theme
        self._charts: dict[str, Chart] = {}
        self._icons: dict[str, QIcon] = {}
        self._drawing = Slices(self, slice_s=0.0)
        theme.follow(tabs, self._draw_all)
        tabs.setIconSize(SIZE)
        tabs.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Show or hide the pictures when the tab bar becomes wider or narrower."""
        if event.type() == QEvent.Type.Resize:
            self._fit()
        return super().eventFilter(watched, event)

    def show_charts(self, charts: Mapping[str, Chart]) -> None:
        """Show these charts on the tabs whose data are their keys."""
        self._charts = dict(charts)
        self._icons = {}
        self._draw_all()

    def _draw_all(self) -> None:
        """Draw them anew, after what is larger."""
        self._drawing.start(map(self._draw, self._charts), later=True)

    def _draw(self, key: str) -> None:
        self._icons[key] = QIcon(self._picture(self._charts[key]))
        self._fit()

    def _fit(self) -> None:
        """Show the pictures that are drawn, if there is room for those of all charts."""
        tabs, titles = self._tabs, range(self._tabs.count())
        metrics = tabs.fontMetrics()
        needed = sum(metrics.horizontalAdvance(tabs.tabText(tab)) + _TAB_PADDING for tab in titles)
        has_room = needed + len(self._charts) * (SIZE.width() + _ICON_GAP) <= tabs.width()
        for tab in titles:
            icon = self._icons.get(tabs.tabData(tab)) if has_room else None
            if (icon is None) != tabs.tabIcon(tab).isNull():
                tabs.setTabIcon(tab, icon or QIcon())

    def _picture(self, chart: Chart) -> QPixmap:
        """Return a chart as wide as a thumbnail: its upper part, or all of a low one in the middle."""
        drawing = draw_chart(_without_names(chart), self._theme.colours, MIN_WIDTH, titled=False)
        ratio = self._tabs.devicePixelRatioF()
        picture = QPixmap(SIZE * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        height = SIZE.width() * drawing.height / drawing.width
        area = QRectF(0, max(0.0, (SIZE.height() - height) / 2), SIZE.width(), height)
        QSvgRenderer(QByteArray(drawing.svg().encode())).render(painter, area)
        painter.end()
        return picture


def _without_names(chart: Chart) -> Chart:
    """Return a chart without the names of its marks, which nobody could read at that size."""
    if isinstance(chart, PointChart):
        return replace(chart, plots=tuple(map(_without_point_names, chart.plots[:1])))
    if isinstance(chart, BarChart):
        return replace(chart, bars=tuple(replace(bar, label="", text="") for bar in chart.bars))
    return replace(chart, bars=tuple(replace(bar, label="", figure="", share="") for bar in chart.bars))


def _without_point_names(plot: Plot) -> Plot:
    series = (
        replace(each, label="", points=tuple(replace(point, label="") for point in each.points)) for each in plot.series
    )
    return replace(
        plot, title="", series=tuple(series), guides=tuple(replace(guide, label="") for guide in plot.guides)
    )


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
