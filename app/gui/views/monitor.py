"""The Monitor screen: a row for every device, its numbers and its last minute."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.gui.plots import TimePanel
from app.gui.theme import GRID, Theme, figures
from app.gui.views.parts import EmptyState, rule, set_role, text_label
from app.viewmodels.monitor import DeviceRow, Figure, MonitorState

_FIGURES_WIDTH = 34 * GRID
_LEAST_PLOT_HEIGHT = 18 * GRID
_MOST_PLOT_HEIGHT = 36 * GRID


class DeviceRowView(QWidget):
    """One device: figures at the left, its last minute at the right."""

    def __init__(self, row: DeviceRow, theme: Theme) -> None:
        super().__init__()
        self._label = text_label(row.label, "heading")
        self._name = text_label(row.name, "muted", wrap=True)
        self._lost = text_label("", "problem", wrap=True)
        self._values: list[QLabel] = []
        self._plots = {panel.key: TimePanel(panel.title, panel.unit, theme) for panel in row.panels}
        self._versions: dict[str, tuple[int, float]] = {}
        self._build(row)

    def words(self) -> str:
        """The numbers shown, as one text."""
        return " ".join(label.text() for label in self._values)

    def show_row(self, row: DeviceRow, origin_s: float, window_s: tuple[float, float]) -> None:
        """Show the numbers now; draw only plots with something new."""
        for label, figure in zip(self._values, row.figures, strict=True):
            label.setText(figure.value)
            label.setToolTip(figure.reason)
            set_role(label, "muted" if figure.reason else "")
        self._lost.setText(f"Stopped answering: {row.lost}" if row.lost else "")
        self._lost.setVisible(bool(row.lost))
        for panel in row.panels:
            plot, curve = self._plots[panel.key], panel.curves[0]
            if panel.y_range is not None:
                plot.set_y_range(*panel.y_range)
            plot.set_x_range(*window_s)
            version = (curve.series.version, origin_s)
            if self._versions.get(panel.key) != version:
                self._versions[panel.key] = version
                plot.set_source(curve.key, curve.on_axis(origin_s), colour=curve.colour, label=curve.label)
            plot.refresh()

    def _build(self, row: DeviceRow) -> None:
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, GRID, 0, GRID)
        layout.setSpacing(2 * GRID)
        words = QVBoxLayout()
        words.setSpacing(GRID // 2)
        for widget in (self._label, self._name, self._lost):
            words.addWidget(widget)
        words.addLayout(self._figure_grid(row.figures))
        words.addStretch(1)
        left = QWidget()
        left.setLayout(words)
        left.setFixedWidth(_FIGURES_WIDTH)
        words.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(left)
        for plot in self._plots.values():
            plot.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
            plot.setMinimumHeight(_LEAST_PLOT_HEIGHT)
            plot.setMaximumHeight(_MOST_PLOT_HEIGHT)
            layout.addWidget(plot, 1)

    def _figure_grid(self, shown: tuple[Figure, ...]) -> QGridLayout:
        grid = QGridLayout()
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(1, 1)
        for line, figure in enumerate(shown):
            value = text_label(figure.value)
            value.setFont(figures())
            value.setAccessibleName(figure.label)
            self._values.append(value)
            grid.addWidget(text_label(figure.label, "muted"), line, 0)
            grid.addWidget(value, line, 1, Qt.AlignmentFlag.AlignRight)
        return grid


class MonitorView(QWidget):
    """Shows a `MonitorState`."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._theme = theme
        self._rows: dict[str, DeviceRowView] = {}
        self._empty = EmptyState("Looking for devices …", "Their power, load and memory appear here.")
        self._note = text_label("", "muted", wrap=True)
        self._column = QVBoxLayout()
        self._build()

    def row(self, device: str) -> DeviceRowView:
        """The row of one device."""
        return self._rows[device]

    def show_model(self, state: MonitorState) -> None:
        """Show this state.

        A call makes at most one new row, so that none takes long; the next calls make the others.
        """
        self._empty.setVisible(not state.rows)
        self._note.setText(state.note)
        self._note.setVisible(bool(state.note))
        missing = [row for row in state.rows if row.device not in self._rows]
        if missing:
            self._add(missing[0])
        for row in state.rows:
            if row.device in self._rows:
                self._rows[row.device].show_row(row, state.origin_s, state.window_s)

    def _add(self, row: DeviceRow) -> None:
        view = self._rows[row.device] = DeviceRowView(row, self._theme)
        last = self._column.count() - 1
        self._column.insertWidget(last, rule())
        self._column.insertWidget(last, view, 4)

    def _build(self) -> None:
        content = QWidget()
        content.setLayout(self._column)
        self._column.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        self._column.setSpacing(0)
        self._column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidget(content)
        scroll.setWidgetResizable(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        self._note.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 0)
        layout.addWidget(self._note)
        layout.addWidget(self._empty, 1)
        layout.addWidget(scroll, 4)
