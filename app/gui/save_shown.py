"""Chooses what Ctrl+S saves and Ctrl+Shift+S copies: the chart under the pointer or focused, or all visible plots."""

from collections.abc import Callable

from PySide6.QtGui import QCursor
from PySide6.QtWidgets import QApplication, QToolTip, QWidget

from app.gui.compare.charts import ChartWidget
from app.gui.compare.scaling import ScalingChart
from app.gui.plot.export import copy_chart, draw_stacked, save_chart
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import Theme
from app.report.charts.canvas import Drawing

_NO_CHART = "There is no plot here to save or copy."


def save_shown_chart(page: QWidget, theme: Theme) -> None:
    """Save a chart of the page, or say that there is none."""
    _use_shown_chart(page, theme, lambda shown: save_chart(page, shown))


def copy_shown_chart(page: QWidget, theme: Theme) -> None:
    """Put a chart of the page on the clipboard, or say that there is none."""
    _use_shown_chart(page, theme, copy_chart)


def _use_shown_chart(page: QWidget, theme: Theme, use: Callable[[Drawing], None]) -> None:
    shown = chart_to_save(page, QApplication.widgetAt(QCursor.pos()), theme)
    if shown is None:
        QToolTip.showText(QCursor.pos(), _NO_CHART, page)
    else:
        use(shown)


def chart_to_save(page: QWidget, hovered: QWidget | None, theme: Theme) -> Drawing | None:
    """Draw the plot or chart under the pointer, the focused one, or else every visible plot or the first chart.

    `hovered` is the widget under the pointer.
    """
    for candidate in (hovered, QApplication.focusWidget()):
        found = _enclosing_chart(candidate, page)
        if isinstance(found, TimePanel):
            return draw_stacked([found.snapshot()], theme, found.width())
        if found is not None:
            return found.drawing()
    plots = [panel for panel in page.findChildren(TimePanel) if not panel.visibleRegion().isEmpty()]
    if not plots:
        charts = (chart.drawing() for chart in page.findChildren(ChartWidget) if not chart.visibleRegion().isEmpty())
        return next(charts, None)
    return draw_stacked([panel.snapshot() for panel in plots], theme, max(panel.width() for panel in plots))


def _enclosing_chart(widget: QWidget | None, page: QWidget) -> ChartWidget | ScalingChart | TimePanel | None:
    """Return the chart that a widget of the page is part of."""
    while widget is not None and widget is not page:
        if isinstance(widget, (ChartWidget, ScalingChart, TimePanel)):
            return widget
        widget = widget.parentWidget()
    return None
