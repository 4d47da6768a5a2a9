"""The parameters of an experiment that is being built: one line each, values to tick or a list to type."""

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.flow import FlowLayout
from app.gui.views.parts import Scroller, button, set_role, text_label
from app.viewmodels.matrix_state import MatrixRow
from workloads.protocol import Value

_LABEL_WIDTH = 17 * GRID
_LIST_WIDTH = 34 * GRID
_LIST_HEIGHT = 3 * GRID + GRID // 2


class MatrixRows(Scroller):
    """Every parameter; seldom ones fold away until they are asked for or have several values."""

    ticked = Signal(str, object, bool)
    listed = Signal(str, str)

    def __init__(self) -> None:
        super().__init__(sideways=False)
        self._rows: dict[str, _Row] = {}
        self._shown: tuple[MatrixRow, ...] = ()
        self._shape: tuple[object, ...] = ()
        self._grid = QGridLayout()
        self._more = button("M&ore parameters", "Parameters that are seldom compared", flat=True)
        self._more.setCheckable(True)
        self._more.toggled.connect(lambda _: self._show_rows())
        self._build()

    def show_rows(self, rows: tuple[MatrixRow, ...]) -> None:
        """Show these; controls are made anew only where there are others than before."""
        self._shown = rows
        shape = tuple((row.name, row.options) for row in rows)
        if shape != self._shape:
            self._shape = shape
            self._remake(rows)
        self._show_rows()

    def control(self, name: str) -> QWidget:
        """What the values of a parameter are chosen with."""
        return self._rows[name].control

    def _show_rows(self) -> None:
        unfolded = self._more.isChecked()
        folded = sum(row.folded for row in self._shown)
        self._more.setText(f"M&ore parameters  {'▾' if unfolded else '▸'}")
        self._more.setVisible(folded > 0)
        for row in self._shown:
            self._rows[row.name].show_row(row, visible=unfolded or not row.folded)

    def _remake(self, rows: tuple[MatrixRow, ...]) -> None:
        for old in self._rows.values():
            old.remove()
        self._rows = {row.name: _Row(row, self) for row in rows}
        for line, row in enumerate(self._rows.values()):
            self._grid.addWidget(row.label, 2 * line, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(row.control, 2 * line, 1)
            self._grid.addWidget(row.problem, 2 * line + 1, 1)

    def _build(self) -> None:
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        column.setSpacing(GRID)
        self._grid.setHorizontalSpacing(GRID)
        self._grid.setVerticalSpacing(GRID // 2)
        self._grid.setColumnStretch(1, 1)
        column.addLayout(self._grid)
        column.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        self.setWidget(content)


class _Row:
    """One parameter: its name, what its values are chosen with, and what is wrong with them."""

    def __init__(self, row: MatrixRow, owner: MatrixRows) -> None:
        self.label = text_label(row.label)
        self.label.setFixedSize(_LABEL_WIDTH, 3 * GRID if row.options else _LIST_HEIGHT)
        self.label.setToolTip(row.help)
        self.problem = text_label("", "problem", wrap=True)
        self.control = QWidget()
        self.control.setObjectName(f"matrix.{row.name}")
        self._ticks: dict[Value, QCheckBox] = {}
        self._list: QLineEdit | None = None
        if row.options:
            self._add_ticks(row, owner)
        else:
            self._list = self._add_list(row, owner)

    def show_row(self, row: MatrixRow, *, visible: bool) -> None:
        """Show what is chosen."""
        several = len(row.chosen) > 1
        set_role(self.label, "heading" if several else "muted")
        for value, tick in self._ticks.items():
            tick.setChecked(value in row.chosen)
        if self._list is not None and not self._list.isModified():
            with QSignalBlocker(self._list):
                self._list.setText(row.text)
        self.problem.setText(row.problem)
        self.problem.setVisible(visible and bool(row.problem))
        for widget in (self.label, self.control):
            widget.setVisible(visible)

    def remove(self) -> None:
        """Take its widgets away."""
        for widget in (self.label, self.control, self.problem):
            widget.hide()
            widget.deleteLater()

    def _add_ticks(self, row: MatrixRow, owner: MatrixRows) -> None:
        flow = FlowLayout(self.control, 2 * GRID, 0)
        for option in row.options:
            tick = QCheckBox(option.label)
            tick.setToolTip(option.help)
            tick.setAccessibleName(f"{row.label}: {option.label}")
            tick.clicked.connect(lambda on, value=option.value: owner.ticked.emit(row.name, value, on))
            flow.addWidget(tick)
            self._ticks[option.value] = tick
        self.label.setBuddy(next(iter(self._ticks.values())))

    def _add_list(self, row: MatrixRow, owner: MatrixRows) -> QLineEdit:
        made = QLineEdit()
        made.setFixedWidth(_LIST_WIDTH)
        made.setAccessibleName(row.label)
        made.setToolTip(f"{row.help}\nSeveral values with commas between.")
        made.setPlaceholderText(row.where_empty)

        def tell() -> None:
            if made.isModified():
                made.setModified(False)
                owner.listed.emit(row.name, made.text())

        made.editingFinished.connect(tell)
        line = QHBoxLayout(self.control)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(GRID)
        line.addWidget(made)
        line.addWidget(text_label(row.unit, "muted"))
        line.addStretch(1)
        self.label.setBuddy(made)
        return made
