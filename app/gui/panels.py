"""A stack of time panels that shows the panels of a view-model."""

from collections.abc import Sequence

from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.gui.bands import Band
from app.gui.plots import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.panels import Panel
from app.viewmodels.progress import Span

_NEW_AT_ONCE = 2


class PanelStack(QWidget):
    """Panels one below the other on one time axis, made as the view-model names them and kept from then on."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._panels: dict[str, TimePanel] = {}
        self._drawn: dict[tuple[str, str], tuple[object, ...]] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(GRID // 2)

    def panel(self, key: str) -> TimePanel:
        """The panel of that name."""
        return self._panels[key]

    def show_panels(
        self, panels: Sequence[Panel], origin_s: float, window_s: tuple[float, float], spans: Sequence[Span] = ()
    ) -> None:
        """Show these panels, drawing only what changed since the last call.

        A call makes at most two new plots, so that none takes long; the next calls make the others.
        """
        panels = self._affordable(panels)
        if tuple(self._panels) != tuple(panel.key for panel in panels):
            self._rebuild(panels)
        bands = [Band(span.name, span.start, span.end, span.strong) for span in spans]
        for panel in panels:
            plot = self._panels[panel.key]
            plot.set_title(panel.title, panel.unit)
            if panel.y_range is not None:
                plot.set_y_range(*panel.y_range)
            plot.set_x_range(*window_s)
            plot.set_shades(bands)
            self._show_curves(plot, panel, origin_s)
            plot.refresh()

    def _show_curves(self, plot: TimePanel, panel: Panel, origin_s: float) -> None:
        keys = {curve.key for curve in panel.curves}
        for key in plot.curve_keys():
            if key not in keys:
                plot.remove_curve(key)
                self._drawn.pop((panel.key, key), None)
        for curve in panel.curves:
            state = (curve.series, curve.series.version, curve.scale, origin_s)
            if self._drawn.get((panel.key, curve.key)) != state:
                if self._drawn.get((panel.key, curve.key), state)[0] is not curve.series and panel.y_range is None:
                    plot.set_auto_y()
                self._drawn[panel.key, curve.key] = state
                plot.set_curve(curve.key, curve.series.x - origin_s, curve.y, colour=curve.colour, label=curve.label)
            plot.set_value(curve.key, curve.value)

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
        return TimePanel(panel.title, panel.unit, self._theme)
