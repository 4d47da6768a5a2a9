"""Time panels of stored runs in columns, on one shared axis."""

from collections.abc import Collection, Sequence

from PySide6.QtCore import QPoint, QTimer, Signal
from PySide6.QtGui import QCursor
from PySide6.QtWidgets import QGridLayout

from app import units
from app.gui.plot.legend import Reading, Readout
from app.gui.plot.plot_group import PlotGroup
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.plot.model import Band, Span, panned, zoomed
from app.viewmodels.plot.stored_curves import StoredPanel, value_at

_PANEL_HEIGHT = 12 * GRID


class StoredPanels(PlotGroup):
    """Shows `Panel`s over one stretch of time. One panel is drawn each turn of the event loop; then `drawn` comes.

    `toggled` tells the key of a curve whose name in a legend was clicked, `moved` that another stretch is shown.
    """

    toggled = Signal(str)
    drawn = Signal()
    moved = Signal()

    def __init__(self, theme: Theme, columns: int = 1) -> None:
        super().__init__(theme)
        self._columns = columns
        self._pool: list[TimePanel] = []
        self._panels: tuple[StoredPanel, ...] = ()
        self._bands: tuple[Band, ...] = ()
        self._counts = False
        self._fit = False
        self._hidden: frozenset[str] = frozenset()
        self._whole = (0.0, 1.0)
        self._readout = Readout(theme, self)
        self._next = 0
        self._draw_timer = QTimer(self)
        self._draw_timer.setInterval(0)
        self._draw_timer.timeout.connect(self._draw_next)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(3 * GRID)
        self._grid.setVerticalSpacing(GRID)
        self.setAccessibleName("Plots of stored runs")
        self.zoomed.connect(lambda factor, at: self.show_range(zoomed(self._window, factor, at, self._whole)))
        self.panned.connect(lambda by: self.show_range(panned(self._window, by, self._whole)))

    @property
    def shown(self) -> list[TimePanel]:
        """The plots that show a panel, in order."""
        return self._pool[: len(self._panels)]

    @property
    def readout(self) -> Readout:
        """The values beside the pointer."""
        return self._readout

    @property
    def span(self) -> Span:
        """The stretch of the axis that is shown."""
        return self._window

    @property
    def busy(self) -> bool:
        """Whether some panels are still to be drawn."""
        return self._draw_timer.isActive()

    def show_panels(
        self,
        panels: Sequence[StoredPanel],
        x_range: Span,
        bands: Sequence[Band] = (),
        *,
        whole: Span | None = None,
        columns: int | None = None,
        counts: bool = False,
    ) -> None:
        """Replace what is shown; every curve is shown again. `counted` axes count steps or the like, not seconds.

        The view can be zoomed and moved within `whole`, which is `x_range` unless given.
        """
        self._panels, self._window, self._bands = tuple(panels), x_range, tuple(bands)
        self._whole = whole or x_range
        self._counts, self._fit = counts, False
        self._columns = columns or self._columns
        self._hidden = frozenset()
        for spare in self._pool[len(panels) :]:
            spare.hide()
        self._start()

    def set_columns(self, columns: int) -> None:
        """Lay what is shown out in so many columns."""
        if columns != self._columns:
            self._columns = columns
            self._start()

    def show_range(self, span: Span) -> None:
        """Show another stretch of the axis; a y that is free follows what is in view."""
        self._window, self._fit = span, True
        for plot in self.shown:
            plot.set_x_range(*span, fit=True)
        self.moved.emit()

    def hide_curves(self, keys: Collection[str]) -> None:
        """Show every curve but these, in all panels."""
        self._hidden = frozenset(keys)
        for plot in self.shown:
            plot.hide_curves(self._hidden)

    def _start(self) -> None:
        """Lay everything out, at once so that no panel is drawn in a size of passing, and draw it again."""
        rows = -(-len(self._panels) // self._columns)
        for index in range(max(self._grid.rowCount(), self._grid.columnCount(), rows, self._columns)):
            self._grid.setRowStretch(index, int(index < rows))
            self._grid.setColumnStretch(index, int(index < self._columns))
        for index, plot in enumerate(self.shown):
            self._lay_out(plot, index)
        self._next = 0
        if self._panels:
            self._draw_timer.start()
        else:
            self.drawn.emit()

    def _draw_next(self) -> None:
        if self._next == len(self._pool):
            self._add()
            self._lay_out(self._pool[self._next], self._next)
        self._draw(self._pool[self._next], self._panels[self._next])
        self._next += 1
        if self._next >= len(self._panels):
            self._draw_timer.stop()
            self.drawn.emit()

    def _add(self) -> None:
        plot = self.attach(TimePanel("", "", self._theme))
        plot.plot.scrolls = True
        plot.setMinimumHeight(_PANEL_HEIGHT)
        plot.legend.clicked.connect(self.toggled)
        plot.legend.all_or_none = True
        self._pool.append(plot)

    def _lay_out(self, plot: TimePanel, index: int) -> None:
        """Row by row; where the last row would not be full, the first panel takes the room that is over."""
        in_last_row = len(self._panels) % self._columns
        spare_columns = self._columns - in_last_row if in_last_row else 0
        row, column = divmod(index + (spare_columns if index else 0), self._columns)
        self._grid.removeWidget(plot)
        self._grid.addWidget(plot, row, column, 1, 1 if index else 1 + spare_columns)

    def _draw(self, plot: TimePanel, panel: StoredPanel) -> None:
        plot.clear()
        plot.set_title(panel.title, panel.unit)
        plot.set_counted(self._counts)
        plot.set_x_range(*self._window, fit=self._fit)
        if panel.y_range is None:
            plot.set_auto_y()
        else:
            plot.set_y_range(*panel.y_range)
        plot.set_bands(self._bands)
        for curve in panel.curves:
            plot.set_curve(curve.key, curve.x, curve.y, colour=curve.colour, label=curve.label)
        plot.hide_curves(self._hidden)
        plot.show_time_axis(self._next >= len(self._panels) - self._columns)
        plot.setVisible(True)
        plot.refresh()

    def _show_crosshair(self, position: float | None) -> None:
        """The values stand in the legends, and beside the pointer where a legend has no room for them."""
        self._readout.show_readings((), QPoint())
        for plot, panel in zip(self.shown, self._panels, strict=False):
            plot.set_crosshair(position)
            values = {
                curve.key: "" if position is None else units.number(value_at(curve, position)) for curve in panel.curves
            }
            for key, value in values.items():
                plot.set_value(key, value)
            if position is not None and plot is self._hovered_plot and not plot.legend.shows_values:
                shown = [curve for curve in panel.curves if curve.key in plot.shown_keys()]
                readings = [Reading(curve.colour, curve.label, values[curve.key]) for curve in shown]
                self._readout.show_readings(readings, self.mapFromGlobal(QCursor.pos()))
