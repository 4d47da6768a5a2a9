"""The lower half of the Compare screen: curves, and a tab for each picture that has something to say."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from app.gui.theme import GRID, Theme
from app.gui.views.compare_curves import CurvesView
from app.gui.views.parts import rule
from app.gui.views.pictures import PicturesView
from app.gui.views.scaling import ScalingPanel
from app.viewmodels.pictures.gallery import Gallery
from app.viewmodels.scaling import ScalingView

_CURVES, _GPUS = "curves", "gpus"
_TITLES = {
    _CURVES: "Curves",
    "speed-up": "Speed-up",
    "energy-ratio": "Energy",
    "batch": "Batch size",
    "frontier": "Speed and energy",
    _GPUS: "Scaling",
    "roofline": "Roofline",
}


class CompareParts(QWidget):
    """A picture is drawn when its tab is opened. How steps scale, and why not better, stands under its picture."""

    open_asked = Signal(int)
    again_asked = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.curves = CurvesView(theme)
        self.pictures = PicturesView(theme)
        self._gallery = Gallery()
        self._views: tuple[ScalingView, ...] = ()
        self._scaling = ScalingPanel(theme)
        self._tabs = QTabBar()
        self._stack = QStackedWidget()
        self.pictures.run_opened.connect(self.open_asked)
        self.pictures.run_again_asked.connect(self.again_asked)
        self._tabs.currentChanged.connect(self._show_tab)
        self._build()

    @property
    def titles(self) -> list[str]:
        """The words on the tabs."""
        return [self._tabs.tabText(n) for n in range(self._tabs.count())]

    def open_tab(self, title: str) -> None:
        """Turn to a tab."""
        self._tabs.setCurrentIndex(self.titles.index(title))

    def show_gallery(self, gallery: Gallery, scaling: Sequence[ScalingView]) -> None:
        """Offer these pictures; the tab that was open stays open if it is still there."""
        self._gallery, self._views = gallery, tuple(scaling)
        before = self._tabs.tabData(self._tabs.currentIndex())
        keys = [_CURVES, *(picture.key for picture in gallery.pictures)]
        self._tabs.blockSignals(True)
        while self._tabs.count():
            self._tabs.removeTab(0)
        for key in keys:
            self._tabs.setTabData(self._tabs.addTab(_TITLES[key]), key)
        self._tabs.setCurrentIndex(keys.index(before) if before in keys else 0)
        self._tabs.blockSignals(False)
        self._show_tab()

    def _show_tab(self) -> None:
        key = self._tabs.tabData(self._tabs.currentIndex())
        self.pictures.show_pictures([picture for picture in self._gallery.pictures if picture.key == key])
        self._scaling.show_views(self._views if key == _GPUS else ())
        self._stack.setCurrentIndex(0 if key == _CURVES else 1)

    def _build(self) -> None:
        self._tabs.setDrawBase(False)
        self._tabs.setExpanding(False)
        self._tabs.setAccessibleName("Curves and pictures")
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        column.addWidget(self.pictures)
        column.addWidget(self._scaling)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setWidget(inside)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._stack.addWidget(self.curves)
        self._stack.addWidget(scroll)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._tabs)
        layout.addWidget(rule())
        layout.addWidget(self._stack, 1)
