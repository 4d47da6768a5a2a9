"""The experiment builder: several values for each parameter, or a preset."""

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QButtonGroup,
    QCheckBox,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app import units
from app.gui.experiment.presets import PresetList
from app.gui.theme import GRID, tabular_font
from app.gui.widgets.basic import (
    DecimalBox,
    ElidedComboBox,
    IntegerBox,
    button,
    plain_tooltip,
    separator,
    set_role,
    show_text,
    text_label,
    toggle_button,
)
from app.gui.widgets.flow_layout import FlowBar, FlowLayout
from app.gui.widgets.panes import Scroller
from app.plan import REPEATS_LIMIT
from app.viewmodels.experiment.matrix_state import MatrixRow, MatrixState
from app.viewmodels.experiment.preview import RefusedGroup, describe_refused
from workloads.protocol import Value

_MAX_MINUTES = 7 * 24 * 60


class MatrixFooter(QWidget):
    """Baseline, repeats and limits, then what they amount to."""

    baseline_chosen = Signal(int)
    extent_changed = Signal(str, object)
    """Emitted with a field of `Extent` and its new value."""
    start_requested = Signal()
    copy_requested = Signal()
    reset_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._refused_shown: tuple[RefusedGroup, ...] = ()
        self._combinations = 0
        self._baseline = ElidedComboBox()
        self._repeats = IntegerBox()
        self._until = DecimalBox()
        self._budget = IntegerBox()
        self._concurrent = QCheckBox("Runs on different GPUs at the same &time")
        self._rerun = QCheckBox("Re-run stored resu&lts")
        self._reuse = QCheckBox("Count &older results")
        self._headline = text_label("", "title")
        self._detail = text_label("", "muted")
        self._text = text_label("", "", wrap=True)
        self._refused = text_label("", "caption", wrap=True)
        self._every_reason = button("", "Every reason", flat=True)
        self._every_reason.setCheckable(True)
        self._start = button("Start e&xperiment", "Start now, or after the current run", primary=True)
        self._copy = button("", "Copy the same experiment as a shell command", flat=True)
        self._reset = button("Clear values", "Reset every parameter to its value in the form", flat=True)
        self._connect()
        self._build()

    @property
    def start_button(self) -> QPushButton:
        """Return the button that starts the experiment."""
        return self._start

    @property
    def copy_button(self) -> QPushButton:
        """Return the button that copies the command."""
        return self._copy

    @property
    def concurrent_box(self) -> QCheckBox:
        """Return the box for concurrent runs, visible where they are possible."""
        return self._concurrent

    @property
    def rerun_box(self) -> QCheckBox:
        """Return the box that leaves stored runs out, enabled where there are any."""
        return self._rerun

    @property
    def reuse_box(self) -> QCheckBox:
        """Return the box that counts stored runs of any age, visible where some would not count."""
        return self._reuse

    @property
    def reasons_button(self) -> QPushButton:
        """Return the button that shows every reason, or the first ones again."""
        return self._every_reason

    def show_model(self, state: MatrixState, estimate: str, *, stored: bool, older: bool, busy: bool) -> None:
        """Show a state.

        Results that are `older` count only where the user wants it; while `busy` the experiment can only be queued.
        """
        with QSignalBlocker(self._baseline):
            if [self._baseline.itemText(at) for at in range(self._baseline.count())] != list(state.variants):
                self._baseline.clear()
                self._baseline.addItems(state.variants)
            self._baseline.setCurrentIndex(state.baseline)
        self._baseline.setEnabled(len(state.variants) > 1)
        self._show_extent(state)
        self._rerun.setEnabled(stored)
        self._rerun.setChecked(state.again)
        self._reuse.setVisible(older)
        self._reuse.setEnabled(not state.again)
        self._reuse.setChecked(state.reuse)
        show_text(self._headline, state.headline)
        show_text(self._detail, "" if state.problem else state.detail)
        self._text.setText(state.problem or estimate)
        self._combinations, self._refused_shown = state.combinations, state.refused
        self._show_refused()
        self._start.setText("Add e&xperiment to queue" if busy else "Start e&xperiment")
        self._start.setEnabled(not state.problem)
        self._copy.setText("Copy as comman&d")
        self._copy.setEnabled(not state.problem)

    def confirm_copied(self) -> None:
        """Show that the command is on the clipboard, until something changes."""
        self._copy.setText("Copied")

    def _show_extent(self, state: MatrixState) -> None:
        with QSignalBlocker(self._repeats), QSignalBlocker(self._until), QSignalBlocker(self._budget):
            self._repeats.setRange(state.min_repeats, REPEATS_LIMIT)
            self._repeats.setValue(state.repeats)
            self._repeats.setPrefix("" if state.until_pct is None else "at most ")
            self._until.setValue(state.until_pct or 0.0)
            self._budget.setValue(round((state.budget_s or 0.0) / 60))
        self._concurrent.setVisible(state.side_by_side is not None)
        self._concurrent.setChecked(bool(state.side_by_side))

    def _show_refused(self) -> None:
        texts = describe_refused(self._refused_shown, self._combinations, show_all=self._every_reason.isChecked())
        self._refused.setText(texts.text)
        self._refused.setVisible(bool(texts.text))
        self._every_reason.setText(texts.more_label)
        self._every_reason.setVisible(bool(texts.more_label))

    def _connect(self) -> None:
        self._baseline.activated.connect(self.baseline_chosen)
        self._repeats.valueChanged.connect(lambda value: self.extent_changed.emit("repeats", value))
        self._until.valueChanged.connect(lambda value: self.extent_changed.emit("until_pct", value or None))
        self._budget.valueChanged.connect(lambda value: self.extent_changed.emit("budget_s", 60.0 * value or None))
        self._concurrent.clicked.connect(lambda on: self.extent_changed.emit("side_by_side", on))
        self._rerun.clicked.connect(lambda on: self.extent_changed.emit("again", on))
        self._reuse.clicked.connect(lambda on: self.extent_changed.emit("reuse", on))
        self._every_reason.toggled.connect(lambda _: self._show_refused())
        self._start.clicked.connect(self.start_requested)
        self._copy.clicked.connect(self.copy_requested)
        self._reset.clicked.connect(self.reset_requested)

    def _build(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(separator())
        column = QVBoxLayout()
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addLayout(self._extent())
        column.addWidget(self._check_boxes())
        column.addLayout(self._summary())
        column.addWidget(self._text)
        column.addWidget(self._refused)
        column.addWidget(self._every_reason, 0, Qt.AlignmentFlag.AlignLeft)
        column.addLayout(self._buttons())
        layout.addLayout(column)

    def _extent(self) -> QGridLayout:
        for spin in (self._repeats, self._until, self._budget):
            spin.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.UpDownArrows)
            spin.setFixedWidth(14 * GRID)
        self._until.setRange(0.0, 50.0)
        self._until.setDecimals(1)
        self._until.setSingleStep(0.5)
        self._until.setPrefix(units.plus_minus(""))
        self._until.setSuffix(units.quantity("", "%"))
        self._until.setSpecialValueText("off")
        self._budget.setRange(0, _MAX_MINUTES)
        self._budget.setSuffix(" min")
        self._budget.setSpecialValueText("none")
        self._baseline.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._baseline.setMaxVisibleItems(16)
        fields = (
            ("&Baseline", self._baseline, "The variant that all others are compared with"),
            ("Repeats", self._repeats, "Runs per variant, interleaved, each in a fresh process"),
            ("&Until", self._until, "Stop once every speed-up is known to this precision"),
            (
                "T&ime limit",
                self._budget,
                "Start no run that would not finish within this time; the experiment can be resumed",
            ),
        )
        grid = QGridLayout()
        grid.setHorizontalSpacing(2 * GRID)
        grid.setVerticalSpacing(GRID // 2)
        grid.setColumnStretch(0, 1)
        for column, (name, widget, tip) in enumerate(fields):
            label = text_label(name, "caption")
            label.setBuddy(widget)
            for part in (label, widget):
                part.setToolTip(plain_tooltip(tip))
            widget.setAccessibleName(name.replace("&", ""))
            grid.addWidget(label, 0, column)
            grid.addWidget(widget, 1, column)
        return grid

    def _check_boxes(self) -> FlowBar:
        self._rerun.setToolTip("Run every variant again, even those with stored runs")
        self._reuse.setToolTip("Count the stored runs that were made more than an hour before, too")
        bar = FlowBar(3 * GRID, GRID // 2)
        for box in (self._concurrent, self._rerun, self._reuse):
            bar.flow.addWidget(box)
        return bar

    def _summary(self) -> QHBoxLayout:
        self._headline.setFont(tabular_font(20, bold=True))
        line = QHBoxLayout()
        line.setSpacing(GRID + GRID // 2)
        line.addWidget(self._headline)
        line.addWidget(self._detail, 0, Qt.AlignmentFlag.AlignBottom)
        line.addStretch(1)
        return line

    def _buttons(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(2 * GRID)
        line.addWidget(self._start)
        line.addWidget(self._copy)
        line.addStretch(1)
        line.addWidget(self._reset)
        return line


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

        Results that are `older` count only where the user wants it.
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
