"""One tab for each run that goes on at the same time, above what is shown of the one chosen."""

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QPainter, QPixmap, QResizeEvent
from PySide6.QtWidgets import QTabBar

from app.gui.legend import SWATCH, paint_swatch
from app.gui.theme import GRID, Theme, figures
from app.viewmodels.beside import RunTab


class RunTabs(QTabBar):
    """Seen where there is something to choose; every run has the colour of its GPU's curves.

    `chosen` tells the number of the run that the user turns to.
    """

    chosen = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._shown: tuple[RunTab, ...] = ()
        self.setProperty("role", "runs")
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setElideMode(Qt.TextElideMode.ElideRight)
        self.setIconSize(QSize(SWATCH, GRID))
        self.setFont(figures())
        self.setAccessibleName("Runs at the same time")
        self.currentChanged.connect(lambda index: self.chosen.emit(self.tabData(index)))
        theme.changed.connect(self._colour)
        self.hide()

    def show_runs(self, runs: Sequence[RunTab], shown: int | None) -> None:
        """Show these runs, `shown` being the number of the chosen one."""
        with QSignalBlocker(self):
            if self._shown != tuple(runs):
                self._show(tuple(runs))
            numbers = [run.run for run in runs]
            if shown in numbers:
                self.setCurrentIndex(numbers.index(shown))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """More room says more."""
        super().resizeEvent(event)
        self._name()

    def _show(self, runs: tuple[RunTab, ...]) -> None:
        self._shown = runs
        while self.count() > len(runs):
            self.removeTab(self.count() - 1)
        while self.count() < len(runs):
            self.addTab("")
        for index, run in enumerate(runs):
            self.setTabToolTip(index, run.help)
            self.setTabData(index, run.run)
        self._colour()
        self._name()
        self.setVisible(bool(runs))

    def _name(self) -> None:
        """Name all in the longest way that fits."""
        for words in zip(*(run.words for run in self._shown), strict=True):
            for index, text in enumerate(words):
                self.setTabText(index, text)
            if sum(self.tabSizeHint(index).width() for index in range(self.count())) <= self.width():
                return

    def _colour(self) -> None:
        for index, run in enumerate(self._shown):
            self.setTabIcon(index, QIcon(self._swatch(run.colour)))

    def _swatch(self, look: int) -> QPixmap:
        drawn = QPixmap(self.iconSize())
        drawn.fill(Qt.GlobalColor.transparent)
        painter = QPainter(drawn)
        paint_swatch(painter, 0, drawn.height() // 2, self._theme.curve_colour(look), look)
        painter.end()
        return drawn
