"""Multi-GPU scaling of the compared runs: efficiency, its explanation, chart and table."""

from collections.abc import Sequence

from PySide6.QtCore import QByteArray
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtSvgWidgets import QSvgWidget
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.gui.plot.pictures import show_picture_menu
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import clear_layout, make_column, make_row, text_label
from app.report.charts.canvas import Drawing
from app.report.scaling import HEIGHT, WIDTH, draw_scaling
from app.viewmodels.compare.scaling import ScalingView, worst_pairs


class ScalingChart(QSvgWidget):
    """The chart of one pair in the theme's colours, as in a report."""

    def __init__(self, theme: Theme, view: ScalingView) -> None:
        super().__init__()
        self._theme = theme
        self._view = view
        self.setFixedSize(WIDTH, HEIGHT)
        self.setAccessibleName(f"{view.title}: {view.efficiency}")
        theme.follow(self, self._draw)
        self._draw()

    def drawing(self) -> Drawing:
        """Return the drawing in the current colours."""
        return draw_scaling(self._view, self._theme.colours)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer to save the chart."""
        show_picture_menu(self, self.drawing, event.globalPos())

    def _draw(self) -> None:
        self.load(QByteArray(self.drawing().svg().encode()))


class ScalingPanel(QWidget):
    """One part for each of the worst pairs of runs that differ in their GPUs alone; hidden where there is none."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._column = make_column(parent=self, margins=(0, 0, 0, 2 * GRID), spacing=3 * GRID)
        self.hide()

    def show_views(self, views: Sequence[ScalingView]) -> None:
        """Show the pairs that lose most; all are in the report."""
        clear_layout(self._column)
        for view in worst_pairs(views):
            self._column.addWidget(_pair(self._theme, view))
        self.setVisible(bool(views))


def _pair(theme: Theme, view: ScalingView) -> QWidget:
    pair = QWidget()
    pair.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    column = make_column(parent=pair, margins=0, spacing=GRID)
    header = make_row(text_label(view.efficiency, "figure"), spacing=GRID)
    header.addWidget(text_label(f"efficiency, speed-up {view.speedup}; {view.interval}", "caption"), 1)
    column.addWidget(text_label(view.title, "heading"))
    column.addLayout(header)
    column.addWidget(text_label(view.cause, "", wrap=True))
    column.addWidget(ScalingChart(theme, view))
    return pair
