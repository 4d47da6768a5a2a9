"""The form: a workload, one or several values of its parameters, and the button that runs them."""

from collections.abc import Mapping
from functools import partial
from itertools import zip_longest

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QInputDialog, QVBoxLayout, QWidget

from app.gui.run.form_controls import SIDE_WIDTH, FieldRow, HostChoice
from app.gui.theme import GRID, LEFT, Theme
from app.gui.widgets.basic import (
    STRETCH,
    BreakingLabel,
    ElidedComboBox,
    SearchLine,
    button,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    set_role,
    show_text,
    text_label,
    toggle_button,
)
from app.gui.widgets.panes import FlowBar, Scroller
from app.gui.window_state import WindowState
from app.viewmodels.experiment.preview import describe_refused
from app.viewmodels.run.fields import EXPERIMENT, MOST_CURES, Field, FormState
from app.viewmodels.run.form import limit_question

_CUSTOM_ENTRY = ("", "Custom workload …")
_SCRIPT_ENTRY = ("script:", "Your script …")
"""Last entries of the list of workloads; no workload has these names."""
_FOR_THE_NEXT = "This form is for the next run."


def _row_keys(state: FormState) -> dict[str, tuple[object, ...]]:
    """Return what the rows depend on, by field: a custom workload's may change."""
    return {field.name: (field.label, bool(field.options), field.unit, field.essential) for field in state.fields}


