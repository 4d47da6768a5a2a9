"""The bar above plots: named ranges of time, values at the crosshair, and controls for plots of a live run."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShortcut
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import GRID, tabular_font
from app.gui.widgets.basic import ElidedLabel, button, make_row, show_text, text_label, toggle_button
from app.viewmodels.plot.model import LIVE_RANGES, TIME_RANGES

if TYPE_CHECKING:
    from app.viewmodels.monitor.model import MonitorModel
    from app.viewmodels.run.live import LiveModel

_ZOOM_HINT = "Ctrl+wheel zooms, dragging pans; or click the plots and use +, −, Shift and the arrows"


class TimeBar(QWidget):
    """Offers named ranges of time for a stack of plots. Its keys act while the plots are focused.

    `range_requested` carries the name of a range; the other signal, and the buttons, are only for live plots.

    Args:
        plots: The stack of plots.
        names: The names of the ranges, of `TIME_RANGES`.

    Thread: GUI only.
    """

    range_requested = Signal(str)
    pause_requested = Signal()

    def __init__(self, plots: PanelStack, names: Iterable[str] = LIVE_RANGES) -> None:
        super().__init__()
        self.range_buttons = {
            name: toggle_button(name.capitalize(), f"{TIME_RANGES[name].help} ({number}). {_ZOOM_HINT}.")
            for number, name in enumerate(names, 1)
        }
        self._pause = button("Pause", "Freeze the view; data keep arriving (Space)", small=True)
        self.follow_button = button("Follow", "Follow new data again (F or End)", small=True)
        self.per_gpu_button = toggle_button(
            "A panel for each GPU", "One panel per quantity with all GPUs in it, or one for each (G)"
        )
        self._restore = button("All plots", "Show all plots again (Escape)", small=True)
        self.chip = text_label("", "chip")
        self.reading = ElidedLabel("muted")
        self.reading.setFont(tabular_font())
        self._plots = plots
        self._connect(plots)
        self._build()

    def _follow_plots(self) -> None:
        """Show the crosshair's time, and for plots with named ranges these, unless all are equal."""
        plots = self._plots
        at, spans = plots.crosshair, set(plots.offered.ranges.values())
        self.reading.setText("" if at is None else plots.offered.describe_time(at, plots.span))
        if spans:
            self._mark_range(plots.shown_range)
            for range_button in self.range_buttons.values():
                range_button.setVisible(len(spans) > 1)

    def _mark_range(self, name: str) -> None:
        for range_name, range_button in self.range_buttons.items():
            range_button.setChecked(range_name == name)

    def _show_range(self, name: str) -> None:
        if (span := self._plots.offered.ranges.get(name)) is not None:
            self._plots.show_range(span)

    def show_view(self, window: str, pause_label: str, *, growing: bool = True) -> None:
        """Show the visible range of growing data, and whether the view follows it (no `pause_label`)."""
        self._mark_range("" if pause_label else window)
        show_text(self.chip, pause_label)
        self._pause.setVisible(growing and not pause_label)
        self.follow_button.setVisible(bool(pause_label))

    def control(self, model: "LiveModel | MonitorModel", refresh: Callable[[], None]) -> None:
        """Let bar and plots choose a model's time range; `refresh` is called after each change."""

        def show(change: Callable[[], None]) -> None:
            change()
            refresh()

        self.range_requested.connect(lambda name: show(lambda: model.follow(name)))
        self.pause_requested.connect(lambda: show(model.toggle_pause))
        self.follow_button.clicked.connect(lambda: show(model.follow))
        self._plots.range_requested.connect(lambda start, end: show(lambda: model.hold(start, end)))

    def _connect(self, plots: PanelStack) -> None:
        for name, range_button in self.range_buttons.items():
            range_button.clicked.connect(lambda _=False, name=name: self.range_requested.emit(name))
        self._restore.clicked.connect(lambda: plots.maximise(None))
        plots.changed.connect(lambda: self._restore.setVisible(plots.maximised))
        plots.changed.connect(self._follow_plots)
        plots.crosshair_moved.connect(self._follow_plots)
        self.range_requested.connect(self._show_range)
        self._pause.clicked.connect(self._request_pause)
        acts = {
            "Space": self._request_pause,
            "F": self.follow_button.click,
            "End": self.follow_button.click,
            "G": self.per_gpu_button.click,
            **{f"{number}": range_button.click for number, range_button in enumerate(self.range_buttons.values(), 1)},
        }
        for keys, act in acts.items():
            QShortcut(keys, plots, context=Qt.ShortcutContext.WidgetShortcut).activated.connect(act)

    def _request_pause(self) -> None:
        """Request a pause; after a run there is nothing to pause, only a zoomed range to leave."""
        if self._pause.isVisible() or self.follow_button.isVisible():
            self.pause_requested.emit()

    def _build(self) -> None:
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        buttons = *self.range_buttons.values(), self._pause, self.follow_button, self._restore
        parts = self.chip, (self.reading, 1), 2 * GRID, self.per_gpu_button
        make_row(*buttons, *parts, parent=self, margins=0, spacing=GRID // 2)
        for widget in (self._pause, self.follow_button, self._restore, self.chip, self.per_gpu_button):
            widget.setVisible(False)
