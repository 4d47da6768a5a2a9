"""Small pictures of a comparison's charts on their tabs, so that one is large and the others are seen as well."""

from collections.abc import Mapping
from dataclasses import replace

from PySide6.QtCore import QByteArray, QEvent, QObject, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QTabBar

from app.gui.theme import GRID, Theme
from app.gui.widgets.pacing import Slices
from app.report.charts.draw import MIN_WIDTH, draw_chart
from app.viewmodels.charts.model import BarChart, Chart, Plot, PointChart

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
