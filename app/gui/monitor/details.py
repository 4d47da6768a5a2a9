"""Monitor's chosen device: state, figures and processes at the left, curves at the right."""

import html
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QStackedWidget, QWidget

from app.gui.actions import Actions
from app.gui.plot.panel_stack import PanelStack
from app.gui.plot.time_bar import TimeBar
from app.gui.theme import GRID, LEFT, Theme, tabular_font
from app.gui.widgets.basic import (
    STRETCH,
    ElidedLabel,
    EmptyState,
    button,
    clear_layout,
    make_column,
    make_row,
    plain_tooltip,
    set_role,
    show_text,
    text_label,
)
from app.gui.widgets.panes import Scroller
from app.values import units
from app.values.plain import plain_text
from app.viewmodels.monitor.details import PROCESS_COLUMNS, DeviceDetails
from app.viewmodels.monitor.readings import DeviceMetric
from app.viewmodels.plot.model import MONITOR_RANGES

_COLUMN, _NARROW_COLUMN = 39 * GRID, 33 * GRID
_WIDE, _LINE = 150 * GRID, 22
_PLOT_WIDTH, _PLOT_HEIGHT, _HIGHEST_PLOT = 38 * GRID, 18 * GRID, 28 * GRID
_NO_LIMIT = 2**24 - 1
_MOST_PROCESSES = 12
_ABSENT_REASON = "The system hides this from this user or container"