class FormView(QWidget):
    """Shows the workload's parameters, which values cannot run here, and the button that runs the rest."""

    workload_chosen = Signal(str)
    custom_file_requested = Signal()
    """Emitted to choose a Python file with workloads."""
    script_requested = Signal()
    changed = Signal()
    """Emitted when the choices change, here or by a call that fills the form."""
    script_changed = Signal()
    edited = Signal(str, object)
    """Emitted with a field and the tuple of its values; empty means the default."""
    typed = Signal(str, str)
    """Emitted with a field and its text, at every key."""
    largest_batch_requested = Signal(int)
    """Emitted with the largest batch size to try."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.rows: dict[str, FieldRow] = {}
        self.state: FormState | None = None
        self._busy = self.is_script = False
        self.host = HostChoice()
        self._workload = ElidedComboBox()
        self._workload.setAccessibleName("Workload")
        self.questions_button = button("&Questions", "Back to the prepared questions (Ctrl+E)", flat=True)
        self._help = BreakingLabel("caption")
        self.custom_label = BreakingLabel("caption")
        self._essential, self._others, self._extent = QGridLayout(), QGridLayout(), QGridLayout()
        self.search = SearchLine("Find a setting")
        self._all = toggle_button("All", "Show every setting")
        self._all.setAccessibleName("Every setting")
        self._unknown = BreakingLabel("caption")
        self._extent_title = text_label("Experiment", "heading")
        self._refusal = BreakingLabel("problem")
        self._refused = BreakingLabel("caption")
        self.reasons_button = button("", "Every reason", flat=True)
        self.reasons_button.setCheckable(True)
        self._cures = FlowBar(GRID // 2, GRID // 2)
        self.cure_buttons = [button("", small=True) for _ in range(MOST_CURES)]
        for cure_button in self.cure_buttons:
            cure_button.setProperty("chip", "true")
        self.retry_button = button("&Try again", "Read the file again", small=True)
        self.retry_button.hide()
        self._warning = BreakingLabel("caution")
        self.run_button = button("&Run", primary=True)
        self.queue_button = button("Add to queue", "Run this after the current run or queue (Ctrl+R)")
        self.copy_button = button("Copy as co&mmand", "Copy the same as a shell command", flat=True)
        self.reset_button = button("R&eset", "Discard all changes to this workload; Ctrl+Z brings them back", flat=True)
        self._settings, self._runs = QWidget(), QWidget()
        self._largest = button("Find the &largest batch …", "Find it with short runs until memory runs out", flat=True)
        self._connect()
        self._build()

    def show_model(
        self,
        state: FormState,
        *,
        label: str = "Run",
        brief: str = "",
        detail: str = "",
        busy: bool = False,
        stopping: bool = False,
        error: str = "",
        warning: str = "",
    ) -> None:
        """Show this state.

        Args:
            state: Fields, refusals and workloads.
            label: The label of the button that runs it.
            brief: What the button runs, shown above it.
            detail: The estimate of its time and its precision, for the caller.
            busy: A run or the queue is active; the form stays usable, and its plan can be queued.
            stopping: The active run was asked to stop.
            error: Shown above the Run button instead of the problem.
            warning: Shown above error or problem.
        """
        row_keys = {} if self.state is None else _row_keys(self.state)
        self.state, self._busy = state, busy
        if list(row_keys.items()) != list(_row_keys(state).items()):
            self._rebuild(state, row_keys)
        self._show_workloads(state)
        for part in (self._settings, self._runs):
            part.setVisible(not self.is_script)
        show_text(self._help, "" if self.is_script else state.help)
        show_text(self.custom_label, "" if self.is_script else state.custom_file_text)
        set_role(self.custom_label, "problem" if state.custom_file_invalid else "caption")
        show_text(self._warning, warning)
        self._show_fields()
        self._show_problem(state, error, brief)
        self._show_buttons(state, label, stopping=stopping)
        tip = detail or ("Stop the current run (Ctrl+.)" if busy else "Run this (Ctrl+R)")
        self.run_button.setToolTip(plain_tooltip(tip))
        self.run_button.setAccessibleDescription(" ".join(filter(None, (self._refusal.text(), detail))))

    def show_script(self, visible: bool) -> None:
        """Hide or show the controls that apply to workloads but not to scripts."""
        if visible != self.is_script:
            self.is_script = visible
            self.script_changed.emit()

    def focus_several(self) -> bool:
        """Focus the first field with several values; return whether there is one."""
        several = [field.name for field in (self.state.fields if self.state else ()) if len(field.chosen) > 1]
        if several:
            self.rows[several[0]].control.setFocus()
        return bool(several)

    def _ask_limit(self) -> None:
        """Ask for the limit of the search; `largest_batch_requested` carries the answer."""
        if self.state is None:
            return
        question, dialog = limit_question(self.state), QInputDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle("Find the largest batch")
        dialog.setLabelText(question.text)
        dialog.setInputMode(QInputDialog.InputMode.IntInput)
        dialog.setIntRange(question.minimum, question.maximum)
        dialog.setIntValue(question.default)
        dialog.setOkButtonText("&Search")
        self._theme.apply_style_sheet(dialog)
        dialog.intValueSelected.connect(self.largest_batch_requested)
        dialog.open()

    def _show_workloads(self, state: FormState) -> None:
        offered = (*state.workloads, _SCRIPT_ENTRY, _CUSTOM_ENTRY)
        with QSignalBlocker(self._workload):
            current = tuple(
                (self._workload.itemData(n), self._workload.itemText(n)) for n in range(self._workload.count())
            )
            if current != offered:
                self._workload.clear()
                for name, title in offered:
                    self._workload.addItem(title, name)
            self._workload.setCurrentIndex(
                self._workload.findData(_SCRIPT_ENTRY[0] if self.is_script else state.workload)
            )
            self._workload.setToolTip(plain_tooltip(self._workload.currentText()))

    def _choose_workload(self, index: int) -> None:
        name = self._workload.itemData(index)
        if name not in (_CUSTOM_ENTRY[0], _SCRIPT_ENTRY[0]):
            self.workload_chosen.emit(name)
            return
        if self.state is not None:
            self._show_workloads(self.state)
        (self.script_requested if name else self.custom_file_requested).emit()

    def _is_in_sight(self, field: Field) -> bool:
        """Return whether a field is visible: essential, changed, wrong, or found by the search."""
        query = self.search.text().strip()
        return (
            field.essential
            or bool(field.default or field.problem)
            or self._all.isChecked()
            or (bool(query) and field.matches(query))
        )

    def _show_fields(self) -> None:
        if self.state is None:
            return
        for field in self.state.fields:
            self.rows[field.name].show_field(field, visible=self._is_in_sight(field))
        self._extent_title.setVisible(self.state.is_experiment)
        query, fields = self.search.text().strip(), self.state.fields
        is_unknown = bool(query) and not any(field.matches(query) for field in fields)
        show_text(self._unknown, f"No setting of this workload is called “{query}”." if is_unknown else "")

    def _show_problem(self, state: FormState, error: str, brief: str) -> None:
        problem = error or (state.problem if state.is_machine_known else "")
        text = problem or (_FOR_THE_NEXT if self._busy and not state.is_experiment else brief or state.machine_text)
        show_text(self._refusal, error if self.is_script else text)
        set_role(self._refusal, "problem" if problem else "caption")
        self._show_refused()
        cures = () if error or self.is_script else state.cures
        for cure_button, cure in zip_longest(self.cure_buttons, cures):
            cure_button.setVisible(cure is not None)
            cure_button.setText(cure.label if cure else "")
        self._cures.setVisible(bool(cures))

    def _show_refused(self) -> None:
        if self.state is None:
            return
        groups, count = () if self.is_script else self.state.refused, self.state.combinations
        text, more_label = describe_refused(groups, count, show_all=self.reasons_button.isChecked())
        show_text(self._refused, text)
        self.reasons_button.setText(more_label)
        self.reasons_button.setVisible(bool(more_label))

    def _show_buttons(self, state: FormState, label: str, *, stopping: bool) -> None:
        self.copy_button.setText("Copy as co&mmand")
        self.copy_button.setEnabled(state.can_run)
        self.run_button.setText("Stopping …" if stopping else "&Stop" if self._busy else f"&{label}")
        can_press = not stopping and (self._busy or state.can_run)
        if self.run_button.hasFocus() and not can_press:
            self.setFocus()  # otherwise Qt moves it to "Add to queue", which a second press of Space would click
        self.run_button.setEnabled(can_press)
        if can_press and (self.hasFocus() or (self.queue_button.hasFocus() and not self._busy)):
            self.run_button.setFocus()
        self.queue_button.setText(f"Add {state.runs:,} to queue" if state.is_experiment else "Add to queue")
        self.queue_button.setVisible(self._busy)
        self.queue_button.setEnabled(state.can_run)
        self._largest.setEnabled(not self._busy and state.can_run and not state.is_experiment)

    def _rebuild(self, state: FormState, row_keys: Mapping[str, object]) -> None:
        """Build the rows, reusing those that another workload also has, which is faster."""
        keys, old = _row_keys(state), self.rows
        self.rows = {}
        for number, field in enumerate(state.fields):
            same = row_keys.get(field.name) == keys[field.name]
            row = old.pop(field.name) if same else FieldRow(field, self._edit, self.typed.emit)
            self.rows[field.name] = row
            is_extent = field.name.startswith(EXPERIMENT)
            row.place(self._extent if is_extent else self._essential if field.essential else self._others, 3 * number)
        for row in old.values():
            row.remove()

    def _edit(self, name: str, *values: object) -> None:
        self.edited.emit(name, values)

    def _connect(self) -> None:
        def apply_cure(number: int) -> None:
            if self.state is not None and number < len(self.state.cures):
                cure = self.state.cures[number]
                self.edited.emit(cure.name, cure.values)

        state = WindowState("run", self)
        self._all.setChecked(state.read("all settings", False))
        self._all.toggled.connect(partial(state.keep, "all settings"))
        self._all.toggled.connect(lambda _: self._show_fields())
        self._workload.activated.connect(self._choose_workload)
        self.search.textChanged.connect(lambda _: self._show_fields())
        self.reasons_button.toggled.connect(lambda _: self._show_refused())
        self._largest.clicked.connect(self._ask_limit)
        for number, cure_button in enumerate(self.cure_buttons):
            self._cures.flow.addWidget(cure_button)
            cure_button.clicked.connect(lambda _, number=number: apply_cure(number))

    def _build(self) -> None:
        content = QWidget()
        for grid in (self._essential, self._others, self._extent):
            grid.setSpacing(GRID // 2)
            grid.setColumnStretch(1, 1)
            grid.setColumnMinimumWidth(3, SIDE_WIDTH)
        search_row = make_row((self.search, 1), self._all, self.reset_button, spacing=GRID)
        parts = self._essential, search_row, self._unknown, self._others, self._extent_title, self._extent, STRETCH
        make_column(*parts, parent=content, margins=(2 * GRID, GRID, GRID // 2, GRID), spacing=GRID)
        scroller = Scroller(content, horizontal=False, steady=True)
        make_column((scroller, 1), separator(), parent=self._settings, margins=0, spacing=0)
        make_column(self._header(), (self._settings, 1), self._footer(), parent=self, margins=0, spacing=0)

    def _header(self) -> QVBoxLayout:
        label = text_label("&Workload", "heading")
        label.setBuddy(self._workload)
        first = make_row((label, 1), self.questions_button)
        parts = self.host, GRID, first, self._workload, self._help, self.custom_label
        return make_column(*parts, margins=(2 * GRID, 2 * GRID, 2 * GRID, GRID), spacing=GRID)

    def _footer(self) -> QVBoxLayout:
        run_row = make_row((self.run_button, 1), (self.queue_button, 1), spacing=GRID)
        rows = run_row, make_row(self.copy_button, STRETCH, self._largest)
        make_column(*rows, parent=self._runs, margins=0, spacing=GRID)
        reasons, retry = (self.reasons_button, 0, LEFT), (self.retry_button, 0, LEFT)
        parts = STRETCH, self._warning, self._refusal, self._refused, reasons, self._cures, retry, self._runs
        return make_column(*parts, margins=(2 * GRID, GRID, 2 * GRID, GRID), spacing=GRID)
