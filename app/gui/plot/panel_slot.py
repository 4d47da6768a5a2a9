"""Plots in their places of a stack, each given only what changed of its panel."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction

from app.gui.plot.drawn_curves import PanelCurve
from app.viewmodels.plot.look import Look
from app.viewmodels.plot.model import Panel, Plots, Strip

if TYPE_CHECKING:
    from app.gui.plot.time_panel import TimePanel


class PanelSlot:
    """A plot in its place, and what it was given of its panel.

    Args:
        plot: The plot.
        looks: What the user has chosen, by the key of a panel; choices are added to it.
    """

    def __init__(self, plot: "TimePanel", looks: dict[str, Look]) -> None:
        self.plot = plot
        self.key = ""
        self._has_fixed_y = False
        self._given: dict[str, tuple[object, ...]] = {}
        self._hidden: frozenset[str] = frozenset()
        self._looks = looks
        plot.look_changed.connect(self._keep_look)

    def offer(self, text: str, act: Callable[[], None]) -> None:
        """Add an entry to the plot's menu."""
        action = QAction(text, self.plot)
        action.triggered.connect(lambda _=False: act())
        self.plot.addAction(action)

    def draw(self, panel: Panel, plots: Plots, hidden: frozenset[str]) -> None:
        """Give the plot what changed since the last call, but its range of time and the values of its legend."""
        plot = self.plot
        if self.key != panel.key:
            plot.clear()
            self.key, self._given = panel.key, {}
            plot.set_look(self._looks.get(panel.key, Look()))
        plot.set_title(panel.title, panel.unit)
        plot.set_counted(plots.counts)
        if panel.y_range is not None:
            plot.values.fix(*panel.y_range)
        elif self._has_fixed_y:
            plot.values.release()
        self._has_fixed_y = panel.y_range is not None
        plot.set_bands(plots.bands)
        plot.set_marks(plots.markers, _strips(panel, plots.origin_s))
        self._give_curves(panel, plots)
        self.hide_curves(hidden)

    def hide_curves(self, keys: frozenset[str]) -> None:
        """Draw every curve but these."""
        if keys != self._hidden:
            self._hidden = keys
            self.plot.hide_curves(keys)

    def show_values(self, panel: Panel, at_s: float | None) -> dict[str, str]:
        """Write the values at a time, None for the newest, into the legend; return them by curve."""
        values = {curve.key: curve.value_text if at_s is None else curve.value_at(at_s) for curve in panel.curves}
        for key, value in values.items():
            self.plot.set_value(key, value)
        return values

    def _keep_look(self, look: Look) -> None:
        self._looks[self.key] = look

    def _give_curves(self, panel: Panel, plots: Plots) -> None:
        for key in self._given.keys() - {curve.key for curve in panel.curves}:
            self.plot.remove_curve(key)
            del self._given[key]
        end_s = plots.origin_s + plots.window[1]
        for curve in panel.curves:
            newest_s = min(curve.source.newest_s, end_s)  # what comes after the end of a held view changes nothing
            state = (curve.source, curve.scale, newest_s, plots.origin_s, curve.colour, curve.label, curve.mark)
            before = self._given.get(curve.key)
            if before == state:
                continue
            if panel.y_range is None and (before is None or before[:2] != state[:2]):
                self.plot.values.release()
            self._given[curve.key] = state
            source, spread = curve.shifted(plots.origin_s), curve.shifted_spread(plots.origin_s)
            drawn = PanelCurve(curve.colour, curve.label, source, curve.mark, curve.end_name, spread)
            self.plot.give(curve.key, drawn)


def _strips(panel: Panel, origin_s: float) -> Sequence[Strip]:
    """Return the times at which GPUs were throttled, a line for each GPU that was."""
    throttled = {each.device for each in panel.throttles}
    curves = [curve for curve in panel.curves if curve.key in throttled]
    lines = {curve.key: (line, curve.colour) for line, curve in enumerate(curves)}
    return [
        Strip(each.start_s - origin_s, each.end_s - origin_s, lines[each.device][1], lines[each.device][0])
        for each in panel.throttles
    ]
