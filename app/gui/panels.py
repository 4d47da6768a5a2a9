"""A stack of time panels that shows the panels of a view-model, with one crosshair over all of them."""

from collections.abc import Sequence

from PySide6.QtWidgets import QVBoxLayout

from app.gui.bands import Strip
from app.gui.plot_group import PlotGroup
from app.gui.plots import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.panels import Panel
from app.viewmodels.plotted import Band, Moment

_NEW_AT_ONCE = 2


class PanelStack(PlotGroup):
    """Panels one below the other on one time axis, made as the view-model names them and kept from then on."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self._panels: dict[str, TimePanel] = {}
        self._shown: tuple[Panel, ...] = ()
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
        panels: Sequence[Panel],
        origin_s: float,
        window_s: tuple[float, float],
        bands: Sequence[Band] = (),
        moments: Sequence[Moment] = (),
        *,
        fit: bool = False,
    ) -> None:
        """Show these panels, drawing only what changed since the last call.

        A call makes at most two new plots, so that none takes long; the next calls make the others. With `fit` a free
        y follows the data in view.
        """
        panels = self._affordable(panels)
        if tuple(self._panels) != tuple(panel.key for panel in panels):
            self._rebuild(panels)
        self._shown, self._origin_s, self._window = tuple(panels), origin_s, window_s
        for panel in panels:
            plot = self._panels[panel.key]
            plot.set_title(panel.title, panel.unit)
            if panel.y_range is not None:
                plot.set_y_range(*panel.y_range)
            plot.set_x_range(*window_s, fit=fit)
            plot.set_shades(bands)
            plot.set_marks(moments, _strips(panel, origin_s))
            self._show_curves(plot, panel)
            plot.refresh()

    def _show_crosshair(self, at: float | None) -> None:
        for panel in self._shown:
            plot = self._panels[panel.key]
            plot.set_crosshair(at)
            self._show_values(plot, panel)

    def _show_curves(self, plot: TimePanel, panel: Panel) -> None:
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
                plot.set_source(curve.key, curve.on_axis(self._origin_s), colour=curve.colour, label=curve.label)
        self._show_values(plot, panel)

    def _show_values(self, plot: TimePanel, panel: Panel) -> None:
        for curve in panel.curves:
            at = self._crosshair
            plot.set_value(curve.key, curve.value if at is None else curve.value_at(self._origin_s + at))

    def _affordable(self, panels: Sequence[Panel]) -> Sequence[Panel]:
        """The first panels, up to the third that would be new."""
        new = [index for index, panel in enumerate(panels) if panel.key not in self._panels]
        return panels[: new[_NEW_AT_ONCE]] if len(new) > _NEW_AT_ONCE else panels

    def _rebuild(self, panels: Sequence[Panel]) -> None:
        for plot in self._panels.values():
            self._column.removeWidget(plot)
        wanted = {panel.key for panel in panels}
        for key in [key for key in self._panels if key not in wanted]:
            gone = self._panels.pop(key)
            gone.hide()
            gone.deleteLater()
        self._drawn = {pair: state for pair, state in self._drawn.items() if pair[0] in wanted}
        self._panels = {panel.key: self._panels.get(panel.key) or self._made(panel) for panel in panels}
        for plot in self._panels.values():
            self._column.addWidget(plot, 1)
            plot.show_time_axis(False)
        if panels:
            self._panels[panels[-1].key].show_time_axis(True)

    def _made(self, panel: Panel) -> TimePanel:
        return self.adopt(TimePanel(panel.title, panel.unit, self._theme))


def _strips(panel: Panel, origin_s: float) -> list[Strip]:
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
