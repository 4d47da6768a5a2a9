"""The form for one run: workload, parameters, and the buttons that run, queue, compare or stop."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QInputDialog,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.gui.run.form_controls import FieldRow, HostChoice, control_for
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    BreakingLabel,
    ElidedComboBox,
    button,
    plain_tooltip,
    separator,
    set_role,
    show_text,
    text_label,
)
from app.gui.widgets.flow_layout import FlowBar
from app.gui.widgets.panes import Scroller
from app.gui.window_state import WindowState
from app.viewmodels.run.form import MOST_CURES, FormState
from app.viewmodels.run.largest_batch import LimitQuestion, limit_question


class BatchLimitDialog(QInputDialog):
    """Asks for the largest batch size to try."""

    def __init__(self, question: LimitQuestion, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Find the largest batch")
        self.setLabelText(question.text)
        self.setInputMode(QInputDialog.InputMode.IntInput)
        self.setIntRange(question.minimum, question.maximum)
        self.setIntValue(question.default)
        self.setOkButtonText("&Search")


_CUSTOM_ENTRY = ("", "Custom workload …")
"""Last entry of the list of workloads; no workload has its name."""


def _row_keys(state: FormState) -> dict[str, tuple[str, str]]:
    """Return what the rows depend on, by their parameters: those of a custom workload may change."""
    return {field.name: (field.kind, field.label) for field in state.fields}


_FOR_THE_NEXT = "This form is for the next run; the active one is named above the plots."


class FormView(QWidget):
    """Shows every parameter of the workload, why it cannot run here, and the Run button."""

    workload_chosen = Signal(str)
    custom_file_requested = Signal()
    """For a Python file with workloads."""
    edited = Signal(str, object)
    reset_requested = Signal()
    run_or_stop_requested = Signal()
    queue_requested = Signal()
    compare_requested = Signal()
    copy_requested = Signal()
    largest_batch_requested = Signal(int)
    """With the largest batch size to try."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rows: dict[str, FieldRow] = {}
        self._state: FormState | None = None
        self._busy = False
        self.host = HostChoice()
        self._workload = ElidedComboBox()
        self._workload.setAccessibleName("Workload")
        self._workload.activated.connect(self._choose_workload)
        self._help = BreakingLabel("caption")
        self._custom = BreakingLabel("caption")
        self._fields = QGridLayout()
        self._advanced = button("&Advanced", "Parameters that rarely change", flat=True)
        self._advanced.setCheckable(True)
        self._advanced_fields = QGridLayout()
        self._refusal = BreakingLabel("problem")
        self._cures = FlowBar(GRID // 2, GRID // 2)
        self.cure_buttons = [button("") for _ in range(MOST_CURES)]
        self.retry_button = button("&Try again", "Read it once more", small=True)
        self.retry_button.hide()
        self._warning = BreakingLabel("caution")
        self._run = button("&Run", "Run this variant (Ctrl+R)", primary=True)
        self.queue_button = button("Add to queue", "Run this variant after the current run or queue (Ctrl+R)")
        self._compare = button("&Compare values …", "Run several values of any parameter as one experiment (Ctrl+E)")
        self._copy = button("Copy as co&mmand", "Copy the same run as a shell command", flat=True)
        self._reset = button("R&eset to defaults", "Discard all changes to this workload", flat=True)
        self._largest = button("Find the &largest batch …", "Find it with short runs until memory runs out", flat=True)
        self._connect()
        self._build()

    @property
    def run_button(self) -> QPushButton:
        """Button that runs or stops."""
        return self._run

    @property
    def state(self) -> FormState | None:
        """The shown state; None before the first."""
        return self._state

    @property
    def custom_text(self) -> str:
        """Text about the file of a custom workload."""
        return self._custom.text()

    @property
    def compare_button(self) -> QPushButton:
        """Button that opens the experiment matrix."""
        return self._compare

    def show_model(
        self, state: FormState, *, busy: bool = False, stopping: bool = False, error: str = "", warning: str = ""
    ) -> None:
        """Show this state.

        Args:
            state: Fields, refusals and workloads.
            busy: A run or the queue is active; the form stays usable, and its variant can be queued.
            stopping: The active run was asked to stop.
            error: Shown above the Run button in place of a refusal.
            warning: Shown above either.
        """
        before = {} if self._state is None else _row_keys(self._state)
        self._state, self._busy = state, busy
        if list(before.items()) != list(_row_keys(state).items()):
            self._rebuild(state, before)
        self._show_workloads(state)
        show_text(self._help, state.help)
        show_text(self._custom, state.custom_file_text)
        set_role(self._custom, "problem" if state.custom_file_invalid else "caption")
        show_text(self._warning, warning)
        self._show_fields()
        self._show_run(state, stopping=stopping, error=error)

    def confirm_copied(self) -> None:
        """Say that the command was copied, until something changes."""
        self._copy.setText("Copied")

    def _ask_limit(self) -> None:
        """Ask for the limit of the search; `largest_batch_requested` has the answer."""
        if self._state is None:
            return
        dialog = BatchLimitDialog(limit_question(self._state), self)
        self._theme.apply_style_sheet(dialog)
        dialog.intValueSelected.connect(self.largest_batch_requested)
        dialog.open()

    def _show_workloads(self, state: FormState) -> None:
        offered = (*state.workloads, _CUSTOM_ENTRY)
        with QSignalBlocker(self._workload):
            current = tuple(
                (self._workload.itemData(n), self._workload.itemText(n)) for n in range(self._workload.count())
            )
            if current != offered:
                self._workload.clear()
                for name, title in offered:
                    self._workload.addItem(title, name)
            self._workload.setCurrentIndex(self._workload.findData(state.workload))
            self._workload.setToolTip(plain_tooltip(self._workload.currentText()))

    def _choose_workload(self, index: int) -> None:
        name = self._workload.itemData(index)
        if name != _CUSTOM_ENTRY[0]:
            self.workload_chosen.emit(name)
            return
        if self._state is not None:
            self._show_workloads(self._state)
        self.custom_file_requested.emit()

    def _show_fields(self) -> None:
        if self._state is None:
            return
        unfolded = self._advanced.isChecked()
        self._advanced.setText("&Advanced  ▾" if unfolded else "&Advanced  ▸")
        for field in self._state.fields:
            visible = unfolded or not field.advanced or field.problem
            self._rows[field.name].show_field(field, visible=visible)

    def _show_run(self, state: FormState, *, stopping: bool, error: str) -> None:
        problem = error or (" ".join(state.refusals) if state.is_machine_known else "")
        text = problem or (_FOR_THE_NEXT if self._busy else state.machine_text)
        self._copy.setText("Copy as co&mmand")
        show_text(self._refusal, text)
        set_role(self._refusal, "problem" if problem else "caption")
        cures = state.cures if state.is_machine_known and not error else ()
        for number, shown in enumerate(self.cure_buttons):
            shown.setVisible(number < len(cures))
            shown.setText(cures[number].label if number < len(cures) else "")
        self._cures.setVisible(bool(cures))
        possible = state.is_machine_known and not state.refusals
        self._run.setText("Stopping …" if stopping else "&Stop" if self._busy else "&Run")
        self._run.setToolTip("Stop the current run (Ctrl+.)" if self._busy else "Run this variant (Ctrl+R)")
        self._run.setEnabled(not stopping and (self._busy or possible))
        self._run.setAccessibleDescription(text)
        self.queue_button.setVisible(self._busy)
        self.queue_button.setEnabled(possible)
        self._largest.setEnabled(not self._busy and possible)

    def _rebuild(self, state: FormState, before: Mapping[str, object]) -> None:
        """Make the rows; one that another workload has too is used again, which is quicker than to make it."""
        keys, old = _row_keys(state), self._rows
        self._rows = {}
        for number, field in enumerate(state.fields):
            same = before.get(field.name) == keys[field.name]
            row = old.pop(field.name) if same else FieldRow(control_for(field, self.edited.emit), field)
            self._rows[field.name] = row
            self._place(row, self._advanced_fields if field.advanced else self._fields, 2 * number)
        for row in old.values():
            for widget in (row.label, row.control.widget, row.note):
                widget.hide()
                widget.deleteLater()
        self._order(state)

    def _order(self, state: FormState) -> None:
        """Let Tab go through everything in the order seen."""
        controls: list[QWidget] = [self._workload]
        controls += [self._rows[field.name].control.widget for field in state.fields if not field.advanced]
        controls.append(self._advanced)
        controls += [self._rows[field.name].control.widget for field in state.fields if field.advanced]
        controls += [
            *self.cure_buttons,
            self._run,
            self.queue_button,
            self._compare,
            self._copy,
            self._reset,
            self._largest,
        ]
        for first, then in pairwise(controls):
            QWidget.setTabOrder(first, then)

    def _place(self, row: FieldRow, grid: QGridLayout, line: int) -> None:
        """Place a row from a line of the grid on, which never has fewer lines again."""
        grid.addWidget(row.label, line, 0)
        grid.addWidget(row.control.widget, line, 1)
        grid.addWidget(row.note, line + 1, 0, 1, 2)

    def _connect(self) -> None:
        state = WindowState("run", self)
        self._advanced.setChecked(state.read("advanced", False))
        self._advanced.toggled.connect(partial(state.keep, "advanced"))
        self._advanced.toggled.connect(lambda _: self._show_fields())
        self._run.clicked.connect(self.run_or_stop_requested)
        self.queue_button.clicked.connect(self.queue_requested)
        self._compare.clicked.connect(self.compare_requested)
        self._copy.clicked.connect(self.copy_requested)
        self._reset.clicked.connect(self.reset_requested)
        self._largest.clicked.connect(self._ask_limit)
        for number, shown in enumerate(self.cure_buttons):
            self._cures.flow.addWidget(shown)
            shown.clicked.connect(lambda _, number=number: self._apply_cure(number))

    def _apply_cure(self, number: int) -> None:
        if self._state is not None and number < len(self._state.cures):
            cure = self._state.cures[number]
            self.edited.emit(cure.name, cure.value)

    def _build(self) -> None:
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        column.setSpacing(GRID)
        for grid in (self._fields, self._advanced_fields):
            grid.setHorizontalSpacing(GRID)
            grid.setVerticalSpacing(GRID // 2)
            grid.setColumnStretch(1, 1)
        column.addLayout(self._fields)
        fold = QHBoxLayout()
        fold.addWidget(self._advanced)
        fold.addStretch(1)
        column.addLayout(fold)
        column.addLayout(self._advanced_fields)
        column.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(self._header())
        layout.addWidget(Scroller(content, horizontal=False), 1)
        layout.addWidget(separator())
        layout.addLayout(self._footer())

    def _header(self) -> QVBoxLayout:
        label = text_label("&Workload", "heading")
        label.setBuddy(self._workload)
        header = QVBoxLayout()
        header.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, GRID)
        header.setSpacing(GRID)
        header.addWidget(self.host)
        header.addSpacing(GRID)
        for widget in (label, self._workload, self._help, self._custom):
            header.addWidget(widget)
        return header

    def _footer(self) -> QVBoxLayout:
        small = QHBoxLayout()
        small.addWidget(self._copy)
        small.addStretch(1)
        small.addWidget(self._reset)
        footer = QVBoxLayout()
        footer.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        footer.setSpacing(GRID)
        footer.addWidget(self._warning)
        footer.addWidget(self._refusal)
        footer.addWidget(self._cures)
        footer.addWidget(self.retry_button, 0, Qt.AlignmentFlag.AlignLeft)
        first = QHBoxLayout()
        first.setSpacing(GRID)
        first.addWidget(self._run, 1)
        first.addWidget(self.queue_button, 1)
        footer.addLayout(first)
        footer.addWidget(self._compare)
        footer.addLayout(small)
        footer.addWidget(self._largest, 0, Qt.AlignmentFlag.AlignLeft)
        return footer
