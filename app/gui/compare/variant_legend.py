"""The variants whose curves are drawn, once for all panels: colour, letter and name, each a switch."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QPainter, QPixmap, QResizeEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from app.gui.plot.legend import MARK_PX, paint_mark, paint_swatch, swatch_width
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import clear_layout, plain_tooltip, toggle_button
from app.gui.widgets.flow_layout import FlowLayout
from app.gui.widgets.panes import Scroller
from app.viewmodels.compare.curves import CurveGroup

_MAX_LINES = 3
_ICON = QSize(28, MARK_PX)


@dataclass(frozen=True, slots=True)
class _Entry:
    group: CurveGroup
    button: QPushButton


class VariantLegend(Scroller):
    """A button per variant, in lines; `toggled` has the runs of the one that is to be hidden or shown."""

    toggled = Signal(object)

    def __init__(self, theme: Theme) -> None:
        inside = QWidget()
        super().__init__(inside, horizontal=False)
        self._theme = theme
        self._entries: list[_Entry] = []
        self._flow = FlowLayout(inside, GRID // 2, GRID // 2)
        self.setFrameShape(Scroller.Shape.NoFrame)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Variants whose curves are drawn")
        theme.follow(self, self._paint_icons)
        self.hide()

    def buttons(self) -> list[QPushButton]:
        """Return the buttons, in the order of the variants."""
        return [entry.button for entry in self._entries]

    def show_groups(self, groups: Sequence[CurveGroup]) -> None:
        """Show these variants; a single one needs no legend."""
        if [entry.group for entry in self._entries] == list(groups):
            return
        clear_layout(self._flow)
        self._entries = [_Entry(group, toggle_button(_text(group))) for group in groups]
        for group, made in ((entry.group, entry.button) for entry in self._entries):
            made.setIconSize(_ICON)
            made.setToolTip(plain_tooltip(f"Hide or show {group.name}"))
            made.clicked.connect(lambda _=False, runs=group.runs: self.toggled.emit(runs))
            self._flow.addWidget(made)
        self._paint_icons()
        self.setVisible(len(groups) > 1)
        self._fit_height()

    def show_hidden(self, runs: Collection[int]) -> None:
        """Mark the variants of which some run is drawn."""
        for entry in self._entries:
            entry.button.setChecked(not set(entry.group.runs) <= set(runs))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Take as many lines as the variants need, up to three."""
        super().resizeEvent(event)
        self._fit_height()

    def _fit_height(self) -> None:
        line = max((button.sizeHint().height() for button in self.buttons()), default=0) + GRID // 2
        self.setFixedHeight(min(self._flow.heightForWidth(self.viewport().width()) + 2, _MAX_LINES * line))

    def _paint_icons(self) -> None:
        for entry in self._entries:
            entry.button.setIcon(QIcon(self._icon(entry.group)))

    def _icon(self, group: CurveGroup) -> QPixmap:
        ratio = self.devicePixelRatioF()
        drawn = QPixmap(_ICON * ratio)
        drawn.setDevicePixelRatio(ratio)
        drawn.fill(Qt.GlobalColor.transparent)
        painter = QPainter(drawn)
        colour, middle = self._theme.curve_colour(group.style), MARK_PX // 2
        paint_swatch(painter, (_ICON.width() - swatch_width(group.style)) // 2, middle, colour, group.style)
        paint_mark(painter, QPointF(_ICON.width() / 2, MARK_PX / 2), colour, group.mark, self._theme)
        painter.end()
        return drawn


def _text(group: CurveGroup) -> str:
    name = group.name.replace("&", "&&")
    return name if len(group.runs) == 1 else f"{name} × {len(group.runs)}"
