"""The Monitor screen: a row per device with its figures, processes and recent telemetry; with its controller."""

import time

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app.gui.actions import Actions
from app.gui.hosts.hosts_panel import HostsPanel
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.threads import WindowEvent
from app.gui.widgets.basic import EmptyState, button, clear_layout, separator, set_role, show_text, text_label
from app.viewmodels.monitor import DeviceMetric, MonitoredDevice, MonitorModel, MonitorState
from app.viewmodels.plot.telemetry_buffer import TelemetryBuffer

_ONE_COLUMN, _TWO_COLUMNS = 34 * GRID, 60 * GRID
_FIGURES_PER_COLUMN = 7
_PLOT_HEIGHT = 20 * GRID
_SINGLE_DEVICE_FIGURE_PX = 20
_HEADER_HEIGHT, _LINE_HEIGHT = 7 * GRID, 18


class DeviceRowView(QWidget):
    """One device: figures at the left, its last minute at the right. Nothing is done while it is out of sight.

    One that is `alone` has the whole page: large figures, and plots below each other.
    """

    def __init__(self, row: MonitoredDevice, theme: Theme, *, alone: bool) -> None:
        super().__init__()
        self._label = text_label(row.label, "heading")
        self._name = text_label(row.name, "muted", wrap=True)
        self._problem = text_label("", "problem", wrap=True)
        self._processes = text_label("", "muted", wrap=True)
        self._unavailable = text_label("", "caption", wrap=True)
        self._grid = QGridLayout()
        self._left = QWidget()
        self._values: dict[str, QLabel] = {}
        self._plots = {panel.key: TimePanel(panel.title, panel.unit, theme) for panel in row.panels}
        self._alone = alone
        self._text_column = QVBoxLayout(self._left)
        self._build()
        self._fill(row.metrics)

    def displayed_text(self) -> str:
        """Return everything shown but plots, as one text."""
        labels = (self._label, self._name, self._problem, self._processes, self._unavailable)
        values = (f"{name} {label.text()}" for name, label in self._values.items())
        return "\n".join(text for text in (*(label.text() for label in labels), *values) if text)

    def plot(self, key: str) -> TimePanel:
        """Return one of its plots."""
        return self._plots[key]

    def add_below(self, widget: QWidget) -> None:
        """Place something below the words."""
        self._text_column.insertWidget(self._text_column.count() - 1, widget)

    def show_row(self, row: MonitoredDevice, origin_s: float, window_s: tuple[float, float]) -> None:
        """Show the figures now.

        Args:
            row: The device.
            origin_s: The zero of the axis on the clock of the curves.
            window_s: The range of the axis.
        """
        if [figure.label for figure in row.metrics] != list(self._values):
            self._fill(row.metrics)
        is_current = not (row.lost or row.stale)
        for figure in row.metrics:
            self._values[figure.label].setText(figure.value)
            set_role(self._values[figure.label], "" if is_current else "muted")
        set_role(self._problem, "problem" if row.lost else "warning")
        for label, text in (
            (self._problem, row.lost or row.stale),
            (self._processes, row.processes),
            (self._unavailable, row.not_reported),
        ):
            show_text(label, text)
        for panel in row.panels:
            plot, curve = self._plots[panel.key], panel.curves[0]
            plot.set_title(panel.title, panel.unit)
            if panel.y_range is not None:
                plot.values.fix(*panel.y_range)
            plot.set_x_range(*window_s)
            plot.set_source(curve.key, curve.shifted(origin_s), colour=curve.colour, label=curve.label)
            plot.refresh()

    def _build(self) -> None:
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 2 * GRID, 0, 2 * GRID)
        layout.setSpacing(3 * GRID)
        column = self._text_column
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GRID // 2)
        for widget in (self._label, self._name, self._problem):
            column.addWidget(widget)
        column.addSpacing(GRID // 2)
        column.addLayout(self._grid)
        column.addSpacing(GRID // 2)
        column.addWidget(self._processes)
        column.addWidget(self._unavailable)
        column.addStretch(1)
        self._grid.setVerticalSpacing(2)
        self._grid.setHorizontalSpacing(GRID)
        self._processes.setFont(tabular_font())
        self._processes.setAccessibleName("Processes")
        layout.addWidget(self._left)
        plots = QVBoxLayout() if self._alone else QHBoxLayout()
        plots.setSpacing(3 * GRID)
        for plot in self._plots.values():
            if self._alone:
                plot.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
                plots.addWidget(plot, 1)
            else:
                plots.addWidget(plot, 1, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(plots, 1)

    def _fill(self, shown: tuple[DeviceMetric, ...]) -> None:
        """Lay the figures out anew: in one column, or in two where there are many."""
        clear_layout(self._grid)
        self._values = {}
        two = len(shown) > _FIGURES_PER_COLUMN
        lines = -(-len(shown) // 2) if two else len(shown)
        self._left.setFixedWidth(_TWO_COLUMNS if two else _ONE_COLUMN)
        for plot in self._plots.values():
            min_height = max(_PLOT_HEIGHT, _HEADER_HEIGHT + lines * _LINE_HEIGHT)
            if self._alone:
                plot.setMinimumHeight(min_height)
            else:
                plot.setFixedHeight(min_height)
        for index, figure in enumerate(shown):
            column, line = divmod(index, lines)
            value = self._values[figure.label] = text_label(figure.value)
            value.setFont(tabular_font(_SINGLE_DEVICE_FIGURE_PX if self._alone else None))
            value.setAccessibleName(figure.label)
            self._grid.addWidget(text_label(figure.label, "muted"), line, 3 * column)
            self._grid.addWidget(value, line, 3 * column + 1, Qt.AlignmentFlag.AlignRight)
        for column in (1, 4):
            self._grid.setColumnStretch(column, 1 if two or column == 1 else 0)
        self._grid.setColumnMinimumWidth(2, 2 * GRID if two else 0)


class NoGpuView(QWidget):
    """Why there is no GPU, what there would be with one, and the way to runs that had some."""

    def __init__(self, parent: QWidget, actions: Actions) -> None:
        super().__init__(parent)
        self.hide()
        self._reason = text_label("", "heading", wrap=True)
        self._with_gpu = text_label("", "muted", wrap=True)
        self._reference = button("Show re&ference runs", "Copies of runs measured on real GPUs, in the history")
        self._reference.clicked.connect(actions.show_reference)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 3 * GRID, 0, 0)
        layout.setSpacing(GRID)
        layout.addWidget(self._reason)
        layout.addWidget(self._with_gpu)
        layout.addWidget(self._reference, 0, Qt.AlignmentFlag.AlignLeft)

    def show_reason(self, reason: str, with_gpu: str) -> None:
        """Say it; nothing is shown where there is nothing to say."""
        self._reason.setText(reason)
        self._with_gpu.setText(with_gpu)
        self.setVisible(bool(reason))

    def displayed_text(self) -> str:
        """Return its text."""
        return f"{self._reason.text()}\n{self._with_gpu.text()}"

    @property
    def reference_button(self) -> QPushButton:
        """Asks for the reference runs."""
        return self._reference


class MonitorView(QWidget):
    """Shows a `MonitorState`."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._theme = theme
        self._rows: dict[str, DeviceRowView] = {}
        self._is_alone = False
        self._empty = EmptyState("Looking for devices …", "Their power, load and memory appear here.")
        self.no_gpu = NoGpuView(self, actions)
        self._trace = button("Replay a &trace …", "Telemetry that `watch --json` wrote into a file (Ctrl+O)", flat=True)
        self._trace.clicked.connect(actions.open_trace)
        self._hosts_button = button(
            "&Hosts …", "Machines with GPUs that are reached by ssh, Slurm, Ray or docker", flat=True
        )
        self._hosts_button.clicked.connect(actions.manage_hosts)
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._here = text_label("This machine", "heading")
        self._hosts: HostsPanel | None = None
        self._column = QVBoxLayout()
        self._scroll = QScrollArea()
        self._build()

    @property
    def trace_button(self) -> QPushButton:
        """Asks for a trace to replay."""
        return self._trace

    def show_hosts(self, panel: HostsPanel) -> None:
        """Show the other hosts above this machine."""
        if self._hosts is None:
            self._hosts = panel
            self._splitter.insertWidget(0, panel)
            self._splitter.setChildrenCollapsible(False)
            self._splitter.setHandleWidth(1)
            self._splitter.setStretchFactor(1, 1)
            wanted = min(panel.wanted_height, self.height() * 2 // 3)
            self._splitter.setSizes([wanted, self.height() - wanted])
            self._here.show()
            self._hosts_button.hide()

    def row(self, device: str) -> DeviceRowView:
        """Return the row of one device."""
        return self._rows[device]

    def show_model(self, state: MonitorState) -> None:
        """Show this state, in the rows that are in sight.

        A call makes at most one new row, so that none takes long; the next calls make the others.
        """
        self._empty.setVisible(not state.rows)
        self._scroll.setVisible(bool(state.rows))
        self._drop_outdated(state)
        missing = [row for row in state.rows if row.device not in self._rows]
        if missing:
            self._add(missing[0], alone=len(state.rows) == 1)
        self.no_gpu.show_reason(*((state.note, state.gpu_hint) if self._is_alone else ("", "")))
        for row in state.rows:
            view = self._rows.get(row.device)
            if view is not None and (row in missing or not view.visibleRegion().isEmpty()):
                view.show_row(row, state.origin_s, state.window_s)

    def _drop_outdated(self, state: MonitorState) -> None:
        """Make all rows anew where a device is gone, or one came that is not the last: the page is laid out by them."""
        devices, shown = [row.device for row in state.rows], list(self._rows)
        if shown and (shown != devices[: len(shown)] or self._is_alone != (len(devices) == 1)):
            self.no_gpu.setParent(self)
            self.no_gpu.hide()
            clear_layout(self._column)
            self._column.addStretch(1)
            self._rows = {}

    def _add(self, row: MonitoredDevice, *, alone: bool) -> None:
        self._is_alone = alone
        view = self._rows[row.device] = DeviceRowView(row, self._theme, alone=alone)
        last = self._column.count() - 1
        if len(self._rows) > 1:
            self._column.insertWidget(last, separator())
            last += 1
        self._column.insertWidget(last, view, int(alone))
        self._column.setStretch(last + 1, int(not alone))
        if alone:
            view.add_below(self.no_gpu)

    def _build(self) -> None:
        content = QWidget()
        content.setLayout(self._column)
        self._column.setContentsMargins(2 * GRID, 0, 2 * GRID, GRID)
        self._column.setSpacing(0)
        self._column.addStretch(1)
        self._scroll.setWidget(content)
        self._scroll.setWidgetResizable(True)
        machine = QWidget()
        inner = QVBoxLayout(machine)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(0)
        self._here.setContentsMargins(2 * GRID, GRID, 2 * GRID, 0)
        self._here.hide()
        inner.addWidget(self._here)
        inner.addWidget(self._empty, 1)
        inner.addWidget(self._scroll, 4)
        self._splitter.addWidget(machine)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._splitter, 1)
        layout.addWidget(separator())
        footer = QHBoxLayout()
        footer.setContentsMargins(2 * GRID, GRID // 2, 2 * GRID, GRID // 2)
        footer.addWidget(self._hosts_button)
        footer.addStretch(1)
        footer.addWidget(self._trace)
        layout.addLayout(footer)


_REFRESH_PERIOD_S = 0.09
"""Numbers that change more often than this nobody can read."""
_REFRESH_HOSTS_S = 0.4
_REFRESH_STALE_MS = 1_000


class MonitorController(QObject):
    """Bring the monitor's model and view together; `recent` is telemetry that the Run screen folds as well."""

    def __init__(self, view: MonitorView, recent: TelemetryBuffer, hosts: HostsPanel) -> None:
        super().__init__(view)
        self._view = view
        self._hosts = hosts
        self._hosts_shown_s = 0.0
        self._model = MonitorModel(recent)
        self._shown_s = 0.0
        # Where nothing is read any more, nothing else refreshes the screen: it has to say how old its numbers are.
        self._timer = QTimer(self)
        self._timer.setInterval(_REFRESH_STALE_MS)
        self._timer.timeout.connect(self.refresh)
        self._timer.start()

    def close(self) -> None:
        """Refresh the screen no more."""
        self._timer.stop()

    def handle(self, event: WindowEvent) -> None:
        """Take one event."""
        self._model.handle(event)

    def refresh(self) -> None:
        """Show the numbers now, if anyone can see them and has had time to read the last."""
        if self._view.isVisible() and time.monotonic() - self._shown_s >= _REFRESH_PERIOD_S:
            self._shown_s = time.monotonic()
            self._view.show_model(self._model.state(time.monotonic_ns()))
            self._refresh_hosts()

    def _refresh_hosts(self) -> None:
        """Show the other hosts, if there are any; they are read less often."""
        if self._hosts.has_hosts and self._shown_s - self._hosts_shown_s >= _REFRESH_HOSTS_S:
            self._hosts_shown_s = self._shown_s
            self._hosts.refresh()
            self._view.show_hosts(self._hosts)
