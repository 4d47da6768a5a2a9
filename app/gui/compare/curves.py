"""Curves of the compared runs under one crosshair: laid over each other, or side by side."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QIcon, QPainter, QPixmap, QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QCheckBox, QComboBox, QPushButton, QSizePolicy, QWidget

from app.gui.plot.legend import MARK_PX, paint_swatch, swatch_width
from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.time_bar import TimeBar
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    clear_layout,
    make_column,
    make_row,
    painted_pixmap,
    plain_tooltip,
    show_text,
    text_label,
    toggle_button,
)
from app.gui.widgets.panes import FlowBar, FlowLayout, Scroller
from app.viewmodels.compare.curves import ALIGNMENTS, CompareCurves, CurveGroup, small_multiples
from app.viewmodels.plot.model import RUN_RANGES, Plots, Span

_MAX_LINES = 3
_ICON = QSize(28, MARK_PX)


@dataclass(frozen=True, slots=True)
class _Entry:
    group: CurveGroup
    button: QPushButton


class VariantLegend(Scroller):
    """A button per variant, in lines; `toggled` carries the runs of a variant to hide or show."""

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
        theme.changed.connect(self._paint_icons)
        self.hide()

    def buttons(self) -> list[QPushButton]:
        return [entry.button for entry in self._entries]

    def show_groups(self, groups: Sequence[CurveGroup]) -> None:
        if [entry.group for entry in self._entries] == list(groups):
            return
        clear_layout(self._flow)
        self._entries = [_Entry(group, toggle_button(_text(group))) for group in groups]
        for group, entry_button in ((entry.group, entry.button) for entry in self._entries):
            entry_button.setIconSize(_ICON)
            entry_button.setToolTip(plain_tooltip(f"Hide or show {group.name}"))
            entry_button.clicked.connect(lambda _=False, runs=group.runs: self.toggled.emit(runs))
            self._flow.addWidget(entry_button)
        self._paint_icons()
        self.setVisible(len(groups) > 1)
        self._fit_height()

    def show_hidden(self, runs: Collection[int]) -> None:
        for entry in self._entries:
            entry.button.setChecked(not set(entry.group.runs) <= set(runs))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_height()

    def _fit_height(self) -> None:
        line = max((button.sizeHint().height() for button in self.buttons()), default=0) + GRID // 2
        self.setFixedHeight(min(self._flow.heightForWidth(self.viewport().width()) + 2, _MAX_LINES * line))

    def _paint_icons(self) -> None:
        for entry in self._entries:
            entry.button.setIcon(QIcon(self._icon(entry.group)))

    def _icon(self, group: CurveGroup) -> QPixmap:
        colour, left = self._theme.curve_colour(group.style), (_ICON.width() - swatch_width(group.style)) // 2

        def paint(painter: QPainter) -> None:
            paint_swatch(painter, left, MARK_PX // 2, colour, group.style, group.mark, self._theme)

        return painted_pixmap(_ICON, paint, self.devicePixelRatioF())


def _text(group: CurveGroup) -> str:
    name = group.name.replace("&", "&&")
    return name if len(group.runs) == 1 else f"{name} × {len(group.runs)}"


_HELP = {
    "time": "Seconds since the start of the measured part",
    "steps": "Steps since the start of the measured part",
    "examples": "Examples since the start of the measured part",
}
_COLUMN_WIDTH = 50 * GRID
_MEANS = (
    "Mean of a variant's runs; band: from the lowest to the highest run. Runs are aligned by {align} from the start of "
    "the measured part; a mean ends with its shortest run."
)


class CurvesView(QWidget):
    """Shows `CompareCurves`; `toggled` carries the runs whose legend entry was clicked."""

    alignment_requested = Signal(str)
    toggled = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._curves = CompareCurves()
        self._runs: tuple[int, ...] = ()
        self._hidden: frozenset[int] = frozenset()
        self._drawn_of_all = ""
        self.is_waiting = False
        """Whether other runs' curves are still awaited."""
        self.panels = PanelStack(theme, staggered=True)
        self.align_choice = QComboBox()
        self._laid_over = toggle_button("Laid over", "The curves of all runs in one panel for each quantity")
        self.side_by_side_button = toggle_button(
            "Side by side", "A row of small panels for each run, all on the same scales"
        )
        self.means_box = QCheckBox("&Mean per variant")
        self.extent = text_label("", "caption", wrap=True)
        self.legend = VariantLegend(theme)
        self.time_bar = TimeBar(self.panels, RUN_RANGES)
        self._connect()
        self._build()

    def clear(self) -> None:
        """Show no curves while those of other runs are read."""
        self.show_curves(CompareCurves(align=self._curves.align), (), frozenset(), "")
        self.is_waiting = True

    def show_curves(self, curves: CompareCurves, runs: tuple[int, ...], hidden: frozenset[int], extent: str) -> None:
        """Show the measured part of the curves; `extent` is the number of runs shown, unless all are."""
        self._curves, self._runs, self._hidden, self._drawn_of_all = curves, runs, hidden, extent
        self.is_waiting = False
        self.align_choice.setCurrentIndex(ALIGNMENTS.index(curves.align))
        self.legend.show_groups(curves.groups)
        self._show(curves.measured)

    def hide_runs(self, hidden: frozenset[int]) -> None:
        self._hidden = hidden
        if self.side_by_side_button.isChecked():
            self._show(self.panels.span)
        else:
            self._hide_curves()

    def _show(self, span: Span) -> None:
        curves, per_run = self._curves, self.side_by_side_button.isChecked()
        visible = [run for run in self._runs if run not in self._hidden]
        panels = curves.means if self._shows_means else curves.panels
        if per_run:
            panels = tuple(
                replace(panel, curves=tuple(replace(curve, label=curve.key) for curve in panel.curves))
                for panel in small_multiples(curves.panels, visible, span)
            )
        self.means_box.setVisible(bool(curves.means) and not per_run)
        means = _MEANS.format(align=curves.align) if self._shows_means else ""
        show_text(self.extent, " ".join(filter(None, (self._drawn_of_all, means))))
        self.panels.show_plots(
            Plots(
                panels=panels,
                window=span,
                bands=curves.bands,
                measured=curves.measured,
                extent=curves.full_range,
                columns=len(curves.panels) if per_run else self._columns(),
                counts="" if curves.align == "time" else curves.align,
            )
        )
        self._hide_curves()

    @property
    def _shows_means(self) -> bool:
        return self.means_box.isChecked() and bool(self._curves.means) and not self.side_by_side_button.isChecked()

    def _hide_curves(self) -> None:
        """Hide the curves of hidden runs; a mean disappears with the last of its runs."""
        self.legend.show_hidden(self._hidden)
        hidden = [run for run in self._runs if run in self._hidden]
        if self._shows_means:
            hidden = [group.runs[0] for group in self._curves.groups if set(group.runs) <= self._hidden]
        self.panels.hide_curves([str(run) for run in hidden])

    def _toggle_curve(self, key: str) -> None:
        run = int(key)
        groups = (group.runs for group in self._curves.groups if self._shows_means and group.runs[0] == run)
        self.toggled.emit(next(groups, (run,)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._curves.panels and not self.side_by_side_button.isChecked():
            self.panels.set_columns(self._columns())

    def _rescale(self) -> None:
        if self.side_by_side_button.isChecked():
            self._show(self.panels.span)

    def _columns(self) -> int:
        return max(1, min(self.width() // _COLUMN_WIDTH, len(self._curves.panels)))

    def _connect(self) -> None:
        self.align_choice.activated.connect(lambda number: self.alignment_requested.emit(ALIGNMENTS[number]))
        for switch in (self.side_by_side_button, self.means_box):
            switch.toggled.connect(lambda _: self._show(self.panels.span))
        self.legend.toggled.connect(self.toggled)
        self.time_bar.range_requested.connect(self._rescale)
        self.panels.curve_clicked.connect(self._toggle_curve)

    def _build(self) -> None:
        group = QButtonGroup(self)
        switches = FlowBar(GRID // 2, 0)
        for switch in (self._laid_over, self.side_by_side_button):
            group.addButton(switch)
            switches.flow.addWidget(switch)
        self._laid_over.setChecked(True)
        self.means_box.setToolTip(plain_tooltip("A curve per variant, shaded from its lowest to its highest run"))
        self.align_choice.setAccessibleName("Along")
        for name in ALIGNMENTS:
            self.align_choice.addItem(f"Along {name}")
            self.align_choice.setItemData(self.align_choice.count() - 1, _HELP[name], Qt.ItemDataRole.ToolTipRole)
        switches.flow.addWidget(self.align_choice)
        parts = switches, GRID, (self.time_bar, 1), self.means_box
        bar = make_row(*parts, margins=(2 * GRID, GRID, 2 * GRID, 0), spacing=GRID // 2)
        inside = QWidget()
        make_column(self.panels, parent=inside, margins=(2 * GRID, GRID, 2 * GRID, GRID))
        head = make_column(self.legend, self.extent, margins=(2 * GRID, GRID // 2, 2 * GRID, 0), spacing=GRID // 2)
        make_column(bar, head, (Scroller(inside), 1), parent=self, margins=0, spacing=0)
