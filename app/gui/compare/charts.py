"""Interactive charts: marks show their runs in a tooltip and open or rerun them."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product

from PySide6.QtCore import QByteArray, QEvent, QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QMenu, QSizePolicy, QToolTip, QWidget

from app.gui.actions import Actions
from app.gui.plot.pictures import add_picture_actions
from app.gui.theme import DARK, GRID, LIGHT, Theme
from app.gui.widgets.basic import clear_layout, make_column, plain_tooltip
from app.report.charts.canvas import Drawing, HitArea
from app.report.charts.draw import MIN_WIDTH, WIDTH, draw_chart
from app.viewmodels.charts.model import Chart
from app.viewmodels.charts.palette import Palette

_MAX_WIDTH = 1600
_MAX_MENU_RUNS = 12
_NEXT_KEYS = (Qt.Key.Key_Right, Qt.Key.Key_Down)
_PREVIOUS_KEYS = (Qt.Key.Key_Left, Qt.Key.Key_Up)


@lru_cache(maxsize=32)
def _drawing(chart: Chart, palette: Palette, width: float) -> Drawing:
    """Draw a chart once per scheme and width: its tab is opened repeatedly, and placing names is slow."""
    return draw_chart(chart, palette, width)


class ChartWidget(QWidget):
    """One chart in the theme's colours, as wide as its space.

    A click on a mark opens its run; if it has several, a menu asks which. Arrows move between marks, Enter opens, the
    menu key shows more.
    """

    def __init__(self, theme: Theme, chart: Chart, actions: Actions, room: int) -> None:
        """Draw a chart for its likely width, in pixels; at another width it is drawn again."""
        super().__init__()
        self._theme = theme
        self._chart = chart
        self._actions = actions
        self._renderer = QSvgRenderer(self)
        self._current: int | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(round(MIN_WIDTH))
        self.setMaximumWidth(_MAX_WIDTH)
        self.resize(room, 0)
        self.setAccessibleName(f"{chart.title}. {chart.caption}")
        theme.changed.connect(self._draw)
        self._draw()

    @property
    def hit_areas(self) -> tuple[HitArea, ...]:
        return self._drawn.hit_areas

    def drawing(self) -> Drawing:
        return self._drawn

    def sizeHint(self) -> QSize:
        return QSize(round(WIDTH), round(self._drawn.height))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != round(self._drawn.width):
            self._draw()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        self._renderer.render(painter, QRectF(0, 0, self._drawn.width, self._drawn.height))
        if self.hasFocus():
            painter.fillRect(0, 0, self.width(), 2, QColor(self._theme.colours.accent))
        hit = self._current_area()
        if hit is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(self._theme.colours.accent), 1.5))
            painter.drawRoundedRect(QRectF(hit.left, hit.top, hit.width, hit.height), 3, 3)
        painter.end()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point_at(self._area_at(event.position()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._point_at(self._area_at(event.position()))
            self._open(event.globalPosition().toPoint())

    def leaveEvent(self, event: object) -> None:
        super().leaveEvent(event)  # type: ignore[arg-type]
        self._point_at(None)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self._point_at(None)

    def event(self, event: QEvent) -> bool:
        """Handle Escape while there is a current mark, before the surrounding widgets do."""
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and event.key() == Qt.Key.Key_Escape
            and self._current is not None
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = 1 if event.key() in _NEXT_KEYS else -1 if event.key() in _PREVIOUS_KEYS else 0
        if step and self.hit_areas:
            previous = -1 if self._current is None and step > 0 else self._current or 0
            self._select((previous + step) % len(self.hit_areas))
        elif event.key() in (Qt.Key.Key_Home, Qt.Key.Key_End) and self.hit_areas:
            self._select(0 if event.key() == Qt.Key.Key_Home else len(self.hit_areas) - 1)
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._current is not None:
            self._open(self._menu_position())
        elif event.key() == Qt.Key.Key_Escape and self._current is not None:
            self._point_at(None)
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
        if by_mouse:
            self._point_at(self._area_at(QPointF(event.pos())))
        menu = self.menu()
        menu.popup(event.globalPos() if by_mouse or self._current is None else self._menu_position())

    def menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        hit = self._current_area()
        if hit is not None:
            self._add_runs(menu, hit.item.runs)
            run = hit.item.runs[-1]
            menu.addAction("Run &again exactly").triggered.connect(lambda: self._actions.run_again(run))
            menu.addSeparator()
        add_picture_actions(menu, self, self.drawing)
        return menu

    def _add_runs(self, menu: QMenu, runs: Sequence[int]) -> None:
        for run in runs[:_MAX_MENU_RUNS]:
            menu.addAction(f"Open run {run}").triggered.connect(lambda _=False, run=run: self._actions.open_run(run))

    def _open(self, position: QPoint) -> None:
        hit = self._current_area()
        if hit is None:
            return
        if len(hit.item.runs) == 1:
            self._actions.open_run(hit.item.runs[0])
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._add_runs(menu, hit.item.runs)
        menu.popup(position)

    def _select(self, number: int) -> None:
        self._point_at(number)
        QToolTip.showText(self._menu_position(), self.toolTip(), self)

    def _point_at(self, number: int | None) -> None:
        if number == self._current:
            return
        self._current = number
        hit = self._current_area()
        text = "" if hit is None else hit.item.tooltip
        self.setToolTip(plain_tooltip(text, wrap=False))
        self.setAccessibleDescription(text)
        self.setCursor(Qt.CursorShape.ArrowCursor if hit is None else Qt.CursorShape.PointingHandCursor)
        self.update()

    def _area_at(self, position: QPointF) -> int | None:
        """Return the mark at a position; of several, the one with the nearest centre."""
        point = position.x(), position.y()
        hits = [n for n, area in enumerate(self.hit_areas) if area.contains(*point)]
        return min(hits, key=lambda n: math.dist(point, self.hit_areas[n].centre), default=None)

    def _current_area(self) -> HitArea | None:
        return None if self._current is None else self.hit_areas[self._current]

    def _menu_position(self) -> QPoint:
        hit = self._current_area()
        assert hit is not None, "called only while there is a current mark"
        return self.mapToGlobal(QPoint(round(hit.centre[0]), round(hit.top + hit.height)))

    def _draw(self) -> None:
        self._drawn = _drawing(self._chart, self._theme.colours, self.width())
        self._renderer.load(QByteArray(self._drawn.svg().encode()))
        self.setFixedHeight(round(self._drawn.height))
        self.update()


class ChartsView(QWidget):
    """A column of charts; hidden without any."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self._actions = actions
        self.widgets: list[ChartWidget] = []
        self.room = 0
        """The width that a chart will have, in pixels, if known in advance."""
        self._column = make_column(parent=self, margins=0, spacing=3 * GRID)
        self.hide()

    def draw_ahead(self, charts: Sequence[Chart]) -> Callable[[], None]:
        """Return a function that draws charts in both schemes, on any thread, so that showing them is fast."""
        width = min(max(self.room or self.width(), round(MIN_WIDTH)), _MAX_WIDTH)
        palettes = sorted((LIGHT, DARK), key=lambda palette: palette != self._theme.colours)

        def draw() -> None:
            for palette, chart in product(palettes, charts):
                _drawing(chart, palette, width)

        return draw

    def show_charts(self, charts: Sequence[Chart]) -> None:
        clear_layout(self._column)
        self.widgets = [ChartWidget(self._theme, chart, self._actions, self.room or self.width()) for chart in charts]
        for widget in self.widgets:
            self._column.addWidget(widget)
        self.setVisible(bool(self.widgets))
