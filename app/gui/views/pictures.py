"""Pictures on a screen: what stands behind each mark is told when pointed at, and opened or run again from there."""

import math
from collections.abc import Sequence

from PySide6.QtCore import QByteArray, QPoint, QPointF, QRectF, QSize, Qt, Signal
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
from PySide6.QtWidgets import QMenu, QSizePolicy, QToolTip, QVBoxLayout, QWidget

from app.gui.ink import ink_of
from app.gui.saving import save_action, save_picture
from app.gui.theme import GRID, Theme
from app.report.markup import escaped
from app.report.pictures.draw import LEAST_WIDTH, WIDTH, draw
from app.report.pictures.drawing import Drawing, Spot
from app.viewmodels.pictures.values import Picture

_MOST_WIDTH = 1600
_MOST_RUNS = 12
_NEXT = (Qt.Key.Key_Right, Qt.Key.Key_Down)
_BEFORE = (Qt.Key.Key_Left, Qt.Key.Key_Up)


class PictureWidget(QWidget):
    """One picture as wide as there is room, in the theme's colours.

    A click on a mark opens its run; where several runs stand behind it a menu asks which. Arrows go from mark to mark,
    Enter opens, the menu key has the rest.
    """

    run_opened = Signal(int)
    run_again_asked = Signal(int)

    def __init__(self, theme: Theme, picture: Picture) -> None:
        super().__init__()
        self._theme = theme
        self._picture = picture
        self._renderer = QSvgRenderer(self)
        self._drawn = draw(picture, ink_of(theme.colours))
        self._current: int | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(round(LEAST_WIDTH))
        self.setMaximumWidth(_MOST_WIDTH)
        self.setAccessibleName(f"{picture.title}. {picture.caption}")
        theme.changed.connect(self._draw)
        self._draw()

    @property
    def spots(self) -> tuple[Spot, ...]:
        """What can be pointed at, where it is now."""
        return self._drawn.spots

    def drawing(self) -> Drawing:
        """The picture as it is drawn now."""
        return self._drawn

    def paper(self) -> str:
        """The colour behind it."""
        return self._theme.colours.surface

    def sizeHint(self) -> QSize:
        """As a report has it."""
        return QSize(round(WIDTH), round(self._drawn.height))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width is another drawing."""
        super().resizeEvent(event)
        if event.size().width() != round(self._drawn.width):
            self._draw()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """The drawing, a frame around the mark pointed at, and a line at the top that says it has the keyboard."""
        painter = QPainter(self)
        self._renderer.render(painter, QRectF(0, 0, self._drawn.width, self._drawn.height))
        if self.hasFocus():
            painter.fillRect(0, 0, self.width(), 2, QColor(self._theme.colours.accent))
        spot = self._spot()
        if spot is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(self._theme.colours.accent), 1.5))
            painter.drawRoundedRect(QRectF(spot.left, spot.top, spot.width, spot.height), 3, 3)
        painter.end()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Tell what is under the pointer."""
        self._point_at(self._under(event.position()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Open what was clicked."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._point_at(self._under(event.position()))
            self._open(event.globalPosition().toPoint())

    def leaveEvent(self, event: object) -> None:
        """Nothing is pointed at."""
        super().leaveEvent(event)  # type: ignore[arg-type]
        self._point_at(None)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Nothing is pointed at, unless a menu of this picture took the keyboard."""
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self._point_at(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows, Home and End choose a mark, Enter opens it, Escape lets go."""
        step = 1 if event.key() in _NEXT else -1 if event.key() in _BEFORE else 0
        if step and self.spots:
            beside = -1 if self._current is None and step > 0 else self._current or 0
            self._choose((beside + step) % len(self.spots))
        elif event.key() in (Qt.Key.Key_Home, Qt.Key.Key_End) and self.spots:
            self._choose(0 if event.key() == Qt.Key.Key_Home else len(self.spots) - 1)
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._current is not None:
            self._open(self._beside_current())
        elif event.key() == Qt.Key.Key_Escape and self._current is not None:
            self._point_at(None)
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """The runs behind the mark, running again, saving."""
        by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
        if by_mouse:
            self._point_at(self._under(QPointF(event.pos())))
        menu = self.menu()
        menu.popup(event.globalPos() if by_mouse or self._current is None else self._beside_current())

    def menu(self) -> QMenu:
        """What can be done with the mark pointed at, and with the picture."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        spot = self._spot()
        if spot is not None:
            self._add_runs(menu, spot.place.runs)
            run = spot.place.runs[-1]
            menu.addAction("Run &again exactly").triggered.connect(lambda: self.run_again_asked.emit(run))
            menu.addSeparator()
        save_action(menu, lambda: save_picture(self, self))
        return menu

    def _add_runs(self, menu: QMenu, runs: Sequence[int]) -> None:
        for run in runs[:_MOST_RUNS]:
            menu.addAction(f"Open run {run}").triggered.connect(lambda _=False, run=run: self.run_opened.emit(run))

    def _open(self, where: QPoint) -> None:
        spot = self._spot()
        if spot is None:
            return
        if len(spot.place.runs) == 1:
            self.run_opened.emit(spot.place.runs[0])
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._add_runs(menu, spot.place.runs)
        menu.popup(where)

    def _choose(self, number: int) -> None:
        self._point_at(number)
        QToolTip.showText(self._beside_current(), self.toolTip(), self)

    def _point_at(self, number: int | None) -> None:
        if number == self._current:
            return
        self._current = number
        spot = self._spot()
        words = "" if spot is None else spot.place.words
        self.setToolTip(f"<p style='white-space: pre'>{escaped(words)}</p>" if words else "")
        self.setAccessibleDescription(words)
        self.setCursor(Qt.CursorShape.ArrowCursor if spot is None else Qt.CursorShape.PointingHandCursor)
        self.update()

    def _under(self, position: QPointF) -> int | None:
        """The mark there; of several the one whose middle is nearest."""
        here = position.x(), position.y()
        found = [n for n, spot in enumerate(self.spots) if spot.holds(*here)]
        return min(found, key=lambda n: math.dist(here, self.spots[n].middle), default=None)

    def _spot(self) -> Spot | None:
        return None if self._current is None else self.spots[self._current]

    def _beside_current(self) -> QPoint:
        spot = self._spot()
        assert spot is not None, "asked only while a mark is chosen"
        return self.mapToGlobal(QPoint(round(spot.middle[0]), round(spot.top + spot.height)))

    def _draw(self) -> None:
        self._drawn = draw(self._picture, ink_of(self._theme.colours), self.width() or WIDTH)
        self._renderer.load(QByteArray(self._drawn.svg().encode()))
        self.setFixedHeight(round(self._drawn.height))
        self.update()


class PicturesView(QWidget):
    """Pictures one below the other; hidden while there is none."""

    run_opened = Signal(int)
    run_again_asked = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._widgets: list[PictureWidget] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 2 * GRID)
        self._column.setSpacing(3 * GRID)
        self.hide()

    @property
    def widgets(self) -> tuple[PictureWidget, ...]:
        """One for each picture, in order."""
        return tuple(self._widgets)

    def show_pictures(self, pictures: Sequence[Picture]) -> None:
        """Replace what is shown."""
        for widget in self._widgets:
            widget.hide()
            widget.deleteLater()
        self._widgets = [PictureWidget(self._theme, picture) for picture in pictures]
        for widget in self._widgets:
            widget.run_opened.connect(self.run_opened)
            widget.run_again_asked.connect(self.run_again_asked)
            self._column.addWidget(widget)
        self.setVisible(bool(self._widgets))
