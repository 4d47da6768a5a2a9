"""The menu of one plot; saves and copies plots and charts as SVG or PNG, plots as vector charts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QBuffer, QByteArray, QPoint, Qt
from PySide6.QtGui import QCursor, QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication, QMenu, QToolTip, QWidget

from app.errors import UserError, write_error
from app.gui.plot.canvas import TimeAxis
from app.gui.plot.curves import PanelCurve
from app.gui.theme import Theme
from app.gui.widgets.basic import add_choices
from app.gui.widgets.dialogs import ask_save_path, warn
from app.report.charts.canvas import Drawing
from app.report.charts.curves import draw_curves
from app.values.plain import file_name
from app.viewmodels.charts import model
from app.viewmodels.charts.model import Axis
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.plot.model import (
    Band,
    CurvePlot,
    CurveSource,
    DrawnCurve,
    Look,
    RunningMean,
    ValueMode,
    clip_curve,
    format_window,
    smoothing_windows,
)

if TYPE_CHECKING:
    from app.gui.plot.time_panel import TimePanel

_PIXEL_RATIO = 2
_FILE_TYPES = {"PNG (*.png)": ".png", "SVG (*.svg)": ".svg"}


def save_chart(parent: QWidget, drawing: Drawing) -> None:
    """Ask for a file, and write the chart to it; show an error in one sentence."""
    path = ask_save_path(parent, "Save picture", Path.cwd() / f"{file_name(drawing.name)}.png", _FILE_TYPES)
    if path is None:
        return
    try:
        write_chart(path, drawing.svg(filled=True))
    except UserError as error:
        warn(parent, "Save picture", str(error))


def write_chart(path: Path, svg: str) -> None:
    """Write SVG, or paint it if the name ends in .png; raises `UserError` if that fails."""
    try:
        path.write_bytes(_png(svg) if path.suffix.lower() == ".png" else svg.encode())
    except OSError as error:
        raise write_error(path, error) from error


def show_picture_menu(parent: QWidget, draw: Callable[[], Drawing], position: QPoint) -> None:
    menu = QMenu(parent)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    add_picture_actions(menu, parent, draw)
    menu.popup(position)


def add_picture_actions(menu: QMenu, parent: QWidget, draw: Callable[[], Drawing]) -> None:
    menu.addAction("&Copy picture").triggered.connect(lambda: copy_chart(draw()))
    menu.addAction("&Save picture …").triggered.connect(lambda: save_chart(parent, draw()))


def copy_chart(drawing: Drawing) -> None:
    QGuiApplication.clipboard().setImage(_image(drawing.svg(filled=True)))


def _image(svg: str) -> QImage:
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    image = QImage(renderer.defaultSize() * _PIXEL_RATIO, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(0)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return image


def _png(svg: str) -> bytes:
    buffer = QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    _image(svg).save(buffer, "PNG")  # type: ignore[call-overload]  # the stub wants bytes for the format, Qt takes both
    return bytes(buffer.data().data())


_COLUMNS = 1000
_X_TICKS, _Y_TICKS = 8, 4
_SPREAD_DASH = (1, 3)


def make_curve_plot(
    title: str,
    x_range: tuple[float, float],
    y: Axis,
    axis: TimeAxis,
    curves: Sequence[DrawnCurve],
    bands: Sequence[Band],
) -> CurvePlot:
    least_step = (x_range[1] - x_range[0]) / _X_TICKS
    clock = None if axis.counted else model.clock_step(2.5 * least_step)
    step = clock or model.round_step(least_step)
    values = model.multiples(*x_range, step)
    labels = axis.tickStrings(values, 1.0, step)
    return CurvePlot(
        title=title,
        x=Axis(title="", low=x_range[0], high=x_range[1], ticks=tuple(zip(values, labels, strict=True))),
        y=y,
        curves=tuple(clip_curve(curve, *x_range) for curve in curves),
        bands=tuple(bands),
    )


def value_axis(title: str, span: tuple[float, float], *, log: bool) -> Axis:
    make_ticks = model.log_ticks if log else model.linear_ticks
    return Axis(title=title, low=span[0], high=span[1], ticks=tuple(make_ticks(*span, _Y_TICKS)), log=log)


def drawn_curves(curve: PanelCurve, look: Look, x_range: tuple[float, float]) -> list[DrawnCurve]:
    """Return the visible parts of a curve: smoothed if so displayed, and its spread's edges."""
    source = curve.source if not look.smoothing else RunningMean(curve.source, look.smoothing)
    edges = [_drawn_curve(edge, x_range, "", curve.colour) for edge in curve.spread or ()]
    dotted = [replace(edge, dash=_SPREAD_DASH) for edge in edges]
    return [*dotted, replace(_drawn_curve(source, x_range, curve.label, curve.colour), mark=curve.mark)]


