"""Time panels of stored runs, one below the other or in two columns."""

from collections.abc import Collection, Sequence

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QGridLayout, QWidget

from app.gui.plots import TimePanel
from app.gui.theme import GRID, Theme
from app.viewmodels.plotted import Band
from app.viewmodels.stored_curves import Panel

_PANEL_HEIGHT = 12 * GRID


class StoredPanels(QWidget):
    """Shows `Panel`s over one stretch of time. One panel is drawn each turn of the event loop."""

    def __init__(self, theme: Theme, columns: int = 1) -> None:
        super().__init__()
        self._theme = theme
        self._columns = columns
        self._pool: list[TimePanel] = []
        self._panels: tuple[Panel, ...] = ()
        self._bands: tuple[Band, ...] = ()
        self._range = (0.0, 1.0)
        self._hidden: frozenset[str] = frozenset()
        self._next = 0
        self._turn = QTimer(self)
        self._turn.setInterval(0)
        self._turn.timeout.connect(self._draw_next)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(3 * GRID)
        self._grid.setVerticalSpacing(GRID)

    @property
    def shown(self) -> list[TimePanel]:
        """The plots that show a panel, in order."""
        return self._pool[: len(self._panels)]

    @property
    def busy(self) -> bool:
        """Whether some panels are still to be drawn."""
        return self._turn.isActive()

    def show_panels(self, panels: Sequence[Panel], x_range: tuple[float, float], bands: Sequence[Band] = ()) -> None:
        """Replace what is shown; every curve is shown again."""
        self._panels, self._range, self._bands = tuple(panels), x_range, tuple(bands)
        self._hidden = frozenset()
        for spare in self._pool[len(panels) :]:
            spare.hide()
        for row in range(self._grid.rowCount()):
            self._grid.setRowStretch(row, 0)
        self._start()

    def hide_curves(self, keys: Collection[str]) -> None:
        """Show every curve but these, in all panels."""
        self._hidden = frozenset(keys)
        self._start()

    def _start(self) -> None:
        self._next = 0
        if self._panels:
            self._turn.start()

    def _draw_next(self) -> None:
        if self._next == len(self._pool):
            self._add()
        self._place(self._pool[self._next])
        self._draw(self._pool[self._next], self._panels[self._next])
        self._next += 1
        if self._next >= len(self._panels):
            self._turn.stop()

    def _add(self) -> None:
        plot = TimePanel("", "", self._theme)
        plot.setMinimumHeight(_PANEL_HEIGHT)
        self._pool.append(plot)

    def _place(self, plot: TimePanel) -> None:
        """Row by row; the first panel takes a whole row where one would be left alone at the end."""
        lone = len(self._panels) % self._columns
        slot = self._next + (self._columns - lone if lone and self._next else 0)
        row, column = divmod(slot, self._columns)
        self._grid.removeWidget(plot)
        self._grid.addWidget(plot, row, column, 1, self._columns if lone and self._next == 0 else 1)
        self._grid.setRowStretch(row, 1)
        self._grid.setColumnStretch(column, 1)

    def _draw(self, plot: TimePanel, panel: Panel) -> None:
        plot.clear()
        plot.set_title(panel.title, panel.unit)
        plot.set_x_range(*self._range)
        if panel.y_range is None:
            plot.set_auto_y()
        else:
            plot.set_y_range(*panel.y_range)
        plot.set_shades(self._bands)
        for curve in panel.curves:
            if curve.key not in self._hidden:
                plot.set_curve(curve.key, curve.x, curve.y, colour=curve.colour, label=curve.label)
        plot.show_time_axis(self._next >= len(self._panels) - self._columns)
        plot.setVisible(True)
        plot.refresh()
