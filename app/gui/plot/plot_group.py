"""Plots that share one time axis and crosshair, zoomed and panned together; the stack of live panels."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.gui.plot.bands import Strip
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.plot.live_panels import LivePanel
from app.viewmodels.plot.model import Band, Marker

_CROSSHAIR_STEP, _PAN_STEP = 0.01, 0.1
"""How far an arrow moves the crosshair, of the stretch shown; with Shift how far it moves the view."""
_KEY_ZOOM = 1.5


class PlotGroup(QWidget):
    """Signals tell what the pointer and the keyboard ask for, with places on the axis.

    `read` comes when the crosshair moves: its place, or None when it is gone.
    """

    zoomed = Signal(float, float)
    panned = Signal(float)
    crosshair_moved = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._window = (0.0, 1.0)
        self._crosshair: float | None = None
        self._hovered_plot: TimePanel | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    @property
    def crosshair(self) -> float | None:
        """Where the crosshair stands on the axis."""
        return self._crosshair

    def set_crosshair(self, position: float | None) -> None:
        """Put the crosshair at a place, over all plots, with the values there; None takes it away."""
        self._crosshair = position
        self._show_crosshair(position)
        self.crosshair_moved.emit(position)

    def attach(self, plot: TimePanel) -> TimePanel:
        """Let a plot take part, and give it back."""
        canvas = plot.plot
        canvas.interactive = True
        canvas.hovered.connect(lambda position: self._hover(plot, position))
        canvas.left.connect(lambda: self._hover(None, None))
        canvas.pressed.connect(self.setFocus)
        canvas.zoomed.connect(self.zoomed)
        canvas.dragged.connect(self.panned)
        return plot

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows move the crosshair, with Shift the view; plus and minus zoom; Escape takes the crosshair away."""
        start, end = self._window
        middle = (start + end) / 2 if self._crosshair is None else self._crosshair
        shifted = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        direction = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()), 0)
        if direction and shifted:
            self.panned.emit(direction * _PAN_STEP * (end - start))
        elif direction:
            self.set_crosshair(min(max(middle + direction * _CROSSHAIR_STEP * (end - start), start), end))
        elif event.key() in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoomed.emit(1 / _KEY_ZOOM, middle)
        elif event.key() == Qt.Key.Key_Minus:
            self.zoomed.emit(_KEY_ZOOM, middle)
        elif event.key() == Qt.Key.Key_Escape and self._crosshair is not None:
            self.set_crosshair(None)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A line at the top says that the plots have the keyboard."""
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(0, 0, self.width(), 2, QColor(self._theme.colours.accent))
            painter.end()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """The crosshair goes with the keyboard."""
        super().focusOutEvent(event)
        self.set_crosshair(None)

    def _hover(self, plot: TimePanel | None, position: float | None) -> None:
        self._hovered_plot = plot
        self.set_crosshair(position)

    def _show_crosshair(self, position: float | None) -> None:
        """Show it in every plot, with the values there."""
        raise NotImplementedError


_MAX_NEW_PANELS = 2


class PanelStack(PlotGroup):
    """Panels one below the other on one time axis, made as the view-model names them and kept from then on."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self._panels: dict[str, TimePanel] = {}
        self._shown: tuple[LivePanel, ...] = ()
        self._drawn: dict[tuple[str, str], tuple[object, ...]] = {}
        self._origin_s = 0.0
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, GRID // 2, 0, 0)
        self._column.setSpacing(GRID // 2)
        self.setAccessibleName("Live plots")

    def panel(self, key: str) -> TimePanel:
        """The panel of that name."""
        return self._panels[key]

    def show_panels(
        self,
        panels: Sequence[LivePanel],
        origin_s: float,
        window_s: tuple[float, float],
        bands: Sequence[Band] = (),
        moments: Sequence[Marker] = (),
        *,
        fit: bool = False,
    ) -> None:
        """Show these panels, drawing only what changed since the last call.

        A call makes at most two new plots, so that none takes long; the next calls make the others. With `fit` a free
        y follows the data in view.
        """
        panels = self._limit_new(panels)
        if tuple(self._panels) != tuple(panel.key for panel in panels):
            self._rebuild(panels)
        self._shown, self._origin_s, self._window = tuple(panels), origin_s, window_s
        for panel in panels:
            plot = self._panels[panel.key]
            plot.set_title(panel.title, panel.unit)
            if panel.y_range is not None:
                plot.set_y_range(*panel.y_range)
            plot.set_x_range(*window_s, fit=fit)
            plot.set_bands(bands)
            plot.set_marks(moments, _strips(panel, origin_s))
            self._show_curves(plot, panel)
            plot.refresh()

    def _show_crosshair(self, position: float | None) -> None:
        for panel in self._shown:
            plot = self._panels[panel.key]
            plot.set_crosshair(position)
            self._show_values(plot, panel)

    def _show_curves(self, plot: TimePanel, panel: LivePanel) -> None:
        keys = {curve.key for curve in panel.curves}
        for key in plot.curve_keys():
            if key not in keys:
                plot.remove_curve(key)
                self._drawn.pop((panel.key, key), None)
        end_s = self._origin_s + self._window[1]
        for curve in panel.curves:
            newest_s = min(curve.series.newest_s, end_s)  # what comes after the end of a held view changes nothing
            state = (curve.series, newest_s, curve.scale, self._origin_s)
            if self._drawn.get((panel.key, curve.key)) != state:
                if self._drawn.get((panel.key, curve.key), state)[0] is not curve.series and panel.y_range is None:
                    plot.set_auto_y()
                self._drawn[panel.key, curve.key] = state
                plot.set_source(curve.key, curve.shifted(self._origin_s), colour=curve.colour, label=curve.label)
        self._show_values(plot, panel)

    def _show_values(self, plot: TimePanel, panel: LivePanel) -> None:
        for curve in panel.curves:
            position = self._crosshair
            plot.set_value(
                curve.key, curve.value_text if position is None else curve.value_at(self._origin_s + position)
            )

    def _limit_new(self, panels: Sequence[LivePanel]) -> Sequence[LivePanel]:
        """The first panels, up to the third that would be new."""
        new = [index for index, panel in enumerate(panels) if panel.key not in self._panels]
        return panels[: new[_MAX_NEW_PANELS]] if len(new) > _MAX_NEW_PANELS else panels

    def _rebuild(self, panels: Sequence[LivePanel]) -> None:
        for plot in self._panels.values():
            self._column.removeWidget(plot)
        wanted = {panel.key for panel in panels}
        for key in [key for key in self._panels if key not in wanted]:
            removed = self._panels.pop(key)
            removed.hide()
            removed.deleteLater()
        self._drawn = {pair: state for pair, state in self._drawn.items() if pair[0] in wanted}
        self._panels = {panel.key: self._panels.get(panel.key) or self._make_panel(panel) for panel in panels}
        for plot in self._panels.values():
            self._column.addWidget(plot, 1)
            plot.show_time_axis(False)
        if panels:
            self._panels[panels[-1].key].show_time_axis(True)

    def _make_panel(self, panel: LivePanel) -> TimePanel:
        return self.attach(TimePanel(panel.title, panel.unit, self._theme))


def _strips(panel: LivePanel, origin_s: float) -> list[Strip]:
    """The times at which GPUs were held back, a line for each GPU."""
    lines = {curve.key: line for line, curve in enumerate(panel.curves)}
    colours = {curve.key: curve.colour for curve in panel.curves}
    return [
        Strip(
            throttle.start_s - origin_s,
            throttle.end_s - origin_s,
            colours[device.device],
            lines[device.device],
        )
        for throttle, device in panel.throttles
    ]
