"""The experiment builder: several values for each parameter, or a preset."""

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.gui.experiment.matrix_footer import MatrixFooter
from app.gui.experiment.presets import PresetList
from app.gui.theme import GRID
from app.gui.widgets.basic import button, plain_tooltip, separator, set_role, show_text, text_label, toggle_button
from app.gui.widgets.flow_layout import FlowLayout
from app.gui.widgets.panes import Scroller
from app.viewmodels.experiment.matrix_state import MatrixRow, MatrixState
from workloads.protocol import Value

_LABEL_WIDTH = 17 * GRID
_LIST_WIDTH = 34 * GRID
_LIST_HEIGHT = 3 * GRID + GRID // 2


class ParameterRows(Scroller):
    """Every parameter; rarely used ones are folded until they are unfolded or have several values."""

    value_toggled = Signal(str, object, bool)
    list_edited = Signal(str, str)
    list_typed = Signal(str, str)
    """Emitted with the text while it is typed; `list_edited` when that is done."""

    def __init__(self) -> None:
        super().__init__(horizontal=False)
        self._rows: dict[str, _ParameterRow] = {}
        self._shown: tuple[MatrixRow, ...] = ()
        self._signature: tuple[object, ...] = ()
        self._grid = QGridLayout()
        self._more = button("M&ore parameters", "Parameters that are rarely compared", flat=True)
        self._more.setCheckable(True)
        self._more.toggled.connect(lambda _: self._show_rows())
        self._build()

    def show_rows(self, rows: tuple[MatrixRow, ...]) -> None:
        """Show these rows; controls are made again only for other parameters."""
        self._shown = rows
        shape = tuple((row.name, row.options) for row in rows)
        if shape != self._signature:
            self._signature = shape
            self._remake(rows)
        self._show_rows()

    def show_problem(self, name: str, text: str) -> None:
        """Show what is wrong with the values of a parameter while they are typed; "" for nothing."""
        show_text(self._rows[name].problem, text)

    def control(self, name: str) -> QWidget:
        """Return the control for the values of a parameter."""
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
        self._rows = {row.name: _ParameterRow(row, self) for row in rows}
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


class _ParameterRow:
    """One parameter: its name, the control for its values, and what is wrong with them."""

    def __init__(self, row: MatrixRow, owner: ParameterRows) -> None:
        self.label = text_label(row.label)
        self.label.setFixedSize(_LABEL_WIDTH, 3 * GRID if row.options else _LIST_HEIGHT)
        self.label.setToolTip(plain_tooltip(row.help))
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
        """Remove its widgets."""
        for widget in (self.label, self.control, self.problem):
            widget.hide()
            widget.deleteLater()

    def _add_ticks(self, row: MatrixRow, owner: ParameterRows) -> None:
        flow = FlowLayout(self.control, 2 * GRID, 0)
        for option in row.options:
            tick = QCheckBox(option.label)
            tick.setToolTip(plain_tooltip(option.help))
            tick.setAccessibleName(f"{row.label}: {option.label}")
            tick.clicked.connect(lambda on, value=option.value: owner.value_toggled.emit(row.name, value, on))
            flow.addWidget(tick)
            self._ticks[option.value] = tick
        self.label.setBuddy(next(iter(self._ticks.values())))

    def _add_list(self, row: MatrixRow, owner: ParameterRows) -> QLineEdit:
        made = QLineEdit()
        made.setFixedWidth(_LIST_WIDTH)
        made.setAccessibleName(row.label)
        made.setToolTip(plain_tooltip(f"{row.help}\nSeparate several values with commas."))
        made.setPlaceholderText(row.placeholder)

        def emit_list() -> None:
            if made.isModified():
                made.setModified(False)
                owner.list_edited.emit(row.name, made.text())

        made.editingFinished.connect(emit_list)
        made.textEdited.connect(lambda text: owner.list_typed.emit(row.name, text))
        line = QHBoxLayout(self.control)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(GRID)
        line.addWidget(made)
        line.addWidget(text_label(row.unit, "muted"))
        line.addStretch(1)
        self.label.setBuddy(made)
        return made


_PAGE_HELP = (
    "Every combination of values becomes a variant. All other parameters are as in the form.",
    "Prepared experiments, adapted to this machine.",
)


class MatrixView(QWidget):
    """Shows a `MatrixState` and the presets; the user's changes come from `rows`, `footer` and `presets`."""

    close_requested = Signal()
    presets_shown = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.rows = ParameterRows()
        self.footer = MatrixFooter()
        self.presets = PresetList()
        self._help = text_label("", "caption", wrap=True)
        self._pages = QStackedWidget()
        self._tabs = QButtonGroup(self)
        for index, (name, tip) in enumerate((("&Values", "Choose the values"), ("Pre&pared", "Use a preset"))):
            tab = toggle_button(name, tip)
            self._tabs.addButton(tab, index)
        self._close = button("Close", "Back to the plots (Escape)", flat=True)
        self._connect()
        self._build()
        self.show_page(0)

    def tab(self, index: int) -> QPushButton:
        """Return the button of the values, 0, or of the presets, 1."""
        found = self._tabs.button(index)
        assert isinstance(found, QPushButton), "both are push buttons"
        return found

    def show_page(self, index: int) -> None:
        """Show the values, 0, or the presets, 1."""
        self.tab(index).setChecked(True)
        self._pages.setCurrentIndex(index)
        self._help.setText(_PAGE_HELP[index])
        if index == 1:
            self.presets_shown.emit()

    def show_model(self, state: MatrixState, estimate: str, *, stored: bool, older: bool, busy: bool) -> None:
        """Show a state.

        Args:
            state: The state.
            estimate: Sentences on what is stored and left.
            stored: Whether any runs are stored that count.
            older: Whether any are stored that count only if the user wants it.
            busy: Whether the experiment can only be queued.
        """
        self.rows.show_rows(state.rows)
        self.footer.show_model(state, estimate, stored=stored, older=older, busy=busy)

    def _connect(self) -> None:
        self._tabs.idClicked.connect(self.show_page)
        self._close.clicked.connect(self.close_requested)
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        escape.activated.connect(self.close_requested)

    def _build(self) -> None:
        header = QHBoxLayout()
        header.setSpacing(GRID // 2)
        header.addWidget(text_label("New experiment", "title"))
        header.addSpacing(2 * GRID)
        for tab in self._tabs.buttons():
            header.addWidget(tab)
        header.addStretch(1)
        header.addWidget(self._close)
        top = QVBoxLayout()
        top.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, GRID)
        top.setSpacing(GRID // 2)
        top.addLayout(header)
        top.addWidget(self._help)
        values = QWidget()
        column = QVBoxLayout(values)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.rows, 1)
        column.addWidget(self.footer)
        self._pages.addWidget(values)
        self._pages.addWidget(self.presets)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(separator())
        layout.addWidget(self._pages, 1)