def _drawn_curve(source: CurveSource, x_range: tuple[float, float], label: str, style: int) -> DrawnCurve:
    """Return a curve's points; older parts, stored as ranges, are a stroke from end to end."""
    x, low, high = source.window(*x_range, _COLUMNS)
    if low is not high:
        x, low = np.repeat(x, 2), np.stack([low, high], axis=1).ravel()
    return DrawnCurve(label=label, colour=style, x=x, y=low, dash=dash_pattern(style))


def draw_stacked(plots: Sequence[CurvePlot], theme: Theme, width: float) -> Drawing:
    name = ", ".join(plot.title for plot in plots if plot.title)
    return draw_curves(plots, theme.colours, width, name)


_MODES: dict[ValueMode, str] = {"zero": "From &zero", "data": "&Fit to the data in view", "log": "&Logarithmic"}


def show_panel_menu(panel: "TimePanel", position: QPoint) -> None:
    """Show the menu of a plot. The plot's own actions come first."""
    menu = QMenu(panel)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    menu.addActions(panel.actions())
    menu.addSeparator()
    look, duration_s = panel.look, panel.span[1] - panel.span[0]
    modes = ((text, replace(look, mode=mode, values=None)) for mode, text in _MODES.items())
    add_choices(menu.addMenu("&Value axis"), modes, look, panel.change_look)
    windows = sorted({*smoothing_windows(duration_s), *([look.smoothing] if look.smoothing else [])})
    texts = (f"Running mean of {format_window(window, counts=panel.axis.counted)}" for window in windows)
    smoothed = ((text, replace(look, smoothing=window)) for window, text in zip(windows, texts, strict=True))
    add_choices(
        menu.addMenu("S&moothing"), (("&None", replace(look, smoothing=0.0)), *smoothed), look, panel.change_look
    )
    menu.addSeparator()
    add_picture_actions(menu, panel, panel.drawing)
    menu.popup(position)


_NO_CHART = "There is no plot here to save or copy."


def save_picture_in_sight(page: QWidget, theme: Theme, *, to_clipboard: bool) -> None:
    """Save the picture of a page that `drawing_in_sight` finds, or copy it; say if there is none."""
    drawing = drawing_in_sight(page, QApplication.widgetAt(QCursor.pos()), theme)
    if drawing is None:
        QToolTip.showText(QCursor.pos(), _NO_CHART, page)
    elif to_clipboard:
        copy_chart(drawing)
    else:
        save_chart(page, drawing)


def drawing_in_sight(page: QWidget, hovered: QWidget | None, theme: Theme) -> Drawing | None:
    """Draw the plot or chart under the pointer, else the focused one, else every visible plot or the first chart.

    `hovered` is the widget under the pointer.
    """
    from app.gui.compare.charts import ChartWidget
    from app.gui.compare.tabs import ScalingChart
    from app.gui.plot.time_panel import TimePanel

    for start in (hovered, QApplication.focusWidget()):
        widget = start
        while widget is not None and widget is not page:
            if isinstance(widget, ChartWidget | ScalingChart | TimePanel):
                return widget.drawing()
            widget = widget.parentWidget()
    plots = [panel for panel in page.findChildren(TimePanel) if not panel.visibleRegion().isEmpty()]
    if plots:
        return draw_stacked([panel.snapshot() for panel in plots], theme, max(panel.width() for panel in plots))
    charts = (chart.drawing() for chart in page.findChildren(ChartWidget) if not chart.visibleRegion().isEmpty())
    return next(charts, None)