def figures_html(figures: Sequence[DeviceMetric], columns: int, muted: str, *, is_current: bool) -> str:
    """Return figures with their labels in one or two columns; all in the muted colour if they are not current."""
    lines = max(1, -(-len(figures) // columns))
    style, ink = "padding: 4px 0px", "" if is_current else f"; color:{muted}"
    cells = [
        f'<td style="{style}; color:{muted}">{html.escape(label)}</td>'
        f'<td align="right" style="{style}{ink}">{html.escape(value)}</td>'
        for label, value in figures
    ]
    rows = (f"<tr>{f'<td width={2 * GRID}></td>'.join(cells[line::lines])}</tr>" for line in range(lines))
    return f'<table width="100%" cellspacing="0" cellpadding="0">{"".join(rows)}</table>'


class NoGpuView(QWidget):
    """Why there is no GPU, what a GPU would add, and a link to runs on GPUs."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._reason = text_label("", "heading", wrap=True)
        self._with_gpu = text_label("", "muted", wrap=True)
        self.reference_button = button("Show re&ference runs", "Copies of runs measured on real GPUs, in the history")
        self.reference_button.clicked.connect(actions.show_reference)
        lines = self._reason, self._with_gpu, (self.reference_button, 0, LEFT)
        make_column(*lines, parent=self, margins=(0, 2 * GRID, 0, 0), spacing=GRID)

    def show_reason(self, reason: str, with_gpu: str) -> None:
        """Show the reason; hidden without one."""
        self._reason.setText(reason)
        self._with_gpu.setText(with_gpu)
        self.setVisible(bool(reason))


class DetailsView(QWidget):
    """Shows `DeviceDetails`; `connect_requested` carries the name of a host with nothing to draw."""

    connect_requested = Signal(str)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._theme = theme
        self._title = text_label("", "heading", wrap=True)
        self._subtitle = text_label("", "caption", wrap=True, selectable=True)
        self._state = text_label("", "", wrap=True)
        self.figures = QLabel(wordWrap=True)
        self.figures.setTextFormat(Qt.TextFormat.RichText)
        self.figures.setFont(tabular_font())
        self.figures.setAccessibleName("Figures")
        self._processes = QWidget()
        self._process_grid = QGridLayout(self._processes)
        self._shown_processes: tuple[tuple[str, ...], ...] = ()
        self._processes_note = text_label("", "muted", wrap=True)
        self._not_reported = text_label("", "caption", wrap=True)
        self.no_gpu = NoGpuView(actions)
        self.stack = PanelStack(theme)
        self.time_bar = TimeBar(self.stack, MONITOR_RANGES)
        self.connect_button = button("", "Connect to this host (Enter in the table)", primary=True)
        self._absence = EmptyState("", "", self.connect_button)
        self._curves = QStackedWidget()
        self._words, left = Scroller(horizontal=False), QWidget()
        processes = GRID // 2, self._processes, self._processes_note, GRID // 2
        parts = self._title, self._subtitle, self._state, *processes, self.figures, self._not_reported, self.no_gpu
        self._column = make_column(*parts, STRETCH, parent=left, margins=(0, 0, GRID, 0), spacing=GRID // 2)
        self._words.setWidget(left)
        self._details: DeviceDetails | None = None
        self._build()

    @property
    def wanted_height(self) -> int:
        parts = max(self._column.sizeHint().height(), self.stack.maximumHeight())
        return parts + self.time_bar.sizeHint().height() + 3 * GRID

    def show_details(self, details: DeviceDetails) -> None:
        self._details = details
        show_text(self._title, details.title)
        show_text(self._subtitle, details.subtitle)
        state = details.state
        show_text(self._state, state.reason or f"{state.symbol} {state.text}".strip())
        set_role(self._state, state.tone if state.tone in ("good", "warning", "bad") else "muted")
        self._show_figures(details)
        self._show_processes(details.processes)
        show_text(self._processes_note, details.processes_note)
        show_text(self._not_reported, details.not_reported)
        self.no_gpu.show_reason(*details.no_gpu)
        # Show the curves, or why there are none and how to get some.
        absence = details.absence
        if absence is not None:
            self._absence.set_text(absence.title, absence.text)
            self.connect_button.setText(absence.action)
            self.connect_button.setVisible(bool(absence.action))
        self._curves.setCurrentIndex(int(absence is not None))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arrange the figures in as many columns as fit, before the next reading."""
        super().resizeEvent(event)
        if self._details is not None:
            self._show_figures(self._details)

    def _show_figures(self, details: DeviceDetails) -> None:
        # A single column of figures may be higher than a screen that has room for two.
        columns = 2 if (self.width() >= _WIDE and (len(details.metrics) + 8) * _LINE > self.height()) else 1
        self._words.setFixedWidth(_COLUMN if columns == 1 else 2 * _NARROW_COLUMN + 2 * GRID)
        muted = self._theme.colours.muted
        self.figures.setText(plain_text(figures_html(details.metrics, columns, muted, is_current=details.is_current)))

    def _connect(self) -> None:
        if self._details is not None and self._details.absence is not None:
            self.connect_requested.emit(self._details.absence.host)

    def show_plots(self, details: DeviceDetails) -> None:
        self._details = details
        width = self.width() - self._words.width()
        count = len(details.plots.panels)
        columns = max(1, min(width // _PLOT_WIDTH, 2 if count <= 4 else 3, count))
        lines, highest = -(-count // columns), max(_HIGHEST_PLOT, width // columns // 3)
        self.stack.setMinimumHeight(lines * _PLOT_HEIGHT)
        self.stack.setMaximumHeight(_NO_LIMIT if self.stack.maximised else lines * highest)
        self.stack.show_plots(replace(details.plots, columns=columns))

    def _show_processes(self, rows: tuple[tuple[str, ...], ...]) -> None:
        if rows == self._shown_processes:
            return
        self._shown_processes = rows
        clear_layout(self._process_grid)
        self._processes.setVisible(bool(rows))
        widths = [1, 1]
        for line, row in enumerate((PROCESS_COLUMNS, *rows[:_MOST_PROCESSES]) if rows else ()):
            for column, text in enumerate(row):
                label: QLabel = ElidedLabel("caption" if not line else "", Qt.AlignmentFlag.AlignLeft)
                if column >= len(PROCESS_COLUMNS) - 2:
                    label = text_label(text, "caption" if not line else "")
                    label.setFont(tabular_font())
                label.setText(text)
                label.setToolTip(plain_tooltip(_ABSENT_REASON if text == units.ABSENT else text))
                side = Qt.AlignmentFlag.AlignRight if column >= len(PROCESS_COLUMNS) - 2 else Qt.AlignmentFlag(0)
                self._process_grid.addWidget(label, line, column, side)
                if column < len(widths):
                    widths[column] = max(widths[column], label.fontMetrics().horizontalAdvance(text))
        for column, width in enumerate(widths):  # names and users share the space according to their needs
            self._process_grid.setColumnStretch(column, width)
        if (more := len(rows) - _MOST_PROCESSES) > 0:
            self._process_grid.addWidget(text_label(f"and {more} more", "muted"), _MOST_PROCESSES + 1, 0)

    def _build(self) -> None:
        self._process_grid.setContentsMargins(0, 0, 0, 0)
        self._process_grid.setVerticalSpacing(2)
        self._process_grid.setHorizontalSpacing(GRID)
        self._processes.setAccessibleName("Processes")
        self._processes.hide()
        self.no_gpu.hide()
        self._words.setFixedWidth(_COLUMN)
        row = make_row(self._words, (self._curves, 1), spacing=2 * GRID)
        make_column(self.time_bar, (row, 1), parent=self, margins=(2 * GRID, GRID, 2 * GRID, GRID), spacing=GRID)
        self._curves.addWidget(Scroller(self.stack))
        self._curves.addWidget(self._absence)
        self.connect_button.clicked.connect(self._connect)
